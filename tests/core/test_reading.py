"""A kept run is read whole, at whatever moment its process died."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.core.errors import InvalidRequest, Overloaded, StreamBroken
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentSpawned,
    AgentTextDelta,
    Entry,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RowEntries,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    is_terminal,
)
from agentnb.core.reading import MOST_IN_EVENT, PROCESS_DIED, whole_rows
from agentnb.core.records import (
    FINISHED,
    STARTED,
    CallRecord,
    EndRecord,
    ErrorRecord,
    Kept,
    OrderRecord,
    RunHead,
    RunJournal,
    ToolCallRecord,
)
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    ToolUse,
    Usage,
    assistant_message,
    path_of,
)
from agentnb.providers.scripted import AnyReply, Reply
from agentnb.run_check import check_possible
from agentnb.testing.memory_journal import MemoryJournal
from tests.core.clock import ManualClock
from tests.core.test_properties_scripted import REPLIES, TASKS
from tests.core.tool_bodies import Tool
from tests.support import Tree, by_agent, examples, make_tree, spawn

# -- a run, and what a journal has of it at each moment --------------------------------------------


class Keeper:
    """Notes how many entries each commit has kept, and the whole tool calls."""

    def __init__(self) -> None:
        self.handed = 0
        self.commits = [0]
        self.tool_calls: dict[tuple[str, str], list[ToolCallRecord]] = defaultdict(list)

    def published(self, entries: Sequence[Entry]) -> None:
        self.handed += len(entries)

    def keep(self, record: Kept) -> None:
        if isinstance(record, ToolCallRecord) and record.status == FINISHED:
            self.tool_calls[record.agent_id, record.tool_use_id].append(record)

    async def commit(self) -> None:
        self.commits.append(self.handed)

    def before(self, seq: int) -> int:
        """How many entries the last commit before an event had kept."""
        return max(handed for handed in self.commits if handed <= seq)


@dataclass
class Recorded:
    """A run that has ended, with all of its records."""

    head: RunHead
    rows: list[Row]
    records: list[tuple[int, CallRecord | ToolCallRecord | EndRecord]] = field(default_factory=list)
    """With each record, how many entries were kept when it was; in the order of their events."""

    def at(self, died: int) -> RunJournal:
        """What the journal of a process has that died when it had kept the first entries."""
        calls: dict[tuple[str, int], CallRecord] = {}
        tool_calls: dict[tuple[str, int], ToolCallRecord] = {}
        ends: list[EndRecord] = []
        for kept_at, record in self.records:
            if kept_at > died:
                continue
            match record:
                case CallRecord():
                    calls[record.path, record.number] = record
                case ToolCallRecord():
                    tool_calls[record.path, record.number] = record
                case EndRecord():
                    ends.append(record)
        return RunJournal(
            self.head,
            RowEntries(self.head.run_id, 0, self.rows[:died]),
            tuple(calls.values()),
            tuple(tool_calls.values()),
            ends=tuple(ends),
        )


def recorded(tree: Tree, keeper: Keeper, when: str) -> Recorded:
    """The records of a run, made from its rows.

    Args:
        tree: The run.
        keeper: Its journal.
        when: How long before its event a record is kept: `late` is with the last commit before it;
            `early` as soon as what it records has begun; `together` keeps an end with its agent's
            last call, and the run's end with the root's.
    """
    rows, root_id = tree.bus.rows_since(0), tree.request.thread_id
    run = Recorded(RunHead(tree.bus.run_id, root_id, "the task", "scripted/any"), rows)
    calls: dict[str, list[tuple[int, CallRecord]]] = defaultdict(list)
    open_tools: dict[str, list[tuple[int, ToolCallRecord]]] = defaultdict(list)
    tools: dict[str, int] = defaultdict(int)
    newest: dict[str, int] = {}
    """The newest row of each agent, those of the agents below it included."""
    last_call: dict[str, tuple[int, int]] = {}
    """The end of each agent's newest call: its row, and how many entries were kept before it."""
    end_of_root = 0
    for seq, row in enumerate(rows):
        at_s, agent_id = row[0], row[1] if len(row) == 3 else getattr(row[1], "agent_id", "")
        path = path_of(agent_id, root_id)
        late = keeper.before(seq)
        event: Event | None = None if len(row) == 3 else row[1]
        match event:
            case None:
                begun, call = calls[agent_id][-1]
                pieces = (*call.pieces, (at_s, str(row[2])))  # type: ignore[misc]
                calls[agent_id][-1] = begun, replace(call, pieces=pieces)
            case ModelCallStarted():
                call = CallRecord(
                    path,
                    len(calls[agent_id]) + 1,
                    event.attempt,
                    "key",
                    event.request,
                    at_s=at_s,
                    model=event.model,
                    is_synthesis=event.is_synthesis,
                )
                calls[agent_id].append((seq, call))
                run.records.append((seq, call))
            case ModelCallFinished():
                begun, call = calls[agent_id][-1]
                kept_at = begun + 1 if when == "early" else late
                run.records.append((kept_at, _with_result(call, event)))
                last_call[agent_id] = seq, kept_at
            case ToolCallStarted():
                tools[agent_id] += 1
                record = ToolCallRecord(
                    agent_id,
                    event.tool_use_id,
                    event.name,
                    event.input,
                    path=path,
                    number=tools[agent_id],
                    at_s=at_s,
                    status=STARTED,
                )
                open_tools[agent_id].append((seq, record))
                run.records.append((seq, record))
            case ToolCallFinished():
                at = next(
                    place
                    for place, (_, each) in enumerate(open_tools[agent_id])
                    if each.tool_use_id == event.tool_use_id
                )
                begun, record = open_tools[agent_id].pop(at)
                whole = keeper.tool_calls[agent_id, event.tool_use_id].pop(0)
                record = replace(
                    record,
                    input=whole.input,
                    result=whole.result,
                    is_error=whole.is_error,
                    duration_ms=event.duration_ms,
                    status=FINISHED,
                )
                run.records.append((begun + 1 if when == "early" else late, record))
            case RunFinished():
                kept_at = {"early": newest[root_id] + 1, "together": end_of_root}.get(when, late)
                end = EndRecord(
                    None,
                    event.status,
                    error=event.error,
                    tokens_used=event.tokens_used,
                    duration_ms=event.duration_ms,
                    at_s=at_s,
                )
                run.records.append((kept_at, end))
            case _ if is_terminal(event):
                kept_at = newest[agent_id] + 1 if when == "early" else late
                ended, kept_with_call = last_call.get(agent_id, (-1, -1))
                if when == "together" and ended == newest[agent_id]:
                    kept_at = kept_with_call
                run.records.append((kept_at, _end_of(event, path, at_s)))
                end_of_root = kept_at
        while agent_id:
            newest[agent_id] = seq
            agent_id = "" if agent_id == root_id else agent_id.rpartition(".")[0]
    return run


