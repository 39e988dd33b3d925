"""The fields of a reply that only its server understands: put together, kept, and sent back there.

Servers add fields of their own and want them back, as OpenRouter its `reasoning_details`, LiteLLM
its `thinking_blocks` and Gemini's bridge its `extra_content`. In a stream they come in pieces:
texts are joined, objects merged, lists appended to. An entry of a list continues the one before it
if both have the same `index` and `type`; without an `index`, if nothing says that it is another:
two entries of one piece are one only if all they have are texts in pieces.
Any other value replaces the one before it. So does a text that comes whole with each piece, under a
name that is none of a text in pieces.

They are optional: a field that passes a limit is dropped, and the reply goes on. So is an object
that cannot be a further piece of the one before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentnb.core.text import literal
from agentnb.providers.json_values import without_surrogates
from agentnb.providers.limits import MOST_IN_EVENT, MOST_PARTS

if TYPE_CHECKING:
    from agentnb.providers.forms import Form

_WHOLE = frozenset(
    (
        *("format", "id", "index", "name", "type"),
        *("reasoning_opaque", "thought_signature", "tool_use_id"),
    )
)
"""Fields that never come in pieces: a further one replaces the one before."""
_OF_PIECE = "thought"
"""Gemini's bridge marks so the pieces of text that are thinking, not the whole message."""
_GROWS = frozenset(
    ("arguments", "content", "data", "reasoning", "signature", "summary", "text", "thinking")
)
"""Fields that come in pieces, of which two may be alike."""
_TEXTS = _GROWS - {"arguments"}
_SAID = _TEXTS - {"data", "signature"}
_OF_OBJECT = ("cited_text", "id", "name", "title", "tool_use_id", "type", "uri", "url")
"""Fields that differ between two objects under one name, as LiteLLM sends quotes one by one."""
_TELLS_APART = sorted(_WHOLE.union(_OF_OBJECT))
"""Fields that differ between two entries."""
_SEALED = re.compile("encrypted|redacted")
"""Types of entries that come in pieces only under an index: joined for nothing they are lost."""


_MOST_OPEN = 32
"""Entries of a list that may grow by turns."""
_DROPPED = object()
"""Stands for a field that was dropped."""


