"""Events as plain JSON values, and back.

Both directions are derived from the dataclasses' fields, so a new event or field needs nothing
here. For a union of classes `kind` selects one: an event's own `kind`, and for the blocks of a
message the snake_case of their class name. JSON values come back equal. Other values in a field of
any type (a tool's input, a provider's extra fields) are written as text, so writing never fails.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from agentnb.core import events, types
from agentnb.core.events import Event, ModelCallStarted, Row
from agentnb.core.secrets import Secrets
from agentnb.core.text import literal
from agentnb.core.types import DEEPEST, MOST_BITS

_Reader = Callable[[Any], Any]
"""Makes a value of one type from plain JSON values; raises `ValueError` if it cannot."""

_SPECIAL_FLOATS = ("nan", "inf", "-inf")
_OURS = (events.__name__, types.__name__)


# -- to plain values ------------------------------------------------------------------------------


_Text = Callable[[str], str]


def plain(value: Any, text: _Text = str) -> Any:
    """`value` as dicts with text keys, lists, texts, numbers, booleans and `None`. Never raises.

    An event becomes `{"kind": …}` with its fields. Numbers that JSON does not have (NaN, infinity,
    integers of more than 600 digits) become text, and so does what is nested too deep or in itself.

    Args:
        value: An event, or any part of one.
        text: Applied to each text except agentnb's own names.
    """
    return _plain(value, set(), text)


def _plain(value: Any, inside: set[int], text: _Text) -> Any:
    if value is None or isinstance(value, bool):
        return value
    # A subclass (an enum, a number of another library) becomes its plain value.
    if isinstance(value, str):
        own = str.__str__(value)
        return own if isinstance(value, Enum) else text(own)
    if isinstance(value, int):
        return int.__int__(value) if int.bit_length(value) <= MOST_BITS else hex(value)
    if isinstance(value, float):
        return float.__float__(value) if math.isfinite(value) else float.__repr__(value)
    if id(value) in inside or len(inside) >= DEEPEST:
        return text(_text(value))
    inside.add(id(value))
    try:
        return _plain_parts(value, inside, text)
    except Exception:  # a foreign mapping that raises, for example
        return text(_text(value))
    finally:
        inside.discard(id(value))


def _plain_parts(value: Any, inside: set[int], text: _Text) -> Any:
    if isinstance(value, Mapping):
        return {text(str(key)): _plain(item, inside, text) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, inside, text) for item in value]
    cls = type(value)
    if cls is types.MediaBlock:
        # Base64 is not masked: a chance match with a secret would punch a hole into the file.
        own = str if value.is_base64 else text
        return {
            "kind": _kind_of(cls),
            "media_type": text(value.media_type),
            "data": own(value.data),
            "name": text(value.name),
        }
    if cls.__module__ in _OURS and dataclasses.is_dataclass(cls):
        fields: dict[str, Any] = {"kind": _kind_of(cls)} if cls in _tagged() else {}
        for name in _names_of(cls):
            # Blocks of older records have no `extra`: it is left out where there is none.
            if (item := getattr(value, name)) is not None or name != "extra":
                fields[name] = _plain(item, inside, text)
        return fields
    return text(_text(value))


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


# -- replies without secrets ----------------------------------------------------------------------


def rows_without_secrets(rows: Iterable[Row], secrets: Secrets) -> list[Row]:
    """The rows without secrets in replies, where one may span several rows.

    The texts of all other events stay as they are: `plain` masks them.
    """
    masked = list(rows)
    pieces: dict[str, list[int]] = {}
    for place, row in enumerate(masked):
        if len(row) == 3:
            pieces.setdefault(row[1], []).append(place)
        elif isinstance(row[1], ModelCallStarted):  # the agent's next reply begins
            _mask_at(pieces.pop(row[1].agent_id, []), masked, secrets)
    for places in pieces.values():
        _mask_at(places, masked, secrets)
    return masked


def _mask_at(places: list[int], rows: list[Row], secrets: Secrets) -> None:
    said = [rows[place][2] for place in places]  # type: ignore[misc]  # these are rows of text
    masked = secrets.mask_pieces(said)
    if masked is not said:
        for place, text in zip(places, masked, strict=True):
            rows[place] = (rows[place][0], rows[place][1], text)  # type: ignore[assignment]


# -- and back -------------------------------------------------------------------------------------


class UnknownKind(ValueError):
    """A value of a kind that this version does not know."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"the kind {literal(kind)} is not known")


