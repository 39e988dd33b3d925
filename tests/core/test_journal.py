"""What a journal is handed, and when."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agentnb.core.collector import MANY
from agentnb.core.errors import InternalError, LlmError, RateLimited
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    BudgetChanged,
    Entry,
    ModelCallFinished,
    ModelCallStarted,
    RunFinished,
    is_terminal,
)
from agentnb.core.keys import key_of
from agentnb.core.protocols import ToolContext
from agentnb.core.reading import model_call_finished
from agentnb.core.records import (
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    RunHead,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    Message,
    Role,
    SpawnInstruction,
    SpawnMode,
    Stopped,
    TextBlock,
    TextDelta,
    ToolUseBlock,
    Usage,
)
from agentnb.providers.scripted import Reply, ScriptedProvider
from tests.core.clock import ManualClock, everyone_waits
from tests.core.tool_bodies import Tool, order
from tests.support import by_agent, make_tree, run_tree, spawn


class Keeper:
    """Keeps what it is handed, in order, and how much of it each commit has kept."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.handed: list[object] = []
        """Heads, intents as `("intend", record)`, and other records."""
        self.kept: list[int] = []
        """Number of entries at each commit."""

    def begin(self, head: RunHead) -> None:
        self.handed.append(head)

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        self.handed.append(("intend", record))

    def keep(self, record: Kept) -> None:
        self.handed.append(record)

    def published(self, entries: Sequence[Entry]) -> None:
        self.entries += entries

    async def commit(self) -> None:
        self.kept.append(len(self.entries))

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.handed if isinstance(record, kind)]

    @property
    def intents(self) -> list[Any]:
        return [record[1] for record in self.handed if isinstance(record, tuple)]


