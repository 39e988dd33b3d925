"""What agents remember goes to the run's keeper, and what it recalls into the root's prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from agentnb.core.context import AgentContext
from agentnb.core.durable import MemoryEntry
from agentnb.core.errors import AgentnbError, InternalError
from agentnb.core.events import MemoryCreated, RunFinished, ToolCallFinished
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import ToolContext
from agentnb.core.types import SpawnInstruction, SpawnMode, ToolSpec, ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.record import record_of
from agentnb.testing.memory_journal import MemoryJournal
from tests.support import by_agent, make_tree, requests_of, run_tree, spawn

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


class Keeper:
    """Keeps facts in a list. What it is given as `error` it raises when it recalls."""

    def __init__(self, *known: str, error: BaseException | None = None) -> None:
        self.known, self.error = known, error
        self.asked: list[tuple[str, int]] = []
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.kept: list[MemoryEntry] = []

    async def remember(self, agent_id: str, run_id: str, fact: str) -> MemoryEntry:
        self.began.set()
        await self.may_end.wait()
        if fact == "too much":
            raise OSError("the disk is full")
        self.kept.append(MemoryEntry(fact, agent_id, run_id, NOON, 41 + len(self.kept)))
        return self.kept[-1]

    async def recall(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        self.asked.append((query, limit))
        if self.error is not None:
            raise self.error
        return [MemoryEntry(text, "nb", "run", NOON, at) for at, text in enumerate(self.known, 1)]


class Note:
    spec = ToolSpec("note", "Notes.", {"type": "object"})

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        assert context.memory is not None
        return (await context.memory.remember(input["fact"])).text


def note(*facts: str) -> Reply:
    return Reply("", tuple(ToolUse(fact, "note", {"fact": fact}) for fact in facts))


async def test_each_kept_fact_is_published_and_in_the_result() -> None:
    keeper = Keeper()
    provider = by_agent({"root": [spawn("A"), "together"], "A": [note("first"), "done"]})

    tree = await run_tree(provider, tools=[Note()], memory=keeper)

    (created,) = tree.of(MemoryCreated)
    assert (created.agent_id, created.fact) == (tree.id_of("1"), "first")
    assert (created.memory_id, created.created_at) == (41, NOON.timestamp())
    kinds = [event.kind for event in tree.events]
    assert kinds.index("tool_call_started") < kinds.index("memory_created")
    assert kinds.index("memory_created") < kinds.index("tool_call_finished")
    assert list(tree.result.memories) == keeper.kept
    assert repr(tree.result.memories) == "MemoryList(1 memory)"
    record = record_of(tree.request.run_id, "the task", tree.bus.rows_since(0), {})
    assert record.memories == tree.result.memories


async def test_fact_that_was_not_kept_is_an_error_for_the_model() -> None:
    keeper = Keeper()
    provider = ScriptedProvider([note("too much", "second"), "done"])

    tree = await run_tree(provider, tools=[Note()], memory=keeper)

    assert [event.is_error for event in tree.of(ToolCallFinished)] == [True, False]
    assert [memory.text for memory in tree.result.memories] == ["second"]


async def test_fact_that_is_kept_when_its_agent_is_cancelled_is_published_all_the_same() -> None:
    keeper = Keeper()
    keeper.may_end.clear()
    tree = make_tree(ScriptedProvider([note("first")]), tools=[Note()], memory=keeper)
    running = tree.start()
    await keeper.began.wait()

    tree.cancel("root")
    keeper.may_end.set()
    await running

    assert tree.statuses() == {"root": "cancelled"}
    assert [memory.text for memory in tree.result.memories] == ["first"]


async def test_what_is_recalled_stands_behind_the_given_memories_each_once() -> None:
    keeper, journal = Keeper("new", "given"), MemoryJournal()
    context = AgentContext(recalled_memories=("given",))
    provider = by_agent({"root": [spawn("A"), "ok"]})

    tree = await run_tree(
        provider, memory=keeper, recall=3, context=context, journal=journal, task="two words"
    )

    assert keeper.asked == [("two words", 3)]
    for request in (provider.requests[0], requests_of(provider, "A")[0]):
        assert "<long_term_memory>\n- given\n- new\n</long_term_memory>" in request.system
    verdicts = [
        each for each in journal.load(tree.request.run_id).verdicts if each.kind == "recalled"
    ]
    assert [(each.path, each.value) for each in verdicts] == [
        ("root", [{"id": 1, "text": "new"}, {"id": 2, "text": "given"}])
    ]


async def test_fresh_sub_agents_get_nothing_of_it() -> None:
    provider = by_agent({"root": [spawn("A"), "ok"]})

    await run_tree(
        provider,
        memory=Keeper("new"),
        recall=1,
        orchestrator=AgentOrchestrator(sub_agent_memory="fresh"),
    )

    assert "- new" in provider.requests[0].system
    assert "new" not in requests_of(provider, "A")[0].system


async def test_plan_recalls_by_the_words_of_its_tasks() -> None:
    keeper, provider = Keeper("new"), by_agent({})

    await run_tree(
        provider, memory=keeper, recall=1, plan=SpawnInstruction(SpawnMode.PARALLEL, ("A", "B"))
    )

    assert keeper.asked == [("A\nB", 1)]
    assert "- new" in requests_of(provider, "A")[0].system


async def test_nothing_is_recalled_unless_it_is_asked_for() -> None:
    keeper, journal = Keeper("new"), MemoryJournal()

    tree = await run_tree(ScriptedProvider(["ok"]), memory=keeper, journal=journal)

    assert keeper.asked == []
    assert journal.load(tree.request.run_id).verdicts == ()


async def test_run_goes_on_without_memories_if_the_store_is_in_trouble() -> None:
    keeper = Keeper(error=AgentnbError("The disk is full."))

    tree = await run_tree(ScriptedProvider(["ok"]), memory=keeper, recall=1)

    assert tree.result.final_response == "ok"


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit("out")], ids=repr)
async def test_keeper_that_fails_fails_the_run_like_any_broken_part(error: BaseException) -> None:
    tree = await run_tree(ScriptedProvider(["ok"]), memory=Keeper(error=error), recall=1)

    assert isinstance(tree.error, InternalError)
    assert "in the memories" in str(tree.error)
    assert tree.statuses() == {"root": "failed"}
    (finished,) = tree.of(RunFinished)
    assert finished.status == "failed"


@pytest.mark.parametrize("created_at", [1e300, float("nan"), float("-inf"), -1e15])
async def test_time_that_is_none_is_no_trouble_to_a_reader(created_at: float) -> None:
    event = MemoryCreated(agent_id="nb", fact="f", created_at=created_at)

    (memory,) = record_of("run", "task", [(0.0, event)], {}).memories

    assert (memory.text, memory.created_at) == ("f", datetime.fromtimestamp(0, UTC))