def event_of(value: Any) -> Event:
    """Read an event that `plain` wrote.

    An unknown field is ignored and a missing one gets its default, so that new fields break neither
    older records nor older readers.

    Raises:
        UnknownKind: The event, or a block in it, is of a kind that only another version knows.
        ValueError: The value is not an event; the message is a clause.
    """
    return _one_of(Event)(value)  # type: ignore[no-any-return]


def message_of(parts: Mapping[str, Any], text: str = "") -> types.Message:
    """Read a message whose shape was checked.

    Args:
        parts: `role`, and `content`: a text, or a list of blocks as `plain` writes them.
        text: Of a text block without one.
    """
    content = parts["content"]
    if isinstance(content, str):
        return types.Message(types.Role(parts["role"]), (types.TextBlock(content),))
    blocks = []
    for block in content:
        fields = {"text": text} if block == _TEXT_LEFT_OUT else dict(block)
        blocks.append(_blocks()[fields.pop("kind", "text_block")](**fields))
    return types.Message(types.Role(parts["role"]), tuple(blocks))


def media_of(fields: Mapping[str, Any]) -> types.MediaBlock:
    """The block with these plain values, which are not checked."""
    return types.MediaBlock(fields["media_type"], fields["data"], fields.get("name", ""))


def media_block(value: Any) -> types.MediaBlock:
    """The block of a plain value, which is checked.

    Raises:
        ValueError: The value is not such a block; the message is a clause.
    """
    block: types.MediaBlock = _object_reader(types.MediaBlock)(value)
    return block


_TEXT_LEFT_OUT = {"kind": "text_block"}


@cache
def _blocks() -> Mapping[str, type[types.Block]]:
    return {_kind_of(cls): cls for cls in get_args(types.Block)}


@cache
def _one_of(union: Any) -> _Reader:
    """Reads a value of a union of classes, by its `kind`."""
    readers = {_kind_of(cls): _object_reader(cls) for cls in get_args(union)}

    def read(value: Any) -> Any:
        kind = _object(value).get("kind")
        if not isinstance(kind, str):
            raise ValueError("it has no `kind`")
        if kind not in readers:
            raise UnknownKind(kind)
        return readers[kind](value)

    return read


@cache
def _object_reader(cls: type) -> _Reader:
    hints = get_type_hints(cls)
    readers = {name: _reader(hints[name]) for name in _names_of(cls)}
    needed = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is field.default_factory is dataclasses.MISSING
    }

    def read(value: Any) -> Any:
        missing = needed - _object(value).keys()
        if missing:
            raise ValueError(f"`{min(missing)}` is missing")
        fields = {}
        for name, item in value.items():
            if name in readers:
                try:
                    fields[name] = readers[name](item)
                except UnknownKind:
                    raise
                except ValueError as error:
                    raise ValueError(f"`{name}`: {error}") from None
        return cls(**fields)

    return read


def _reader(hint: Any) -> _Reader:
    """The reader of one field's type."""
    arguments = get_args(hint)
    if isinstance(hint, UnionType):
        if NoneType not in arguments:
            return _one_of(hint)
        (other,) = (argument for argument in arguments if argument is not NoneType)
        read = _reader(other)
        return lambda value: None if value is None else read(value)
    if get_origin(hint) is tuple:
        read = _reader(arguments[0])
        return lambda value: tuple(read(item) for item in _list(value))
    if get_origin(hint) is Mapping:
        return _object
    if dataclasses.is_dataclass(hint):
        return _object_reader(hint)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return _SCALARS[hint]


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"it is {_named(value)} and not an object")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"it is {_named(value)} and not a list")
    return value


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"it is {_named(value)} and not a string")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"it is {_named(value)} and not true or false")
    return value


def _int(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch("-?0x[0-9a-f]+", value):
        return int(value, 16)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"it is {_named(value)} and not a whole number")
    return value


def _float(value: Any) -> float:
    if value in _SPECIAL_FLOATS:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"it is {_named(value)} and not a number")
    return value


_SCALARS: Mapping[Any, _Reader] = {
    Any: lambda value: value,
    str: _str,
    bool: _bool,
    int: _int,
    float: _float,
}


def _named(value: Any) -> str:
    """The type of a wrong value, in words; not the value, which may be a model's long text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "a string", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "an object")


# -- names of classes and fields ------------------------------------------------------------------


def _kind_of(cls: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


@cache
def _names_of(cls: type) -> tuple[str, ...]:
    """A class's fields except `kind`."""
    return tuple(field.name for field in dataclasses.fields(cls) if field.name != "kind")


@cache
def _tagged() -> frozenset[type]:
    """The classes that are written with a `kind`."""
    return frozenset((*get_args(Event), *get_args(types.Block)))
