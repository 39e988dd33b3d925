"""A run is done again from its records: the same tree and events, and nobody is asked."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from agentnb.core.events import AgentCompleted, ToolCallStarted
from agentnb.core.protocols import AGAIN, RUN
from agentnb.core.records import RunJournal
from agentnb.core.replay import Replay
from agentnb.core.types import AgentStatus, CompletionRequest
from agentnb.providers.scripted import ScriptedProvider
from tests.core.clock import ManualClock
from tests.core.recovering import Unbroken, told, unbroken
from tests.core.replaying import Missing, check_replay, replayed
from tests.core.test_recover import looking, uses
from tests.core.test_recover_limits import EXHAUSTED, IN_ORDER
from tests.core.tool_bodies import Tool
from tests.support import Tree, make_tree, path_of, spawn, task_of

TREE: dict[str, Any] = {
    "root": [spawn("A", "B"), "All."],
    "A": [spawn("A1", "A2"), "Both."],
    "A1": [uses(("look", {"text": "a"})), "a1"],
    "B": "b",
}


def journal_of(run: Unbroken) -> RunJournal:
    return run.journal.load(run.tree.request.run_id)


def without(journal: RunJournal, *lost: tuple[str, int]) -> RunJournal:
    """The journal without some calls."""
    kept = tuple(call for call in journal.calls if (call.path, call.number) not in lost)
    return replace(journal, calls=kept)


async def auto(
    run: Unbroken, script: dict[str, Any], journal: RunJournal
) -> tuple[Tree, list[str]]:
    """A run that asks for what the journal does not answer; the tasks of who asked."""

    def reply(request: CompletionRequest) -> Any:
        replies = script.get(task_of(request), f"done: {task_of(request)}")
        turns = sum(message.role == "assistant" for message in request.messages)
        return replies[turns] if isinstance(replies, list) else replies

    provider = ScriptedProvider(reply)
    past = Replay(journal, explain=None)
    tree = make_tree(
        provider, tools=run.tools(), past=past, **run.limits, clock=ManualClock(sleeps_end=True)
    )
    return await tree.run(), [task_of(request) for request in provider.requests]


@pytest.mark.parametrize("case", EXHAUSTED)
async def test_budget_ends_a_replay_where_it_ended_the_run(case: str) -> None:
    script, budget, _ = EXHAUSTED[case]
    limits: dict[str, Any] = {"budget": budget, "on_budget_warning": "continue"}
    await check_replay(await unbroken(script, looking, **limits))


@pytest.mark.parametrize("answer", ["continue", "stop"])
async def test_question_and_its_answer_come_again_and_nobody_is_asked(answer: str) -> None:
    async def gate(warning: object) -> str:
        return answer

    run = await unbroken(IN_ORDER, looking, budget=44_000, budget_gate=gate)
    await check_replay(run, budget_gate=None)


async def test_order_in_which_calls_end_does_not_matter() -> None:
    names = [f"T{n}" for n in range(7)]
    script: dict[str, Any] = {"root": [spawn(*names), "All of it."]}
    for name in names:
        script[name] = [spawn(*(f"{name}.{n}" for n in range(6))), f"{name} is done."]
        script |= {f"{name}.{n}": [uses(("look", {"text": "a"})), "ok"] for n in range(6)}
    run = await unbroken(script, looking)
    journal, whole = journal_of(run), told(run.tree)
    assert len(run.tree.statuses()) == 50
    ends: set[tuple[str, ...]] = set()
    for seed in range(100):
        tree = await replayed(run, past=Shuffled(journal, seed))

        assert told(tree) == whole
        ended = [path_of(each.agent_id) for each in tree.of(AgentCompleted)]
        ends.add(tuple(ended))
    assert len(ends) > 90  # they did end in other orders


class Shuffled(Replay):
    """Each call and each piece takes a while, which is another one each time."""

    def __init__(self, journal: RunJournal, seed: int) -> None:
        super().__init__(journal, explain=Missing, speed=1.0)
        self._dice = random.Random(seed)

    async def until(self, at_s: float) -> None:
        for _ in range(self._dice.randrange(6)):
            await asyncio.sleep(0)


@pytest.mark.parametrize("lost", [("root", 1), ("1", 1), ("1.1", 2), ("2", 1), ("root", 2)])
async def test_call_that_is_not_recorded_ends_the_run(lost: tuple[str, int]) -> None:
    run = await unbroken(TREE, looking)
    past = Replay(without(journal_of(run), lost), explain=Missing)

    tree = await replayed(run, past=past)

    assert isinstance(tree.error, Missing)
    miss = tree.error.miss
    assert (miss.path, miss.number) == lost
    assert miss.request is not None
    assert miss.model == "scripted"
    assert tree.statuses()["root"] == AgentStatus.FAILED
    assert AgentStatus.RUNNING not in tree.statuses().values()


async def test_task_that_moved_finds_its_records() -> None:
    run = await unbroken(TREE, looking)
    moved = {**TREE, "root": [spawn("New", "B", "A"), "All of it."], "New": "new"}

    tree, asked = await auto(run, moved, without(journal_of(run), ("root", 1)))

    assert asked == ["root", "New", "root"]
    assert tree.result.output == "All of it."
    assert list(tree.statuses()) == ["root", "1", "2", "3", "3.1", "3.2"]


async def test_auto_asks_for_the_changed_agent_and_the_later_turns_above_it() -> None:
    script: dict[str, Any] = {**TREE, "A2": [uses(("look", {"text": "x"})), "a2"]}
    run = await unbroken(script, looking)
    other = [uses(("look", {"text": "y"})), "another a2"]
    lost = [("1.2", 1), ("1.2", 2)]  # its prompt is another one now

    changed = {**script, "A2": other, "A": [spawn("A1", "A2"), "Both, otherwise."]}
    tree, asked = await auto(run, changed, without(journal_of(run), *lost))

    assert asked == ["A2", "A2", "A", "root"]
    assert [each.input for each in tree.of(ToolCallStarted)] == [{"text": "a"}, {"text": "y"}]


async def test_recorded_tools_are_not_run_but_those_that_ask_for_it() -> None:
    ran: list[str] = []

    def tools(on_replay: str, *, says: str = "3") -> list[Any]:
        async def body(input: Any, context: Any) -> str:
            ran.append(on_replay)
            return says

        made = Tool(body, name="look")
        vars(made)["on_replay"] = on_replay
        return [made]

    run = await unbroken(
        {"root": [uses(("look", {"text": "a"})), "Seen."]}, lambda: tools("recorded")
    )
    ran.clear()
    for on_replay, is_run in (("recorded", False), (AGAIN, True), (RUN, True)):
        run.tools = lambda each=on_replay: tools(each)  # type: ignore[misc]
        await check_replay(run)
        assert bool(ran) is is_run
        ran.clear()
    run.tools = lambda: tools(AGAIN, says="4")
    await check_replay(run)

    run.tools = lambda: tools(RUN, says="4")
    tree = await replayed(run)

    assert isinstance(tree.error, Missing)
    assert tree.error.miss.tool is not None
    assert (tree.error.miss.tool.result, tree.error.miss.was.result) == ("4", "3")  # type: ignore[union-attr]


async def test_recorded_pace_is_kept_at_the_speed_that_is_asked_for() -> None:
    run = await unbroken({"root": [spawn("A"), "All."], "A": "a"})
    journal = journal_of(run)
    calls = tuple(replace(call, at_s=10.0 * at) for at, call in enumerate(journal.calls))
    clock = ManualClock(sleeps_end=True)

    await replayed(
        run, past=Replay(replace(journal, calls=calls), explain=Missing, speed=2.0), clock=clock
    )

    assert sum(clock.sleeps) == 10.0