def _with_result(call: CallRecord, event: ModelCallFinished) -> CallRecord:
    error: ErrorRecord | None = None
    if event.error is not None:
        error = {
            "class": "LlmError",
            "message": event.error,
            "retryable": False,
            "retry_after_s": None,
            "status": None,
        }
    return replace(
        call,
        message=event.message,
        stop_reason=event.stop_reason,
        usage=event.usage,
        error=error,
        duration_ms=event.duration_ms,
        status=FINISHED,
        estimate_error=event.estimate_error,
    )


def _end_of(event: Any, path: str, at_s: float) -> EndRecord:
    statuses = {
        AgentCompleted: AgentStatus.COMPLETED,
        AgentFailed: AgentStatus.FAILED,
        AgentCancelled: AgentStatus.CANCELLED,
        AgentExhausted: AgentStatus.EXHAUSTED,
    }
    return EndRecord(
        path,
        statuses[type(event)],
        event.text,
        getattr(event, "error", getattr(event, "reason", None)),
        getattr(event, "cut", False),
        event.tokens_used,
        event.duration_ms,
        at_s,
        getattr(event, "attempt", 1),
    )


# -- what holds at each moment ---------------------------------------------------------------------


def events_in(rows: list[Row]) -> list[Event]:
    return [row[1] for row in rows if len(row) == 2]


def check_whole(run: Recorded, died: int, *, interrupted: bool) -> None:
    """Check what is read of a run that died when `died` entries were kept."""
    journal = run.at(died)
    rows = whole_rows(journal, interrupted=interrupted)

    check_possible(rows)
    if died:
        assert rows[:died] == run.rows[:died], "what was told has changed"
    assert rows == whole_rows(journal, interrupted=interrupted)
    _check_order(rows)
    _check_added(rows[max(died, 1) :], run.rows[died:])
    _check_statuses(rows, journal, interrupted=interrupted)
    if died == len(run.rows):
        assert rows == run.rows


