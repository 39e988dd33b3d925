"""A look before the leap: what an agent is about to start is told, and a person may be asked.

`Plans.settle` comes between the admission of an agent's tasks and the first of its sub-agents. What
was told, and the answer, are one verdict, `planned`, kept in the step in which the answer counts. A
run that is done again tells the same from it, and asks nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentnb.core._budget.meter import BudgetExceeded
from agentnb.core._call.services import input_tokens_of
from agentnb.core._run.agent import BEFORE_ITS_TURN, Agent, NumberedTask, first_request
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
from agentnb.core.events import AgentWaiting, SpawnPlanned
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
"""The limit of a task that does not start since a person, or a person's own function, said so."""
_GATE = "the plan gate"
_GOES: Mapping[str, Any] = {"question": "", "answer": "go", "by": "", "reason": "", "value": None}
"""Of a verdict: nobody was asked."""


class Upcoming(NamedTuple):
    """A delegation that is about to begin."""

    agent: Agent
    conversation: Conversation
    mode: SpawnMode
    first: int
    """Index of the first of its tasks in the agent's results."""
    has_synthesis: bool = True
    in_plan: bool = False
    """Whether the tasks are from a person's own list."""
    was_known: bool = False
    """Whether the limits' answer about its tasks is recorded."""


class Plans:
    """Tells what the agents of one run are about to start, and asks about it."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    async def settle(
        self, delegation: Upcoming, refusals: Sequence[Refusal | None]
    ) -> list[Refusal | None]:
        """Tell what is about to start, and have a person answer if that is asked for.

        Args:
            delegation: The delegation; its tasks are in the agent's results.
            refusals: Per task: why the limits refuse it, or `None`.

        Returns:
            Per task: why it does not start, or `None`. What is refused here is published.
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
            await self._cancel_run(agent.services.past, why, answer.by)
        left_out = places[start:]
        for at in left_out:
            agent.put(at, replace(agent.results[at], error=why))
        agent.ignore(why, tasks[start:])
        if not delegation.in_plan:
            self._run.limits.give_back(task for _, task in tasks[start:])
        refused = {at - first: Refusal(ON_PLAN, why) for at in left_out}
        return [refused.get(at, refusal) for at, refusal in enumerate(refusals)]

    async def _cancel_run(self, past: AgentPast | None, why: str, by: str) -> None:
        """Nothing of a person's own plan starts. Does not return."""
        if past is not None:  # its recorded cancel ends it, if it came to that
            await past.is_cancelled()
            await past.does_more()
        self._run.request.cancellation.cancel(None, why, by=by)
        await asyncio.Event().wait()

    # -- to ask -----------------------------------------------------------------------------------

    async def _answer(self, delegation: Upcoming, tasks: Sequence[NumberedTask]) -> Answer:
        """Tell of the plan, and return its answer: `go` if nobody is asked."""
        agent, past = delegation.agent, delegation.agent.services.past
        numbers = [each.number for each in tasks]
        found: Mapping[str, Any] | None = None
        if past is not None:
            found = past.verdict("planned", lambda value: value["numbers"] == numbers)
            if found is None and delegation.was_known and any(map(past.started, numbers)):
                return Answer("go")  # of an older record, which tells of no plans
            digest = self._digest_of(each.task for each in tasks)
            if found is not None and found["digest"] != digest:
                found = None  # the answer to another plan counts for none
        if found is not None:
            estimate = Estimate(found["tokens"], found["cost_usd"])
        else:
            estimate = self._estimate(delegation, tasks)
        planned = _event(agent, delegation.mode, tasks, estimate)
        agent.services.publish(planned)
        if past is not None and found is not None:
            answer = await self._answer_again(agent, past, planned, found)
            if answer is not None:
                return answer
        if not self._asks(planned) or (past is not None and not past.asks_persons):
            agent.services.verdict("planned", {**self._value(planned), **_GOES})
            return Answer("go")
        if past is not None:
            await past.does_more()
        return await self._ask(agent, planned)

    def _asks(self, planned: SpawnPlanned) -> bool:
        request = self._run.request
        if callable(request.on_plan):
            return True
        is_above_limit = is_above(request.ask_above, len(planned.tasks), planned.estimated_cost_usd)
        if request.on_plan != "ask" and not is_above_limit:
            return False
        return not self._run.questions.nobody_can_answer

    async def _ask(self, agent: Agent, planned: SpawnPlanned) -> Answer:
        run, policy = self._run, self._run.request.on_plan
        gate = Gate(policy, planned, _GATE, _read) if callable(policy) else None
        void: list[str] = []

        def keep(question_id: str, answer: Answer) -> None:
            if answer.answer == ENDED:
                void.append(question_id)
            else:
                self._keep(agent, planned, question_id, answer)

        try:
            async with run.meter.wait(for_root_synthesis=False):
                self._publish_waiting(agent)
                return await run.questions.answer_to(
                    PLAN,
                    agent.agent_id,
                    _question(planned),
                    planned,
                    keep,
                    gate=gate,
                    keeps_end=True,
                )
        except BudgetExceeded:  # nothing starts that nobody has agreed to
            answer = Answer(ENDED, "limit", run.meter.ended_by + BEFORE_ITS_TURN)
            self._keep(agent, planned, void[0] if void else "", answer)
            return answer
        except BaseException:  # cancelled
            if void:
                self._keep(agent, planned, void[0], Answer(ENDED, "limit"))
            raise

    async def _answer_again(
        self, agent: Agent, past: AgentPast, planned: SpawnPlanned, found: Mapping[str, Any]
    ) -> Answer | None:
        """Tell the recorded question and its answer; `None` if the plan has to be asked about."""
        answer = Answer(found["answer"], found["by"], found["reason"], found["value"])
        question_id = found["question"]
        if answer.answer == ENDED and answer.reason:
            self._run.meter.exhausted_before(answer.reason.removesuffix(BEFORE_ITS_TURN))
        if not question_id:
            agent.services.verdict("planned", found)
            return answer
        questions, told = self._run.questions, answer
        self._publish_waiting(agent)
        questions.tell_asked(question_id, PLAN, _question(planned), agent.agent_id)
        try:
            if answer.answer == ENDED:
                told = Answer(ENDED, answer.by)
                if not answer.reason:  # no limit ended it: its agent was cancelled meanwhile
                    await past.is_cancelled()
                    return None
        finally:
            questions.tell_answered(question_id, told, agent.agent_id)
            agent.services.verdict("planned", found)
        return answer

    def _keep(self, agent: Agent, planned: SpawnPlanned, question_id: str, answer: Answer) -> None:
        said = {
            "question": question_id,
            "answer": answer.answer,
            "by": answer.by,
            "reason": answer.reason,
            "value": answer.value,
        }
        agent.services.verdict("planned", self._value(planned) | said)

    def _value(self, planned: SpawnPlanned) -> dict[str, Any]:
        return {
            "numbers": list(planned.numbers),
            "digest": self._digest_of(planned.tasks),
            "tokens": planned.estimated_tokens,
            "cost_usd": planned.estimated_cost_usd,
        }

    def _digest_of(self, tasks: Iterable[str]) -> str:
        return digest_of(list(tasks), self._run.recorder.secrets)

    def _publish_waiting(self, agent: Agent) -> None:
        agent.services.publish(AgentWaiting(agent_id=agent.agent_id, reason=WAITS_FOR_PLAN))

    # -- to estimate ------------------------------------------------------------------------------

    def _estimate(self, delegation: Upcoming, tasks: Sequence[NumberedTask]) -> Estimate:
        """See `agentnb.core._run.estimate`."""
        agent, run = delegation.agent, self._run
        links = links_of(agent.provider, agent.model)
        longest = agent.context.agent_config.max_output_tokens
        in_turn = previous_result_tokens(longest) if delegation.mode is SpawnMode.SEQUENTIAL else 0
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
    """How many of its tasks an agent may start, and why it starts no more."""
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
    """A gate's answer."""
    if returned in ("go", "stop"):
        return Answer(str(returned))
    if isinstance(returned, bool) or not isinstance(returned, int) or returned < 0:
        raise ValueError(
            f"answered {literal(returned)}, not 'go', 'stop' or the number of tasks that may start"
        )
    return Answer("fewer", value=returned) if returned else Answer("stop")


def _event(
    agent: Agent, mode: SpawnMode, tasks: Sequence[NumberedTask], estimate: Estimate
) -> SpawnPlanned:
    return SpawnPlanned(
        agent_id=agent.agent_id,
        mode=mode,
        tasks=tuple(task for _, task in tasks),
        estimated_tokens=estimate.tokens,
        estimated_cost_usd=estimate.cost_usd,
        numbers=tuple(number for number, _ in tasks),
    )


def _question(planned: SpawnPlanned) -> str:
    estimate = Estimate(planned.estimated_tokens, planned.estimated_cost_usd)
    return f"{in_words(len(planned.tasks), estimate)}: go, stop, or fewer?"
