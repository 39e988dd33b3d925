"""The table of a map's answers: one row for each row of the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentnb.core.collector import without_collector
from agentnb.core.shown import Bundle, Shown, counted
from agentnb.core.text import literal
from agentnb.core.types import AgentStatus, OrchestratorResult
from agentnb.mapping.agreement import Agreement, alpha_of, as_label, differ, level_of
from agentnb.mapping.answers import COST, ERROR, PATH, ROW, STATUS, TOKENS, Answers
from agentnb.mapping.cells import MISSING
from agentnb.mapping.frames import kind_of, make_frame, selected
from agentnb.mapping.order import MapOrder
from agentnb.mapping.rows import no_column
from agentnb.prices import Cost
from agentnb.views.figures.words import cache_words

_LABELS = "labels"
_OUR_KINDS = {STATUS: "text", ERROR: "text", TOKENS: "int", COST: "float", PATH: "text"}

if TYPE_CHECKING:
    from agentnb.mapping.retry import Again
    from agentnb.mapping.run import MapRun


class MapResult(Shown):
    """The answers of a map, in the order of its rows.

    A row is completed if more than half of its judges are. Only completed answers have values;
    `error` says why a row has none.
    """

    def __init__(self, order: MapOrder, result: OrchestratorResult) -> None:
        self.status: AgentStatus = result.status
        """The map's status: `completed`, `failed` if no row was, or why it ended early."""
        self.reused = 0
        """Answers taken from an earlier map at no cost, counted for each row and judge."""
        self.again: Again | None = None
        """Runs the map again, for `retry`."""
        self._order = order
        self._answers = Answers(result, order.output, judges=order.options.judges)

    def __len__(self) -> int:
        return len(self._order.table)

    def __repr__(self) -> str:
        return f"MapResult({self.in_words})"

    @property
    def in_words(self) -> str:
        """`12 rows: 10 completed, 2 failed, 3,400 tokens, $0.0123`.

        After the tokens comes the share of the input read from a cache, if a cache was used; last,
        why no row was completed, if none was.
        """
        rows = counted(len(self), "row", self._answers.statuses)
        tokens = counted(sum(self.columns[self.name_of(TOKENS)]), "token")
        facts = [rows, tokens, cache_words(self._answers.usage), _in_short(self.cost)]
        told = ", ".join(filter(None, facts))
        if self.status is AgentStatus.FAILED:
            told += "; no" + self._answers.why_none.removeprefix("No")
        return told

    def name_of(self, ours: str) -> str:
        """The name of one of our own columns in this table."""
        return self._answers.names.ours[ours]

    @property
    def notes(self) -> Counter[str]:
        """By note of a completed row, as "may be cut": the number of rows that have it."""
        return self._answers.notes

    @property
    def of_judges(self) -> Mapping[str, tuple[str, ...]]:
        """By field of the answer: each judge's column; empty with one judge."""
        return self._answers.names.of_judges

    # -- the table ----------------------------------------------------------------------------

    @cached_property
    def df(self) -> Any:
        """A frame of the input's kind, with its index; a pandas frame for a list.

        Columns: the fields of the answer (`answer` for one without fields); with several judges
        the majority's value, followed by a column for each judge, `field_1`, `field_2`; then
        `status`, `error`, `tokens`, `cost_usd` (US dollars, empty if a part has no price) and
        `path`, with the prefix `agentnb_` where the answer has a field of that name. Values are in
        their JSON form: an `Enum` is its value, a date a string, a nested value a dict or a list.
        `data` has the objects.

        Raises:
            ImportError: The rows were a list, and pandas is not installed.
        """
        kinds = {self.name_of(name): kind for name, kind in _OUR_KINDS.items()}
        for field, votes in self._answers.votes.items():
            said = [each for row in votes for each in row if each is not MISSING]
            kind = kind_of(said) if self._order.output is not None else "text"
            kinds |= dict.fromkeys((field, *self._answers.names.of_judges[field]), kind)
        return make_frame(self._answers.columns, self._order.table, kinds=kinds)

    @property
    def ok(self) -> Any:
        """The rows of `df` that completed."""
        return self._selected(is_ok=True)

    @property
    def failed(self) -> Any:
        """The rows of `df` that did not complete: failed, cancelled, exhausted, not started."""
        return self._selected(is_ok=False)

    def _selected(self, *, is_ok: bool) -> Any:
        statuses = self._answers.statuses
        return selected(self.df, [(each is AgentStatus.COMPLETED) is is_ok for each in statuses])

    @property
    def data(self) -> list[Any]:
        """The answer of each row as an object of its type, `None` if it did not complete.

        With several judges a tuple of their answers.
        """
        return list(self._answers.data)

    def retry(self, rows: Iterable[int] | None = None, model: str | None = None) -> MapRun:
        """Run the map again: keep completed rows, and ask the others again.

        Args:
            rows: Positions in the table, from 0: only these rows are asked again.
            model: The model to ask; by default the same as before.

        Raises:
            ValueError: A row does not exist.
            UnknownModel: No provider has the model.
        """
        if self.again is None:
            raise ValueError("This result is a copy without its map: map the table again.")
        return self.again(rows, model)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict for each row, with the columns of `df`; `None` for what is missing."""
        columns = self._answers.columns
        with without_collector():
            rows = zip(*columns.values(), strict=True)
            return [dict(zip(columns, row, strict=True)) for row in rows]

    @property
    def cost(self) -> Cost | None:
        """Estimated cost of the whole map; `None` for a result without its record."""
        return self._answers.cost

    # -- judges -------------------------------------------------------------------------------

    def agreement(
        self, field: str | None = None, *, labels: Any = None, level: str | None = None
    ) -> Agreement:
        """How far the judges agree: Krippendorff's alpha, and the rows in which they differ.

        Args:
            field: A field of the answer. By default whole answers are compared, as equal or not.
            labels: A person's labels, which count as another judge: the name of an input column,
                or a label for each row. Rows without a label have one judge fewer.
            level: How values are compared: `nominal` (equal or not), `ordinal` (numbers, by rank)
                or `interval` (numbers, by distance). By default `interval` for numbers, else
                `nominal`.

        Raises:
            ValueError: There is only one judge and no labels; the field, column or level does not
                exist; the labels have several fields, or their number is not that of the rows; or
                the level needs numbers.
        """
        fields = self._answers.names.fields
        if field is not None and field not in fields:
            known = ", ".join(map(literal, fields))
            raise ValueError(f"The answer has no field {literal(field)}: name one of {known}.")
        if labels is not None and field is None and len(fields) > 1:
            raise ValueError(
                "`labels` are for one field: name it, as in "
                f"`agreement({fields[0]!r}, labels=...)`."
            )
        if labels is None and self._order.options.judges < 2:
            raise ValueError(
                "There is only one judge: map with `judges=3`, or give `labels=`, a column with a "
                "person's own."
            )
        compared = fields if field is None else (field,)
        ratings = self._ratings(compared)
        said = {
            name: self._answers.columns[name]
            for one in compared
            for name in self._answers.names.of_judges[one] or (one,)
        }
        if labels is not None:
            name, column = self._labels(labels)
            ratings = [(*row, label) for row, label in zip(ratings, column, strict=True)]
            while name in said:
                name = f"{name}_"
            said[name] = [None if label is MISSING else label for label in column]
        level = level_of(ratings, level)
        at = [place for place, row in enumerate(ratings) if differ(row)]
        columns = {ROW: at} | {
            name: [values[place] for place in at]
            for name, values in (said | self._column(PATH)).items()
        }
        return Agreement(
            alpha_of(ratings, level),
            sum(sum(each is not MISSING for each in row) > 1 for row in ratings),
            make_frame(columns, self._order.table, kinds={ROW: "int", PATH: "text"}, rows=at),
            level,
            columns,
        )

    def _column(self, name: str) -> dict[str, list[Any]]:
        name = self.name_of(name)
        return {name: self._answers.columns[name]}

    def _ratings(self, fields: Sequence[str]) -> list[tuple[Any, ...]]:
        """For each row its judges' values: of the one field, or a dict of several."""
        votes = self._answers.votes
        if len(fields) == 1:
            return votes[fields[0]]
        return [
            tuple(
                MISSING if said[0] is MISSING else dict(zip(fields, said, strict=True))
                for said in zip(*row, strict=True)
            )
            for row in zip(*(votes[field] for field in fields), strict=True)
        ]

    def _labels(self, labels: Any) -> tuple[str, list[Any]]:
        """The column name for a person's labels, and a label for each row."""
        table = self._order.table
        if isinstance(labels, str):
            if labels not in table:
                raise ValueError(f"`labels`: {no_column(labels, table.columns)}")
            return labels, [as_label(value) for value in table.column(labels)]
        if not isinstance(labels, Iterable):
            raise ValueError(
                "`labels` must be the name of a column, or a list with one label for each row, not "
                f"{literal(labels)}."
            )
        column = [as_label(value) for value in labels]
        if len(column) != len(table):
            raise ValueError(
                f"`labels` has {len(column):,} values for {len(table):,} rows: give one for each, "
                "`None` where there is none."
            )
        return _LABELS, column

    # -- in a notebook ------------------------------------------------------------------------

    def places(self) -> list[int]:
        """The positions of all rows from 0, those that did not complete first."""
        is_ok = [each is AgentStatus.COMPLETED for each in self._answers.statuses]
        return sorted(range(len(is_ok)), key=is_ok.__getitem__)

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The columns of `df` as lists, by name."""
        return self._answers.columns

    def _bundle(self) -> Bundle:
        from agentnb.mapping.shown import result_bundle

        return result_bundle(self)


def _in_short(cost: Cost | None) -> str:
    if cost is None:
        return ""
    is_unpriced = cost.unpriced and not cost.at_least_usd  # `cost` itself says why
    return "unpriced" if is_unpriced else cost.amount
