"""The arguments of a tool call for a person: code as code, everything else by name and value.

All texts are visible texts, and no value can pass for another argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import indent
from typing import Any

from agentnb.code_cells import PYTHON
from agentnb.core.codec import plain
from agentnb.core.text import visible, visible_text

MOST_OF_CODE = 20_000
"""Most characters of code in the details of a call; longer code shows its beginning and end."""
_NAME_LENGTH = 200
_ONE_LINE = 100
"""Most characters of a list or a dict that is shown on one line."""


def code_in(name: str, given: Any) -> str | None:
    """The code of a call whose only argument is code, unchanged; `None` for any other call."""
    if name != PYTHON or not isinstance(given, Mapping) or [*given] != ["code"]:
        return None
    code = given["code"]
    return code if isinstance(code, str) else None


def shown_code(code: str) -> str:
    """Code as visible text. If it is too long, a line in the middle says how much is left out."""
    code = visible_text(code.strip("\n"))
    if len(code) <= MOST_OF_CODE:
        return code
    half = MOST_OF_CODE // 2
    head, tail = code[:half], code[-half:]
    # Cut at line ends, unless one line fills everything that is shown.
    head = head[: head.rfind("\n")] if head.rfind("\n") > half // 2 else head
    at = tail.find("\n")
    tail = tail[at + 1 :] if 0 <= at < half // 2 else tail
    left_out = len(code) - len(head) - len(tail)
    return f"{head}\n# … {left_out:,} of {len(code):,} characters are left out here …\n{tail}"


def values_in(given: Any) -> list[tuple[str, str]]:
    """Names and whole values: texts unchanged, with their lines, everything else as JSON."""
    values = plain(given)
    if not isinstance(values, dict):
        values = {} if values is None else {"input": values}
    return [(visible(name, _NAME_LENGTH), _readable(value)) for name, value in values.items()]


def lines_of(name: str, given: Any) -> str:
    """The whole arguments of a call as indented lines; empty for none."""
    code = code_in(name, given)
    if code is not None:
        return indent(visible_text(code.strip("\n")), "    ", lambda _: True)
    parts = list[str]()
    for key, value in values_in(given):
        first, *more = value.split("\n")
        parts += [f"    {key}: {first}", *[f"        {line}" for line in more]]
    return "\n".join(parts)


def _readable(value: Any) -> str:
    if isinstance(value, str) and not _reads_as_other(value):
        return visible_text(value)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _ONE_LINE and not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return visible_text(text)


def _reads_as_other(text: str) -> bool:
    """Whether a text without quotes would read as nothing, a number, `true` or a quoted text."""
    if not text.strip():
        return True
    if len(text) > _ONE_LINE or text.lstrip()[0] in "[{":
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