def _check_order(rows: list[Row]) -> None:
    """Each agent ends once, after its calls and after those below it; the run ends last."""
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    ended: set[str] = set()
    parents: dict[str, str | None] = {}
    open_calls: dict[str, int] = defaultdict(int)
    for place, row in enumerate(rows):
        event = AgentTextDelta(agent_id=row[1], text=row[2]) if len(row) == 3 else row[1]
        agent_id = getattr(event, "agent_id", None)
        assert (place == 0) == isinstance(event, RunStarted)
        assert place == len(rows) - 1 or not isinstance(event, RunFinished)
        assert agent_id not in ended, f"{event} after the agent's end"
        match event:
            case AgentSpawned():
                assert event.parent_id not in ended
                parents[event.agent_id] = event.parent_id
            case ModelCallStarted():
                open_calls[event.agent_id] += 1
                assert open_calls[event.agent_id] == 1
            case AgentTextDelta():
                assert open_calls[event.agent_id] == 1
            case ModelCallFinished():
                open_calls[event.agent_id] -= 1
                assert open_calls[event.agent_id] == 0
        if is_terminal(event):
            assert agent_id is not None
            assert isinstance(event, AgentInterrupted) or open_calls[agent_id] == 0
            ended.add(agent_id)
            below = {each for each, parent in parents.items() if parent == agent_id}
            assert below <= ended, "a parent ended before its child"


def _check_added(added: list[Row], missing: list[Row]) -> None:
    """What was added is what the process would have published, each once, and who was open."""
    said, to_come = defaultdict(list), defaultdict(list)
    events = [row[1] for row in missing if len(row) == 2]
    for row in added:
        if len(row) == 3:
            said[row[1]].append(row[2])
            continue
        event = row[1]
        is_end = isinstance(event, AgentInterrupted) or (
            isinstance(event, RunFinished) and event.status is AgentStatus.INTERRUPTED
        )
        if not is_end:
            assert event in events, f"{event} was never to come"
            events.remove(event)
    finished = {e.agent_id for e in events_in(added) if isinstance(e, ModelCallFinished)}
    for row in missing:
        if len(row) == 3:
            to_come[row[1]].append(row[2])
        elif isinstance(row[1], ModelCallFinished) and row[1].agent_id in finished:
            # The text of a finished call is whole; an agent has but one that was not told.
            agent_id = row[1].agent_id
            finished.remove(agent_id)
            assert said.pop(agent_id, []) == to_come[agent_id]
    assert not said, "text of a call that was not kept"


def _check_statuses(rows: list[Row], journal: RunJournal, *, interrupted: bool) -> None:
    fold = TreeFold()
    fold.feed(rows)
    statuses = {agent.path: agent.status for agent in fold.agents.values()}
    ends = {end.path: end.status for end in journal.ends}
    told = {
        fold.path_of(event.agent_id)  # type: ignore[union-attr,arg-type]
        for event in (entry.event for entry in journal.entries)
        if is_terminal(event)
    }
    newest = rows[-1][1]
    for path, status in statuses.items():
        if path in ends:
            assert status is ends[path]
        elif interrupted:
            assert status is AgentStatus.INTERRUPTED
        else:
            assert not status.is_terminal
    assert told <= ends.keys()
    if None in ends:
        assert isinstance(newest, RunFinished)
        assert newest.status is ends[None]
    elif interrupted:
        assert isinstance(newest, RunFinished)
        assert newest.status is AgentStatus.INTERRUPTED
    else:
        assert not isinstance(newest, RunFinished)


# -- runs ------------------------------------------------------------------------------------------

LONG = "long " * 1000


def _looks(*inputs: str) -> Reply:
    """Calls with the same ids in each turn, as some providers give them."""
    uses = (ToolUse(f"t{n}", "look", {"text": text}) for n, text in enumerate(inputs))
    return Reply("I look.", tool_uses=tuple(uses))


