"""One worker: started, asked, interrupted and ended from the person's process.

A call that is stopped is interrupted first; if that does not end it within half a second, or leaves
threads or processes behind, the whole worker is killed. All answers of a worker are checked, as it
runs unchecked code.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentnb.core.cancel import retrieve_error, wait_shielded
from agentnb.core.threads import run_in_thread
from agentnb.workers.returned import Returned, read_returned
from agentnb.workers.server import ForkServer, connection, import_path
from agentnb.workers.wire import BadMessage, Channel, Reply, open_channel

INTERRUPT_PATIENCE_S = 0.5
_START_PATIENCE_S = 30.0
_END_PATIENCE_S = 1.0
_COLLECT_PATIENCE_S = 2.0
_HARVEST_PATIENCE_S = 5.0
_READ_PATIENCE_S = 4.0
_MOST_IN_LINE = 1_000_000
_LONGEST_FOLDER = 80
"""Characters: the path of a socket may have 108."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker may use."""

    memory: int = 2_000_000_000
    """Bytes, beyond the given data; 0 where nothing bounds them."""
    time_s: float = 60.0
    """Seconds of one call."""
    most_printed: int = 20_000
    """Bytes of each stream that a call's result keeps."""
    most_output: int = 50_000_000
    """Bytes after which a call that prints is stopped."""
    most_processes: int = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended."""

    reply: Mapping[str, Any] | None = None
    pictures: Sequence[bytes] = ()
    out: str = ""
    err: str = ""
    stopped: str = ""
    """Which limit stopped it: `time`, `output`, `memory`, `processes`; empty if none did."""
    ended: str = ""
    """Why the worker is gone; empty if it lives on."""


@dataclass(slots=True)
class _End:
    reason: str = "died"
    detail: str = ""
    out: str = ""
    err: str = ""


class CannotStart(Exception):
    """A worker did not start; its text says why."""

    def __init__(self, why: str, *, is_silent: bool = False) -> None:
        super().__init__(why)
        self.is_silent = is_silent
        """Whether the fork server has ended, so that no reason is known."""


class Worker:
    """A running worker. Made by `start_worker`."""

    def __init__(self, folder: Path, limits: Limits, control: socket.socket) -> None:
        self.folder, self._limits, self._socket = folder, limits, control
        self._guard = 0
        self._reason = ""
        self._gone: asyncio.Future[_End] = asyncio.get_running_loop().create_future()
        self._is_ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._collected: asyncio.Future[dict[str, Any]] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._channel: Channel | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._channel is not None and not self._gone.done()

    async def begin(self, config: Mapping[str, Any]) -> None:
        """Connect, and wait until the kernel answers.

        Raises:
            CannotStart: It does not.
        """
        reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=_MOST_IN_LINE)
        self._listening = asyncio.create_task(self._listen(reader))
        self._order(json.dumps(config))
        await self._first(self._is_ready, _START_PATIENCE_S)
        if not self._is_ready.done():
            end = self._gone.result() if self._gone.done() else _End(detail="it took too long")
            said = " ".join(f"{end.detail} {end.err}".split())
            is_silent = end == _End()
            raise CannotStart(
                f"The worker did not start: {said[-500:] or end.reason}", is_silent=is_silent
            )
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancel that comes with the answer.
            async with asyncio.timeout(_START_PATIENCE_S):
                self._channel = await open_channel(self.folder / "k-1", config["key"])
        except (BadMessage, OSError, EOFError, TimeoutError) as error:
            raise CannotStart(f"The worker's kernel did not answer: {error}") from None

    async def run(self, code: str) -> Outcome:
        """Run a cell. A cancellation stops it, and is raised after that, within two seconds."""
        asking = self._asked("agentnb_run", {"code": code})
        try:
            await self._first(asking, self._limits.time_s)
            stopped, said = "", None
            if not asking.done() and not self._gone.done():
                stopped = "time"
                said = await self._stop_call(asking)
            return await self._outcome(asking, stopped, said)
        except asyncio.CancelledError:
            await to_its_end(self._stop_call(asking))
            raise
        finally:
            asking.cancel()

    async def harvest(self, mentioned: Sequence[str]) -> Returned:
        """What its names are bound to. The worker lives on if it answers in time."""
        asking = self._asked("agentnb_harvest", {"mentioned": list(mentioned)})
        try:
            await self._first(asking, _HARVEST_PATIENCE_S)
            if not asking.done() or asking.exception() is not None:
                await self.kill()
                return Returned(left_out={"*": "the worker did not write what it had in time"})
        finally:
            asking.cancel()
        file, most = self.folder / "left", self._limits.memory
        until = time.monotonic() + _READ_PATIENCE_S
        return await run_in_thread(lambda: read_returned(file, most=most, until=until))

    async def kill(self, reason: str = "") -> None:
        """End the worker and all that it started; wait until they are gone.

        Args:
            reason: The message for a call that still runs.
        """
        self._reason = reason
        try:
            with suppress(OSError, RuntimeError):
                self._order("stop")
            await asyncio.wait({self._gone}, timeout=_END_PATIENCE_S)
            if not self._gone.done() and self._guard:
                # The code has stopped its guard. If that is killed, the fork server ends all below.
                with suppress(OSError):
                    os.kill(self._guard, signal.SIGKILL)
                await asyncio.wait({self._gone}, timeout=_END_PATIENCE_S)
        finally:  # also if the end of this process cancels it
            self.abandon()
        await run_in_thread(lambda: remove(self.folder))

    def abandon(self, reason: str = "died") -> None:
        """Close the connections. The guard ends all, and itself."""
        if self._channel is not None:
            self._channel.close()
        if self._writer is not None:
            self._writer.transport.abort()
        else:
            self._socket.close()
        if self._listening is not None:
            self._listening.cancel()
        if not self._gone.done():
            self._gone.set_result(_End(reason))

    # -- inside ------------------------------------------------------------------------------------

    def _asked(self, kind: str, content: Mapping[str, Any]) -> asyncio.Task[Reply]:
        assert self._channel is not None
        asking = asyncio.create_task(self._channel.ask(kind, content))
        asking.add_done_callback(retrieve_error)  # it is handled elsewhere, if it matters
        return asking

    async def _first(self, awaited: asyncio.Future[Any], patience_s: float) -> None:
        """Wait for something, or for the worker's end, but not too long."""
        either: set[asyncio.Future[Any]] = {awaited, self._gone}
        await asyncio.wait(either, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)

    async def _stop_call(self, asking: asyncio.Task[Reply]) -> dict[str, Any] | None:
        """Interrupt the call; kill the worker if that does not end all of it.

        Returns what the call printed, as far as it was collected. Where the worker lives on it has
        to be, also if nobody asks for it: the next call would have it.
        """
        if not self._gone.done():
            with suppress(OSError):
                self._order("interrupt")
            await self._first(asking, INTERRUPT_PATIENCE_S)
        if self._gone.done():
            return None
        said = None
        if asking.done() and not asking.cancelled() and asking.exception() is None:
            if not asking.result().content.get("threads"):
                said = await self._collect()
                if not said.get("processes"):
                    return said
        await self.kill()
        return said

    async def _outcome(
        self, asking: asyncio.Task[Reply], stopped: str, said: dict[str, Any] | None
    ) -> Outcome:
        """The outcome of a call that is over.

        Args:
            asking: The call.
            stopped: Which limit stopped it; empty if none did.
            said: What it printed, if it has been collected already.
        """
        error = asking.exception() if asking.done() and not asking.cancelled() else None
        if error is not None and not self._gone.done():
            # The connection breaks when the worker dies: give its guard time to report the reason.
            await asyncio.wait({self._gone}, timeout=INTERRUPT_PATIENCE_S)
        if self._gone.done() or error is not None or not asking.done():
            if not self._gone.done():
                await self.kill()
            end = self._gone.result()
            is_limit = end.reason in ("output", "memory", "processes")
            reason = self._reason or end.detail or end.reason
            if isinstance(error, BadMessage) and not is_limit:
                reason = str(error)
            self.abandon()
            stopped = stopped or (end.reason if is_limit else "")
            before = said or {"out": "", "err": ""}
            out, err = before["out"] + end.out, before["err"] + end.err
            return Outcome(out=out, err=err, stopped=stopped, ended=reason)
        reply = asking.result()
        said = said or await self._collect()
        if said.get("flooded"):
            stopped = "output"
        return Outcome(reply.content, reply.buffers, said["out"], said["err"], stopped)

    async def _collect(self) -> dict[str, Any]:
        """What was printed since the last time, and how many processes the code left."""
        self._collected = asyncio.get_running_loop().create_future()
        with suppress(OSError):
            self._order("collect")
        await self._first(self._collected, _COLLECT_PATIENCE_S)
        said = self._collected.result() if self._collected.done() else {}
        return {"out": "", "err": "", **said}

    def _order(self, order: str) -> None:
        assert self._writer is not None
        self._writer.write(order.encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        end = _End()
        try:
            while line := await reader.readline():
                said = json.loads(line)
                if "ready" in said and not self._is_ready.done():
                    self._guard = int(said["guard"])  # no code of an agent has run so far
                    self._is_ready.set_result(int(said["ready"]))
                elif "collected" in said and self._collected and not self._collected.done():
                    collected = _printed(said["collected"])
                    flooded = said["collected"].get("flooded") is True
                    processes = int(said["processes"])
                    more = {"flooded": flooded, "processes": processes}
                    self._collected.set_result({**collected, **more})
                elif "ended" in said:
                    detail = str(said.get("detail", ""))[:1_000]
                    end = _End(str(said["ended"])[:100], detail, **_printed(said))
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            pass  # the guard would not write this: code writes in its place
        except (ArithmeticError, RecursionError):
            pass  # nor would the guard write such a number, or so deep a list
        finally:
            if not self._gone.done():
                self._gone.set_result(end)


async def to_its_end(work: Coroutine[Any, Any, object]) -> None:
    """Await something that must be finished, however often this is cancelled."""
    task = asyncio.create_task(work)
    cancelled = await wait_shielded([task])
    if cancelled is not None:
        retrieve_error(task)
        raise cancelled
    task.result()


def _printed(said: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(said[name][0])[:100_000] for name in ("out", "err") if name in said}


@dataclass(slots=True)
class WorkerPlan:
    """The configuration that all workers of a run share."""

    limits: Limits
    cwd: str
    data: int | None = None
    data_size: int = 0
    index: Mapping[str, Any] = field(default_factory=dict)


async def start_worker(
    server: ForkServer, plan: WorkerPlan, names: Sequence[str], folder: Path
) -> Worker:
    """Start a worker that has some of the given names.

    Raises:
        CannotStart: It did not start. Only its folder may be left.
    """
    try:
        ours, theirs = connection()
    except OSError as error:
        raise CannotStart(f"The worker did not start: {error}") from None
    worker = Worker(folder, plan.limits, ours)
    key = secrets.token_hex(16)
    limits = plan.limits
    config = {
        "folder": str(folder),
        "key": key,
        "cwd": plan.cwd,
        "path": import_path(),
        "given": {name: plan.index[name] for name in names if name in plan.index},
        "data_size": plan.data_size,
        "memory": limits.memory,
        "most_printed": limits.most_printed,
        "most_output": limits.most_output,
        "most_processes": limits.most_processes,
    }
    try:
        with theirs:
            server.fork(theirs, plan.data)
        await worker.begin(config)
    except OSError as error:
        worker.abandon()
        raise CannotStart(f"The worker did not start: {error}", is_silent=True) from None
    except BaseException:
        worker.abandon()
        raise
    return worker


def remove(*folders: Path) -> None:
    """Remove workers' folders, whatever their code left there. Blocking."""
    for folder in folders:
        with suppress(Exception):  # a very deep one is a `RecursionError`
            shutil.rmtree(folder, ignore_errors=True)


def private_folder() -> Path:
    """A new folder that only this user can enter, with a path that leaves room for a socket's."""
    folder = tempfile.mkdtemp(prefix="agentnb-worker-")
    if len(folder) > _LONGEST_FOLDER:
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="agentnb-worker-", dir="/tmp")
    return Path(folder)
