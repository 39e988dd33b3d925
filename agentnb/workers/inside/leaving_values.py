"""Plain values as nodes of the file that a worker leaves. See `leaving`."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_MOST_IN_NODE_TEXT = 1_000


class CannotLeave(Exception):
    """A value that has no form in the file; its text is the reason."""


class Writer(Protocol):
    """What makes nodes of values. See `leaving`."""

    def node(self, value: Any, depth: int = 0) -> Any:
        """The node of a value."""
        ...

    def buffer(self, content: Any) -> int:
        """Add a buffer to the file; its number."""
        ...


Maker = Callable[[Writer, Any, int], Any]
"""Makes the node of a value, whose parts are at a depth; `None` if it is not one of its own."""


def _same(writer: Writer, value: Any, depth: int) -> Any:
    return value


def _integer(writer: Writer, value: int, depth: int) -> Any:
    return value if -(2**63) <= value < 2**63 else {"t": "int", "v": hex(value)}


def _float(writer: Writer, value: float, depth: int) -> Any:
    return value if math.isfinite(value) else {"t": "float", "v": str(value)}


def _text(writer: Writer, value: str, depth: int) -> Any:
    if len(value) <= _MOST_IN_NODE_TEXT and value.isprintable():
        return value
    return {"t": "text", "b": writer.buffer(value.encode("utf-8", "surrogatepass"))}


def _bytes(writer: Writer, value: bytes | bytearray, depth: int) -> Any:
    return {"t": type(value).__name__, "b": writer.buffer(bytes(value))}


def _many(writer: Writer, value: Any, depth: int) -> Any:
    return {"t": type(value).__name__, "v": [writer.node(each, depth) for each in value]}


def _mapping(writer: Writer, value: Any, depth: int) -> Any:
    keys = [writer.node(key, depth) for key in value]
    values = [writer.node(each, depth) for each in value.values()]
    return {"t": type(value).__name__, "k": keys, "v": values}


def _said(writer: Writer, value: Any, depth: int) -> Any:
    return {"t": type(value).__name__, "v": str(value)}


def _date(writer: Writer, value: Any, depth: int) -> Any:
    if getattr(value, "tzinfo", None) is None:
        return {"t": type(value).__name__, "v": value.isoformat()}
    zone = zone_of(value.tzinfo)
    return {"t": "datetime", "v": value.isoformat(), "zone": zone, "fold": value.fold}


def _duration(writer: Writer, value: datetime.timedelta, depth: int) -> Any:
    return {"t": "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def zone_of(zone: Any) -> Any:
    """A name of the time zone data, or an offset from UTC in seconds."""
    name = getattr(zone, "key", None)
    if isinstance(name, str):
        return name
    if isinstance(zone, datetime.timezone):
        return zone.utcoffset(None).total_seconds()
    raise CannotLeave(f"its time zone is a {type(zone).__qualname__}")


VALUES: Mapping[type, Maker] = {
    type(None): _same,
    bool: _same,
    int: _integer,
    float: _float,
    str: _text,
    complex: lambda _, value, __: {"t": "complex", "v": [str(value.real), str(value.imag)]},
    slice: lambda writer, value, depth: {
        "t": "slice",
        "v": [writer.node(each, depth) for each in (value.start, value.stop, value.step)],
    },
    bytes: _bytes,
    bytearray: _bytes,
    list: _many,
    tuple: _many,
    set: _many,
    frozenset: _many,
    collections.deque: _many,
    dict: _mapping,
    collections.OrderedDict: _mapping,
    collections.Counter: _mapping,
    datetime.date: _date,
    datetime.datetime: _date,
    datetime.timedelta: _duration,
    decimal.Decimal: _said,
    fractions.Fraction: _said,
    uuid.UUID: _said,
}