SCRIPTS: dict[str, dict[str, Any]] = {
    "one agent": {"root": "An answer of several words."},
    "three levels": {
        "root": [spawn("A", "B", "C"), "All of it."],
        "A": [spawn("A1", "A2", mode="sequential", before="In turn."), "Both."],
        "C": [spawn("C1"), "It."],
    },
    "tools": {
        "root": [_looks("a", LONG, "fail"), _looks("b", "a"), spawn("A"), "Seen."],
        "A": [_looks(LONG), "Seen, too."],
    },
    "failures": {
        "root": [Overloaded("busy"), spawn("A", "B", "C"), "What there is."],
        "A": [Reply("Half", error=StreamBroken("cut")), "Whole."],
        "B": [Overloaded("busy"), Reply("Half a", error=StreamBroken("cut")), InvalidRequest("no")],
        "C": Reply("Cut at its", stop_reason="max_tokens"),
    },
    "a failure of the root": {"root": [spawn("A"), InvalidRequest("no")]},
}


async def look(given: Any, _: object) -> str:
    for _ in range(9 if given["text"] == "a" else 1):  # so that another one ends first
        await asyncio.sleep(0)
    if given["text"] == "fail":
        raise ValueError("not there")
    return f"seen {given['text']}"


async def _run(replies: dict[str, Any], **limits: Any) -> tuple[Tree, Keeper]:
    keeper = Keeper()
    journal: Any = keeper  # one may lack any method but `commit`
    tree = make_tree(
        by_agent(replies),
        journal=journal,
        tools=[Tool(look)],
        clock=ManualClock(sleeps_end=True),
        **limits,
    )
    return await tree.run(), keeper


@pytest.mark.parametrize("when", ["late", "early", "together"])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_run_that_died_at_any_moment_is_read_whole(script: str, when: str) -> None:
    tree, keeper = await _run(SCRIPTS[script])
    run = recorded(tree, keeper, when)

    for died in range(len(run.rows) + 1):
        check_whole(run, died, interrupted=True)
        check_whole(run, died, interrupted=False)


@pytest.mark.parametrize("when", ["late", "early", "together"])
async def test_run_that_died_while_its_budget_ran_out_is_read_whole(when: str) -> None:
    text = LONG[:2000]
    script = {"root": [spawn("A", "B"), "All."], "A": text, "B": [spawn("B1"), text], "B1": text}
    tree, keeper = await _run(script, budget=1500, on_budget_warning="continue")
    run = recorded(tree, keeper, when)

    assert tree.of(AgentExhausted)
    for died in range(len(run.rows) + 1):
        check_whole(run, died, interrupted=True)


@given(
    replies=st.fixed_dictionaries(
        {"root": st.lists(REPLIES, min_size=1, max_size=5)},
        optional={name: st.lists(REPLIES, max_size=5) for name in TASKS},
    ),
    total=st.sampled_from([1500, 5000, 20_000, 1_000_000]),
    when=st.sampled_from(["late", "early", "together"]),
    data=st.data(),
)
@settings(max_examples=examples(25))
def test_any_run_that_died_is_read_whole(
    replies: dict[str, list[AnyReply]], total: int, when: str, data: st.DataObject
) -> None:
    script = {name: [*drawn, *["An answer."] * 100] for name, drawn in replies.items()}
    tree, keeper = asyncio.run(_run(script, budget=total, on_budget_warning="continue"))
    run = recorded(tree, keeper, when)

    for died in data.draw(st.lists(st.integers(0, len(run.rows)), min_size=1, max_size=8)):
        check_whole(run, died, interrupted=data.draw(st.booleans()))


# -- real records ----------------------------------------------------------------------------------


class Mortal(MemoryJournal):
    """Notes what it has, and what was published meanwhile, at each moment before a commit."""

    tree: Tree
    moments: list[tuple[RunJournal, list[Row]]]

    async def commit(self) -> None:
        if run_id := next(iter(self._runs), ""):
            self.moments.append((self.load(run_id), self.tree.bus.rows_since(0)))
        await super().commit()
        # Whatever goes on while others wait for this commit has not been kept.
        await asyncio.sleep(0)


def _cancels_its_parent(tree: list[Tree]) -> Any:
    def answer(_: object) -> str:
        tree[0].cancel("2")
        return "Too late."

    return answer


