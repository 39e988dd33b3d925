"""`Recorder`: makes the records of one run, and passes them to the run's journal.

Three rules: the end of a call, a tool or an agent is stored before its event is published; a
failing journal fails the run at its end, and no agent; a cancel never interrupts a commit.

Commits are grouped: one starts immediately if none is open, and requests during an open one share
the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentnb.core.cancel import is_own_cancellation
from agentnb.core.collector import MANY, TurnPause
from agentnb.core.errors import InternalError
from agentnb.core.events import ModelCallFinished, ModelCallStarted, TextRow
from agentnb.core.keys import CallKeys
from agentnb.core.records import (
    FINISHED,
    CallRecord,
    ErrorRecord,
    Kept,
    OrderRecord,
    Pieces,
    RunHead,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.secrets import known_secrets
from agentnb.core.types import ROOT_PATH

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus
    from agentnb.core.clock import Clock, TimerHandle
    from agentnb.core.past import Past
    from agentnb.core.protocols import SupportsCommit
    from agentnb.core.types import CompletionRequest

KEEP_TEXT_EVERY_S = 1.0
"""Seconds between two commits of the text of open calls."""


class Recorder:
    """Makes the records of one run. For the run's loop only, except `cancel_ordered`.

    Args:
        journal: The run's journal; `None` if it has none. Any method but `commit` may be missing.
        bus: The bus that the run publishes on.
        clock: The run's clock.
        past: The run's past, if it is recovered or replayed.
    """

    def __init__(
        self,
        journal: SupportsCommit | None,
        bus: EventBus,
        clock: Clock,
        past: Past | None = None,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._past = past
        self._commit = None if journal is None else journal.commit
        self._begin = getattr(journal, "begin", None)
        self._intend = getattr(journal, "intend", None)
        self._keep = getattr(journal, "keep", None)
        self._published = getattr(journal, "published", None)
        self._let_go = getattr(journal, "let_go", None)
        self._handed = 0
        """Number of entries passed to the journal."""
        self._next: _Batch | None = None
        """The requested commit that has not started."""
        self._open: _Batch | None = None
        """The open commit."""
        self._committing: asyncio.Task[None] | None = None
        self._open_calls = 0
        self._timer: TimerHandle | None = None
        self._logs: dict[str, AgentLog] = {}
        self._newest_path = ""
        """The path of the agent whose call started last."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.error: InternalError | None = None
        """The first failure of the journal; the run raises it at its end."""

        self.secrets = known_secrets()
        """The secrets known at the run's start."""

    @property
    def keeps_records(self) -> bool:
        """Whether anything reads records; if not, none is made."""
        has_journal = self._keep is not None or self._intend is not None
        return has_journal or self._past is not None

    # -- what the journal gets --------------------------------------------------------------------

    def begin(self, head: RunHead) -> None:
        """Begin the run's record."""
        self._loop = asyncio.get_running_loop()
        self._hand(self._begin, head)

    def log(self, path: str) -> AgentLog:
        """The log of a new agent."""
        made = self._logs[path] = AgentLog(self, path)
        return made

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        """Pass on a call or a tool call that is about to start."""
        self._hand(self._intend, record)

    def keep(self, record: Kept) -> None:
        """Pass on a record."""
        self._hand(self._keep, record)
        if self._past is not None:
            self._past.kept(record)

    def _hand(self, method: Callable[[Any], object] | None, value: object) -> None:
        if method is None:
            return
        try:
            method(value)
        except BaseException as error:  # no await here, so it is never this task's cancellation
            self._failed(error)

    def _hand_entries(self) -> None:
        """Pass on the entries published since the last time."""
        if self._published is not None:
            entries = self._bus.rows_as_entries(self._handed)
            self._handed += len(entries)
            self._hand(self._published, entries)

    def _failed(self, error: BaseException) -> None:
        self.error = self.error or InternalError.wrapping(error, where="the journal")

    # -- commits ----------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Wait until everything so far is stored. A cancel meanwhile is raised afterwards."""
        if self._commit is None:
            return
        batch = self._next_batch()
        batch.one_waits()
        await batch

    async def commit_end(self) -> None:
        """`commit` for the run's end: a cancel now is too late, and is dropped."""
        with suppress(asyncio.CancelledError):
            await self.commit()

    def _next_batch(self) -> _Batch:
        """The commit of everything so far: starts now, or when the open one has ended."""
        if self._next is None:
            self._next = _Batch()
            if self._committing is None:
                self._committing = asyncio.create_task(self._make_commits())
                self._committing.add_done_callback(self._commits_ended)
        return self._next

    async def _make_commits(self) -> None:
        assert self._commit is not None
        while self._next is not None:
            self._open, self._next = self._next, None
            self._hand_entries()
            try:
                await self._commit()
            except BaseException as error:
                if is_own_cancellation(error):
                    raise
                self._failed(error)
            self._open.end()
        self._committing = None  # here: later requests start a new task

    def _commits_ended(self, task: asyncio.Task[None]) -> None:
        """If the task was cancelled, perhaps before its first step: release all waiters."""
        if task is not self._committing:
            return
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not report a `GeneratorExit` of our own
        for batch in (self._open, self._next):
            if batch is not None:
                batch.end()
        self._committing = self._open = self._next = None

    def _keep_text_later(self) -> None:
        self._timer = self._clock.call_later(KEEP_TEXT_EVERY_S, self._keep_text)

    def _keep_text(self) -> None:
        """While calls are open: store their text so far, at intervals."""
        self._timer = None
        if self._open_calls:
            self._next_batch()
            self._keep_text_later()

    def call_began(self, path: str) -> None:
        """A call was sent."""
        self._newest_path = path
        self._open_calls += 1
        if self._timer is None and self._published is not None:
            self._keep_text_later()

    def call_ended(self) -> None:
        """A call ended. The timer continues until it finds no open call: most runs open more."""
        self._open_calls -= 1

    async def end(self) -> None:
        """After the run's last event: store what came since the last commit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.commit_end()
        self._loop = None  # an order that comes now is too late
        self._logs.clear()  # they refer to this: the cycle would keep the record in memory

    # -- orders -----------------------------------------------------------------------------------

    def order(self, kind: str, by: str, value: Any, path: str = "") -> None:
        """Record an order received now.

        Args:
            kind: See `agentnb.core.records.OrderRecord`; likewise for `by` and `value`.
            by: Who gave it.
            value: What was ordered.
            path: The path of the branch that it concerns; empty for the run.
        """
        if self._keep is not None and self._loop is not None:
            path = path or self._newest_path or ROOT_PATH
            self.keep(OrderRecord(kind, by, path, self._calls_of(path), self._bus.now_s, value))
            self.commit_soon()

    def _calls_of(self, path: str) -> int:
        log = self._logs.get(path)
        return 0 if log is None else log.calls

    def asked(self) -> None:
        """Record that the budget's question is open from now on."""
        self._of_run("asked", {})

    def warned(self, decision: str, why: str | None, *, answer: str, by: str) -> None:
        """Record what the run does after the budget's warning.

        Args:
            decision: `continue` or `stop`.
            why: Why it stops; `None` if it continues.
            answer: The answer to the budget's question; empty if none was asked.
            by: Who answered; empty without an answer.
        """
        self._of_run("warned", {"decision": decision, "why": why, "answer": answer, "by": by})

    def _of_run(self, kind: str, value: dict[str, Any]) -> None:
        """Record a verdict that concerns all agents, in the root's log, with its place."""
        root = self._logs.get(ROOT_PATH)
        if root is not None and self.keeps_records:
            path = self._newest_path or ROOT_PATH
            root.verdict(kind, {**value, "path": path, "number": self._calls_of(path)})
            self.commit_soon()

    def of_run_again(self, kind: str, value: Any) -> None:
        """Record a verdict that concerns the run, unchanged, in the root's log."""
        if (root := self._logs.get(ROOT_PATH)) is not None:
            root.verdict(kind, value)

    def commit_soon(self) -> None:
        """Commit what a person sees: while agents wait, there may be no other commit."""
        if self._commit is not None:
            self._next_batch()

    def lost(self, path: str, number: int, tokens: int) -> None:
        """Record what a call that was open when the process died may have spent."""
        if (log := self._logs.get(path)) is not None:
            log.verdict("lost", {"number": number, "tokens": tokens})

    async def let_go(self) -> None:
        """The run has repeated its record: from now on the journal stores the new one instead."""
        if self._let_go is not None:
            self._hand_entries()
            await self._let_go()

    def drop(self) -> None:
        """Store nothing more: the journal's earlier record of the run stays as it is."""
        self._commit = self._begin = self._intend = self._keep = self._published = None

    def cancel_ordered(self, path: str | None, reason: str, by: str) -> None:
        """Record a cancel order. May be called from any thread."""
        loop, value = self._loop, {"agent": path, "reason": reason}
        if loop is None or self._keep is None:
            return
        with suppress(RuntimeError):  # the loop is closed: the run is over
            loop.call_soon_threadsafe(self.order, "cancel", by, value, path or "")


