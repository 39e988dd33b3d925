"""The shape of each kind of line, checked while the JSON is read.

One compiled validator reads and checks a line in a few microseconds, so a whole file is checked
when it is opened. Unknown fields are ignored, since a later version may add some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from types import NoneType
from typing import Any

from pydantic_core import SchemaValidator, ValidationError

from agentnb.core.types import MOST, AgentStatus, Role

FORMAT, VERSION = "agentnb_cassette", 1
"""Key and value of the file's head. The version increases if older readers would misread a file."""
KINDS = ("run", "call", "tool_call", "verdict", "order", "end")
_LONGEST_S = 1e9
_Schema = dict[str, Any]

_TEXT: _Schema = {"type": "str"}
_ANY: _Schema = {"type": "any"}
_TRUTH: _Schema = {"type": "bool"}
_COUNT: _Schema = {"type": "int", "ge": 0, "le": MOST}
_NUMBER: _Schema = {"type": "int", "ge": 1, "le": 10**9}
_SECONDS: _Schema = {"type": "float", "ge": 0, "le": _LONGEST_S, "allow_inf_nan": False}
_OBJECT: _Schema = {"type": "dict", "keys_schema": _TEXT}
_LABEL: _Schema = {"type": "str", "min_length": 1, "max_length": 10_000}
_PATH: _Schema = {
    "type": "str",
    "pattern": r"^(root|[1-9][0-9]{0,8}(\.[1-9][0-9]{0,8})*)$",
    "max_length": 2_000,
}
_DAY: _Schema = {
    "type": "function-after",
    "schema": {"type": "str", "pattern": "^20[0-9]{2}-[0-9]{2}-[0-9]{2}$"},
    "function": {"type": "no-info", "function": lambda day: date.fromisoformat(day).isoformat()},
}
_KEY: _Schema = {"type": "str", "pattern": "^[0-9a-f]{64}$"}


def _list(item: _Schema, **bounds: int) -> _Schema:
    return {"type": "list", "items_schema": item, **bounds}


def _or_none(schema: _Schema) -> _Schema:
    return {"type": "nullable", "schema": schema}


def _one_of(*words: str) -> _Schema:
    return {"type": "literal", "expected": list(words)}


def _object(needed: Mapping[str, _Schema], optional: Mapping[str, _Schema]) -> _Schema:
    fields = {name: _field(schema, True) for name, schema in needed.items()}
    fields |= {name: _field(schema, False) for name, schema in optional.items()}
    return {"type": "typed-dict", "fields": fields, "extra_behavior": "ignore"}


def _field(schema: _Schema, required: bool) -> _Schema:
    return {"type": "typed-dict-field", "schema": schema, "required": required}


def _by(discriminator: str, choices: Mapping[str, _Schema]) -> _Schema:
    return {"type": "tagged-union", "discriminator": discriminator, "choices": choices}


_MEDIA = _object({"kind": _TEXT, "media_type": _TEXT, "data": _TEXT}, {"name": _TEXT})
_BLOCK = _by(
    "kind",
    {
        "text_block": _object({"kind": _TEXT, "text": _TEXT}, {"extra": _OBJECT}),
        "thinking_block": _object(
            {"kind": _TEXT, "text": _TEXT},
            {"signature": _TEXT, "redacted_data": _or_none(_TEXT), "extra": _OBJECT},
        ),
        "tool_use_block": _object(
            {"kind": _TEXT, "id": _TEXT, "name": _TEXT, "input": _OBJECT}, {"extra": _OBJECT}
        ),
        "tool_result_block": _object(
            {"kind": _TEXT, "tool_use_id": _TEXT, "text": _TEXT}, {"is_error": _TRUTH}
        ),
        "media_block": _MEDIA,
        "opaque_block": _object({"kind": _TEXT, "api": _TEXT, "data": _OBJECT}, {}),
    },
)
_MESSAGE = _object(
    {
        "role": _one_of(*(role.value for role in Role)),
        "content": {"type": "union", "mode": "left_to_right", "choices": [_TEXT, _list(_BLOCK)]},
    },
    {},
)
_REPLY_OF_LAST: _Schema = _one_of("reply")
_TOOL = _object({"name": _TEXT, "description": _TEXT, "input_schema": _OBJECT}, {})
_REQUEST = _object(
    {
        "new": _list({
            "type": "union",
            "mode": "left_to_right",
            "choices": [_REPLY_OF_LAST, _MESSAGE],
        }),
        "max_tokens": _COUNT,
    },
    {
        "after": {"type": "str", "pattern": "^[1-9][0-9]{0,8}:[0-9a-f]{12}$"},
        "kept": _COUNT,
        "model": _TEXT,
        "system": _TEXT,
        "tools": _list(_TOOL),
        "extra": _OBJECT,
        "output_schema": _or_none(_OBJECT),
    },
)  # fmt: skip
_ERROR = _object(
    {
        "class": _TEXT,
        "message": _TEXT,
        "retryable": _TRUTH,
        "retry_after_s": _or_none({
            "type": "union",
            "mode": "left_to_right",
            "choices": [{"type": "float"}, _one_of("inf", "-inf", "nan")],
        }),
        "status": _or_none({"type": "int"}),
    },
    {"permanent": _TRUTH, "base": _or_none(_TEXT), "words": _or_none(_TEXT)},
)  # fmt: skip
_TIMED = {"at_s": _SECONDS, "duration_ms": _COUNT}
_TAIL: dict[str, _Schema] = {
    "unused": _TRUTH,
    "recording": {"type": "str", "min_length": 1, "max_length": 64},
    "mode": _one_of("record", "auto"),
}
_RUN_AND = {"kind": _TEXT, "run": _LABEL}
_PLACE = {**_RUN_AND, "path": _PATH, "number": _NUMBER}

