"""Why a call has no record: the nearest recorded call, and the differences. Pure.

The work is bounded: only calls at the same path are compared whole, all others by the beginning of
what was new in them; and of long texts, only the part that differs is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentnb.cassette.cassette import Cassette
from agentnb.cassette.decode import request_of
from agentnb.cassette.lines import Line, encode_json
from agentnb.cassette.unused import newest_text
from agentnb.cassette.words import word_difference
from agentnb.core.codec import plain
from agentnb.core.collector import without_collector
from agentnb.core.media import media_words
from agentnb.core.secrets import known_secrets
from agentnb.core.text import literal, sendable, visible
from agentnb.core.types import (
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    user_message,
)

_WIDEST = 100
"""Most characters of a line of the text."""
_MOST_SHOWN = 4
"""Most differences that the text shows."""
_MOST_COMPARED = 50
"""Most calls of the same path that are compared whole."""
_BEGINNING = 300
"""Leading characters of a message by which the calls of other agents are compared."""
_ALIKE = 0.5
"""Least part of the words that a call of another run has in common to be shown as the nearest."""
_WORD = re.compile(r"\w+")
_NO_WORD = {code: " " for code in range(128) if not _WORD.match(chr(code))}


@dataclass(frozen=True, slots=True)
class Difference:
    """One part of a request that differs from the recorded one."""

    part: str
    """`model`, `system`, `tools`, `message 2`, `extra`, `output_schema`, `max_tokens`."""
    role: str
    """The author of a message; else empty."""
    words: str
    """What differs, as `a few words [-recorded-]{+now+} around it`, on one line. Secrets are masked
    and control characters visible."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A call that a cassette does not have."""

    source: str
    """The cassette."""
    label: str
    """The run's label; the next two are the agent's path and the call's number."""
    path: str
    number: int
    model: str
    key: str
    has_run: bool
    """Whether the cassette has a run of this label."""
    nearest: tuple[str, int] | None
    """Path and number of the nearest recorded call; `None` if the run has none."""
    line: int | None
    """Line number of that call in the file, from 1."""
    differences: tuple[Difference, ...]
    """The differences; empty without a nearest call, or if that call is equal."""
    elsewhere: str = ""
    """The run of the nearest call, if it is another one: it has this very call, or there is no run
    of this label; else empty."""
    advice: str = ""
    """What to do: how to record it, or what the author of a lesson says instead."""

    def __str__(self) -> str:
        """At most 15 lines of at most 100 characters."""
        return "\n".join(_wrapped([*_story(self), self.advice]))


def explain(
    cassette: Cassette,
    label: str,
    path: str,
    number: int,
    request: CompletionRequest,
    *,
    model: str,
    key: str,
    advice: str = "",
) -> Miss:
    """Describe the recorded call nearest to an unrecorded one, and the differences.

    Args:
        cassette: The cassette.
        label: The run's label.
        path: The agent's path.
        number: The call's number among the agent's calls.
        request: The call.
        model: `provider/model`.
        key: The call's key.
        advice: What to do; by default how to record it.
    """
    with without_collector():  # makes a set of words for each of perhaps thousands of calls
        near = _nearest_of_all(cassette, label, path, number, request, model, key)
    return Miss(
        str(cassette.path),
        label,
        path,
        number,
        model,
        key,
        label in cassette,
        None if near is None else (near.fields["path"], near.fields["number"]),
        None if near is None else near.place or None,
        () if near is None else tuple(_differences(near, request, model)),
        "" if near is None or near.label == label else near.label,
        advice or how_to_record(str(cassette.path)),
    )


def how_to_record(source: str) -> str:
    """The command that records what is missing."""
    return f"To add it to {_name(source)}: `%agentnb mode auto`, or set AGENTNB_MODE=auto."


# -- which one ------------------------------------------------------------------------------------


def _nearest_of_all(
    cassette: Cassette,
    label: str,
    path: str,
    number: int,
    request: CompletionRequest,
    model: str,
    key: str,
) -> Line | None:
    """The nearest call: of another run only the very same, or if there is no run of this label."""
    calls = [line for lines in cassette.lines.values() for line in lines if line.kind == "call"]
    own = [line for line in calls if line.label == label]
    if not any(line.fields["key"] == key for line in own):
        for line in calls:
            if line.fields["key"] == key:
                return line
    if label in cassette:
        return _nearest(own, path, number, request, model)
    place = path, number
    there = [line for line in calls if (line.fields["path"], line.fields["number"]) == place]
    return _most_alike(there, request, least=_ALIKE)


def _nearest(
    lines: Sequence[Line], path: str, number: int, request: CompletionRequest, model: str
) -> Line | None:
    own = [line for line in lines if line.fields["path"] == path]
    for found in ([line for line in own if line.fields["number"] == number], own):
        if found:
            found.sort(key=lambda line: abs(line.fields["number"] - number))
            return min(
                found[:_MOST_COMPARED],
                key=lambda line: (_distance(line, request, model), line.is_unused),
            )
    return _most_alike(lines, request)


def _most_alike(
    lines: Sequence[Line], request: CompletionRequest, *, least: float = 0.0
) -> Line | None:
    asked = _words_of(_newest_of(request))
    alike = [_likeness(asked, _words_of(newest_text(line))) for line in lines]
    most = max(alike, default=-1.0)
    return lines[alike.index(most)] if most >= least else None


