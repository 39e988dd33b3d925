"""The figures of a call as PNG, bounded in number and size."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

MOST_FIGURES = 8
MOST_IN_FIGURE = 1_000_000
"""Bytes."""
_MOST_PIXELS = 4_000_000
_RESOLUTIONS = (100, 72, 50, 30, 15)


class Figures:
    """Collects what was displayed, then what is still open."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.pictures: list[bytes] = []
        self.sizes: list[tuple[int, int]] = []
        self.left_out = 0
        self._taken: set[int] = set()

    def add(self, picture: bytes) -> None:
        """Add one that is drawn already."""
        if len(self.pictures) >= MOST_FIGURES or len(picture) > MOST_IN_FIGURE:
            self.left_out += 1
            return
        self.pictures.append(picture)
        self.sizes.append(png_size(picture))

    def drawn(self, figure: Any) -> bytes | None:
        """A figure as PNG, and remember that it was taken; `None` if it fits no bound."""
        self._taken.add(id(figure))
        return drawn(figure)

    def take(self, value: Any, *, not_these: Sequence[Any] = ()) -> None:
        """Draw the figures that are open, and the cell's value if it is one, and close them.

        Args:
            value: The cell's.
            not_these: Open figures that stay as they are.
        """
        figures = [figure for figure in open_figures() if figure not in not_these]
        kind = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
        if kind is not None and isinstance(value, kind) and value not in figures:
            figures.append(value)
        for figure in figures:
            if id(figure) in self._taken or figure in not_these:
                continue
            if len(self.pictures) >= MOST_FIGURES:
                self.left_out += 1
                continue
            try:
                picture = drawn(figure)
            except Exception as error:
                print(f"A figure could not be drawn: {type(error).__name__}: {error}")  # noqa: T201
                picture = None
            if picture is None:
                self.left_out += 1
            else:
                self.add(picture)
        close_figures(not_these)


def open_figures() -> list[Any]:
    """The figures that pyplot holds open. Activates none."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    managers = [] if helpers is None else [*helpers.Gcf.figs.values()]
    return [manager.canvas.figure for manager in managers]


def close_figures(not_these: Sequence[Any] = ()) -> None:
    """Close all figures but some."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    for figure in open_figures():
        if pyplot is not None and figure not in not_these:
            pyplot.close(figure)


def drawn(figure: Any) -> bytes | None:
    """A figure as PNG, at the best resolution that stays in bounds; `None` if none does."""
    _fit(figure)
    width, height = figure.get_size_inches()
    for dpi in _RESOLUTIONS:
        if width * height * dpi * dpi > _MOST_PIXELS:
            continue
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=dpi)
        if file.tell() <= MOST_IN_FIGURE:
            return file.getvalue()
    return None


def _fit(figure: Any) -> None:
    """Make room for labels that would be cut at the edge, as a notebook does; the size stays."""
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if figure.get_layout_engine() is None:
            figure.tight_layout()


def png_size(picture: bytes) -> tuple[int, int]:
    """Width and height in pixels, as the picture's head says; 0 and 0 if it has none."""
    if picture[:8] != b"\x89PNG\r\n\x1a\n" or len(picture) < 24:
        return 0, 0
    return int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")
