"""One agent's conversation with its model: its turns, its synthesis, its answer from reserve.

Every path returns an `AgentEnd`:

- `completed`: the agent answered;
- `answer_directly`: its spawn is not followed, so the text before the block is the answer; if
  there is none, one corrective turn asks for it, and an agent that still gives none has failed;
- `synthesise`: its sub-agents have results, and one more turn combines them into the answer;
- `answer_from_reserve`: a limit stopped the root, and it answers from the reserve;
- `answer_again`: a note from a person reached an agent that has answered, and its next text is the
  answer;
- `exhausted`: a limit stopped the agent; its text and its children's results are kept;
- `typed`: a typed answer is required, and this makes it from what the agent said.

No answer contains a spawn block outside code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from agentnb.core import prompt
from agentnb.core._call.asking import asked_of, asking_for
from agentnb.core._call.engine import CUT_REASONS, NO_TURNS_LEFT
from agentnb.core._call.services import WAITS_FOR_ROOM, input_tokens_of
from agentnb.core._run.agent import Agent, AgentEnd
from agentnb.core._run.no_answer import OnceMore, is_empty, no_answer, no_text, without_sub_agents
from agentnb.core.budget import OUTPUT_SLICE, as_json
from agentnb.core.errors import InvalidOutput, NoAnswer
from agentnb.core.events import AgentFailed, AgentWaiting, Event, SynthesisStarted
from agentnb.core.protocols import (
    AgentOutcome,
    AgentWork,
    OutputType,
    TypedAnswer,
    WrongAnswer,
    links_of,
)
from agentnb.core.request import RunState
from agentnb.core.spawn import SPAWN, SpawnReading, is_json, read_reply, without_acting_block
from agentnb.core.synthesis import (
    TOKENS_OF_ANSWER,
    answer_out_of_turns,
    answer_without_model,
    build_synthesis_prompt,
    even_limit,
    result_body,
    said_and_results,
)
from agentnb.core.tool_results import calls_in, ready_for_person
from agentnb.core.types import (
    FINAL_ANSWER,
    AgentStatus,
    CompletionRequest,
    Message,
    SubAgentResult,
    bare_model,
    user_message,
)

_CALL_CUT = "the tool call was cut off, so it was not run"
_ONLY_ANSWER = "it was asked for its answer alone"
_TOO_LITTLE = "the budget left too little to bring the results together"
_TOOL_RESULT_LIMITS = (100_000, 10_000, 2_000, 400)
"""Most characters of a tool result: each limit is tried in turn until the last call fits."""
_SHORT_BODY = 200
"""Characters of a result. Before cutting below this, room for a shorter answer is accepted."""


class Fitted(NamedTuple):
    """Most characters of the texts in the root's last call. `None`: uncut."""

    tool_limit: int | None
    """Each tool result in the conversation."""
    body_limit: int | None
    """The body of each result of a sub-agent."""


