"""Runs a map again: keeps completed rows, asks the others again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentnb.core.plan import ReusedAnswer
from agentnb.core.text import literal
from agentnb.core.types import AgentStatus, SubAgentResult

if TYPE_CHECKING:
    from agentnb.mapping.run import MapRun

LEFT_OUT = "it did not complete, and was left out of the retry"
"""Why a row outside the retry is not asked."""


@dataclass(frozen=True, slots=True)
class Split:
    """What a retry keeps and leaves out, by the agent's number; it asks all others again."""

    taken: Mapping[int, ReusedAnswer]
    left_out: Mapping[int, str]
    """Why an agent's answer is neither kept nor asked for."""


def split_of(
    results: Sequence[SubAgentResult], run_id: str, *, judges: int, rows: Iterable[int] | None
) -> Split:
    """Which answers of a map a retry keeps, and which rows it leaves out.

    Args:
        results: One for each row and judge, in order.
        run_id: The map with these results.
        judges: Agents for each row.
        rows: The rows to ask again, from 0; by default those that did not complete.

    Raises:
        ValueError: A row does not exist.
    """
    asked = None if rows is None else _checked(rows, len(results) // judges)
    taken: dict[int, ReusedAnswer] = {}
    left_out: dict[int, str] = {}
    for at, result in enumerate(results):
        if asked is not None and at // judges in asked:
            continue
        if result.status is AgentStatus.COMPLETED:
            taken[at + 1] = ReusedAnswer(run_id, result.response)
        elif asked is not None:
            left_out[at + 1] = LEFT_OUT
    return Split(taken, left_out)


def _checked(rows: Iterable[int], count: int) -> set[int]:
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise ValueError(f"`rows` must be a list of positions in the table, not {literal(rows)}.")
    places = set()
    for row in rows:
        try:
            place = row.__index__()
        except AttributeError:
            place = -1
        if isinstance(row, bool) or not 0 <= place < count:
            raise ValueError(
                f"`rows` must be positions in the table, from 0 to {count - 1:,}, not "
                f"{literal(row)}."
            )
        places.add(place)
    return places


@dataclass(frozen=True, slots=True)
class Again:
    """Runs an ended map again. See `MapResult.retry`."""

    start: Callable[[Mapping[int, ReusedAnswer], Mapping[int, str], str | None], MapRun]
    """Called with the kept answers and the reasons of those left out, both by number, and the
    model, `None` for the same."""
    results: Sequence[SubAgentResult]
    run_id: str
    judges: int

    def __call__(self, rows: Iterable[int] | None, model: str | None) -> MapRun:
        """See `MapResult.retry`."""
        split = split_of(self.results, self.run_id, judges=self.judges, rows=rows)
        return self.start(split.taken, split.left_out, model)
