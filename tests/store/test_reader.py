"""A run that is loaded from a store is the run that was live."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentnb.core.errors import NoSuchRun
from agentnb.core.events import (
    AgentCancelled,
    AgentExhausted,
    AgentFailed,
    AgentTextDelta,
    AgentWaiting,
    BudgetChanged,
    BudgetExhausted,
    Entry,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    ToolCallFinished,
    ToolCallReported,
    ToolCallStarted,
    entry_of,
)
from agentnb.core.records import CallRecord, EndRecord, OrderRecord, ToolCallRecord, VerdictRecord
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    Message,
    OpaqueBlock,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    Usage,
    user_message,
)
from agentnb.store.journal import SqliteJournal
from agentnb.store.pieces import pack, unpack
from agentnb.store.reader import KeptRun, load
from agentnb.store.writer import Writer
from tests.store.fake_runs import FakeRun, words


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "x.db")
    writer.open()
    yield writer
    writer.close()
    assert writer.trouble is None


@pytest.fixture
async def run(writer: Writer) -> FakeRun:
    run = FakeRun(SqliteJournal(writer, version="1.2"))
    run.begin()
    run.spawn("root", run.task)
    return run


def _same(run: FakeRun, writer: Writer) -> KeptRun:
    """Load the run, and compare it with what was live."""
    kept = load(writer.path, run.run_id)
    for seq, (row, live) in enumerate(zip(kept.rows, run.rows, strict=True)):
        assert row == live, seq
        assert [type(part) for part in row] == [type(part) for part in live], seq
    assert list(kept.journal.entries) == [
        entry_of(run.run_id, seq, row) for seq, row in enumerate(run.rows)
    ]
    assert kept.journal.head == run.head
    assert kept.journal.ends == tuple(run.ends)
    calls = [call for path in sorted(run.calls, key=_number) for call in run.calls[path]]
    assert kept.journal.calls == tuple(calls)
    return kept


def _number(path: str) -> int:
    return 0 if path == "root" else int(path)


async def test_a_whole_run(run: FakeRun, writer: Writer) -> None:
    for number in range(1, 13):
        await run.agent(str(number), deltas=list(words(7)), index=number - 1, total=12)
    await run.end()
    _same(run, writer)


async def test_an_agent_of_many_turns_sends_the_same_messages(run: FakeRun, writer: Writer) -> None:
    messages: tuple[Message, ...] = (user_message("begin"),)
    for turn in range(20):
        record = await run.start_call("root", "system", messages)
        record = await run.end_call(
            record, [run.say("root", f"reply {turn} "), run.say("root", "x")]
        )
        assert record.message is not None
        messages = (*messages, record.message, user_message(f"and {turn}?"))
        if turn == 12:  # a conversation that was shortened
            messages = (messages[0], *messages[3:])
    await run.end_agent("root", record.text)
    await run.end()
    kept = _same(run, writer)
    assert kept.journal.calls[19].request.messages == run.calls["root"][19].request.messages


async def test_replies_of_every_kind(run: FakeRun, writer: Writer) -> None:
    use = ToolUseBlock("id1", "search", {"q": "a 😀 b", "n": [1, 2.5, None, True, 10**24]})
    kept = Message(
        Role.ASSISTANT,
        (
            ThinkingBlock("thought", extra={"p http://h": {"reasoning": None}}),
            OpaqueBlock("p http://h", {"type": "kept", "parts": [1, None, "😀"]}),
            TextBlock("ab"),
            replace(use, extra={"p": {"extra_content": {"mark": "x"}}}),
        ),
    )
    replies = [
        Message(Role.ASSISTANT, (ThinkingBlock("thought", "sign"), TextBlock("ab"), use)),
        Message(Role.ASSISTANT, (ThinkingBlock("", "", "secret data"),)),
        Message(Role.ASSISTANT, (TextBlock("ab", {"p": {"citations": [{"at": 1}]}}),)),
        kept,
        Message(Role.ASSISTANT, (TextBlock("a"), use, TextBlock("b"))),
        Message(Role.ASSISTANT, (TextBlock("not what arrived"),)),
        Message(Role.ASSISTANT, ()),
        None,
    ]
    # Messages of a request that are no reply of this agent's own calls.
    earlier = Message(Role.ASSISTANT, (TextBlock("so", {"p": {"citations": [{"at": 1}]}}),))
    on = user_message("on")
    messages: tuple[Message, ...] = (user_message("begin"), earlier, on, kept, on)
    tools = (ToolSpec("search", "finds", {"type": "object", "properties": {"q": {}}}),)
    for reply in replies:
        request = CompletionRequest(
            "other-name", "system", messages, tools, 77, 3, {"temperature": 0.5, "deep": {"a": []}}
        )
        record = await run.start_call("root", "", (), request=request, is_synthesis=True, attempt=3)
        record = await run.end_call(
            record,
            [run.say("root", "a"), run.say("root", "b")],
            message=reply,
            stop_reason=None,
            error={
                "class": "ServerFailed",
                "message": "it failed",
                "retryable": True,
                "retry_after_s": 1.5,
                "status": 500,
            },
            estimate_error=-(10**20),
        )
        result = Message(Role.USER, (ToolResultBlock("id1", "result", True), TextBlock("so")))
        messages = (*messages, *([reply] if reply else []), result)
    await run.end()
    _same(run, writer)


async def test_message_of_an_event_that_differs_from_its_calls_is_whole(
    run: FakeRun, writer: Writer
) -> None:
    extra = {"p http://h": {"mark": [1, None, "😀"]}}
    differs = Message(
        Role.ASSISTANT,
        (
            ThinkingBlock("thought", extra=extra),
            OpaqueBlock("p http://h", {"type": "kept"}),
            TextBlock("ab", extra),
            ToolUseBlock("id1", "search", {"q": "a"}, extra),
        ),
    )
    record = await run.start_call("root", "system", (user_message("u"),))
    await run.end_call(record, [run.say("root", "ab")])
    at_s, event, *_ = run.rows[-1]
    assert isinstance(event, ModelCallFinished)
    run.rows[-1] = (at_s, replace(event, message=differs))
    await run.end()
    kept = _same(run, writer)
    assert kept.journal.calls[0].message != differs


async def test_texts_that_are_no_unicode(run: FakeRun, writer: Writer) -> None:
    half, nul = "half \ud800 of one", "a \0 in it"
    run.spawn("1", half)
    record = await run.start_call("1", half, (user_message(half), user_message(nul)))
    await run.end_call(record, [run.say("1", half), run.say("1", nul), run.say("1", "é…😀")])
    await run.end_agent("1", half)
    await run.end()
    _same(run, writer)


async def test_events_that_no_record_tells(run: FakeRun, writer: Writer) -> None:
    run.publish(AgentWaiting(agent_id="nb_1", reason="for room", wait_s=float("inf"), attempt=2))
    run.publish(AgentTextDelta(agent_id="nb_1", text="x"))  # never as an event, but it may be
    run.rows[-1] = (run.rows[-1][0], "nb_1", "outside a call")
    run.publish(AgentFailed(agent_id="nb_1", error="e", will_retry=True, attempt=1, text="t"))
    run.publish(BudgetChanged(budget_total=10**24, previous_total=1, tokens_used=0, by="panel"))
    run.publish(
        BudgetExhausted(
            tokens_used=1,
            budget_total=2,
            percentage=50.0,
            completed_agents=("nb_1",),
            incomplete_agents=("nb_1.1", "nb_1.2"),
        )
    )
    run.publish(
        ModelCallStarted(
            agent_id="foreign", request=CompletionRequest("m", "s", (user_message("u"),)), model="m"
        )
    )
    run.rows.append((run.now_s, "foreign", "said"))
    run.publish(ModelCallFinished(agent_id="foreign", model="m", usage=Usage(1, 2), duration_ms=3))
    await run.end()
    _same(run, writer)


async def test_ends_of_every_kind(run: FakeRun, writer: Writer) -> None:
    ends: list[tuple[AgentStatus, Event]] = [
            (AgentStatus.FAILED, AgentFailed(agent_id="nb_1.1", error="why", will_retry=False,
                                             attempt=2, text="so far", tokens_used=3,
                                             duration_ms=4)),
            (AgentStatus.CANCELLED, AgentCancelled(agent_id="nb_1.2", reason="why", text="so far",
                                                   tokens_used=3, duration_ms=4, by="panel")),
            (AgentStatus.EXHAUSTED, AgentExhausted(agent_id="nb_1.3", reason="why", text="so far",
                                                   tokens_used=3, duration_ms=4)),
            # Not what the record says.
            (AgentStatus.CANCELLED, AgentCancelled(agent_id="nb_1.4", reason="other", text="other",
                                                   tokens_used=30, duration_ms=40)),
    ]  # fmt: skip
    for number, (status, event) in enumerate(ends, 1):
        path = str(number)
        run.spawn(path, "task")
        end = EndRecord(path, status, "so far", "why", True, 3, 4, 1.25, 2)
        run.ends.append(end)
        run.journal.keep(end)
        run.publish(event)
    await run.end(AgentStatus.FAILED)
    _same(run, writer)


@pytest.mark.parametrize("effects", [True, False])
async def test_tool_calls_are_whole(run: FakeRun, writer: Writer, effects: bool) -> None:
    long = {"text": "x" * 5_000}
    started = ToolCallRecord(
        "nb_1", "id", "write", long, path="root", number=1, effects=effects, at_s=0.5,
        status="started",
    )  # fmt: skip
    if effects:
        run.journal.intend(started)
        await run.commit()
    run.publish(
        ToolCallStarted(
            agent_id="nb_1", tool_use_id="id", name="write", input={"text": "x"}, input_length=5_012
        )
    )
    await run.commit()
    run.publish(ToolCallReported(agent_id="nb_1", tool_use_id="id", name="write", text="half"))
    ended = replace(started, status="finished", result="r" * 4_000, duration_ms=7, is_error=True)
    run.journal.keep(ended)
    run.publish(
        ToolCallFinished(
            agent_id="nb_1", tool_use_id="id", name="write", result_summary="r" * 199 + "…",
            is_error=True, duration_ms=7, result="r" * 2_000, result_length=4_000,
        )
    )  # fmt: skip
    short = replace(ended, number=2, tool_use_id="id2", input={}, result="a\nb", is_error=False)
    run.publish(ToolCallStarted(agent_id="nb_1", tool_use_id="id2", name="write", input={}))
    run.journal.keep(short)
    run.publish(
        ToolCallFinished(
            agent_id="nb_1", tool_use_id="id2", name="write", result_summary="a b", is_error=False,
            duration_ms=7, result="a\nb",
        )
    )  # fmt: skip
    await run.end()
    kept = _same(run, writer)
    assert kept.journal.tool_calls == (ended, short)
    assert kept.whole_tool_calls == {("nb_1", 1): ended}


async def test_orders_and_verdicts(run: FakeRun, writer: Writer) -> None:
    orders = [
        OrderRecord("cancel", "panel", "2", 3, 1.5, {"agent": "2", "reason": None}),
        OrderRecord("budget", "code", "root", 0, 2.5, 10**24),
        OrderRecord("answer", "gate", "root", 1, 3.5, "continue"),
    ]
    verdicts = [
        VerdictRecord("10", 1, "clamped", 500),
        VerdictRecord("2", 2, "halted", "budget"),
        VerdictRecord("2", 1, "admitted", {"numbers": [1, 2], "refused": []}),
    ]
    for record in [*orders, *verdicts]:
        run.journal.keep(record)  # type: ignore[arg-type]
    await run.commit()
    kept = load(writer.path, run.run_id).journal
    assert kept.orders == tuple(orders)
    assert kept.verdicts == (verdicts[2], verdicts[1], verdicts[0])


async def test_pieces_and_deltas_that_differ_are_both_kept(run: FakeRun, writer: Writer) -> None:
    record = await run.start_call("root", "system", (user_message("u"),))
    run.say("root", "said ")
    run.say("root", "live")
    await run.commit()
    await run.end_call(record, [(0.5, "said"), (0.75, " otherwise")])
    run.say("root", "and after")
    await run.end()
    kept = load(writer.path, run.run_id)
    assert kept.rows == run.rows
    assert kept.journal.calls[0].pieces == ((0.5, "said"), (0.75, " otherwise"))


async def test_deltas_after_all_pieces_of_a_call_are_kept(run: FakeRun, writer: Writer) -> None:
    record = await run.start_call("root", "system", (user_message("u"),))
    await run.end_call(record, [run.say("root", text) for text in words(5)])
    run.rows.insert(-1, (run.now_s, "nb_1", "and more"))
    await run.end()
    kept = _same(run, writer)
    assert len(kept.journal.calls[0].pieces) == 5


async def test_entries_that_are_objects_are_kept_as_rows_are(writer: Writer) -> None:
    journal = SqliteJournal(writer)
    run = FakeRun(journal)
    run.begin()
    run.spawn("root", "task")
    record = await run.start_call("root", "system", (user_message("u"),))
    pieces = [run.say("root", "one "), run.say("root", "two")]
    entries: list[Entry] = [entry_of("run-1", seq, row) for seq, row in enumerate(run.rows)]
    journal.published(entries[run._handed :])
    run._handed = len(run.rows)
    await run.end_call(record, pieces)
    await run.end()
    _same(run, writer)


async def test_a_run_that_was_killed_has_the_text_so_far(run: FakeRun, writer: Writer) -> None:
    record = await run.start_call("root", "system", (user_message("u"),))
    pieces = [run.say("root", "one ")]
    await run.commit()
    pieces.append(run.say("root", "two"))
    await run.commit()
    kept = load(writer.path, run.run_id)
    assert kept.rows == run.rows
    assert kept.journal.calls == (replace(record, pieces=tuple(pieces)),)
    assert kept.journal.ends == ()


async def test_an_end_without_its_event_is_there(run: FakeRun, writer: Writer) -> None:
    run.spawn("1", "task")
    end = EndRecord("1", AgentStatus.COMPLETED, "answer", at_s=1.0)
    run.journal.keep(end)
    await run.commit()
    run.publish(AgentWaiting(agent_id="nb_1", reason="not handed over"))
    kept = load(writer.path, run.run_id)
    assert kept.journal.ends == (end,)
    assert kept.rows == run.rows[:-1]


async def test_a_result_that_comes_after_its_events_replaces_the_intent(
    run: FakeRun, writer: Writer
) -> None:
    record = await run.start_call("root", "system", (user_message("u"),))
    pieces = (run.say("root", "text"),)
    run.publish(ModelCallFinished(agent_id="nb_1", model="m", usage=Usage(1, 2), duration_ms=3))
    await run.commit()
    ended = replace(record, pieces=pieces, status="finished", usage=Usage(1, 2), stop_reason="x")
    run.journal.keep(ended)
    await run.commit()
    kept = load(writer.path, run.run_id)
    assert kept.journal.calls == (ended,)
    assert kept.rows == run.rows


def test_a_run_that_is_not_there(writer: Writer) -> None:
    with pytest.raises(NoSuchRun):
        load(writer.path, "other")


async def test_calls_stand_in_the_order_of_paths(run: FakeRun, writer: Writer) -> None:
    for path in ("10", "2", "1.2", "1", "root"):
        run.journal.keep(CallRecord(path, 1, 1, "k", CompletionRequest("m", "", ()), model="m"))
    await run.commit()
    calls = load(writer.path, run.run_id).journal.calls
    assert [call.path for call in calls] == ["root", "1", "1.2", "2", "10"]


@pytest.mark.parametrize("count", [0, 1, 50, 100, 101, 3_000])
@pytest.mark.parametrize("kind", ["clock", "young", "old", "float", "decimal", "falling", "same"])
@pytest.mark.parametrize("alone", [True, False])
def test_pieces_come_back_exactly(count: int, kind: str, alone: bool) -> None:
    chance = random.Random(count)
    lengths = [chance.choice([0, 1, 4, 4, 300, 70_000]) for _ in range(count)]
    began = chance.random() * 1e6

    def clock(began_ns: int) -> list[float]:
        at_ns = (
            began_ns + place * 13_000_000 + chance.randrange(10_000_000) for place in range(count)
        )
        return [at / 1e9 - began_ns / 1e9 for at in at_ns]

    times = {
        "clock": clock(12_345_678_901_234),
        "young": clock(123_456_789),
        "old": clock(987_654_321_987_654_321),
        "float": [began + place * 0.013 + chance.random() - began for place in range(count)],
        "decimal": [place / 10 for place in range(count)],
        "falling": [1000 - place / 8 for place in range(count)],
        "same": [0.0] * count,
    }[kind]
    if kind == "float":
        times.sort()
    seqs = [*range(5, 5 + count)]
    if not alone:
        seqs = sorted(chance.sample(range(10 * count), count))[: count // 2]
    found = unpack(pack(lengths, times, seqs))
    assert [list(part) for part in found] == [lengths, times, seqs]
