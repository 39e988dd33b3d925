"""Reads the arguments of a tool call: JSON that can be kept and sent back.

The provider that refuses arguments and the error for the model use the same rule.
"""

from __future__ import annotations

import json
import math
from typing import Any

from agentnb.core.text import quoted
from agentnb.core.types import DEEPEST, MOST_BITS

_NO_NUMBER = "a number that is not finite or has more than 600 digits"


class BadArguments(ValueError):
    """Arguments are refused. The message says why, as the beginning of a sentence."""


def read_arguments(text: str) -> dict[str, Any]:
    """Read arguments from JSON.

    Raises:
        BadArguments: They are not a JSON object, or contain a value that a record or a request
            cannot hold.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError:
        value = None
    except ValueError:  # Python reads no more digits than this
        raise BadArguments(f"The arguments of the call hold {_NO_NUMBER}") from None
    if not isinstance(value, dict):
        raise BadArguments("The arguments of the call are no JSON object")
    for name, argument in value.items():
        _check(name, argument)
    return value


def _check(name: str, argument: Any) -> None:
    """Check an argument level by level: it may be deeper than Python's stack."""
    level = [argument]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for value in level:
            match value:
                case dict():
                    below.extend(value.values())
                case list():
                    below.extend(value)
                case float() if not math.isfinite(value):
                    raise BadArguments(f"The argument {quoted(name)} is, or holds, {_NO_NUMBER}")
                case int() if value.bit_length() > MOST_BITS:
                    raise BadArguments(f"The argument {quoted(name)} is, or holds, {_NO_NUMBER}")
        if not below:
            return
        level = below
    raise _too_deep()


def _too_deep() -> BadArguments:
    return BadArguments("The arguments of the call hold too many lists or objects in one another")
