"""`SqliteJournal`: what it takes, when it is on disk, and that no secret is."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.errors import ServerFailed, ToolError
from agentnb.core.events import (
    AgentCompleted,
    AgentWaiting,
    Event,
    MemoryCreated,
    ModelCallFinished,
    ModelCallStarted,
    RowEntries,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.journal import KEEP_TEXT_EVERY_S
from agentnb.core.protocols import ToolContext
from agentnb.core.records import (
    CallRecord,
    EndRecord,
    OrderRecord,
    RunHead,
    RunJournal,
    ToolCallRecord,
    VerdictRecord,
)
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
from agentnb.providers.scripted import Reply
from agentnb.store.journal import SqliteJournal
from agentnb.store.reader import load
from agentnb.store.writer import Writer
from tests.core.clock import ManualClock
from tests.core.tool_bodies import Tool, order
from tests.store.fake_runs import FakeRun, words
from tests.support import Hold, Tree, by_agent, make_tree, run_tree, spawn, until

SECRET = "sk-planted-0123456789-abcdefghij"
MARK = "[secret PLANTED_API_KEY]"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "x.db")
    writer.open()
    yield writer
    writer.close()
    assert writer.trouble is None


def _on_disk(folder: Path) -> bytes:
    """All bytes of the store, of its WAL and of what else is beside it."""
    return b"".join([path.read_bytes() for path in sorted(folder.iterdir())])


# -- secrets --------------------------------------------------------------------------------------


def _planted(value: Any) -> Any:
    """The value with the secret in each of its texts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _planted(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in ("kind", "role", "status", "path", "agent_id")
        }
        return replace(value, **fields)
    if isinstance(value, str):
        return f"{value} {SECRET} {value}"
    if isinstance(value, Mapping):
        return {_planted(key): _planted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_planted(item) for item in value])
    return value


_EXTRA = {"api": {"kept": ["k", {"l": None}]}}
_USE = ToolUseBlock("id", "tool", {"a": "b", "c": ["d", {"e": "f"}]}, _EXTRA)
_SAID = (ThinkingBlock("t", "s", "r", _EXTRA), OpaqueBlock("api", {"o": "p"}))
_REQUEST = CompletionRequest(
    "model",
    "system",
    (
        user_message("u"),
        Message(Role.ASSISTANT, (*_SAID, TextBlock("x", _EXTRA), _USE)),
        Message(Role.USER, (ToolResultBlock("id", "result"),)),
    ),
    (ToolSpec("tool", "does", {"type": "object"}),),
    extra={"header": "h"},
)
_CALL = CallRecord(
    "root",
    1,
    1,
    "key",
    _REQUEST,
    pieces=((0.5, "one"), (0.75, "two")),
    message=Message(Role.ASSISTANT, (*_SAID, TextBlock("other", _EXTRA), _USE)),
    stop_reason="stop",
    usage=Usage(1, 2),
    error={"class": "E", "message": "m", "retryable": True, "retry_after_s": 1.0, "status": 500},
    status="finished",
    model="p/model",
)
_RECORDS = (
    replace(_CALL, status="started", pieces=(), message=None),
    _CALL,
    ToolCallRecord("nb_1", "id", "tool", {"a": "b"}, "result", path="root", number=1),
    OrderRecord("cancel", "panel", "root", 1, 0.5, {"agent": None, "reason": "why"}),
    VerdictRecord("root", 1, "admitted", {"refused": [{"reason": "why"}]}),
    EndRecord("root", AgentStatus.FAILED, "text", "error"),
    EndRecord(None, AgentStatus.FAILED, "text", "error"),
)
_EVENTS: tuple[Event, ...] = (
    AgentWaiting(agent_id="nb_1", reason="why"),
    MemoryCreated(agent_id="nb_1", fact="fact"),
    ModelCallStarted(agent_id="nb_1", request=_REQUEST, model="p/model"),
    ModelCallFinished(agent_id="nb_1", model="p/model", usage=Usage(), duration_ms=1,
                      error="e", message=_CALL.message),
    ToolCallStarted(agent_id="nb_1", tool_use_id="other", name="n", input={"a": ["b"]}),
    ToolCallFinished(agent_id="nb_1", tool_use_id="other", name="n", result_summary="r",
                     is_error=False, duration_ms=1, result="result"),
)  # fmt: skip


