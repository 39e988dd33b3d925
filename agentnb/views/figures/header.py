"""The head of a figure: its title, and the key to its shapes and colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentnb.core.types import AgentStatus
from agentnb.views.figures.lettering import REGULAR
from agentnb.views.figures.sheet import Sheet
from agentnb.views.figures.theme import BODY, MARGIN, TITLE

_LINE = 22.0
_GAP = 18.0
_MARK = 18.0


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the key: a status, or the colour of a bar."""

    words: str
    status: AgentStatus | None = None
    colour: str = ""
    height: float = 10.0
    """Height of the bar, in pixels."""
    is_upright: bool = False
    """A short line across instead of a bar."""


class Header:
    """Title, detail and key, broken into lines that fit."""

    def __init__(self, title: str, detail: str, keys: Sequence[Key], *, width: float) -> None:
        self._title, self._detail = title, detail
        self._lines: list[list[tuple[float, Key]]] = []
        x = width
        for key in keys:
            needed = _MARK + REGULAR.width(key.words, BODY)
            if x + needed > width - MARGIN:
                self._lines.append([])
                x = MARGIN
            self._lines[-1].append((x, key))
            x += needed + _GAP
        self.height = MARGIN + _LINE * (1 + len(self._lines)) + 10.0

    def draw(self, sheet: Sheet, width: float) -> None:
        """Draw it at the top of the sheet."""
        y = MARGIN + TITLE - 2
        room = width - 2 * MARGIN
        used = sheet.text(MARGIN, y, self._title, room=room, size=TITLE, bold=True)
        sheet.text(
            MARGIN + used + 12, y, self._detail, room=room - used - 12, colour=sheet.theme.muted
        )
        marks: dict[AgentStatus, list[tuple[float, float]]] = {}
        for number, line in enumerate(self._lines, start=1):
            y = MARGIN + TITLE - 2 + _LINE * number
            for x, key in line:
                sheet.text(x + _MARK, y, key.words, colour=sheet.theme.muted)
                if key.status is not None:
                    marks.setdefault(key.status, []).append((x + 6, y - 4.2))
                else:
                    left, wide = (x + 5, 2.5) if key.is_upright else (x, 13.0)
                    sheet.boxes([(left, y - 4.2 - key.height / 2, wide, key.height)], key.colour)
        sheet.marks(marks, 5.5)
