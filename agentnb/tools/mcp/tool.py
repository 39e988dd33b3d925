"""A server's tools, as agents have them: from what the server lists, or from a run's record.

Names are `server__tool`, always: they do not depend on what else an agent has, and what needs
approval is known by its beginning. Schemas are the server's own. What a tool says of itself
(`readOnlyHint`, `destructiveHint`) is believed, so a person should know the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from agentnb.core.errors import ToolError
from agentnb.core.protocols import ToolContext
from agentnb.core.text import literal, sendable
from agentnb.core.types import ToolOutput, ToolSpec
from agentnb.tools.mcp.listing import log_left_out
from agentnb.tools.mcp.owner import Owner, ServerGone
from agentnb.tools.mcp.result import output_of
from agentnb.tools.mcp.server import McpServer
from agentnb.tools.mcp.wording import error_in_words

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as Listed

    from agentnb.core.questions import Question

LONGEST_NAME = 64
"""Characters that every provider accepts."""
LONGEST_DESCRIPTION = 4_000
LONGEST_SCHEMA = 100_000
"""Most characters of a schema, as JSON."""
MOST_TOOLS = 500
_DIGITS = 6


@dataclass(frozen=True)
class Described:
    """One tool, as its server describes it."""

    tool: str
    """Its name for the server."""
    spec: ToolSpec
    """For a model."""
    effects: bool = True
    """Whether it may change something."""
    asks: bool = False
    """Whether it says that it may destroy something."""

    def as_plain(self) -> dict[str, Any]:
        """As it is kept with a run."""
        return {
            "tool": self.tool,
            "name": self.spec.name,
            "description": self.spec.description,
            "schema": dict(self.spec.input_schema),
            "effects": self.effects,
            "asks": self.asks,
        }

    @classmethod
    def from_plain(cls, kept: Mapping[str, Any]) -> Described:
        """The inverse of `as_plain`."""
        spec = ToolSpec(kept["name"], kept["description"], kept["schema"])
        return cls(kept["tool"], spec, kept["effects"], kept["asks"])


class McpTool:
    """A tool of a server, for one run.

    Args:
        server: The server.
        described: The tool.
        owner: Makes its calls; `None` in a replay, in which no server is started.
    """

    def __init__(self, server: McpServer, described: Described, owner: Owner | None) -> None:
        self.server = server.name
        self.spec = described.spec
        self.effects = described.effects
        self.approval: bool | Callable[[Question], object] = (
            described.asks if server.approval is None else server.approval
        )
        self.timeout_s = server.timeout_s
        self._tool = described.tool
        self._owner = owner

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str | ToolOutput:
        """Have the server run it. See `agentnb.core.protocols.Tool`.

        Raises:
            ToolError: The tool failed, or its server.
        """
        if self._owner is None:
            raise ToolError(f"A replay starts no MCP server, so {self.spec.name!r} cannot run.")

        async def report(progress: float, total: float | None, message: str | None) -> None:
            context.report(_progress_in_words(progress, total, message))

        async def work(client: Client) -> CallToolResult:
            return await client.call_tool(self._tool, dict(input), progress_callback=report)

        try:
            result = await self._owner.do(work)
        except ServerGone as gone:
            raise ToolError(
                f"The MCP server {self.server!r} is gone, and this call has no result: {gone}."
            ) from None
        except Exception as error:
            raise ToolError(
                f"The MCP server {self.server!r} could not do this: {error_in_words(error)}"
            ) from None
        return output_of(result)


def _progress_in_words(progress: float, total: float | None, message: str | None) -> str:
    share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return f"{share}: {message}" if message else share


# -- what a server lists --------------------------------------------------------------------------


async def listed_by(owner: Owner) -> tuple[Described, ...]:
    """The tools of a server, as they are now, in its order.

    Raises:
        ServerGone: It cannot be connected.
        Exception: It does not list them.
    """
    return await owner.do(lambda client: _list(owner.server, client), is_harmless=True)


async def _list(server: McpServer, client: Client) -> tuple[Described, ...]:
    from mcp.types import METHOD_NOT_FOUND

    capabilities = client.server_capabilities
    if capabilities is not None and capabilities.tools is None:
        return ()  # it has prompts or resources only
    found: list[Listed] = []
    cursor = None
    while True:
        try:
            page = await client.list_tools(cursor=cursor)
        except Exception as error:
            if getattr(error, "code", None) == METHOD_NOT_FOUND:
                break
            raise
        found += page.tools
        cursor = page.next_cursor
        if not cursor or len(found) >= MOST_TOOLS:
            break
    return described(server, found)


def described(server: McpServer, tools: Iterable[Listed]) -> tuple[Described, ...]:
    """The tools that can be offered to a model. Of the others the log tells, once each time."""
    kept: dict[str, Described] = {}
    seen: set[str] = set()
    for each in tools:
        why = _trouble(each, seen)
        seen.add(each.name)
        if why:
            log_left_out(server.name, literal(each.name, 100), why)
            continue
        name = name_for_models(server, each.name, kept)
        kept[name] = _described(each, name)
        if len(kept) == MOST_TOOLS:
            break
    return tuple(kept.values())


def _trouble(tool: Listed, seen: set[str]) -> str:
    """Why a tool cannot be offered; empty if it can."""
    if tool.name in seen:
        return "another one has the same name"
    if len(json.dumps(tool.input_schema)) > LONGEST_SCHEMA:
        return f"its schema has more than {LONGEST_SCHEMA:,} characters"
    return ""


def _described(tool: Listed, name: str) -> Described:
    says = tool.annotations
    is_read_only = says is not None and bool(says.read_only_hint)
    destroys = says is not None and says.destructive_hint is True
    title = (says.title if says is not None else None) or tool.title
    description = tool.description or title or tool.name
    return Described(
        tool.name,
        ToolSpec(
            name,
            _cut(sendable(description)),
            tool.input_schema,
        ),
        effects=not is_read_only,
        asks=destroys and not is_read_only,
    )


def name_for_models(server: McpServer, tool: str, taken: Mapping[str, object]) -> str:
    """`server__tool` with characters that every provider accepts, and none of the taken ones.

    One that is too long, or taken, ends with a few digits that follow from its own name.
    """
    name = server.prefix + re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    if len(name) > LONGEST_NAME or name in taken:
        digits = sha256(tool.encode("utf-8", "replace")).hexdigest()[:_DIGITS]
        name = f"{name[: LONGEST_NAME - _DIGITS - 1]}_{digits}"
    return name


def _cut(description: str) -> str:
    if len(description) <= LONGEST_DESCRIPTION:
        return description
    return f"{description[: LONGEST_DESCRIPTION - 1]}…"
