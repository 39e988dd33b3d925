"""Reads one run from a store: its original record, and everything else stored of it."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from agentnb.core.codec import event_of, media_of, message_of
from agentnb.core.collector import without_collector
from agentnb.core.errors import NoSuchRun
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RowEntries,
    RunFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.media import EachOnce, with_media
from agentnb.core.records import (
    STARTED,
    CallRecord,
    EndRecord,
    OrderRecord,
    RunHead,
    RunJournal,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.types import (
    ROOT_PATH,
    AgentStatus,
    CompletionRequest,
    MediaBlock,
    Message,
    Role,
    TextBlock,
    ToolSpec,
    Usage,
    bare_model,
    id_at,
    path_key,
)
from agentnb.store.as_json import FILE, JUST_TEXT, MEDIA, file_data
from agentnb.store.database import open_to_read, trouble_of
from agentnb.store.event_fields import fields_of_end, fields_of_reply, fields_of_tool_call
from agentnb.store.pieces import unpack
from agentnb.store.trouble import StoreTrouble


@dataclass(frozen=True, slots=True)
class KeptRun:
    """Everything that a store has of one run."""

    journal: RunJournal
    rows: list[Row]
    """The run's original record."""
    whole_tool_calls: dict[tuple[str, int], ToolCallRecord]
    """By agent id and number: the tool calls whose events are cut."""


def load(path: Path, run_id: str) -> KeptRun:
    """Read one run.

    Args:
        path: The store's file.
        run_id: The run's whole id.

    Raises:
        NoSuchRun: The store has no such run.
        StoreTrouble: The file cannot be read.
    """
    if not run_id.isascii():  # SQLite accepts no lone surrogates
        raise NoSuchRun(run_id)
    db = open_to_read(path)
    try:
        with without_collector():
            return _load(db, run_id)
    except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
        if isinstance(error, NoSuchRun | StoreTrouble):
            raise
        raise trouble_of(path, error) from error
    finally:
        db.close()


def head_of(row: Mapping[str, Any]) -> RunHead:
    """The head in a row of `runs`."""
    return RunHead(
        run_id=row["run_id"],
        thread_id=row["thread_id"],
        task=_text(row["task"]),
        model=_text(row["model"]),
        budget_total=int(row["budget_total"]),
        max_depth=int(row["max_depth"]),
        started_at=row["started_at"],
        name=_text(row["name"]),
        tags=tuple(_json(row["tags"])),
        session_id=row["session_id"],
        settings=_json(row["settings"]),
        first_child=row["first_child"] if "first_child" in row.keys() else 0,
        version=_text(row["version"]),
    )


def _load(db: sqlite3.Connection, run_id: str) -> KeptRun:
    # One transaction, so that all tables are read in the same state.
    db.execute("BEGIN")
    cursor = db.cursor()
    cursor.row_factory = sqlite3.Row
    found = cursor.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise NoSuchRun(run_id)
    return _Reading(db, found["id"], head_of(found)).run()


