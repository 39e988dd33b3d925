"""`MapRun`: the handle of a running or ended map."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from agentnb.core.errors import OrchestratorError, RunCancelled
from agentnb.core.shown import Bundle
from agentnb.core.text import quoted
from agentnb.core.types import OrchestratorResult
from agentnb.interrupts import INTERRUPTS
from agentnb.mapping.cells import cell_text
from agentnb.mapping.order import MapOrder
from agentnb.mapping.progress import ProgressLine
from agentnb.mapping.result import MapResult
from agentnb.mapping.retry import Again
from agentnb.mapping.reuse import EarlierAnswers, TakenAnswers
from agentnb.mapping.rows import Table
from agentnb.run import Run, interrupts_cancel
from agentnb.views.front_end import ALL, is_interactive, is_notebook, wanted_display
from agentnb.views.panel.map_fold import MapShape, MapWatch, count_words

if TYPE_CHECKING:
    from agentnb.views.panel.map_panel import MapPanel

_INTERRUPTED = "interrupted"
_LABEL_LENGTH = 300
_OF_FILES = ("text", "name", "path")


class MapRun(Run[MapResult]):
    """A map: a run whose result is a table. Created by `Session.map`.

    A stopped map also has a table, of the rows done so far: `result()` and `await` return it, with
    the status `cancelled` or `exhausted`. An interrupted wait stops the map and raises
    `RunCancelled`, whose `partial_result` is that table.
    """

    order: MapOrder
    """What it was started with; set before the run is returned."""
    start_again: Callable[..., MapRun]
    """Runs the map again: see `agentnb.mapping.retry.Again.start`."""
    answers: EarlierAnswers | TakenAnswers | None = None
    """The source of the answers that it reuses."""
    reused_before: int = 0
    """Number of answers that it had reused before it was recovered."""
    _line: ProgressLine | None = None
    _made: MapResult | None = None
    """Its result, cached so that its frame is made only once."""

    @property
    def table(self) -> Table:
        """The input."""
        return self.order.table

    def result(self, timeout: float | None = None) -> MapResult:
        """Block until the map has ended or was stopped.

        Args:
            timeout: Most seconds to wait; the map continues afterwards.

        Raises:
            TimeoutError: The map has not ended in time.
            RunCancelled: The wait was interrupted, which stops the map; `partial_result` is its
                table.
            RuntimeError: As for `Run.result`.
        """
        try:
            return super().result(timeout)
        except KeyboardInterrupt:
            if self.done or not self.stop_soon(_INTERRUPTED):
                raise
            super().result()
            raise self._stopped() from None

    async def _wait(self) -> MapResult:
        with _noting_interrupts() as came:
            try:
                return await super()._wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not came or self.done or task is None or not self.stop_soon(_INTERRUPTED):
                    raise
                task.uncancel()
            with interrupts_cancel(task):
                await super()._wait()
        raise self._stopped()

    def _stopped(self) -> RunCancelled:
        error = RunCancelled(_INTERRUPTED)
        error.partial_result = self._outcome()  # type: ignore[assignment]
        return error

    def _outcome(self) -> MapResult:
        """The table; for a stopped map, of the rows done so far."""
        if self._made is None:
            if self._line is not None:
                self._line.finish()
            self._made = self._table_of_result()
        return self._made

    def _table_of_result(self) -> MapResult:
        try:
            return self._as_table(self._tree_result())
        except RunCancelled as stopped:
            if stopped.partial_result is None:
                raise
            return self._as_table(stopped.partial_result)
        except OrchestratorError as error:
            if error.partial_result is None:
                raise
            # Another error: the run's own leads its panels to the tree.
            told = copy.copy(error)
            told.partial_result = self._as_table(error.partial_result)  # type: ignore[assignment]
            raise told from error.__cause__

    def _as_table(self, result: OrchestratorResult) -> MapResult:
        made, judges = MapResult(self.order, result), self.order.options.judges
        made.reused = self.reused
        made.again = Again(self.start_again, result.sub_agent_results, self.id, judges)
        return made

    @property
    def reused(self) -> int:
        """The number of answers taken from an earlier map, counted for each row and judge."""
        return self.reused_before + (0 if self.answers is None else self.answers.taken)

    # -- live views ---------------------------------------------------------------------------

    def panel(self) -> MapPanel:
        """Live panel of the map: its progress, and a table whose rows open.

        Several panels of one map stay in sync. `panel.close()` closes one.
        """
        from agentnb.views.panel.map_panel import MapPanel  # loads the widgets only when needed

        return MapPanel(self._live(), self._shape)

    def show_progress(self, wanted: bool | None = None) -> None:
        """Show the map's progress as a line on stderr until its end.

        Args:
            wanted: `None` shows it in a script whose stderr is a terminal, `False` never.
        """
        if wanted is False or (wanted is None and is_interactive()) or self._line is not None:
            return
        self._line = ProgressLine(
            self._bus, self._watch, cost=lambda: self._cost_so_far().times(1), always=bool(wanted)
        )

    @cached_property
    def _shape(self) -> MapShape:
        return MapShape(len(self.table), self.order.options.judges, _labels_of(self.table))

    @cached_property
    def _watch(self) -> MapWatch:
        return MapWatch(self._bus, self._shape)

    def _ipython_display_(self) -> None:
        """As a cell's value: the live view, with no text that each replay would change."""
        wanted = wanted_display()
        if wanted == "none":
            return
        if not (is_notebook() and wanted in (ALL, "widget")):
            raise NotImplementedError  # IPython then shows the bundle
        self.panel()._ipython_display_()

    def _bundle(self) -> Bundle:
        counts = ", ".join(count_words(self._watch.progress()))
        line = f"{type(self).__name__}({quoted(self.task)}, {self.status}): {counts}"
        return {"text/plain": line}


def _labels_of(table: Table) -> Sequence[str]:
    """The beginning of each row: its first column, or the name of its file."""
    columns = table.columns
    if not columns:
        return ()
    values = table.column("name" if columns == _OF_FILES else columns[0])
    return [cell_text(value)[:_LABEL_LENGTH] for value in values]


@contextmanager
def _noting_interrupts() -> Iterator[list[bool]]:
    """A list that gets an item when an interrupt comes. Whoever heard of it before hears of it.

    A wait that is cancelled was interrupted, or given up by its own code (`asyncio.timeout`), and
    only the first stops the map.
    """
    came: list[bool] = []
    with INTERRUPTS.heard_by(lambda: came.append(True), alone=False):
        yield came
