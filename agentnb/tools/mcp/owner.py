"""One server of a session: one task connects it, makes its calls, and closes it.

The SDK's scopes must be entered and left by the same task, so a call is an order that the owner's
task takes from a queue. Whoever waits for an order may be cancelled at any moment: the order is
then given up at once, and the server is told so by the owner, for which nobody waits.
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
        self._link: _Link | None = None
        self._left = RECONNECTS
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
        link = await self._connected()
        try:
            return await link.do(work)
        except ServerGone:
            if not is_harmless:
                raise
        return await (await self._connected()).do(work)

    async def _connected(self) -> _Link:
        """The connection; a new one if there is none, or if that has died."""
        link = self._link
        if link is not None and link.is_going:
            await link.over.wait()  # its process must not run beside the next one
        if self._link is link and (link is None or link.is_going):
            if link is not None:
                if self._left <= 0:
                    raise ServerGone(f"{link.why}. It is not started once more before the next run")
                self._left -= 1
            self._link = _Link(self.server)
        link = self._link
        if link is None:
            raise ServerGone("it was closed")
        await link.connected()
        return link

    # -- who uses it ------------------------------------------------------------------------------

    def take(self) -> None:
        """A run begins to use it: what died before is connected once more."""
        self._users += 1
        is_dead = self._link is not None and self._link.is_going
        self._left = RECONNECTS + is_dead
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release(self) -> None:
        """A run uses it no more."""
        self._users -= 1
        if self._users > 0:
            return
        if self._link is not None and not self._link.is_connected:
            self._link.leave()  # nobody waits any more for what may never answer
            return
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._leave_if_idle)

    def _leave_if_idle(self) -> None:
        self._timer = None
        if self._users <= 0 and self._link is not None:
            self._link.leave()  # kept: the next connection waits until this one is over

    async def aclose(self) -> None:
        """Close it, whatever it is doing."""
        if self._timer is not None:
            self._timer.cancel()
        link, self._link = self._link, None
        if link is not None:
            link.leave()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_PATIENCE_S):
                    await link.over.wait()


class _Order(Generic[T]):
    """Something to do with the server, and who waits for it."""

    def __init__(self, work: Callable[[Client], Awaitable[T]]) -> None:
        self.work = work
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.give_up: Callable[[], object] = lambda: None

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Link:
    """One connection, from its start to its end, and the task that owns it."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._orders: asyncio.Queue[_Order[Any] | None] = asyncio.Queue()
        self._open: set[_Order[Any]] = set()
        self._settled = asyncio.Event()
        self.over = asyncio.Event()
        """Set when nothing of it is left."""
        self.is_connected = self.is_going = False
        """Whether it can be spoken to, and whether it could be."""
        self.why = ""
        """Why it ended."""
        self._task = asyncio.get_running_loop().create_task(
            self._own(), name=f"agentnb-mcp-{server.name}"
        )

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
        if self.is_going:
            await self.over.wait()
            raise ServerGone(self.why)
        order = _Order(work)
        self._open.add(order)
        self._orders.put_nowait(order)
        try:
            return await order.answer
        finally:
            self._open.discard(order)
            order.give_up()

    def leave(self) -> None:
        """Have it closed. Returns at once. A second call does nothing."""
        if not self.is_going and not self._settled.is_set():
            self._task.cancel()  # only once: what it then does must not be cancelled
        self._gone()

    def _gone(self) -> None:
        """It cannot be spoken to any more, or is being closed."""
        self.is_going = True
        self._orders.put_nowait(None)

    # -- the owner's task -------------------------------------------------------------------------

    async def _own(self) -> None:
        said = None
        try:
            await run_in_thread(transport.load_sdk)
            said = transport.Said()
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(transport.CONNECT_S):
                        client = await stack.enter_async_context(
                            transport.connected(self._server, said, self._gone)
                        )
                except TimeoutError:
                    self.why = f"it did not answer within {transport.CONNECT_S:g} s"
                    raise
                self.is_connected = True
                self._settled.set()
                await self._work(client)
            self.why = self.why or said.why
        except BaseException as error:  # the SDK's, the operating system's, or our own cancellation
            self.why = why_of(self.why, error, said)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._end()

    async def _work(self, client: Client) -> None:
        """Do what is ordered, all at once, until the server is gone or is to be left."""
        import anyio

        async with anyio.create_task_group() as orders:
            while (order := await self._orders.get()) is not None:
                if not order.answer.done():
                    orders.start_soon(self._do, client, order)
            orders.cancel_scope.cancel()

    async def _do(self, client: Client, order: _Order[Any]) -> None:
        import anyio
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        with anyio.CancelScope() as scope:
            order.give_up = scope.cancel
            try:
                value = await order.work(client)
            except MCPError as error:
                if error.message == _FORGOTTEN:
                    self.why = "it has forgotten this session, as after a restart"
                    self._gone()
                elif (error.code, error.message) == (CONNECTION_CLOSED, _CLOSED):
                    self._gone()  # why, is known when the connection has ended
                else:
                    order.fail(error)
            except Exception as error:
                order.fail(error)
            else:
                if not order.answer.done():
                    order.answer.set_result(value)

    def _end(self) -> None:
        self.is_connected, self.is_going = False, True
        self.why = self.why or "it was closed"
        self._settled.set()
        self.over.set()
        for order in self._open:
            order.fail(ServerGone(self.why))