@pytest.mark.parametrize("script", [*SCRIPTS, "a cancelled branch"])
async def test_what_was_told_is_read_at_whatever_moment_the_process_dies(script: str) -> None:
    found: list[Tree] = []
    replies = SCRIPTS.get(script) or {
        "root": [spawn("A", "B"), "All."],
        "B": [spawn("B1", "B2"), "Both."],
        "B2": _cancels_its_parent(found),
    }
    journal = Mortal()
    journal.moments = []
    tree = make_tree(
        by_agent(replies),
        journal=journal,
        tools=[Tool(look)],
        clock=ManualClock(sleeps_end=True),
    )
    found.append(tree)
    journal.tree = tree
    await tree.run()

    assert len(journal.moments) > 2
    for kept, told in journal.moments:
        rows = whole_rows(kept, interrupted=True)
        check_possible(rows)
        _check_order(rows)
        _check_statuses(rows, kept, interrupted=True)
        _check_added(rows[len(kept.entries) :], tree.bus.rows_since(len(kept.entries)))
        for event in events_in(told):
            if is_terminal(event) or isinstance(event, ModelCallFinished | ToolCallFinished):
                assert event in events_in(rows), "it was told, and is not kept"


# -- one thing at a time ---------------------------------------------------------------------------

HEAD = RunHead("run", "nb", "the task", "demo/any", budget_total=900, max_depth=3)
CALL = CallRecord("1", 1, 1, "key", CompletionRequest("any", "", ()), at_s=1.0, model="demo/any")
BEGUN: list[Row] = [
    (0.0, RunStarted(task_description="t", model="m", budget_total=9, max_depth=3, thread_id="nb")),
    (0.1, AgentSpawned(agent_id="nb", parent_id=None, task_description="t", depth=0)),
    (0.2, AgentSpawned(agent_id="nb.1", parent_id="nb", task_description="t", depth=1)),
    (0.3, AgentSpawned(agent_id="nb.1.1", parent_id="nb.1", task_description="t", depth=2)),
    (0.4, AgentSpawned(agent_id="nb.2", parent_id="nb", task_description="t", depth=1)),
    (0.5, AgentSpawned(agent_id="nb.10", parent_id="nb", task_description="t", depth=1)),
    (1.5, ModelCallStarted(agent_id="nb.1", request=CALL.request, model="demo/any")),
    (2.0, "nb.1", "An "),
]
RESULT = replace(
    CALL,
    pieces=((2.0, "An "), (2.25, "answer")),
    message=assistant_message("An answer"),
    stop_reason="end_turn",
    usage=Usage(4, 5, 6, 70),
    duration_ms=1500,
    status=FINISHED,
    estimate_error=-3,
)


def journal_of(*records: Any, rows: list[Row] | None = None) -> RunJournal:
    def of(kind: type) -> tuple[Any, ...]:
        return tuple(record for record in records if isinstance(record, kind))

    return RunJournal(
        HEAD,
        RowEntries("run", 0, BEGUN if rows is None else rows),
        of(CallRecord),
        of(ToolCallRecord),
        of(OrderRecord),
        ends=of(EndRecord),
    )


def added(*records: Any, interrupted: bool = False) -> list[Row]:
    return whole_rows(journal_of(*records), interrupted=interrupted)[len(BEGUN) :]


def test_result_that_was_kept_gives_the_rest_of_the_text_and_its_event() -> None:
    finished = ModelCallFinished(
        agent_id="nb.1",
        model="demo/any",
        usage=Usage(4, 5, 6, 70),
        duration_ms=1500,
        stop_reason="end_turn",
        message=assistant_message("An answer"),
        estimate_error=-3,
    )

    assert added(RESULT) == [(2.25, "nb.1", "answer"), (2.5, finished)]


def test_call_whose_start_was_not_told_gives_that_as_well() -> None:
    unknown = replace(RESULT, path="2", attempt=3, is_synthesis=True)
    started, finished = events_in(added(unknown))

    assert started == ModelCallStarted(
        agent_id="nb.2", request=CALL.request, model="demo/any", attempt=3, is_synthesis=True
    )
    assert isinstance(finished, ModelCallFinished)


def test_calls_of_several_agents_come_in_the_order_in_which_they_ended() -> None:
    early = replace(RESULT, path="2", at_s=1.25, duration_ms=1000, pieces=())
    tool = ToolCallRecord(
        "nb.10", "t1", "look", {}, path="10", number=1, at_s=2.25, duration_ms=125
    )
    rows = added(RESULT, early, tool)

    ended = [(row[0], getattr(row[1], "agent_id", "")) for row in rows if len(row) == 2]
    assert ended == [
        (2.0, "nb.2"),
        (2.25, "nb.2"),
        (2.25, "nb.10"),
        (2.375, "nb.10"),
        (2.5, "nb.1"),
    ]


def test_call_that_is_open_gives_nothing() -> None:
    assert added(CALL) == []


