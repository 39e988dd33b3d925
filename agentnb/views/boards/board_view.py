"""The widget of a board, which connects the publisher with the pages."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from agentnb.core.shown import Bundle
from agentnb.views.boards.publisher import BoardPublisher
from agentnb.views.boards.source import BoardSource
from agentnb.views.boards.wire import BoardMessage, checked_command
from agentnb.views.front_end import after_each_cell
from agentnb.views.panel.comm import hear
from agentnb.views.panel.module import joined_module, style
from agentnb.views.panel.show import show_beside, show_live
from agentnb.views.panel.widgets import ClosableWidget

ENTRY = "board_panel.js"

_displayed: weakref.WeakSet[BoardView] = weakref.WeakSet()
"""The boards of this kernel's cells."""


def _catch_up(*_: object) -> None:
    """Save what a cell has changed before it is idle: then a front end may save its page."""
    for board in [*_displayed]:
        board.publisher.catch_up()


class BoardView(ClosableWidget, anywidget.AnyWidget):
    """A live board. As a cell's value it is followed by a table with the same content.

    Args:
        source: What the board reads of its session.
        kind: `tasks` or `threads`.
        table: Makes the table: a second output, which stays in a saved notebook.
        height: Height in pixels; 0 for a default that fits most cells.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Any().tag(sync=True, to_json=lambda _, view: view.publisher.saved())
    """The first rows, as they are when it is sent. It is all that a notebook saves of the board,
    since changes are messages. It has no value in Python."""
    kind = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, source: BoardSource, *, kind: str, table: Callable[[], Bundle], height: int = 0
    ) -> None:
        self.publisher = BoardPublisher(source, self._say, save=lambda: self.send_state("snapshot"))
        self._table = table
        self._is_made = False
        with self.publisher.lock:
            super().__init__(
                _esm=joined_module(ENTRY), _css=style("boards.css"), kind=kind, height=height
            )
            self._is_made = True
        hear(self)

    def _ipython_display_(self) -> None:
        show_live(self)
        show_beside(self._table())
        _displayed.add(self)
        after_each_cell(_catch_up)

    def close(self) -> None:
        """Remove it from all pages and stop updating it."""
        # Garbage collection may close a widget again, on any thread, which must not wait here.
        _displayed.discard(self)
        if self.comm is not None:
            self.publisher.close()
        super().close()

    def _say(self, message: BoardMessage) -> None:
        if self._is_made:  # else it is in the snapshot
            self.send(message)

    # -- `agentnb.views.panel.messages.Guarded` ---------------------------------------------------

    def take(self, content: Mapping[str, Any]) -> None:
        """Handle a message from a front end, on any thread."""
        self.publisher.take(checked_command(content))

    def refuse(self, reason: str) -> None:
        """Count a refused message from a page, and show the first one."""
        self.publisher.refuse(reason)

    def fail(self, error: Exception) -> None:
        """Show an error in handling a message from a page."""
        self.publisher.tell(str(error) or type(error).__name__)
