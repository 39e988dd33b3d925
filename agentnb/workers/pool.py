"""The workers of one run: one for each agent that runs code, started by its first call.

All of it belongs to one event loop. At most `at_work` calls compute at a time, whatever the number
of agents; the others wait in line. A worker ends with its agent, all end with the pool, and when
this process dies they end by themselves.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentnb.core.cancel import shielded
from agentnb.core.errors import MissingExtra
from agentnb.core.threads import run_in_thread
from agentnb.workers.given import DataFile, preload, write_data_file
from agentnb.workers.ran import Ran, not_handed, ran
from agentnb.workers.returned import Returned
from agentnb.workers.server import ForkServer
from agentnb.workers.worker import (
    CannotStart,
    Limits,
    Worker,
    WorkerPlan,
    private_folder,
    remove,
    start_worker,
    to_its_end,
)

AT_WORK = 4
"""Calls that compute at a time, unless the pool is made with another number."""


@dataclass(slots=True)
class _Seat:
    """One agent's place in the pool."""

    names: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    code: list[str] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a call: those of one agent run one after the other."""
    worker: Worker | None = None
    has_lost: bool = False
    """Whether a worker of the agent is gone, and the agent's next call starts another."""
    is_over: bool = False


class Workers:
    """The pool of one run.

    Args:
        given: What the run was given, by name. Pickled when the first worker starts.
        limits: What each worker may use.
        at_work: How many calls compute at a time.
        cwd: The folder in which code runs; the current one if left out.
        gone: Names that the run was given, whose objects were lost with the kernel in which it
            began; so were the names that agents had bound. `None` if it began in this one.
    """

    def __init__(
        self,
        given: Mapping[str, object] | None = None,
        *,
        limits: Limits | None = None,
        at_work: int = AT_WORK,
        cwd: Path | None = None,
        gone: Iterable[str] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.given = dict(given or {})
        self._gone = None if gone is None else frozenset(gone)
        self._at_work = at_work
        self._cwd = str(cwd or Path.cwd())
        self.mark = secrets.token_hex(8)
        """Identifies the processes of the run: see `agentnb.workers.inside.descendants`."""
        self._slots = asyncio.Semaphore(at_work)
        self._seats: dict[str, _Seat] = {}
        self._server: ForkServer | None = None
        self._plan: WorkerPlan | None = None
        self._data = DataFile()
        self._starting = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._folders: list[Path] = []
        """The folders of all workers. The guards remove them, unless they are killed."""
        self._is_closed = False

    def give(self, agent_id: str, names: Iterable[str]) -> None:
        """Set which of the given names an agent gets; by default none."""
        seat = self._seat(agent_id)
        known, gone = [*names], self._gone or ()
        seat.names = tuple(name for name in known if name in self.given)
        seat.gone = tuple(name for name in known if name in gone)

    async def run(
        self,
        agent_id: str,
        code: str,
        *,
        report: Callable[[str], object] = lambda _: None,
        on_wait: Callable[[str], object] = lambda _: None,
    ) -> Ran:
        """Run a cell in an agent's worker. A cancellation stops it within two seconds.

        Args:
            agent_id: The agent.
            code: The cell.
            report: Called with what happens before the code runs.
            on_wait: Called with the reason if the call has to wait for others.
        """
        seat = self._seat(agent_id)
        if seat.turn.locked():
            on_wait("an earlier call of this agent still runs")
        async with seat.turn:
            if self._slots.locked():
                on_wait(f"as many calls run code as may at a time: {self._at_work}")
            async with self._slots:
                return await self._run(seat, code, report)

    async def end(self, agent_id: str) -> Returned:
        """End an agent's worker, and return what its code left."""
        seat = self._seats.get(agent_id)
        if seat is None:
            return Returned()
        async with seat.turn:
            try:
                return await self._harvest(seat)
            finally:
                seat.is_over = True
                worker, seat.worker = seat.worker, None
                if worker is not None:
                    await to_its_end(worker.kill())

    async def close(self) -> None:
        """End all workers. Nothing of the run is left afterwards; may be called twice."""
        self._is_closed = True
        await to_its_end(self._close())

    # -- inside ------------------------------------------------------------------------------------

    async def _close(self) -> None:
        workers = []
        for seat in self._seats.values():
            seat.is_over = True
            worker, seat.worker = seat.worker, None
            if worker is not None:
                workers.append(worker.kill("the run has ended"))
        server, self._server = self._server, None
        folders, self._folders = self._folders, []
        try:
            # An error must not keep the others alive. That worker ends with the fork server.
            await asyncio.gather(*workers, return_exceptions=True)
        finally:  # also if the end of this process cancels it
            self._data.close()
            if server is not None:
                await server.close()
            if folders:
                await run_in_thread(lambda: remove(*folders))

    def _seat(self, agent_id: str) -> _Seat:
        if agent_id not in self._seats:
            self._seats[agent_id] = _Seat(has_lost=self._gone is not None)
        return self._seats[agent_id]

    async def _run(self, seat: _Seat, code: str, report: Callable[[str], object]) -> Ran:
        seat.code.append(code)
        notes: list[str] = []
        worker = seat.worker
        if worker is None or not worker.is_alive:
            if worker is not None:
                worker.abandon()
                seat.has_lost = True
            seat.worker = None
            report("a worker starts")
            try:
                worker = seat.worker = await self._started(seat)
            except CannotStart as error:
                return Ran(str(error), True, ended=True, why="start")
            notes = self._first_words(seat)
        report("it runs")
        outcome = await worker.run(code)
        if outcome.ended:
            seat.worker, seat.has_lost = None, True
        return ran(outcome, self.limits, notes=notes)

    async def _started(self, seat: _Seat) -> Worker:
        self._check_open(seat)
        async with self._starting:  # one at a time: the fork server imports before the first
            try:
                worker = await self._forked(seat)
            except CannotStart as error:
                if not error.is_silent:
                    raise
                worker = await self._forked(seat)  # code has killed the fork server: by another
        try:
            self._check_open(seat)
        except CannotStart:
            worker.abandon()
            raise
        return worker

    async def _forked(self, seat: _Seat) -> Worker:
        plan = await self._planned()
        self._check_open(seat)
        try:
            server, folder = self._living_server(), private_folder()
        except OSError as error:
            raise CannotStart(f"The worker did not start: {error}") from None
        self._folders.append(folder)
        try:
            worker = await start_worker(server, plan, seat.names, folder)
        except CannotStart:
            server.kill()  # whatever it hangs on: the next start is by another
            raise
        server.has_workers = True
        return worker

    def _living_server(self) -> ForkServer:
        server = self._server
        if server is None or not server.is_alive:
            if server is not None:
                server.kill()
            self._server = server = ForkServer(self.mark, at_work=self._at_work, preload=preload())
        return server

    def _check_open(self, seat: _Seat) -> None:
        if self._is_closed or seat.is_over:
            raise CannotStart("No code runs any more: the agent, or its run, has ended.")

    async def _planned(self) -> WorkerPlan:
        if self._plan is None:
            if not hasattr(os, "fork"):
                raise CannotStart(f"No code can run on {sys.platform}: workers need `os.fork`.")
            if self._writing is None:
                self._writing = asyncio.create_task(self._write())
            try:
                await shielded(self._writing)
            except (OSError, MemoryError) as error:
                self._writing = None
                raise CannotStart(f"What was given could not be written: {error!r}") from None
            data = self._data
            self._plan = WorkerPlan(self.limits, self._cwd, data.file, data.size, data.index)
        return self._plan

    async def _write(self) -> None:
        """Write the data file. It is the pool's at once: the call that waits may be cancelled."""
        self._data = await run_in_thread(lambda: write_data_file(self.given))
        if self._is_closed:
            self._data.close()

    def _first_words(self, seat: _Seat) -> list[str]:
        """The notes for an agent's first call in a new worker."""
        words = []
        if seat.has_lost:
            words.append("A fresh worker has started: only the given names are bound.")
            seat.has_lost = False
        words += [f"`{name}` went with the kernel in which the run began." for name in seat.gone]
        for name in seat.names:
            if name in self._data.refused:
                words.append(not_handed(name, self._data.refused[name]))
        return words

    async def _harvest(self, seat: _Seat) -> Returned:
        if seat.worker is None or not seat.worker.is_alive:
            return Returned()
        return await seat.worker.harvest(_names_in(seat.code))


def check_installed() -> None:
    """Check that workers can be started.

    Raises:
        MissingExtra: `ipykernel` is not installed.
    """
    if importlib.util.find_spec("ipykernel") is None:
        raise MissingExtra("`ipykernel`, in which agents run code,", extra="code")


def _names_in(code: Sequence[str]) -> list[str]:
    """The names that occur in cells: an object that is never named is not changed."""
    names: set[str] = set()
    for cell in code:
        try:
            names |= {node.id for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Name)}
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # A cell with magics, or none that runs: take its words.
            names |= {word for word in cell.replace("(", " ").split() if word.isidentifier()}
    return sorted(names)
