"""The one place where a run's budget is drawn on, watched and argued about.

A call gets a lease: its input and a first slice of output, reserved. While the reply streams,
the lease meters it and extends itself slice by slice; at its end the provider's own count
settles it. A call that does not fit waits for others to settle, and only when no call is open
is the pot found empty. A part of the total is left for the root's synthesis, so that a run which
ran dry still ends in an answer. That call waits for nobody's answer, either.

All methods belong to the run's own loop. A new total arrives there from any thread, through
`RequestBudget.set_total`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from agentnb.core._budget.lease import Lease
from agentnb.core._budget.pause import BudgetPause
from agentnb.core.budget import OUTPUT_SLICE, RequestBudget
from agentnb.core.clock import Clock, TimeLimit, TimerHandle
from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    BudgetChanged,
    BudgetExhausted,
    BudgetUpdate,
    BudgetWarning,
    LimitReached,
)
from agentnb.core.limits import Refusal, RunLimits
from agentnb.core.protocols import BudgetGate
from agentnb.core.types import BudgetStatus, CompletionRequest, path_key

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus

UPDATE_EVERY_S = 0.1
"""`BudgetUpdate` comes at most this often, but for changes that matter."""


def synthesis_reserve(total: int) -> int:
    """Tokens that only the root's synthesis may use, before anyone knows what it will need.

    5 % of the total, at least 512, at most a quarter.
    """
    return min(max(total // 20, 512), total // 4)


class BudgetExceeded(Exception):
    """A call cannot be made, and no open call can make room for it. The text says why."""


class Meter:
    """Hands out leases on one budget, and asks when it runs low.

    Args:
        policy: What happens at the warning line where no gate is given: `ask` (holds new calls
            while somebody is there to answer), `continue` or `stop`.
        gate: Asked in place of a person.
        is_attended: Whether a person is there to answer.
        pause_timeout_s: After so long without an answer the run stops as if the pot were empty.
        limits: What else may end the run's work.
    """

    def __init__(
        self,
        budget: RequestBudget,
        bus: EventBus,
        clock: Clock,
        *,
        policy: str = "ask",
        gate: BudgetGate | None = None,
        is_attended: Callable[[], bool] = lambda: False,
        pause_timeout_s: float = 600.0,
        limits: RunLimits | None = None,
    ) -> None:
        self.budget = budget
        self._limits = limits or RunLimits()
        self._bus = bus
        self._clock = clock
        self._policy = policy
        self._has_gate = gate is not None
        self._is_attended = is_attended
        self._known_total = budget.total
        self._stopped: str | None = None
        self._exhausted_reported = False
        self._is_exhausted = False
        self._pause = BudgetPause(
            bus, clock, gate=gate, timeout_s=pause_timeout_s, on_answer=self._answered
        )
        self._queue: list[tuple[int, asyncio.Future[None]]] = []
        # In order, so that the same run ends its calls in the same order.
        self._open: dict[Lease, None] = {}
        self._waits: dict[Wait, None] = {}
        self._tools: dict[TimeLimit, None] = {}
        self._updated_at_s = float("-inf")
        self._update_timer: TimerHandle | None = None
        self._seen_crossings = budget.crossings
        self._has_warned = False
        self._warned_early_at = -1
        """The total that was told as exhausted before its warning line was crossed."""
        self._synthesis_need: Callable[[], int] | None = None
        """Known when the root has delegated."""
        self._used_before_delegation = 0
        self._is_closed = False

    async def __aenter__(self) -> Meter:
        loop = asyncio.get_running_loop()

        def new_total() -> None:
            try:
                loop.call_soon_threadsafe(self._on_new_total)
            except RuntimeError:
                pass  # the run's loop is closed: nobody is left to tell

        self.budget.when_total_set(new_total)
        self._limits.begin(self._clock, self._on_limit)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True  # for what is on its way to `_on_new_total` already
        self._limits.end()
        self.budget.when_total_set(None)
        self._synthesis_need = None  # it holds the root, and with it the whole record
        try:
            await self._pause.aclose()
        finally:  # also when it is cancelled meanwhile: no update may come after the run's end
            self._update(force=True)

    # -- leases ---------------------------------------------------------------------------

    @property
    def is_exhausted(self) -> bool:
        """Whether something could not go on, and nobody has raised the total since."""
        return self._is_exhausted or self._stop_reason() is not None

    @property
    def was_exhausted(self) -> bool:
        """Whether something could not go on at any time of this run."""
        return self._exhausted_reported

    @property
    def ended_by(self) -> str:
        """What ends the work of an exhausted run, in words."""
        reached = self._limits.may_call()
        return reached.reason if reached is not None else "the budget ended"

    def _stop_reason(self, *, for_root_synthesis: bool = False) -> str | None:
        """Why no such call is let through, whatever room there is."""
        if for_root_synthesis:
            return None
        reached = self._limits.may_call()
        return reached.reason if reached is not None else self._stopped

    @property
    def is_paused(self) -> bool:
        return self._pause.is_open

    def holds(self, *, for_root_synthesis: bool) -> bool:
        """Whether such a call waits for the answer to the budget's question."""
        return self.is_paused and not for_root_synthesis

    def root_delegates(self, need: Callable[[], int]) -> None:
        """From now on keep what the root's synthesis needs at least. The first call counts.

        Args:
            need: Tells the tokens, whenever it is asked: the root's conversation and its tasks may
                grow.
        """
        if self._synthesis_need is None:
            self._synthesis_need = need
            self._used_before_delegation = self.budget.tokens_used

    @property
    def kept(self) -> int:
        """Tokens that only the root's synthesis may use.

        Once the root has delegated: what that needs at least, and at most a third of what was left
        then, by the total as it stands now.
        """
        total = self.budget.total
        if self._synthesis_need is None:
            return synthesis_reserve(total)
        left_then = max(0, total - self._used_before_delegation)
        return min(self._synthesis_need(), left_then // 3)

    def room(self) -> int:
        """Tokens that the root's synthesis could take now."""
        return self.budget.available

    def lease(
        self,
        request: CompletionRequest,
        *,
        input_tokens: int,
        cache_prefix: int = 0,
        hidden_output: bool = False,
        for_root_synthesis: bool = False,
    ) -> Lease | None:
        """Try to reserve a call.

        Args:
            request: What is to be sent; the lease may lower its `max_tokens`.
            input_tokens: The size of its input.
            cache_prefix: Of its system prompt, what is worth a cache breakpoint.
            hidden_output: The model may produce output that does not stream (as thinking can),
                so all of `max_tokens` is reserved.
            for_root_synthesis: The call may use what was left for it.

        Returns:
            `None` when it has to wait: for an answer, or for others to settle.

        Raises:
            BudgetExceeded: It does not fit, and nothing is open that could make room.
        """
        if self.holds(for_root_synthesis=for_root_synthesis):
            return None
        leave = self.kept_from(for_root_synthesis=for_root_synthesis)
        if why := self._stop_reason(for_root_synthesis=for_root_synthesis):
            raise self._empty(why, for_root_synthesis)
        free = self.budget.total - self.budget.tokens_spoken_for
        max_tokens = min(request.max_tokens, free - leave - input_tokens)
        wanted = request.max_tokens if hidden_output else min(OUTPUT_SLICE, request.max_tokens)
        output = min(wanted, max_tokens)
        enough = max_tokens >= min(wanted, OUTPUT_SLICE)
        held = self.budget.reserve(input_tokens + output, leave=leave) if enough else None
        if held is not None:
            is_limited = max_tokens < request.max_tokens
            if is_limited or cache_prefix != request.cache_prefix:
                request = request.limited(max_tokens=max_tokens, cache_prefix=cache_prefix)
            lease = Lease(
                self,
                held,
                request,
                input_tokens=input_tokens,
                output_tokens=output,
                max_tokens_from_budget=is_limited,
                for_root_synthesis=for_root_synthesis,
            )
            self._open[lease] = None
            return lease
        if self._open:
            return None
        raise self._empty(
            f"the call needs about {input_tokens + min(wanted, OUTPUT_SLICE):,} tokens and "
            f"{max(0, free - leave):,} of {self.budget.total:,} are left"
            + (f" beside the {leave:,} that are kept for the synthesis" if leave else ""),
            for_root_synthesis,
        )

    def kept_from(self, *, for_root_synthesis: bool) -> int:
        """See `agentnb.core._budget.lease.Ledger`."""
        return 0 if for_root_synthesis else self.kept

    async def wait_for_room(self, tokens: int) -> None:
        """Wait until `tokens` may fit, or until it is certain that they never will."""
        if not self._open:
            return  # the last open call has settled meanwhile
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket = (tokens, turn)
        self._queue.append(ticket)
        try:
            await turn
        finally:
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._let_in()  # it may have stood before others that fit

    def wait(self, *, for_root_synthesis: bool) -> Wait:
        """Wait for something else than room, in an `async with`: for a slot, or to try again.

        Raises:
            BudgetExceeded: Meanwhile, or before, the run was stopped by its budget.
        """
        if why := self._stop_reason(for_root_synthesis=for_root_synthesis):
            raise self._empty(why, for_root_synthesis)
        if not self._open and not self.budget.remaining:
            raise self._empty(f"all of {self.budget.total:,} tokens are used", for_root_synthesis)
        return Wait(self._waits, self._empty, TimeLimit(self._clock), for_root_synthesis)

    @contextmanager
    def ending_with_run(self, limit: TimeLimit) -> Iterator[None]:
        """While in this block, `limit` expires when a limit of the run stops all calls."""
        self._tools[limit] = None
        try:
            yield
        finally:
            del self._tools[limit]

    @property
    def stopped_by(self) -> str | None:
        """Which limit has stopped all calls and tools, in words; `None` when none has."""
        reached = self._limits.may_call()
        return reached.reason if reached is not None and reached.stops_open_calls else None

    async def wait_while_paused(self) -> None:
        await self._pause.wait_until_closed()

    def _let_in(self) -> None:
        """Wake those at the head of the queue that fit; all of them when no call is open."""
        room = self.budget.available - self.kept
        all_of_them = not self._open or self._stop_reason() is not None
        while self._queue and (all_of_them or self._queue[0][0] <= room):
            tokens, turn = self._queue.pop(0)
            room -= tokens
            if not turn.done():
                turn.set_result(None)

    # -- what happened to the pot ---------------------------------------------------------

    def closed(self, lease: Lease, status: BudgetStatus) -> None:
        """See `agentnb.core._budget.lease.Ledger`."""
        self._open.pop(lease, None)
        self.moved(status)
        self._let_in()

    def moved(self, status: BudgetStatus) -> None:
        """See `agentnb.core._budget.lease.Ledger`."""
        if self.budget.crossings > self._seen_crossings:
            self._seen_crossings = self.budget.crossings
            self._warn(can_go_on=status is not BudgetStatus.EXHAUSTED)
        self._update(force=False)

    def _update(self, *, force: bool) -> None:
        """Tell how the pot stands: now, or as soon as the last time is long enough ago."""
        wait_s = self._updated_at_s + UPDATE_EVERY_S - self._clock.now()
        if wait_s > 0 and not force:
            if self._update_timer is None:
                self._update_timer = self._clock.call_later(wait_s, self._update_now)
            return
        self._update_now()

    def _update_now(self) -> None:
        if self._update_timer is not None:
            self._update_timer.cancel()
            self._update_timer = None
        self._updated_at_s = self._clock.now()
        self.budget.book_all()  # whatever comes next is booked at once, and leads to an update
        self._bus.publish(
            BudgetUpdate(
                tokens_used=self.budget.tokens_used,
                budget_total=self.budget.total,
                percentage=self.budget.percentage,
            )
        )

    def _empty(self, why: str, for_root_synthesis: bool) -> BudgetExceeded:
        self._is_exhausted = True
        if not for_root_synthesis:
            self.report_exhausted()
        return BudgetExceeded(why)

    def report_exhausted(self) -> None:
        """Something other than the root's synthesis could not go on."""
        # There may be room all the same: the total was raised after a reply's limit was set.
        if self.room() < self.kept + OUTPUT_SLICE:
            self._is_exhausted = True
        if self._exhausted_reported:
            return
        self._exhausted_reported = True
        if self.budget.is_warning_due or not self._has_warned:
            self._warned_early_at = self.budget.total
            self._publish_warning()
        done, open_ = self._agents()
        self._bus.publish(
            BudgetExhausted(
                tokens_used=self.budget.tokens_used,
                budget_total=self.budget.total,
                percentage=self.budget.percentage,
                completed_agents=done,
                incomplete_agents=open_,
            )
        )

    def _agents(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids of all agents so far: those that are completed, and the others."""
        completed: dict[str, bool] = {}
        for _, event in self._bus.lifecycle_rows:
            if isinstance(event, AgentSpawned):
                completed[event.agent_id] = False
            elif isinstance(event, AgentCompleted):
                completed[event.agent_id] = True
        in_order = sorted(completed, key=path_key)
        done = tuple(each for each in in_order if completed[each])
        return done, tuple(each for each in in_order if not completed[each])

    def _on_limit(self, refusal: Refusal) -> None:
        """Another limit than the budget ends the work: the root's synthesis is left."""
        done, open_ = self._agents()
        self._bus.publish(
            LimitReached(
                limit=refusal.limit,
                value=refusal.value or 0,
                completed_agents=done,
                incomplete_agents=open_,
            )
        )
        self._exhausted_reported = True
        self._halt(refusal.reason, open_calls=refusal.stops_open_calls)
        for tool in list(self._tools) if refusal.stops_open_calls else ():
            tool.expire()
        self._pause.settle("ended")
        self._let_in()

    def _on_new_total(self) -> None:
        budget = self.budget
        previous, self._known_total = self._known_total, budget.total
        if previous == budget.total or self._is_closed:
            return
        self._bus.publish(
            BudgetChanged(
                budget_total=budget.total,
                previous_total=previous,
                tokens_used=budget.tokens_used,
            )
        )
        self._update(force=True)
        self._warned_early_at = min(self._warned_early_at, budget.total)
        if budget.total > previous:
            self._is_exhausted = False
            self._stopped = None
            self._pause.settle("raised")
        elif budget.tokens_used >= budget.total:
            self._halt(
                f"the total was set to {budget.total:,} tokens, which were already used",
                also_synthesis=True,
            )
            self._pause.settle("lowered")
        self._let_in()

    def _halt(self, why: str, *, also_synthesis: bool = False, open_calls: bool = True) -> None:
        """End what waits, and what is open: what came is kept."""
        calls: list[Lease | Wait] = [*(self._open if open_calls else ()), *self._waits]
        for call in calls:
            if also_synthesis or not call.for_root_synthesis:
                call.halt(why)

    # -- the warning and its question -----------------------------------------------------

    def _warn(self, *, can_go_on: bool) -> None:
        warning = self._warning()
        if self.budget.total > self._warned_early_at:  # else this line was warned of already
            self._publish_warning()
        self._warned_early_at = -1
        if not can_go_on:
            return  # both lines at once: there is nothing left to ask about
        if not self._has_gate and self._policy == "stop":
            self._stop("the run was set to stop at the budget's warning line")
        elif self.is_exhausted:
            return  # the root's synthesis is left, and waits for no answer
        elif self._has_gate or (self._policy == "ask" and self._is_attended()):
            self._limits.pause()
            self._pause.ask(warning)

    def _publish_warning(self) -> None:
        self._has_warned = True
        self._bus.publish(self._warning())

    def _warning(self) -> BudgetWarning:
        budget = self.budget
        return BudgetWarning(
            tokens_used=budget.tokens_used,
            budget_total=budget.total,
            percentage=budget.percentage,
        )

    def answer(self, answer: str) -> None:
        """A person's answer to the open question. See `BudgetPause.answer`."""
        self._pause.answer(answer)

    def _answered(self, why_stop: str | None) -> None:
        self._limits.resume()
        if why_stop is not None:
            self._stop(why_stop)
        self._let_in()

    def _stop(self, why: str) -> None:
        self._stopped = why
        self._halt(why)
        self._let_in()


class Wait:
    """A call that waits for something else than room, and can be told that it waits in vain."""

    def __init__(
        self,
        open_waits: dict[Wait, None],
        empty: Callable[[str, bool], BudgetExceeded],
        limit: TimeLimit,
        for_root_synthesis: bool,
    ) -> None:
        self.for_root_synthesis = for_root_synthesis
        self._halted: str | None = None
        self._open_waits = open_waits
        self._empty = empty
        self._limit = limit

    async def __aenter__(self) -> None:
        self._open_waits[self] = None
        self._limit.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._open_waits[self]
        try:
            self._limit.__exit__(kind, error, trace)
        except TimeoutError:  # its own: somebody else's passes through
            raise self._empty(self._halted or "", self.for_root_synthesis) from None

    def halt(self, why: str) -> None:
        if self._halted is None:
            self._halted = why
            self._limit.expire()