def test_error_of_a_call_is_told_in_its_words() -> None:
    error: ErrorRecord = {
        "class": "ServerFailed",
        "message": "it broke",
        "retryable": True,
        "retry_after_s": None,
        "status": 500,
    }
    (event,) = events_in(added(replace(RESULT, error=error, stop_reason=None)))

    assert isinstance(event, ModelCallFinished)
    assert (event.error, event.stop_reason) == ("it broke", None)


def test_long_tool_call_is_cut_in_its_events_as_live() -> None:
    record = ToolCallRecord(
        "nb.2", "t1", "look", {"text": LONG}, LONG, path="2", number=1, at_s=0.7, duration_ms=2000
    )
    rows = added(record)
    started, finished = events_in(rows)

    assert [row[0] for row in rows] == [2.0, 2.7]  # no time is before that of a kept event
    assert isinstance(started, ToolCallStarted)
    assert started.input == {"text": LONG[:200]}
    assert isinstance(finished, ToolCallFinished)
    assert finished.result == LONG[:MOST_IN_EVENT]
    assert finished.result_length == len(LONG)
    assert finished.result_summary == f"{LONG[:199]}…"


def test_open_agents_of_a_dead_process_are_interrupted_those_below_first() -> None:
    rows = added(RESULT, EndRecord("1.1", AgentStatus.COMPLETED, "text"), interrupted=True)

    events = [row[1] for row in rows[2:]]
    assert isinstance(events[0], AgentCompleted)
    assert events[1:-1] == [
        AgentInterrupted(agent_id=agent_id, reason=PROCESS_DIED)
        for agent_id in ("nb.10", "nb.2", "nb.1", "nb")
    ]
    assert events[-1] == RunFinished(
        status=AgentStatus.INTERRUPTED, tokens_used=22, duration_ms=2500, error=PROCESS_DIED
    )
    assert {row[0] for row in rows[1:]} == {2.5}, "the last time that is known"


def test_run_that_lives_is_not_interrupted() -> None:
    assert added() == []


def test_cancelled_agent_says_whose_order_it_was() -> None:
    end = EndRecord("1.1", AgentStatus.CANCELLED, "text", "enough", at_s=3.0, by="panel")

    assert events_in(added(end))[0] == AgentCancelled(
        agent_id="nb.1.1", reason="enough", text="text", by="panel"
    )


def test_end_of_the_run_that_was_kept_is_told_and_nothing_is_interrupted() -> None:
    paths = ("1.1", "10", "2", "1", "root", None)
    ends = [
        EndRecord(path, AgentStatus.FAILED, "text", "why", False, 7, 9, 3.0, 2) for path in paths
    ]
    rows = added(RESULT, *ends, interrupted=True)

    failed = AgentFailed(
        agent_id="nb.1.1",
        error="why",
        will_retry=False,
        attempt=2,
        text="text",
        tokens_used=7,
        duration_ms=9,
    )
    finished = RunFinished(status=AgentStatus.FAILED, tokens_used=7, duration_ms=9, error="why")
    assert rows[2] == (3.0, failed)
    assert rows[-1] == (3.0, finished)
    assert len(rows) == 2 + len(paths)


def test_run_that_was_told_to_its_end_stays_as_it_is() -> None:
    finished = RunFinished(status=AgentStatus.COMPLETED, tokens_used=1, duration_ms=1)
    rows: list[Row] = [*BEGUN, (3.0, finished)]

    assert whole_rows(journal_of(RESULT, rows=rows), interrupted=True) == rows


def test_run_of_which_nothing_but_its_head_was_kept_has_a_beginning_and_an_end() -> None:
    rows = whole_rows(journal_of(rows=[]), interrupted=True)

    started = RunStarted(
        task_description="the task",
        model="demo/any",
        budget_total=900,
        max_depth=3,
        thread_id="nb",
    )
    assert rows[0] == (0.0, started)
    assert [type(row[1]) for row in rows] == [RunStarted, RunFinished]


def test_record_of_an_agent_whose_spawn_was_not_kept_is_left_out() -> None:
    assert added(replace(RESULT, path="7"), EndRecord("7", AgentStatus.COMPLETED)) == []


def test_entries_may_be_a_plain_list_and_are_not_changed() -> None:
    journal = journal_of(RESULT)
    as_list = replace(journal, entries=list(journal.entries))

    assert whole_rows(as_list, interrupted=True) == whole_rows(journal, interrupted=True)
    assert len(journal.entries) == len(BEGUN)
