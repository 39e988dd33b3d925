"""What a person wants a total to be, until the run has it.

Between a click and the frame that shows its effect, frames may come that were made before: they
must not move a control back. What anybody else changes meanwhile is shown with the next frame.
"""

from __future__ import annotations

import threading


class Wish:
    """The orders of one control that are under way. Thread-safe, and no thread waits long.

    Invariant: without an order under way, the newest total that was heard of is the one to show.
    """

    def __init__(self, total: int) -> None:
        self._heard = total
        self._wanted: int | None = None
        self._open = 0
        """Orders that were given and not made."""
        self._older: set[int] = set()
        """What a frame may tell that was made before the newest order was."""
        self._lock = threading.Lock()

    @property
    def shown(self) -> int:
        """The total that a control has to show."""
        with self._lock:
            return self._heard if self._wanted is None else self._wanted

    def give(self, total: int) -> None:
        """A person ordered a total."""
        with self._lock:
            self._older.add(self._heard if self._wanted is None else self._wanted)
            self._wanted = total
            self._open += 1

    def made(self, worked: bool) -> None:
        """The oldest order that was under way is carried out, or failed."""
        with self._lock:
            self._open -= 1
            if not worked and not self._open:
                self._settle()

    def heard(self, total: int) -> int:
        """A frame tells a total; the one that a control has to show."""
        with self._lock:
            self._heard = total
            if self._wanted is None:
                return total
            if self._open:
                return self._wanted
            # Of frames that were made before the order only one can still come, behind it.
            if total in self._older:
                self._older.clear()
                return self._wanted
            self._settle()
            return total

    def forget(self) -> None:
        """The run is over: what it says holds, whatever was wanted."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        self._wanted = None
        self._older.clear()
