"""Publishes what an agent is about to start, and may ask a person before it starts.

`Plans.settle` runs after an agent's tasks are admitted and before its first sub-agent starts. The
published plan and the answer are one verdict, `planned`, recorded in the step in which the answer
takes effect. A run that is repeated takes both from the record and asks no person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentnb.core._call.services import input_tokens_of
from agentnb.core._run.agent import Agent, NumberedTask, first_request
from agentnb.core._run.asking import Asker, Asking
from agentnb.core._run.conversation import Conversation
from agentnb.core._run.estimate import (
    SAMPLE_TASK,
    Estimate,
    SureCall,
    at_most,
    first_inputs,
    in_words,
    is_above,
    previous_result_tokens,
    request_tokens,
    results_tokens,
)
from agentnb.core._run.row_calls import RowCalls
from agentnb.core.events import SpawnPlanned
from agentnb.core.keys import digest_of
from agentnb.core.limits import Refusal
from agentnb.core.past import AgentPast
from agentnb.core.protocols import links_of, supports_token_count
from agentnb.core.questions import ENDED, PLAN, WAITS_FOR_PLAN, Answer, Gate
from agentnb.core.request import RunState
from agentnb.core.shown import counted
from agentnb.core.text import literal
from agentnb.core.types import SpawnMode

ON_PLAN = "on_plan"
"""The `limit` in the refusal of a task that a person, or a person's own function, stopped."""
_GATE = "the plan gate"
_MOST_OF_ROW = 80
"""Most characters of a row's prompt in a plan; its agent's own event has the whole prompt."""


class Upcoming(NamedTuple):
    """A delegation that is about to start."""

    agent: Agent
    conversation: Conversation
    mode: SpawnMode
    first: int
    """Index of the first of its tasks in the agent's results."""
    has_synthesis: bool = True
    in_plan: bool = False
    """Whether the tasks are from a person's own list."""
    was_known: bool = False
    """Whether the limits' verdict on its tasks is recorded."""
    rows: RowCalls | None = None
    """Makes the agents' first calls, if the tasks are rows of a table."""


class Plans:
    """Publishes what the agents of one run are about to start, and asks about it."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._asker = Asker(run)

    async def settle(
        self, delegation: Upcoming, refusals: Sequence[Refusal | None]
    ) -> list[Refusal | None]:
        """Publish what is about to start, and ask a person if that is required.

        Args:
            delegation: The delegation; its tasks are in the agent's results.
            refusals: Per task: why the limits refuse it, or `None`.

        Returns:
            Per task: why it does not start, or `None`. Tasks refused here are published.
        """
        agent, first = delegation.agent, delegation.first
        places = [at for at, refusal in enumerate(refusals, first) if refusal is None]
        if not places:
            return list(refusals)
        tasks = [NumberedTask(agent.numbers[at], agent.results[at].task) for at in places]
        answer = await self._answer(delegation, tasks)
        start, why = start_of(answer, len(tasks))
        if start == len(tasks):
            return list(refusals)
        if delegation.in_plan and not start and answer.answer != ENDED:
            await self.cancel_run(agent.services.past, why, answer.by)
        left_out = places[start:]
        for at in left_out:
            agent.put(at, replace(agent.results[at], error=why))
        agent.ignore(why, tasks[start:])
        if not delegation.in_plan:
            self._run.limits.give_back(task for _, task in tasks[start:])
        refused = {at - first: Refusal(ON_PLAN, why) for at in left_out}
        return [refused.get(at, refusal) for at, refusal in enumerate(refusals)]

    async def cancel_run(self, past: AgentPast | None, why: str, by: str) -> None:
        """Cancel the run, since none of a person's own tasks may start. Does not return."""
        if past is not None:  # a recorded cancel, if there is one, ends the run here
            await past.is_cancelled()
            await past.does_more()
        self._run.request.cancellation.cancel(None, why, by=by)
        await asyncio.Event().wait()

    # -- to ask -----------------------------------------------------------------------------------

    async def _answer(self, delegation: Upcoming, tasks: Sequence[NumberedTask]) -> Answer:
        """Publish the plan, and return the answer to it: `go` if no person is asked."""
        agent, past = delegation.agent, delegation.agent.services.past
        numbers = [each.number for each in tasks]
        found: Mapping[str, Any] | None = None
        if past is not None:
            found = past.verdict("planned", lambda value: value["numbers"] == numbers)
            if found is None and delegation.was_known and any(map(past.started, numbers)):
                return Answer("go")  # an older record, without verdicts on plans
            digest = self._digest_of(each.task for each in tasks)
            if found is not None and found["digest"] != digest:
                found = None  # an answer to another plan does not count
        if found is not None:
            estimate = Estimate(found["tokens"], found["cost_usd"])
        else:
            estimate = self._estimate(delegation, tasks)
        planned = _event(delegation, tasks, estimate)
        agent.services.publish(planned)
        asking = self._asking(planned, tasks)
        if past is not None and found is not None:
            answer = await self._asker.again(agent, past, asking, found)
            if answer is not None:
                return answer
        if not self._asks(planned) or (past is not None and not past.asks_persons):
            return self._asker.goes(agent, asking)
        if past is not None:
            await past.does_more()
        return await self._asker.ask(agent, asking)

    def _asks(self, planned: SpawnPlanned) -> bool:
        request = self._run.request
        if callable(request.on_plan):
            return True
        is_above_limit = is_above(request.ask_above, len(planned.tasks), planned.estimated_cost_usd)
        if request.on_plan != "ask" and not is_above_limit:
            return False
        return not self._run.questions.nobody_can_answer

    def _asking(self, planned: SpawnPlanned, tasks: Sequence[NumberedTask]) -> Asking:
        policy = self._run.request.on_plan
        is_kept = self._run.recorder.keeps_records
        kept = {
            "numbers": list(planned.numbers),
            "digest": self._digest_of(each.task for each in tasks) if is_kept else "",
            "tokens": planned.estimated_tokens,
            "cost_usd": planned.estimated_cost_usd,
        }
        gate = Gate(policy, planned, _GATE, _read) if callable(policy) else None
        return Asking(PLAN, _question(planned), planned, "planned", kept, WAITS_FOR_PLAN, gate)

    def _digest_of(self, tasks: Iterable[str]) -> str:
        return digest_of(list(tasks), self._run.recorder.secrets)

    # -- to estimate ------------------------------------------------------------------------------

    def _estimate(self, delegation: Upcoming, tasks: Sequence[NumberedTask]) -> Estimate:
        """The upper bound of the delegation's certain calls. See `agentnb.core._run.estimate`."""
        agent, run = delegation.agent, self._run
        links = links_of(agent.provider, agent.model)
        longest = agent.context.agent_config.max_output_tokens
        in_turn = previous_result_tokens(longest) if delegation.mode is SpawnMode.SEQUENTIAL else 0
        if delegation.rows is not None:
            return at_most(delegation.rows.largest(tasks), run.request.price)
        calls = [
            SureCall(links[0].model, tokens + (in_turn if at else 0), longest)
            for at, tokens in enumerate(self._first_inputs(agent, tasks))
        ]
        if delegation.has_synthesis:
            model = links[min(agent.link, len(links) - 1)].model
            calls.append(SureCall(model, self._synthesis_input(delegation, len(tasks)), longest))
        return at_most(calls, run.request.price)

    def _first_inputs(self, agent: Agent, tasks: Sequence[NumberedTask]) -> list[int]:
        provider = links_of(agent.provider, agent.model)[0].provider
        if supports_token_count(provider):
            return [
                input_tokens_of(first_request(self._run, agent, each.task), provider)
                for each in tasks
            ]
        sample = first_request(self._run, agent, SAMPLE_TASK)
        return first_inputs(sample, [each.task for each in tasks])

    def _synthesis_input(self, delegation: Upcoming, starting: int) -> int:
        agent, conversation = delegation.agent, delegation.conversation
        jobs = () if agent.jobs is None else agent.jobs.unreported
        results = [*(job.result for job in jobs), *agent.results[delegation.first :]]
        unfinished = starting + sum(not job.task.done() for job in jobs)
        longest = agent.context.agent_config.max_output_tokens
        before = max(
            conversation.empty_synthesis_tokens(),
            agent.services.conversation_tokens + request_tokens(),
        )
        return before + results_tokens(results, unfinished, longest)


