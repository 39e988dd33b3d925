"""Retries and failover: gets one reply for one turn of an agent.

A call that failed before any of its text was shown is tried again, up to four times. If that does
not help and the provider is a chain, the next model is asked, also only while nothing was shown.
Once text was shown the turn fails, and the agent's own rules decide.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

from agentnb.core._budget.meter import BudgetExceeded
from agentnb.core._call.asking import asked_of
from agentnb.core._call.model_call import ReplySoFar, make_call
from agentnb.core._call.news import WordsCame
from agentnb.core.cancel import foreign
from agentnb.core.errors import (
    InternalError,
    LlmError,
    OrchestratorError,
    RateLimited,
    Refused,
    make_causes_visible,
)
from agentnb.core.events import AgentWaiting, ProviderFailover
from agentnb.core.protocols import AgentWork, Provider, RunServices, is_chain, links_of
from agentnb.core.text import LONGEST_LINE, literal, one_line
from agentnb.core.types import CompletionRequest, bare_model, text_so_far

E = TypeVar("E", bound=OrchestratorError)

TRANSPORT_ATTEMPTS = 4
LONGEST_WAIT_S = 60.0
"""A call fails if its provider asks for a longer wait."""


class TurnFailed(Exception):
    """A turn has no complete reply, after all retries.

    Args:
        error: The error of its last call.
        may_retry: Whether the agent may attempt the turn again.
        was_shown: Whether some of the reply was shown.
    """

    def __init__(
        self, error: OrchestratorError, *, may_retry: bool, was_shown: bool = False
    ) -> None:
        self.error, self.may_retry, self.was_shown = error, may_retry, was_shown
        self.link = 0
        """Index of the failed model in its chain."""

    @property
    def moves_on(self) -> bool:
        """Whether a chain asks its next model: after a fault only while nothing was shown.

        What came before a refusal counts for nothing.
        """
        error = self.error
        return isinstance(error, Refused) or (isinstance(error, LlmError) and not self.was_shown)


async def take_turn(
    work: AgentWork, request: CompletionRequest, provider: Provider, services: RunServices
) -> tuple[ReplySoFar, int]:
    """Get one reply.

    Returns:
        The reply, and the index of the model in its chain; 0 without a chain.

    Raises:
        TurnFailed: All attempts failed.
        BudgetExceeded: The budget has no room for the next call.
        WordsCame: Messages arrived before the first call: take them along.
    """
    if not is_chain(provider):
        return await _reply_of(work, request, provider, services), 0
    links = links_of(provider, work.model)
    before: list[str] = []  # errors of the models that failed, for the message of the last one
    for index in range(min(work.link, len(links) - 1), len(links)):
        link = links[index]
        try:
            reply = await _reply_of(
                replace(work, model=link.model),
                replace(request, model=bare_model(link.model)),
                link.provider,
                services,
            )
        except BudgetExceeded as empty:
            empty.link = index  # an agent that has moved on never goes back
            raise
        except TurnFailed as failed:
            failed.link = index
            # The beginning of a paused reply was shown, and is part of the answer.
            is_begun = bool(text_so_far(request.messages))
            failed.was_shown |= is_begun
            if failed.moves_on and not is_begun and index + 1 < len(links):
                before.append(f"{link.model} ({literal(one_line(str(failed.error), limit=100))})")
                _publish_failover(
                    work.agent_id, link.model, links[index + 1].model, failed, services
                )
                continue
            if before:
                words = f"After {', '.join(before)}: {failed.error}"
                failed.error = _reworded(failed.error, words)
            raise
        return reply, index
    raise AssertionError("the last model returns or raises")


def _publish_failover(
    agent_id: str, model: str, next_model: str, failed: TurnFailed, services: RunServices
) -> None:
    services.publish(
        ProviderFailover(
            agent_id=agent_id,
            from_provider=model,
            to_provider=next_model,
            error=str(failed.error),
        )
    )


async def _reply_of(
    work: AgentWork, request: CompletionRequest, provider: Provider, services: RunServices
) -> ReplySoFar:
    """One model's reply, with up to `TRANSPORT_ATTEMPTS` calls.

    It fails in three ways: an error that is not retryable, or that came after text was shown (the
    agent may attempt the turn again unless the error is permanent); a failed last attempt (it may
    not: enough was tried); a bug in the provider or the gate (it may).
    """
    the_provider = foreign(
        lambda: f"the provider {literal(provider.name)}",
        passes=(LlmError, InternalError, BudgetExceeded, WordsCame),
    )
    for attempt in range(1, TRANSPORT_ATTEMPTS + 1):
        reply = ReplySoFar()
        try:
            with the_provider:
                asked = asked_of(provider, request)
                await make_call(work, asked, provider, services, reply, attempt=attempt)
            return reply
        except LlmError as raised:
            # A copy: a provider may raise the same object in many runs, and each run sets
            # `partial_result` on its error.
            error = _reworded(raised, str(raised))
            if reply.pieces or not error.retryable:
                raise TurnFailed(
                    error, may_retry=not error.permanent, was_shown=bool(reply.pieces)
                ) from raised
            if attempt == TRANSPORT_ATTEMPTS:
                raise TurnFailed(error, may_retry=False) from raised
            await _wait_to_retry(error, attempt, work, services)
        except InternalError as bug:  # the provider's, or the gate's
            raise TurnFailed(bug, may_retry=True, was_shown=bool(reply.pieces)) from bug
    raise AssertionError("the last attempt returns or raises")


async def _wait_to_retry(
    error: LlmError, attempt: int, work: AgentWork, services: RunServices
) -> None:
    delay_s = services.retry_delay_s(attempt)
    asked_s = _asked_wait_s(error)
    if asked_s > LONGEST_WAIT_S:
        raise TurnFailed(_too_long(error, asked_s), may_retry=False) from error
    delay_s = max(delay_s, asked_s)
    services.publish(
        AgentWaiting(
            agent_id=work.agent_id,
            reason=f"to try again after: {one_line(str(error))}",
            wait_s=delay_s,
            attempt=attempt + 1,
        )
    )
    if isinstance(error, RateLimited):
        services.throttle(work.model, delay_s)
    await services.wait_to_retry(work, delay_s)


def _asked_wait_s(error: LlmError) -> float:
    """Seconds that the provider asks to wait; 0 for none, or if it is not a number."""
    asked_s: Any = error.retry_after_s
    is_time = isinstance(asked_s, int | float) and not math.isnan(asked_s)
    return float(asked_s) if is_time else 0.0


def _too_long(error: LlmError, asked_s: float) -> LlmError:
    wait = f"{math.ceil(asked_s):,} s" if math.isfinite(asked_s) else "for ever"
    reworded = _reworded(
        error,
        f"The provider asks to wait {wait}, which is longer than the {LONGEST_WAIT_S:.0f} s that "
        f"a run waits: run it again then (its error was {literal(str(error), LONGEST_LINE)}).",
    )
    reworded.retryable = False
    return reworded


def _reworded(error: E, words: str) -> E:
    """A copy of the error with another message."""
    reworded = copy(error)
    reworded.args = (words,)
    reworded.__cause__ = error.__cause__
    make_causes_visible(reworded)
    return reworded
