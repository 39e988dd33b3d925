"""Agents' code in the person's own kernel: the wait for the main thread, and the stop.

The code runs where `agentnb.main_thread` lets it. A thread watches each call: it stops the code
when the agent is cancelled or the time is over, and gives up where the main thread would not come.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import Any

from agentnb.core.cancel import is_own_cancellation
from agentnb.core.errors import ToolError
from agentnb.core.protocols import ToolContext
from agentnb.kernel_cell import run_cell
from agentnb.main_thread import MAIN, Guarded, MainCall
from agentnb.views.front_end import shell_at_hand
from agentnb.workers.ran import Ran, ran
from agentnb.workers.worker import Limits, Outcome

SLICE_S = 0.05
"""How often a call is looked after."""
GRACE_S = 2.0
"""How long a call waits for somebody to wait for its run: `run.result()` follows `spawn`."""
NOT_SERVED = (
    "This code was not run. It can run only while the main thread waits for this run, and nothing "
    "waits for it there. Tell the person to wait for the run in the notebook: `await run`, or "
    "`run.result()`."
)


class KernelCode:
    """Runs the code of one run's agents.

    Args:
        time_s: Seconds that a call may take, from when its code begins.
    """

    def __init__(self, time_s: float) -> None:
        self.limits = Limits(memory=0, time_s=time_s)
        self._shell = shell_at_hand()
        _serve_between_cells(self._shell)

    async def run(self, code: str, context: ToolContext) -> Ran:
        """Run a cell. A cancellation stops it, as far as the code lets itself be stopped.

        Raises:
            ToolError: It was not run, or goes on for all that it was told to stop.
        """
        call = MainCall(context.run_id, lambda guarded: self._cell(code, context, guarded))
        watch = _Watch(call, context, self.limits.time_s)
        watching = asyncio.ensure_future(context.on_thread(watch.to_its_end))
        watch.cancel_when_too_slow(watching)
        try:
            await watching
        except asyncio.CancelledError as error:
            if not watch.is_too_slow or is_own_cancellation(error):
                raise
        if watch.is_unserved:
            raise ToolError(NOT_SERVED)
        if not call.ended.is_set():
            raise ToolError(
                f"This code was told to stop after {self.limits.time_s:g} s, and still runs: it "
                "keeps the interrupt from itself. The person's notebook is held up by it."
            )
        if call.error is not None:
            raise call.error
        outcome: Outcome = call.value
        if call.was_interrupted:
            outcome = replace(outcome, stopped="the person interrupted it")
        elif watch.is_too_slow:
            outcome = replace(outcome, stopped="time")
        return ran(outcome, self.limits)

    def _cell(self, code: str, context: ToolContext, guarded: Guarded) -> Outcome:
        if context.cancelled:  # while the call waited, and its watch has not looked since
            raise ToolError("This code was not run: its agent was stopped before.")
        return run_cell(code, self._shell, guarded)


class _Watch:
    """Looks after one call, on a thread that has nothing else to do."""

    def __init__(self, call: MainCall, context: ToolContext, time_s: float) -> None:
        self._call, self._context, self._time_s = call, context, time_s
        self._loop = asyncio.get_running_loop()
        self._unserved_since: float | None = None
        self._has_told = False
        self.is_too_slow = False
        self.is_unserved = False

    def cancel_when_too_slow(self, waits: asyncio.Future[Any]) -> None:
        """Say what waits for the call, before the thread begins."""
        self._waits = waits

    def to_its_end(self) -> None:
        """Ask for the call, and return when it has ended or will not begin."""
        if self._context.cancelled:
            return
        MAIN.put(self._call)
        self._give_up_if_certain()
        while not self._call.ended.wait(SLICE_S):
            self._look()

    def _look(self) -> None:
        began_at = self._call.began_at
        if self._context.cancelled:
            if not MAIN.withdraw(self._call):
                MAIN.stop(self._call)
        elif began_at is None:
            self._look_for_service()
        elif time.monotonic() - began_at > self._time_s:
            self.is_too_slow = True  # and `cancelled` says so from here on
            self._loop.call_soon_threadsafe(self._waits.cancel)
            MAIN.stop(self._call)

    def _look_for_service(self) -> None:
        if not self._has_told:
            self._has_told = True
            self._context.report("waits for the notebook's main thread")
        now = time.monotonic()
        self._give_up_if_certain()
        if MAIN.may_serve(self._call.run_id):
            self._unserved_since = None
        elif self._unserved_since is None:
            self._unserved_since = now
        elif now - self._unserved_since > GRACE_S:
            self._give_up()

    def _give_up_if_certain(self) -> None:
        if MAIN.never_serves(self._call.run_id):
            self._give_up()

    def _give_up(self) -> None:
        self.is_unserved = MAIN.withdraw(self._call)


def _serve_between_cells(shell: Any) -> None:
    """Let calls run between the cells of the kernel that this process is, if it is one."""
    kernel = getattr(shell, "kernel", None)
    loop = getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
    # Held by the kernel while it handles a message, such as a cell. Since ipykernel 7.
    of_cells = getattr(kernel, "_main_asyncio_lock", None)
    # A process that was forked from the kernel has its shell, and not its loop.
    is_here = getattr(getattr(kernel, "session", None), "pid", None) == os.getpid()
    if is_here and loop is not None and isinstance(of_cells, asyncio.Lock):
        MAIN.serve_between_cells(loop, of_cells)