def start_of(answer: Answer, total: int) -> tuple[int, str]:
    """How many of `total` tasks may start, by an answer, and why not more; empty for all."""
    who = _GATE if answer.by == "gate" else "a person"
    match answer.answer:
        case "stop" | "ended" if answer.by in ("gate", "limit") and answer.reason:
            return 0, answer.reason
        case "stop":
            return 0, f"{who} stopped its plan" + _because(answer)
        case "fewer" if answer.value < total:
            return answer.value, f"{who} allowed {answer.value} of {counted(total, 'task')}" + (
                _because(answer)
            )
    return total, ""


def _because(answer: Answer) -> str:
    return f": {answer.reason}" if answer.reason else ""


def _read(returned: object) -> Answer:
    """The answer that a gate returned.

    Raises:
        ValueError: It is neither `go`, `stop` nor a whole number of at least 0.
    """
    if returned in ("go", "stop"):
        return Answer(str(returned))
    if isinstance(returned, bool) or not isinstance(returned, int) or returned < 0:
        raise ValueError(
            f"answered {literal(returned)}, not 'go', 'stop' or the number of tasks that may start"
        )
    return Answer("fewer", value=returned) if returned else Answer("stop")


def _beginning(task: str) -> str:
    return task if len(task) <= _MOST_OF_ROW else f"{task[: _MOST_OF_ROW - 1]}…"


def _event(delegation: Upcoming, tasks: Sequence[NumberedTask], estimate: Estimate) -> SpawnPlanned:
    told = [task for _, task in tasks]
    if delegation.rows is not None:  # else the event would copy the whole table
        told = [_beginning(task) for task in told]
    return SpawnPlanned(
        agent_id=delegation.agent.agent_id,
        mode=delegation.mode,
        tasks=tuple(told),
        estimated_tokens=estimate.tokens,
        estimated_cost_usd=estimate.cost_usd,
        numbers=tuple(number for number, _ in tasks),
    )


def _question(planned: SpawnPlanned) -> str:
    estimate = Estimate(planned.estimated_tokens, planned.estimated_cost_usd)
    return f"Start {in_words(len(planned.tasks), estimate)}: go, stop, or fewer?"
