"""Makes tools from what a session is given: functions, tool names and tool objects."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from agentnb.core.protocols import Tool
from agentnb.core.shown import listed
from agentnb.core.text import literal
from agentnb.core.types import ToolSpec
from agentnb.tools.function import check_name, tool
from agentnb.tools.memory import memory_tools
from agentnb.tools.toolset import COMES_WITH, MEMORY, WORKSPACE, Makers, members, tool_of_server
from agentnb.tools.workspace import workspace_tools

MAKERS: Makers = {WORKSPACE: workspace_tools, MEMORY: memory_tools}
"""The toolsets that need no session."""


def tools_of(
    given: Iterable[Any], known: Iterable[Tool] = (), makers: Makers = MAKERS
) -> tuple[Tool, ...]:
    """Make the given tools, in order.

    Args:
        given: Functions, tools, and names: of known tools, or of toolsets such as `workspace`.
        known: Tools that may be given by name.
        makers: The toolsets that may be given.

    Raises:
        ValueError: An entry is not a tool, a name is unknown, or two tools share a name.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(
            f"`tools` must be a list of functions, tools or names, not {literal(given)}."
        )
    by_name = {each.spec.name: each for each in known}
    made = [each for one in given for each in _made(one, by_name, makers)]
    names = [each.spec.name for each in made]
    for name in names:
        check_name(name)
        if names.count(name) > 1:
            raise ValueError(
                f"Two tools have the name {literal(name)}: rename one of them by "
                "`agentnb.tool(function, name=...)`."
            )
    return tuple(made)


def _made(given: Any, known: Mapping[str, Tool], makers: Makers) -> tuple[Tool, ...]:
    if isinstance(given, str):
        if meant := meant_by(given, known, makers):
            return meant
        if given in COMES_WITH:
            raise ValueError(
                f"`tools`: {literal(given)} comes with {COMES_WITH[given]}. Start the run with "
                "it, and remove it from `tools`."
            )
        names = listed(map(literal, [*known, *makers]))
        raise ValueError(
            f"`tools`: there is no tool {literal(given)} (known: {names}). Give the function "
            "itself."
        )
    if is_tool(given):
        return (given,)
    if is_function(given):
        return (tool(given),)
    raise ValueError(
        f"`tools`: {literal(given)} is not a tool: give a function, or an object with a `spec` "
        "(a `ToolSpec`) and `async call(input, context)`."
    )


def meant_by(name: str, known: Mapping[str, Tool], makers: Makers) -> tuple[Tool, ...]:
    """The tools that a name stands for: a known one, or those of a toolset; else none."""
    if name in known:
        return (known[name],)
    if (of_server := tool_of_server(name, known.values())) is not None:
        return (of_server,)
    return members(name, known) or (tuple(makers[name]()) if name in makers else ())


def is_tool(value: Any) -> bool:
    """Whether `value` is a tool object."""
    return isinstance(getattr(value, "spec", None), ToolSpec) and callable(
        getattr(value, "call", None)
    )


def is_function(value: Any) -> bool:
    """Whether `tool` can make a tool of `value`."""
    return inspect.isroutine(value) or isinstance(value, partial)
