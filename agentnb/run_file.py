"""A run as one JSON document: a head, one event on each line, and what the events hold in part.

    {
    "format": "agentnb run",
    "version": 2,
    "agentnb": "0.2.0",
    "run_id": "…",
    "task": "…",
    "entries": [
    {"at_s": 0.0, "kind": "run_started", …},
    {"at_s": 0.1, "kind": "agent_text_delta", "agent_id": "…", "text": "…"}
    ],
    "tool_calls": [
    {"agent_id": "…", "number": 1, "result": "…", "effects": true}
    ]
    }

The last section is there if an event cuts an input or a result of a tool call, or names a file in a
result: it has each of these whole, by the call's number among those of its agent, from 1. An
event's index in `entries` is its `seq`. The document is always strict JSON, equal records make
equal documents, and reading one gives equal entries, except for secrets: the document has
`[secret NAME]` in their place. An image or a PDF is whole in the first message that has it, or the
first result; all else names it by its digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any

from agentnb.core.calls import ToolCallState, tool_calls_in
from agentnb.core.codec import UnknownKind, event_of, media_block, plain, rows_without_secrets
from agentnb.core.errors import UnreadableRun
from agentnb.core.events import Event, ModelCallStarted, Row, root_id_in
from agentnb.core.media import EachOnce, with_media
from agentnb.core.records import FINISHED, ToolCallRecord
from agentnb.core.secrets import Secrets, known_secrets
from agentnb.core.text import escaped_for_json, literal, quoted, visible
from agentnb.core.types import MediaBlock, path_of
from agentnb.errors import UPDATE
from agentnb.run_check import check_id, check_possible, check_tool_calls

FORMAT = "agentnb run"
VERSION = 2
"""Increased when an older reader would misunderstand a record, and for new kinds.

2: `limit_reached`. Later without an increase, since an older reader passes over it and shows what
it showed before: `message` of `model_call_finished`, `by` of orders, the section `tool_calls`,
`recovered` of `run_started`, `media` of tool calls.
"""

_DELTA = "agent_text_delta"
_LONGEST_S = 1e9
"""Greatest time of an event, in seconds: 30 years after the run began."""
_LONGEST_WHY = 200
"""Most characters about a wrong event, which the message may quote."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


# -- writing --------------------------------------------------------------------------------------


def write_document(
    run_id: str,
    task: str,
    rows: Iterable[Row],
    *,
    agentnb: str,
    whole_tool_calls: Mapping[tuple[str, int], ToolCallRecord] | None = None,
) -> str:
    """Write a run as a document.

    Args:
        run_id: The run's id.
        task: The run's task.
        rows: All rows of its record so far, from `seq` 0.
        agentnb: The version of agentnb that writes.
        whole_tool_calls: By agent id and number: the tool calls that the events cut.
    """
    secrets = known_secrets()
    head = {
        "format": FORMAT,
        "version": VERSION,
        "agentnb": agentnb,
        "run_id": run_id,
        "task": secrets.mask(task),
    }
    top = [f"{_json(name)}: {_json(value)},\n" for name, value in head.items()]
    rows = list(rows)
    masked = rows_without_secrets(rows, secrets)
    files = EachOnce()
    lines = ",\n".join([_line(row, secrets, files) for row in masked])
    tool_calls = _tool_call_lines(rows, whole_tool_calls or {}, secrets, files)
    parts = ["{\n", *top, '"entries": [\n', lines, "\n]"]
    if tool_calls:
        parts += [',\n"tool_calls": [\n', ",\n".join(tool_calls), "\n]"]
    return "".join([*parts, "\n}\n"])


def _tool_call_lines(
    rows: Sequence[Row],
    whole: Mapping[tuple[str, int], ToolCallRecord],
    secrets: Secrets,
    files: EachOnce,
) -> list[str]:
    """A line for each tool call that the rows cut: what is cut, whole."""
    lines: list[str] = []
    if not whole:
        return lines
    for key, call in tool_calls_in(rows, {agent_id for agent_id, _ in whole}).items():
        record = whole.get(key)
        if record is None or not call.is_cut:
            continue  # a call is kept whole before its events are published
        if (call.result_is_cut or call.media) and record.status != FINISHED:
            continue
        line: dict[str, Any] = {"agent_id": secrets.mask(key[0]), "number": key[1]}
        if call.input_is_cut:
            line["input"] = plain(record.input, secrets.mask)
        if call.result_is_cut:
            line["result"] = secrets.mask(record.result)
        if call.media:
            line["media"] = plain([files.write(block) for block in record.media], secrets.mask)
            line["unseen"] = [*record.unseen]
        lines.append(_json(line | {"effects": record.effects}))
    return lines