async def test_no_secret_is_in_the_file_or_beside_it(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", SECRET)
    journal = SqliteJournal(writer, version=SECRET)
    journal.begin(_planted(RunHead("run-1", "nb_1", "t", "m", name="n", tags=("a",),
                                   session_id="s", settings={"a": {"b": "c"}})))  # fmt: skip
    for record in _RECORDS:
        journal.keep(_planted(record))
    await journal.commit()
    rows: list[Any] = [(0.5, _planted(event)) for event in _EVENTS]
    # Across pieces, in a call and outside of one.
    rows[3:3] = [(0.5, "nb_1", f"a {SECRET[:12]}"), (0.75, "nb_1", f"{SECRET[12:]} b")]
    rows.append((0.75, "nb_1", f"outside {SECRET}"))
    journal.published(RowEntries("run-1", 0, rows))
    await journal.commit()
    on_disk = _on_disk(tmp_path)
    assert on_disk.count(MARK.encode()) > 40
    assert SECRET.encode() not in on_disk
    writer.close()
    on_disk = (tmp_path / "x.db").read_bytes()
    assert SECRET.encode() not in on_disk


async def test_a_secret_across_the_pieces_of_a_reply_is_masked(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", SECRET)
    run = FakeRun(SqliteJournal(writer))
    run.begin()
    run.spawn("root", run.task)
    record = await run.start_call("root", "system", (user_message("u"),))
    pieces = [run.say("root", text) for text in ("it is ", SECRET[:10])]
    await run.commit()  # the beginning of a secret, at the end of a call that is open
    assert SECRET[:9].encode() not in _on_disk(tmp_path)
    assert len(load(writer.path, "run-1").rows) == len(run.rows)
    pieces += [run.say("root", text) for text in (SECRET[10:], " indeed")]
    record = await run.end_call(record, pieces)
    await run.end_agent("root", record.text)
    await run.end()
    kept = load(writer.path, "run-1")
    texts = ["it is ", MARK, "", " indeed"]
    assert [row[2] for row in kept.rows if len(row) == 3] == texts
    (call,) = kept.journal.calls
    assert [text for _, text in call.pieces] == texts
    assert call.message is not None
    assert call.message.text == kept.journal.ends[0].text == f"it is {MARK} indeed"
    assert SECRET[:12].encode() not in _on_disk(tmp_path)


# -- commits --------------------------------------------------------------------------------------


async def test_a_commit_does_not_block_the_loop(writer: Writer) -> None:
    run = FakeRun(SqliteJournal(writer))
    run.begin()
    await run.commit()
    held, go = threading.Event(), threading.Event()
    check = writer._check_file

    def wait() -> None:
        held.set()
        go.wait()
        check()

    writer._check_file = wait  # type: ignore[method-assign]
    run.spawn("root", run.task)
    committing = asyncio.create_task(run.commit())
    assert await asyncio.to_thread(held.wait, 120)
    await asyncio.sleep(0)
    assert not committing.done()
    assert load(writer.path, "run-1").rows == run.rows[:-1]
    go.set()
    await committing
    assert load(writer.path, "run-1").rows == run.rows


async def test_loops_of_several_threads_commit_at_once(writer: Writer) -> None:
    runs = [FakeRun(SqliteJournal(writer), run_id=f"run-{number}") for number in range(8)]

    async def whole(run: FakeRun) -> None:
        run.begin()
        run.spawn("root", run.task)
        for number in range(1, 6):
            await run.agent(str(number), deltas=list(words(5)))
        await run.end()

    threads = [threading.Thread(target=asyncio.run, args=(whole(run),)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for run in runs:
        assert load(writer.path, run.run_id).rows == run.rows


async def test_a_cancelled_commit_harms_no_other(writer: Writer) -> None:
    run = FakeRun(SqliteJournal(writer))
    run.begin()
    cancelled = asyncio.create_task(run.commit())
    await asyncio.sleep(0)
    cancelled.cancel()
    await run.commit()
    assert load(writer.path, "run-1").rows == run.rows


async def test_close_keeps_what_came_without_a_commit(writer: Writer) -> None:
    journal = SqliteJournal(writer)
    run = FakeRun(journal)
    run.begin()
    run.hand()
    journal.close()
    assert load(writer.path, "run-1").rows == run.rows


async def test_one_journal_serves_runs_one_after_another(writer: Writer) -> None:
    journal = SqliteJournal(writer)
    runs = [FakeRun(journal, run_id=name, thread_id=f"nb_{name}") for name in ("a", "b")]
    for run in runs:
        run.begin()
        await run.agent("1", deltas=["text"])
        await run.end()
    for run in runs:
        assert journal.load(run.run_id).entries[0].event == run.rows[0][1]
        assert load(writer.path, run.run_id).rows == run.rows


def test_nothing_of_a_run_comes_before_its_beginning(writer: Writer) -> None:
    with pytest.raises(RuntimeError, match="`begin` comes before"):
        SqliteJournal(writer).keep(_RECORDS[0])


# -- a text stands once ---------------------------------------------------------------------------


async def test_a_reply_stands_once_in_the_file(writer: Writer, tmp_path: Path) -> None:
    run = FakeRun(SqliteJournal(writer))
    run.begin()
    run.spawn("root", run.task)
    messages: tuple[Message, ...] = (user_message("a prompt of its own"),)
    record = await run.start_call("root", "a system prompt of its own", messages)
    record = await run.end_call(
        record, [run.say("root", "a reply "), run.say("root", "of its own")]
    )
    assert record.message is not None
    again = (*messages, Message(Role.ASSISTANT, (TextBlock("a reply of its own"),)))
    record = await run.start_call("root", "a system prompt of its own", again)
    record = await run.end_call(record, [run.say("root", "another "), run.say("root", "one\n")])
    await run.end_agent("root", record.text.strip())
    await run.end()
    writer.close()
    on_disk = (tmp_path / "x.db").read_bytes()
    # The summary of an answer is its text, if that is short, so it is not kept either.
    texts = "a prompt of its own", "a system prompt of its own", "a reply of its own", "another one"
    for text in texts:
        assert on_disk.count(text.encode()) == 1, text


# -- real runs ------------------------------------------------------------------------------------


def _loaded(tree: Tree, writer: Writer) -> RunJournal:
    """The run of a tree, which is as it was live."""
    kept = load(writer.path, tree.bus.run_id)
    for row, live in zip(kept.rows, tree.bus.rows_since(0), strict=True):
        assert row == live
    assert kept.whole_tool_calls == tree.bus.whole_tool_calls
    return kept.journal


async def _long(given: Mapping[str, Any], context: ToolContext) -> str:
    return str(given["text"]) * 3_000


async def _failing(given: Mapping[str, Any], context: ToolContext) -> str:
    raise ToolError(f"There is no {given['text']}.")


async def test_a_real_run_is_loaded_as_it_was(writer: Writer) -> None:
    provider = by_agent(
        {
            "root": [order("long", text="a"), spawn("b", "c", before="I see."), "the answer"],
            "b": [order("long", text="x" * 3_000), order("failing", text="y"), "b is done"],
            "c": ServerFailed("it is down", retryable=False),
        }
    )
    tools = [Tool(_long, "long"), Tool(_failing, "failing")]
    tree = await run_tree(provider, journal=SqliteJournal(writer), tools=tools)
    assert tree.result.final_response == "the answer"
    kept = _loaded(tree, writer)
    assert {end.path for end in kept.ends} == {None, "root", "1", "2"}
    sent = [len(call.request.messages) for call in kept.calls if call.path == "1"]
    assert sent == [1, 3, 5]
    assert [len(call.result) for call in kept.tool_calls] == [3_000, 9_000_000, 14]
    # What an event can be made from by a record is not kept a second time.
    with sqlite3.connect(writer.path) as db:
        found = db.execute(
            "SELECT body FROM events WHERE kind LIKE 'model_call%' OR kind = 'agent_completed'"
        ).fetchall()
    db.close()
    assert found == [(None,)] * 18


async def test_a_run_that_exhausts_its_budget_is_loaded_as_it_was(writer: Writer) -> None:
    provider = by_agent({"root": [spawn(*"abcdef"), "the answer"], "a": "word " * 5_000})
    tree = await run_tree(provider, journal=SqliteJournal(writer), budget=4_000)
    kept = _loaded(tree, writer)
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert kept.verdicts


async def test_a_run_that_is_cancelled_is_loaded_as_it_was(writer: Writer) -> None:
    held = Hold()
    provider = by_agent(
        {"root": [spawn("a", "b"), "the answer"], "b": Reply("begun and not ended", pause=held)}
    )
    tree = make_tree(provider, journal=SqliteJournal(writer))
    running = tree.start()
    await held.until_reached()
    tree.cancel("root", "enough")
    await running
    kept = _loaded(tree, writer)
    assert tree.result.status is AgentStatus.CANCELLED
    assert [order.kind for order in kept.orders] == ["cancel"]


async def test_text_of_an_open_call_is_there_before_it_ends(writer: Writer) -> None:
    held = Hold()
    provider = by_agent({"root": Reply("begun and not ended", pause=held)})
    clock = ManualClock()
    tree = make_tree(provider, journal=SqliteJournal(writer), clock=clock)
    running = tree.start()
    await held.until_reached()
    clock.advance(KEEP_TEXT_EVERY_S)
    await until(lambda: load(writer.path, tree.bus.run_id).journal.calls[0].text)
    (call,) = load(writer.path, tree.bus.run_id).journal.calls
    assert call.status == "started"
    assert call.text
    assert load(writer.path, tree.bus.run_id).rows == tree.bus.rows_since(0)
    held.release()
    await running
    _loaded(tree, writer)


# -- typed answers --------------------------------------------------------------------------------


async def test_calls_of_one_run_that_ask_for_different_types_are_read_with_their_own(
    writer: Writer,
) -> None:
    run = FakeRun(SqliteJournal(writer))
    run.begin()
    number, word = {"type": "number"}, {"type": "string"}
    for place, schema in enumerate((number, number, None, word, number), 1):
        run.spawn(str(place), "a task")
        request = CompletionRequest("model", "s", (user_message("u"),), output_schema=schema)
        record = await run.start_call(str(place), "s", (), request=request)
        await run.end_call(record, [run.say(str(place), "1")])
        await run.end_agent(str(place), "1", typed=schema is not None)
    await run.end()

    kept = load(writer.path, run.run_id)

    asked = [call.request.output_schema for call in kept.journal.calls]
    assert asked == [number, number, None, word, number]
    ends = [row[1] for row in kept.rows if isinstance(row[1], AgentCompleted)]
    assert [end.typed for end in ends] == [True, True, False, True, True]
    with closing(sqlite3.connect(writer.path)) as db:
        assert db.execute("SELECT count(*) FROM contents WHERE kind = 'tools'").fetchone() == (2,)
