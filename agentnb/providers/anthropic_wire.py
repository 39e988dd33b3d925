"""Translates between the Messages API's JSON and the core's values.

`body_of` writes a request, `ReplyReader` reads the events of a reply. They never send an empty
text block or a lone surrogate, never report a tool call that was cut, and count a reply as
complete only after the API's own end mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentnb.core.budget import estimate_input_tokens, tokens_in
from agentnb.core.media import PDF
from agentnb.core.prompt import asked_in_words
from agentnb.core.types import (
    MALFORMED_INPUT,
    Block,
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
    Usage,
)
from agentnb.providers.call_arguments import CallArguments, without_parameters
from agentnb.providers.ends import CUT, checked, declined, our_word, said
from agentnb.providers.forms import (
    CACHE_CONTROL,
    CALL_IDS,
    TOOL_CHOICE,
    TOOLS,
    UNSIGNED,
    Form,
    call_id,
    has_calls,
)
from agentnb.providers.json_values import (
    WRONG_SHAPE,
    GrowingText,
    as_id,
    as_name,
    as_text,
    json_object,
    known_counts,
    without_surrogates,
)
from agentnb.providers.kept_fields import KeptFields, fields_for, left_out, names_for
from agentnb.providers.limits import MOST_PARTS, BadReply, TooLarge
from agentnb.providers.reply import BrokeOff
from agentnb.providers.servers import Server

_MIN_CACHED_BYTES = 4096
"""Four bytes to a token: no model of the API caches a prefix below 1024 tokens."""
_NOTHING_SAID = "(no output)"
"""The text of a message without words: the API refuses an empty one."""


# -- requests ---------------------------------------------------------------------------------


USUAL = Form()


def parts_sent(request: CompletionRequest, form: Form, server: Server) -> list[str]:
    """The parts of `body_of` that we chose and that a form may leave out; see `forms`."""
    is_typed = request.output_schema is not None and bool(request.tools)
    own = {
        TOOL_CHOICE: is_typed and form.has(TOOLS) and not _thinks(request),
        TOOLS: is_typed,
        UNSIGNED: _sends_unsigned(request.messages, server),
        CALL_IDS: has_calls(request.messages),
        CACHE_CONTROL: _is_to_cache(request),
    }
    sent = [*(part for part, is_sent in own.items() if is_sent), *_kept_names(request, server)]
    return [part for part in dict.fromkeys(sent) if form.has(part)]


def _kept_names(request: CompletionRequest, server: Server) -> Iterator[str]:
    """The fields of its blocks, and the types of blocks, that go back to their server."""
    for message in request.messages:
        for block in message.content:
            match block:
                case OpaqueBlock(api, {"type": str(kind)}) if api == server.home:
                    yield kind
                case TextBlock() | ThinkingBlock() | ToolUseBlock():
                    names = names_for(block.extra, server.home)
                    yield from (name for name in names if name not in _AS_BLOCK)


_AS_BLOCK: Mapping[str, Any] = {"type": None}
"""`extra` of thinking in a block of its own: it says where it came from."""


def _sends_unsigned(messages: Iterable[Message], server: Server) -> bool:
    """Whether thinking without a signature goes back: not to a server that signs its own."""
    if server.signs:
        return False
    blocks = [
        block
        for message in messages
        for block in message.content
        if isinstance(block, ThinkingBlock) and not _is_of_another(block, server.home)
    ]
    return not any(block.signature or block.redacted_data for block in blocks) and any(
        names_for(block.extra, server.home) for block in blocks
    )


def _is_of_another(block: ThinkingBlock, home: str) -> bool:
    """Whether another server sent it, so that it does not go to this one."""
    return block.extra is not None and home not in block.extra


def body_of(
    request: CompletionRequest, form: Form = USUAL, server: Server | None = None
) -> dict[str, Any]:
    """Return the JSON body of a request, cache breakpoints included."""
    if request.output_schema is not None and not form.has(TOOLS):
        request = asked_in_words(request)
    server = server or Server()
    if not _sends_unsigned(request.messages, server):
        form = form.leaving_out(UNSIGNED)
    messages = [_message_param(message, form, server.home) for message in request.messages]
    if messages and messages[-1]["role"] == "assistant":  # a reply that was paused
        _strip_end(messages[-1]["content"])
    if form.has(CACHE_CONTROL) and _has_turns(request):
        _mark_last_block(messages[-1]["content"])
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages,
        "stream": True,
    }
    if request.system.strip():
        prefix = request.cache_prefix if form.has(CACHE_CONTROL) else 0
        body["system"] = _system_param(request.system, prefix)
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
    is_typed = request.output_schema is not None and bool(request.tools)
    if is_typed and form.has(TOOL_CHOICE) and not _thinks(request):
        body["tool_choice"] = {"type": "tool", "name": request.tools[0].name}
    cleaned: dict[str, Any] = without_surrogates(body)
    return cleaned


def _thinks(request: CompletionRequest) -> bool:
    """Whether the model may think before it answers: the API then refuses to force a tool."""
    thinking = request.extra.get("thinking")
    asked = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
    return asked or any(
        isinstance(block, ThinkingBlock)
        for message in request.messages
        for block in message.content
    )


def _is_to_cache(request: CompletionRequest) -> bool:
    system = _system_param(request.system, request.cache_prefix)
    return _has_turns(request) or not isinstance(system, str)


def _has_turns(request: CompletionRequest) -> bool:
    """Whether it is a second turn: a cache written before that may never be read."""
    return any(message.role == Role.ASSISTANT for message in request.messages)


def _system_param(system: str, cache_prefix: int) -> str | list[dict[str, Any]]:
    shared, own = system[:cache_prefix], system[cache_prefix:]
    if not shared.strip() or len(shared.encode("utf-8", "replace")) < _MIN_CACHED_BYTES:
        return system
    blocks = [{"type": "text", "text": shared, "cache_control": {"type": "ephemeral"}}]
    return [*blocks, {"type": "text", "text": own}] if own.strip() else blocks


def _message_param(message: Message, form: Form, home: str) -> dict[str, Any]:
    params = [_block_param(block, form, home) for block in message.content]
    content = [param for param in params if param is not None]
    if all("thinking" in param["type"] for param in content):
        content.append({"type": "text", "text": _NOTHING_SAID})
    return {"role": str(message.role), "content": content}


def _block_param(block: Block, form: Form, home: str) -> dict[str, Any] | None:
    """The block as JSON; `None` for one that this server would refuse."""
    match block:
        case TextBlock(text, extra):
            fields = fields_for(extra, home, form)
            return {**fields, "type": "text", "text": text} if text.strip() else None
        case ThinkingBlock() if _is_of_another(block, home):
            return None
        case ThinkingBlock(redacted_data=str(data), extra=extra):
            return {**fields_for(extra, home, form), "type": "redacted_thinking", "data": data}
        case ThinkingBlock(text, signature, extra=extra):
            if not signature and not (text and extra and form.has(UNSIGNED)):
                return None
            param = {**fields_for(extra, home, form), "type": "thinking", "thinking": text}
            if signature:
                param["signature"] = signature
            return param
        case ToolUseBlock(own_id, name, arguments, extra):
            used = call_id(form, own_id)
            call = {"type": "tool_use", "id": used, "name": name, "input": arguments}
            return {**fields_for(extra, home, form), **call}
        case ToolResultBlock(own_id, text, is_error):
            used = call_id(form, own_id)
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": used}
            if text.strip():
                result["content"] = text
            if is_error:
                result["is_error"] = True
            return result
        case MediaBlock(media_type, data):
            kind = "document" if media_type == PDF else "image"
            source = {"type": "base64", "media_type": media_type, "data": data}
            return {"type": kind, "source": source}
        case OpaqueBlock(api, data):
            return dict(data) if api == home and form.has(str(data.get("type"))) else None


def _strip_end(content: list[dict[str, Any]]) -> None:
    """Strip trailing blanks: the API refuses them in a reply that it should continue."""
    if content[-1]["type"] == "text":
        content[-1]["text"] = content[-1]["text"].rstrip()


def _mark_last_block(content: list[dict[str, Any]]) -> None:
    for param in reversed(content):
        if "thinking" not in param["type"]:
            param["cache_control"] = {"type": "ephemeral"}
            return


# -- replies, event by event -------------------------------------------------------------------


def event_in(data: str) -> Mapping[str, Any]:
    """Parse the event in `data`.

    Raises:
        BadReply: `data` holds no event.
        BrokeOff: The event says that the reply ends with an error.
    """
    event = json_object(data)
    if event is None or type(kind := event.get("type")) is not str:
        raise BadReply("an event without a type")
    if kind == "error":
        raise BrokeOff(event.get("error"))
    return event


class ReplyReader:
    """Reads the API's events into ours.

    Args:
        request: The request: its estimated size is the input count if the API sends none.
        server: What its replies have shown. This one adds to it.
    """

    def __init__(self, request: CompletionRequest, server: Server | None = None) -> None:
        self.is_complete = self.is_whole = False
        self._request, self._server = request, server or Server()
        self._bare = without_parameters(request)
        self._has_begun = False
        self._counts: dict[str, int] = {}
        """The API's token counts, under the names of `Usage`."""
        self._output_is_final = False
        self._has_company = self._server.has_company()
        self._reason: str | None = None
        self._details: object = None
        """Why the model declined, in the API's words."""
        self._parts: dict[int, _Part] = {}
        self._undecided: _Part | None = None
        """A tool call without input: the next event shows whether it is whole or was cut."""

    def read(self, data: Mapping[str, Any]) -> Sequence[StreamEvent]:
        """Translate one event; events and deltas of unknown types give nothing.

        Raises:
            BadReply: The event has the wrong shape, or came at the wrong place.
        """
        try:
            if data["type"] == "content_block_delta":  # nearly all events
                return self._part(data).grow(data["delta"])
            return [*self._read(data)]
        except BadReply:
            raise
        except WRONG_SHAPE:
            raise BadReply("an event of the wrong shape") from None

    def _read(self, data: Mapping[str, Any]) -> Iterator[StreamEvent]:
        match data["type"]:
            case "message_start":
                if self._has_begun:
                    raise BadReply("a second beginning within the reply")
                self._has_begun = True
                yield from self._count(data["message"].get("usage"))
            case "content_block_start":
                yield from self._decide()
                if data["index"] in self._parts:
                    raise BadReply("the same part of the reply twice")
                if len(self._parts) >= MOST_PARTS:
                    raise TooLarge("a reply", MOST_PARTS, "parts")
                part = self._parts[data["index"]] = _part_of(data["content_block"])
                yield from part.begin()
            case "content_block_stop":
                yield from self._close(self._part(data))
            case "message_delta":
                self._reason = said(data["delta"].get("stop_reason")) or self._reason
                self._details = data["delta"].get("stop_details") or self._details
                yield from self._decide()
                yield from self._count(data.get("usage"), is_final=True)
            case "message_stop":
                if not self._has_begun:
                    raise BadReply("the end of a reply that had not begun")
                yield from self._decide()
                yield from self._mend_output()
                self.is_complete = self.is_whole = True

    def _part(self, data: Mapping[str, Any]) -> _Part:
        part = self._parts.get(data["index"])
        if part is None or part.is_closed:
            raise BadReply("more of a part that had not begun, or had ended")
        return part

    def finish(self) -> Iterable[StreamEvent]:
        """Nothing is left at the end: every part has an end event."""
        return ()

    def stopped(self) -> Stopped | None:
        """The end of the turn; `None` before the end mark."""
        if not self.is_complete:
            return None
        parts, home = self._parts.values(), self._server.home
        blocks = [block for part in parts if (block := part.block(home)) is not None]
        thoughts = [block for block in blocks if isinstance(block, ThinkingBlock)]
        if any(thought.signature for thought in thoughts):
            self._server.signs = True
        calls = [part for part in parts if part.kind == "tool_use"]
        has_answer = len(thoughts) < len(blocks)
        model, beside = self._request.model, self._has_company()
        notes = [
            checked(self._reason, self._server, model, has_company=beside, has_answer=has_answer),
            left_out([name for part in parts for name in part.others.dropped]),
        ]
        reason = our_word(self._reason, has_calls=bool(calls))
        if reason not in CUT and any(part.call is None for part in calls):
            raise BadReply("a tool call without an end")
        message = Message(Role.ASSISTANT, tuple(blocks))
        if reason == "refusal":
            return Stopped(reason, message, declined(self._reason, message.text, self._details))
        return Stopped(reason, message, " ".join(filter(None, notes)))

    def _count(self, raw: object, *, is_final: bool = False) -> Iterator[Usage]:
        if known := known_counts(raw, _USAGE_FIELDS):
            self._counts |= known
            self._output_is_final |= is_final and "output_tokens" in known
            yield self._usage()

    def _usage(self) -> Usage:
        counts = self._counts
        if not counts.keys() - {"output_tokens"}:
            # The API sent no input count. As 0 it would be free, and most calls are mostly input.
            counts = {**counts, "input_tokens": estimate_input_tokens(self._request)}
        return Usage(**counts)

    def _mend_output(self) -> Iterator[Usage]:
        """Replace an output count from the reply's beginning by the estimated size of the reply."""
        if not self._counts or self._output_is_final:
            return
        written = sum(part.size for part in self._parts.values())
        if (seen := tokens_in(written)) > self._counts.get("output_tokens", 0):
            self._counts["output_tokens"] = seen
            yield self._usage()

    def _close(self, part: _Part) -> Iterator[StreamEvent]:
        part.is_closed = True
        yield from part.end()
        if part.kind != "tool_use":
            return
        if part.input is None or part.has_no_input:
            self._undecided = part
        else:
            yield from part.finish_call(self._bare)

    def _decide(self) -> Iterator[ToolUse]:
        """Report the undecided tool call unless the reply was cut there."""
        part, self._undecided = self._undecided, None
        if part is not None and our_word(self._reason, has_calls=True) not in CUT:
            yield from part.finish_call(self._bare)


