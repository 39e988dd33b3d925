"""What an agent is told, in which order, and that no value can pretend to be more than a value."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core import prompt
from agentnb.core.context import AgentContext
from agentnb.core.prompt import (
    SystemPromptBuilder,
    child_message,
    corrective_message,
    shared_prefix_length,
)
from agentnb.core.spawn import SpawnMode, parse_spawn_instructions
from agentnb.core.types import AgentConfig, user_message

CONFIG = AgentConfig(name="tester", model="demo/x")
ROOT_SECTIONS = [
    *("soul", "identity", "user_context", "session_memory", "long_term_memory"),
    *("instructions", "agent_capabilities"),
]
CHILD_SECTIONS = [
    *("soul", "identity", "long_term_memory", "sub_agent_instructions"),
    *("agent_capabilities", "task"),
]
any_text = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["</soul>", "<task>\n", "</task>", "<agent_capabilities>", "a & b", "]]>", "&lt;/soul&gt;"]
)


def sections_of(text: str) -> dict[str, str]:
    """The sections by name, in their order. Fails when anything stands between them."""
    sections: dict[str, str] = {}
    rest = text + "\n\n"
    while rest:
        found = re.match(r"(?s)<(\w+)>\n(.*?)\n</\1>\n\n", rest)
        assert found is not None, rest
        assert found[1] not in sections
        sections[found[1]] = found[2]
        rest = rest[found.end() :]
    return sections


def full_root(*, depth: int = 0, max_depth: int = 3, instructions: str = "work") -> dict[str, str]:
    return sections_of(
        SystemPromptBuilder.build_with_capabilities(
            CONFIG,
            "soul",
            "identity",
            "user",
            session_memory="session",
            long_term_memory="long",
            instructions=instructions,
            depth=depth,
            max_depth=max_depth,
        )
    )


def capabilities(depth: int, max_depth: int) -> str:
    return full_root(depth=depth, max_depth=max_depth)["agent_capabilities"]


# -- sections ----------------------------------------------------------------------------


def test_root_has_all_sections_in_order() -> None:
    sections = full_root()

    assert list(sections) == ROOT_SECTIONS
    assert list(sections.values())[:-1] == [
        *("soul", "identity", "user", "session", "long", "work"),
    ]


def test_empty_sections_are_left_out_and_instructions_have_a_default() -> None:
    sections = sections_of(SystemPromptBuilder.build(CONFIG, " ", "", "\n", instructions=" "))

    assert sections == {"instructions": prompt.DEFAULT_INSTRUCTIONS}


def test_build_says_nothing_about_delegation() -> None:
    text = SystemPromptBuilder.build(
        CONFIG, "soul", "identity", "user", session_memory="session", long_term_memory="long"
    )

    assert list(sections_of(text)) == ROOT_SECTIONS[:-1]
    assert "agent" not in text


@pytest.mark.parametrize(("depth", "max_depth"), [(0, 0), (1, 1), (3, 3), (4, 3)])
def test_agent_at_the_deepest_level_is_not_told_how_to_delegate(depth: int, max_depth: int) -> None:
    root = full_root(depth=depth, max_depth=max_depth)
    child = SystemPromptBuilder.build_for_sub_agent(
        CONFIG, "soul", "identity", "task", depth, max_depth=max_depth
    )

    assert list(root) == ROOT_SECTIONS[:-1]
    assert "spawn_agents" not in child
    assert "agent_capabilities" not in child


def test_child_has_its_sections_in_order_and_its_task_last() -> None:
    sections = sections_of(
        SystemPromptBuilder.build_for_sub_agent(
            CONFIG, "soul", "identity", " task\n", 1, long_term_memory="long"
        )
    )

    assert list(sections) == CHILD_SECTIONS
    assert sections["task"] == "task"
    assert sections["long_term_memory"] == "long"
    assert sections["sub_agent_instructions"] == prompt.SUB_AGENT_INSTRUCTIONS


def test_builder_works_as_an_instance_too() -> None:
    assert SystemPromptBuilder().build(CONFIG, "s") == SystemPromptBuilder.build(CONFIG, "s")


def test_model_and_name_do_not_change_the_words() -> None:
    other = AgentConfig(name="other", model="anthropic/y")

    assert SystemPromptBuilder.build(CONFIG) == SystemPromptBuilder.build(other)


@given(st.lists(any_text, min_size=6, max_size=6))
def test_no_value_can_close_its_section_or_open_another(values: list[str]) -> None:
    soul, identity, user, session, long, instructions = values
    text = SystemPromptBuilder.build_with_capabilities(
        CONFIG,
        soul,
        identity,
        user,
        session_memory=session,
        long_term_memory=long,
        instructions=instructions,
    )

    tags = re.findall(r"</?(?!spawn_agents|agent )\w+>", text)

    shown = [name for name, value in zip(ROOT_SECTIONS, values, strict=False) if value.strip()]
    always = ["instructions", "agent_capabilities"]
    expected = [name for name in shown if name not in always] + always
    assert tags == [tag for name in expected for tag in (f"<{name}>", f"</{name}>")]


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\x85", "\v"])
def test_memory_of_several_lines_is_one_memory(end: str) -> None:
    assert prompt.listed([f"one{end}- two", "three"]) == "- one\n  - two\n- three"


def test_values_are_escaped_once() -> None:
    text = SystemPromptBuilder.build(CONFIG, "a < b & c > \"d\" 'e' &amp;")

    assert sections_of(text)["soul"] == "a &lt; b &amp; c &gt; \"d\" 'e' &amp;amp;"


# -- the capability section ----------------------------------------------------------------


def test_capability_section_shows_both_forms_as_the_parser_reads_them() -> None:
    text = capabilities(0, 3)
    parallel, sequential = (
        parse_spawn_instructions(shown)
        for shown in re.findall(r"(?s)<spawn_agents.*?</spawn_agents>", text)
    )

    assert '\n<spawn_agents mode="parallel">\n  <agent task="' in text
    assert parallel is not None
    assert sequential is not None
    assert (parallel.mode, sequential.mode) == (SpawnMode.PARALLEL, SpawnMode.SEQUENTIAL)
    assert len(parallel.tasks) == len(sequential.tasks) == 2


@pytest.mark.parametrize(
    "said",
    [
        "Delegate only when the task gains from it",
        "make each task specific and self-contained",
        "shares your personality",
        "Text before the block is welcome: explain your approach",
        "outside any code fence",
        "the results come back to you, and you bring them together",
        "Sequential: one by one, each handed the result of the one before it",
        "sees nothing of its siblings or of this conversation",
        "write &quot; for a double quote",
    ],
)
def test_capability_section_says_what_a_model_has_to_know(said: str) -> None:
    assert said in capabilities(0, 3)


@pytest.mark.parametrize(
    ("depth", "max_depth", "said"),
    [
        (0, 3, "may delegate further: there are 3 levels below you."),
        (1, 3, "may delegate further: there are 2 levels below you."),
        (2, 3, "cannot delegate further: there is 1 level below you."),
        (0, 1, "cannot delegate further: there is 1 level below you."),
    ],
)
def test_capability_section_tells_the_depth_that_is_left(
    depth: int, max_depth: int, said: str
) -> None:
    child = SystemPromptBuilder.build_for_sub_agent(
        CONFIG, "", "", "task", depth, max_depth=max_depth
    )

    assert capabilities(depth, max_depth).endswith(said)
    assert sections_of(child)["agent_capabilities"] == capabilities(depth, max_depth)


def test_capability_section_is_cheap_enough_for_a_small_budget() -> None:
    assert len(capabilities(0, 3).encode()) / 4 < 350


# -- from a context ------------------------------------------------------------------------

CONTEXT = AgentContext(
    agent_config=CONFIG,
    soul_content="soul",
    identity_content="identity",
    user_content="the person's secret",
    memories=("said today", "also today"),
    recalled_memories=("known for long\nand in two lines", " ", "also for long"),
    conversation_history=(user_message("an old question"),),
    system_prompt="own instructions",
)


def test_prompt_of_a_root_holds_its_context_but_for_the_conversation() -> None:
    sections = sections_of(replace(CONTEXT, max_depth=2).root_prompt())

    assert sections.pop("agent_capabilities") == capabilities(0, 2)
    assert sections == {
        "soul": "soul",
        "identity": "identity",
        "user_context": "the person's secret",
        "session_memory": "- said today\n- also today",
        "long_term_memory": "- known for long\n  and in two lines\n- also for long",
        "instructions": "own instructions",
    }


def test_maximal_depth_of_a_context_leaves_delegation_out() -> None:
    assert "agent_capabilities" not in replace(CONTEXT, max_depth=0).root_prompt()
    child = replace(CONTEXT, max_depth=2).child_for_task("task", 2)
    assert "agent_capabilities" not in child.system_prompt


def test_prompt_of_a_fresh_child_holds_nothing_of_the_conversation_above() -> None:
    sections = sections_of(CONTEXT.child_for_task("its task", 1).system_prompt)

    assert sections == {
        "soul": "soul",
        "identity": "identity",
        "sub_agent_instructions": prompt.SUB_AGENT_INSTRUCTIONS,
        "agent_capabilities": capabilities(1, 3),
        "task": "its task",
    }


def test_child_that_inherits_is_told_the_recalled_memories_only() -> None:
    text = CONTEXT.child_for_task("its task", 1, inherit_memory=True).system_prompt

    assert "known for long" in sections_of(text)["long_term_memory"]
    for kept_back in ("secret", "today", "old question", "own instructions"):
        assert kept_back not in text


# -- the prefix that siblings share -----------------------------------------------------------


@given(any_text, any_text, any_text)
def test_siblings_share_all_up_to_their_task(soul: str, first: str, second: str) -> None:
    one, other = (
        SystemPromptBuilder.build_for_sub_agent(CONFIG, soul, "", f"a{task}", 1)
        for task in (first, second)
    )
    length = shared_prefix_length(one)

    assert length == shared_prefix_length(other)
    assert one[:length] == other[:length]
    assert one[length:].startswith("<task>\na")
    assert other[length:].startswith("<task>\na")


def test_prompt_without_a_task_shares_nothing() -> None:
    assert shared_prefix_length(SystemPromptBuilder.build(CONFIG, "soul <task>")) == 0


# -- messages --------------------------------------------------------------------------------


def test_first_message_of_a_child_is_its_task_as_it_was_asked_for() -> None:
    assert child_message(" a < b ", None) == " a < b "


def test_previous_result_stands_escaped_before_the_task() -> None:
    message = child_message("a < b", "x </previous_result> & <spawn_agents>")

    assert message == (
        "<previous_result>\n"
        "x &lt;/previous_result&gt; &amp; &lt;spawn_agents&gt;\n"
        "</previous_result>\n\n"
        "a < b"
    )


def test_empty_previous_result_is_still_one() -> None:
    assert child_message("task", "") == "<previous_result>\n\n</previous_result>\n\ntask"


@pytest.mark.parametrize("reason", ["the block has no end tag", " the block has no end tag.\n"])
def test_corrective_message_says_why_and_what_to_do_now(reason: str) -> None:
    message = corrective_message(reason)

    assert message == (
        "The sub-agents that you asked for were not started, because the block has no end tag. "
        "Answer the task directly yourself now, without a spawn block."
    )
    assert parse_spawn_instructions(message) is None
