"""`--tools a,b`: find the functions and tools that a person names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from agentnb.core.protocols import Tool
from agentnb.core.text import literal
from agentnb.errors import NotebookError
from agentnb.objects.given import OF_THE_WORKER
from agentnb.tools.registry import is_function, is_tool
from agentnb.tools.toolset import TOOLSETS, tool_of_server

_MOST_NAMES = 20


def tools_named(
    names: Sequence[str], notebook: Mapping[str, Any], of_session: Sequence[Tool]
) -> list[Any]:
    """Look up each name: a function or tool of the notebook, else a tool of the session.

    `server__tool` is one tool of an MCP server that the notebook or the session has.

    Returns:
        For each name, a function, a tool, or the name of a tool of the session.

    Raises:
        NotebookError: A name is unknown, or not a function's.
    """
    return [_meant(name, notebook, of_session) for name in names]


def names_of_tools(notebook: Mapping[str, Any], of_session: Sequence[Tool]) -> list[str]:
    """All names that `tools_named` knows: functions defined here first, imported ones last."""
    imported = [
        name
        for name, value in notebook.items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and not value.__module__.startswith(("IPython", "agentnb"))
    ]
    names = [*_functions_of(notebook), *_other_names(of_session), *imported]
    return list(dict.fromkeys(names))


def names_of_objects(notebook: Mapping[str, Any]) -> list[str]:
    """Names of a notebook's data, newest first, which `--give` accepts."""
    code = (ModuleType, FunctionType, BuiltinFunctionType, type)
    return [
        name
        for name, value in reversed([*notebook.items()])
        if not name.startswith("_")
        and name not in OF_THE_WORKER
        and not isinstance(value, code)
        and not is_tool(value)
    ]


def _other_names(of_session: Sequence[Tool]) -> list[str]:
    return [*(tool.spec.name for tool in of_session), *TOOLSETS]


def _meant(name: str, notebook: Mapping[str, Any], of_session: Sequence[Tool]) -> Any:
    value = notebook.get(name)
    if is_tool(value) or is_function(value):
        return value
    others = _other_names(of_session)
    if name in others:
        return name
    own = (each for n, each in notebook.items() if is_tool(each) and not n.startswith("_"))
    if (of_server := tool_of_server(name, chain(own, of_session))) is not None:
        return of_server
    if name in notebook:
        raise NotebookError(
            f"{literal(name)} is a {type(value).__name__}: give `--tools` names of functions."
        )
    known = dict.fromkeys([*_functions_of(notebook), *others])
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    listed = ", ".join(literal(each) for each in list(known)[-_MOST_NAMES:])
    fix = f"did you mean {literal(close[0])}?" if close else f"give one of {listed or 'your own'}."
    raise NotebookError(f"There is no function {literal(name)} in this notebook: {fix}")


def _functions_of(notebook: Mapping[str, Any]) -> list[str]:
    """Names of the tools, and of the functions defined in the notebook itself."""
    return [
        name
        for name, value in notebook.items()
        if not name.startswith("_")
        and (is_tool(value) or (inspect.isfunction(value) and value.__module__ == "__main__"))
    ]
