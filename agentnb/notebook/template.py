"""`{{name}}` in a task: replaced by a value of the notebook, as text.

Accepts names, attributes and items, but no calls and no arithmetic. A single brace is text. A value
becomes its `str`, the same in every kernel (`agentnb.objects.written`). A table, an array, a figure
or an object that describes itself is only named there, and described below the task: the `str` of a
frame has five rows that look like all of them, and a description inside a sentence would hide the
task wherever only its beginning is shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Mapping
from difflib import get_close_matches
from typing import Any

from IPython.core.getipython import get_ipython

from agentnb.core.text import literal, visible
from agentnb.errors import NotebookError
from agentnb.objects.describe import describe
from agentnb.objects.kinds import has_description
from agentnb.objects.written import written

_EVERYWHERE = frozenset({"In", "Out", "exit", "get_ipython", "open", "quit"})
_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def notebook_names() -> dict[str, Any]:
    """The names of the notebook, by reference; none outside IPython."""
    shell = get_ipython()
    return shell.user_ns if shell is not None else {}


def fill(text: str, names: Mapping[str, Any], given: Container[str] = ()) -> str:
    """Replace each `{{…}}` in `text` by its value as text, and describe data below the text.

    Args:
        text: A task, or a line of options.
        names: The names of the notebook.
        given: Names whose `{{name}}` stays, since the session has them as given objects.

    Raises:
        NotebookError: A name is missing or undefined, or an expression has more than names,
            attributes and items.
    """
    described: dict[str, str] = {}

    def said(hole: re.Match[str]) -> str:
        expression = hole[1].strip()
        if expression in given:
            return hole[0]
        value = _value(expression, names)
        if not has_description(value):
            return written(value)
        if expression not in described:
            described[expression] = describe(expression, value)
        return expression

    filled = _HOLE.sub(said, text)
    return "\n\n".join([filled.rstrip(), *described.values()]) if described else filled


def _value(expression: str, names: Mapping[str, Any]) -> Any:
    try:
        tree = ast.parse(expression, mode="eval").body
    # `ValueError`: a null character, before 3.11.4. The last two: too long or too deep.
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _not_a_name(expression) from None
    return _look_up(tree, expression, names)


def _look_up(node: ast.expr, expression: str, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            if name not in names:
                close = get_close_matches(name, _own(names), n=1)
                hint = f" (did you mean {literal(close[0])}?)" if close else ""
                raise NotebookError(
                    f"The task uses {_hole(expression)}, but {literal(name)} is not defined"
                    f"{hint}: define it in a cell above, or use --raw to take braces as text."
                )
            return names[name]
        case ast.Attribute(value=inner, attr=attribute):
            owner = _look_up(inner, expression, names)
            try:
                return getattr(owner, attribute)
            except AttributeError:
                raise _has_no(expression, owner, f"attribute {literal(attribute)}") from None
        case ast.Subscript(value=inner, slice=index):
            owner = _look_up(inner, expression, names)
            key = _key(index, expression, names)
            try:
                return owner[key]
            except (LookupError, TypeError):
                raise _has_no(expression, owner, f"item {literal(key)}") from None
        case _:
            raise _not_a_name(expression)


def _key(node: ast.expr, expression: str, names: Mapping[str, Any]) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return _look_up(node, expression, names)


def _has_no(expression: str, owner: object, what: str) -> NotebookError:
    return NotebookError(
        f"The task uses {_hole(expression)}, but the {type(owner).__name__} has no {what}: "
        "correct the name, or use --raw to take braces as text."
    )


def _hole(expression: str) -> str:
    return f"{{{{{visible(expression, 80)}}}}}"


def _not_a_name(expression: str) -> NotebookError:
    return NotebookError(
        f"The task uses {_hole(expression)}, but only names, attributes and items can be used "
        "there: put the value into a variable in a cell above, or use --raw to take braces as "
        "text."
    )


def _own(names: Mapping[str, Any]) -> list[str]:
    """The names that a person may have meant, without those of every notebook."""
    return [n for n in names if not n.startswith("_") and n not in _EVERYWHERE]
