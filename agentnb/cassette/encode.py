"""Creates lines from the records of one run, without secrets and without data of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agentnb.cassette.lines import Line, dumped, encode_json
from agentnb.cassette.relative import has_id, relative, relative_key, relative_pieces, relative_text
from agentnb.cassette.schema import text_of
from agentnb.core.codec import plain
from agentnb.core.media import with_media
from agentnb.core.records import (
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    Pieces,
    RunHead,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.secrets import Secrets
from agentnb.core.text import escaped_for_json, sendable
from agentnb.core.types import CompletionRequest, MediaBlock, Message, TextBlock, bare_model

_Text = Callable[[str], str]
_CleanPieces = Callable[[Sequence[str]], Sequence[str]]
_OF_THIS_MACHINE = ("mode", "cassette", "replay_speed", "store")
"""Settings that say how a run is stored, and nothing about the run itself."""


class RunEncoder:
    """Creates the lines of one run.

    Args:
        label: The run's label.
        thread_id: The root agent's id. If it was made by chance, texts have `root` instead of it.
    """

    def __init__(self, label: str, thread_id: str) -> None:
        self._label = label
        self._root_id = thread_id
        self._newest: dict[str, tuple[CallRecord, Line]] = {}
        """By path: the agent's newest call and its line."""
        self._with_id: set[str] = set()
        """Paths of the agents whose requests contain the root's id in a text."""

    def head(self, head: RunHead, secrets: Secrets) -> Line:
        """The line of the run itself."""
        settings = {k: v for k, v in head.settings.items() if k not in _OF_THIS_MACHINE}
        fields = {
            "kind": "run",
            "run": self._label,
            "task": head.task,
            "model": head.model,
            **({"name": head.name} if head.name else {}),
            **({"tags": list(head.tags)} if head.tags else {}),
            "budget": head.budget_total,
            "depth": head.max_depth,
            **({"first_child": head.first_child} if head.first_child else {}),
            **({"date": _day(head.started_at)} if head.started_at else {}),
            **({"settings": settings} if settings else {}),
        }
        fields |= {
            name: plain(fields[name], self._cleaner(secrets)) for name in _OF_HEAD & {*fields}
        }
        return Line(dumped(fields), fields)

    def _cleaner(self, secrets: Secrets) -> _Text:
        return lambda text: relative_text(sendable(secrets.mask(text)), self._root_id)

    def _clean_pieces(self, secrets: Secrets, pieces: Sequence[str]) -> Sequence[str]:
        masked = map(sendable, secrets.mask_pieces(pieces))
        return relative_pieces([*masked], self._root_id)

    def line(self, record: Kept, secrets: Secrets) -> Line:
        """The line of a finished record."""
        if isinstance(record, CallRecord):
            return self._call(record, secrets)
        make = _MAKERS[type(record)]
        fields = make(self._label, record, str)
        written = self._written(fields, secrets)
        if written is None:
            fields = make(self._label, record, self._cleaner(secrets))
            written = encode_json(fields)
        return Line(escaped_for_json(written).encode(), fields)

    def _written(self, fields: Mapping[str, Any], secrets: Secrets) -> str | None:
        """A line as JSON; `None` if something in it must not be written.

        That is rare, so all texts are checked together: a secret is also found in its JSON form.
        """
        try:
            written = encode_json(fields)
        except ValueError:  # a lone surrogate
            return None
        is_clean = secrets.mask(written) is written and not has_id(written, self._root_id)
        return written if is_clean else None

    # -- model calls ------------------------------------------------------------------------------

    def _call(self, record: CallRecord, secrets: Secrets) -> Line:
        before, base = self._newest.get(record.path, (None, None))
        fields = self._call_fields(record, before, base, str, None)
        written = self._written(fields, secrets)
        is_whole = record.stop_reason not in (None, "max_tokens")
        open_end = 0 if is_whole else secrets.beginning_at_end(_joined(record))
        if written is None or open_end:
            if _has_id(record, self._root_id):
                self._with_id.add(record.path)
            shown = _without_end(record, open_end) if open_end else record
            fields = self._call_fields(
                shown, before, base, self._cleaner(secrets), partial(self._clean_pieces, secrets)
            )
            written = encode_json(fields)
        if record.path in self._with_id:
            fields["key"] = relative_key(
                record.model, record.request, record.key, self._root_id, secrets
            )
            written = encode_json(fields)
        line = Line(escaped_for_json(written).encode(), fields, base=base)
        if "after" not in fields["request"]:
            line.base = None
        line.messages = len(record.request.messages)
        self._newest[record.path] = record, line
        return line

    def _call_fields(
        self,
        record: CallRecord,
        before: CallRecord | None,
        base: Line | None,
        text: _Text,
        clean_pieces: _CleanPieces | None,
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "kind": "call",
            "run": self._label,
            "path": record.path,
            "number": record.number,
        }
        if record.attempt != 1:
            fields["attempt"] = record.attempt
        fields["model"] = record.model
        if record.is_synthesis:
            fields["is_synthesis"] = True
        fields["key"] = record.key
        fields["request"] = request_fields(
            record.request, record.model, before, base, text
        )  # fmt: skip
        if record.message is not None:
            fields["reply"] = message_fields(record.message, text)
        _add_pieces(fields, record, clean_pieces)
        if record.stop_reason is not None:
            fields["stop_reason"] = text(record.stop_reason)
        if (usage := record.usage) is not None:
            fields["usage"] = [
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_creation_tokens,
                usage.cache_read_tokens,
            ]
        if record.error is not None:
            fields["error"] = plain(record.error, text)
        if record.estimate_error:
            fields["estimate_error"] = record.estimate_error
        if record.not_closed is not None:
            fields["not_closed"] = text(record.not_closed)
        fields["at_s"] = round(record.at_s, 3)
        fields["duration_ms"] = record.duration_ms or 0
        return fields