_LINES: dict[str, _Schema] = {
    "run": _object(
        {**_RUN_AND, "task": _TEXT, "model": _TEXT},
        {
            "name": _TEXT,
            "tags": _list(_TEXT),
            "budget": _COUNT,
            "depth": {"type": "int", "ge": 0, "le": 10**9},
            "first_child": {"type": "int", "ge": 0, "le": 10**9},
            "date": _DAY,
            "settings": _OBJECT,
            **_TAIL,
        },
    ),
    "call": _object(
        {**_PLACE, "model": _TEXT, "key": _KEY, "request": _REQUEST, **_TIMED},
        {
            "attempt": _NUMBER,
            "is_synthesis": _TRUTH,
            "reply": _MESSAGE,
            "text": _TEXT,
            "stop_reason": _TEXT,
            "usage": _list(_COUNT, min_length=4, max_length=4),
            "error": _ERROR,
            "estimate_error": {"type": "int", "ge": -MOST, "le": MOST},
            "not_closed": _TEXT,
            "piece_lengths": _list(_COUNT),
            "piece_ms": _list(_COUNT),
            **_TAIL,
        },
    ),
    "tool_call": _object(
        {
            **_PLACE,
            "name": _TEXT,
            "id": _TEXT,
            "input": _OBJECT,
            "result": _TEXT,
            **_TIMED,
        },
        {
            "is_error": _TRUTH,
            "effects": _TRUTH,
            "ended": _COUNT,
            "media": _list(_MEDIA),
            "unseen": _list(_NUMBER),
            **_TAIL,
        },
    ),
    "verdict": _object({**_PLACE, "what": _TEXT, "value": _ANY}, _TAIL),
    "order": _object(
        {
            **_RUN_AND,
            "path": _PATH,
            "number": {"type": "int", "ge": 0, "le": 10**9},
            "what": _one_of("cancel", "budget", "answer", "pause", "resume", "tell"),
            "by": _TEXT,
            "at_s": _SECONDS,
            "value": _ANY,
        },
        _TAIL,
    ),
    "end": _object(
        {
            **_RUN_AND,
            "path": _or_none(_PATH),
            "status": _one_of(*[status.value for status in AgentStatus if status.is_terminal]),
            "text": _TEXT,
            "at_s": _SECONDS,
            "duration_ms": _COUNT,
            "tokens_used": _COUNT,
        },
        {"error": _TEXT, "cut": _TRUTH, "attempt": _NUMBER, "by": _TEXT, **_TAIL},
    ),
}
assert tuple(_LINES) == KINDS

_VALIDATOR = SchemaValidator(_by("kind", _LINES))

_VALUES: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "admitted": {"refused": list},
    "skipped": {"numbers": list, "why": str},
    "waited": {"call": int},
    "held": {"tool_call": int, "told": bool, "ended": (int, NoneType), "place": int},
    "clamped": {"call": int, "max_tokens": int, "limited_by": str},
    "halted": {"call": int, "why": str, "ended_by": str},
    "exhausted": {"call": int, "why": str, "ended_by": str},
    "fitted": {},
    "wrong_answer": {"call": int, "why": str},
    "asked": {"path": str, "number": int},
    "warned": {"decision": str, "path": str, "number": int},
    "told": {"call": int, "texts": list},
    "planned": {
        "numbers": list,
        "digest": str,
        "tokens": int,
        "cost_usd": (int, float, NoneType),
        "question": str,
        "answer": str,
        "by": str,
        "reason": str,
        "value": (int, NoneType),
    },
    "sampled": {
        "numbers": list,
        "about": dict,
        "question": str,
        "answer": str,
        "by": str,
        "reason": str,
    },
    "reused": {"key": str, "run": str, "text": str},
    "approved": {
        "tool_call": int,
        "digest": str,
        "question": str,
        "answer": str,
        "by": str,
        "reason": str,
        "value": (dict, NoneType),
        "ended": int,
        "place": int,
    },
    "lost": {"number": int, "tokens": int},
}
"""By the verdict's kind: what a replay reads of the verdict's value. `recalled` is a list."""


def read_line(line: bytes, *, checks_values: bool = True) -> dict[str, Any]:
    """One line as a plain value.

    Args:
        line: The line.
        checks_values: Whether to check also what a replay reads of verdicts and orders.

    Raises:
        ValueError: It is not a line of a cassette; the message is a clause.
    """
    try:
        fields: dict[str, Any] = _VALIDATOR.validate_json(line, strict=True)
    except ValidationError as error:
        raise ValueError(_why(error)) from None
    if fields["kind"] == "call":
        _make_one_piece(fields)
        _check_call(fields)
    elif checks_values and "value" in fields:
        _check_value(fields["kind"], fields["what"], fields["value"])
    return fields


