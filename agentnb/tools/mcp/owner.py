"""One server of a session: one task connects it, makes its calls, and closes it.

The SDK's scopes must be entered and left by the same task, so a call is a request that the owner's
task takes from a queue. The caller may be cancelled at any moment: its request is then given up at
once, and the owner tells the server so, without the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentnb.core.threads import run_in_thread
from agentnb.tools.mcp import transport
from agentnb.tools.mcp.wording import why_of

if TYPE_CHECKING:
    from mcp import Client

    from agentnb.tools.mcp.server import McpServer

T = TypeVar("T")

IDLE_S = 300.0
"""Seconds without a run after which a server is closed."""
CLOSE_PATIENCE_S = 3.0
RECONNECTS = 1
"""How often a server that died is connected again, until another run begins."""

_CLOSED = "Connection closed"
"""The SDK's words where its end of a connection is over: its code, -32000, servers use as well."""
_FORGOTTEN = "Session terminated"
"""The SDK's words for a server that answers 404: a connection that will never work again."""


class ServerGone(Exception):
    """A server cannot be spoken to; the message says why."""


class Owner:
    """Keeps one server connected. For the runtime's loop only.

    Args:
        server: The server.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._connection: _Connection | None = None
        self._reconnects_left = RECONNECTS
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None

    async def do(self, work: Callable[[Client], Awaitable[T]], *, is_harmless: bool = False) -> T:
        """Have the owner's task do something with the server, connecting it first if need be.

        Args:
            work: What is done. A cancel of this coroutine cancels it, and waits for nothing.
            is_harmless: Whether it may be done once more if the server dies meanwhile.

        Raises:
            ServerGone: The server could not be connected, or died meanwhile.
            Exception: What `work` raises.
        """
        connection = await self._connected()
        try:
            return await connection.do(work)
        except ServerGone:
            if not is_harmless:
                raise
        return await (await self._connected()).do(work)

    async def _connected(self) -> _Connection:
        """The connection; a new one if there is none, or if that has died."""
        connection = self._connection
        if connection is not None and connection.is_closing:
            await connection.closed.wait()  # its process must not run beside the next one
        if self._connection is connection and (connection is None or connection.is_closing):
            if connection is not None:
                if self._reconnects_left <= 0:
                    raise ServerGone(
                        f"{connection.why}. It is not started once more before the next run"
                    )
                self._reconnects_left -= 1
            self._connection = _Connection(self.server)
        connection = self._connection
        if connection is None:
            raise ServerGone("it was closed")
        await connection.connected()
        return connection

    # -- who uses it ------------------------------------------------------------------------------

    def take(self) -> None:
        """A run begins to use it: what died before is connected once more."""
        self._users += 1
        is_dead = self._connection is not None and self._connection.is_closing
        self._reconnects_left = RECONNECTS + is_dead
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release(self) -> None:
        """A run uses it no more."""
        self._users -= 1
        if self._users > 0:
            return
        if self._connection is not None and not self._connection.is_connected:
            self._connection.close()  # it may never answer
            return
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._timer = None
        if self._users <= 0 and self._connection is not None:
            self._connection.close()  # kept: the next connection waits until this one is over

    async def aclose(self) -> None:
        """Close it, whatever it is doing."""
        if self._timer is not None:
            self._timer.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_PATIENCE_S):
                    await connection.closed.wait()


class _Request(Generic[T]):
    """Something to do with the server, and the answer that its caller awaits."""

    def __init__(self, work: Callable[[Client], Awaitable[T]]) -> None:
        self.work = work
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.give_up: Callable[[], object] = lambda: None

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Connection:
    """One connection, from its start to its end, and the task that owns it."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._requests: asyncio.Queue[_Request[Any] | None] = asyncio.Queue()
        self._open: set[_Request[Any]] = set()
        self._settled = asyncio.Event()
        self.closed = asyncio.Event()
        """Set when nothing of it is left."""
        self.is_connected = self.is_closing = False
        """Whether it can be spoken to, and whether it could be."""
        self.why = ""
        """Why it ended."""
        self._task = asyncio.get_running_loop().create_task(
            self._own(), name=f"agentnb-mcp-{server.name}"
        )
        # Not in the task's `finally`: a task that is cancelled before its first step has none.
        self._task.add_done_callback(lambda _: self._settle())

    async def connected(self) -> None:
        """Wait until it is connected.

        Raises:
            ServerGone: It could not be.
        """
        await self._settled.wait()
        if not self.is_connected:
            raise ServerGone(self.why)

    async def do(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the server. See `Owner.do`."""
        if self.is_closing:
            await self.closed.wait()
            raise ServerGone(self.why)
        request = _Request(work)
        self._open.add(request)
        self._requests.put_nowait(request)
        try:
            return await request.answer
        finally:
            self._open.discard(request)
            request.give_up()

    def close(self) -> None:
        """Begin to close it. Returns at once. A second call does nothing."""
        if not self.is_closing and not self._settled.is_set():
            self._task.cancel()  # only once: what it then does must not be cancelled
        self._gone()

    def _gone(self) -> None:
        """It cannot be spoken to any more, or is being closed."""
        self.is_closing = True
        self._requests.put_nowait(None)

    # -- the owner's task -------------------------------------------------------------------------

    async def _own(self) -> None:
        reason = None
        try:
            await run_in_thread(transport.load_sdk)
            reason = transport.EndReason()
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(transport.CONNECT_S):
                        client = await stack.enter_async_context(
                            transport.connected(self._server, reason, self._gone)
                        )
                except TimeoutError:
                    self.why = f"it did not answer within {transport.CONNECT_S:g} s"
                    raise
                self.is_connected = True
                self._settled.set()
                await self._work(client)
            self.why = self.why or reason.why
        except BaseException as error:  # the SDK's, the operating system's, or our own cancellation
            self.why = why_of(self.why, error, reason)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _work(self, client: Client) -> None:
        """Do what is requested, all at once, until the connection is to be closed."""
        import anyio

        async with anyio.create_task_group() as requests:
            while (request := await self._requests.get()) is not None:
                if not request.answer.done():
                    requests.start_soon(self._do, client, request)
            requests.cancel_scope.cancel()

    async def _do(self, client: Client, request: _Request[Any]) -> None:
        import anyio
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        with anyio.CancelScope() as scope:
            request.give_up = scope.cancel
            try:
                value = await request.work(client)
            except MCPError as error:
                if error.message == _FORGOTTEN:
                    self.why = "it has forgotten this session, as after a restart"
                    self._gone()
                elif (error.code, error.message) == (CONNECTION_CLOSED, _CLOSED):
                    self._gone()  # why, is known when the connection has ended
                else:
                    request.fail(error)
            except Exception as error:
                request.fail(error)
            else:
                if not request.answer.done():
                    request.answer.set_result(value)

    def _settle(self) -> None:
        """Nothing of it is left: tell all that wait."""
        self.is_connected, self.is_closing = False, True
        self.why = self.why or "it was closed"
        self._settled.set()
        self.closed.set()
        for request in self._open:
            request.fail(ServerGone(self.why))
