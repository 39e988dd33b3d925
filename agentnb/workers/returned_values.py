"""Makes plain values and arrays from a worker's file. See `returned`."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import importlib
import importlib.machinery
import math
import re
import site
import sys
import sysconfig
import uuid
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

_MOST_DIGITS = 10_000
_MOST_DIMENSIONS = 32
_NUMBERS = re.compile(
    r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|[SU][1-9][0-9]{0,7}|[mM]8(\[[0-9a-zA-Zμ]{1,8}\])?)"
)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,3}")


class NotReadable(Exception):
    """A node of which no value can be made; its text is the reason."""


class Source(Protocol):
    """What the makers use of `returned.Reader`."""

    def value(self, node: Any) -> Any:
        """The value of a node."""
        ...

    def buffer(self, number: Any) -> memoryview:
        """A buffer of the file."""
        ...

    def check_time(self) -> None:
        """Raises `NotReadable` when the time is over."""
        ...


Maker = Callable[[Any, dict[str, Any]], Any]
"""Makes a value, with the source and the node."""


def text_in(node: Mapping[str, Any], key: str, *, most: int = 1_000) -> str:
    """A text of a node."""
    found = node.get(key)
    if type(found) is not str or len(found) > most:
        raise NotReadable(f"its `{key}` is not a text")
    return found


def list_in(node: Mapping[str, Any], key: str) -> list[Any]:
    """A list of a node."""
    found = node.get(key)
    if type(found) is not list:
        raise NotReadable(f"its `{key}` is not a list")
    return found


def number_in(node: Mapping[str, Any], key: str) -> int:
    """A whole number of a node, of 64 bits."""
    found = node.get(key)
    if type(found) is not int or not -(2**63) <= found < 2**63:
        raise NotReadable(f"its `{key}` is not a number")
    return found


def array_in(source: Source, node: Any, *, kinds: str = "biufcmMSU", dimensions: int = 1) -> Any:
    """An array of a node, of one of some kinds of type."""
    np = library("numpy")
    found = source.value(node)
    if type(found) is not np.ndarray or found.dtype.kind not in kinds or found.ndim != dimensions:
        raise NotReadable("a part of it is not an array of the right kind")
    return found


def library(name: str) -> Any:
    """A library that this process has imported, or has installed.

    Never one that merely lies in the working folder or elsewhere on the path: the worker runs
    there, and may have written it.

    Raises:
        NotReadable: It is not installed.
    """
    if name in sys.modules:
        return sys.modules[name]
    top = name.partition(".")[0]
    if top not in sys.modules:
        spec = importlib.machinery.PathFinder.find_spec(top)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin is None or not any(origin.is_relative_to(each) for each in _installed()):
            raise NotReadable(f"`{top}` is not installed here")
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotReadable(f"`{name}` cannot be imported here") from None


@cache
def _installed() -> Sequence[Path]:
    paths = {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("platlib")}
    return [Path(each).resolve() for each in paths if each]


def check_hashable(source: Source, values: Any) -> None:
    """Raise `NotReadable` if values are built so that hashing them would take for ever."""
    if getattr(values.dtype, "kind", "O") == "O":
        _set(source, values.tolist())


def _set(source: Source, values: list[Any]) -> set[Any]:
    """A set of values, in bounded time: many values may have been chosen to have one hash."""
    made = set()
    for i, value in enumerate(values):
        if i % 64 == 0:
            source.check_time()
        made.add(value)
    return made


def zone_of(zone: Any) -> datetime.tzinfo:
    """A time zone by its name or its offset in seconds. The name is looked up, never opened."""
    if type(zone) in (int, float) and math.isfinite(zone) and abs(zone) < 86_400:
        return datetime.timezone(datetime.timedelta(seconds=zone))
    if type(zone) is str and len(zone) < 60 and _ZONE.fullmatch(zone):
        try:
            return zoneinfo.ZoneInfo(zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            pass
    raise NotReadable(f"its time zone {str(zone)[:60]!r} is not known")


def _integer(source: Source, node: dict[str, Any]) -> int:
    return int(text_in(node, "v", most=_MOST_DIGITS), 16)


def _float(source: Source, node: dict[str, Any]) -> float:
    return float(text_in(node, "v", most=40))


def _complex(source: Source, node: dict[str, Any]) -> complex:
    real, imaginary = list_in(node, "v")
    return complex(float(real), float(imaginary))


def _text(source: Source, node: dict[str, Any]) -> str:
    return str(source.buffer(node.get("b")), "utf-8", "replace")


def _slice(source: Source, node: dict[str, Any]) -> slice:
    start, stop, step = (source.value(each) for each in list_in(node, "v"))
    return slice(start, stop, step)


def _many(make: Callable[[list[Any]], Any]) -> Maker:
    return lambda source, node: make([source.value(each) for each in list_in(node, "v")])


def _mapping(make: Callable[[], Any]) -> Maker:
    def mapping(source: Source, node: dict[str, Any]) -> Any:
        keys, values = list_in(node, "k"), list_in(node, "v")
        if len(keys) != len(values):
            raise NotReadable("it has not as many values as keys")
        made = make()
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            if i % 64 == 0:
                source.check_time()  # see `_set`
            made[source.value(key)] = source.value(value)
        return made

    return mapping


def _datetime(source: Source, node: dict[str, Any]) -> datetime.datetime:
    made = datetime.datetime.fromisoformat(text_in(node, "v", most=60))
    if "zone" not in node:
        return made.replace(tzinfo=None)
    return made.replace(tzinfo=zone_of(node["zone"]), fold=1 if node.get("fold") == 1 else 0)


def _timedelta(source: Source, node: dict[str, Any]) -> datetime.timedelta:
    days, seconds, microseconds = list_in(node, "v")
    return datetime.timedelta(days=days, seconds=seconds, microseconds=microseconds)


def _fraction(source: Source, node: dict[str, Any]) -> fractions.Fraction:
    said = text_in(node, "v", most=_MOST_DIGITS)
    if not re.fullmatch(r"-?[0-9]+(/[0-9]+)?", said):  # `1e999999999` would fill the memory
        raise NotReadable("it is not a fraction")
    return fractions.Fraction(said)


def _decimal(source: Source, node: dict[str, Any]) -> decimal.Decimal:
    return decimal.Decimal(text_in(node, "v", most=_MOST_DIGITS))


# -- numpy -----------------------------------------------------------------------------------------


def _array(source: Source, node: dict[str, Any]) -> Any:
    np = library("numpy")
    name = text_in(node, "d", most=30)
    if not _NUMBERS.fullmatch(name):
        raise NotReadable(f"an array of {name!r} cannot come back")
    dtype, shape = np.dtype(name), _shape(node)
    buffer = source.buffer(node.get("b"))
    if len(buffer) != math.prod(shape) * dtype.itemsize:
        raise NotReadable(f"its shape {shape} does not fit its {len(buffer):,} bytes")
    if dtype.kind == "b":  # a truth value other than 0 and 1 would be neither
        return (np.frombuffer(buffer, "u1") != 0).reshape(shape)
    return np.frombuffer(buffer, dtype).reshape(shape)


def _objects(source: Source, node: dict[str, Any]) -> Any:
    np = library("numpy")
    shape, items = _shape(node), list_in(node, "v")
    if len(items) != math.prod(shape):
        raise NotReadable(f"its shape {shape} does not fit its {len(items):,} values")
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = source.value(item)
    return made.reshape(shape)


def _scalar(source: Source, node: dict[str, Any]) -> Any:
    return array_in(source, node.get("v"), dimensions=0)[()]


def _texts(source: Source, node: dict[str, Any]) -> Any:
    """A column of texts. A length below zero stands for a missing one."""
    np = library("numpy")
    lengths = np.frombuffer(source.buffer(node.get("l")), "<i8")
    content = source.buffer(node.get("b"))
    if len(lengths) != number_in(node, "n") or lengths.min(initial=0) < -3:
        raise NotReadable("its lengths are wrong")
    if lengths.max(initial=0) > len(content) or int(lengths.clip(0).sum()) != len(content):
        raise NotReadable("its lengths are wrong")
    made, at = np.empty(len(lengths), object), 0
    for i, length in enumerate(lengths.tolist()):
        if i % 65_536 == 0:
            source.check_time()
        if length >= 0:
            made[i] = str(content[at : at + length], "utf-8", "replace")
            at += length
        else:
            made[i] = _missing(source, {"v": ("None", "nan", "NA")[-length - 1]})
    return made


def _missing(source: Source, node: dict[str, Any]) -> Any:
    if (kind := node.get("v")) in ("NA", "NaT"):
        pandas = library("pandas")
        return pandas.NA if kind == "NA" else pandas.NaT
    return math.nan if kind == "nan" else None


def _shape(node: dict[str, Any]) -> tuple[int, ...]:
    shape = list_in(node, "s")
    if len(shape) > _MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise NotReadable("it has no shape")
    if any(n >= 2**63 for n in shape):
        raise NotReadable("it has no shape")
    return tuple(shape)


VALUES: Mapping[str, Maker] = {
    "int": _integer,
    "float": _float,
    "complex": _complex,
    "text": _text,
    "slice": _slice,
    "bytes": lambda source, node: bytes(source.buffer(node.get("b"))),
    "bytearray": lambda source, node: bytearray(source.buffer(node.get("b"))),
    "list": _many(list),
    "tuple": _many(tuple),
    "set": lambda source, node: _set(source, _many(list)(source, node)),
    "frozenset": lambda source, node: frozenset(_set(source, _many(list)(source, node))),
    "deque": _many(collections.deque),
    "dict": _mapping(dict),
    "OrderedDict": _mapping(collections.OrderedDict),
    "Counter": _mapping(collections.Counter),
    "date": lambda _, node: datetime.date.fromisoformat(text_in(node, "v", most=40)),
    "datetime": _datetime,
    "timedelta": _timedelta,
    "Decimal": _decimal,
    "Fraction": _fraction,
    "UUID": lambda _, node: uuid.UUID(text_in(node, "v", most=60)),
    "array": _array,
    "objects": _objects,
    "scalar": _scalar,
    "texts": _texts,
    "missing": _missing,
}
