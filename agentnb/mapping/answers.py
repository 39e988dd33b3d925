"""The answers of a map as columns: what the judges of each row said, and what it cost.

Values are in their JSON form (`TypedOutput.plain`), so that a column has one plain type; `data` has
the objects. A judge that did not complete has no value, which is not the same as `None`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentnb.core.collector import without_collector
from agentnb.core.synthesis import why_none
from agentnb.core.types import AgentStatus, OrchestratorResult, RunUsage, SubAgentResult
from agentnb.mapping.cells import MISSING
from agentnb.prices import Cost
from agentnb.typed import AnyOutput

ANSWER = "answer"
"""The column of an answer without fields."""
STATUS, ERROR, TOKENS, COST, PATH = OURS = ("status", "error", "tokens", "cost_usd", "path")
"""Our own columns, which follow those of the answer."""
ROW = "row"
"""The column of an agreement's frame with the row's position, from 0."""
_OUR_PREFIX = "agentnb_"
_NOT_BEGUN = ("not started", "before its turn")
"""How reasons end that name the row's parent, which the table does not show."""
_STOPPED = {
    AgentStatus.CANCELLED: "the map was cancelled before this row began",
    AgentStatus.INTERRUPTED: "the map was interrupted before this row began",
    AgentStatus.FAILED: "the map failed before this row began",
}


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the output's columns."""

    fields: tuple[str, ...]
    """The fields of the answer."""
    of_judges: Mapping[str, tuple[str, ...]]
    """By field: a column for each judge; empty tuples if there is only one judge."""
    ours: Mapping[str, str]
    """By our own name: the name in this table, prefixed where a field has it already."""

    @classmethod
    def of(cls, output: AnyOutput | None, judges: int) -> Names:
        """Name the columns; ours get a prefix where the answer has a field of that name."""
        fields = (output.fields if output is not None else ()) or (ANSWER,)
        taken = set(fields)

        def free(name: str) -> str:
            while name in taken:
                name = _OUR_PREFIX + name
            taken.add(name)
            return name

        numbers = range(1, judges + 1) if judges > 1 else ()
        of_judges = {field: tuple(free(f"{field}_{n}") for n in numbers) for field in fields}
        return cls(fields, of_judges, {name: free(name) for name in OURS})