class Conversation:
    """Runs one agent's calls and decides what its replies mean."""

    def __init__(self, agent: Agent, run: RunState) -> None:
        self._agent = agent
        self._run = run
        self._meter = run.meter
        self._tools = agent.tools

    async def run_turns(
        self,
        *,
        is_synthesis: bool = False,
        announcement: Event | None = None,
        is_final: bool = False,
        is_correction: bool = False,
    ) -> AgentOutcome:
        """Run turns until the agent asks for no more tools. A failed turn gets a second attempt.

        A reply without an answer leads to another call, see `agentnb.core._run.no_answer`; the text
        is empty only if that did not help.

        Args:
            is_synthesis: Whether these turns combine results.
            announcement: Published just before the first call starts, and only then: a cancel may
                come while the call waits at the gate.
            is_final: Whether the agent can do nothing but answer.
            is_correction: Whether the agent was asked once more already: it may say nothing.

        Raises:
            OrchestratorError: A turn failed for good.
        """
        agent = self._agent
        begin, once_more = len(agent.messages), None
        while True:
            request = self._request(is_final=is_final or is_synthesis)
            if once_more is not None:
                request = once_more.request(request)
            agent.was_asked_for_type = request.output_schema is not None
            work = self._work(request, announcement, is_synthesis=is_synthesis)
            outcome = await self._attempt(work)
            # Also after a failure: finished turns and tool results are never made again.
            agent.apply(outcome)
            if outcome.error is None and not outcome.text:
                once_more = once_more or OnceMore(agent, begin, is_correction)
                if (ended := once_more.after(outcome)) is None:
                    continue
                outcome = ended
            # The root's synthesis uses the reserve: if that runs out, no other work of the run was
            # stopped.
            if outcome.exhausted is not None and not (agent.is_root and is_synthesis):
                self._meter.report_exhausted()
            if outcome.error is None:
                return outcome
            if not self._may_retry(outcome):
                raise once_more.error_of(outcome.error) if once_more else outcome.error
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
            # The next attempt begins at the failed turn: `apply` kept what was finished.
            agent.start_next_attempt()

    def _work(
        self, request: CompletionRequest, announcement: Event | None = None, *, is_synthesis: bool
    ) -> AgentWork:
        agent = self._agent
        return AgentWork(
            agent_id=agent.agent_id,
            model=agent.model,
            request=request,
            is_synthesis=is_synthesis,
            is_root=agent.is_root,
            turns_left=agent.turns_left,
            link=agent.link,
            announcement=announcement,
        )

    async def _attempt(self, work: AgentWork) -> AgentOutcome:
        """Have the engine run one attempt, and publish the tasks of a reply that `read` won't see.

        Every task that an agent asks for and that is not done gets an event. `read` publishes them
        only if an attempt returns a whole reply; all other cases are handled here.
        """
        agent = self._agent
        try:
            outcome = await self._run.engine.run(
                work, provider=agent.provider, tools=self._tools, services=agent.services
            )
        except BaseException:  # cancelled, or a bug in the engine
            self._drop_tasks("its parent was stopped before it could start")
            raise
        if outcome.exhausted is not None:
            self._drop_tasks(f"{self._meter.ended_by} before it could start")
        elif outcome.error is None:  # `read` deals with a block; a cut tool call is left
            why = _ONLY_ANSWER if agent.was_asked_for_type else _CALL_CUT
            self._drop_tasks(why, is_read=True)
        elif not self._may_retry(outcome):
            self._drop_tasks("its parent failed before it could start")
        # else the next attempt asks for its tasks again
        return outcome

    def _drop_tasks(self, why: str, *, is_read: bool = False) -> None:
        agent = self._agent
        spawn_tool = SPAWN if agent.spawn_tools or agent.services.withheld else ""
        is_read = is_read or agent.was_asked_for_type  # a block in such an answer is data
        if tasks := agent.services.take_unstarted(spawn_tool, is_read=is_read):
            agent.ignore(why, agent.number(tasks))

    def _may_retry(self, outcome: AgentOutcome) -> bool:
        return outcome.may_retry and self._agent.attempt < self._agent.attempts

    def read(self, outcome: AgentOutcome) -> SpawnReading:
        """Read a reply for a spawn block. A block inside code is published as ignored."""
        reading = read_reply(outcome.text)
        self._agent.services.reply_is_read()
        if reading.in_code_only:
            self._agent.ignore(
                "the block stands in code, inside a code fence or in backticks, so it is an example"
            )
        return reading

    def gives_answer(self, outcome: AgentOutcome) -> bool:
        """Whether a reply is already the agent's answer, so that a spawn block in it is data.

        Either the call asked for the typed answer, or the whole reply is JSON of that type.
        """
        output, text = self._agent.output, outcome.text
        if self._agent.was_asked_for_type:
            return True
        if output is None or not is_json(text):
            return False
        return isinstance(output.read(text), TypedAnswer)

    async def synthesise(self, results: Sequence[SubAgentResult]) -> AgentEnd:
        """Give the agent its sub-agents' results, and run its synthesis."""
        body_limit: int | None = None
        # Only the root's results are cut: the reserve will not grow. A sub-agent's call waits for
        # room like any other.
        if self._agent.is_root:
            fitted = await self._fitted(results, lambda: self._fit_results(results))
            if fitted is None:
                return self.exhausted(_TOO_LITTLE)
            body_limit = fitted.body_limit
        message = build_synthesis_prompt(results, body_limit=body_limit)
        return await self._run_synthesis(message, len(results))

    async def answer_from_reserve(self, results: Sequence[SubAgentResult]) -> AgentEnd:
        """The root's answer from the reserve, after a limit stopped the run.

        Tool results in the conversation are cut shorter until the call fits.

        Args:
            results: Results of its sub-agents not yet reported to it.
        """
        agent, whole = self._agent, self._agent.messages
        if whole and not whole[-1].content:  # an empty reply cannot be sent back
            whole = whole[:-1]
        fitted = await self._fitted(results, lambda: self._fit_reserve(whole, results))
        if fitted is None:
            return self.exhausted(_TOO_LITTLE)
        if fitted.tool_limit is not None:
            agent.shorten_tool_results(whole, fitted.tool_limit)
        message = (
            build_synthesis_prompt(results, body_limit=fitted.body_limit)
            if results
            else prompt.ANSWER_FROM_RESERVE
        )
        return await self._run_synthesis(message, len(agent.results))

    async def _fitted(
        self, results: Sequence[SubAgentResult], fit: Callable[[], Fitted | None]
    ) -> Fitted | None:
        """How the root's last call is cut to fit into the budget; `None` if it cannot fit.

        Recorded as a verdict, since the room in the budget differs when the run is repeated.
        """
        past = self._agent.services.past
        found = None if past is None else past.verdict("fitted")
        if found is not None:
            fitted = Fitted(found["tool_limit"], found["body_limit"]) if found["fits"] else None
        else:
            if past is not None:
                await past.does_more()
            fitted = fit()
            if fitted is None and await self._waited_for_other_runs(results):
                fitted = fit()
        limits = (fitted or Fitted(None, None))._asdict()
        self._agent.services.verdict("fitted", {"fits": fitted is not None, **limits})
        return fitted

    def _fit_reserve(
        self, whole: tuple[Message, ...], results: Sequence[SubAgentResult]
    ) -> Fitted | None:
        for limit in _TOOL_RESULT_LIMITS:
            self._agent.shorten_tool_results(whole, limit)
            fitted = self._fit_results(results) if results else self._fit_without_results()
            if fitted is not None:
                return fitted._replace(tool_limit=limit)
        return None

    async def _waited_for_other_runs(self, results: Sequence[SubAgentResult]) -> bool:
        """Wait for room for the root's synthesis, if calls of other runs may release some.

        No call of this run is open at this point. Returns whether it waited.
        """
        agent = self._agent
        message = (
            build_synthesis_prompt(results, body_limit=0) if results else prompt.ANSWER_FROM_RESERVE
        )
        least = min(OUTPUT_SLICE, agent.context.agent_config.max_output_tokens)
        needed = self._input_tokens_with(message) + least
        if not self._meter.has_to_wait(needed, for_root_synthesis=True):
            return False
        agent.services.publish(AgentWaiting(agent_id=agent.agent_id, reason=WAITS_FOR_ROOM))
        await self._meter.wait_for_room(needed, for_root_synthesis=True)
        return True

    async def _run_synthesis(self, message: str, total: int) -> AgentEnd:
        agent = self._agent
        if agent.is_root:  # the time limit ends a run's work, but not its synthesis
            self._run.limits.stop_time()
        agent.add_message(message)
        started = SynthesisStarted(agent_id=agent.agent_id, total=total)
        outcome = await self.run_turns(is_synthesis=True, announcement=started)
        if outcome.exhausted is not None:
            agent.set_synthesis(agent.reached if outcome.text else "")
            return self.exhausted(outcome.exhausted)
        end = self.completed(outcome.text, outcome)
        if agent.was_asked_for_type:  # the text is data
            return end
        reading = self.read(outcome)
        if reading.has_block:  # a synthesis never delegates again, so this run has an end
            why = "a synthesis cannot start further sub-agents"
            agent.ignore(why, agent.number(reading.tasks))
            end = await self.answer_directly(reading, outcome, why)
        agent.set_synthesis(end.text if end.error is None else "")
        return end

    async def answer_directly(
        self, reading: SpawnReading, outcome: AgentOutcome, why_not: str
    ) -> AgentEnd:
        """Answer without the spawn: the text before the block, else one corrective turn.

        Args:
            reading: The reply with the block.
            outcome: The attempt that ended with that reply.
            why_not: Why the spawn is not followed, for the model.
        """
        if reading.text_before:
            return self.completed(reading.text_before, outcome)
        agent = self._agent
        agent.add_message(prompt.corrective_message(why_not))
        outcome = await self.run_turns(is_synthesis=bool(agent.children), is_correction=True)
        if outcome.exhausted is not None:
            return self.exhausted(outcome.exhausted)
        if self.gives_answer(outcome):
            return self.completed(outcome.text, outcome)
        # No second corrective turn: text before another block is the answer, and a reply without
        # text is none.
        reading = self.read(outcome)
        if reading.has_block:
            agent.ignore("it was asked for a direct answer", agent.number(reading.tasks))
        if reading.text_before:
            return self.completed(reading.text_before, outcome)
        error = without_sub_agents(why_not, asked_again=reading.has_block)
        return self._no_answer(outcome, error)

    async def answer_again(self, end: AgentEnd) -> AgentEnd | None:
        """Give an agent that has answered one more turn, for a person's note.

        It may call tools but starts no sub-agents. If it says nothing, or a limit ends the turn,
        its answer is kept.

        Args:
            end: Its end so far, with its answer.

        Returns:
            Its new end; `None` if no note fits into the budget, so that no call is made.
        """
        agent = self._agent
        messages, is_synthesis = ready_for_person(agent.messages), bool(agent.children)
        request = replace(self._request(), messages=messages)
        news = await agent.services.take_news(
            self._work(request, is_synthesis=is_synthesis), request
        )
        if not news:
            return None
        agent.keep_answer(end.text)
        agent.tell(messages, news)
        outcome = await self.run_turns(is_synthesis=is_synthesis, is_correction=True)
        if outcome.exhausted is not None:
            return replace(end, status=AgentStatus.EXHAUSTED, reason=outcome.exhausted)
        said = outcome.text
        if not self.gives_answer(outcome):
            reading = self.read(outcome)
            said = reading.text_before
            if reading.has_block:
                why = "it had given its answer, and was told something more"
                agent.ignore(why, agent.number(reading.tasks))
        if not said.strip() and outcome.final_answer is None:
            return replace(self.completed(end.text, None), cut=end.cut, typed=end.typed)
        end = self.completed(said, outcome)
        if agent.synthesis:
            agent.set_synthesis(end.text)
        return end

    async def typed(self, end: AgentEnd) -> AgentEnd:
        """Make the answer a typed one, if the agent has an output type.

        If the call did not ask for the type and the answer does not fit it, one more turn asks for
        the typed answer. A typed answer that does not fit goes back to the model once; after that
        the agent fails.
        """
        agent, output = self._agent, self._agent.output
        if output is None or end.typed is not None or not end.is_answer or end.error is not None:
            return end
        reading, end = self._read_typed(output, end)
        if _is_wrong(reading, end) and not agent.was_asked_for_type:
            reading, end = await self._ask_again(output, end, prompt.GIVE_FINAL_ANSWER)
        if isinstance(reading, WrongAnswer) and _is_wrong(reading, end):
            reading, end = await self._ask_again(output, end, prompt.wrong_answer(reading.why))
        if isinstance(reading, TypedAnswer):
            text = without_acting_block(reading.text)
            if agent.results:
                agent.set_synthesis(text)
            agent.keep_answer(text)
            return replace(end, text=text, typed=reading)
        if end.status is AgentStatus.COMPLETED:
            wrong = InvalidOutput(output.name, reading.why) if end.text else no_text()
            return replace(end, status=AgentStatus.FAILED, error=wrong)
        return end

    async def _ask_again(
        self, output: OutputType, end: AgentEnd, message: str
    ) -> tuple[TypedAnswer | WrongAnswer, AgentEnd]:
        """Ask for the answer in one more turn. If a limit ends it, the earlier text is kept."""
        agent, said = self._agent, end.text
        agent.keep_answer(said)  # in case the agent is stopped or fails meanwhile
        agent.answer_tool_calls(message)
        outcome = await self.run_turns(
            is_synthesis=bool(agent.children), is_final=True, is_correction=True
        )
        if outcome.exhausted is not None:
            end = replace(end, status=AgentStatus.EXHAUSTED, reason=outcome.exhausted)
            return WrongAnswer(outcome.exhausted), end
        return self._read_typed(output, self.completed(outcome.text.strip() or said, outcome))

    def _read_typed(
        self, output: OutputType, end: AgentEnd
    ) -> tuple[TypedAnswer | WrongAnswer, AgentEnd]:
        """Read an answer as the output type. The end's text becomes what the model gave.

        What was wrong with it is recorded: the process that recovers the run may lack the type.
        """
        services = self._agent.services
        found = (
            None if services.past is None else services.past.of_call("wrong_answer", services.calls)
        )
        reading, end = self._read_last(output, end)
        if found is not None:
            reading = WrongAnswer(str(found["why"]))
        if isinstance(reading, WrongAnswer):
            services.verdict("wrong_answer", {"call": services.calls, "why": reading.why})
        return reading, end

    def _read_last(
        self, output: OutputType, end: AgentEnd
    ) -> tuple[TypedAnswer | WrongAnswer, AgentEnd]:
        """Read the newest reply: the first valid one of its answer calls, else its text."""
        agent = self._agent
        calls = calls_in(agent.messages[-1]) if agent.was_asked_for_type else []
        given = [call.input for call in calls if call.name == FINAL_ANSWER]
        if not given:
            reading = output.read(end.text)
            if isinstance(reading, WrongAnswer) and calls:
                reading = WrongAnswer(prompt.no_other_tool(calls[0].name))
            elif isinstance(reading, WrongAnswer) and end.cut:
                reading = WrongAnswer(f"{prompt.ANSWER_WAS_CUT}\n{reading.why}")
            return reading, end
        readings = [output.read(each) for each in given]
        valid = (at for at, each in enumerate(readings) if isinstance(each, TypedAnswer))
        at = next(valid, 0)
        return readings[at], replace(end, text=as_json(given[at]))

    def _no_answer(self, outcome: AgentOutcome, error: NoAnswer) -> AgentEnd:
        """The end of an agent without an answer even when it was asked once more."""
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
        """The end of an agent that answered. An exhausted run's root is never `completed`."""
        if outcome is not None and not text.strip() and is_empty(outcome):
            if (error := no_answer(outcome, self._agent)) is not None:
                return self._no_answer(outcome, error)
        cut = outcome is not None and outcome.stop_reason in CUT_REASONS
        if outcome is not None and outcome.stop_reason == NO_TURNS_LEFT:
            text = self._out_of_turns(text, outcome)
        if self._agent.is_root and self._meter.was_exhausted:
            return AgentEnd(AgentStatus.EXHAUSTED, text.strip(), reason=self._not_all_done, cut=cut)
        return AgentEnd(AgentStatus.COMPLETED, text.strip(), cut=cut)

    def exhausted(self, why: str) -> AgentEnd:
        """The end of an agent stopped by a limit of the run: its text, its children's results."""
        agent = self._agent
        if not agent.is_root or (agent.reached and not agent.results):
            said = agent.partial_answer
            return AgentEnd(AgentStatus.EXHAUSTED, said, reason=why, is_answer=False)
        # A person reads the root's answer, so it says which limit was reached and what to change.
        limit, budget = self._run.limits.may_call(), agent.request.budget
        text = answer_without_model(
            why=why,
            said=agent.reached,
            results=agent.results,
            total=budget.total,
            unit=budget.unit,
            limit="" if limit is None else limit.limit,
            above=[each.name for each in budget.above],
        )
        return AgentEnd(AgentStatus.EXHAUSTED, text, reason=why, is_answer=False)

    def _request(self, *, is_final: bool = False) -> CompletionRequest:
        """The agent's next request. It asks for the type if the agent can do nothing but answer."""
        agent = self._agent
        config = agent.context.agent_config
        request = CompletionRequest(
            model=bare_model(agent.model),
            system=agent.system,
            messages=agent.messages,
            tools=tuple([tool.spec for tool in self._tools.values()]),
            max_tokens=config.max_output_tokens,
            extra=config.extra,
        )
        if agent.output is None or not (is_final or agent.can_only_answer):
            return request
        return asking_for(agent.output, request)

    def _fit_results(self, results: Sequence[SubAgentResult]) -> Fitted | None:
        """The length to which all results are cut; `None` if they do not fit at any length."""
        # Whole, if that fits; else cut evenly, with room for a good answer; else cut further, down
        # to nothing, with room for a shorter answer.
        room = self._meter.room()
        longest = self._agent.context.agent_config.max_output_tokens
        least = min(OUTPUT_SLICE, longest)
        whole = self._input_tokens_with(build_synthesis_prompt(results))
        if self._meter.has_room(whole, least):
            return Fitted(None, None)
        longest_body = even_limit([len(result_body(result)) for result in results], 4 * room)
        # Leave room for a long answer, not just its first slice; if that leaves next to nothing of
        # the results, for a shorter one.
        for output, shortest in (
            (max(OUTPUT_SLICE, min(longest, room // 4)), _SHORT_BODY),
            (max(least, min(longest, TOKENS_OF_ANSWER)), 1),
            (least, 0),
        ):
            limit = longest_body
            while limit >= shortest:
                cut = build_synthesis_prompt(results, body_limit=limit)
                if self._meter.has_room(self._input_tokens_with(cut), output):
                    return Fitted(None, limit)
                if limit == 0:
                    break
                limit = limit * 3 // 4
        return None

    def empty_synthesis_tokens(self) -> int:
        """Input tokens of a synthesis now, without any result in it."""
        return self._input_tokens_with(build_synthesis_prompt(()))

    def _fit_without_results(self) -> Fitted | None:
        output = min(OUTPUT_SLICE, self._agent.context.agent_config.max_output_tokens)
        needed = self._input_tokens_with(prompt.ANSWER_FROM_RESERVE)
        return Fitted(None, None) if self._meter.has_room(needed, output) else None

    def _input_tokens_with(self, message: str) -> int:
        """Input tokens of the next call with `message` appended."""
        request = self._request(is_final=True)
        longer = replace(request, messages=(*request.messages, user_message(message)))
        links = links_of(self._agent.provider, self._agent.model)
        provider = links[min(self._agent.link, len(links) - 1)].provider
        return input_tokens_of(asked_of(provider, longer), provider)


def _is_wrong(reading: TypedAnswer | WrongAnswer, end: AgentEnd) -> bool:
    """Whether to ask for the answer again; never for an agent that a limit ended."""
    return isinstance(reading, WrongAnswer) and end.status is AgentStatus.COMPLETED