def _distance(line: Line, request: CompletionRequest, model: str) -> tuple[float, ...]:
    """The distance of a recorded call: parts and messages that differ, then unlikeness of words."""
    recorded = request_of(line)
    parts = (line.fields["model"] != model) + (recorded.system != request.system)
    parts += recorded.tools != request.tools
    pairs = zip(recorded.messages, request.messages, strict=False)
    same = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
    longer = max(len(recorded.messages), len(request.messages))
    if same is None:
        same = min(len(recorded.messages), len(request.messages))
    likeness = _likeness(_words_of(_newest_of(recorded)), _words_of(_newest_of(request)))
    return parts, longer - same, 1 - likeness


def _newest_of(request: CompletionRequest) -> str:
    return _text_of(request.messages[-1]) if request.messages else ""


def _words_of(text: str) -> frozenset[str]:
    beginning = text[:_BEGINNING]
    if beginning.isascii():  # five times as fast, and there may be thousands of texts
        return frozenset(beginning.translate(_NO_WORD).split())
    return frozenset(_WORD.findall(beginning))


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / (len(one | other) or 1)


# -- what differs ---------------------------------------------------------------------------------


def _differences(line: Line, request: CompletionRequest, model: str) -> Iterator[Difference]:
    mask = known_secrets().mask  # the recorded texts are masked, too

    def differs(part: str, one: str, other: str, role: str = "") -> Iterator[Difference]:
        other = mask(other)
        if one != other:
            yield Difference(part, role, word_difference(one, other))

    recorded = request_of(line)
    yield from differs("model", line.fields["model"], model)
    yield from differs("system", recorded.system, request.system)
    yield from differs("tools", _tools_in_words(recorded.tools), _tools_in_words(request.tools))
    for place in range(max(len(recorded.messages), len(request.messages))):
        one, other = _at(recorded, place), _at(request, place)
        if one is other or one == other:
            continue
        message = other or one or user_message("")
        texts = "" if one is None else _text_of(one), "" if other is None else _text_of(other)
        yield from differs(f"message {place + 1}", *texts, message.role.value)
    yield from differs("extra", _as_json(recorded.extra), _as_json(request.extra))
    schemas = _as_json(recorded.output_schema), _as_json(request.output_schema)
    yield from differs("output_schema", *schemas)
    if line.fields.get("stop_reason") == "max_tokens":
        yield from differs("max_tokens", str(recorded.max_tokens), str(request.max_tokens))


def _at(request: CompletionRequest, place: int) -> Message | None:
    return request.messages[place] if place < len(request.messages) else None


def _as_json(value: Any) -> str:
    return encode_json(plain(value, sendable)) if value else ""


def _tools_in_words(tools: Sequence[ToolSpec]) -> str:
    """The tools as text, in order of name, since their order does not count."""
    ordered = sorted(tools, key=lambda tool: tool.name)
    return " ".join([f"{t.name}: {t.description} {_as_json(t.input_schema)}" for t in ordered])


def _text_of(message: Message) -> str:
    """Everything that a model reads of a message, as text. Ids do not count."""
    said: list[str] = []
    for block in message.content:
        match block:
            case TextBlock(text):
                said.append(text)
            case ThinkingBlock(text):
                said.append(f"(thinking) {text}")
            case OpaqueBlock(data=data):
                said.append(f"(kept for the API) {_as_json(data)}")
            case ToolUseBlock(name=name, input=given):
                said.append(f"{name}({_as_json(given)})")
            case ToolResultBlock(text=text, is_error=is_error):
                said.append(f"(error) {text}" if is_error else text)
            case MediaBlock():  # with the digest: two files may have the same name and size
                said.append(f"{media_words(block)} {block.digest[:12]}")
    return "\n".join(said)


# -- in words -------------------------------------------------------------------------------------


def _name(source: str) -> str:
    return literal(re.split(r"[/\\]", source)[-1], 60)


def _who(path: str) -> str:
    return "the root" if path == "root" else f"agent {visible(path, 40)}"


def _story(miss: Miss) -> Iterator[str]:
    yield (
        f"Call {miss.number} of {_who(miss.path)} was not recorded: run {literal(miss.label, 40)}, "
        f"model {visible(miss.model, 60)}."
    )
    if not miss.has_run:
        yield f"{_name(miss.source)} has no run of this name."
    if miss.nearest is None:
        if miss.has_run:
            yield f"{_name(miss.source)} has no call of this run."
        return
    path, number = miss.nearest
    where = f", line {miss.line:,} of {_name(miss.source)}" if miss.line else ""
    if miss.elsewhere and not miss.differences:
        yield f"The same request is recorded under {literal(miss.elsewhere, 40)}{where}."
        yield "A run is found by its name, else by its task: give it the name it was recorded with."
        return
    if miss.elsewhere:
        where = f" in run {literal(miss.elsewhere, 40)}{where}"
    if not miss.differences:
        yield f"The same request is call {number} of {_who(path)}{where}, which is already used."
        return
    yield f"The nearest is call {number} of {_who(path)}{where}. It differs in:"
    for each in miss.differences[:_MOST_SHOWN]:
        role = f" ({each.role})" if each.role else ""
        yield f"  {each.part}{role}: {each.words}"
    if (more := len(miss.differences) - _MOST_SHOWN) > 0:
        yield f"  and {more} more"


def _wrapped(lines: Sequence[str]) -> Iterator[str]:
    """The lines wrapped at `_WIDEST` characters; each becomes at most two lines."""
    for line in lines:
        if len(line) <= _WIDEST:
            yield line
            continue
        at = line.rfind(" ", 1, _WIDEST)
        at = _WIDEST if at < _WIDEST // 2 else at
        yield line[:at]
        yield "    " + visible(line[at:], _WIDEST - 4)
