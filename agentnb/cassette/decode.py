"""Creates records from lines.

A call's request and its pieces are created when they are read: a replay seldom needs the request,
and needs the pieces only once, so that it need not keep a hundred small values per call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields as fields_of
from datetime import UTC, datetime
from html import unescape
from itertools import accumulate, pairwise
from typing import Any, cast

from agentnb.cassette.lines import Line
from agentnb.cassette.schema import text_of
from agentnb.core.codec import media_of, message_of
from agentnb.core.records import (
    FINISHED,
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    Piece,
    RunHead,
    RunJournal,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.types import (
    ROOT_PATH,
    AgentStatus,
    CompletionRequest,
    Message,
    ToolSpec,
    Usage,
    bare_model,
    id_at,
    path_key,
)

_TASK = re.compile(r"<task>\n(.*)\n</task>\Z", re.DOTALL)
ROOT_ID = ROOT_PATH
"""The thread id of every run in a cassette."""


class RecordedCall(CallRecord):
    """A call of a cassette. Equal to a `CallRecord` with the same fields."""

    __slots__ = ("_line", "_pieces", "_request")

    _line: Line | None
    _pieces: Sequence[Piece] | None
    _request: CompletionRequest | None

    @property
    def request(self) -> CompletionRequest:
        """The request as sent."""
        if self._request is not None:
            return self._request
        assert self._line is not None
        return request_of(self._line)

    @request.setter
    def request(self, value: CompletionRequest) -> None:
        """Used by the constructor, and so by `dataclasses.replace`."""
        object.__setattr__(self, "_request", value)

    @property
    def limits(self) -> tuple[int, int]:
        """See `CallRecord.limits`. Does not create the request."""
        if self._request is None and self._line is not None:
            return self._line.fields["request"]["max_tokens"], 0
        return super().limits

    @property
    def pieces(self) -> Sequence[Piece]:
        """The reply's text as it arrived."""
        if self._pieces is not None:
            return self._pieces
        assert self._line is not None
        return pieces_of(self._line.fields)

    @pieces.setter
    def pieces(self, value: Sequence[Piece]) -> None:
        """See `request`."""
        object.__setattr__(self, "_pieces", value)

    @property
    def texts(self) -> Sequence[str]:
        """The pieces of the reply's text, without their times."""
        if self._pieces is None and self._line is not None:
            return _texts_of(self._line.fields)
        return super().texts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CallRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _CALL_FIELDS)

    __hash__ = CallRecord.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return CallRecord, tuple(getattr(self, name) for name in _CALL_FIELDS)


_CALL_FIELDS = tuple(each.name for each in fields_of(CallRecord))
_set = object.__setattr__


def task_in(system: str) -> str:
    """The task in a sub-agent's system prompt; empty for the root's."""
    found = _TASK.search(system)
    return unescape(found[1]) if found else ""


def request_of(line: Line) -> CompletionRequest:
    """The whole request of a call."""
    chain = [line]
    while chain[-1].request is None and (base := chain[-1].base) is not None:
        chain.append(base)
    for each in reversed(chain):  # without recursion, since an agent may have made many calls
        if each.request is None:
            each.request = _request(each)
    assert line.request is not None
    return line.request


def _request(line: Line) -> CompletionRequest:
    fields = line.fields["request"]
    base, before = line.base, None if line.base is None else line.base.request
    kept: tuple[Message, ...] = ()
    reply: Message | None = None
    if base is not None and before is not None:
        kept = before.messages[: fields.get("kept", 0)]
        said = base.fields.get("reply")
        reply = None if said is None else message_of(said)
    new = [reply if each == "reply" else message_of(each) for each in fields["new"]]
    tools: tuple[ToolSpec, ...] = () if before is None else before.tools
    if "tools" in fields:
        tools = tuple([ToolSpec(**tool) for tool in fields["tools"]])
    return CompletionRequest(
        fields.get("model") or bare_model(line.fields["model"]),
        fields["system"] if before is None else fields.get("system", before.system),
        (*kept, *cast("list[Message]", new)),
        tools,
        fields["max_tokens"],
        0,
        fields.get("extra", {} if before is None else before.extra),
        fields.get("output_schema", None if before is None else before.output_schema),
    )


def call_of(line: Line) -> CallRecord:
    """The record of a call."""
    fields = line.fields
    call = RecordedCall.__new__(RecordedCall)
    usage, reply, error = fields.get("usage"), fields.get("reply"), fields.get("error")
    for name, value in (
        ("_line", line),
        ("_request", None),
        ("_pieces", None),
        ("path", fields["path"]),
        ("number", fields["number"]),
        ("attempt", fields.get("attempt", 1)),
        ("key", fields["key"]),
        ("message", None if reply is None else message_of(reply)),
        ("stop_reason", fields.get("stop_reason")),
        ("usage", None if usage is None else Usage(*usage)),
        ("error", error),
        ("at_s", fields["at_s"]),
        ("duration_ms", fields["duration_ms"]),
        ("status", FINISHED),
        ("model", fields["model"]),
        ("is_synthesis", fields.get("is_synthesis", False)),
        ("estimate_error", fields.get("estimate_error", 0)),
        ("not_closed", fields.get("not_closed")),
    ):
        _set(call, name, value)
    return call