class Held(Keeper):
    """Ends a commit when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Future[None]] = []
        self._times = 0
        self._is_given_up = False

    async def commit(self) -> None:
        await super().commit()
        if self._is_given_up:
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(ended)
        try:
            await ended
        except asyncio.CancelledError:  # the test failed: let its run come to its end
            self._is_given_up = True
            raise

    async def let_go(self) -> None:
        self._times += 1
        assert self._times < 1000, "what the test waits for never comes"
        for ended in self.waiting:
            if not ended.done():
                ended.set_result(None)
        await everyone_waits()


async def nothing(_: Mapping[str, Any], context: ToolContext) -> str:
    return "seen"


# -- entries ---------------------------------------------------------------------------------------


async def test_journal_is_handed_the_whole_record_once_and_in_order() -> None:
    keeper = Keeper()
    tree = await run_tree(by_agent({"root": [spawn("A", "B"), "ok"]}), journal=keeper)

    assert keeper.entries == tree.entries
    assert isinstance(keeper.entries[-1].event, RunFinished)
    assert keeper.kept[-1] == len(keeper.entries), "the last event is kept, too"


async def test_what_stands_before_a_finished_or_terminal_event_is_kept_before_it_is_told() -> None:
    keeper = Keeper()
    provider = by_agent({"root": [order("look"), spawn("A"), "ok"]})
    tree = await run_tree(provider, journal=keeper, tools=[Tool(nothing)])

    told = [
        entry
        for entry in tree.entries
        if is_terminal(entry.event) or isinstance(entry.event, ModelCallFinished)
    ]
    assert any(isinstance(entry.event, AgentCompleted) for entry in told)
    for entry in told:
        # All that its own agent did before it was handed over by the last commit before it.
        own = [e.seq for e in tree.entries[: entry.seq] if _of(e) == _of(entry)]
        assert max(own) < max(kept for kept in keeper.kept if kept <= entry.seq)


def _of(entry: Entry) -> object:
    return getattr(entry.event, "agent_id", None)


async def test_text_of_an_open_call_is_handed_over_once_a_second() -> None:
    clock, keeper, said = ManualClock(), Keeper(), asyncio.Event()

    class Slow:
        name = "slow"

        async def stream(self, request: CompletionRequest) -> Any:
            yield TextDelta("so far")
            await said.wait()
            yield Stopped("end_turn", Message(Role.ASSISTANT, ()))

    tree = make_tree(Slow(), journal=keeper, clock=clock)
    running = tree.start()
    await everyone_waits()
    handed = [getattr(entry.event, "text", "") for entry in keeper.entries]
    assert "so far" not in handed

    clock.advance(1.0)
    await everyone_waits()
    assert "so far" in [getattr(entry.event, "text", "") for entry in keeper.entries]
    assert keeper.kept[-1] == len(keeper.entries)

    said.set()
    await running
    assert clock.pending == 0, "no timer is left"


# -- calls -----------------------------------------------------------------------------------------


async def test_call_goes_out_only_when_its_intent_is_kept() -> None:
    journal = Held()
    provider = ScriptedProvider(["done"])
    tree = make_tree(provider, journal=journal)
    running = tree.start()
    await everyone_waits()

    (intent,) = journal.intents
    assert (intent.path, intent.number, intent.status) == ("root", 1, "started")
    assert len(tree.of(ModelCallStarted)) == 1
    assert provider.requests == []

    await journal.let_go()
    assert len(provider.requests) == 1
    while not running.done():
        await journal.let_go()


async def test_result_of_a_call_is_in_the_commit_that_precedes_its_event() -> None:
    journal = Held()
    tree = make_tree(ScriptedProvider(["done"]), journal=journal)
    running = tree.start()
    await everyone_waits()
    await journal.let_go()  # of the intent

    (record,) = journal.of(CallRecord)
    assert record.status == "finished"
    assert tree.of(ModelCallFinished) == []

    await journal.let_go()
    (event,) = tree.of(ModelCallFinished)
    (started,) = tree.of(ModelCallStarted)
    assert record.message == event.message == Message(Role.ASSISTANT, record.message.content)
    assert record.text == "done"
    deltas = [(e.at_s, e.event.text) for e in tree.entries if hasattr(e.event, "text")]
    assert record.pieces == tuple(deltas[:2])
    assert record.usage == event.usage
    assert record.request == started.request
    assert record.key == key_of(started.model, started.request)
    assert record.at_s == next(e.at_s for e in tree.entries if e.event is started)
    while not running.done():
        await journal.let_go()


async def test_every_call_that_goes_out_has_a_number_transport_attempts_included() -> None:
    keeper = Keeper()
    limited = RateLimited("slow down", retry_after_s=0.0, status_code=429)
    provider = by_agent({"root": [limited, spawn("A"), "ok"], "A": "a"})
    tree = await run_tree(provider, journal=keeper, clock=ManualClock(sleeps_end=True))

    calls = keeper.of(CallRecord)
    assert tree.result.final_response == "ok"
    assert sorted((c.path, c.number, c.attempt) for c in calls) == [
        ("1", 1, 1),
        ("root", 1, 1),
        ("root", 2, 2),
        ("root", 3, 1),
    ]
    first = calls[0]
    assert first.error == {
        "class": "RateLimited",
        "message": "slow down",
        "retryable": True,
        "retry_after_s": 0.0,
        "status": 429,
        "permanent": False,
        "base": "RateLimited",
        "words": None,
    }
    assert (first.message, first.stop_reason) == (None, None)
    assert calls[0].key == calls[1].key, "the same call again"


async def test_reply_that_was_cut_off_is_kept_as_far_as_it_came() -> None:
    keeper = Keeper()
    broken = Reply("a beginning", error=LlmError("cut"))
    tree = await run_tree(ScriptedProvider([broken, "whole"]), journal=keeper)

    cut, whole = keeper.of(CallRecord)
    assert cut.message is not None
    assert cut.message.text == cut.text != ""
    assert cut.stop_reason is None
    assert cut.error is not None
    assert whole.error is None
    assert tree.of(ModelCallFinished)[0].message == cut.message


async def test_whole_reply_whose_stream_closed_badly_is_no_error_and_says_so() -> None:
    class Torn:
        name = "torn"

        async def stream(self, request: CompletionRequest) -> Any:
            try:
                yield TextDelta("all")
                yield Stopped("end_turn", Message(Role.ASSISTANT, (TextBlock("all"),)))
            finally:
                raise OSError("hung up")

    keeper = Keeper()
    tree = await run_tree(Torn(), journal=keeper)

    (call,) = keeper.of(CallRecord)
    (event,) = tree.of(ModelCallFinished)
    assert (call.error, call.stop_reason) == (None, "end_turn")
    assert call.not_closed == event.error
    assert "could not be closed: hung up" in str(call.not_closed)
    assert model_call_finished(call, event.agent_id) == event


async def test_message_holds_what_came_back_tool_calls_included() -> None:
    tree = await run_tree(by_agent({"root": [order("look"), "ok"]}), tools=[Tool(nothing)])

    asked, answered = (event.message for event in tree.of(ModelCallFinished))
    assert asked is not None
    assert answered is not None
    assert [type(block) for block in asked.content] == [TextBlock, ToolUseBlock]
    assert answered.text == "ok"


# -- tools -----------------------------------------------------------------------------------------


async def test_tool_with_effects_runs_only_when_its_intent_is_kept() -> None:
    journal, ran = Held(), list[str]()

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        ran.append(context.path)
        return "seen"

    tree = make_tree(by_agent({"root": [order("look"), "ok"]}), journal=journal, tools=[Tool(body)])
    running = tree.start()
    await everyone_waits()
    while not any(isinstance(each, ToolCallRecord) for each in journal.intents):
        await journal.let_go()
    assert ran == []
    intent = journal.intents[-1]
    assert (intent.number, intent.effects, intent.status) == (1, True, "started")

    await journal.let_go()
    assert ran == ["root"]
    while not running.done():
        await journal.let_go()
    (record,) = journal.of(ToolCallRecord)
    assert (record.result, record.status, record.number) == ("seen", "finished", 1)


async def test_tool_without_effects_has_no_intent_and_waits_for_none() -> None:
    keeper, tool = Keeper(), Tool(nothing)
    tool.effects = False
    await run_tree(by_agent({"root": [order("look"), "ok"]}), journal=keeper, tools=[tool])

    assert not any(isinstance(each, ToolCallRecord) for each in keeper.intents)
    (record,) = keeper.of(ToolCallRecord)
    assert (record.effects, record.result) == (False, "seen")


async def test_record_says_in_which_order_the_tools_of_a_turn_ended() -> None:
    keeper, second_ended, begun = Keeper(), asyncio.Event(), list[str]()

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        begun.append(context.path)
        if len(begun) == 1:
            await second_ended.wait()
        second_ended.set()
        return "seen"

    provider = by_agent({"root": [order("look", "look"), order("look"), "ok"]})
    await run_tree(provider, journal=keeper, tools=[Tool(body)])

    ended = [(record.number, record.ended) for record in keeper.of(ToolCallRecord)]
    assert ended == [(2, 1), (1, 2), (3, 3)]
    assert {record.ended for record in keeper.intents if isinstance(record, ToolCallRecord)} == {0}


# -- ends, verdicts, orders ------------------------------------------------------------------------


async def test_end_of_an_agent_and_of_the_run_is_kept_before_its_event() -> None:
    journal = Held()
    tree = make_tree(by_agent({"root": [spawn("A"), "ok"], "A": "a"}), journal=journal)
    running = tree.start()
    await everyone_waits()
    seen = set[str | None]()
    while not running.done():
        for end in journal.of(EndRecord):
            if end.path not in seen:
                seen.add(end.path)
                told = [path_of_end(entry) for entry in tree.entries]
                assert end.path not in told, "it is handed over before anyone is told"
        await journal.let_go()

    ends = journal.of(EndRecord)
    assert [(end.path, end.status, end.text) for end in ends] == [
        ("1", AgentStatus.COMPLETED, "a"),
        ("root", AgentStatus.COMPLETED, "ok"),
        (None, AgentStatus.COMPLETED, ""),
    ]
    finished = tree.of(RunFinished)[0]
    assert (ends[-1].tokens_used, ends[-1].duration_ms) == (
        finished.tokens_used,
        finished.duration_ms,
    )


def path_of_end(entry: Entry) -> str | None:
    if isinstance(entry.event, RunFinished):
        return None
    agent_id: str = getattr(entry.event, "agent_id", "") if is_terminal(entry.event) else "open"
    _, _, number = agent_id.partition(".")
    return number or ("root" if agent_id != "open" else "open")


async def test_admission_of_tasks_is_a_verdict_with_its_words() -> None:
    keeper = Keeper()
    await run_tree(by_agent({"root": [spawn("A", "B", "C"), "ok"]}), journal=keeper, max_agents=2)

    verdict, planned, fitted = keeper.of(VerdictRecord)
    assert (verdict.path, verdict.number, verdict.kind) == ("root", 1, "admitted")
    assert (planned.path, planned.number, planned.kind) == ("root", 2, "planned")
    assert (planned.value["numbers"], planned.value["question"]) == ([1, 2], "")
    assert (fitted.path, fitted.number, fitted.kind) == ("root", 3, "fitted")
    assert verdict.value["numbers"] == [1, 2, 3]
    (refused,) = verdict.value["refused"]
    assert (refused["number"], refused["limit"]) == (3, "max_agents")
    assert "2" in refused["reason"]


async def test_clamp_halt_and_exhaustion_are_verdicts_of_their_agent() -> None:
    keeper = Keeper()
    await run_tree(
        by_agent({"root": [spawn("A", "B"), "ok"], "A": "word " * 3000, "B": "word " * 3000}),
        journal=keeper,
        budget=3000,
        plan=SpawnInstruction(SpawnMode.SEQUENTIAL, ("A", "B")),
    )

    kinds = {verdict.kind for verdict in keeper.of(VerdictRecord)}
    assert {"admitted", "clamped"} <= kinds
    assert kinds & {"halted", "exhausted"}
    numbers: dict[str, list[int]] = {}
    for verdict in keeper.of(VerdictRecord):
        numbers.setdefault(verdict.path, []).append(verdict.number)
    assert all(theirs == list(range(1, len(theirs) + 1)) for theirs in numbers.values())


async def test_orders_are_kept_with_who_gave_them_and_where_they_were_heard() -> None:
    keeper, go_on = Keeper(), asyncio.Event()

    async def wait(_: Mapping[str, Any], context: ToolContext) -> str:
        await go_on.wait()
        return "seen"

    provider = by_agent({"root": [spawn("A", "B"), "ok"], "A": [order("look"), "a"], "B": "b"})
    tree = make_tree(provider, journal=keeper, tools=[Tool(wait)])
    running = tree.start()
    while "tool_call_started" not in [entry.event.kind for entry in tree.entries]:
        await everyone_waits()
    tree.request.budget.set_total(90_000, by="panel")
    await everyone_waits()
    tree.request.cancellation.cancel(tree.id_of("1"), "not needed", by="panel")
    await running

    budget, cancel = keeper.of(OrderRecord)
    assert (budget.kind, budget.by, budget.value) == ("budget", "panel", 90_000)
    assert budget.number >= 1
    assert (cancel.kind, cancel.by) == ("cancel", "panel")
    assert cancel.value == {"agent": "1", "reason": "not needed"}
    assert (cancel.path, cancel.number) == ("1", 1)
    assert tree.of(BudgetChanged)[0].by == "panel"
    assert [event.by for event in tree.of(AgentCancelled)] == ["panel"]


# -- journals that fail, or lack what is optional --------------------------------------------------


@pytest.mark.parametrize("method", ["begin", "intend", "keep", "published"])
async def test_journal_that_takes_nothing_fails_the_run_and_no_agent(method: str) -> None:
    class Full(Keeper):
        pass

    def no(self: Full, value: object) -> None:
        raise OSError("disk full")

    setattr(Full, method, no)
    tree = make_tree(by_agent({"root": [spawn("A"), "ok"]}), journal=Full())
    await tree.run()

    assert tree.statuses() == {"root": "completed", "1": "completed"}
    assert isinstance(tree.error, InternalError)
    assert "OSError in the journal: disk full" in str(tree.error)


async def test_journal_that_fails_at_the_very_end_fails_the_run_with_its_result() -> None:
    class LateFull(Keeper):
        def published(self, entries: Sequence[Entry]) -> None:
            if any(isinstance(entry.event, RunFinished) for entry in entries):
                raise OSError("disk full")

    tree = make_tree(ScriptedProvider(["done"]), journal=LateFull())
    await tree.run()

    assert isinstance(tree.error, InternalError)
    assert tree.error.partial_result is not None
    assert tree.error.partial_result.final_response == "done"


@pytest.mark.parametrize("delegates", [False, True])
async def test_journal_that_only_commits_needs_nothing_else(delegates: bool) -> None:
    class Bare:
        async def commit(self) -> None:
            return

    replies = {"root": [spawn("A"), "ok"] if delegates else "ok"}
    tree = await run_tree(by_agent(replies), journal=Bare())

    assert tree.error is None


# -- commits ---------------------------------------------------------------------------------------


async def test_agents_that_ask_during_a_commit_share_the_next_one() -> None:
    journal = Held()
    tasks = tuple(f"T{n}" for n in range(20))
    tree = make_tree(
        by_agent({}), journal=journal, plan=SpawnInstruction(SpawnMode.PARALLEL, tasks)
    )
    running = tree.start()
    await everyone_waits()
    commits = len(journal.waiting)
    assert commits == 1, "the first is under way"
    assert len(journal.intents) == 20

    await journal.let_go()
    assert len(journal.waiting) <= 3, "the other nineteen share one"
    while not running.done():
        await journal.let_go()
    assert len(journal.kept) < 20


async def test_collector_pauses_while_very_many_wait_for_a_commit_and_until_they_went_on() -> None:
    runs = list[list[bool]]()

    def reply(_: CompletionRequest) -> str:
        runs[-1].append(gc.isenabled())
        return "ok"

    for count in (3, 2 * MANY):
        runs.append([])
        journal, tasks = Held(), tuple(f"T{n}" for n in range(count))
        tree = make_tree(
            ScriptedProvider(reply),
            journal=journal,
            plan=SpawnInstruction(SpawnMode.PARALLEL, tasks),
            synthesis=False,
            max_agents=count,
        )
        running = tree.start()
        while not running.done():
            await journal.let_go()
        assert gc.isenabled()

    few, many = runs
    assert few == [True] * 3
    assert many.count(False) >= MANY, "the first ones have commits of their own"


async def test_cancel_during_a_commit_comes_after_it() -> None:
    journal = Held()
    tree = make_tree(ScriptedProvider(["done"]), journal=journal)
    running = tree.start()
    await everyone_waits()
    await journal.let_go()  # of the intent
    tree.request.cancellation.cancel(None, "enough")
    await everyone_waits()
    assert tree.of(ModelCallFinished) == [], "its result is being kept"

    while not running.done():
        await journal.let_go()
    assert len(tree.of(ModelCallFinished)) == 1
    assert journal.of(CallRecord)[0].status == "finished"
    (ordered,) = journal.of(OrderRecord)
    assert (ordered.kind, ordered.by, ordered.value["agent"]) == ("cancel", "code", None)


async def test_usage_in_the_record_is_that_of_the_event() -> None:
    keeper = Keeper()
    reply = Reply("done", usage=Usage(7, 3))
    await run_tree(ScriptedProvider([reply]), journal=keeper)

    (call,) = keeper.of(CallRecord)
    assert call.usage == Usage(7, 3)