def _line(row: Row, secrets: Secrets, files: EachOnce) -> str:
    if len(row) == 3:
        at_s, agent_id, text = row
        head = f'"at_s": {at_s!r}, "kind": "{_DELTA}", "agent_id": {_json(agent_id)}'
        return f'{{{head}, "text": {_json(text)}}}'
    at_s, event = row
    if isinstance(event, ModelCallStarted):
        event = _with_files(event, files.write)
    return _json({"at_s": at_s} | plain(event, secrets.mask))


def _with_files(
    event: ModelCallStarted, change: Callable[[MediaBlock], MediaBlock]
) -> ModelCallStarted:
    messages = with_media(event.request.messages, change)
    if messages is event.request.messages:
        return event
    return replace(event, request=replace(event.request, messages=messages))


def _json(value: Any) -> str:
    return escaped_for_json(_encode(value))


# -- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read."""

    run_id: str
    task: str
    rows: list[Row]
    """In the order of `seq`."""
    whole_tool_calls: dict[tuple[str, int], ToolCallRecord] = field(default_factory=dict)
    """By agent id and number: the tool calls that the events cut."""


def read_document(text: str, *, source: str, parse: Callable[[str], Any] = json.loads) -> Document:
    """Read a document of `write_document`, in any JSON layout.

    Args:
        text: The document.
        source: Its origin, for the error.
        parse: A faster parser of strict JSON. If it fails, the standard one is used.

    Raises:
        UnreadableRun: It is not such a document, or not one that this version can read.
    """
    try:
        return _read(_parsed(text, parse))
    except _Wrong as wrong:
        raise UnreadableRun(source, str(wrong), fix=wrong.fix) from None


def check_document(document: Document, *, source: str) -> None:
    """Check that a document can be a run's, so that every view of it works.

    Raises:
        UnreadableRun: No run can have written it.
    """
    try:
        check_id(document.run_id)
        check_possible(document.rows)
        check_tool_calls(document.whole_tool_calls.values())
    except ValueError as error:
        raise UnreadableRun(source, str(error)) from None


class _Wrong(ValueError):
    """What is wrong with a document, as a clause, and what to do."""

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix


