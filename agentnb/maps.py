"""How a session's maps are started: with the answers of earlier ones, once more, and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentnb.core.plan import ReusedAnswer
from agentnb.core.records import REUSED
from agentnb.mapping.order import MapOrder, recovered_order
from agentnb.mapping.reuse import (
    MOST_MAPS,
    EarlierAnswers,
    Found,
    Keep,
    KernelAnswers,
    Label,
    TakenAnswers,
    label_of,
    together,
)
from agentnb.mapping.run import MapRun
from agentnb.recovery import Recovering
from agentnb.run import Run
from agentnb.run_options import RunOptions
from agentnb.run_store import RunStore


@dataclass(frozen=True, slots=True)
class Maps:
    """Starts maps.

    Args:
        start: Starts a run of a kind, by the session.
        store: Where the session's runs are kept.
        answers: Those of the maps of this kernel, for a session without a store.
        reads_before: Whether answers of earlier maps may be taken: in mode `live` alone, so that a
            replay is the same.
    """

    start: Callable[..., Run[Any]]
    store: RunStore
    answers: KernelAnswers
    reads_before: bool

    def map(
        self,
        order: MapOrder,
        name: str,
        given: Mapping[str, Any],
        *,
        reuse: bool,
        progress: bool | None,
    ) -> MapRun:
        """Start a map.

        Args:
            order: What is asked of which rows.
            name: What the person calls it; empty for nothing.
            given: Settings of the run that replace the session's, besides the order's.
            reuse: Whether answers of earlier maps are taken.
            progress: See `Session.map`.
        """
        options = RunOptions(
            order.prompt,
            {**order.given, **given},
            plan=order.plan,
            synthesis=False,
            name=name,
            output=order.output,
            table=order.options,
            answers=self._earlier(order, name, reuse=reuse),
        )
        return self._begin(options, order, progress=progress)

    def recovered(self, options: RunOptions, recovering: Recovering) -> Run[Any]:
        """Start a run that goes on; a map as one."""
        if options.table is None or options.plan is None:
            return self.start(options, is_by_hand=True)
        order = recovered_order(options.title, options.plan, options.table, options.output)
        verdicts = recovering.past.journal.verdicts
        run = self._begin(options, order, is_by_hand=True)
        run.reused_before = sum(each.kind == REUSED for each in verdicts)
        return run

    def _begin(
        self,
        options: RunOptions,
        order: MapOrder,
        *,
        progress: bool | None = False,
        is_by_hand: bool = False,
    ) -> MapRun:
        run = self.start(options, is_by_hand=is_by_hand, make=MapRun)
        assert isinstance(run, MapRun)
        run.order, run.answers = order, options.answers
        run.start_again = partial(self._again, options, order)
        run.show_progress(progress)
        return run

    def _again(
        self,
        options: RunOptions,
        order: MapOrder,
        taken: Mapping[int, ReusedAnswer],
        left_out: Mapping[int, str],
        model: str | None,
    ) -> MapRun:
        """See `agentnb.mapping.retry.Again`."""
        given, table = options.given, options.table
        if model is not None:
            given = {**given, "model": model}
            table = table and replace(table, models=())
        before = options.answers
        foreign = before.foreign if isinstance(before, TakenAnswers) else ()
        taken = {
            number: answer._replace(is_foreign=model is not None or number in foreign)
            for number, answer in taken.items()
        }
        label = label_of(options.name, options.title, options.output)
        # A run of its own: not in the budget of one that was recovered.
        again = replace(
            options,
            given=given,
            table=table,
            answers=TakenAnswers(taken, self._keep(label)),
            left_out=left_out,
            recovering=None,
            order=None,
            thread=None,
            standing=None,
        )
        return self._begin(again, order)

    def _earlier(self, order: MapOrder, name: str, *, reuse: bool) -> EarlierAnswers | None:
        """Answers of earlier maps, of the store's or else of this kernel's."""
        if not self.reads_before:
            return None
        label = label_of(name, order.prompt, order.output)
        schema = None if order.output is None else order.output.schema
        kept: Sequence[Found] | None = []
        if reuse:
            kept = self.store.row_answers(name, order.prompt, schema=schema, most=MOST_MAPS)
        known = self.answers.found(label) if kept is None else together(kept)
        return EarlierAnswers(known, self._keep(label))

    def _keep(self, label: Label) -> Keep | None:
        """Keeps the answers of a map that begins; `None` if the store does."""
        is_kept = self.store.path is not None and self.store.trouble is None
        return None if is_kept or not self.reads_before else self.answers.begin(label)
