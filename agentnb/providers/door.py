"""Strips SDK objects from the errors that leave a provider.

An SDK's error holds the request with its headers, and its frames hold the client with its key. A
traceback with local variables, a debugger's dump or a pickle would show them.
"""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from types import TracebackType

from agentnb.core.errors import LlmError, cause_of, without_frames

_MOST_FRAMES = 8


class Door:
    """Context manager around a call: errors leave without its frames, and causes only as text."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Strip the error of frames and objects, and let it propagate."""
        if not isinstance(error, Exception):
            return
        if not isinstance(error, LlmError):  # a bug: note where it came from
            error.add_note(f"It came from {_places(trace)}.")
        cause = cause_of(error)
        error.__cause__ = None if cause is None else without_frames(cause)
        error.__context__ = error.__traceback__ = None


def _places(trace: TracebackType | None) -> str:
    """The places of a traceback, innermost frame first."""
    frames = list(reversed(extract_tb(trace)))[:_MOST_FRAMES]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