_OWN_FIELDS = {
    "text": frozenset(("type", "text")),
    "thinking": frozenset(("type", "thinking", "signature")),
    "redacted_thinking": frozenset(("type", "data")),
    "tool_use": frozenset(("type", "id", "name", "input")),
}
"""By a block's type: the fields that have a place of their own in our blocks."""
_OF_UNKNOWN = frozenset(("type", "input"))


def _part_of(start: Mapping[str, Any]) -> _Part:
    """Make the part for a content block's start."""
    own = _OWN_FIELDS.get(start["type"], _OF_UNKNOWN)
    others = KeptFields(own, has_pieces=False)  # a delta has a whole entry
    others.keep(start)
    kept = {name: start[name] for name in own if name in start and name != "input"}
    if kept["type"] in ("text", "thinking"):
        return _Part(kept, GrowingText(), others)
    part = _Part(kept, CallArguments(), others, has_input="input" in start)
    part.given.keep(json.dumps(start.get("input", {}), ensure_ascii=False))
    return part


@dataclass(slots=True)
class _Part:
    """One content block that is being received."""

    start: Mapping[str, Any]
    content: GrowingText
    others: KeptFields
    """Fields that we do not know: they are sent back unchanged."""
    given: CallArguments = field(default_factory=CallArguments)
    """The input in a tool call's start event: mostly empty, since it comes in pieces."""
    has_input: bool = False
    """Whether its start had an input."""
    signature: str = ""
    is_closed: bool = False
    call: ToolUseBlock | None = None
    """Set when the call is known to be whole."""

    @property
    def kind(self) -> object:
        return self.start["type"]

    @property
    def size(self) -> int:
        """Bytes received."""
        return self.content.size

    @property
    def has_no_input(self) -> bool:
        return not self.given.value and not str(self.content).strip()

    def begin(self) -> Iterator[StreamEvent]:
        """The deltas for text in the start event; usually none."""
        if self.kind == "text" and (text := self.start.get("text")):
            yield from self.grow({"type": "text_delta", "text": text})
        elif self.kind == "thinking":
            self.signature = as_text(self.start.get("signature") or "")
            if thinking := self.start.get("thinking"):
                yield from self.grow({"type": "thinking_delta", "thinking": thinking})

    def grow(self, delta: Mapping[str, Any]) -> tuple[StreamEvent, ...]:
        match delta["type"]:
            case "text_delta":
                return (TextDelta(self.content.keep(delta["text"])),)
            case "thinking_delta" | "signature_delta":
                self.signature = as_text(delta.get("signature") or "") or self.signature
                if thought := delta.get("thinking"):
                    return (ThinkingDelta(self.content.keep(thought)),)
            case "input_json_delta" if isinstance(self.content, CallArguments):
                self.content.keep(delta["partial_json"])
                return self.content.metered()
            case "citations_delta":
                self.others.keep({"citations": [delta["citation"]]})
            case _ if self.kind not in _OWN_FIELDS:
                self.others.keep(delta)
        return ()

    def extra(self, home: str) -> Mapping[str, Any] | None:
        """See `TextBlock.extra`."""
        fields = self.others.whole()
        return {home: fields} if fields else None

    def end(self) -> Iterator[StreamEvent]:
        """The rest of a character whose second half never came."""
        if left := self.content.end():
            if self.kind == "text":
                yield TextDelta(left)
            elif self.kind == "thinking":
                yield ThinkingDelta(left)

    @property
    def input(self) -> Mapping[str, Any] | None:
        """The tool's arguments; `None` if they are not a whole JSON object."""
        if isinstance(self.content, CallArguments) and not self.content.is_blank:
            return self.content.value
        return self.given.value

    def finish_call(self, bare: frozenset[str]) -> Iterator[ToolUse]:
        """Report the tool call, even if it is not a JSON object: its model can then retry.

        Args:
            bare: The names of tools without parameters.
        """
        input = self.input
        if input is None and isinstance(self.content, CallArguments):
            input = self.content.whole(takes_any=self.start["name"] not in bare)
        if input is None:
            input = {MALFORMED_INPUT: str(self.content) or str(self.given)}
        start = self.start
        call = ToolUseBlock(as_id(start["id"]), as_name(start["name"]), input)
        self.call = call
        yield ToolUse(call.id, call.name, call.input)

    def block(self, home: str) -> Block | None:
        """The block to send back in the next request; `None` for one that cannot be sent."""
        text = str(self.content)
        match self.kind:
            case "text":
                return TextBlock(text, self.extra(home)) if text else None
            case "thinking" | "redacted_thinking" as kind:
                extra = {home: {**self.others.whole(), **_AS_BLOCK}}
                if kind == "thinking":
                    return ThinkingBlock(text, self.signature, extra=extra)
                return ThinkingBlock("", redacted_data=as_text(self.start["data"]), extra=extra)
            case "tool_use":
                return self.call and replace(self.call, extra=self.extra(home))
            case str(kind) if not self.others.dropped:
                whole = {"type": kind, **self.others.whole()}
                if self.has_input:
                    whole["input"] = self.input or {}
                return OpaqueBlock(home, whole)
        return None


_USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_creation_input_tokens": "cache_creation_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
}
