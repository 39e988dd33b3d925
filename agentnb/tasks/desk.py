"""The post office of a session: it gives messages their turn, and tells who is to know.

A run on a thread waits here until every earlier message of that thread is done, in this process
and in others. Then it begins with the conversation before it. At its end one transaction keeps its
answer, lets go of the thread and does to its task what is to be done.

A run's turn belongs to the runtime's loop; messages are queued and started on any thread.
"""

from __future__ import annotations

import asyncio
import bisect
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agentnb.core.budget import RequestBudget
from agentnb.core.cancel import Cancellation
from agentnb.core.durable import AgentMetadata, MessageKind
from agentnb.core.errors import (
    NoSuchThread,
    OrchestratorError,
    RunCancelled,
    SessionClosed,
    ToolError,
)
from agentnb.core.request import RequestContext
from agentnb.core.secrets import masked_words
from agentnb.core.types import (
    AgentStatus,
    OrchestratorResult,
    Role,
    is_at_or_below,
    path_of,
)
from agentnb.runtime import get_runtime
from agentnb.store import pots, queue, task_runs, threads
from agentnb.store.queue import Begun, NotQueued, Queued
from agentnb.store.runs import finished_run
from agentnb.store.trouble import StoreTrouble
from agentnb.tasks.assignment import NewAgent
from agentnb.tasks.thread import add_own_agents

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.agent_view import AgentView
    from agentnb.run import Run
    from agentnb.run_store import RunStore
    from agentnb.store.transactions import Transactions

T = TypeVar("T")

_POLL_S = 0.2
"""How often a message looks whether another process has let go of its thread, in seconds."""
_LIMIT_REACHED = "a limit of the run was reached"
_WITHDRAWN = "its message was withdrawn"
_NEWS_S = 1.0
"""How often agents at work look for what other processes have told them, in seconds."""


_budgets: weakref.WeakValueDictionary[str, RequestBudget] = weakref.WeakValueDictionary()
"""Of this process's runs, by id: several sessions with one id draw on the same."""


@dataclass(frozen=True, slots=True)
class Order:
    """A run to start on a thread, for a message that is queued."""

    queued: Queued
    metadata: AgentMetadata | None
    """Of the thread's agent."""
    below: RequestBudget | None
    """The pot in which the run's own stands."""
    lineage: tuple[str, ...]
    """The tasks above this one, the nearest first."""
    name: str = ""
    """What a list of runs calls it."""


