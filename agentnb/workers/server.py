"""The person's end of the fork server: starts it, asks for workers, and ends it.

The processes of a run end when their connections to this process close, so a kill of this process
ends them, too. A process that is forked from this one closes its copies of the connections at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress

from agentnb.core.threads import run_in_thread
from agentnb.workers.environment import worker_environment
from agentnb.workers.inside.descendants import end_all, marked

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); sys.argv.pop(1); "
    "from agentnb.workers.inside.fork_server import main; main(sys.argv[1:])"
)
_PATIENCE_S = 2.0
_POLL_S = 0.005

_connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def connection() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection: ours, which no forked process keeps, and a child's."""
    ours, theirs = socket.socketpair()
    _connections.add(ours)
    return ours, theirs


def import_path() -> list[str]:
    """This process's import paths. Python ignores those that are not strings."""
    return [each for each in sys.path if isinstance(each, str)]


class ForkServer:
    """The fork server of one run.

    Args:
        mark: Unique to the run: it is in the environment, or the arguments, of all its processes.
        at_work: How many workers compute at a time.
        preload: Modules that it imports before it forks.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, mark: str, *, at_work: int, preload: Sequence[str]) -> None:
        self._mark = mark
        self.has_workers = False
        """Whether it has started a worker, whose end `close` then waits for."""
        self._connection, theirs = connection()
        try:
            with theirs:
                # -P: what lies in the working folder is not imported in place of the interpreter's.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START, json.dumps(import_path()), mark, *preload],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=worker_environment(mark, at_work=at_work),
                    start_new_session=True,
                )
        except BaseException:
            self._connection.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it can fork."""
        return self._process.poll() is None

    def fork(self, control: socket.socket, data: int | None) -> None:
        """Have it fork a guard that serves the connection `control`.

        Raises:
            OSError: It has ended.
        """
        files = [control.fileno()] if data is None else [control.fileno(), data]
        socket.send_fds(self._connection, [b"f"], files)

    async def close(self) -> None:
        """End it and all that is left of the run's processes."""
        self._connection.close()
        # A server that is still importing would only notice afterwards.
        polls = int(_PATIENCE_S / _POLL_S) if self.has_workers else 0
        try:
            for _ in range(polls):
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(_POLL_S)
        finally:
            self.kill()
        # None is left, unless code has killed the processes that watch it.
        await run_in_thread(lambda: end_all(lambda: marked(self._mark)))

    def kill(self) -> None:
        """End it without waiting for its workers to end."""
        self._connection.close()
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)


def _close_in_forked_process() -> None:
    for each in list(_connections):
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_forked_process)
