"""The messages between a session and a worker.

A session sends orders, many in one message; a worker answers with numbered entries, which it keeps
until the session confirms them. So a lost or repeated message changes nothing.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentnb.core.budget import BYTES_PER_TOKEN, OUTPUT_SLICE, size_in_bytes
from agentnb.core.errors import ForeignError, LlmError, ToolError, in_words
from agentnb.core.types import TextDelta, ThinkingDelta

MOST_UNREAD = OUTPUT_SLICE * BYTES_PER_TOKEN
"""Bytes of replies that a worker reads before the session has them: one slice of the budget. It
reads on when the session, which meters them, asks for what comes next."""
GATHER_S = 0.02
"""How long a worker gathers pieces of replies before it answers with them."""
LONGEST_POLL_S = 2.0
"""Longest time that a worker lets the session wait for entries."""
SILENCE_S = 20.0
"""Time without a question from the session after which a worker stops all work for it."""
FORGET_S = 3600.0
"""Time without a call or a question after which a worker may forget a session. The session assumes
after half of it that it was forgotten."""


# -- orders ---------------------------------------------------------------------------------------


class Recipe(NamedTuple):
    """The recipe for the calls of one provider or tool, sent once to each worker."""

    digest: str
    pickled: bytes
    """A function without arguments that makes a provider, or the function of a tool."""


class ModelCall(NamedTuple):
    """Make one call to a model."""

    call: int
    recipe: str
    """The digest of the provider's recipe."""
    request: bytes
    """A `CompletionRequest`, pickled: only its own call fails if it cannot be read there."""


class ToolCall(NamedTuple):
    """Call the function of a tool."""

    call: int
    recipe: str
    """The digest of the function's recipe."""
    arguments: bytes
    """Positional and named arguments, pickled: they may have a person's own classes."""
    about: Mapping[str, str]
    """For the tool's context: `agent_id`, `path` and `run_id`."""


class Stop(NamedTuple):
    """Stop a call. A model call has no further entries; a tool call ends by `ToolEnded`."""

    call: int


Order = Recipe | ModelCall | ToolCall | Stop


# -- entries --------------------------------------------------------------------------------------


class Report(NamedTuple):
    """A tool's progress."""

    text: str


class Result(NamedTuple):
    """The tool's result: a `str` or a `ToolOutput`."""

    value: Any


class Ended(NamedTuple):
    """A model's reply is over."""


class ToolEnded(NamedTuple):
    """The function of a tool that was stopped has ended."""


class Failed(NamedTuple):
    """A call failed."""

    error: bytes
    """Pickled, of a class that the worker can import."""
    as_words: bytes
    """The same error, of a class that both sides have."""

    def raised(self) -> BaseException:
        """The error."""
        error: BaseException
        try:
            error = pickle.loads(self.error)
        except Exception:  # its class is not here
            error = pickle.loads(self.as_words)
        return error


class NoRecipe(NamedTuple):
    """The worker does not have the recipe, or no longer has it; the call was not begun."""


LAST = Ended | Failed | NoRecipe | Result | ToolEnded
"""The last entry of a call is one of these."""


Entry = tuple[int, int, str | bytes]
"""The call's number, the bytes of a reply's text, and the item: a piece of text as it is; another
`StreamEvent` or one of the classes above pickled on its own, so that one that cannot be read harms
no other call. A plain tuple, since there is one for each piece."""


def entry(call: int, item: object) -> Entry:
    """Make an entry of an item of a call.

    Raises:
        Exception: It cannot be pickled.
    """
    text = item.text if isinstance(item, TextDelta | ThinkingDelta) else item
    size = size_in_bytes(text) if isinstance(text, str) else 0
    return call, size, item if type(item) is str else pickle.dumps(item)


class Entries(NamedTuple):
    """Some entries in their order."""

    host: str
    """Id of the host that keeps them; a restarted worker has another one."""
    first: int
    """The number of the first, from 1."""
    entries: tuple[Entry, ...]


class ContextHere:
    """Placeholder for a tool's context among its arguments until they are on the worker."""


def failed(error: BaseException) -> Failed:
    """An error for the other side."""
    as_words = pickle.dumps(_in_other_words(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # one that can be pickled may still not come out again
    except Exception:  # of a class of a cell, or with a field that stays where it is
        pickled = as_words
    return Failed(pickled, as_words)


def _in_other_words(error: BaseException) -> BaseException:
    """The same error as an instance of a class that both sides have."""
    if isinstance(error, LlmError):
        said = LlmError(
            str(error),
            retryable=error.retryable,
            retry_after_s=error.retry_after_s,
            status_code=error.status_code,
        )
        said.permanent = error.permanent
        return said
    if isinstance(error, ToolError):
        return ToolError(error.for_model)
    return ForeignError(f"{type(error).__name__}: {in_words(error)}")


# -- versions -------------------------------------------------------------------------------------


class Versions(NamedTuple):
    """Versions that both sides must share: functions and values are sent as Python pickles."""

    python: str
    """As in `3.11`."""
    agentnb: str


def versions() -> Versions:
    """The versions of this process."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Versions(python, sys.modules["agentnb"].__version__)
