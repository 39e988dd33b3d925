"""Names that stand for several tools in a list of tools, such as `workspace`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agentnb.core.protocols import Tool

WORKSPACE = "workspace"
MEMORY = "memory"
TASKS = "tasks"
TOOLSETS: Mapping[str, tuple[str, ...]] = {
    WORKSPACE: ("workspace_read", "workspace_write"),
    MEMORY: ("remember", "recall"),
    TASKS: (
        "task_create",
        "task_list",
        "task_view",
        "task_update",
        "task_note",
        "task_complete",
    ),
}
"""The names of the tools, in order, by the name that stands for them."""

COMES_WITH: Mapping[str, str] = {
    "inspect": "objects: `give={...}`, or `%%spawn --give NAMES`",
    "python": "`code='worker'`, or `%%spawn --code worker`",
}
"""With what each tool comes that a run has by its other options, and that no list gives to it."""

Makers = Mapping[str, Callable[[], Sequence[Tool]]]
"""Makes the tools of a toolset, by its name."""


def members(name: str, known: Mapping[str, Tool]) -> tuple[Tool, ...]:
    """The tools that a toolset's name stands for, if all are known; else none.

    The name of an MCP server that is connected stands for those of its tools that are known.
    """
    if name not in TOOLSETS:
        return tuple(each for each in known.values() if getattr(each, "server", None) == name)
    names = TOOLSETS[name]
    return tuple(known[each] for each in names) if all(each in known for each in names) else ()


def tool_of_server(name: str, known: Iterable[Tool]) -> Tool | None:
    """What stands for one tool of an MCP server, by its name `server__tool`.

    Args:
        name: The name. Whether the server has such a tool is known when the run begins.
        known: Tools, and servers that stand for theirs.

    Returns:
        `None` if it is the name of no server's tool.
    """
    for each in known:
        one: Callable[[str], Tool | None] | None = getattr(each, "one", None)
        if one is not None and (found := one(name)) is not None:
            return found
    return None
