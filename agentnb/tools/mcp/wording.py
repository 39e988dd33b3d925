"""Why a server could not be used, in words that a person and a model can act on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agentnb.core.errors import in_words
from agentnb.core.text import one_line

if TYPE_CHECKING:
    from agentnb.tools.mcp.transport import EndReason


def why_of(why: str, error: BaseException, reason: EndReason | None) -> str:
    """Why a connection ended.

    Args:
        why: What is known already; empty for nothing.
        error: What left the connection.
        reason: What is known of its end; `None` if it was not started.
    """
    error = innermost(error)
    if not why and reason is not None and reason.why and not isinstance(error, OSError):
        return reason.why  # how the process ended says more than what became of its pipes
    if not why:
        why = error_in_words(error)
    errors = "" if reason is None else reason.errors
    return f"{why}: {errors}" if errors else why


def mistake_in(error: Any, within: tuple[object, ...] = ()) -> str:
    """The first mistake that pydantic found: where, and what.

    Args:
        error: The `ValidationError`.
        within: The beginning of where that is left out.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    where = first["loc"]
    if where[: len(within)] == within:
        where = where[len(within) :]
    return one_line(": ".join(filter(None, (".".join(map(str, where)), first["msg"]))))


def innermost(error: BaseException) -> BaseException:
    """The first error of a group, which says what happened; the others follow from it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def error_in_words(error: BaseException) -> str:
    """An error of the SDK or of the operating system, as a clause."""
    match error:
        case asyncio.CancelledError():
            return "it was closed"
        case FileNotFoundError() if error.filename is not None:
            return f"there is no program {str(error.filename)!r}"
        case OSError() if error.strerror:
            return f"it cannot be started ({error.strerror})"
        case _ if type(error).__name__ == "ValidationError":
            return f"what it sent breaks the protocol ({mistake_in(error)})"
        case KeyError():
            return f"the environment variable {error.args[0]} is not set"
    said = in_words(error)
    if type(error).__name__ == "MCPError":  # the server's own words
        return said or f"error {getattr(error, 'code', '')} without a word"
    return f"{type(error).__name__}{said and ': '}{said}"
