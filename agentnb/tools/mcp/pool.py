"""The servers of a session, and what one run sees of them.

A run's list of a server's tools stands from its beginning to its end; the next run asks anew. A run
that is replayed or recovered has the list of its record: what models were sent must not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from agentnb.core.cancel import Cancellation
from agentnb.core.errors import McpServerFailed, MissingExtra
from agentnb.core.protocols import Tool
from agentnb.core.shown import listed
from agentnb.core.text import literal
from agentnb.tools.mcp.owner import Owner, ServerGone
from agentnb.tools.mcp.server import McpServer, McpToolName
from agentnb.tools.mcp.tool import Described, McpTool, listed_by
from agentnb.tools.mcp.wording import why_of

MCP = "mcp"
"""Where a run's settings keep the tools of its servers."""


class Servers:
    """The servers of one session, shared by its runs. All but `is_empty` is for the loop."""

    def __init__(self) -> None:
        self._owners: dict[McpServer, Owner] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no run has needed a server so far."""
        return not self._owners

    def owner(self, server: McpServer) -> Owner:
        """The one owner of a server."""
        self._leave_those_of_another_loop()
        return self._owners.setdefault(server, Owner(server))

    def _leave_those_of_another_loop(self) -> None:
        """In a forked process: they belong to the one that it came from."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._owners, self._loop = {}, loop

    async def aclose(self) -> None:
        """Close all servers. A run that still needs one connects it anew."""
        self._leave_those_of_another_loop()
        owners = list(self._owners.values())
        self._owners.clear()
        await asyncio.gather(*(each.aclose() for each in owners))


class RunServers:
    """The servers that one run needs.

    Args:
        servers: Those of the session.
        is_replay: Whether no server may be started.
    """

    def __init__(self, servers: Servers, *, is_replay: bool = False) -> None:
        self._servers = servers
        self._recorded: Mapping[str, Any] | None = None
        self._is_replay = is_replay
        self._wanted: dict[str, McpServer] = {}
        self._owners: list[Owner] = []
        self._tools: dict[str, tuple[Described, ...]] = {}
        self._failed: dict[str, str] = {}

    def want(self, tools: Iterable[object]) -> None:
        """Note the servers that some tools are of, or stand for. Before the run begins.

        Raises:
            MissingExtra: There is one, and the SDK is not installed.
            ValueError: Two of them have one name.
        """
        for tool in tools:
            server = tool.server if isinstance(tool, McpToolName) else tool
            if not isinstance(server, McpServer):
                continue
            if not self._is_replay and find_spec("mcp") is None:
                raise MissingExtra("The package `mcp`", extra="mcp")
            if self._wanted.setdefault(server.name, server) != server:
                raise ValueError(
                    f"Two MCP servers have the name {literal(server.name)}: give one of them "
                    "another, by `agentnb.mcp(..., name=...)`."
                )

    def take_from(self, recorded: Mapping[str, Any] | None) -> None:
        """Take the tools from the run's record, and ask no server for them.

        Args:
            recorded: What `as_plain` kept; `None` if nothing was.
        """
        self._recorded = recorded

    @property
    def wanted(self) -> Collection[McpServer]:
        """The servers."""
        return self._wanted.values()

    # -- while the run lasts ----------------------------------------------------------------------

    async def open(self, cancellation: Cancellation) -> None:
        """Connect the servers and have them list their tools, all at once.

        Returns early if the run is cancelled. What fails is told by `tools`.
        """
        if not self._wanted:
            return
        if not self._is_replay:
            self._owners = [self._servers.owner(each) for each in self._wanted.values()]
            for owner in self._owners:
                owner.take()
        if self._recorded is not None or self._is_replay:
            for name in self._wanted:
                kept = (self._recorded or {}).get(name, ())
                self._tools[name] = tuple(map(Described.from_plain, kept))
            return
        cancelled = asyncio.ensure_future(cancellation.root_cancelled())
        opening = [asyncio.ensure_future(self._list(owner)) for owner in self._owners]
        try:
            pending: set[asyncio.Future[None]] = set(opening)
            while pending and not cancelled.done():
                _, rest = await asyncio.wait(
                    {cancelled, *pending}, return_when=asyncio.FIRST_COMPLETED
                )
                pending = rest - {cancelled}
        finally:
            for task in (cancelled, *opening):
                task.cancel()
            await asyncio.wait((cancelled, *opening))

    async def _list(self, owner: Owner) -> None:
        name = owner.server.name
        try:
            async with asyncio.timeout(LIST_S):
                self._tools[name] = await listed_by(owner)
        except ServerGone as gone:
            self._failed[name] = str(gone)
        except TimeoutError:
            self._failed[name] = f"it did not list its tools within {LIST_S:g} s"
        except Exception as error:
            self._failed[name] = why_of("", error, None)

    def release(self) -> None:
        """The run is over."""
        for owner in self._owners:
            owner.release()
        self._owners = []

    # -- what it sees -----------------------------------------------------------------------------

    def tools(self, given: Iterable[Tool]) -> tuple[Tool, ...]:
        """Some tools, with those of the servers in place of what stands for them, each once.

        Raises:
            McpServerFailed: A server cannot be used, or has no such tool.
        """
        found: dict[str, Tool] = {}
        for tool in given:
            match tool:
                case McpServer():
                    made: Iterable[Tool] = self._made(tool)
                case McpToolName(server, name):
                    of_server = {each.spec.name: each for each in self._made(server)}
                    if name not in of_server:
                        raise McpServerFailed(server.name, _no_such(name, of_server))
                    made = (of_server[name],)
                case _:
                    made = (tool,)
            for each in made:
                found.setdefault(each.spec.name, each)
        return tuple(found.values())

    def _made(self, server: McpServer) -> list[McpTool]:
        if server.name in self._failed:
            raise McpServerFailed(server.name, self._failed[server.name])
        if server.name not in self._tools:
            raise McpServerFailed(server.name, "the run was cancelled before it answered")
        owner = None if self._is_replay else self._servers.owner(server)
        return [McpTool(server, each, owner) for each in self._tools[server.name]]

    def gated(self, names: Collection[str]) -> frozenset[str]:
        """Names of tools that need approval, with those of a server added to its own name.

        Raises:
            McpServerFailed: A server has no such tool: with a typo a name would let one through.
        """
        all_names = set(names)
        for name in names:
            for server in self._wanted.values():
                of_server = [each.spec.name for each in self._tools.get(server.name, ())]
                if name == server.name:
                    all_names.update(of_server)
                elif server.one(name) and name not in of_server and server.name in self._tools:
                    raise McpServerFailed(server.name, _no_such(name, of_server))
        return frozenset(all_names)

    def as_plain(self) -> dict[str, Any]:
        """The tools of the servers, as they are kept with the run; empty without any."""
        if not self._tools:
            return {}
        return {MCP: {name: [e.as_plain() for e in tools] for name, tools in self._tools.items()}}


LIST_S = 40.0
"""Seconds in which a server has to be connected, and connected once more, and to list its tools."""


def _no_such(name: str, known: Iterable[str]) -> str:
    return f"it has no tool {literal(name)} (known: {listed(map(literal, known))})"
