"""What a child is handed, and that nothing else can reach it."""

from __future__ import annotations

import dataclasses

import pytest

from agentnb.config.profile import Profile, available_profiles_block
from agentnb.core.context import AgentContext
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.prompt import SystemPromptBuilder
from agentnb.core.protocols import Delegation
from agentnb.core.types import AgentConfig, Briefing, Message, user_message
from agentnb.tools.spawn import spawn_tools
from tests.by_tools import order, start, wait
from tests.support import by_agent, requests_of, run_tree, spawn

PARENT = AgentContext(
    agent_config=AgentConfig(name="parent", model="demo/x", extra={"a": 1}),
    soul_content="the soul",
    identity_content="the identity",
    user_content="about the person",
    memories=("of this conversation",),
    recalled_memories=("from before",),
    conversation_history=(user_message("hello"),),
    system_prompt="own instructions",
    verbose=True,
)


def test_fields_stand_in_the_order_that_others_rely_on() -> None:
    names = [each.name for each in dataclasses.fields(AgentContext)]

    assert names == [
        *("agent_config", "soul_content", "identity_content", "user_content", "memories"),
        *("recalled_memories", "conversation_history", "system_prompt", "verbose"),
        *("task", "depth", "briefings"),
        *("max_depth", "by_block", "nested_spawn", "profiles"),
    ]


def test_empty_context_is_that_of_a_root() -> None:
    context = AgentContext()

    assert context.agent_config == AgentConfig()
    assert (context.task, context.depth) == ("", 0)
    assert (context.memories, context.conversation_history) == ((), ())


def test_fresh_child_gets_who_it_is_and_its_task_and_nothing_else() -> None:
    child = PARENT.child_for_task("the task", 2)

    assert dataclasses.replace(child, system_prompt="") == AgentContext(
        agent_config=PARENT.agent_config,
        soul_content="the soul",
        identity_content="the identity",
        verbose=True,
        task="the task",
        depth=2,
    )


def test_child_inherits_the_recalled_memories_only_when_told_to() -> None:
    child = PARENT.child_for_task("the task", 1, inherit_memory=True)

    fresh = PARENT.child_for_task("the task", 1)
    assert child == dataclasses.replace(
        fresh, recalled_memories=("from before",), system_prompt=child.system_prompt
    )


def test_childs_system_prompt_is_all_that_it_is_told_before_its_first_message() -> None:
    """The root's own instructions are no part of it, nor its child's prompt of a grandchild's."""
    child = PARENT.child_for_task("the <task>", 1, inherit_memory=True)

    assert child.system_prompt == SystemPromptBuilder.build_for_sub_agent(
        PARENT.agent_config,
        "the soul",
        "the identity",
        "the <task>",
        1,
        long_term_memory="- from before",
    )
    grandchild = child.child_for_task("its part", 2)
    assert grandchild.system_prompt == SystemPromptBuilder.build_for_sub_agent(
        PARENT.agent_config, "the soul", "the identity", "its part", 2
    )


def test_grandchild_inherits_through_its_parent_and_not_past_a_fresh_one() -> None:
    heir = PARENT.child_for_task("a", 1, inherit_memory=True)
    fresh = PARENT.child_for_task("a", 1)

    assert heir.child_for_task("b", 2, inherit_memory=True).recalled_memories == ("from before",)
    assert fresh.child_for_task("b", 2, inherit_memory=True).recalled_memories == ()


def test_later_change_of_a_list_does_not_reach_in() -> None:
    memories, recalled = ["a"], ["b"]
    history: list[Message] = [user_message("c")]
    context = AgentContext(
        memories=memories,  # type: ignore[arg-type]  # a person may well pass a list
        recalled_memories=recalled,  # type: ignore[arg-type]
        conversation_history=history,  # type: ignore[arg-type]
    )

    memories.append("x")
    recalled.append("x")
    history.clear()

    assert context.memories == ("a",)
    assert context.recalled_memories == ("b",)
    assert context.conversation_history == (user_message("c"),)


def test_context_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PARENT.task = "another"  # type: ignore[misc]


# -- the prompt that goes out ---------------------------------------------------------------------


async def test_childs_system_prompt_is_what_goes_out_at_every_depth() -> None:
    """The contract's own call, of the context that a person hands over."""
    provider = by_agent({"root": [spawn("A"), "ok"], "A": [spawn("B"), "a"], "B": [spawn("C"), ""]})

    await run_tree(provider, context=PARENT)

    above = PARENT
    for depth, task in enumerate("ABC", start=1):
        above = above.child_for_task(task, depth, inherit_memory=True)
        for request in requests_of(provider, task):
            assert request.system == above.system_prompt
    assert "<agent_capabilities>" not in above.system_prompt


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("by_block", [False, True])
@pytest.mark.parametrize("max_depth", [1, 2])
async def test_childs_system_prompt_is_what_goes_out_however_a_run_delegates(
    max_depth: int, by_block: bool, nested: bool
) -> None:
    profiles = available_profiles_block([Profile("strict", description="Is strict.")])
    delegation = Delegation(by_block, spawn_tools(), nested, profiles)
    told = start("A", system_prompt="Be <quick>.")
    provider = by_agent({"root": [order(told, start("B")), order(wait()), "ok"]})

    await run_tree(
        provider,
        context=PARENT,
        orchestrator=AgentOrchestrator(delegation=delegation, sub_agent_memory="fresh"),
        max_depth=max_depth,
    )

    root = dataclasses.replace(
        PARENT, max_depth=max_depth, by_block=by_block, nested_spawn=nested, profiles=profiles
    )
    briefing = Briefing("system_prompt", "Be <quick>.")
    (first,), (second,) = requests_of(provider, "A"), requests_of(provider, "B")
    assert first.system == root.child_for_task("A", 1, briefings=[briefing]).system_prompt
    assert second.system == root.child_for_task("B", 1).system_prompt
    assert ("<available_spawn_profiles>" in second.system) is (nested and max_depth == 2)
    assert "&lt;quick&gt;" in first.system
    assert provider.requests[0].system == root.root_prompt(has_spawn_tools=True)
