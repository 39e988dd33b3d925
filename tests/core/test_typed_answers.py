"""Answers of a type, in whole runs: when they are asked for, repaired, and what is kept of them."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from agentnb.core.errors import InvalidOutput, ServerFailed
from agentnb.core.events import AgentCompleted, ModelCallStarted, SpawnIgnored
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import FallbackModel
from agentnb.core.spawn import SpawnInstruction, SpawnMode
from agentnb.core.types import (
    FINAL_ANSWER,
    AgentStatus,
    CompletionRequest,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
)
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.tools.function import tool
from agentnb.typed import output_type
from tests.by_tools import order, session_of, start
from tests.support import DEADLINE_S, Tree, by_agent, make_tree, run_tree, spawn

BLOCK = spawn("never started")


class Report(BaseModel):
    title: str
    score: int

    @field_validator("score")
    @classmethod
    def is_fair(cls, score: int) -> int:
        if score > 100:
            raise ValueError("a score is at most 100")
        if score < 0:
            raise KeyError("no such score")
        return score


REPORT = output_type(Report)
GOOD: dict[str, Any] = {"title": "t", "score": 3}
GOOD_TEXT = '{"title":"t","score":3}'


def final(answer: dict[str, Any], id_: str = "f1", text: str = "") -> Reply:
    return Reply(text, (ToolUse(id_, FINAL_ANSWER, answer),))


@tool
def look() -> str:
    """Look."""
    return "seen"


def asked(tree: Tree) -> list[tuple[str, bool]]:
    """Of each call: its agent's path, and whether a type was asked for."""
    return [
        (event.agent_id.partition(".")[2] or "root", event.request.output_schema is not None)
        for event in tree.of(ModelCallStarted)
    ]


def only_tools(request: CompletionRequest) -> list[str]:
    return [each.name for each in request.tools]


class NoTools(ScriptedProvider):
    """A model that cannot call tools."""

    def supports_tools(self, model: str) -> bool:
        return False


async def run(replies: list[Any], **more: Any) -> tuple[Tree, ScriptedProvider]:
    provider = more.pop("kind", ScriptedProvider)(replies)
    return await run_tree(provider, **{"output": REPORT, "max_depth": 0, **more}), provider


# -- one agent ------------------------------------------------------------------------------------


async def test_agent_that_can_only_answer_is_asked_in_its_first_call() -> None:
    tree, provider = await run([final(GOOD)])

    assert tree.result.data == Report(**GOOD)
    assert tree.result.output == GOOD_TEXT
    (request,) = provider.requests
    assert only_tools(request) == [FINAL_ANSWER]
    assert request.output_schema == request.tools[0].input_schema
    (end,) = tree.of(AgentCompleted)
    assert (end.text, end.typed) == (GOOD_TEXT, True)


async def test_agent_with_tools_is_asked_in_a_turn_of_its_own_and_only_then() -> None:
    tree, provider = await run([order(("look", {})), "It is three.", final(GOOD)], tools=[look])

    assert tree.result.data == Report(**GOOD)
    assert [r.output_schema is not None for r in provider.requests] == [False, False, True]
    assert [only_tools(r) for r in provider.requests] == [["look"], ["look"], [FINAL_ANSWER]]


async def test_plain_json_of_an_agent_with_tools_needs_no_turn_more() -> None:
    tree, provider = await run([f"```json\n{GOOD_TEXT}\n```"], tools=[look])

    assert tree.result.data == Report(**GOOD)
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("first", "word"),
    [
        (final({"title": "t"}), "score: Field required"),
        (final({"title": "t", "score": 101}), "a score is at most 100"),
        (final({"title": "t", "score": -1}), "no such score"),
        ("I do not know.", "no JSON"),
        (Reply("", (ToolUse("x1", "look", {}),)), "'look'"),
        (Reply('{"title": "t', stop_reason="max_tokens"), "cut off"),
        ("", "there is no text"),
    ],
    ids=["field", "rule", "bug in a rule", "prose", "other tool", "cut", "nothing"],
)
async def test_wrong_answer_goes_back_once_with_what_is_wrong(first: Any, word: str) -> None:
    tree, provider = await run([first, final(GOOD, "f2")])

    assert tree.result.data == Report(**GOOD)
    assert not tree.result.cut
    _, request = provider.requests
    said = "".join(
        block.text
        for block in request.messages[-1].content
        if isinstance(block, TextBlock | ToolResultBlock)
    )
    assert word in said
    calls = {b.id for m in request.messages for b in m.content if isinstance(b, ToolUseBlock)}
    answered = {
        b.tool_use_id for m in request.messages for b in m.content if isinstance(b, ToolResultBlock)
    }
    assert calls == answered