def _parsed(text: str, parse: Callable[[str], Any]) -> Any:
    if parse is not json.loads:
        with suppress(ValueError):
            return parse(text)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if FORMAT not in text[:100]:
            raise _Wrong(f"it is not JSON ({error})") from None
        raise _Wrong(
            f"it is cut off or damaged in line {error.lineno} ({error.msg})",
            fix="Copy it again as a whole, or write it again.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"it is not JSON ({error})") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _read(document: Any) -> Document:
    head = document if isinstance(document, dict) else {}
    if head.get("format") != FORMAT:
        if "nbformat" in head:
            raise _Wrong("it is a notebook", fix="Open it in Jupyter.")
        raise _Wrong("it is JSON, but not a run")
    version = head.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise _Wrong(f"its `version` is {_shown(version)}, which does not exist")
    if version > VERSION:
        raise _Wrong(
            f"it has version {_shown(version)} of the format, from agentnb "
            f"{visible(str(head.get('agentnb')), 60)}, and "
            f"this agentnb reads up to version {VERSION}",
            fix=UPDATE,
        )
    run_id, task, lines = (head.get(name) for name in ("run_id", "task", "entries"))
    if not (isinstance(run_id, str) and isinstance(task, str) and isinstance(lines, list)):
        raise _Wrong("its head lacks a string `run_id`, a string `task` or a list `entries`")
    files = EachOnce()
    rows = _rows_of(lines, files)
    return Document(run_id, task, rows, _tool_calls_of(head.get("tool_calls", []), rows, files))


def _rows_of(lines: list[Any], files: EachOnce) -> list[Row]:
    """Convert the lines to rows in place, to save memory. Text, which most lines are, inline."""
    for seq, line in enumerate(lines):
        try:
            if line["kind"] == _DELTA:
                at_s, text = line["at_s"], line["text"]
                if type(at_s) is not bool and 0 <= at_s < _LONGEST_S and type(text) is str:
                    lines[seq] = at_s, intern(line["agent_id"]), text
                    continue
        except (KeyError, TypeError):
            pass  # `_row_of` raises the error
        at_s, event = _row_of(seq, line)
        if isinstance(event, ModelCallStarted):
            event = _with_files(event, files.read)
        lines[seq] = at_s, event
    return lines


def _row_of(seq: int, line: Any) -> tuple[float, Event]:
    try:
        event = event_of(line)
        at_s = line.get("at_s")
        is_number = isinstance(at_s, int | float) and not isinstance(at_s, bool)
        if not is_number or not 0 <= at_s < _LONGEST_S:
            raise ValueError("`at_s` is not a time in seconds")
    except UnknownKind as error:
        raise _Wrong(
            f"its event {seq} is of the kind {quoted(error.kind)}, which this agentnb does not "
            "know",
            fix=UPDATE,
        ) from None
    except ValueError as error:
        why = visible(str(error), _LONGEST_WHY)
        raise _Wrong(f"its event {seq} is invalid: {why}") from None
    return at_s, event


def _tool_calls_of(
    lines: Any, rows: Sequence[Row], files: EachOnce
) -> dict[tuple[str, int], ToolCallRecord]:
    """The tool calls that the rows cut, whole."""
    if not isinstance(lines, list):
        raise _Wrong("its `tool_calls` is not a list")
    whole: dict[tuple[str, int], ToolCallRecord] = {}
    if not lines:
        return whole
    agent_ids = [line.get("agent_id") for line in lines if isinstance(line, dict)]
    calls = tool_calls_in(rows, {each for each in agent_ids if isinstance(each, str)})
    root_id = next((root for row in rows if len(row) == 2 and (root := root_id_in(row[1]))), "")
    for place, line in enumerate(lines):
        try:
            record = _tool_call_of(line, calls, root_id, files)
            if (record.agent_id, record.number) in whole:
                raise ValueError("the call came before")
        except ValueError as error:
            why = visible(str(error), _LONGEST_WHY)
            raise _Wrong(f"its tool call {place} is invalid: {why}") from None
        whole[record.agent_id, record.number] = record
    return whole


def _tool_call_of(
    line: Any, calls: Mapping[tuple[str, int], ToolCallState], root_id: str, files: EachOnce
) -> ToolCallRecord:
    if not isinstance(line, dict):
        raise ValueError("it is not an object")
    agent_id, number = line.get("agent_id"), line.get("number")
    result, effects = line.get("result", ""), line.get("effects", True)
    if not isinstance(agent_id, str) or type(number) is not int:
        raise ValueError("it lacks a string `agent_id` or a whole `number`")
    if not isinstance(result, str) or not isinstance(effects, bool):
        raise ValueError("its `result` is not a string, or its `effects` not true or false")
    call = calls.get((agent_id, number))
    if call is None:
        raise ValueError(f"agent {quoted(agent_id)} has no tool call {_shown(number)}")
    if call.input_is_cut is not ("input" in line) or call.result_is_cut is not ("result" in line):
        raise ValueError("it must have what its events cut, `input` or `result`, and nothing else")
    record = call.record(path_of(agent_id, root_id), None)
    media, unseen = _media_of(line, call, files)
    return replace(
        record,
        input=line.get("input", record.input),
        result=line.get("result", record.result),
        effects=effects,
        media=media,
        unseen=unseen,
    )


def _media_of(
    line: Mapping[str, Any], call: ToolCallState, files: EachOnce
) -> tuple[tuple[MediaBlock, ...], tuple[int, ...]]:
    """The files of a call's result, and which of them its model does not take."""
    given, unseen = line.get("media", []), line.get("unseen", [])
    if not isinstance(given, list) or not isinstance(unseen, list):
        raise ValueError("its `media` or its `unseen` is not a list")
    if not all(type(place) is int and 1 <= place <= len(given) for place in unseen):
        raise ValueError("its `unseen` has no places of its `media`")
    try:
        blocks = [media_block(each) for each in given]
    except ValueError as error:
        raise ValueError(f"`media`: {error}") from None
    media = tuple([files.read(block) for block in blocks])
    if tuple([block.named() for block in media]) != call.media:
        raise ValueError("its `media` are not the files that its event names")
    return media, tuple(unseen)


def _shown(value: Any) -> str:
    """A value of the head for an error: it may be anything, of any length."""
    return literal(value, 60)
