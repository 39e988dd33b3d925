"""Asks a person whether an agent may continue; in a recovered run the record answers.

What was published, and the answer, are one verdict, recorded in the step in which the answer
counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentnb.core._budget.meter import BudgetExceeded
from agentnb.core._run.agent import BEFORE_ITS_TURN, Agent
from agentnb.core.events import AgentWaiting
from agentnb.core.past import AgentPast
from agentnb.core.questions import ENDED, Answer, Gate
from agentnb.core.request import RunState

_GOES: Mapping[str, Any] = {"question": "", "answer": "go", "by": "", "reason": "", "value": None}
"""In a verdict: no person was asked."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A question that holds an agent until it is answered."""

    kind: str
    """See `agentnb.core.questions.Question`, also for the next two."""
    text: str
    value: Any
    verdict: str
    """Kind of the verdict that records the answer."""
    kept: Mapping[str, Any]
    """The verdict's fields besides the answer."""
    waits_for: str
    """Reason of the agent's `AgentWaiting`."""
    gate: Gate | None = None


class Asker:
    """Asks on behalf of the agents of one run."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def goes(self, agent: Agent, asking: Asking) -> Answer:
        """Record that no person was asked."""
        agent.services.verdict(asking.verdict, {**asking.kept, **_GOES})
        return Answer("go")

    async def ask(self, agent: Agent, asking: Asking) -> Answer:
        """Ask, and wait for the answer; `ENDED` if a limit ended the run first."""
        run, void = self._run, list[str]()

        def keep(question_id: str, answer: Answer) -> None:
            if answer.answer == ENDED:
                void.append(question_id)
            else:
                _keep(agent, asking, question_id, answer)

        try:
            async with run.meter.wait(for_root_synthesis=False):
                _publish_waiting(agent, asking)
                return await run.questions.answer_to(
                    asking.kind,
                    agent.agent_id,
                    asking.text,
                    asking.value,
                    keep,
                    gate=asking.gate,
                    keeps_end=True,
                )
        except BudgetExceeded:  # nothing starts without a person's consent
            answer = Answer(ENDED, "limit", run.meter.ended_by + BEFORE_ITS_TURN)
            _keep(agent, asking, void[0] if void else "", answer)
            return answer
        except BaseException:  # cancelled
            if void:
                _keep(agent, asking, void[0], Answer(ENDED, "limit"))
            raise

    async def again(
        self, agent: Agent, past: AgentPast, asking: Asking, found: Mapping[str, Any]
    ) -> Answer | None:
        """Publish the recorded question and its answer; `None` if there is no record.

        Args:
            agent: The agent.
            past: The agent's records.
            asking: The question.
            found: The recorded verdict.
        """
        answer = Answer(found["answer"], found["by"], found["reason"], found["value"])
        question_id = found["question"]
        if answer.answer == ENDED and answer.reason:
            self._run.meter.exhausted_before(answer.reason.removesuffix(BEFORE_ITS_TURN))
        if not question_id:
            agent.services.verdict(asking.verdict, found)
            return answer
        questions, told = self._run.questions, answer
        _publish_waiting(agent, asking)
        questions.tell_asked(question_id, asking.kind, asking.text, agent.agent_id)
        try:
            if answer.answer == ENDED:
                told = Answer(ENDED, answer.by)
                if not answer.reason:  # no limit voided it: its agent was cancelled meanwhile
                    await past.is_cancelled()
                    return None
        finally:
            questions.tell_answered(question_id, told, agent.agent_id)
            agent.services.verdict(asking.verdict, found)
        return answer


def _keep(agent: Agent, asking: Asking, question_id: str, answer: Answer) -> None:
    said = {
        "question": question_id,
        "answer": answer.answer,
        "by": answer.by,
        "reason": answer.reason,
        "value": answer.value,
    }
    agent.services.verdict(asking.verdict, {**asking.kept, **said})


def _publish_waiting(agent: Agent, asking: Asking) -> None:
    agent.services.publish(AgentWaiting(agent_id=agent.agent_id, reason=asking.waits_for))