def pieces_of(fields: Mapping[str, Any]) -> tuple[Piece, ...]:
    """The text of a call as it arrived."""
    if not fields.get("piece_lengths"):
        return ()
    begun_ms = round(fields["at_s"] * 1000)
    times = [(begun_ms + ms) / 1000 for ms in fields["piece_ms"]]
    return tuple(zip(times, _texts_of(fields), strict=True))


def _texts_of(fields: Mapping[str, Any]) -> list[str]:
    text, places = text_of(fields), accumulate(fields.get("piece_lengths", ()), initial=0)
    return [text[begin:end] for begin, end in pairwise(places)]


def _tool_call(fields: Mapping[str, Any]) -> ToolCallRecord:
    return ToolCallRecord(
        id_at(fields["path"], ROOT_ID),
        fields["id"],
        fields["name"],
        fields["input"],
        fields["result"],
        fields.get("is_error", False),
        fields["path"],
        fields["number"],
        fields.get("effects", True),
        fields["at_s"],
        fields["duration_ms"],
        FINISHED,
        fields.get("ended", 0),
        tuple([media_of(each) for each in fields.get("media", ())]),
        tuple(fields.get("unseen", ())),
    )


def _verdict(fields: Mapping[str, Any]) -> VerdictRecord:
    return VerdictRecord(fields["path"], fields["number"], fields["what"], fields["value"])


def _order(fields: Mapping[str, Any]) -> OrderRecord:
    place = fields["path"], fields["number"]
    return OrderRecord(fields["what"], fields["by"], *place, fields["at_s"], fields["value"])


def _end(fields: Mapping[str, Any]) -> EndRecord:
    return EndRecord(
        fields["path"],
        AgentStatus(fields["status"]),
        fields["text"],
        fields.get("error"),
        fields.get("cut", False),
        fields["tokens_used"],
        fields["duration_ms"],
        fields["at_s"],
        fields.get("attempt", 1),
        fields.get("by", ""),
    )


def head_of(fields: Mapping[str, Any]) -> RunHead:
    """The head of a run."""
    return RunHead(
        run_id="",
        thread_id=ROOT_ID,
        task=fields["task"],
        model=fields["model"],
        budget_total=fields.get("budget", 0),
        max_depth=fields.get("depth", 0),
        started_at=_midnight(fields["date"]) if "date" in fields else 0.0,
        name=fields.get("name", ""),
        tags=tuple(fields.get("tags", ())),
        settings=fields.get("settings", {}),
        first_child=fields.get("first_child", 0),
    )


def _midnight(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


_Make = Callable[[Mapping[str, Any]], Kept]
_MAKERS: Mapping[str, _Make] = {
    "tool_call": _tool_call,
    "verdict": _verdict,
    "order": _order,
    "end": _end,
}


def record_of(line: Line) -> Kept:
    """The record of any line except a run's own line and a call's."""
    return _MAKERS[line.kind](line.fields)


def calls_of(lines: Iterable[Line]) -> dict[Line, CallRecord]:
    """The records of all calls among the lines of one run."""
    return {line: call_of(line) for line in lines if line.kind == "call"}


def journal_of(lines: Sequence[Line], made: Mapping[Line, CallRecord]) -> RunJournal:
    """Everything that the newest run of a label did; for each place, the line written last.

    Calls and tool calls that it did not use are left out: nothing may wait for them.

    Args:
        lines: The run's lines in file order, its own line first.
        made: The records of its calls: see `calls_of`.
    """
    newest: dict[str, dict[Any, Line]] = {kind: {} for kind in ("call", *_MAKERS)}
    for place, line in enumerate(lines[1:]):
        fields = line.fields
        if line.is_unused:
            continue
        is_order = fields["kind"] == "order"
        at = place if is_order else (fields["path"], fields.get("number"))
        newest[fields["kind"]][at] = line
    calls, tools, verdicts = (
        [known[at] for at in sorted(known, key=lambda at: (path_key(at[0]), at[1]))]
        for known in (newest["call"], newest["tool_call"], newest["verdict"])
    )
    orders = cast("list[OrderRecord]", [record_of(each) for each in newest["order"].values()])
    return RunJournal(
        head_of(lines[0].fields),
        (),
        tuple([made[line] for line in calls]),
        cast("tuple[ToolCallRecord, ...]", tuple(map(record_of, tools))),
        tuple(sorted(orders, key=lambda order: order.at_s)),
        cast("tuple[VerdictRecord, ...]", tuple(map(record_of, verdicts))),
        _in_order(cast("list[EndRecord]", [record_of(e) for e in newest["end"].values()])),
    )


def _in_order(ends: Iterable[EndRecord]) -> tuple[EndRecord, ...]:
    """Ends in the order in which the agents ended; the run's end is last.

    Some times may come from an earlier recording, so sub-agents always precede their parents.
    """
    latest: dict[str, float] = {}
    found = list(ends)
    for end in found:
        path = end.path
        while path is not None and path != ROOT_PATH:
            latest[path] = max(latest.get(path, 0.0), end.at_s)
            path = path.rpartition(".")[0] or ROOT_PATH

    def key(end: EndRecord) -> Any:
        if end.path is None or end.path == ROOT_PATH:
            return (end.path is None, True, 0.0, 0, ())
        depth = end.path.count(".")
        return (False, False, latest[end.path], -depth, path_key(end.path))

    return tuple(sorted(found, key=key))
