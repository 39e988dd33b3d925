"""Lists of tools, as a server sends them, made fit for the SDK before it reads them.

The SDK refuses a whole list for one tool that breaks the protocol. And it throws away what a call
has returned if that does not fit the tool's output schema, or if that schema is wrong, though the
call was made and may have changed something. So broken tools are left out here, and output schemas,
of which models are told nothing, are taken off.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from agentnb.core.text import literal
from agentnb.tools.mcp.wording import mistake_in

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

_LIST = "tools/list"
_log = logging.getLogger("agentnb")


def log_left_out(server: str, tool: str, why: str) -> None:
    """Tell that a tool cannot be offered to a model.

    Args:
        server: The server's name.
        tool: The tool, as it is named in a sentence.
        why: A clause.
    """
    _log.warning("The MCP server %r has a tool %s that is left out: %s.", server, tool, why)


class ToolLists:
    """Makes the lists of one connection fit.

    Args:
        server: The server's name.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self.version = ""
        """Of the protocol; empty until both sides agree on one, before which no list comes."""

    def fit(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        """A message of the server, without broken tools if it is a list of tools."""
        from mcp.types import JSONRPCResponse

        if isinstance(message, Exception) or not self.version:
            return message
        response = message.message
        if not isinstance(response, JSONRPCResponse):
            return message
        result = response.result
        if not isinstance(result.get("tools"), list) or "content" in result:
            return message  # the result of a call may have any keys besides its content
        fit = {**result, "tools": fit_tools(self._server, self.version, result)}
        return replace(message, message=response.model_copy(update={"result": fit}))


class Incoming:
    """A stream of a transport, as the SDK reads one, with lists of tools made fit."""

    def __init__(self, messages: Any, lists: ToolLists) -> None:
        self._messages, self._lists = messages, lists

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, if the transport keeps it."""
        return getattr(self._messages, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        return self._lists.fit(await self._messages.receive())

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._lists.fit(await self._messages.__anext__())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._messages.aclose()

    async def __aenter__(self) -> Incoming:
        await self._messages.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        ended: bool | None = await self._messages.__aexit__(kind, error, traceback)
        return ended


def fit_tools(server: str, version: str, result: dict[str, Any]) -> list[Any]:
    """The tools of a list that the SDK takes, without output schemas. Of others the log tells.

    Args:
        server: The server's name.
        version: The version of the protocol.
        result: What the server sent, in which `tools` is a list.
    """
    tools = [_without_output(each) for each in result["tools"]]
    if not _mistake(version, result, tools) or _mistake(version, result, []):
        return tools  # none of them is wrong, or the list itself is: then the SDK says so
    kept = []
    for at, tool in enumerate(tools):
        if not (mistake := _mistake(version, result, [tool])):
            kept.append(tool)
            continue
        name = tool.get("name") if isinstance(tool, dict) else None
        named = literal(name, 100) if isinstance(name, str) else f"without a name (place {at})"
        log_left_out(server, named, f"it breaks the protocol ({mistake})")
    return kept


def _without_output(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def _mistake(version: str, result: dict[str, Any], tools: list[Any]) -> str:
    """What is wrong with a list; empty if the SDK takes it."""
    from mcp.types import methods
    from pydantic import ValidationError

    try:
        methods.parse_server_result(_LIST, version, {**result, "tools": tools})
    except ValidationError as error:
        return mistake_in(error, within=("tools", 0))
    return ""
