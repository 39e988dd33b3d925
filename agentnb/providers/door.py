"""The door of a provider: nothing of what is below it leaves with an error but words.

An SDK's error holds the request with its headers, and its frames hold the client with its key. A
traceback that prints local variables, a debugger's dump and a pickle would show them.
"""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from types import TracebackType

from agentnb.core.errors import LlmError, cause_of, without_frames

_FRAMES_TOLD = 8


class Door:
    """Around a whole call: errors leave without the frames below, and their causes as words."""

    def __enter__(self) -> None:
        """Nothing is asked of who comes in."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the error out, and nothing with it."""
        if not isinstance(error, Exception):
            return
        if not isinstance(error, LlmError):  # a bug: where it came from is what people look for
            error.add_note(f"It came from {_places(trace)}.")
        cause = cause_of(error)
        error.__cause__ = None if cause is None else without_frames(cause)
        error.__context__ = error.__traceback__ = None


def _places(trace: TracebackType | None) -> str:
    """Where an error came through, the innermost frame first."""
    frames = list(reversed(extract_tb(trace)))[:_FRAMES_TOLD]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
