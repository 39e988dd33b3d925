"""The ways to a server, as the SDK takes them: a pair of streams of messages.

The SDK's own way to a command waits up to seven seconds for its end, logs a traceback for each line
that is no message, and reads lines of any length. This one does none of that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentnb.core.text import one_line
from agentnb.tools.mcp.listing import Incoming, ToolLists
from agentnb.tools.mcp.process import MOST_OF_LINE, LineTooLong, ServerProcess

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.message import SessionMessage

    from agentnb.tools.mcp.server import McpServer

CONNECT_S = 20.0
"""Seconds in which a server has to be connected, and to list its tools."""
_CLOSE_S = 0.5
"""Seconds in which a server is told by HTTP that it is needed no more."""
_GARBAGE = 2**20
"""Bytes without a message after which reading slows down."""
_PAUSE_S = 0.05
_REFUSED = (401, 403)
"""Of HTTP: a key is missing, or is not the right one."""

# What goes wrong is in our errors; without a handler logging would print tracebacks to a notebook.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class EndReason:
    """How a connection ended, in words, once that is known."""

    def __init__(self) -> None:
        self.why = ""
        self.errors = ""
        """The last lines of a command's error output, or a refusal by HTTP."""


@asynccontextmanager
async def connected(
    server: McpServer, reason: EndReason, gone: Callable[[], object]
) -> AsyncIterator[Client]:
    """Connect a server. To be entered and left by one task.

    Args:
        server: The server.
        reason: Takes why it ended.
        gone: Called when it cannot be spoken to any more; also while it is left.

    Raises:
        OSError, KeyError: It cannot be started.
        Exception: It does not speak MCP.
    """
    from mcp import Client
    from mcp.types import Implementation

    transport = _by_http(server, reason) if server.url else _by_pipes(server, reason, gone)
    lists = ToolLists(server.name)
    # No cache: each run lists the tools anew.
    client = Client(
        _with_fit_lists(transport, lists),
        cache=None,
        client_info=Implementation(name="agentnb", version=_version()),
    )
    async with client:
        lists.version = client.protocol_version
        yield client


@asynccontextmanager
async def _with_fit_lists(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], lists: ToolLists
) -> AsyncIterator[tuple[Any, Any]]:
    async with transport as (incoming, outgoing):
        yield Incoming(incoming, lists), outgoing


def load_sdk() -> None:
    """Import what the functions below import, which takes most of a second."""
    import mcp.client.stdio
    import mcp.client.streamable_http
    import mcp.types  # noqa: F401


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("agentnb")
    except PackageNotFoundError:  # it is run from its sources
        return "0"


# -- a command ------------------------------------------------------------------------------------


@asynccontextmanager
async def _by_pipes(
    server: McpServer, reason: EndReason, gone: Callable[[], object]
) -> AsyncIterator[tuple[Any, Any]]:
    import anyio
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage

    env = get_default_environment() | server.values(server.env)
    process = ServerProcess(server.command, env, server.folder, gone)
    try:
        await process.connect()
        incoming, to_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        from_client, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        errors_read = anyio.Event()

        async def read() -> None:
            async with incoming:
                await _read(process, incoming)
            gone()

        async def read_errors() -> None:
            await process.read_errors()
            errors_read.set()

        async def write() -> None:
            async with outgoing:
                async for each in outgoing:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.write(text.encode() + b"\n")

        async with anyio.create_task_group() as pipes:
            pipes.start_soon(read)
            pipes.start_soon(read_errors)
            pipes.start_soon(write)
            try:
                yield to_client, from_client
            finally:
                reason.errors = process.said
                to_client.close()
                from_client.close()
                with anyio.CancelScope(shield=True):
                    await process.end()
                    with anyio.move_on_after(0.1):  # for its last words
                        await errors_read.wait()
                reason.why, reason.errors = process.why, process.said
                pipes.cancel_scope.cancel()
    finally:
        process.kill()


async def _read(process: ServerProcess, incoming: Any) -> None:
    """Hand on the messages of a server's output, to its end; drop what is none."""
    import anyio

    garbage, is_wanted = 0, True
    try:
        async for line in process.lines():
            message = _message_in(line) if is_wanted else None
            if message is None:
                garbage += len(line) + 1
                if garbage > _GARBAGE:  # a flood must not take all of the loop's time
                    garbage = 0
                    await anyio.sleep(_PAUSE_S)
                continue
            garbage = 0
            try:
                await incoming.send(message)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                is_wanted = False  # go on reading: who cannot write does not end
    except LineTooLong:
        process.trouble = f"it sent a message of more than {MOST_OF_LINE // 2**20} MiB"


def _message_in(line: bytes) -> SessionMessage | None:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:  # pydantic's, too
        return _error_for(line)


def _error_for(line: bytes) -> SessionMessage | None:
    """An error in place of an answer that is no message: who asked would wait for it in vain."""
    from mcp.shared.message import SessionMessage
    from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError

    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    answered = found.get("id")
    if "method" in found or isinstance(answered, bool) or not isinstance(answered, int | str):
        return None
    error = ErrorData(code=INTERNAL_ERROR, message="what it answered is no message of the protocol")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=answered, error=error))


# -- HTTP -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _by_http(server: McpServer, reason: EndReason) -> AsyncIterator[tuple[Any, Any]]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    # Without a limit between two bytes: a call has its own limit, and an idle stream none.
    limits = httpx2.Timeout(CONNECT_S, read=None)
    headers = server.values(server.headers)
    # No proxy is asked for what is on this machine.
    is_here = urlsplit(server.url).hostname in ("localhost", "127.0.0.1", "::1")

    async def note_refusal(response: httpx2.Response) -> None:
        if response.status_code in _REFUSED:  # the SDK does not tell which status it was
            reason.errors = one_line(f"HTTP {response.status_code} {response.reason_phrase}")

    async with httpx2.AsyncClient(
        headers=headers,
        timeout=limits,
        trust_env=not is_here,
        event_hooks={"response": [note_refusal]},
    ) as client:
        async with streamable_http_client(server.url, http_client=client) as streams:
            try:
                yield streams
            finally:
                client.timeout = httpx2.Timeout(_CLOSE_S)
