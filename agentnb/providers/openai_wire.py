"""Translates between the JSON of chat completions and the core's values.

`body_of` writes a request in OpenAI's own form. `ReplyReader` reads the chunks of a reply, and
accepts that servers omit parts: a reply is complete after a finish reason or `[DONE]`, unless the
reason says that it broke off. A tool call that was cut is never reported; a whole one with
malformed arguments is, so that the model can retry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise, zip_longest
from typing import Any

from agentnb.core.budget import estimate_input_tokens, tokens_in
from agentnb.core.media import PDF
from agentnb.core.prompt import asked_in_words
from agentnb.core.secrets import masked, masked_as_known
from agentnb.core.types import (
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
from agentnb.providers.ends import CUT, checked, declined, our_word, said
from agentnb.providers.forms import (
    CALL_IDS,
    CONTENT,
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    NULL_CONTENT,
    STREAM_OPTIONS,
    SYSTEM,
    TOOL_CHOICE,
    TOOLS,
    Form,
    call_id,
    has_calls,
)
from agentnb.providers.json_values import (
    WRONG_SHAPE,
    GrowingText,
    json_object,
    known_counts,
    without_surrogates,
)
from agentnb.providers.kept_fields import KeptFields, fields_for, left_out, names_for, texts_of
from agentnb.providers.limits import BadReply
from agentnb.providers.openai_calls import IN_FUNCTION, ToolCalls
from agentnb.providers.reply import BrokeOff
from agentnb.providers.servers import Server

_NOTHING_SAID = "(no output)"
"""The text of a message without words: many servers refuse an empty one."""
USUAL = Form(frozenset({MAX_COMPLETION_TOKENS}))
"""What most servers know. OpenAI's own has the other name of the limit."""
_ANY_PDF = "document.pdf"
"""File name of every PDF, since the API requires one."""


# -- requests -----------------------------------------------------------------------------------


def parts_sent(request: CompletionRequest, form: Form, server: Server) -> list[str]:
    """The parts of `body_of` that we chose and that a form may leave out; see `forms`."""
    is_typed = request.output_schema is not None and bool(request.tools)
    own = {
        TOOL_CHOICE: is_typed and form.has(TOOLS),
        TOOLS: is_typed,
        SYSTEM: bool(request.system.strip()),
        NULL_CONTENT: any(_has_null(each, form, server.home) for each in request.messages),
        CALL_IDS: has_calls(request.messages),
        STREAM_OPTIONS: True,
        MAX_TOKENS: True,
        MAX_COMPLETION_TOKENS: True,
    }
    sent = [*(part for part, is_sent in own.items() if is_sent), *_kept_names(request, server)]
    return [part for part in dict.fromkeys(sent) if form.has(part)]


def _has_null(message: Message, form: Form, home: str) -> bool:
    """Whether the content of a message is null: it has only calls."""
    is_said = message.role == Role.ASSISTANT
    return is_said and _assistant_param(message, form, home)["content"] is None


def _kept_names(request: CompletionRequest, server: Server) -> Iterator[str]:
    """The fields of its messages that go back to their server."""
    for message in request.messages:
        for block in message.content:
            match block:
                case OpaqueBlock(api, fields) if api == server.home:
                    yield from fields
                case ThinkingBlock() | ToolUseBlock():
                    yield from names_for(block.extra, server.home)


def body_of(
    request: CompletionRequest, form: Form = USUAL, server: Server | None = None
) -> dict[str, Any]:
    """Return the JSON body of a request."""
    if request.output_schema is not None and not form.has(TOOLS):
        request = asked_in_words(request)
    home = "" if server is None else server.home
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        is_said = message.role == Role.ASSISTANT
        param = _assistant_param(message, form, home) if is_said else None
        messages += _user_params(message, form) if param is None else [param]
    if request.system.strip():
        if form.has(SYSTEM) or not messages or messages[0]["role"] != "user":
            messages.insert(0, {"role": "system", "content": request.system})
        else:
            messages[0]["content"] = _after(request.system, messages[0]["content"])
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "stream": True,
    }
    if request.extra.keys().isdisjoint((MAX_TOKENS, MAX_COMPLETION_TOKENS)):
        name = MAX_TOKENS if form.has(MAX_TOKENS) else MAX_COMPLETION_TOKENS
        body[name] = request.max_tokens
    if form.has(STREAM_OPTIONS):
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in request.tools
        ]
    if request.output_schema is not None and request.tools and form.has(TOOL_CHOICE):
        name = request.tools[0].name
        body["tool_choice"] = {"type": "function", "function": {"name": name}}
    cleaned: dict[str, Any] = without_surrogates(body)
    return cleaned