class _Batch(asyncio.Future[None]):
    """One commit. Its waiters share it, so none of them can cancel it."""

    _waiting = 0
    _pause: TurnPause | None = None

    def one_waits(self) -> None:
        """Add a waiter. While many wait and then continue, the garbage collector pauses."""
        self._waiting += 1
        if self._waiting == MANY:
            self._pause = TurnPause()

    def cancel(self, msg: Any = None) -> bool:
        """Do nothing: a cancelled waiter gets its cancellation after the commit."""
        return False

    def end(self) -> None:
        """Everything is stored: wake the waiters."""
        if not self.done():
            self.set_result(None)
            if self._pause is not None:
                self._pause.end_behind()
                self._pause = None


class AgentLog:
    """The part of the record that one agent makes: its calls, tool calls and verdicts, numbered.

    Args:
        recorder: The run's recorder.
        path: The agent's path.
    """

    __slots__ = (
        "_keys",
        "_open",
        "_recorder",
        "_tool_calls",
        "_tool_calls_started",
        "_verdicts",
        "calls",
        "path",
        "tool_calls_ended",
    )

    def __init__(self, recorder: Recorder, path: str) -> None:
        self.path = path
        self.calls = 0
        """Number of started calls."""
        self._recorder = recorder
        self._keys: CallKeys | None = None
        self._open: tuple[ModelCallStarted, float, str] | None = None
        """The open call: its event, its start, its key."""
        self._tool_calls = 0
        self._tool_calls_started = 0
        self.tool_calls_ended = 0
        """Number of ended tool calls."""
        self._verdicts = 0

    def key_of(self, model: str, request: CompletionRequest) -> str:
        """The key of the agent's next call."""
        if self._keys is None:
            self._keys = CallKeys(self._recorder.secrets)
        return self._keys.key_of(model, request)

    def call_started(self, event: ModelCallStarted, at_s: float) -> None:
        """A call is about to start."""
        self.calls += 1
        recorder = self._recorder
        recorder.call_began(self.path)
        if not recorder.keeps_records:
            return
        key = self.key_of(event.model, event.request)
        self._open = event, at_s, key
        recorder.intend(
            CallRecord(
                self.path,
                self.calls,
                event.attempt,
                key,
                event.request,
                at_s=at_s,
                model=event.model,
                is_synthesis=event.is_synthesis,
            )
        )

    def call_finished(
        self, event: ModelCallFinished, pieces: Sequence[TextRow], error: ErrorRecord | None
    ) -> None:
        """The open call has ended; its event is published after the next commit."""
        self._recorder.call_ended()
        if self._open is None:
            return
        (started, sent_at_s, key), self._open = self._open, None
        self._recorder.keep(
            CallRecord(
                self.path,
                self.calls,
                started.attempt,
                key,
                started.request,
                Pieces(pieces),
                event.message,
                event.stop_reason,
                event.usage,
                error,
                sent_at_s,
                event.duration_ms,
                FINISHED,
                started.model,
                started.is_synthesis,
                event.estimate_error,
                event.error if error is None else None,
            )
        )

    def next_tool_call(self) -> int:
        """The number of the next tool call, in the order of the model's replies."""
        self._tool_calls += 1
        return self._tool_calls

    def next_tool_start(self) -> int:
        """The place of the tool call that starts now among the started ones, from 1."""
        self._tool_calls_started += 1
        return self._tool_calls_started

    def next_tool_end(self) -> int:
        """The place of the tool call that ends now among the ended ones, from 1."""
        self.tool_calls_ended += 1
        return self.tool_calls_ended

    def verdict(self, kind: str, value: Any) -> None:
        """Record an answer of the run's shared state. See `agentnb.core.records`."""
        if self._recorder.keeps_records:
            self._verdicts += 1
            self._recorder.keep(VerdictRecord(self.path, self._verdicts, kind, value))
