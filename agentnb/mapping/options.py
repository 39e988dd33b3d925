"""The options of a map that other runs do not have."""

from __future__ import annotations

from dataclasses import dataclass

from agentnb.core.types import Block
from agentnb.mapping.documents import Document

LEAN = (
    "You get one row of a table, and one question about it. Answer for that row alone, from what "
    "it says."
)
"""Our whole prompt for a row's agent."""


@dataclass(frozen=True, slots=True)
class MapOptions:
    """How the rows of one map are run."""

    shared: str = ""
    """Text at the start of each row's prompt."""
    judges: int = 1
    """Agents for each row, side by side."""
    models: tuple[str, ...] = ()
    """The judges' models in order, repeated if there are more judges; empty: the run's model."""
    sample: int | None = None
    """Rows that run before a person is asked about the rest."""
    retry_failed: int = 1
    """How often a failed row is tried again."""
    documents: tuple[Document | None, ...] = ()
    """For each row the image or PDF that its agents get; empty if no row has one."""

    @property
    def attachments(self) -> tuple[tuple[Block, ...], ...]:
        """For each task the files before its prompt; empty if no row has one."""
        return tuple(
            () if each is None else (each.block,)
            for each in self.documents
            for _ in range(self.judges)
        )

    @property
    def system(self) -> str:
        """The system prompt of every row."""
        return f"{self.shared}\n\n{LEAN}" if self.shared else LEAN