def can_be_read(fields: Mapping[str, Any]) -> bool:
    """Whether a line with these values can be read. Faster than writing and reading it.

    Assumes that the lengths and times of pieces are lists of whole numbers, as the encoder makes
    them. `False` may also mean that this is unknown; then `read_line` decides.
    """
    rest = dict(fields)
    for name in ("piece_lengths", "piece_ms"):  # our own whole numbers, and most of the values
        numbers = rest.pop(name, None)
        if numbers and not 0 <= min(numbers) <= max(numbers) <= MOST:
            return False
    if not _VALIDATOR.isinstance_python(rest, strict=True):
        return False
    try:
        if fields["kind"] == "call":
            _check_call(fields)
    except ValueError:
        return False
    return True


def _why(error: ValidationError) -> str:
    """The error in words, without the wrong value, which may be a whole prompt."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    deepest = max(found, key=lambda each: len(each["loc"]))  # a union reports several errors
    words, kind = deepest["msg"], deepest["type"]
    if kind == "json_invalid":
        return f"it is not JSON ({words.removeprefix('Invalid JSON: ')})"
    # The first part is the kind of the line; names of types do not occur in the line.
    place = ".".join(str(part) for part in deepest["loc"][1:] if not _IS_TYPE.match(str(part)))
    if kind == "missing":
        return f"`{place}` is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return f"the `kind` {f'of `{place}` ' if place else ''}is unknown"
    return f"`{place}`: {words[:1].lower()}{words[1:]}" if place else "it is not an object"


_IS_TYPE = re.compile(r"typed-dict$|str$|literal\[|list\[|nullable|tagged-union|union|.*_block$")


def _make_one_piece(fields: dict[str, Any]) -> None:
    """Make one piece of an answer that a person edited: its pieces are of the text before."""
    lengths, times, text = fields.get("piece_lengths"), fields.get("piece_ms"), text_of(fields)
    if lengths and times and sum(lengths) != len(text):
        fields["piece_lengths"] = [len(text)] if text else []
        fields["piece_ms"] = times[-1:] if text else []


def _check_call(fields: Mapping[str, Any]) -> None:
    lengths, times = fields.get("piece_lengths", ()), fields.get("piece_ms", ())
    if len(lengths) != len(times):
        raise ValueError("`piece_lengths` and `piece_ms` differ in length")
    request = fields["request"]
    if "after" not in request and (request.get("kept") or "reply" in request["new"]):
        raise ValueError("`request` keeps messages without saying `after` which call")
    if "after" in request and int(request["after"].partition(":")[0]) >= fields["number"]:
        raise ValueError("`request.after` is not an earlier call")
    if "after" not in request and "system" not in request:
        raise ValueError("`request.system` is missing")


def text_of(fields: Mapping[str, Any]) -> str:
    """The text of a call's reply as it arrived."""
    if "text" in fields:
        return fields["text"]  # type: ignore[no-any-return]
    content = fields["reply"]["content"] if "reply" in fields else ""
    if isinstance(content, str):
        return content
    return "".join([block["text"] for block in content if block["kind"] == "text_block"])


def _check_value(kind: str, what: str, value: Any) -> None:
    if kind == "order":
        is_right = {
            "cancel": isinstance(value, dict) and {"agent", "reason"} <= value.keys(),
            "budget": type(value) is int,
            "answer": isinstance(value, str) or (isinstance(value, dict) and "answer" in value),
            "tell": isinstance(value, dict) and _are_texts(value, "agent", "text"),
            "pause": isinstance(value, dict) and "agent" in value,
            "resume": isinstance(value, dict) and "agent" in value,
        }[what]
        if not is_right:
            raise ValueError(f"`value` does not fit an order of this kind ({what})")
        return
    if what == "recalled" and not isinstance(value, list):
        raise ValueError("`value` is not a list")
    needed = _VALUES.get(what)
    if needed is None or (what == "fitted" and value is None):
        return
    if not isinstance(value, dict):
        raise ValueError("`value` is not an object")
    for name, kinds in needed.items():
        if name not in value or not isinstance(value[name], kinds):
            raise ValueError(f"`value.{name}` is missing, or of another type")
    if what == "held" and not _is_place(value.get("wait", {"ended": 0, "place": 0})):
        raise ValueError("`value.wait` is not a place: `ended` and `place`, both numbers")
    if what == "told" and not _are_notes(value.get("notes", [])):
        raise ValueError("`value.notes` is not a list of notes, each a `text` and a `by`")


def _is_place(value: Any) -> bool:
    return isinstance(value, dict) and all(
        type(value.get(name)) is int for name in ("ended", "place")
    )


def _are_notes(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and _are_texts(each, "text", "by") for each in value
    )


def _are_texts(value: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(value.get(name), str) for name in names)
