"""Puts together the fields of a streamed reply that we do not know, to send them back unchanged.

Servers add fields of their own and want them back, as OpenRouter its `reasoning_details`. In a
stream they come in pieces: texts are joined, objects merged, lists appended to. An entry of a list
with the `index` and `type` of the one before it continues that one, as OpenRouter's do. Any other
value replaces the one before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from agentnb.core.budget import size_in_bytes
from agentnb.providers.json_values import without_surrogates
from agentnb.providers.limits import MOST_IN_EVENT, MOST_PARTS, TooLarge

_WHOLE = frozenset({"format", "id", "index", "name", "type"})
"""Fields that are repeated with each piece of an object, and never come in pieces."""


class _Text:
    """A text in pieces: joined once, however many there are."""

    def __init__(self, piece: str) -> None:
        self.pieces = [piece]


class KeptFields:
    """The unknown fields of one object.

    Args:
        known: The names of the fields that are read elsewhere, or are not to go back.
    """

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self._fields: dict[str, Any] = {}
        self._size = self._parts = 0

    def keep(self, raw: Mapping[str, Any]) -> None:
        """Add one piece of the object. What is null is left out.

        Raises:
            TooLarge: The fields have more than `MOST_PARTS` parts or `MOST_IN_EVENT` bytes.
        """
        if self._known.issuperset(raw):
            return
        new = {n: v for n, v in raw.items() if n not in self._known and v is not None}
        if new:
            self._size += size_in_bytes(json.dumps(new))
            if self._size > MOST_IN_EVENT:
                raise TooLarge("unknown fields of a reply", MOST_IN_EVENT)
            self._merge(self._fields, new)

    def whole(self) -> dict[str, Any]:
        """The fields with their whole values."""
        fields: dict[str, Any] = without_surrogates(_plain(self._fields))
        return fields

    def _merge(self, old: dict[str, Any], new: Mapping[str, Any]) -> None:
        for name, value in new.items():
            old[name] = self._joined(name, old.get(name), value)

    def _joined(self, name: str, old: Any, new: Any) -> Any:
        match old, new:
            case _, None:
                return old
            case _Text(), str() if name not in _WHOLE:
                old.pieces.append(new)
                return old
            case dict(), Mapping():
                self._merge(old, new)
                return old
            case list(), list():
                for item in new:
                    self._append(old, item)
                return old
        return self._begun(new)

    def _begun(self, new: Any) -> Any:
        """A value that may grow."""
        if isinstance(new, str):
            return _Text(new)
        if not isinstance(new, Mapping | list):
            return new
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise TooLarge("unknown fields of a reply", MOST_PARTS, "parts")
        if isinstance(new, Mapping):
            begun: dict[str, Any] = {}
            self._merge(begun, new)
            return begun
        items: list[Any] = []
        for item in new:
            self._append(items, item)
        return items

    def _append(self, items: list[Any], new: Any) -> None:
        last = items[-1] if items else None
        if isinstance(last, dict) and isinstance(new, Mapping) and _continues(last, new):
            self._merge(last, new)
        else:
            items.append(self._begun(new))


def _continues(last: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether an entry of a list is a further piece of the last one."""
    if new.get("index") is None or new["index"] != last.get("index"):
        return False
    return new.get("type") in (None, _plain(last.get("type")))


def _plain(value: Any) -> Any:
    match value:
        case _Text():
            return "".join(value.pieces)
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):  # it cannot be sent
            return None
    return value