def _day(at_s: float) -> str:
    """The day of a time. Without the time of day, which would show in every diff."""
    return datetime.fromtimestamp(at_s, UTC).date().isoformat()


_OF_HEAD = {"task", "model", "name", "tags", "settings"}


def request_fields(
    request: CompletionRequest,
    model: str,
    last: CallRecord | None = None,
    base: Line | None = None,
    text: _Text = str,
) -> dict[str, Any]:
    """The part of a request that is new since the agent's previous call.

    Args:
        request: The request.
        model: `provider/model` of the call.
        last: The agent's previous call; `None` for the first, whose whole request is returned.
        base: The line of the previous call.
        text: Applied to each text.
    """
    messages, fields = request.messages, dict[str, Any]()
    before, reply, kept = None, None, 0
    if last is not None and base is not None:
        before, reply = last.request, last.message
        fields["after"] = f"{base.fields['number']}:{base.fields['key'][:12]}"
        pairs = zip(messages, before.messages, strict=False)
        shared = min(len(messages), len(before.messages))
        kept = next((n for n, (a, b) in enumerate(pairs) if a is not b and a != b), shared)
        fields["kept"] = kept
    if request.model != bare_model(model):
        fields["model"] = text(request.model)
    if before is None or request.system != before.system:
        fields["system"] = text(request.system)
    if request.tools != (before.tools if before is not None else ()):
        fields["tools"] = plain(request.tools, text)
    extra = before.extra if before is not None else {}
    if request.extra is not extra and request.extra != extra:
        fields["extra"] = plain(request.extra, text)
    schema = before.output_schema if before is not None else None
    if request.output_schema is not schema and request.output_schema != schema:
        fields["output_schema"] = plain(request.output_schema, text)
    fields["new"] = [
        "reply"
        if reply is not None and (message is reply or message == reply)
        else message_fields(message, text)
        for message in messages[kept:]
    ]
    fields["max_tokens"] = request.max_tokens
    return fields


def message_fields(message: Message, text: _Text = str) -> dict[str, Any]:
    """A message as plain values; a message of a single text has the text instead of blocks."""
    content = message.content
    if len(content) == 1 and type(content[0]) is TextBlock and not content[0].extra:
        return {"role": message.role.value, "content": text(content[0].text)}
    # A cassette only names files: calls are answered by their keys, which use the digests, and the
    # files are the person's own, next to the notebook.
    (named,) = with_media((message,), MediaBlock.named)
    blocks = plain(named.content, text)
    return {"role": message.role.value, "content": blocks}


