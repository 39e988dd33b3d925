"""The agents of a mapped table: which rows are asked, and when they start.

- A row that already has an answer (`Rows.answers`) makes no call: it completes before anything is
  planned or paid.
- With a shared prompt, the first agent of each model runs until its first byte before the others
  start: only then can they read from the cache what it wrote.
- With `Rows.sample`, a sample of rows at equal distances runs first, and then a person is asked
  about the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from agentnb.core._run.agent import Agent, AgentEnd, NumberedTask, Spawned
from agentnb.core._run.planning import Plans, Upcoming
from agentnb.core._run.row_calls import RowCalls
from agentnb.core._run.sampling import Ahead, Measured, Sampling, usage_below, why_stopped
from agentnb.core.collector import MANY, TurnPause
from agentnb.core.limits import Refusal
from agentnb.core.plan import Plan, ReusedAnswer, Rows
from agentnb.core.protocols import TypedAnswer, WrongAnswer
from agentnb.core.questions import ENDED
from agentnb.core.records import REUSED, SAMPLED
from agentnb.core.request import RunState
from agentnb.core.types import AgentStatus, SpawnMode

LEFT_OUT = "left_out"
"""The `limit` in the refusal of a row that its map leaves out."""


class RowHost(Protocol):
    """What rows need of their run."""

    def add_row(self, root: Agent, task: NumberedTask, spawned: Spawned, plan: Plan) -> Agent:
        """Create the agent of a row."""
        ...

    async def work_on_row(self, agent: Agent) -> AgentEnd:
        """Run the agent of a row from its first call to its end."""
        ...

    def start(
        self, index: int, child: Agent, work: Callable[[], Coroutine[Any, Any, AgentEnd]]
    ) -> asyncio.Task[None]:
        """Start an agent. The task ends when its work has ended and its result is set.

        Args:
            index: Index of its result among its parent's.
            child: The agent.
            work: Makes the coroutine of its work.
        """
        ...

    async def join(
        self, agent: Agent, running: Sequence[tuple[int, Agent, asyncio.Task[None]]]
    ) -> None:
        """Join agents, and set their results.

        Args:
            agent: Their parent.
            running: Per agent: index of its result, the agent, its task.
        """
        ...

    async def skips_rest(self, agent: Agent, at: int) -> bool:
        """Whether the run is exhausted and starts no further task, from index `at` on."""
        ...


class Latch:
    """Opens when all of its `count` parties have arrived; at once if there are none."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._open = asyncio.Event()
        if not count:
            self._open.set()

    def one(self) -> Callable[[], None]:
        """Returns a function for one party to call when it arrives. Further calls do nothing."""
        has_come = False

        def come() -> None:
            nonlocal has_come
            if not has_come:
                has_come = True
                self._left -= 1
                if not self._left:
                    self._open.set()

        return come

    async def wait(self) -> None:
        """Wait until it is open."""
        await self._open.wait()


