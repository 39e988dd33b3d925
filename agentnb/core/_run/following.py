"""A run that follows its past: a recovered run until its frontier, a replayed run to its end.

This module has the effects on the run as a whole. Each agent asks its own part of the past in the
code that makes its calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agentnb.core._past.whole import WENT_ON
from agentnb.core.errors import OrchestratorError
from agentnb.core.past import NO_LONGER_FITS, Past
from agentnb.core.replay import Replay
from agentnb.core.types import ROOT_PATH, AgentStatus, id_at, path_of

if TYPE_CHECKING:
    from agentnb.core._run.agent import Agent
    from agentnb.core.request import RunState


class Following:
    """Lets one run follow its past; does nothing for a run without one.

    Args:
        run: The run's state.
        agents: The run's agents by id, added as they start.
    """

    def __init__(self, run: RunState, agents: Mapping[str, Agent]) -> None:
        self._run = run
        self._agents = agents
        self._is_silent = False
        """Whether the cancel under way is not to be recorded as a person's order."""
        self.missing: OrchestratorError | None = None
        """The error of a miss that ends a replay; `None` so far."""

    def begin(self) -> None:
        """Repeat the orders of persons, and delay new work until the past is taken."""
        run, past = self._run, self._run.past
        if past is None:
            return
        for order in past.orders():
            run.recorder.keep(order)
        run.meter.follow(
            past.budget_acts(),
            past.total,
            past.used_s(),
            past.spent(),
            new_total=past.new_total,
        )
        run.questions.number_after(past.last_question)
        run.request.pauses.follow(
            past.pause_orders(), past.still_paused(), holds=past.is_done_again
        )
        past.when_cancelled(self._cancel_as_recorded)
        if not past.is_done_again:
            # A new order takes effect after the record is published: it must not cut it off.
            run.request.cancellation.hold()
        past.when_taken(partial(self._go_on, past))
        if isinstance(past, Replay):
            past.when_missed(self._missed)
            past.keep_pace(lambda: run.bus.now_s, run.request.clock.sleep)

    async def end(self, status: AgentStatus) -> None:
        """The run is about to end: take up the rest of the past, or leave its record unchanged.

        Args:
            status: The root's status.
        """
        past = self._run.past
        if past is None:
            return
        was_cut = status is AgentStatus.CANCELLED and not past.is_over
        if was_cut and not past.is_done_again:
            self._run.recorder.drop()  # cut off before its end: the old record is more complete
            self._run.request.cancellation.go_on()
        else:
            await past.go_on()

    def cancel_ordered(self, agent_id: str | None, reason: str, by: str) -> None:
        """Record that a person cancelled an agent or the run. Runs on the caller's thread."""
        if self._is_silent:
            return
        path = None if agent_id is None else path_of(agent_id, self._run.request.thread_id)
        self._run.recorder.cancel_ordered(path, reason, by)

    async def _go_on(self, past: Past) -> None:
        """The past is taken: count what was lost, and let the journal replace the old record."""
        run, request, recorder = self._run, self._run.request, self._run.recorder
        if past.misfits and past.changed == "refuse":
            past.refuse()
            recorder.drop()
            self._cancel_silently(None, NO_LONGER_FITS, "limit")
            request.cancellation.go_on()
            return
        if not past.is_done_again:
            self._count_what_was(past)
        run.meter.go_on(tells_the_rest=past.tells_the_rest)
        request.pauses.go_on(tells_the_rest=past.tells_the_rest)
        request.notes.update(past.notes())
        for path, note in past.open_words():
            request.words.tell_again(id_at(path, request.thread_id), note)
        for path, reason, by in past.open_cancels():
            with suppress(KeyError):  # the agent has not started
                self._cancel_as_recorded(path, reason, by)
        request.cancellation.go_on()
        await recorder.let_go()

    def _count_what_was(self, past: Past) -> None:
        """Count and record what repeating the past leaves out: lost and open calls, used time."""
        run, request, recorder = self._run, self._run.request, self._run.recorder
        request.budget.leave_unspent()
        for path, number, tokens in past.lost():
            request.budget.add_tokens(request.amount_of_lost(tokens))
            recorder.lost(path, number, tokens)
        for path, value in past.assigned_left():
            agent = self._agents.get(id_at(path, request.thread_id))
            if agent is not None:
                agent.services.assigned_before(value)
        for tool_call in past.open_tool_calls():
            recorder.intend(tool_call)
        if run.limits.has_time:
            value = {"used_s": past.used_s(), "at_s": run.bus.now_s}
            recorder.of_run_again(WENT_ON, value)

    def _missed(self, error: OrchestratorError) -> None:
        """No record answers an act of a replay: end the run with that error."""
        self.missing = error
        # The other lines of its message compare requests; the run's own error has them.
        first = str(error).partition("\n")[0].removesuffix(".")
        self._cancel_silently(None, f"the run has failed: {first}", "limit")

    def _cancel_as_recorded(self, path: str, reason: str, by: str) -> None:
        agent_id = None if path == ROOT_PATH else id_at(path, self._run.request.thread_id)
        self._cancel_silently(agent_id, reason, by)

    def _cancel_silently(self, agent_id: str | None, reason: str, by: str) -> None:
        """Cancel without recording an order."""
        self._is_silent = True
        try:
            self._run.request.cancellation.cancel(agent_id, reason, by=by, at_once=True)
        finally:
            self._is_silent = False