def _has_id(record: CallRecord, thread_id: str) -> bool:
    """Whether a call's request contains the thread's id, if that was made by chance."""
    return relative(record.request, thread_id) is not record.request


def _joined(record: CallRecord) -> str:
    pieces = record.pieces
    if type(pieces) is Pieces:
        return "".join([text for _, _, text in pieces.rows])
    return "".join([text for _, text in pieces])


def _without_end(record: CallRecord, count: int) -> CallRecord:
    """A reply that was cut off, without its end, which may be the beginning of a secret."""
    whole, pieces, done = _joined(record), [], 0
    rest = len(whole) - count
    for at_s, text in record.pieces:
        pieces.append((at_s, text[: max(0, rest - done)]))
        done += len(text)
    message = record.message
    if message is not None and message.text == whole:
        kept = tuple([b for b in message.content if not isinstance(b, TextBlock)])
        message = Message(message.role, (*kept, TextBlock(whole[:rest])))
    return replace(record, pieces=tuple(pieces), message=message)


def _add_pieces(fields: dict[str, Any], record: CallRecord, clean: _CleanPieces | None) -> None:
    pieces: Sequence[Any] = record.pieces
    if not pieces:
        return
    if type(pieces) is Pieces:
        times, _, texts = zip(*pieces.rows, strict=True)
    else:
        times, texts = zip(*pieces, strict=True)
    if clean is not None:
        texts = tuple(clean(texts))
    if (said := "".join(texts)) != text_of(fields):
        fields["text"] = said
    begun_s = record.at_s - 0.0005  # makes `int` round to the nearest millisecond
    gone_ms = [int((at_s - begun_s) * 1000) for at_s in times]
    fields["piece_lengths"] = [*map(len, texts)]
    fields["piece_ms"] = gone_ms if min(gone_ms) >= 0 else [max(0, each) for each in gone_ms]


# -- all else --------------------------------------------------------------------------------------


def _tool_call(label: str, record: ToolCallRecord, text: _Text) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": "tool_call",
        "run": label,
        "path": record.path,
        "number": record.number,
        "name": text(record.name),
        "id": text(record.tool_use_id),
        "input": plain(record.input, text),
        "result": text(record.result),
    }
    if record.is_error:
        fields["is_error"] = True
    if not record.effects:
        fields["effects"] = False
    if record.media:  # whole: they are nowhere else, and later calls need them
        fields["media"] = plain(record.media, text)
    if record.unseen:
        fields["unseen"] = list(record.unseen)
    return fields | {
        "ended": record.ended,
        "at_s": round(record.at_s, 3),
        "duration_ms": record.duration_ms or 0,
    }


def _verdict(label: str, record: VerdictRecord, text: _Text) -> dict[str, Any]:
    return {
        "kind": "verdict",
        "run": label,
        "path": record.path,
        "number": record.number,
        "what": record.kind,
        "value": plain(record.value, text),
    }


def _order(label: str, record: OrderRecord, text: _Text) -> dict[str, Any]:
    return {
        "kind": "order",
        "run": label,
        "path": record.path,
        "number": record.number,
        "what": record.kind,
        "by": text(record.by),
        "at_s": round(record.at_s, 3),
        "value": plain(record.value, text),
    }


def _end(label: str, record: EndRecord, text: _Text) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": "end",
        "run": label,
        "path": record.path,
        "status": record.status.value,
        "text": text(record.text),
    }
    if record.error is not None:
        fields["error"] = text(record.error)
    if record.cut:
        fields["cut"] = True
    if record.attempt != 1:
        fields["attempt"] = record.attempt
    if record.by:
        fields["by"] = text(record.by)
    return fields | {
        "tokens_used": record.tokens_used,
        "at_s": round(record.at_s, 3),
        "duration_ms": record.duration_ms,
    }


_MAKERS: Mapping[type, Callable[[str, Any, _Text], dict[str, Any]]] = {
    ToolCallRecord: _tool_call,
    VerdictRecord: _verdict,
    OrderRecord: _order,
    EndRecord: _end,
}
