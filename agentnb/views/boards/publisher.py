"""Publishes one board to the pages that show it.

While a view is on a screen, a thread checks a few times a second whether anything has changed, and
sends the changes. Without views, no thread runs, and the board is read only at the end of a cell.
The thread holds the board's lock while it reads and sends; a person's commands run without it, on
their own thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from agentnb.core.secrets import known_secrets
from agentnb.core.text import visible
from agentnb.views.boards.reader import Reader, Say
from agentnb.views.boards.source import BoardSource
from agentnb.views.boards.wire import (
    BoardCommand,
    CallsMessage,
    DoneMessage,
    NoticeMessage,
    Order,
    Row,
    RowsMessage,
    SavedRows,
)
from agentnb.views.figures.words import counted
from agentnb.views.panel.renewal import MOST_SAVED, SAVE_EVERY_S, left_out
from agentnb.views.panel.rules import MessageRefused
from agentnb.views.panel.viewers import Viewers
from agentnb.views.panel.wire import NewestMessage

POLL_S = 0.2
"""Seconds between two checks of the board for changes."""
_SHARE = 10
"""After a slow check, the next one waits this many times as long as the check took."""
_PAUSE_IN_TROUBLE_S = 3.0
MOST_VIEWS = 64
"""Most views of one board, on all pages together."""
_LINE_LENGTH = 300


class BoardPublisher:
    """One board, for any number of views on any number of pages. Safe from any thread.

    Args:
        source: What the board reads of its session.
        say: Sends a message to the pages.
        save: Sends all rows for a page to save: soon after a change, and then from time to time.
        clock: Returns the time in seconds; another one is for tests.
    """

    def __init__(
        self,
        source: BoardSource,
        say: Say,
        *,
        save: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = threading.RLock()
        """Held while the source is read, and while the result is sent."""
        self.refused = 0
        """Number of invalid messages from pages."""
        self._source, self._say, self._save, self._clock = source, say, save, clock
        self._saved_seq = 0
        self._saved_at_s = float("-inf")
        self._viewers = Viewers(clock)
        self._readers: dict[str, Reader] = {}
        self._rows: dict[str, Row] = {}
        """By id: the rows as they were last sent, in order."""
        self._seq = 0
        self._known: int | None = None
        """`source.changes()` at the last check."""
        self._trouble = ""
        self._is_closed = False
        self._is_wanted = threading.Event()
        self._thread: threading.Thread | None = None

    # -- what pages show --------------------------------------------------------------------------

    def whole(self) -> RowsMessage:
        """All rows as they are now."""
        with self.lock:
            self._look()
            return {
                "type": "frame",
                "seq": self._seq,
                "base": None,
                "rows": [*self._rows.values()],
                "order": [*self._rows],
            }

    def saved(self) -> SavedRows:
        """The rows as they are now, cut for a page that may have no kernel."""
        frame = cast(SavedRows, {**self.whole()})
        rest = frame["rows"][MOST_SAVED:]
        if rest:
            what = counted(len(rest), "more row")
            frame["left_out"] = left_out(what, (row["status"].replace("_", " ") for row in rest))
            frame["rows"] = frame["rows"][:MOST_SAVED]
            frame["order"] = [row["id"] for row in frame["rows"]]
        return frame

    def look(self) -> None:
        """Send what has changed, if anything has."""
        with self.lock:
            try:
                self._look()
                if self._is_save_due():
                    self._save()
                self._trouble = ""
            except Exception as error:
                # It may pass, like a locked file: report it once, and try again.
                line = visible(str(error) or type(error).__name__, _LINE_LENGTH)
                if line != self._trouble:
                    self._trouble = line
                    self.tell(line)

    def catch_up(self) -> None:
        """Send and save at once what has changed: no page may be there that asks for it."""
        with self.lock:
            if not self._is_closed:
                self._saved_at_s = float("-inf")
                self.look()

    def _look(self) -> None:
        changes = self._source.changes()
        if changes == self._known:
            return
        known_secrets()  # refresh the secrets, by which texts are masked
        rows = self._source.rows()
        message = changed_rows(rows, self._rows, seq=self._seq + 1)
        self._rows = {row["id"]: row for row in rows}
        if message is not None:
            self._seq += 1
            self._say(message)
        for reader in self._readers.values():
            reader.look()
        self._known = changes  # last, so that everything is checked again after an error

    def _is_save_due(self) -> bool:
        """Whether the rows have changed since they were saved; counts as saved then."""
        now_s = self._clock()
        if self._seq == self._saved_seq or now_s < self._saved_at_s + SAVE_EVERY_S:
            return False
        self._saved_seq, self._saved_at_s = self._seq, now_s
        return True

    def tell(self, line: str) -> None:
        """Show a line on all pages."""
        message: NoticeMessage = {"type": "notice", "line": visible(line, _LINE_LENGTH)}
        self._say(message)

    def refuse(self, reason: str) -> None:
        """Count a refused message from a page, and show the first one."""
        self.refused += 1
        if self.refused == 1:
            self.tell(f"A message of a page was refused: {reason}. Others are only counted.")

    # -- what pages ask ---------------------------------------------------------------------------

    def take(self, command: BoardCommand) -> None:
        """Carry out a page's command. On any thread except a run's."""
        match command["type"]:
            case "hello":
                self._seen(command["view"])
                self._say(self.whole())
            case "here":
                self._seen(command["view"])
            case "bye":
                self._gone(command["view"])
            case "resend":
                self._say(self.whole())
            case "sync":
                is_newest = command["seq"] == self._seq
                self._say(NewestMessage(type="newest") if is_newest else self.whole())
            case "open":
                with self.lock:
                    self._reader(command["view"]).open(command["id"])
            case "read":
                with self.lock:
                    self._reader(command["view"]).read(command["thread"], command["most"])
            case "calls":
                self._tell_calls(command["view"], command["thread"], command["run"])
            case "send" | "note" | "status":
                self._carry_out(command)

    def _carry_out(self, order: Order) -> None:
        error = ""
        try:
            self._source.act(order)
        except Exception as failed:  # shown at the view that sent the command
            error = visible(str(failed) or type(failed).__name__, _LINE_LENGTH)
        done: DoneMessage = {
            "type": "done",
            "view": order["view"],
            "order": order["order"],
            "error": error,
        }
        self.look()  # first, so that the page has the effect when it learns that it is done
        self._say(done)

    def _tell_calls(self, view: str, thread: str, run: str) -> None:
        tools = self._source.calls(thread, run)
        message: CallsMessage = {"type": "calls", "view": view, "run": run, "tools": tools}
        self._say(message)

    def _reader(self, view: str) -> Reader:
        if view not in self._readers:
            raise MessageRefused("a request from a view that never announced itself")
        return self._readers[view]

    # -- views ------------------------------------------------------------------------------------

    def _seen(self, view: str) -> None:
        with self.lock:
            if self._is_closed:
                return
            self._viewers.seen("", view)
            if view not in self._readers:
                self._readers[view] = Reader(view, self._source, self._say)
            if len(self._readers) > MOST_VIEWS:
                self._gone(next(iter(self._readers)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._go, name="agentnb-board", daemon=True)
                self._thread.start()

    def _gone(self, view: str) -> None:
        with self.lock:
            self._viewers.gone("", view)
            reader = self._readers.pop(view, None)
            if reader is not None:
                reader.close()

    def close(self) -> None:
        """Stop for good: send nothing more."""
        with self.lock:
            self._is_closed = True
            for view in [*self._readers]:
                self._gone(view)
            self._is_wanted.set()
            if self._thread is None:
                self._source.rest()

    def _go(self) -> None:
        pause_s = POLL_S
        while True:
            self._is_wanted.wait(pause_s)
            with self.lock:
                if self._is_closed or not self._viewers.any():
                    # A page that only slept reports again, and then gets all changes since.
                    for reader in self._readers.values():
                        reader.pause()
                    self._thread, self._known = None, None
                    self._source.rest()
                    return
                begun_s = time.monotonic()
                self.look()
                pause_s = max(POLL_S, _SHARE * (time.monotonic() - begun_s))
                if self._trouble:
                    pause_s = max(pause_s, _PAUSE_IN_TROUBLE_S)


def changed_rows(rows: Sequence[Row], before: Mapping[str, Row], *, seq: int) -> RowsMessage | None:
    """The message that updates a page's rows to the present ones; `None` if they are equal.

    Args:
        rows: The present rows, in order.
        before: By id: the rows that the page has, in order.
        seq: The number of the message.
    """
    order = [row["id"] for row in rows]
    changed = [row for row in rows if before.get(row["id"]) != row]
    is_same_order = order == [*before]
    if is_same_order and not changed:
        return None
    return {
        "type": "frame",
        "seq": seq,
        "base": seq - 1,
        "rows": changed,
        "order": None if is_same_order else order,
    }