class MappedRows:
    """Runs the rows of one table.

    Args:
        run: The run's state.
        host: Creates, starts and joins the agents.
        root: The root; it has one result per row and judge.
        plan: The plan of the table.
        rows: The plan's rows.
    """

    def __init__(self, run: RunState, host: RowHost, root: Agent, plan: Plan, rows: Rows) -> None:
        self._run, self._host, self._root = run, host, root
        self._plan, self._rows = plan, rows
        self.calls = RowCalls(run, root, plan, rows)
        self._of_agent: list[Agent] = []
        self._keys: dict[int, str] = {}

    async def work(
        self, plans: Plans, delegation: Upcoming, refusals: Sequence[Refusal | None]
    ) -> None:
        """Run all rows that are not refused.

        Args:
            plans: Publishes what is about to start, and asks a person if required.
            delegation: The table as a delegation of the root.
            refusals: Per row and judge: why it does not run, or `None`.
        """
        refusals = self._without_left_out(refusals)
        reused = self._reused([at for at, refusal in enumerate(refusals) if refusal is None])
        await self._take(reused)
        refusals = [
            Refusal(REUSED, REUSED) if at in reused else refusal
            for at, refusal in enumerate(refusals)
        ]
        refusals = await plans.settle(delegation, refusals)
        places = [at for at, refusal in enumerate(refusals) if refusal is None]
        sample = self._sample(places)
        await self._ask([at for at in places if at in sample])
        if rest := [at for at in places if at not in sample]:
            if not self._was_asked() and await self._host.skips_rest(self._root, rest[0]):
                return
            if await self._goes_on(plans, rest):
                await self._ask(rest)

    def _without_left_out(self, refusals: Sequence[Refusal | None]) -> Sequence[Refusal | None]:
        root, left_out = self._root, self._rows.left_out
        by_reason: dict[str, list[NumberedTask]] = {}
        for at, number in enumerate(root.numbers):
            if (why := left_out.get(number)) is not None:
                root.put(at, replace(root.results[at], error=why))
                by_reason.setdefault(why, []).append(self._task(at))
        for why, tasks in by_reason.items():
            root.ignore(why, tasks)
        return [
            Refusal(LEFT_OUT, left_out[number]) if number in left_out else refusal
            for number, refusal in zip(root.numbers, refusals, strict=True)
        ]

    def _task(self, at: int) -> NumberedTask:
        return NumberedTask(self._root.numbers[at], self._root.results[at].task)

    # -- rows with an answer ----------------------------------------------------------------------

    def _reused(self, places: Sequence[int]) -> Mapping[int, ReusedAnswer]:
        """By index of the result: the answers that exist already."""
        if self._run.past is not None:
            return self._as_recorded(places)
        if self._rows.answers is None:
            return {}
        found: dict[int, ReusedAnswer] = {}
        for at in places:
            task = self._task(at)
            answer = self._rows.answers.find(task.number, partial(self._key, task))
            if answer is not None and self._fits(answer.text):
                found[at] = answer
        return found

    def _as_recorded(self, places: Sequence[int]) -> Mapping[int, ReusedAnswer]:
        assert self._run.past is not None
        verdicts = self._run.past.journal.verdicts
        known = {each.path: each.value for each in verdicts if each.kind == REUSED}
        found: dict[int, ReusedAnswer] = {}
        for at in places if known else ():
            task = self._task(at)
            value = known.get(self._root.path_of_child(task.number))
            if value is not None and value["key"] == self._key(task):
                found[at] = ReusedAnswer(value["run"], value["text"], "foreign" in value)
        return found

    def _key(self, task: NumberedTask) -> str:
        if task.number not in self._keys:
            self._keys[task.number] = self.calls.key(task)
        return self._keys[task.number]

    def _fits(self, text: str) -> bool:
        output = self._plan.output
        return output is None or not isinstance(output.read(text), WrongAnswer)

    async def _take(self, reused: Mapping[int, ReusedAnswer]) -> None:
        """Complete the rows that have an answer already."""
        agents = [(at, self._add(at)) for at in reused]
        running = [
            (at, agent, self._host.start(at, agent, partial(self._taken, agent, at, reused[at])))
            for at, agent in agents
        ]
        if running:
            await self._host.join(self._root, running)

    async def _taken(self, agent: Agent, at: int, answer: ReusedAnswer) -> AgentEnd:
        if agent.services.past is not None:
            agent.services.past.verdict(REUSED)
        value: dict[str, Any] = {
            "key": self._key(self._task(at)),
            "run": answer.run,
            "text": answer.text,
        }
        if answer.is_foreign:
            value["foreign"] = True
        agent.services.verdict(REUSED, value)
        output = self._plan.output
        read = None if output is None else output.read(answer.text)
        typed = read if isinstance(read, TypedAnswer) else None
        if not answer.is_foreign:
            self._keep(at, answer.text)
        return AgentEnd(AgentStatus.COMPLETED, answer.text, typed=typed)

    def _ended(self, at: int, _: asyncio.Task[None]) -> None:
        result = self._root.results[at]
        if result.status is AgentStatus.COMPLETED and not result.cut:
            self._keep(at, result.response)

    def _keep(self, at: int, text: str) -> None:
        answers, task = self._rows.answers, self._task(at)
        if answers is not None and answers.keeps:
            answers.keep(task.number, self._key(task), text)

    # -- rows that are asked ----------------------------------------------------------------------

    def _add(self, at: int) -> Agent:
        total = len(self._root.results)
        task = self._task(at)
        spawned = Spawned(task.number, at, total, SpawnMode.PARALLEL)
        return self._host.add_row(self._root, task, spawned, self._plan)

    async def _ask(self, places: Sequence[int]) -> None:
        """Run some rows: all at once, but the leaders of a shared prompt first."""
        # Thousands of objects that live until the rows have ended: collecting garbage is futile.
        pause = TurnPause() if len(places) >= MANY else None
        try:
            running = self._start(places)
        finally:
            if pause is not None:
                pause.end_behind()
        await self._host.join(self._root, running)

    def _start(self, places: Sequence[int]) -> list[tuple[int, Agent, asyncio.Task[None]]]:
        # All are created before any starts, so that their events come first, in order.
        agents = [(at, self._add(at)) for at in places]
        self._of_agent += [agent for _, agent in agents]
        leaders = self._leaders([agent for _, agent in agents])
        latch = Latch(len(leaders))
        running: list[tuple[int, Agent, asyncio.Task[None]]] = []
        for at, agent in agents:
            if agent.agent_id in leaders:
                come = agent.services.on_first_sign = latch.one()
                task = self._host.start(at, agent, partial(self._asked, agent, None))
                task.add_done_callback(lambda _, come=come: come())  # type: ignore[misc]
            else:
                task = self._host.start(at, agent, partial(self._asked, agent, latch))
            running.append((at, agent, task))
            task.add_done_callback(partial(self._ended, at))
        return running

    async def _asked(self, agent: Agent, latch: Latch | None) -> AgentEnd:
        if latch is not None:
            await latch.wait()
        return await self._host.work_on_row(agent)

    def _leaders(self, agents: Sequence[Agent]) -> set[str]:
        """Ids of each model's first agent, if others read what it writes to the cache."""
        if not self._rows.is_shared:
            return set()
        first: dict[str, Agent] = {}
        for agent in agents:
            first.setdefault(agent.model, agent)
        if len(first) == len(agents):
            return set()
        return {agent.agent_id for agent in first.values() if not _waits_for_others(agent)}

    # -- the sample -------------------------------------------------------------------------------

    def _sample(self, places: Sequence[int]) -> Collection[int]:
        """The places that run before a person is asked; all of them without a sample.

        Neighbouring rows are often alike (same page, same day, same customer), so the sample takes
        rows at equal distances, from the first on.
        """
        rows = list(dict.fromkeys(self._row(at) for at in places))
        count = min(self._rows.sample or len(rows), len(rows))
        sample = {rows[number * len(rows) // count] for number in range(count)}
        return {at for at in places if self._row(at) in sample}

    def _row(self, at: int) -> int:
        return at // self._rows.judges

    def _was_asked(self) -> bool:
        """Whether the question about the rest, with its answer, is recorded."""
        past = self._run.past
        return past is not None and any(each.kind == SAMPLED for each in past.journal.verdicts)

    async def _goes_on(self, plans: Plans, rest: Sequence[int]) -> bool:
        """Ask whether the rest runs after the sample; if not, mark its tasks as not done."""
        root, tasks = self._root, [self._task(at) for at in rest]
        answer = await Sampling(self._run).answer(
            root, tasks, partial(self._measured, tasks), is_shared=self._rows.is_shared
        )
        if answer.answer == "go":
            return True
        why = why_stopped(answer)
        for at in rest:
            root.put(at, replace(root.results[at], error=why))
        root.ignore(why, tasks)
        if answer.answer != ENDED:
            await plans.cancel_run(root.services.past, why, answer.by)
        return False

    def _measured(self, rest: Sequence[NumberedTask]) -> tuple[Sequence[Measured], Sequence[Ahead]]:
        sample = []
        for agent in self._of_agent:
            task = NumberedTask(int(agent.path), agent.task)
            sample.append(
                Measured(
                    self.calls.kind_of(task.number).model,
                    self.calls.input_tokens(task),
                    usage_below(agent),
                )
            )
        ahead = [Ahead(each.model, each.input_tokens) for each in self.calls.largest(rest)]
        return sample, ahead


def _waits_for_others(agent: Agent) -> bool:
    """Whether an agent that repeats its record may have to wait for others to repeat theirs."""
    past = agent.services.past
    return past is not None and (past.was_cancelled or not past.is_done_again)
