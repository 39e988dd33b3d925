"""Commands from clicks to the run.

A command returns at once, on any thread; it is executed on the run's own thread, which does not
wait for its effect. Failures are shown as a line, never raised: no caller could catch them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentnb.core.protocols import RunControls
from agentnb.core.questions import Question
from agentnb.core.text import visible

_LINE_LENGTH = 300

Made = Callable[[bool], None]
"""Called once when a command was executed, with whether it worked, after its effects were
published. Called on the run's thread, or on the caller's if that thread has ended."""


class Commands:
    """The commands from a panel to one run. Thread-safe.

    Args:
        controls: The run.
        call_soon: Schedules a function on the run's thread, in order; raises if that thread has
            ended.
        tell: Shows the user one line.
    """

    def __init__(
        self,
        controls: RunControls,
        call_soon: Callable[[Callable[[], object]], None],
        tell: Callable[[str], None],
    ) -> None:
        self._controls = controls
        self._call_soon = call_soon
        self._tell = tell

    def cancel(self, agent: str | None = None, *, made: Made | None = None) -> None:
        """Cancel the agent at a path and all below it, or the whole run."""
        self._give(lambda: self._controls.cancel(agent), made)

    def set_budget(self, total: int, *, made: Made | None = None) -> None:
        """Set the running run's total, in its budget's unit."""
        self._give(lambda: self._controls.set_budget(total), made)

    def pause(self, agent: str | None = None, *, made: Made | None = None) -> None:
        """Pause the agent at a path and all below it, or the whole run."""
        self._give(lambda: self._controls.pause(agent), made)

    def resume(self, agent: str | None = None, *, made: Made | None = None) -> None:
        """End the pauses at an agent and below it, or all of the run."""
        self._give(lambda: self._controls.resume(agent), made)

    def tell_agent(self, agent: str, text: str, *, made: Made | None = None) -> None:
        """Send a note to the agent at a path."""
        self._give(lambda: self._controls.tell(agent, text), made)

    def answer_question(
        self,
        question_id: str,
        answer: str,
        *,
        value: Any = None,
        reason: str | None = None,
        made: Made | None = None,
    ) -> None:
        """Answer an open question. See `RunControls.answer`."""
        controls = self._controls
        self._give(lambda: controls.answer(question_id, answer, value=value, reason=reason), made)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions, oldest first; none if the controls know none."""
        try:
            return self._controls.questions
        except NotImplementedError:
            return ()

    def answer(self, answer: str, *, made: Made | None = None) -> None:
        """Answer the budget question: `continue` or `stop`."""
        self._give(lambda: self._controls.answer_budget(answer), made)

    def tell(self, line: str) -> None:
        """Show the user one line; never raises."""
        with suppress(Exception):  # there is no other way to report it
            self._tell(visible(line, _LINE_LENGTH))

    def tell_error(self, error: Exception) -> None:
        """Show the user an error."""
        self.tell(str(error) or f"The command failed without a message ({type(error).__name__}).")

    def _give(self, call: Callable[[], object], made: Made | None) -> None:
        def carry_out() -> None:
            worked = self._worked(call)
            if made is not None:
                # The command's effects are queued on the run's loop already: queue this behind.
                self._worked(lambda: self._call_soon(lambda: self._worked(lambda: made(worked))))

        if not self._worked(lambda: self._call_soon(carry_out)) and made is not None:
            self._worked(lambda: made(False))

    def _worked(self, call: Callable[[], object]) -> bool:
        """Call it; returns whether it worked, and shows the error otherwise."""
        try:
            call()
        except Exception as error:
            self.tell_error(error)
            return False
        return True


class PendingValue:
    """The total that a user has set, until the run has it. Thread-safe; locks only briefly.

    Frames made before a click may arrive after it: they must not move a control back. Changes from
    elsewhere are shown with the next frame.

    Invariant: without a pending command, the newest total from a frame is shown.
    """

    def __init__(self, total: int) -> None:
        self._heard = total
        self._wanted: int | None = None
        self._open = 0
        """Number of commands given and not executed."""
        self._older: set[int] = set()
        """Totals that frames from before the newest command may show."""
        self._lock = threading.Lock()

    @property
    def shown(self) -> int:
        """The total that a control shows."""
        with self._lock:
            return self._heard if self._wanted is None else self._wanted

    def give(self, total: int) -> None:
        """The user set a total."""
        with self._lock:
            self._older.add(self._heard if self._wanted is None else self._wanted)
            self._wanted = total
            self._open += 1

    def made(self, worked: bool) -> None:
        """The oldest pending command was executed, or failed."""
        with self._lock:
            self._open -= 1
            if not worked and not self._open:
                self._settle()

    def heard(self, total: int) -> int:
        """A frame has a total; returns the one that a control shows."""
        with self._lock:
            self._heard = total
            if self._wanted is None:
                return total
            if self._open:
                return self._wanted
            # At most one frame from before the command can still arrive.
            if total in self._older:
                self._older.clear()
                return self._wanted
            self._settle()
            return total

    def forget(self) -> None:
        """The run has ended: show its own total."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        self._wanted = None
        self._older.clear()