class Answers:
    """The outcome of each row.

    Args:
        result: The run's result; judge j of row i is at `i * judges + j`, both from 0.
        output: The type of each answer.
        judges: Agents for each row.
    """

    def __init__(
        self, result: OrchestratorResult, output: AnyOutput | None, *, judges: int
    ) -> None:
        self.names = Names.of(output, judges)
        self._result, self._output, self._judges = result, output, judges

    @cached_property
    def rows(self) -> list[tuple[SubAgentResult, ...]]:
        """The results of each row's judges, in order."""
        results, judges = self._result.sub_agent_results, self._judges
        return [tuple(results[at : at + judges]) for at in range(0, len(results), judges)]

    @cached_property
    def data(self) -> list[Any]:
        """The answer of each row as an object; with several judges, a tuple of their answers."""
        if self._judges == 1:
            return [self._data_of(judge) for (judge,) in self.rows]
        return [tuple(map(self._data_of, judges)) for judges in self.rows]

    def _data_of(self, judge: SubAgentResult) -> Any:
        if judge.status is not AgentStatus.COMPLETED:
            return None
        return judge.response if self._output is None else judge.data

    @cached_property
    def statuses(self) -> list[AgentStatus]:
        """A row is completed if more than half of its judges are."""
        return [_status_of(judges) for judges in self.rows]

    @cached_property
    def votes(self) -> dict[str, list[tuple[Any, ...]]]:
        """By field: the value of each row's judges, `MISSING` for one that did not complete."""
        plain = [tuple(map(self._plain, judges)) for judges in self.rows]
        if self._output is None or not self._output.fields:
            return {ANSWER: plain}
        return {
            field: [
                tuple(MISSING if each is MISSING else each.get(field) for each in row)
                for row in plain
            ]
            for field in self.names.fields
        }

    def _plain(self, judge: SubAgentResult) -> Any:
        if judge.status is not AgentStatus.COMPLETED:
            return MISSING
        return judge.response if self._output is None else self._output.plain(judge.data)

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """All columns of the output, in order; `None` for a missing value."""
        with without_collector():
            return self._of_fields() | self._ours()

    def _of_fields(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {}
        is_done = [status is AgentStatus.COMPLETED for status in self.statuses]
        for field, votes in self.votes.items():
            columns[field] = [
                majority(row) if done else None for row, done in zip(votes, is_done, strict=True)
            ]
            for place, name in enumerate(self.names.of_judges[field]):
                columns[name] = [None if row[place] is MISSING else row[place] for row in votes]
        return columns

    def _ours(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {
            STATUS: [str(status) for status in self.statuses],
            ERROR: [self._error_of(judges) for judges in self.rows],
            TOKENS: self._tokens(),
            COST: self._costs(),
            PATH: [judges[0].path for judges in self.rows],
        }
        return {self.names.ours[name]: column for name, column in columns.items()}

    def _error_of(self, judges: Sequence[SubAgentResult]) -> str | None:
        """Why a row lacks an answer, or some of its judges', or which of them were cut."""
        reasons = [self._reason_of(judge) for judge in judges]
        if len(reasons) > 1:
            reasons = [why and f"judge {n}: {why}" for n, why in enumerate(reasons, 1)]
        return "; ".join(filter(None, reasons)) or None

    def _reason_of(self, judge: SubAgentResult) -> str | None:
        if judge.status is AgentStatus.COMPLETED:
            return "the answer was cut at a limit" if judge.cut else None
        if judge.status is AgentStatus.SKIPPED and (judge.error or "").endswith(_NOT_BEGUN):
            return _STOPPED.get(self._result.status) or judge.error
        return judge.error or str(judge.status)

    @property
    def notes(self) -> Counter[str]:
        """By note of a completed row: the number of rows that have it."""
        record = self._result.record
        if record is None:
            return Counter()
        notes = record.notes
        return Counter(
            note
            for judges in self.rows
            for note in dict.fromkeys(
                note
                for judge in judges
                if judge.status is AgentStatus.COMPLETED
                for note in notes.get(judge.path, ())
            )
        )

    def _row_of(self) -> dict[str, int]:
        """By path of each judge: its row."""
        return {judge.path: at for at, judges in enumerate(self.rows) for judge in judges}

    def _tokens(self) -> list[int]:
        """The tokens of each row, with all agents below it."""
        tokens, row_of = [0] * len(self.rows), self._row_of()
        for node in self._result.agent_tree.walk():
            at = row_of.get(node.path.partition(".")[0])
            if at is not None:
                tokens[at] += node.tokens_used
        return tokens

    @property
    def why_none(self) -> str:
        """Why no row was completed, each reason once."""
        return why_none(self._result.sub_agent_results, "row")

    @property
    def usage(self) -> RunUsage:
        """The provider's counts for the whole map."""
        return self._result.usage

    @property
    def cost(self) -> Cost | None:
        """The cost of the whole map, at the prices set now; `None` without a record."""
        record = self._result.record
        return None if record is None else record.cost

    def _costs(self) -> list[float | None]:
        """The cost of each row with all agents below it, in US dollars.

        `None` if a part of it has no price.
        """
        cost_of_map = self.cost
        if cost_of_map is None:
            return [None] * len(self.rows)
        costs: list[float | None] = [0.0] * len(self.rows)
        row_of = self._row_of()
        for path, cost in cost_of_map.by_agent.items():
            at = row_of.get(path.partition(".")[0])
            if at is not None:
                costs[at] = _sum(costs[at], cost.usd)
        return costs


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _status_of(judges: Sequence[SubAgentResult]) -> AgentStatus:
    others = [judge.status for judge in judges if judge.status is not AgentStatus.COMPLETED]
    if 2 * len(others) < len(judges):
        return AgentStatus.COMPLETED
    return AgentStatus.FAILED if AgentStatus.FAILED in others else others[0]


def majority(votes: Iterable[Any]) -> Any:
    """The most frequent value; `None` if two values have equally many votes."""
    said = [vote for vote in votes if vote is not MISSING]
    if len(said) < 2:
        return said[0] if said else None
    (first, most), *others = Counter(map(token, said)).most_common(2)
    if others and others[0][1] == most:
        return None
    return next(vote for vote in said if token(vote) == first)


def token(value: Any) -> Any:
    """A hashable that is equal for equal values in JSON form; `True` is not 1."""
    if isinstance(value, list | dict):
        return ("json", json.dumps(value, sort_keys=True, ensure_ascii=False))
    return ("bool", value) if isinstance(value, bool) else value