async def test_second_wrong_answer_fails_with_its_text_kept() -> None:
    tree, provider = await run([final({"title": 1}), "Sorry, I cannot."])

    assert len(provider.requests) == 2
    assert isinstance(tree.error, InvalidOutput)
    assert tree.error.name == "Report"
    assert tree.error.partial_result is not None
    assert tree.error.partial_result.final_response == "Sorry, I cannot."
    assert tree.error.partial_result.data is None
    assert tree.error.partial_result.status is AgentStatus.FAILED


async def test_silent_repair_keeps_the_text_of_before() -> None:
    tree, _ = await run(["Three, I think.", ""])

    assert isinstance(tree.error, InvalidOutput)
    assert tree.error.partial_result is not None
    assert "Three, I think." in tree.error.partial_result.final_response


async def test_first_valid_of_several_calls_is_the_answer() -> None:
    wrong, right = ToolUse("a", FINAL_ANSWER, {}), ToolUse("b", FINAL_ANSWER, GOOD)
    tree, provider = await run([Reply("", (wrong, right))])

    assert tree.result.data == Report(**GOOD)
    assert len(provider.requests) == 1


async def test_spawn_block_in_the_json_is_data_whether_the_type_was_asked_for_or_not() -> None:
    given: dict[str, Any] = {"title": BLOCK, "score": 1}
    for replies, depth in (([final(given)], 0), ([json.dumps(given)], 1), ([json.dumps(given)], 0)):
        tree, provider = await run(replies, max_depth=depth)

        assert tree.result.data == Report(**given)
        assert len(provider.requests) == 1
        assert tree.of(SpawnIgnored) == []
        assert json.loads(tree.result.output) == given


async def test_spawn_block_in_json_of_the_wrong_form_is_kept_as_data() -> None:
    given: dict[str, Any] = {"title": BLOCK}
    tree, _ = await run([final(given), json.dumps(given)])

    assert isinstance(tree.error, InvalidOutput)
    assert tree.error.partial_result is not None
    assert json.loads(tree.error.partial_result.final_response) == given


async def test_turn_that_failed_is_asked_again_for_the_same() -> None:
    broken = Reply("{", error=ServerFailed("it broke"))
    for kind in (ScriptedProvider, NoTools):
        tree, provider = await run([broken, GOOD_TEXT], kind=kind)

        assert tree.result.data == Report(**GOOD)
        first, second = provider.requests
        assert first == second


async def test_failed_turn_for_the_type_keeps_what_was_said_before() -> None:
    refused = ServerFailed("it is gone")
    refused.permanent, refused.retryable = True, False
    tree, _ = await run(["It is three.", refused], tools=[look])

    assert isinstance(tree.error, ServerFailed)
    assert tree.error.partial_result is not None
    assert "It is three." in tree.error.partial_result.final_response
    assert tree.error.partial_result.data is None


async def test_agent_whose_turns_are_used_up_gives_its_answer_all_the_same() -> None:
    replies = [order(("look", {})), final(GOOD)]
    tree, provider = await run(
        replies, tools=[look], orchestrator=AgentOrchestrator(0, max_turns=1)
    )

    assert tree.result.data == Report(**GOOD)
    assert len(provider.requests) == 2


# -- models without tools -------------------------------------------------------------------------


async def test_model_without_tools_is_asked_for_json_in_words() -> None:
    tree, provider = await run(["Here: " + GOOD_TEXT], kind=NoTools)

    assert tree.result.data == Report(**GOOD)
    (request,) = provider.requests
    assert request.tools == ()
    assert request.output_schema is not None
    assert '"score"' in request.last_user_text


async def test_paused_reply_is_continued_with_the_same_question() -> None:
    begun = Reply('{"title":"t",', stop_reason="pause_turn")
    tree, provider = await run([begun, '"score":3}'], kind=NoTools)

    assert tree.result.data == Report(**GOOD)
    first, second = provider.requests
    assert second.messages[:1] == first.messages
    assert second.messages[-1].role is Role.ASSISTANT


@pytest.mark.parametrize("has_tools", [(True, False), (False, True)])
async def test_each_model_of_a_chain_is_asked_in_its_own_way(has_tools: tuple[bool, bool]) -> None:
    gone = ServerFailed("it is gone")
    gone.retryable = False
    replies: tuple[Any, Any] = (gone, GOOD_TEXT)
    first, second = (
        (ScriptedProvider if has else NoTools)([reply])
        for has, reply in zip(has_tools, replies, strict=True)
    )
    links = [FallbackModel(first, "one/a"), FallbackModel(second, "two/b")]
    tree = await run_tree(FallbackProvider(links), output=REPORT, max_depth=0)

    assert tree.result.data == Report(**GOOD)
    for provider, has in zip((first, second), has_tools, strict=True):
        (request,) = provider.requests
        assert request.output_schema is not None
        assert bool(request.tools) == has
        assert ("Answer with one JSON object" in request.last_user_text) != has


