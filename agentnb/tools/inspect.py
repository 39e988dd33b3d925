"""The tool `inspect`: reads the objects that an agent was given, page by page.

It reads what is there at the time of the call, changes nothing and keeps nothing. An agent sees its
own objects only; of any other name it is told that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from agentnb.core.errors import ToolError
from agentnb.core.protocols import RECORDED, ToolContext
from agentnb.core.shown import listed
from agentnb.core.text import literal, visible
from agentnb.core.types import ToolSpec
from agentnb.objects.describe import first_line
from agentnb.objects.pages import read_part_of
from agentnb.objects.paging import MOST_CHARS, WHATS, Part
from agentnb.objects.room import Room
from agentnb.objects.steps import CannotRead, part_at
from agentnb.objects.tables import counted

_MOST_NAMES = 1_000


class InspectTool:
    """The tool `inspect`.

    Args:
        objects_of: The objects of an agent by name; is asked with the agent's id at each call.
    """

    effects = False
    """It changes nothing, so a call that was open when the process died is made again."""
    on_replay = RECORDED

    def __init__(self, objects_of: Callable[[str], Mapping[str, object]]) -> None:
        self._objects_of = objects_of
        self.spec = ToolSpec("inspect", _DESCRIPTION, _SCHEMA)

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """See `agentnb.core.protocols.Tool`."""
        objects = self._objects_of(context.agent_id)
        given = _arguments(input)
        name, at = given.pop("name", ""), given.pop("at", [])
        part = Part(name, cancelled=lambda: context.cancelled, **given)
        if not name:
            return await context.on_thread(partial(_list_of, objects, part.start))
        if name not in objects:
            raise _unknown(name, objects)
        return await context.on_thread(partial(_read, objects[name], at, part))


def _read(value: object, at: Sequence[str], part: Part) -> str:
    """Read a page, on a thread."""
    try:
        name, found = part_at(part.name, value, at)
        return read_part_of(found, replace(part, name=name))
    except CannotRead as error:
        raise ToolError(str(error)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code: a panic of polars is no `Exception`
        said = visible(f"{type(error).__name__}: {error}", 300)
        raise ToolError(
            f"{part.name} could not be read ({said}). Ask for another part of it."
        ) from None


def _list_of(objects: Mapping[str, object], start: int) -> str:
    """The first lines of all descriptions."""
    if not objects:
        return "You were given no objects."
    room = Room(MOST_CHARS - 300, len)
    names = list(objects)
    if start >= len(names):
        raise ToolError(f"`start` is {start:,}, but you have {counted(len(names), 'object')}.")
    for at, name in enumerate(names[start:], start):
        if not room.add(f"- {first_line(name, objects[name])}"):
            room.lines.append(f"({len(names) - at:,} more: go on with start={at})")
            break
    return "\n".join([f"You have {counted(len(names), 'object')}:", *room.lines])


def _unknown(name: str, objects: Mapping[str, object]) -> ToolError:
    if not objects:
        return ToolError(f"There is no object {literal(name, 80)}: you were given none.")
    near = get_close_matches(name[:200], list(objects), n=1)
    hint = f" Did you mean {literal(near[0], 80)}?" if near else ""
    known = listed((literal(each, 80) for each in objects), most=50)
    return ToolError(f"There is no object {literal(name, 80)}. You have {known}.{hint}")


# -- arguments ------------------------------------------------------------------------------------


def _arguments(input: Mapping[str, Any]) -> dict[str, Any]:
    """What a model gave, checked; what it left out is not there."""
    given: dict[str, Any] = {}
    for name, value in input.items():
        if name not in _CHECKS:
            known = listed(f"`{each}`" for each in _CHECKS)
            raise ToolError(
                f"There is no parameter {literal(name, 80)} (the parameters are {known})."
            )
        if value is not None:
            given[name] = _CHECKS[name](name, value)
    return given


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ToolError(f"`{name}` must be a text, not {literal(value, 80)}.")
    return value


def _what(name: str, value: object) -> str:
    if value not in WHATS:
        known = ", ".join(f"`{each}`" for each in WHATS)
        raise ToolError(f"`{name}` is {literal(value, 80)}, and must be one of {known}.")
    return str(value)


def _texts(name: str, value: object) -> list[str]:
    """A list of texts; one text is a list of one, and a number in it its text."""
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) > _MOST_NAMES:
        raise ToolError(f"`{name}` has {len(values):,} names, and takes {_MOST_NAMES:,} at most.")
    for each in values:
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise ToolError(f"`{name}` must be a list of texts, and has {literal(each, 80)}.")
    return [str(each) for each in values]


def _number(least: int, name: str, value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a model writes 10.0 for 10
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ToolError(
            f"`{name}` must be a whole number of at least {least}, not {literal(value, 80)}."
        )
    return value


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "name": _text,
    "what": _what,
    "columns": _texts,
    "start": partial(_number, 0),
    "count": partial(_number, 1),
    "at": _texts,
}

_DESCRIPTION = (
    "Read an object that you were given by name, page by page: exact and on the whole data. Each "
    "page has at most 8,000 characters, and says which part of how much it shows."
)
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "description": "The object's name. Leave it out for a list of all objects you have.",
        },
        "what": {
            "type": "string",
            "enum": list(WHATS),
            "description": (
                "overview: what you were told of it. columns: names, types and nulls. rows: rows "
                "of a table or an array, items of a list. statistics: exact figures for each "
                "column. text: of a text, a text file, or what an object says of itself. keys: of "
                "a dict, fields, or entries of a folder. Default: overview; with `start`, `count` "
                "or `columns`, rows, text or keys."
            ),
        },
        "columns": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Only these columns of a table.",
        },
        "start": {
            "type": "integer",
            "minimum": 0,
            "description": (
                "Where the page begins, from 0: a row, column, item or key; in a text a "
                "character, in a file a byte."
            ),
        },
        "count": {"type": "integer", "minimum": 1, "description": "How many of these at most."},
        "at": {
            "type": "array",
            "items": {"type": "string"},
            "description": (
                "Go into the object first, step by step: a key of a dict, a number in a list, a "
                "column of a table, a field, an entry of a folder. Then `what` is read there."
            ),
        },
    },
    "required": [],
    "additionalProperties": False,
}
