"""The cost of a delegation, from the calls that are certain. Pure functions.

Certain are the first call of each sub-agent and the synthesis of the agent that delegates:

- a first call: its input (system prompt, message, tools) and its whole `max_output_tokens`; in a
  sequence, the input of each but the first includes the previous result;
- the synthesis: the conversation so far, each result, and its own `max_output_tokens`.

A result counts as `max_output_tokens`, the longest reply of one call. Further turns, retries and
what sub-agents delegate are not certain, and not included. Input is estimated by its size, as the
budget reserves it (`agentnb.core.budget.estimate_input_tokens`), with the tags around each quoted
text. Results that are not there yet count without the characters that quoting adds inside a text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_UP, Decimal
from functools import lru_cache
from typing import NamedTuple

from agentnb.core import prompt
from agentnb.core.budget import estimate_input_tokens, estimate_tokens, size_in_bytes, tokens_in
from agentnb.core.quotation import attribute, escaped
from agentnb.core.shown import counted
from agentnb.core.synthesis import build_synthesis_prompt
from agentnb.core.types import AgentStatus, CompletionRequest, SubAgentResult

Price = Callable[[str, int, int], Decimal | None]
"""The list price in US dollars of a call: model (`provider/model`), input and output tokens. `None`
for a model without one. Must not raise."""


class SureCall(NamedTuple):
    """A call that is certain to come, at its largest."""

    model: str
    """`provider/model`."""
    input_tokens: int
    output_tokens: int


class Estimate(NamedTuple):
    """An upper bound on some calls."""

    tokens: int
    cost_usd: float | None
    """`None` if a model has no price."""


def at_most(calls: Iterable[SureCall], price: Price) -> Estimate:
    """The sum of some calls. Calls of one size are priced once, since siblings are often alike."""
    counts = Counter(calls)
    tokens = sum(count * (call.input_tokens + call.output_tokens) for call, count in counts.items())
    cost = Decimal()
    for call, count in counts.items():
        usd = price(*call)
        if usd is None:
            return Estimate(tokens, None)
        cost += count * usd
    return Estimate(tokens, float(cost))


SAMPLE_TASK = "x"
"""The task of the sample request from which all others are estimated."""


def first_inputs(sample: CompletionRequest, tasks: Sequence[str]) -> list[int]:
    """Input tokens of each task's first call, without a previous result.

    Args:
        sample: The first request of a sub-agent with the task `SAMPLE_TASK`. The others differ only
            in the task, which is in the system prompt and in the message.
        tasks: The tasks.
    """
    system = size_in_bytes(sample.system)
    fixed = estimate_input_tokens(sample) - tokens_in(system) - estimate_tokens(SAMPLE_TASK)
    system -= size_in_bytes(SAMPLE_TASK)
    return [
        fixed + tokens_in(system + _size(task, _IN_ELEMENT)) + estimate_tokens(task)
        for task in tasks
    ]


def previous_result_tokens(max_output_tokens: int) -> int:
    """Most tokens that the previous result adds to the next call of a sequence."""
    return _marks_of_previous() + max_output_tokens


def results_tokens(results: Sequence[SubAgentResult], open_results: int, max_output: int) -> int:
    """Tokens that results add to a synthesis, besides its request.

    Args:
        results: The results; those still to come have only their tasks.
        open_results: How many are still to come.
        max_output: `max_output_tokens` of the agents.
    """
    size = len(results) * _marks_of_result()
    for result in results:
        size += _size(result.task, _IN_ATTRIBUTE)
        if result.error:
            size += size_in_bytes(escaped(result.error))
        if result.response:
            size += size_in_bytes(escaped(result.response))
    return tokens_in(size) + open_results * max_output


@lru_cache(maxsize=1)
def request_tokens() -> int:
    """Tokens that a synthesis adds to the conversation, besides the results."""
    return estimate_tokens(build_synthesis_prompt(()))


_SIGNS = '&<>"\n\r\t\x85\u2028\u2029\uff02\uff06\uff1c\uff1e\ufe60\ufe64\ufe65'
"""Characters that quoting may change; most tasks have few of them."""
_ANY_SIGN = re.compile(f"[{_SIGNS}]")


def _bytes_added(quoted: Callable[[str], str]) -> Mapping[str, int]:
    return {sign: size_in_bytes(quoted(sign)) - size_in_bytes(sign) for sign in _SIGNS}


_IN_ELEMENT = _bytes_added(escaped)
_IN_ATTRIBUTE = _bytes_added(lambda sign: attribute(sign)[1:-1])


def _size(text: str, added: Mapping[str, int]) -> int:
    """Bytes of a text once it is quoted."""
    return size_in_bytes(text) + sum(map(added.__getitem__, _ANY_SIGN.findall(text)))


_LONGEST_STATUS = max(AgentStatus, key=len)


@lru_cache(maxsize=1)
def _marks_of_previous() -> int:
    marked = prompt.child_message("x", "", status=_LONGEST_STATUS, cut=True)
    return estimate_tokens(marked)


@lru_cache(maxsize=1)
def _marks_of_result() -> int:
    """Most bytes around one result in a synthesis."""
    result = SubAgentResult(None, "", _LONGEST_STATUS, response="x", cut=True)
    one = build_synthesis_prompt([result], body_limit=0)
    return size_in_bytes(one) - size_in_bytes(build_synthesis_prompt(()))


# -- in words -------------------------------------------------------------------------------------


def in_words(agents: int, estimate: Estimate) -> str:
    """`12 agents, at most 96,000 tokens, at most $0.80`."""
    cost = "" if estimate.cost_usd is None else f", at most {dollars(estimate.cost_usd)}"
    return f"{counted(agents, 'agent')}, at most {estimate.tokens:,} tokens{cost}"


def dollars(amount: float) -> str:
    """An amount in dollars, rounded up: to cents from $0.01 on, else to $0.0001."""
    exact = Decimal(str(amount))
    step = Decimal("0.01") if exact >= Decimal("0.01") else Decimal("0.0001")
    return f"${exact.quantize(step, ROUND_UP):,}"


def is_above(limit: tuple[float, float] | None, agents: int, cost_usd: float | None) -> bool:
    """Whether a delegation is above the limit from which a person is asked.

    If the cost is unknown, only the number of agents decides.

    Args:
        limit: The agents and the dollars that may start unasked; `None` for no limit.
        agents: How many agents are about to start.
        cost_usd: What they may cost; `None` if unknown.
    """
    if limit is None:
        return False
    most_agents, most_usd = limit
    return agents > most_agents or (cost_usd is not None and cost_usd > most_usd)
