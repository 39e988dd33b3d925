"""What a page may say to the widgets of a run, checked before anything acts on it.

Whoever shares a page or a kernel can send anything: other kinds, numbers that are none, as much as
a line carries. One table says which messages and values there are; what is not in it is refused,
counted and told once, and is never an exception: its traceback would land in some other cell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from agentnb.views.panel.limits import LARGEST

MOST_AT_ONCE = 200
MOST_PER_S = 50
"""Messages to one widget, in the long run. A slider that is dragged sends about as many."""
_MOST_IN_TEXT = 1_000


class MessageRefused(ValueError):
    """Raised when a message makes no sense; its words hold nothing of the message itself."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a message."""

    is_valid: Callable[[object], bool]
    words: str
    """What it must be."""


def whole(least: int, most: int = LARGEST) -> Field:
    """A whole number; `True` is none."""
    return Field(
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least:,} to {most:,}",
    )


def text(longest: int, *, shortest: int = 1) -> Field:
    """A text of so many characters."""
    return Field(
        lambda value: isinstance(value, str) and shortest <= len(value) <= longest,
        f"a text of {shortest:,} to {longest:,} characters",
    )


def seconds() -> Field:
    """A time of the run."""
    return Field(
        lambda value: (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 <= value <= LARGEST  # `nan` is not
        ),
        "a number of seconds from 0",
    )


def or_nothing(field: Field) -> Field:
    """The same, or `None`."""
    return Field(lambda value: value is None or field.is_valid(value), f"{field.words}, or null")


Fields = Mapping[str, Field]

_VIEW = text(100)
_AGENT = text(_MOST_IN_TEXT)
KINDS: Mapping[str, Fields] = {
    "hello": {"view": _VIEW},
    "here": {"view": _VIEW},
    "bye": {"view": _VIEW},
    "resend": {},
    "sync": {"seq": whole(-1)},  # a page that has no frame yet is at -1
    "look": {
        "view": _VIEW,
        "agent": _AGENT,
        "call": or_nothing(whole(1)),
        "at": or_nothing(seconds()),
    },
    "budget": {"total": whole(1)},
    "cancel": {"agent": _AGENT},
}
"""What a page says to the tree view, by `type`."""
TOTAL: Fields = {"value": whole(0)}
TYPED: Fields = {"value": text(_MOST_IN_TEXT, shortest=0)}


def checked_message(content: object) -> dict[str, Any]:
    """A message to the tree view, with the fields of its kind and no others.

    Raises:
        MessageRefused: It is no object, is of no known kind, or a value is not what it must be.
    """
    message = _object(content)
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise MessageRefused("there is no such kind of message")
    fields = KINDS[kind]
    return {"type": kind, **_checked({name: message.get(name) for name in fields}, fields)}


def checked_state(state: object, fields: Fields) -> dict[str, Any]:
    """The values that a page may change; others are passed over.

    Raises:
        MessageRefused: It is no object, or a value is not what it must be.
    """
    given = _object(state)
    return _checked({name: given[name] for name in fields if name in given}, fields)


def _object(content: object) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise MessageRefused("a message must be an object")
    return content


def _checked(values: dict[str, Any], fields: Fields) -> dict[str, Any]:
    for name, value in values.items():
        if not fields[name].is_valid(value):
            raise MessageRefused(f"`{name}` must be {fields[name].words}")
    return values


class Intake:
    """How many messages are taken: some at once, and in the long run so many a second."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._room = float(MOST_AT_ONCE)
        self._at_s = self._clock()

    def take(self) -> None:
        """Count one message.

        Raises:
            MessageRefused: There were too many.
        """
        now_s = self._clock()
        self._room = min(MOST_AT_ONCE, self._room + (now_s - self._at_s) * MOST_PER_S)
        self._at_s = now_s
        if self._room < 1:
            raise MessageRefused(f"there were more than {MOST_PER_S} messages a second")
        self._room -= 1


class Guarded:
    """For a widget: what a page says to it is checked first. To stand before its base class."""

    from_page: ClassVar[Fields] = {}
    """What a page may change of its state."""
    _intake: Intake | None = None

    def refuse(self, reason: str) -> None:
        """Have a refused message counted and told, where there is a run to tell it."""

    def _handle_msg(self, msg: Any) -> None:
        """All that comes passes here, and what is raised would be printed into some cell."""
        try:
            data = _object(_object(_object(msg).get("content")).get("data"))
            match data.get("method"):
                case "update":
                    self.set_state(_object(data.get("state")))
                case "custom":
                    self._handle_custom_msg(data.get("content"), None)
                case "request_state":
                    self._count()
                    self.send_state()  # type: ignore[attr-defined]
                case _:
                    raise MessageRefused("there is no such method")
        except MessageRefused as refused:
            self.refuse(str(refused))

    def _handle_custom_msg(self, content: object, buffers: object) -> None:
        try:
            self._count()
            message = _object(content)
        except MessageRefused as refused:
            self.refuse(str(refused))
            return
        super()._handle_custom_msg(message, buffers)  # type: ignore[misc]

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Take what a page changed, as far as it may; the page is put right otherwise."""
        try:
            self._count()
            state = checked_state(sync_data, self.from_page)
        except MessageRefused as refused:
            self.refuse(str(refused))
            self.send_state()  # type: ignore[attr-defined]
            return
        if state:
            super().set_state(state)  # type: ignore[misc]

    def _count(self) -> None:
        self._intake = self._intake or Intake()
        self._intake.take()
