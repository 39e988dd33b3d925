"""The arguments of a tool call, as a model wrote them: JSON that can be kept and sent back.

There is one rule for what is taken, so that whoever refuses them and whoever tells the model why
cannot differ.
"""

from __future__ import annotations

import json
import math
from typing import Any

from agentnb.core.text import quoted
from agentnb.core.types import DEEPEST, MOST_BITS

_NO_NUMBER = "a number that is not finite or has more than 600 digits"


class BadArguments(ValueError):
    """They cannot be taken. The text says why, in the beginning of a sentence."""


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments that stand in a text.

    Raises:
        BadArguments: They are no JSON object, or hold what no record and no request can hold.
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
    """Look at everything in one argument, level by level: it may be deeper than Python's stack."""
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
