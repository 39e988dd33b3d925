"""What one agent says, and what it is told: its turns, its synthesis, its answer from reserve.

Every way through ends in an `AgentEnd`: a spawn that is not followed leaves the text before it or
one more turn to answer, and who gives no answer then has failed; an empty pot leaves what there
is. No spawn block that stands outside code is ever part of a last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentnb.core import prompt
from agentnb.core._call.engine import CUT_REASONS, NO_TURNS_LEFT
from agentnb.core._call.services import input_tokens_of
from agentnb.core._run.agent import Agent, AgentEnd
from agentnb.core.budget import OUTPUT_SLICE
from agentnb.core.errors import NoAnswer
from agentnb.core.events import AgentFailed, Event, SynthesisStarted
from agentnb.core.protocols import AgentOutcome, AgentWork, links_of
from agentnb.core.request import RunState
from agentnb.core.spawn import SPAWN, SpawnReading, read_reply
from agentnb.core.synthesis import (
    TOKENS_OF_ANSWER,
    answer_out_of_turns,
    answer_without_model,
    build_synthesis_prompt,
    even_limit,
    result_body,
    said_and_results,
)
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    SubAgentResult,
    bare_model,
    user_message,
)

MAX_ATTEMPTS = 2

_TOO_LITTLE = "the budget left too little to bring the results together"
_SHORTER_AND_SHORTER = (100_000, 10_000, 2_000, 400)
"""Characters that tool results are cut to, one after the other, until the last call fits."""
_SHORT_BODY = 200
"""Characters of a result below which it says too little to be worth a longer answer."""


class Conversation:
    """One agent's conversation with its model."""

    def __init__(self, agent: Agent, run: RunState) -> None:
        self._agent = agent
        self._run = run
        self._meter = run.meter
        self._tools = agent.tools

    async def speak(
        self, *, is_synthesis: bool = False, announcement: Event | None = None
    ) -> AgentOutcome:
        """The agent's next words. A failed turn is made once more, from where it failed.

        Args:
            is_synthesis: The agent brings results together.
            announcement: Published just before the first call starts, if one does: a cancel may
                come while it waits for its slot.

        Raises:
            OrchestratorError: The turn failed for good.
        """
        agent = self._agent
        while True:
            outcome = await self._attempt(
                AgentWork(
                    agent_id=agent.agent_id,
                    model=agent.model,
                    request=self._request(),
                    is_synthesis=is_synthesis,
                    is_root=agent.is_root,
                    turns_left=agent.turns_left,
                    link=agent.link,
                    announcement=announcement,
                )
            )
            agent.take(outcome)
            if outcome.exhausted is not None and not (agent.is_root and is_synthesis):
                self._meter.report_exhausted()
            if outcome.error is None:
                return outcome
            if not self._may_retry(outcome):
                raise outcome.error
            agent.services.publish(
                AgentFailed(
                    agent_id=agent.agent_id,
                    error=str(outcome.error),
                    will_retry=True,
                    attempt=agent.attempt,
                    text=agent.services.text,
                    tokens_used=agent.services.usage.total_tokens,
                    duration_ms=agent.elapsed_ms(),
                )
            )
            agent.try_again()

    async def _attempt(self, work: AgentWork) -> AgentOutcome:
        """Have the engine do it. A reply that is not read then is told of here: its tasks, too."""
        agent = self._agent
        try:
            outcome = await self._run.engine.run(
                work, provider=agent.provider, tools=self._tools, services=agent.services
            )
        except BaseException:
            self._drop_tasks("its parent was stopped before it could start")
            raise
        if outcome.exhausted is not None:
            self._drop_tasks(f"{self._meter.ended_by} before it could start")
        elif outcome.error is None:
            self._drop_tasks("the tool call was cut off, so it was not run", is_read=True)
        elif not self._may_retry(outcome):
            self._drop_tasks("its parent failed before it could start")
        return outcome

    def _drop_tasks(self, why: str, *, is_read: bool = False) -> None:
        agent = self._agent
        spawn_tool = SPAWN if agent.spawn_tools or agent.services.withheld else ""
        if tasks := agent.services.take_unstarted(spawn_tool, is_read=is_read):
            agent.ignore(why, agent.number(tasks))

    def _may_retry(self, outcome: AgentOutcome) -> bool:
        return outcome.may_retry and self._agent.attempt < MAX_ATTEMPTS

    def read(self, outcome: AgentOutcome) -> SpawnReading:
        """What the agent's words say of sub-agents; an example of it is told as ignored."""
        reading = read_reply(outcome.text)
        self._agent.services.reply_is_read()
        if reading.in_code_only:
            self._agent.ignore(
                "the block stands in code, inside a code fence or in backticks, so it is an example"
            )
        return reading

    async def synthesise(self, results: Sequence[SubAgentResult]) -> AgentEnd:
        """Hand the agent its sub-agents' results and let it bring them together."""
        message = self._results_message(results)
        if message is None:
            return self.exhausted(_TOO_LITTLE)
        return await self._bring_together(message, len(results))

    async def answer_from_reserve(self, results: Sequence[SubAgentResult]) -> AgentEnd:
        """The root's answer when nothing else may go on, out of what is kept of the budget for it.

        What its tools came to stands in the conversation: that is cut until all of it fits.

        Args:
            results: Of its sub-agents, as far as they were not reported to it.
        """
        agent, whole = self._agent, self._agent.messages
        if whole and not whole[-1].content:  # the budget ended before its first word
            whole = whole[:-1]
        for limit in _SHORTER_AND_SHORTER:
            agent.shorten_tool_results(whole, limit)
            message = (
                self._results_message(results) if results else self._if_it_fits(prompt.LAST_WORDS)
            )
            if message is not None:
                return await self._bring_together(message, len(agent.results))
        return self.exhausted(_TOO_LITTLE)

    async def _bring_together(self, message: str, total: int) -> AgentEnd:
        agent = self._agent
        if agent.is_root:  # all else has ended, and this is what the run's time is kept for
            self._run.limits.pause()
        agent.hear(message)
        started = SynthesisStarted(agent_id=agent.agent_id, total=total)
        outcome = await self.speak(is_synthesis=True, announcement=started)
        if outcome.exhausted is not None:
            agent.brings_together(agent.reached if outcome.text else "")
            return self.exhausted(outcome.exhausted)
        reading = self.read(outcome)
        end = self.completed(outcome.text, outcome)
        if reading.has_block:
            why = "a synthesis cannot start further sub-agents"
            agent.ignore(why, agent.number(reading.tasks))
            end = await self.answer_directly(reading, outcome, why)
        agent.brings_together(end.text if end.error is None else "")
        return end

    async def answer_directly(
        self, reading: SpawnReading, outcome: AgentOutcome, why_not: str
    ) -> AgentEnd:
        """End without the spawn: with the text before the block, or one more turn to answer."""
        if reading.text_before:
            return self.completed(reading.text_before, outcome)
        agent = self._agent
        agent.hear(prompt.corrective_message(why_not))
        outcome = await self.speak(is_synthesis=bool(agent.children))
        if outcome.exhausted is not None:
            return self.exhausted(outcome.exhausted)
        reading = self.read(outcome)
        if reading.has_block:
            agent.ignore("it was asked for a direct answer", agent.number(reading.tasks))
        if reading.text_before:
            return self.completed(reading.text_before, outcome)
        return self._unanswered(outcome, NoAnswer(why_not, asked_again=reading.has_block))

    def _unanswered(self, outcome: AgentOutcome, error: NoAnswer) -> AgentEnd:
        """The end of an agent that was asked for its answer once more and gave none."""
        agent = self._agent
        if agent.is_root and self._meter.was_exhausted:  # a run that was exhausted never raises
            return self.exhausted(self._not_all_done)
        wrote = outcome.text.strip() or agent.said
        if outcome.stop_reason == NO_TURNS_LEFT:
            text = self._out_of_turns(wrote, outcome)
        else:
            text = said_and_results(wrote, agent.results)
        return AgentEnd(AgentStatus.FAILED, text, error=error)

    def _out_of_turns(self, text: str, outcome: AgentOutcome) -> str:
        agent = self._agent
        return answer_out_of_turns(
            text, outcome.messages, results=agent.results, turns=agent.turns_taken
        )

    @property
    def _not_all_done(self) -> str:
        return f"{self._meter.ended_by} before all of the work was done"

    def completed(self, text: str, outcome: AgentOutcome | None) -> AgentEnd:
        """The end of an agent that has answered."""
        cut = outcome is not None and outcome.stop_reason in CUT_REASONS
        if outcome is not None and outcome.stop_reason == NO_TURNS_LEFT:
            text = self._out_of_turns(text, outcome)
        if self._agent.is_root and self._meter.was_exhausted:
            return AgentEnd(AgentStatus.EXHAUSTED, text.strip(), reason=self._not_all_done, cut=cut)
        return AgentEnd(AgentStatus.COMPLETED, text.strip(), cut=cut)

    def exhausted(self, why: str) -> AgentEnd:
        """The end of an agent that a limit of the run stopped: its text, its children's results."""
        agent = self._agent
        if not agent.is_root or (agent.reached and not agent.results):
            return AgentEnd(AgentStatus.EXHAUSTED, agent.left, reason=why)
        limit = self._run.limits.may_call()
        text = answer_without_model(
            why=why,
            said=agent.reached,
            results=agent.results,
            total=agent.request.budget.total,
            limit="" if limit is None else limit.limit,
        )
        return AgentEnd(AgentStatus.EXHAUSTED, text, reason=why)

    def _request(self) -> CompletionRequest:
        agent = self._agent
        config = agent.context.agent_config
        return CompletionRequest(
            model=bare_model(agent.model),
            system=agent.system,
            messages=agent.messages,
            tools=tuple(tool.spec for tool in self._tools.values()),
            max_tokens=config.max_output_tokens,
            extra=config.extra,
        )

    def _results_message(self, results: Sequence[SubAgentResult]) -> str | None:
        """The results for the agent; the root's are cut evenly until they fit, if they can."""
        agent = self._agent
        whole = build_synthesis_prompt(results)
        if not agent.is_root:
            return whole
        room = self._meter.room()
        longest = agent.context.agent_config.max_output_tokens
        least = min(OUTPUT_SLICE, longest)
        if self._size_with(whole) + least <= room:
            return whole
        longest_body = even_limit([len(result_body(result)) for result in results], 4 * room)
        # What is cut for is an answer of some length, not just its first slice; where that leaves
        # next to nothing of the results, a shorter one.
        for output, shortest in (
            (max(OUTPUT_SLICE, min(longest, room // 4)), _SHORT_BODY),
            (max(least, min(longest, TOKENS_OF_ANSWER)), 1),
            (least, 0),
        ):
            limit = longest_body
            while limit >= shortest:
                cut = build_synthesis_prompt(results, body_limit=limit)
                if self._size_with(cut) + output <= room:
                    return cut
                if limit == 0:
                    break
                limit = limit * 3 // 4
        return None

    def size_of_beginning(self) -> int:
        """Input tokens of a synthesis that no call came before, with no result in it."""
        return self._size_with(build_synthesis_prompt(()))

    def _if_it_fits(self, message: str) -> str | None:
        output = min(OUTPUT_SLICE, self._agent.context.agent_config.max_output_tokens)
        return message if self._size_with(message) + output <= self._meter.room() else None

    def _size_with(self, message: str) -> int:
        """Input tokens of the next call, were `message` the newest."""
        request = self._request()
        longer = replace(request, messages=(*request.messages, user_message(message)))
        links = links_of(self._agent.provider, self._agent.model)
        return input_tokens_of(longer, links[min(self._agent.link, len(links) - 1)].provider)
