"""Names that stand for several tools in a list of tools, such as `workspace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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

Makers = Mapping[str, Callable[[], Sequence[Tool]]]
"""Makes the tools of a toolset, by its name."""


def members(name: str, known: Mapping[str, Tool]) -> tuple[Tool, ...]:
    """The tools that a toolset's name stands for, if all are known; else none."""
    names = TOOLSETS.get(name, ())
    return tuple(known[each] for each in names) if all(each in known for each in names) else ()
