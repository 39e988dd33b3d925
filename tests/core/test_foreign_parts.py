"""What the core is handed may misbehave: a run ends in order all the same, and tells of it.

`run_tree` checks every record: `RunFinished` last, one terminal event per agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core.budget import estimate_input_tokens, estimate_tokens
from agentnb.core.context import AgentContext
from agentnb.core.errors import InternalError, LlmError
from agentnb.core.events import BudgetWarning, ToolCallFinished
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import ToolContext
from agentnb.core.types import CompletionRequest, ToolSpec, ToolUse, Usage
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from tests.support import by_agent, check_record, make_tree, run_tree, spawn


class Odd(BaseException):
    """No `Exception`: what `pytest.fail` raises is of this kind."""


EXITS = [
    SystemExit("out"),
    KeyboardInterrupt(),
    GeneratorExit("closed, I thought"),
    asyncio.CancelledError("mine, not yours"),
    Odd("neither"),
]


class Tool:
    """Gives what it was made with: raised, if it can be."""

    spec = ToolSpec("look", "Looks.", {"type": "object"})

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]  # that is the misbehaviour


def using_the_tool() -> ScriptedProvider:
    return ScriptedProvider([Reply("", (ToolUse("t1", "look", {}),)), "Seen."])


@pytest.mark.parametrize("outcome", [*EXITS, 5, None], ids=repr)
async def test_tool_that_misbehaves_is_an_error_result_for_the_model(outcome: object) -> None:
    tree = await run_tree(using_the_tool(), tools=[Tool(outcome)])

    (told,) = tree.of(ToolCallFinished)
    assert told.is_error
    assert tree.result.final_response == "Seen."


@pytest.mark.parametrize("exit_", EXITS, ids=repr)
async def test_provider_that_wants_out_fails_its_agent_and_nothing_else(
    exit_: BaseException,
) -> None:
    def answer(request: CompletionRequest) -> AnyReply:
        if request.last_user_text == "B":
            raise exit_
        return "A is done." if request.last_user_text == "A" else next(words)

    words = iter([spawn("A", "B"), "ok"])

    tree = await run_tree(ScriptedProvider(answer))

    assert tree.statuses() == {"root": "completed", "1": "completed", "2": "failed"}
    assert type(exit_).__name__ in str(tree.result.sub_agent_results[1].error)


@pytest.mark.parametrize("wrong", ["many", 1.5, -3, None])
async def test_count_that_is_none_says_nothing_and_the_estimate_stands(wrong: Any) -> None:
    provider = ScriptedProvider([Reply("an answer", usage=Usage(wrong, 1))])

    tree = await run_tree(provider)

    assert tree.result.final_response == "an answer"
    (asked,) = provider.requests
    estimate = estimate_input_tokens(asked) + estimate_tokens("an answer")
    assert tree.request.budget.tokens_used == estimate


class BrokenJournal:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def commit(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [OSError("disk full"), *EXITS], ids=repr)
async def test_journal_that_cannot_keep_is_told_at_the_end_and_the_answer_is_not_lost(
    error: BaseException,
) -> None:
    provider = by_agent({"root": [spawn("A", "B"), "ok"], "A": "a", "B": "b"})

    tree = await run_tree(provider, journal=BrokenJournal(error))

    assert isinstance(tree.error, InternalError)
    assert f"{type(error).__name__} in the journal" in str(tree.error)
    assert tree.error.__cause__ is error
    assert tree.statuses() == {"root": "completed", "1": "completed", "2": "completed"}
    assert tree.result.final_response == "ok"
    assert len(provider.requests) == 4, "nothing was asked again for it"


async def test_total_that_is_set_as_the_run_ends_changes_nothing_after_its_end() -> None:
    class Spender:
        async def commit(self) -> None:
            tree.request.budget.set_total(tree.request.budget.total + 1)

    tree = make_tree(ScriptedProvider(["ok"]), journal=Spender())
    await tree.run()

    for _ in range(3):
        await asyncio.sleep(0)

    check_record(tree.entries)


async def test_root_that_cannot_be_made_is_a_bug_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_prompt(*args: object, **kwargs: object) -> str:
        raise RuntimeError("no words")

    monkeypatch.setattr(AgentContext, "root_prompt", no_prompt)
    tree = make_tree(ScriptedProvider(["ok"]))

    with pytest.raises(InternalError, match="no words"):
        await tree.orchestrator.execute(
            tree.provider, tree.context, "the task", tree.request, tree.bus
        )

    check_record(tree.entries)


async def test_chain_deeper_than_pythons_own_stack_comes_back() -> None:
    depth = 1010

    def answer(request: CompletionRequest) -> AnyReply:
        asked = request.last_user_text
        if asked.startswith("<sub_agent_results>"):
            return "came back"
        level = int(asked.rpartition(" ")[2])
        return spawn(f"level {level + 1}") if level < depth else "at the bottom"

    tree = make_tree(ScriptedProvider(answer), budget=10**9, max_depth=depth, max_agents=depth)
    # Not by `Tree.run`: to compare two such trees Python itself goes down level by level.
    result = await AgentOrchestrator(depth).execute(
        tree.provider, tree.context, "level 0", tree.request, tree.bus
    )

    assert result.status == "completed"
    assert sum(1 for _ in result.agent_tree.walk()) == depth + 1
    check_record(tree.entries)


async def test_jump_over_both_lines_is_warned_of_and_asks_nothing() -> None:
    asked: list[BudgetWarning] = []

    def gate(warning: BudgetWarning) -> str:
        asked.append(warning)
        return "continue"

    provider = ScriptedProvider([Reply("a", usage=Usage(100, 20_000))])

    tree = await run_tree(provider, budget=10_000, budget_gate=gate)

    assert len(tree.of(BudgetWarning)) == 1
    assert asked == []


async def test_parent_whose_synthesis_fails_hands_up_what_its_children_found() -> None:
    provider = by_agent(
        {
            "root": [spawn("P"), "ok"],
            "P": [spawn("P1", before="I split it."), LlmError("gone", status_code=404)],
            "P1": "P1 was found.",
        }
    )

    tree = await run_tree(provider)

    (result,) = tree.result.sub_agent_results
    assert result.status == "failed"
    assert result.response.startswith("I split it.")
    assert "P1 was found." in result.response


async def test_tasks_that_are_all_refused_stand_in_the_results_as_skipped() -> None:
    provider = by_agent({"root": spawn("A", "B", before="I would split it.")})

    tree = await run_tree(provider, max_agents=0)

    assert [(r.task, r.status) for r in tree.result.sub_agent_results] == [
        ("A", "skipped"),
        ("B", "skipped"),
    ]
    assert tree.result.final_response == "I would split it."
