"""A server's process: its three pipes, and its whole process group.

Whatever becomes of the run, the group is gone in the end: `end` asks politely first, `kill` does
not ask, and what is alive when this process exits is ended before the interpreter is. Pipes are
read all the time, so that a server never blocks on unread output, and little of it is kept.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

from agentnb.core.secrets import masked
from agentnb.core.text import one_line

EOF_PATIENCE_S = 0.4
"""Seconds that a server has to end once its input is closed."""
TERM_PATIENCE_S = 0.3
"""Seconds that it has after SIGTERM. Both together are less than the runtime waits at exit."""
REAP_PATIENCE_S = 0.5
MOST_OF_LINE = 32 * 2**20
"""Most bytes of one message."""
MOST_UNREAD = 64 * 2**20
"""Most bytes that wait for a server that does not read its input."""
_CHUNK = 65_536
_TAIL = 4_096
"""Bytes of its error output that are kept."""
_LINES_SHOWN = 5
_STEP_S = 0.01

_alive: set[ServerProcess] = set()
_is_exiting = False


class LineTooLong(Exception):
    """A message has more than `MOST_OF_LINE` bytes."""


class ServerProcess:
    """A started server.

    Args:
        command: The program and its arguments.
        env: Its whole environment.
        folder: Where it is started.
        gone: Called when the server cannot be spoken to any more.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        folder: str | None,
        gone: Callable[[], object],
    ) -> None:
        if sys.platform == "win32":
            raise OSError("servers that are commands need Linux or macOS; give it a `url`")
        if _is_exiting:
            raise OSError("this process is about to end")
        # Not `asyncio.create_subprocess_exec`: a cancel inside it would leave the process behind.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=folder,
            start_new_session=True,  # a group of its own, which Ctrl-C in a terminal does not reach
            bufsize=0,
        )
        _alive.add(self)
        self._gone = gone
        self._stdin: asyncio.WriteTransport | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._stdout = asyncio.StreamReader(limit=_CHUNK)
        self._stderr = asyncio.StreamReader(limit=_CHUNK)
        self._tail = b""
        self._is_ending = self._was_killed = self._is_over = False
        self._made_by = os.getpid()
        self.trouble = ""
        """What is wrong with what it sends, or with what it does not read; empty for nothing."""
        self.has_closed = ""
        """Which of its pipes it has closed by itself; empty while it is connected."""

    async def connect(self) -> None:
        """Open its pipes on the running loop."""
        loop, process = asyncio.get_running_loop(), self._process
        for reader, pipe in ((self._stdout, process.stdout), (self._stderr, process.stderr)):
            made = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(lambda made=made: made, pipe)  # type: ignore[misc]
            self._transports.append(transport)
        stdin, _ = await loop.connect_write_pipe(lambda: _Input(self._input_lost), process.stdin)
        self._transports.append(stdin)
        self._stdin = stdin

    def _input_lost(self) -> None:
        if not self._is_ending:
            self.has_closed = self.has_closed or "input"
        self._gone()

    # -- what it says and is told -----------------------------------------------------------------

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of its output.

        Raises:
            LineTooLong: One does not end.
        """
        buffer = bytearray()
        while chunk := await self._stdout.read(_CHUNK):
            searched = len(buffer)
            buffer += chunk
            while (end := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                yield line
            if len(buffer) > MOST_OF_LINE:
                raise LineTooLong
        if buffer:
            yield bytes(buffer)
        if not self._is_ending:
            self.has_closed = "output"

    async def read_errors(self) -> None:
        """Keep the end of its error output."""
        while chunk := await self._stderr.read(_CHUNK):
            self._tail = (self._tail + chunk)[-_TAIL:]
            if len(chunk) == _CHUNK:  # a flood, which must not take all of the loop's time
                await asyncio.sleep(_STEP_S)

    def write(self, data: bytes) -> None:
        """Send it a message. Never blocks."""
        if self._stdin is None or self._stdin.is_closing():
            self._gone()
            return
        self._stdin.write(data)
        if self._stdin.get_write_buffer_size() > MOST_UNREAD:
            self.trouble = "it does not read what it is sent"
            self._gone()

    @property
    def said(self) -> str:
        """The last lines of its error output, on one line; empty if there are none."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        last = [line.strip() for line in lines if line.strip()][-_LINES_SHOWN:]
        return one_line(masked(" | ".join(last)), limit=500)

    @property
    def why(self) -> str:
        """How it ended by itself, in words, with what it said last; empty if it did not."""
        code, how = self._process.returncode, self.trouble
        if not how and self.has_closed:
            how = f"it closed its {self.has_closed}"
            if code is not None and not self._was_killed:
                ended = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
                how = f"it {ended}"
        return "; ".join((how, self.said)) if how and self.said else how

    # -- its end ----------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    async def end(self) -> None:
        """End the whole group: its input is closed first, then it is asked, then it is killed."""
        self._is_ending = True
        if self._stdin is not None:
            self._stdin.close()
        elif self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._exits_within(EOF_PATIENCE_S):
            self._was_killed = True
            self._signal(signal.SIGTERM)
            await self._exits_within(TERM_PATIENCE_S)
        self._signal(signal.SIGKILL)  # also what it has left in its group
        await self._exits_within(REAP_PATIENCE_S)

    def kill(self) -> None:
        """End the whole group at once, and close the pipes. A second call does nothing."""
        if self._is_over or os.getpid() != self._made_by:
            return  # a forked process throws its copy of our tasks away, which ends here
        self._signal(signal.SIGKILL)
        self._is_over = True
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._process.poll() is not None else REAP_PATIENCE_S)
        _alive.discard(self)
        for transport in self._transports:
            if not transport.is_closing():
                transport.close()
        # In the order of `connect`, which may have been cancelled after some of them.
        pipes = (self._process.stdout, self._process.stderr, self._process.stdin)
        for pipe in pipes[len(self._transports) :]:
            if pipe is not None:
                pipe.close()

    async def _exits_within(self, patience_s: float) -> bool:
        until = time.monotonic() + patience_s
        while self._process.poll() is None:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_STEP_S)
        return True

    def _signal(self, number: int) -> None:
        if not self._is_over:
            with suppress(ProcessLookupError, PermissionError):  # nothing is left of the group
                os.killpg(self.pid, number)


class _Input(asyncio.Protocol):
    """Hears when a server closes its input."""

    def __init__(self, gone: Callable[[], object]) -> None:
        self._gone = gone

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipe is closed, by this side or the other."""
        self._gone()


def end_all() -> None:
    """End what is alive, from any thread, and let nothing new be started.

    For the end of this process, if the loop did not come to it: it may be blocked for good.
    """
    global _is_exiting
    _is_exiting = True
    left = list(_alive)
    for each in left:
        each._signal(signal.SIGTERM)
    until = time.monotonic() + EOF_PATIENCE_S
    try:
        while any(each._process.poll() is None for each in left) and time.monotonic() < until:
            time.sleep(_STEP_S)
    finally:  # also after Ctrl-C, which ends only the wait
        for each in left:
            each._signal(signal.SIGKILL)
    for each in left:
        with suppress(subprocess.TimeoutExpired):
            each._process.wait(REAP_PATIENCE_S)


if hasattr(os, "register_at_fork"):
    # A forked process must not end the servers of the one that it came from.
    os.register_at_fork(after_in_child=_alive.clear)