def _after(system: str, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The content of a user message, preceded by the system prompt."""
    if isinstance(content, str):
        return f"{system}\n\n{content}"
    return [{"type": "text", "text": system}, *content]


def _assistant_param(message: Message, form: Form, home: str) -> dict[str, Any]:
    """A message of the model, with the fields that go back to its server as they came."""
    text = message.text if message.text.strip() else None
    no_text = None if form.has(NULL_CONTENT) else ""
    param: dict[str, Any] = {"role": "assistant", "content": text or no_text}
    calls: list[Any] = []
    parts: list[Any] = []
    has_thoughts = False
    for block in message.content:
        match block:
            case ThinkingBlock(text=thought, extra=extra):
                param |= fields_for(extra, home, form, thought)
            case OpaqueBlock(api, fields):
                kept = fields_for({api: fields}, home, form)
                if isinstance(thoughts := kept.get(CONTENT), list):
                    parts, has_thoughts = [*parts, *thoughts], True
                param = {**kept, **param}
            case TextBlock(said) if said.strip():
                parts.append({"type": "text", "text": said})
            case ToolUseBlock():
                calls.append(_call_param(block, form, home))
    if has_thoughts:
        param["content"] = parts
    elif not calls:
        param["content"] = text or _NOTHING_SAID
    return {**param, "tool_calls": calls} if calls else param


def _call_param(call: ToolUseBlock, form: Form, home: str) -> dict[str, Any]:
    fields = fields_for(call.extra, home, form)
    inner = {name: fields.pop(name) for name in [*fields] if name.startswith(IN_FUNCTION)}
    return {
        **fields,
        "id": call_id(form, call.id),
        "type": "function",
        "function": {
            **{name.removeprefix(IN_FUNCTION): inner[name] for name in inner},
            "name": call.name,
            "arguments": json.dumps(without_surrogates(call.input), ensure_ascii=False),
        },
    }


def _user_params(message: Message, form: Form) -> list[dict[str, Any]]:
    """A user message: each tool result as a message of its own, then the text.

    There is no field for a failed tool, so its text says so.
    """
    params: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": call_id(form, block.tool_use_id),
            "content": _result_text(block),
        }
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    if any(isinstance(block, MediaBlock) for block in message.content):
        parts = [part for block in message.content if (part := _part(block)) is not None]
        params.append({"role": "user", "content": parts})
    elif message.text.strip() or not params:
        params.append({"role": "user", "content": message.text or _NOTHING_SAID})
    return params


def _part(block: Block) -> dict[str, Any] | None:
    """A block of a message with files; `None` for other content, or empty content."""
    match block:
        case TextBlock(text) if text.strip():
            return {"type": "text", "text": text}
        case MediaBlock(media_type, data):
            address = f"data:{media_type};base64,{data}"
            if media_type == PDF:  # its name counts for nothing: see `MediaBlock.name`
                return {"type": "file", "file": {"filename": _ANY_PDF, "file_data": address}}
            return {"type": "image_url", "image_url": {"url": address}}
    return None


def _result_text(result: ToolResultBlock) -> str:
    text = result.text if result.text.strip() else _NOTHING_SAID
    return f"Error: {text}" if result.is_error and not text.startswith("Error") else text


# -- replies, chunk by chunk ----------------------------------------------------------------------

_DONE: Mapping[str, Any] = {}
"""Stands for the end mark `[DONE]`, which is not JSON."""


def event_in(data: str) -> Mapping[str, Any]:
    """Parse the chunk in an event's data.

    Raises:
        BadReply: `data` holds no chunk.
        BrokeOff: The chunk says that the reply ends with an error.
    """
    if data.startswith("[DONE]"):
        return _DONE
    chunk = json_object(data)
    if chunk is None:
        raise BadReply("an event that is not an object")
    if error := chunk.get("error"):
        raise BrokeOff(error)
    if chunk.get("object") == "error":  # the form of older versions of vLLM
        raise BrokeOff(chunk)
    return chunk


_READ_FIELDS = frozenset(
    (
        *("role", "content", "refusal", "tool_calls", "function_call"),
        *("reasoning_content", "reasoning"),
        # What a server says about its reply, and refuses in a request.
        *("annotations", "audio", "channel"),
        "content_blocks",  # of Portkey: deltas, which no request may have
    )
)
"""Fields of a delta that are not kept to be sent back."""
_THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Servers use either name, or both."""
_THINKING_PARTS = ("thinking", "reasoning", "redacted_thinking")
"""Types of parts of a content, as of Mistral and Databricks: they take them back as they came."""
_MOST_TURNS = 100
"""How often such parts and text may take turns and keep their order."""


class ReplyReader:
    """Reads the chunks of a reply into our events.

    Args:
        request: The request: its estimated size is the input count if the server sends none, and
            no tool call gets an id that is already in it.
        server: What its replies have shown. This one adds to it.
    """

    def __init__(self, request: CompletionRequest, server: Server | None = None) -> None:
        self.is_complete = self.is_whole = False
        self._request = request
        self._server = server = server or Server()
        self._thinking_field = ""
        self._others = KeptFields(_READ_FIELDS)
        self._thoughts = KeptFields(frozenset())
        """Thinking that is no plain text, as gateways write it: it goes back as it came."""
        self._parts: dict[int, KeptFields] = {}
        """Parts of the content, too, by the pieces of text before them."""
        self._unkept: dict[str, None] = {}
        """What is known of other parts: their types."""
        self._has_begun = self._has_refused = False
        self._has_company = self._server.has_company()
        self._reason: str | None = None
        self._filters: Mapping[str, str] = {}
        """Which filter has ended the reply, as Azure says it."""
        self._text, self._thinking = GrowingText(), GrowingText()
        self._calls = ToolCalls(request, server.home)
        self._called: tuple[ToolUseBlock, ...] = ()
        self._usage: dict[str, int] = {}
        self._reported: Usage | None = None

    def read(self, data: Mapping[str, Any]) -> Sequence[StreamEvent]:
        """Translate one chunk; unknown fields are kept for the message.

        Raises:
            BadReply: The chunk has the wrong shape, or came at the wrong place.
        """
        if data is _DONE:
            if not self._has_begun:
                raise BadReply("the end of a reply that had not begun")
            self.is_complete = self.is_whole = True
            return ()
        events: list[StreamEvent] = []
        try:
            if (usage := data.get("usage")) is not None:
                events += self._count(usage)
            # A chunk with only usage has no choices: an empty list, or null.
            for choice in data.get("choices") or ():
                if not choice.get("index"):  # others were not asked for
                    self._has_begun = True
                    events += self._grow(choice.get("delta") or self._message_in(choice))
                    if (reason := choice.get("finish_reason")) and (reason := said(reason)):
                        self._end(reason, choice)
        except BadReply:
            raise
        except WRONG_SHAPE:
            raise BadReply("an event of the wrong shape") from None
        return events

    def _end(self, reason: str, choice: Mapping[str, Any]) -> None:
        self.is_whole = True
        if not self._has_refused:  # a refusal ends with `stop`, as an answer does
            self._reason = reason
        if filters := choice.get("content_filter_results"):
            self._filters = _filters_in(filters)

    def _message_in(self, choice: Mapping[str, Any]) -> Mapping[str, Any]:
        """The whole message of a stream that is only feigned.

        Some servers repeat the message so far beside their deltas, the last time without one.
        """
        message = choice.get("message")
        if not message or str(self._text) or self._calls:
            return {}
        whole: Mapping[str, Any] = message
        return whole

    def _grow(self, delta: Mapping[str, Any]) -> Iterable[StreamEvent]:
        if len(delta) == 1:  # nearly all deltas
            ((name, text),) = delta.items()
            if name == "content" and text and type(text) is str:
                return (TextDelta(self._text.keep(text)),)
            if name in _THINKING_FIELDS and type(text) is str:
                self._thinking_field = self._thinking_field or name
                return (ThinkingDelta(self._thinking.keep(text)),)
            if name not in _READ_FIELDS:
                self._others.add(name, text)
                return ()
        return self._grow_any(delta)

    def _grow_any(self, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if not _READ_FIELDS.issuperset(delta):
            self._others.keep(delta)
        for name in _THINKING_FIELDS:
            if thinking := delta.get(name):
                if type(thinking) is str:
                    self._thinking_field = self._thinking_field or name
                else:
                    self._thoughts.keep({name: thinking})
                yield ThinkingDelta(self._thinking.keep(_thinking_in(thinking)))
                break
        content = delta.get("content")
        if type(content) in (list, dict):
            yield from self._grow_parts(content if type(content) is list else [content])
        elif content:
            yield TextDelta(self._text.keep(content))
        if refusal := delta.get("refusal"):
            self._reason, self._has_refused = "refusal", True
            yield TextDelta(self._text.keep(refusal))
        if calls := delta.get("tool_calls"):
            for piece in [calls] if isinstance(calls, Mapping) else calls:  # some send one alone
                yield from self._calls.grow(piece)
        elif function := delta.get("function_call"):  # the legacy form: one call, without its id
            yield from self._calls.grow({"function": function})

    def _grow_parts(self, content: Iterable[Any]) -> Iterator[StreamEvent]:
        """Read parts of the content: some servers leave out the type of a text."""
        parts = ({"text": part} if type(part) is str else part for part in content if part)
        for is_kept, group in groupby(parts, lambda part: part.get("type") in _THINKING_PARTS):
            several = list(group)
            if is_kept:
                thinking = _thinking_in(several)
                # A signature alone belongs to the thinking before it.
                is_rest = not thinking and several[0]["type"] != "redacted_thinking"
                is_rest = bool(self._parts) and (is_rest or len(self._parts) >= _MOST_TURNS)
                at = max(self._parts) if is_rest else self._text.pieces
                self._parts.setdefault(at, KeptFields(frozenset())).keep({CONTENT: several})
                if thinking:
                    yield ThinkingDelta(self._thinking.keep(thinking))
                continue
            for part in several:
                if text := part.get("text"):
                    yield TextDelta(self._text.keep(text))
                elif "text" not in part:
                    self._unkept[str(part.get("type"))] = None

    def finish(self) -> Iterator[StreamEvent]:
        """The last events of the reply: tool calls have no end event of their own."""
        if not self.is_whole:
            return
        if left := self._thinking.end():
            yield ThinkingDelta(left)
        if left := self._text.end():
            yield TextDelta(left)
        self._called = self._calls.whole(is_cut=self._our_reason in CUT)
        for call in self._called:
            yield ToolUse(call.id, call.name, call.input)
        if self._usage and (last := self._total(is_final=True)) != self._reported:
            yield last

    def stopped(self) -> Stopped | None:
        """The end of the turn; `None` when neither a finish reason nor `[DONE]` came."""
        if not self.is_whole:
            return None
        text, thinking = str(self._text), str(self._thinking)
        has_answer, model = bool(text or self._called), self._request.model
        beside, server = self._has_company(), self._server
        kept = self._others, self._thoughts, *self._parts.values()
        dropped = [name for each in kept for name in each.dropped]
        notes = [
            checked(self._reason, server, model, has_company=beside, has_answer=has_answer),
            left_out([*dropped, *self._calls.dropped, *self._unkept]),
        ]
        blocks: list[Block] = []
        if thinking:
            field = self._thinking_field
            extra = {self._server.home: {field: None}} if field else None
            blocks.append(ThinkingBlock(thinking, extra=extra))
        fields = self._thoughts.whole() | self._others.whole()
        ends = [0, *self._parts, None]
        pieces = [self._text.joined(begin or 0, end) for begin, end in pairwise(ends)]
        parts = [part.whole() for part in self._parts.values()]
        # Each text is masked alone: a secret that lies across two would be kept in halves.
        cut = [name for name in fields if any(map(_cuts_secret, texts_of({name: fields[name]})))]
        if any(map(_cuts_secret, (pieces, *texts_of(parts)))):
            pieces, parts, cut = [text], [], [*cut, CONTENT]
        notes.append(left_out(cut))
        fields = {name: value for name, value in fields.items() if name not in cut}
        blocks += (OpaqueBlock(self._server.home, fields),) if fields else ()
        for piece, part in zip_longest(pieces, parts):
            blocks += (TextBlock(piece),) if piece else ()
            blocks += (OpaqueBlock(self._server.home, part),) if part else ()
        message = Message(Role.ASSISTANT, (*blocks, *self._called))
        if self._our_reason == "refusal":
            return Stopped("refusal", message, declined(self._reason, text, self._filters))
        return Stopped(self._our_reason, message, " ".join(filter(None, notes)))

    @property
    def _our_reason(self) -> str:
        return our_word(self._reason, has_calls=bool(self._calls))

    # -- usage --------------------------------------------------------------------------------

    def _count(self, raw: object) -> Iterator[Usage]:
        """Report the first usage at once and the last at the end: some servers send many."""
        if counts := known_counts(raw, _USAGE_FIELDS):
            self._usage |= counts
            if isinstance(raw, Mapping):
                self._usage |= known_counts(raw.get("prompt_tokens_details"), _PROMPT_FIELDS)
                self._usage |= known_counts(raw.get("completion_tokens_details"), _OUTPUT_FIELDS)
        if self._usage and self._reported is None:
            self._reported = self._total(is_final=False)
            yield self._reported

    def _total(self, *, is_final: bool) -> Usage:
        """The usage so far. A 0 that cannot be true is replaced by an estimate from the size."""
        prompt = self._usage.get("prompt", 0) or estimate_input_tokens(self._request)
        cached, written = self._usage.get("cached", 0), self._usage.get("written", 0)
        if cached > prompt:
            cached = 0
        if written > prompt - cached:
            written = 0
        output, reasoning = self._usage.get("completion", 0), self._usage.get("reasoning", 0)
        counted = self._usage.get("prompt", 0) + output
        if output and reasoning and self._usage.get("total") == counted + reasoning:
            output += reasoning  # some servers count it apart, as their total shows
        if is_final and not output:
            output = tokens_in(self._text.size + self._thinking.size + self._calls.size)
        return Usage(prompt - cached - written, output, written, cached)


def _cuts_secret(texts: list[str]) -> bool:
    """Whether a secret lies across texts that follow one another."""
    return len(texts) > 1 and masked("".join(texts)) != "".join(map(masked_as_known, texts))


def _thinking_in(said: object) -> str:
    """The text of thinking in any shape; empty for one that has none."""
    match said:
        case str(text) | {"text": str(text)}:
            return text
        case {"thinking": parts} | {"summary": parts} | {"reasoning": parts} | {"content": parts}:
            return _thinking_in(parts)
        case [*parts]:
            return "".join(map(_thinking_in, parts))
    return ""


def _filters_in(results: object) -> Mapping[str, str]:
    """The filters that refused, as `ends.declined` reads them."""
    if not isinstance(results, Mapping):
        return {}
    hit = [name for name, each in results.items() if isinstance(each, Mapping)]
    return {"explanation": ", ".join(name for name in hit if results[name].get("filtered") is True)}


_USAGE_FIELDS = {
    "prompt_tokens": "prompt",
    "completion_tokens": "completion",
    "total_tokens": "total",
    "prompt_cache_hit_tokens": "cached",
}
"""The output includes reasoning, the input includes tokens read from a cache and written to it. The
last is DeepSeek's name."""
_PROMPT_FIELDS = {"cached_tokens": "cached", "cache_write_tokens": "written"}
_OUTPUT_FIELDS = {"reasoning_tokens": "reasoning"}
