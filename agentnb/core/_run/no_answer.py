"""Replies without an answer: what is asked once more, and why an agent has failed in the end.

- Its thinking, or a call that was cut, used up `max_output_tokens`: the same call once more, with
  twice the limit, unless the budget has less left than the first.
- It ended without a word: the newest text that stands beside its tool calls is the answer. Without
  one, or if a sub-agent or a person was heard since, it is asked for its answer, once.
- Its context window was full: a further call would be no shorter, so there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentnb.core import prompt
from agentnb.core._call.engine import NO_TURNS_LEFT
from agentnb.core._run.agent import Agent
from agentnb.core.errors import LlmError, NoAnswer, OrchestratorError
from agentnb.core.money import TOKENS
from agentnb.core.protocols import AgentOutcome
from agentnb.core.spawn import SPAWN, extract_text_before_spawn
from agentnb.core.text import if_seen, one_line
from agentnb.core.tool_results import calls_in
from agentnb.core.types import MOST, CompletionRequest, Message, Role

_LIMIT = "max_tokens"
_WINDOW = "model_context_window_exceeded"


def is_empty(outcome: AgentOutcome) -> bool:
    """Whether a whole reply holds neither text nor tool calls."""
    if outcome.text or outcome.exhausted is not None or outcome.error is not None:
        return False
    return outcome.stop_reason != NO_TURNS_LEFT and not calls_in(outcome.messages[-1])


def newest_text(messages: Sequence[Message]) -> tuple[str, bool]:
    """The newest text in an agent's replies, without a spawn block, and whether more came since.

    The text is empty if there is none. More is what a sub-agent or a person said.
    """
    has_more = False
    for message in reversed(messages):
        if message.role is Role.USER:
            has_more = has_more or bool(message.text)
            continue
        has_more = has_more or any(call.name.startswith(SPAWN) for call in calls_in(message))
        if text := extract_text_before_spawn(if_seen(message.text)):
            return text, has_more
    return "", has_more


class OnceMore:
    """What an agent is asked once more in one series of turns: in each of two ways at most once.

    Args:
        agent: The agent.
        begin: How many messages its conversation had before the turns.
        was_asked: Whether it was asked in other words already.
    """

    def __init__(self, agent: Agent, begin: int, was_asked: bool) -> None:
        self._agent, self._begin, self._was_asked = agent, begin, was_asked
        self._limit = 0
        """The limit that was used up; calls have twice as much now."""

    def request(self, request: CompletionRequest) -> CompletionRequest:
        """The next call."""
        limit = request.max_tokens * (2 if self._limit else 1)
        return replace(request, max_tokens=min(limit, MOST))

    def after(self, outcome: AgentOutcome) -> AgentOutcome | None:
        """What the turns have come to; `None` if another call is to be made."""
        agent, reason = self._agent, outcome.stop_reason
        budget, limit = agent.request.budget, agent.context.agent_config.max_output_tokens
        why = f"its thinking used up `max_output_tokens` ({limit:,} tokens), and"
        if outcome.exhausted is not None and self._limit:
            return replace(outcome, exhausted=f"{why} {outcome.exhausted}")
        if not is_empty(outcome) or reason == _WINDOW or (reason == _LIMIT and self._limit):
            return outcome
        if reason == _LIMIT:
            rate = agent.request.rates.get(agent.model)  # of a chain: none
            used = limit if budget.unit == TOKENS else rate.of_output(limit) if rate else 0
            if budget.remaining <= used:
                return replace(outcome, exhausted=f"{why} the budget has no room for twice as many")
            self._limit = limit
            agent.drop_reply()
            return None
        said, has_more = newest_text(outcome.messages[self._begin :])
        is_last = self._was_asked or agent.was_asked_for_type  # the type is asked for by itself
        if is_last or (said and not has_more):
            return replace(outcome, text=said)
        self._was_asked = True
        agent.answer_tool_calls(prompt.NO_TEXT)
        return None

    def error_of(self, error: OrchestratorError) -> OrchestratorError:
        """The error of a turn; that of the limit if the server refuses twice as much."""
        # With these, servers refuse a `max_tokens` that is more than their model can write.
        is_refused = isinstance(error, LlmError) and error.status_code in (400, 413, 422)
        if not (self._limit and is_refused):
            return error
        return _at_limit(
            f"{self._limit:,} tokens; twice as many are refused: {one_line(str(error))}"
        )


def no_answer(outcome: AgentOutcome, agent: Agent) -> NoAnswer | None:
    """The error of an agent whose last reply is empty; `None` if a typed answer is corrected yet.

    Args:
        outcome: The last attempt.
        agent: The agent.
    """
    if outcome.stop_reason == _LIMIT:
        limit = agent.context.agent_config.max_output_tokens
        return _at_limit(f"{limit:,} tokens, then twice as many")
    if outcome.stop_reason == _WINDOW:
        return NoAnswer(
            "The model gave no answer: its context window was full before any text came. Shorten "
            "the task or what it reads, or use a model with a larger window."
        )
    return None if agent.was_asked_for_type else no_text()


def no_text() -> NoAnswer:
    """The error of a model that said nothing twice."""
    return NoAnswer(
        "The model gave no answer: its reply was empty, also when it was asked for its answer. Put "
        "the task in other words, or ask another model."
    )


def without_sub_agents(why_not: str, *, asked_again: bool) -> NoAnswer:
    """The error of a model whose sub-agents were not started, and that did not answer without.

    Args:
        why_not: Why they were not started, as the rest of a sentence.
        asked_again: Whether it asked for sub-agents again; otherwise it said nothing.
    """
    then = "only asked for sub-agents again" if asked_again else "said nothing"
    return NoAnswer(
        f"The model gave no answer: its sub-agents were not started, because {why_not}, and "
        f"when it was asked to answer itself it {then}. Put the task in other words, or ask "
        "another model."
    )


def _at_limit(tried: str) -> NoAnswer:
    return NoAnswer(
        "The model gave no answer: its thinking, or a tool call that was cut, used up "
        f"`max_output_tokens` ({tried}). Set a "
        "larger `max_output_tokens`, or let the model think with less effort."
    )
