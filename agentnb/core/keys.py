"""The key of a model call: what the call means, and nothing else.

SHA-256 over canonical JSON of the model, system prompt, messages, tools, output schema and the
provider's extra fields. Files count by their digests. These do not count: ids (a tool use is named
by its ordinal in the conversation), signatures of thinking, names of files, `max_tokens` and
`cache_prefix` (which change with the budget and the cache), the order of dictionary keys, and
secrets (which are masked).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from operator import is_
from sys import intern
from typing import Any, Generic, TypeVar, assert_never

from agentnb.core.codec import plain
from agentnb.core.secrets import Secrets, known_secrets
from agentnb.core.types import (
    Block,
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)

T = TypeVar("T")

_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str
).encode
_text: Callable[[str], str] = encode_basestring
"""A text in JSON: the same as `_encode`, and several times as fast."""


def digest_of(value: Any, secrets: Secrets) -> str:
    """A digest of plain values, as 64 hexadecimal characters; secrets are masked in it."""
    masked = secrets.mask(_encode(plain(value)))
    return hashlib.sha256(masked.encode("utf-8", "backslashreplace")).hexdigest()


def key_of(model: str, request: CompletionRequest) -> str:
    """The key of one call, as 64 hexadecimal characters.

    Args:
        model: `provider/model`.
        request: The call.
    """
    return CallKeys().key_of(model, request)


class CallKeys:
    """Makes the keys of one agent's calls, in time linear in the new part of each request.

    A request usually begins with the messages of the one before it: these are not read again, nor
    are its tools. A call's key is usually asked for twice: before the call, and for its record.

    Args:
        secrets: The secrets to mask; by default those that are known now.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._mask = (known_secrets() if secrets is None else secrets).mask
        self._messages: tuple[Message, ...] = ()
        self._extra: Mapping[str, Any] | None = None
        """`extra` of the newest request; `None` before the first."""
        self._tools: Sequence[ToolSpec] = ()
        self._tools_text = "[]"
        """The newest tools as JSON; one shared object for all agents that have them."""
        self._asked: tuple[object, ...] = ()
        """Everything that `_key` was made of."""
        self._key = ""

    def _begin(self, extra: Mapping[str, Any]) -> None:
        self._extra = extra
        self._messages = ()
        self._ordinals: dict[str, int] = {}
        if extra:
            self._hash = hashlib.sha256()
            _feed(self._hash, self._mask(f'{{"extra":{_encode(plain(extra))},"messages":['))
        else:
            self._hash = _WITHOUT_EXTRA.copy()

    def key_of(self, model: str, request: CompletionRequest) -> str:
        """The key of the agent's next call."""
        messages, known = request.messages, len(self._messages)
        asked = messages, request.extra, model, request.system, request.tools, request.output_schema
        if self._asked and all(map(is_, self._asked, asked)):
            return self._key
        # By identity, since 1 and True are equal but differ in JSON.
        is_same = known <= len(messages) and all(map(is_, self._messages, messages))
        if not is_same or request.extra is not self._extra:
            self._begin(request.extra)
            known = 0
        for place, message in enumerate(messages[known:], known):
            _feed(self._hash, self._mask(("," if place else "") + self._canonical(message)))
        self._messages = messages
        if request.tools is not self._tools:
            self._tools, self._tools_text = request.tools, _TOOLS.text_of(request.tools)
        whole = self._hash.copy()
        schema = "null" if request.output_schema is None else _SCHEMA.text_of(request.output_schema)
        rest = f'"model":{_text(model)},"output_schema":{schema},"system":{_text(request.system)}'
        _feed(whole, self._mask(f'],{rest},"tools":{self._tools_text}}}'))
        self._asked, self._key = asked, whole.hexdigest()
        return self._key

    def _canonical(self, message: Message) -> str:
        blocks = ",".join([self._block(block) for block in message.content])
        return f'{{"content":[{blocks}],"role":{_text(message.role)}}}'

    def _block(self, block: Block) -> str:
        match block:
            case TextBlock(text):
                return f'{{{_extra(block.extra)}"text":{_text(text)}}}'
            case ThinkingBlock():
                return f'{{{_extra(block.extra)}"thinking":{_text(block.text)}}}'
            case ToolUseBlock(id=tool_use_id, name=name, input=given):
                fields = {"call": self._ordinal(tool_use_id), "input": plain(given), "name": name}
                if meant := _meant_of(block.extra):
                    fields["extra"] = meant
                return _encode(fields)
            case ToolResultBlock(tool_use_id=tool_use_id, text=text, is_error=is_error):
                return _encode(
                    {"error": is_error, "of": self._ordinal(tool_use_id), "result": text}
                )
            case MediaBlock(media_type=media_type):
                # By its digest: megabytes are read once, and masking them would be pointless.
                return f'{{"media":{_text(media_type)},"sha256":{_text(block.digest)}}}'
            case OpaqueBlock(data=data):
                return _encode({"opaque": _meant(data)})
        assert_never(block)

    def _ordinal(self, tool_use_id: str) -> int:
        return self._ordinals.setdefault(tool_use_id, len(self._ordinals) + 1)


def _extra(extra: Mapping[str, Any] | None) -> str:
    """The beginning of a block's JSON: nothing for a block without further fields."""
    return f'"extra":{_encode(meant)},' if (meant := _meant_of(extra)) else ""


def _meant_of(extra: Mapping[str, Any] | None) -> list[Any]:
    """What a provider keeps with a block, wherever it came from: an address means nothing."""
    return [meant for fields in extra.values() if (meant := _meant(fields))] if extra else []


def _meant(value: Any) -> Any:
    """What fields of a provider mean: without ids, signatures, encrypted parts and nulls."""
    if isinstance(value, Mapping):
        kept = {str(name): _meant(item) for name, item in value.items() if not _is_form(str(name))}
        return {name: item for name, item in kept.items() if item not in ({}, [], None)}
    return [_meant(item) for item in value] if isinstance(value, list | tuple) else plain(value)


def _is_form(name: str) -> bool:
    return name == "id" or name.endswith(("_id", "signature")) or name.startswith("encrypted_")


_WITHOUT_EXTRA = hashlib.sha256(b'{"extra":{},"messages":[')


def _feed(digest: hashlib._Hash, text: str) -> None:
    digest.update(text.encode("utf-8", "backslashreplace"))  # a lone surrogate has no UTF-8


class _Newest(Generic[T]):
    """Caches the text of the newest value, since all agents of a table have the same one."""

    def __init__(self, encode: Callable[[T], str]) -> None:
        self._encode = encode
        self._known: tuple[T, str] | None = None
        """Replaced, never changed, since runs of several threads read it."""

    def text_of(self, value: T) -> str:
        """The value's text; recomputed only for another object than the last one."""
        known = self._known
        if known is None or known[0] is not value:
            known = self._known = value, intern(self._encode(value))
        return known[1]


def _in_json(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return "[]"
    return _encode([plain(tool) for tool in sorted(tools, key=lambda tool: tool.name)])


_TOOLS: _Newest[Sequence[ToolSpec]] = _Newest(_in_json)
_SCHEMA: _Newest[Mapping[str, Any]] = _Newest(lambda schema: _encode(plain(schema)))
