"""Errors for a store's file that cannot be used. Loads no SQLite."""

from __future__ import annotations

from pathlib import Path

from agentnb.core.errors import AgentnbError
from agentnb.core.text import LONGEST_IN_ERROR, literal


class RunIsThere(AgentnbError, ValueError):
    """A run cannot be stored, because the store has another run with its id.

    Args:
        run_id: The id.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"The store has a run {literal(run_id)} already, so another one with this id is not "
            "stored: give each run its own id."
        )


class StoreTrouble(AgentnbError):
    """A store's file cannot be read or written. The message is one sentence that says what to do.

    Args:
        path: The file.
        what: What is wrong, as a clause.
        fix: What to do, as a clause.
    """

    def __init__(self, path: Path, what: str, fix: str) -> None:
        self.path, self.what, self.fix = path, what, fix
        super().__init__(
            f"The store {literal(str(path), LONGEST_IN_ERROR)} cannot be used: {what}; {fix}."
        )