class KeptFields:
    """The unknown fields of one object.

    Args:
        known: The names of the fields that are read elsewhere, or are not to go back.
        has_pieces: Whether the entries of lists come in pieces.
    """

    def __init__(self, known: frozenset[str], *, has_pieces: bool = True) -> None:
        self._known, self._has_pieces = known, has_pieces
        self._fields: dict[str, Any] = {}
        self._run: _Run | None = None
        self._room = MOST_IN_EVENT
        """Characters that are left."""
        self._parts = MOST_PARTS
        """Objects and lists that are left."""
        self.dropped: dict[str, None] = {}
        """The names of fields that passed a limit, or of which the pieces do not fit together."""

    def keep(self, raw: Mapping[str, Any]) -> None:
        """Add one piece of the object. What is null is left out."""
        if not self._known.issuperset(raw):
            for name, value in raw.items():
                if name not in self._known:
                    self.add(name, value)

    def add(self, name: str, value: Any) -> None:
        """Add one piece of a field that is not known. Null is none."""
        left, run = (self._room, self._parts), self._run
        if run is not None and run.name == name and (size := run.takes(value)) >= 0:
            self._room -= size
        else:
            whole = self._fields[name] = self._joined(name, self._fields.get(name), value)
            self._run = _run_of(name, whole, value) if self._has_pieces else None
        if self._room < 0 or self._parts < 0:
            self._fields[name] = self._drop(name)
            self._room, self._parts = left

    def whole(self) -> dict[str, Any]:
        """The fields with their whole values."""
        if not self._fields:
            return {}
        fields: dict[str, Any] = without_surrogates(_plain(self._fields))
        return {name: value for name, value in fields.items() if value is not None}

    def _joined(self, name: str, old: Any, new: Any) -> Any:
        """A field's value with a further piece. Types are exact, since all comes from JSON."""
        if new is None or old is _DROPPED:
            return old
        if name in _WHOLE:
            return old if new == "" and old else new
        kind = type(old)
        if kind is _Text and type(new) is str:
            self._room -= old.grow(new, may_repeat=name in _GROWS and not _is_whole(name, new))
        elif kind is dict and type(new) is dict:
            if _is_another(old, new):
                return self._drop(name)
            self._merge(old, new)
        elif kind is list and type(new) is list:
            self._extend(old, new)
        else:
            return self._begun(new)
        return old

    def _drop(self, name: str) -> object:
        self.dropped[name] = self._run = None
        return _DROPPED

    def _merge(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        for key, value in new.items():
            if key != _OF_PIECE or value is not True:
                old[key] = self._joined(key, old.get(key), value)

    def _begun(self, new: Any) -> Any:
        """A value that may grow."""
        if type(new) is str:
            self._room -= len(new)
            return _Text(new)
        if type(new) not in (dict, list):
            self._room -= 1
            return new
        self._parts -= 1
        if self._parts < 0:
            return None
        if type(new) is dict:
            begun: dict[str, Any] = {}
            self._room -= sum(map(len, new))
            self._merge(begun, new)
            return begun
        items: list[Any] = []
        self._extend(items, new)
        return items

    def _extend(self, items: list[Any], piece: list[Any]) -> None:
        for at, new in enumerate(piece):
            is_entry = self._has_pieces and type(new) is dict
            last = _continued(items, new) if is_entry and (not at or _only_grows(new)) else None
            if last is not None:
                self._merge(last, new)
            else:
                items.append(self._begun(new))


class _Text:
    """A text in pieces: joined once, however many there are."""

    def __init__(self, piece: str) -> None:
        self.pieces = [piece]
        self._repeats = 0
        """How often the first piece came again, while nothing else came."""

    def grow(self, piece: str, *, may_repeat: bool) -> int:
        """Add a piece, and return how many characters that takes."""
        if not may_repeat and self._repeats >= 0 and piece == self.pieces[0]:
            self._repeats += 1
            return 0
        before = self.pieces[:1] * max(self._repeats, 0)
        self._repeats = -1
        self.pieces += [*before, piece]
        return len(piece) + sum(map(len, before))

    def __str__(self) -> str:
        return "".join(self.pieces)


class _Run:
    """Pieces of a list that differ in the further text of its last entry, and in nothing else.

    Nearly all do: one comparison tells it.
    """

    __slots__ = ("_add", "_entry", "_key", "_piece", "name")

    def __init__(self, name: str, entry: dict[str, Any], key: str, grows: _Text) -> None:
        self.name, self._entry, self._key = name, {**entry}, key
        self._piece, self._add = [self._entry], grows.pieces.append

    def takes(self, piece: Any) -> int:
        """Add a piece's text, and return its length; -1 for a piece of another kind."""
        try:
            self._entry[self._key] = text = piece[0][self._key]
        except (LookupError, TypeError):
            return -1
        if type(text) is not str or piece != self._piece:
            return -1
        self._add(text)
        return len(text)


def _run_of(name: str, items: Any, piece: Any) -> _Run | None:
    """The run that a piece begins, which was added to a list."""
    match piece:
        case [{"index": int()} as new] if type(items) is list and type(last := items[-1]) is dict:
            said = {key: value for key, value in new.items() if value not in (None, "")}
            grown = [key for key in said if key not in _WHOLE]
            is_same = all(last.get(key) == said[key] for key in said if key not in grown)
            grows = last.get(grown[0]) if is_same and len(grown) == 1 else None
            if type(grows) is _Text and grown[0] in _TEXTS:
                return _Run(name, new, grown[0], grows)
    return None


def _continued(items: list[Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """The entry of a list that another is a further piece of: the last, or that of its index."""
    index, kind, own_id = new.get("index"), new.get("type"), new.get("id")
    last = items[-1] if items else None
    if index is not None:
        for each in items[: -_MOST_OPEN - 1 : -1]:
            if type(each) is dict and each.get("index") == index:
                is_kind = kind in (None, each.get("type"))
                is_id = not own_id or each.get("id") in (None, "", own_id)
                return each if is_kind and is_id and not _has_ended(each, new) else None
        return None
    if type(last) is not dict or last.get("index") is not None:
        return None
    if kind is None or kind != last.get("type") or _SEALED.search(str(kind)):
        return None
    if _is_signed(last) or (_is_signed(_summary(last)) and _summary(new).get("text")):
        return None
    both = [name for name in _TELLS_APART if last.get(name) and new.get(name)]
    return None if any(str(last[name]) != str(new[name]) for name in both) else last


def _is_signed(entry: dict[str, Any]) -> bool:
    """Whether an entry has its end: what follows is another."""
    return bool(str(entry.get("signature") or ""))


def _summary(entry: dict[str, Any]) -> dict[str, Any]:
    """The last part of an entry's summary: Databricks signs that."""
    parts = entry.get("summary")
    return parts[-1] if type(parts) is list and parts and type(parts[-1]) is dict else {}


def _has_ended(entry: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a piece begins another entry under the same `index`: OpenRouter counts none."""
    return _is_signed(entry) and any(map(new.get, _SAID | {"data"}))


def _only_grows(new: dict[str, Any]) -> bool:
    """Whether all that an entry has can be a further piece. An `index` tells by itself."""
    return new.get("index") is not None or _WHOLE.union(_GROWS).issuperset(new)


def _is_another(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether an object is surely no further piece of one."""
    return any(
        (_is_number(value) or (name in _OF_OBJECT and value))
        and str(old.get(name, value)) not in ("None", "", str(value))
        for name, value in new.items()
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(name: str, piece: str) -> bool:
    """Whether a piece is the arguments of a call: Groq repeats them beside the call's output."""
    return name == "arguments" and piece[:1] == "{" and piece[-1:] == "}"


def _plain(value: Any) -> Any:
    match value:
        case _Text():
            return str(value)
        case dict():
            return {name: _plain(item) for name, item in value.items() if item is not _DROPPED}
        case list():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):  # it cannot be sent
            return None
    return value


def texts_of(kept: object) -> Iterable[list[str]]:
    """The texts of kept fields, each list in order: those of each name, and all that is said."""
    said: list[str] = []
    found = {"": said}

    def add(name: str, value: object) -> None:
        match value:
            case str():
                found.setdefault(name, []).append(value)
                if name in _SAID:
                    said.append(value)
            case dict():
                for key, item in value.items():
                    add(key, item)
            case list():
                for item in value:
                    add(name, item)

    add("of a list", kept)
    return found.values()


def fields_for(
    extra: Mapping[str, Any] | None, home: str, form: Form, text: str = ""
) -> dict[str, Any]:
    """What goes back of a block to its home: nothing to other servers.

    Args:
        extra: The block's; a field that is null there has the block's text.
        home: See `Server.home`.
        form: How the request is written.
        text: The block's.
    """
    fields: Mapping[str, Any] = extra.get(home, {}) if extra else {}
    return {
        name: text if value is None else value for name, value in fields.items() if form.has(name)
    }


def names_for(extra: Mapping[str, Any] | None, home: str) -> list[str]:
    """The names of these fields."""
    return list(extra.get(home, {})) if extra else []


def left_out(names: list[str]) -> str:
    """The note for fields that were dropped; empty for none."""
    if not names:
        return ""
    shown = ", ".join(literal(name, 60) for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    why = "too large, of an unknown kind, several under one name, or around a secret"
    return f"Left out of the reply, since they cannot be kept ({why}): {shown}{more}."