# -- trees ----------------------------------------------------------------------------------------


async def test_root_that_delegates_by_a_block_is_asked_in_its_synthesis() -> None:
    script: dict[str, Any] = {"root": [spawn("A", "B"), final(GOOD)], "A": "a", "B": "b"}
    tree = await run_tree(by_agent(script), output=REPORT)

    assert tree.result.data == Report(**GOOD)
    assert tree.result.synthesis == GOOD_TEXT
    assert asked(tree) == [("root", False), ("1", False), ("2", False), ("root", True)]


def test_root_that_delegates_by_tools_is_asked_in_its_synthesis() -> None:
    def reply(request: CompletionRequest) -> Any:
        if "<task>" in request.system:
            return "found"
        if request.output_schema is not None:
            return final(GOOD)
        return order(start("A"), start("B")) if len(request.messages) == 1 else "Wait."

    provider = ScriptedProvider(reply)
    run = session_of(provider).spawn("Do it.", output=Report)

    assert run.result(DEADLINE_S).data == Report(**GOOD)
    last = provider.requests[-1]
    assert only_tools(last) == [FINAL_ANSWER]
    assert all(r.output_schema is None for r in provider.requests[:-1])
    assert run.agent("root").data == Report(**GOOD)


async def test_tasks_of_a_list_have_typed_answers_that_the_root_reads_as_compact_json() -> None:
    script: dict[str, Any] = {
        "root": "All.",
        "A": ["It is three.", final(GOOD)],
        "B": [final({}), final({})],
        "C": [final({"title": "c", "score": 5})],
    }
    tree = make_tree(
        by_agent(script),
        plan=SpawnInstruction(SpawnMode.PARALLEL, ("A", "B", "C")),
        outputs=REPORT,
        max_depth=1,
    )
    await tree.run()

    a, b, c = tree.result.sub_agent_results
    assert (a.data, b.data, c.data) == (Report(**GOOD), None, Report(title="c", score=5))
    assert (b.status, b.response) == (AgentStatus.FAILED, "{}")
    assert tree.result.data is None
    assert tree.result.output == "All."
    synthesis = tree.of(ModelCallStarted)[-1].request
    assert GOOD_TEXT in synthesis.last_user_text
    assert synthesis.output_schema is None


async def test_exhausted_agent_keeps_its_text_and_has_no_data() -> None:
    tree = make_tree(
        by_agent({"root": "All.", "A": GOOD_TEXT + " x" * 40_000}),
        plan=SpawnInstruction(SpawnMode.PARALLEL, ("A",)),
        outputs=REPORT,
        budget=6_000,
        max_depth=1,
    )
    await tree.run()

    (result,) = tree.result.sub_agent_results
    assert (result.status, result.data) == (AgentStatus.EXHAUSTED, None)
    assert result.response.startswith(GOOD_TEXT)


# -- what a person says meanwhile -----------------------------------------------------------------


async def test_agent_that_is_told_something_gives_its_typed_answer_anew() -> None:
    other: dict[str, Any] = {"title": "u", "score": 4}
    told: list[bool] = []

    def reply(request: CompletionRequest) -> Any:
        if not told:
            told.append(True)
            tree.request.words.tell(tree.request.thread_id, "Make it four.", "person")
            return final(GOOD)
        return final(other, "f2")

    tree = make_tree(ScriptedProvider(reply), output=REPORT, max_depth=0)
    await tree.run()

    assert tree.result.data == Report(**other)
    last = tree.of(ModelCallStarted)[-1].request
    assert isinstance(last.messages[-1].content[0], ToolResultBlock)
    assert "Make it four." in last.last_user_text


async def test_answer_stands_if_nothing_is_said_to_what_a_person_told() -> None:
    told: list[bool] = []

    def reply(request: CompletionRequest) -> Any:
        if not told:
            told.append(True)
            tree.request.words.tell(tree.request.thread_id, "Thank you.", "person")
            return final(GOOD)
        return ""

    tree = make_tree(ScriptedProvider(reply), output=REPORT, max_depth=0)
    await tree.run()

    assert tree.result.data == Report(**GOOD)
    assert tree.result.output == GOOD_TEXT


@pytest.mark.parametrize("type_", [Literal["a", "b"], int, list[int], None, str])
async def test_answer_that_is_no_object_is_wrapped_for_the_model_alone(type_: Any) -> None:
    given = {int: 5, None: "text", str: "text"}.get(type_, "a")
    given = [1, 2] if type_ == list[int] else given
    output = output_type(type_)
    replies = [given if output is None else final({"value": given})]
    tree, _ = await run(replies, output=output)

    if output is None:
        assert (tree.result.data, tree.result.output) == (None, "text")
    else:
        assert tree.result.data == given
        assert tree.result.output == json.dumps(given, separators=(",", ":"))
