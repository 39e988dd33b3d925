"""What a person clicks, handed over to the run.

An order returns at once, on whatever thread a front end speaks; it is carried out on the run's
own thread, where nothing waits for its effect. What goes wrong with it is told in a line and is
never an exception: nobody stands behind a click who could catch one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from agentnb.core.protocols import RunControls
from agentnb.core.text import visible

_LINE_LENGTH = 300

Made = Callable[[bool], None]
"""Told when an order was made, with whether it worked: what it led to has been told by then.
Called once, on the run's thread, or on the caller's when that thread was gone before."""


class Commands:
    """The commands that a panel can give to one run. Safe from any thread.

    Args:
        controls: The run.
        hand_over: Has a function called on the run's thread, soon, and in the order in which it
            got them; raises when that thread is gone.
        tell: Shows a person one line.
    """

    def __init__(
        self,
        controls: RunControls,
        hand_over: Callable[[Callable[[], object]], None],
        tell: Callable[[str], None],
    ) -> None:
        self._controls = controls
        self._hand_over = hand_over
        self._tell = tell

    def cancel(self, agent: str | None = None, *, made: Made | None = None) -> None:
        """Stop an agent, by its path, and all below it; without one, the whole run."""
        self._give(lambda: self._controls.cancel(agent), made)

    def set_budget(self, total: int, *, made: Made | None = None) -> None:
        """Set the total of the running request."""
        self._give(lambda: self._controls.set_budget(total), made)

    def answer(self, answer: str, *, made: Made | None = None) -> None:
        """Answer the budget's question: `continue` or `stop`."""
        self._give(lambda: self._controls.answer_budget(answer), made)

    def tell(self, line: str) -> None:
        """Show a person one line, whatever happens."""
        with suppress(Exception):  # there is nobody left to tell that telling failed
            self._tell(visible(line, _LINE_LENGTH))

    def tell_error(self, error: Exception) -> None:
        """Show a person what went wrong."""
        self.tell(str(error) or f"The order failed without a word ({type(error).__name__}).")

    def _give(self, call: Callable[[], object], made: Made | None) -> None:
        def carry_out() -> None:
            worked = self._worked(call)
            if made is not None:
                # The news of what it did stands on the run's loop already: this comes behind it.
                self._worked(lambda: self._hand_over(lambda: self._worked(lambda: made(worked))))

        if not self._worked(lambda: self._hand_over(carry_out)) and made is not None:
            self._worked(lambda: made(False))

    def _worked(self, call: Callable[[], object]) -> bool:
        """Call it; false when it failed, which has been told then."""
        try:
            call()
        except Exception as error:
            self.tell_error(error)
            return False
        return True


class PendingValue:
    """The total that a person wants, until the run has it. Thread-safe, and no thread waits long.

    Between a click and the frame that shows its effect, frames may come that were made before: they
    must not move a control back. What anybody else changes meanwhile is shown with the next frame.

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