class RunStarter(Protocol):
    """The session, as the desk uses it. From any thread."""

    def start_order(self, order: Order) -> Run:
        """Start a run that waits for its turn at the desk.

        Raises:
            AgentnbError, ValueError: Its settings do not fit.
        """
        ...

    def check_new(self, new: NewAgent) -> None:
        """Check the names of an agent that is to be made.

        Raises:
            BadAssignment: There is no such provider or profile.
            AgentnbError: The provider or the profile cannot be used.
        """
        ...

    def find_run(self, run_id: str) -> Run | None:
        """A run of this process; `None` if it is not referenced any more."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """What a run works on."""

    thread_id: str
    text: str
    queued: Queued | None = None
    """Its message; `None` for the first one of a new thread."""


class Desk:
    """One session's messages, and the runs that work on them in this process.

    Args:
        session_id: The session.
        store: Where its threads are.
        runs: Starts and finds runs.
    """

    def __init__(self, session_id: str, store: RunStore, runs: RunStarter) -> None:
        self.session_id = session_id
        self._store = store
        self._runs_ref = weakref.ref(runs)
        self._is_closed = False
        self._lines: dict[str, list[_Waiting]] = {}
        """By thread: the messages of this process that wait or are at work, in order."""
        self._live: dict[str, RequestContext] = {}
        """Runs at work, by id."""
        self._cancellations: weakref.WeakValueDictionary[str, Cancellation] = (
            weakref.WeakValueDictionary()
        )
        """Of runs that have begun, by id: a cancel of one reaches what it has assigned, also when
        it has ended. What goes on below one keeps it."""
        self._pots: dict[str, RequestBudget] = {}
        """Pots of runs that have assigned tasks, by the run's id."""
        self._told: set[str] = set()
        """Agents at work that have been told something."""
        self._watch: asyncio.Task[None] | None = None
        self.may_be_told = False
        """Whether other processes may tell this one's agents something."""

    @property
    def _runs(self) -> RunStarter:
        # A run in work keeps the session; its desk alone does not, so that both go at once.
        runs = self._runs_ref()
        if runs is None:
            raise SessionClosed
        return runs

    @property
    def transactions(self) -> Transactions:
        """The database that the session's threads and tasks are in."""
        return self._store.transactions()

    # -- queueing -------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise `SessionClosed` if the desk starts nothing more."""
        if self._is_closed:
            raise SessionClosed

    def enqueue(self, thread_id: str, text: str, given: Mapping[str, Any]) -> Queued:
        """Queue a person's message. Blocks until it is on disk.

        Raises:
            NoSuchThread: The session has no such thread.
            StoreTrouble: It cannot be kept.
        """
        queued: Queued | None = None

        def work(db: Connection) -> Queued:
            nonlocal queued
            if not threads.has_thread(db, thread_id, self.session_id):
                raise NoSuchThread(thread_id)
            queued = queue.enqueue(
                db,
                thread_id,
                text,
                process=transactions.process,
                now=time.time(),
                settings=given,
            )
            return queued

        transactions = self.transactions
        try:
            return transactions.do(work)
        except KeyboardInterrupt:
            # It may be on disk, or be there soon: without a run it would hold up its thread.
            transactions.do(lambda db: queued and queue.withdraw(db, queued.message))
            raise

    def withdraw(self, queued: Queued) -> None:
        """Take back a message whose run could not be started."""
        with suppress(StoreTrouble):
            self.transactions.do(lambda db: queue.withdraw(db, queued.message))

    def order_for(self, queued: Queued) -> Order:
        """What the run of a message is given by what is kept of its thread. Blocks."""
        return self.transactions.do(partial(self._order_for, queued))

    def _order_for(self, queued: Queued, db: Connection) -> Order:
        row = threads.thread_row(db, queued.thread_id)
        return Order(
            queued,
            None if row is None else row.metadata,
            None if queued.pot is None else self._pot(db, queued.pot),
            tuple(task_runs.lineage(db, queued.thread_id, queued.task)),
            task_runs.name_of(db, queued.task, is_told=queued.kind is MessageKind.TASK_COMPLETION),
        )

    def start(self, queued: Queued) -> None:
        """Start the run of a message that an agent or the task system queued."""
        self._expect_news()
        if queued.run_id is not None:  # a process that died had begun it, and perhaps ended it
            woken = self.transactions.do(partial(self._end_of_dead, queued))
            if woken is not None:
                for each in woken:
                    self.start(each)
                return
        try:
            run = self._runs.start_order(self.order_for(queued))
        except SessionClosed:
            self._leave(queued)
            return
        except Exception as error:  # settings of another version, say: the others must still start
            self._refuse(queued, str(error) or type(error).__name__)
            return
        above = None if queued.pot is None else self._cancellations.get(queued.pot)
        is_work = queued.kind is MessageKind.TASK_ASSIGNMENT
        # Work that a cancelled run has assigned ends at once; a completion is still to be heard.
        if above is not None and (is_work or above.root_reason is None):
            above.add_below(run._request.cancellation)

    def _end_of_dead(self, queued: Queued, db: Connection) -> list[Queued] | None:
        """Keep the end of a run whose process died right behind it. `None` if it had not ended."""
        assert queued.run_id is not None
        finished = finished_run(db, queued.run_id)
        if finished is None:
            return None
        status, answer, error = finished
        now = time.time()
        woken = queue.end(
            db,
            queued.thread_id,
            queued.run_id,
            answer,
            message=queued.message,
            next_children={},
            process=self.transactions.process,
            now=now,
        )
        self._end_task(db, queued, status, answer, error or _LIMIT_REACHED)
        return woken

    def adopt(self) -> None:
        """Start what a dead process left queued. Blocks."""
        transactions = self.transactions
        for queued in transactions.do(partial(self._adopt, transactions)):
            self.start(queued)

    def _adopt(self, transactions: Transactions, db: Connection) -> list[Queued]:
        return queue.adopt(
            db,
            self.session_id,
            process=transactions.process,
            is_alive=transactions.is_alive,
        )

    def _leave(self, queued: Queued) -> None:
        """Leave a message that a closed session does not start to whoever opens it again."""
        with suppress(StoreTrouble):
            self.transactions.do(partial(self._release, queued))

    def _refuse(self, queued: Queued, why: str) -> None:
        """Keep a message whose run cannot be started, and block its task."""

        def work(db: Connection) -> None:
            queue.keep_only(db, queued.message, None)
            self._end_task(db, queued, AgentStatus.FAILED, "", why)

        with suppress(StoreTrouble):
            self.transactions.do(work)

    # -- a run's turn ---------------------------------------------------------------------------

    async def in_turn(
        self,
        work: Work,
        request: RequestContext,
        execute: Callable[[Begun], Awaitable[OrchestratorResult]],
    ) -> OrchestratorResult:
        """Wait for a run's turn, run it, and keep its end.

        Args:
            work: What it works on.
            request: Its shared state.
            execute: Runs it, with the conversation before it.
        """
        waiting = _Waiting(work.queued.message if work.queued is not None else 0, request)
        line = self._lines.setdefault(work.thread_id, [])
        bisect.insort(line, waiting)
        try:
            begun = await self._begin(work, request, waiting, line)
            if begun is None:
                return await execute(Begun((), 1))
            request.numbers.start(work.thread_id, begun.first_child)
            self._live[request.run_id] = request
            self._cancellations[request.run_id] = request.cancellation
            _budgets[request.run_id] = request.budget
            self._keep_watch()
            try:
                return await self._run(work, request, execute, begun)
            finally:
                del self._live[request.run_id]
                self._told -= {each for each in self._told if is_at_or_below(each, work.thread_id)}
        finally:
            line.remove(waiting)
            if line:
                line[0].news.set()
            elif self._lines.get(work.thread_id) is line:
                del self._lines[work.thread_id]

    async def _begin(
        self, work: Work, request: RequestContext, waiting: _Waiting, line: list[_Waiting]
    ) -> Begun | None:
        """Begin, as soon as it is this run's turn.

        Returns:
            `None` for a run that is not on its thread: it was cancelled before its turn, or nothing
            can be kept any more.
        """
        if work.queued is None:
            try:
                return await self.transactions.done(partial(self._begin_new, work, request))
            except StoreTrouble:  # told by the store; the run goes on in memory
                return None
        try:
            if (
                begun := await self._wait_for_turn(work.queued, request, waiting, line)
            ) is not None:
                return begun
            if not waiting.is_dropped:
                # In a session that was closed the message stays, for whoever opens it again.
                why = str(RunCancelled(request.cancellation.root_reason))
                leave = self._release if self._is_closed else partial(self._withdraw, why)
                await self.transactions.done(partial(leave, work.queued))
        except NotQueued:  # in another process, or by another session with the same id
            request.cancellation.cancel(None, _WITHDRAWN, by="agent")
        except StoreTrouble as trouble:  # what was said before cannot be read
            request.cancellation.cancel(None, str(trouble), by="limit")
        return None

    async def _wait_for_turn(
        self,
        queued: Queued,
        request: RequestContext,
        waiting: _Waiting,
        line: list[_Waiting],
    ) -> Begun | None:
        """Begin a queued message when its turn has come. `None` if its run is cancelled first.

        Raises:
            NotQueued: It was taken out of the queue.
            StoreTrouble: The queue cannot be read.
        """
        cancelled = asyncio.ensure_future(request.cancellation.root_cancelled())
        try:
            while request.cancellation.root_reason is None:
                waiting.news.clear()
                is_first = line[0] is waiting
                if is_first:
                    begun, adopted = await self.transactions.done(
                        partial(self._try_to_begin, queued, request.run_id)
                    )
                    for each in adopted:
                        self.start(each)
                    if begun is not None:
                        return begun
                news = asyncio.ensure_future(waiting.news.wait())
                await asyncio.wait(
                    (cancelled, news),
                    timeout=_POLL_S if is_first else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                news.cancel()
        finally:
            cancelled.cancel()
        return None

    def _begin_new(self, work: Work, request: RequestContext, db: Connection) -> Begun:
        now = time.time()
        threads.open_session(db, self.session_id, now=now)
        threads.new_thread(db, work.thread_id, self.session_id, now=now)
        return queue.begin_new(
            db,
            work.thread_id,
            work.text,
            request.run_id,
            process=self.transactions.process,
            now=now,
        )

    def _try_to_begin(
        self, queued: Queued, run_id: str, db: Connection
    ) -> tuple[Begun | None, list[Queued]]:
        transactions = self.transactions
        begun = queue.begin(
            db,
            queued.message,
            run_id,
            process=transactions.process,
            is_alive=transactions.is_alive,
        )
        if begun is None:
            # All that the dead left is looked for in all of the queue: only if there is some.
            is_left = queue.is_held_up_by_dead(db, queued.message, is_alive=transactions.is_alive)
            return None, self._adopt(transactions, db) if is_left else []
        if queued.task is not None and queued.kind is MessageKind.TASK_ASSIGNMENT:
            task_runs.begin_work(db, queued.task, queued.thread_id, now=time.time())
        return begun, []

    def _release(self, queued: Queued, db: Connection) -> None:
        # By its owner: one that was adopted has the `run_id` that it had in the dead process.
        db.execute(
            "UPDATE queue SET process = NULL WHERE message = ? AND process = ?",
            (queued.message, self.transactions.process),
        )

    def _withdraw(self, why: str, queued: Queued, db: Connection) -> None:
        """Drop a message that was cancelled before its turn; what the agent was told stays."""
        if queued.kind is MessageKind.TASK_COMPLETION:
            queue.keep_only(db, queued.message, None)
        else:
            queue.withdraw(db, queued.message)
        self._end_task(db, queued, AgentStatus.CANCELLED, "", why)

    async def _run(
        self,
        work: Work,
        request: RequestContext,
        execute: Callable[[Begun], Awaitable[OrchestratorResult]],
        begun: Begun,
    ) -> OrchestratorResult:
        try:
            result = await execute(begun)
        except OrchestratorError as error:
            await self._keep_end(work, request, error.partial_result, str(error))
            raise
        # A task that is cancelled from outside ends with the process: the next one goes on.
        await self._keep_end(work, request, result, "")
        return result

    async def _keep_end(
        self,
        work: Work,
        request: RequestContext,
        result: OrchestratorResult | None,
        error: str,
    ) -> None:
        """Keep a run's end, and start what it wakes."""
        with suppress(StoreTrouble):
            woken = await self.transactions.done(partial(self._end, work, request, result, error))
            for queued in woken:
                self.start(queued)

    def _end(
        self,
        work: Work,
        request: RequestContext,
        result: OrchestratorResult | None,
        error: str,
        db: Connection,
    ) -> list[Queued]:
        now, process = time.time(), self.transactions.process
        answer = _answer_of(result)
        self._keep_answers(db, request, result, now)
        woken = queue.end(
            db,
            work.thread_id,
            request.run_id,
            answer,
            message=None if work.queued is None else work.queued.message,
            next_children=request.numbers.all(),
            process=process,
            now=now,
        )
        if work.queued is not None:
            status = AgentStatus.FAILED if result is None else result.status
            reason = error or _why_not_done(result)
            self._end_task(db, work.queued, status, answer, reason)
        return woken

    def _keep_answers(
        self,
        db: Connection,
        request: RequestContext,
        result: OrchestratorResult | None,
        now: float,
    ) -> None:
        """Keep the answers of those of the run's own agents that have a thread by now."""
        if result is None:
            return
        root = request.thread_id
        answers = {each.agent_id: each.response_text for each in result.memory_contexts}
        own = db.execute("SELECT id FROM threads WHERE run_id = ?", (request.run_id,))
        for (thread,) in own.fetchall():
            if thread != root and answers.get(thread):
                threads.add_message(
                    db,
                    thread,
                    Role.ASSISTANT,
                    answers[thread],
                    now=now,
                    author=thread,
                    run_id=request.run_id,
                )

    def _end_task(
        self, db: Connection, queued: Queued, status: AgentStatus, answer: str, reason: str
    ) -> None:
        if queued.task is not None and queued.kind is MessageKind.TASK_ASSIGNMENT:
            task_runs.end_work(
                db,
                queued.task,
                queued.thread_id,
                status=status,
                answer=answer,
                reason=reason,
                now=time.time(),
            )

    # -- what an agent at work is told ------------------------------------------------------------

    def has_news(self, agent_id: str) -> bool:
        """See `agentnb.core.protocols.Inbox`."""
        return agent_id in self._told

    async def take(self, agent_id: str) -> Sequence[str]:
        """See `agentnb.core.protocols.Inbox`."""
        self._told.discard(agent_id)
        run = self._run_of(agent_id)
        if run is None:
            return ()
        with suppress(StoreTrouble):
            return await self.transactions.done(lambda db: queue.notices(db, agent_id, run.run_id))
        return ()

    def tell(self, thread_id: str) -> None:
        """Note that an agent may have been told something. From any thread."""
        if self._run_of(thread_id) is not None:
            self._told.add(thread_id)

    def _expect_news(self) -> None:
        """From now on another process may tell this one's agents something."""
        if not self.may_be_told:
            self.may_be_told = True
            with suppress(RuntimeError):  # the runtime is gone, and so are its runs
                get_runtime().call_soon(self._keep_watch)

    def _keep_watch(self) -> None:
        if self.may_be_told and self._live and (self._watch is None or self._watch.done()):
            self._watch = asyncio.get_running_loop().create_task(self._watch_for_news())

    async def _watch_for_news(self) -> None:
        """While runs are at work: look for what other processes have told their agents."""
        with suppress(StoreTrouble):
            while self._live:
                await asyncio.sleep(_NEWS_S)
                process = self.transactions.process
                self._told |= set(
                    await self.transactions.done(partial(queue.told, process=process))
                )

    # -- for the board of tasks -------------------------------------------------------------------

    def check_new(self, new: NewAgent) -> None:
        """See `agentnb.tasks.board.TaskDesk`; so the following."""
        self._runs.check_new(new)

    def run_of(self, agent_id: str) -> str | None:
        """The id of the run at work in this process that an agent belongs to."""
        self._expect_news()
        run = self._run_of(agent_id)
        return None if run is None else run.run_id

    def admit(self, agent_id: str, prompt: str) -> None:
        """Count an agent that another makes as a sub-agent of its run."""
        run = self._run_of(agent_id)
        refusal = None if run is None else run.admit_assignment(agent_id, prompt)
        if refusal is not None:
            raise ToolError(f"No agent was made: {refusal.reason}.")

    def drop(self, message: int) -> None:
        """Drop the run of a message that was taken out of its queue."""
        for line in self._lines.values():
            for waiting in line:
                if waiting.message == message:
                    waiting.is_dropped = True
                    waiting.request.cancellation.cancel(None, _WITHDRAWN, by="agent")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and block until it has ended."""
        runtime = get_runtime()
        if runtime.is_current_thread:
            work.close()
            raise RuntimeError(
                "On the runtime's own thread, as in an `async def` tool, a task cannot be changed "
                "at once: `await asyncio.to_thread(session.tasks.create, …)`, or make the tool a "
                "plain function."
            )
        return runtime.submit(work).result()

    def take_child(self, db: Connection, thread_id: str) -> int:
        """The number of a thread's next child: its run's, if one is at work here."""
        run = self._run_of(thread_id)
        if run is None:
            return threads.take_child(db, thread_id)
        (number,) = run.numbers.take(thread_id)
        return number

    def ensure_thread(self, db: Connection, thread_id: str) -> None:
        """Have rows for an agent at work here and for those above it."""
        request = self._run_of(thread_id)
        if request is None or threads.has_thread(db, thread_id):
            return
        run = self._runs.find_run(request.run_id)
        assert run is not None  # it is at work
        missing: list[AgentView] = []
        at = thread_id
        while at != request.thread_id and not threads.has_thread(db, at):
            missing.insert(0, run.agent(path_of(at, request.thread_id)))
            at = at.rpartition(".")[0]
        add_own_agents(db, self.session_id, missing)
        for view in missing:
            queue.take_over(db, view.agent_id, request.run_id, process=self.transactions.process)

    # -- runs that assign -------------------------------------------------------------------------

    def _run_of(self, agent_id: str) -> RequestContext | None:
        """The run at work in this process that an agent belongs to. From any thread."""
        live = list(self._live.values())  # in one step: the loop changes it meanwhile
        of = [each for each in live if is_at_or_below(agent_id, each.thread_id)]
        return max(of, key=lambda each: len(each.thread_id), default=None)

    def _pot(self, db: Connection, run_id: str) -> RequestBudget:
        """The pot of a run, also of one that has ended or whose process died."""
        if run_id not in self._pots:
            found = _budgets.get(run_id)
            if found is None:
                found = _budgets[run_id] = pots.pot_of(db, run_id, above=self._pot)
            self._pots[run_id] = found
        return self._pots[run_id]

    def go_on(self, before: Desk) -> None:
        """Follow another desk of the same session: what was assigned there is not forgotten."""
        self._pots.update(before._pots)
        self._cancellations.update(before._cancellations)

    # -- its end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Start nothing more. Messages that have not begun stay queued for whoever comes next."""
        self._is_closed = True


def _answer_of(result: OrchestratorResult | None) -> str:
    """What a run answered. One that was stopped says why, and may break off within a secret."""
    if result is None:
        return ""
    is_whole = result.status is AgentStatus.COMPLETED and not result.cut
    return result.final_response if is_whole else masked_words(result.final_response)


def _why_not_done(result: OrchestratorResult | None) -> str:
    """Why a run that raised nothing did not complete."""
    incomplete = () if result is None else result.incomplete
    reasons = (each.error for each in incomplete if each.error)
    return next(reasons, _LIMIT_REACHED)


class _Waiting:
    """A message's place in its thread's line."""

    def __init__(self, message: int, request: RequestContext) -> None:
        self.message = message
        self.request = request
        self.news = asyncio.Event()
        self.is_dropped = False
        """Whether its message was taken out of the queue."""

    def __lt__(self, other: _Waiting) -> bool:
        return self.message < other.message