class _Reading:
    """The reading of one run."""

    def __init__(self, db: sqlite3.Connection, run: int, head: RunHead) -> None:
        self._db, self._run, self._head = db, run, head
        (self._schema,) = db.execute("PRAGMA user_version").fetchone()
        self._calls: dict[tuple[str, int], CallRecord] = {}
        self._tool_calls: dict[tuple[str, int], ToolCallRecord] = {}
        self._ends: dict[int, EndRecord] = {}
        self._whole: dict[tuple[str, int], ToolCallRecord] = {}
        self._started: dict[str, list[int]] = defaultdict(list)
        """By path: numbers of the tool calls, in the order in which they started."""
        self._deltas: list[tuple[Sequence[int], list[Row]]] = []
        self._read_contents()

    def run(self) -> KeptRun:
        self._read_calls()
        self._read_tool_calls()
        self._read_ends()
        rows = self._rows()
        journal = RunJournal(
            head=self._head,
            entries=RowEntries(self._head.run_id, 0, rows),
            calls=_in_order(self._calls),
            tool_calls=_in_order(self._tool_calls),
            orders=tuple(self._orders()),
            verdicts=tuple(self._verdicts()),
            # If an agent has several ends, the newest counts.
            ends=tuple({end.path: end for end in self._ends.values()}.values()),
        )
        return KeptRun(journal, rows, self._whole)

    def _since(self, schema: int, column: str, before: str) -> str:
        """A column that this schema version added; `before` for a file of an older version."""
        return column if self._schema >= schema else before

    def _select(self, columns: str, table: str, order: str) -> sqlite3.Cursor:
        return self._db.execute(
            f"SELECT {columns} FROM {table} WHERE run = ? ORDER BY {order}", (self._run,)
        )

    # -- requests and replies ---------------------------------------------------------------------

    def _read_contents(self) -> None:
        found = self._select("number, kind, body", "contents", "number")
        self._bodies = {number: (kind, body) for number, kind, body in found}
        self._files = EachOnce()
        self._media: dict[tuple[str, int], Mapping[str, Any]] = {}
        """By path and number of a tool call: its files."""
        for kind, body in self._bodies.values():
            if kind == FILE:
                self._files.read(MediaBlock("", file_data(body)))
            elif kind == MEDIA:
                about = _json(body)
                self._media[about["path"], about["number"]] = about
        self._messages: dict[int, Message] = {}
        self._tools: dict[int, tuple[ToolSpec, ...]] = {0: ()}

    def _message(self, number: int) -> Message:
        message = self._messages.get(number)
        if message is None:
            kind, body = self._bodies[number]
            if kind == "message":
                message = message_of(_json(body), "")
                (message,) = with_media((message,), self._files.read)
            else:
                message = Message(Role(kind), (TextBlock(_text(body)),))
            self._messages[number] = message
        return message

    def _tool_specs(self, number: int) -> tuple[ToolSpec, ...]:
        tools = self._tools.get(number)
        if tools is None:
            self._tools[number] = tools = tuple(
                [ToolSpec(**fields) for fields in _json(self._bodies[number][1])]
            )
        return tools

    def _read_calls(self) -> None:
        thread_id = self._head.thread_id
        for (
            path,
            number,
            attempt,
            key,
            model,
            is_synthesis,
            request,
            at_s,
            status,
            text,
            packed,
            message,
            stop_reason,
            usage,
            error,
            duration_ms,
            estimate_error,
            not_closed,
        ) in self._select(
            "path, number, attempt, key, model, is_synthesis, request, at_s, status, text, pieces,"
            " message, stop_reason, usage, error, duration_ms, estimate_error, "
            + self._since(4, "not_closed", "NULL"),
            "model_calls",
            "path, number",
        ):
            said = "" if text is None else _text(text)
            pieces: tuple[tuple[float, str], ...] = ()
            if packed is not None:
                lengths, times, seqs = unpack(packed)
                texts, at = [], 0
                for length in lengths:
                    texts.append(said[at : at + length])
                    at += length
                pieces = tuple(zip(times, texts, strict=True))
                if seqs:
                    agent_id = id_at(path, thread_id)
                    self._deltas.append(
                        (seqs, [(time, agent_id, piece) for time, piece in pieces[: len(seqs)]])
                    )
            self._calls[path, number] = CallRecord(
                path,
                number,
                attempt,
                key,
                self._request(_json(request), path, model),
                pieces,
                None if message is None else _reply_of(message, said),
                None if stop_reason is None else _text(stop_reason),
                None if usage is None else Usage(*_json(usage)),
                None if error is None else _json(error),
                at_s,
                _whole_number(duration_ms),
                status,
                _text(model),
                bool(is_synthesis),
                int(estimate_error),
                None if not_closed is None else _text(not_closed),
            )

    def _request(self, parts: Mapping[str, Any], path: str, model: str) -> CompletionRequest:
        messages: tuple[Message, ...] = ()
        if parts["same"]:
            messages = self._calls[path, parts["after"]].request.messages[: parts["same"]]
        for number in parts["new"]:
            message = self._calls[path, -number].message if number < 0 else self._message(number)
            assert message is not None
            messages += (message,)
        return CompletionRequest(
            parts.get("model") or bare_model(model),
            _text(self._bodies[parts["system"]][1]),
            messages,
            self._tool_specs(parts["tools"]),
            parts["max_tokens"],
            parts["cache_prefix"],
            parts.get("extra") or {},
            self._tool_specs(parts["answer"])[0].input_schema if "answer" in parts else None,
        )

    # -- the other records ------------------------------------------------------------------------

    def _read_tool_calls(self) -> None:
        for row in self._select(
            "agent_id, tool_use_id, name, input, result, is_error, path, number, effects, at_s,"
            " duration_ms, status, " + self._since(4, "ended", "0"),
            "tool_calls",
            "path, number",
        ):
            agent_id, tool_use_id, name, given, result, is_error, path, number = row[:8]
            effects, at_s, duration_ms, status, ended = row[8:]
            self._tool_calls[path, number] = ToolCallRecord(
                agent_id,
                _text(tool_use_id),
                _text(name),
                _json(given),
                _text(result),
                bool(is_error),
                path,
                number,
                bool(effects),
                at_s,
                _whole_number(duration_ms),
                status,
                ended,
                *self._media_of(path, number, status),
            )

    def _media_of(
        self, path: str, number: int, status: str
    ) -> tuple[tuple[MediaBlock, ...], tuple[int, ...]]:
        """The files of a tool call, and the places of those that its model does not accept."""
        about = self._media.get((path, number))
        if about is None or status == STARTED:
            return (), ()
        media = [self._files.read(media_of(fields)) for fields in about["media"]]
        return tuple(media), tuple(about["unseen"])

    def _read_ends(self) -> None:
        for (
            place,
            path,
            status,
            text,
            number,
            first,
            length,
            error,
            cut,
            tokens_used,
            duration_ms,
            at_s,
            attempt,
            by,
        ) in self._select(
            "place, path, status, text, number, first, length, error, cut, tokens_used,"
            " duration_ms, at_s, attempt, by",
            "ends",
            "place",
        ):
            if text is None:
                text = self._calls[path or ROOT_PATH, number].text
                text = text if first is None else text[first : first + length]
            self._ends[place] = EndRecord(
                path,
                AgentStatus(status),
                _text(text),
                None if error is None else _text(error),
                bool(cut),
                int(tokens_used),
                int(duration_ms),
                at_s,
                attempt,
                by,
            )

    def _orders(self) -> Iterator[OrderRecord]:
        columns = "kind, by, path, number, at_s, value"
        for kind, by, path, number, at_s, value in self._select(columns, "orders", "place"):
            yield OrderRecord(kind, by, path, number, at_s, _json(value))

    def _verdicts(self) -> Iterator[VerdictRecord]:
        found = self._select("path, number, kind, value", "verdicts", "path, number")
        verdicts = [(path, number, kind, _json(value)) for path, number, kind, value in found]
        for verdict in sorted(verdicts, key=lambda each: (path_key(each[0]), each[1])):
            path, number, *_ = verdict
            # A tool call that was marked as done and also has its end does not need its mark.
            known = self._tool_calls.get((path, -number))
            if known is None or known.status == STARTED:
                yield VerdictRecord(*verdict)

    # -- entries ----------------------------------------------------------------------------------

    def _rows(self) -> list[Row]:
        events = self._select("seq, at_s, kind, path, number, body", "events", "seq").fetchall()
        count = len(events) + sum([len(seqs) for seqs, _ in self._deltas])
        rows: list[Any] = [None] * count
        for seqs, deltas in self._deltas:
            if isinstance(seqs, range):
                rows[seqs.start : seqs.stop] = deltas
            else:
                for seq, row in zip(seqs, deltas, strict=True):
                    rows[seq] = row
        for seq, at_s, kind, path, number, body in events:
            if kind == "agent_text_delta":
                said = _json(body)
                rows[seq] = (at_s, said["agent_id"], said["text"])
            else:
                rows[seq] = (at_s, self._event(kind, path, number, body))
        return rows

    def _event(self, kind: str, path: str | None, number: int | None, body: Any) -> Event:
        if number is None:
            return event_of({"kind": kind, **_json(body)})
        own = {} if body is None else _json(body)
        if path is None:
            return RunFinished(**_finished(fields_of_end(RunFinished, self._ends[number]), own))
        agent_id = id_at(path, self._head.thread_id)
        if kind == "model_call_started":
            call = self._calls[path, number]
            return ModelCallStarted(
                agent_id=agent_id,
                request=call.request,
                model=call.model,
                attempt=call.attempt,
                is_synthesis=call.is_synthesis,
            )
        if kind == "model_call_finished":
            fields = fields_of_reply(self._calls[path, number])
            if "message" in own:
                own["message"] = own["message"] and message_of(own["message"], "")
            if "usage" in own:
                own["usage"] = Usage(**own["usage"])
            return ModelCallFinished(agent_id=agent_id, **(fields | own))
        ended = _ENDS.get(kind)
        if ended is not None:
            return ended(  # type: ignore[no-any-return]
                agent_id=agent_id, **(fields_of_end(ended, self._ends[number]) | own)
            )
        return self._tool_event(kind, path, number, own)

    def _tool_event(
        self, kind: str, path: str, number: int, own: dict[str, Any]
    ) -> ToolCallStarted | ToolCallFinished:
        record = self._tool_calls[path, number]
        made = ToolCallStarted if kind == "tool_call_started" else ToolCallFinished
        started = self._started[path]
        if made is ToolCallStarted:
            started.append(number)
        cut_at = own.pop("cut_at", None)
        if "media" in own:
            own["media"] = tuple([media_of(fields) for fields in own["media"]])
        event = made(agent_id=record.agent_id, **(fields_of_tool_call(made, record, cut_at) | own))
        has_media = made is ToolCallFinished and bool(record.media)
        if cut_at is not None or own.get("input_length") is not None or has_media:
            place = started.index(number) + 1 if number in started else number
            self._whole[record.agent_id, place] = record
        return event


def _finished(fields: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    fields |= own
    return {**fields, "status": AgentStatus(fields["status"])}


_ENDS: Mapping[str, Any] = {
    "agent_completed": AgentCompleted,
    "agent_failed": AgentFailed,
    "agent_cancelled": AgentCancelled,
    "agent_exhausted": AgentExhausted,
}


def _reply_of(message: str | bytes, text: str) -> Message:
    if message == JUST_TEXT:
        return Message(Role.ASSISTANT, (TextBlock(text),))
    return message_of(_json(message), text)


def _in_order(records: Mapping[tuple[str, int], Any]) -> tuple[Any, ...]:
    keys = sorted(records, key=lambda key: (path_key(key[0]), key[1]))
    return tuple([records[key] for key in keys])


def _whole_number(value: int | str | None) -> int | None:
    return None if value is None else int(value)


def _text(value: str | bytes) -> str:
    """A text; one with a lone surrogate is stored as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _json(value: str | bytes) -> Any:
    try:
        return from_json(value)
    except ValueError:  # a lone surrogate
        return json.loads(_text(value))
