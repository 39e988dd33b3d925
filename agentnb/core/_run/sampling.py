"""Estimates a table from a sample of its rows, and asks a person about the rest.

The estimate is pure. It fits a line through the sample's usage by estimated row size, for input and
output separately: one part of a row's usage is the same for all rows (the API's own tokens, the
frame of an answer), another grows with the row. Each model of the judges is estimated separately.
If the prompt is shared through the cache, the rest reads what the sample wrote there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from statistics import fmean
from typing import Any, NamedTuple

from agentnb.core._run.agent import Agent, NumberedTask
from agentnb.core._run.asking import Asker, Asking
from agentnb.core._run.estimate import Estimate, dollars
from agentnb.core.questions import ENDED, SAMPLE, WAITS_FOR_SAMPLE, Answer
from agentnb.core.records import SAMPLED
from agentnb.core.request import RunState
from agentnb.core.shown import counted
from agentnb.core.types import Usage

UsagePrice = Callable[[str, Usage], Decimal | None]
"""The list price of some usage of a model (`provider/model`), in US dollars; `None` for a model
without one. Must not raise."""


class Measured(NamedTuple):
    """The usage of one agent of the sample, all agents below it included."""

    model: str
    """`provider/model`."""
    input_tokens: int
    """Input tokens of its first call, as estimated before it."""
    usage: Usage


class Ahead(NamedTuple):
    """An agent that has not started."""

    model: str
    input_tokens: int


def after_sample(
    sample: Iterable[Measured], rest: Iterable[Ahead], price: UsagePrice, *, is_shared: bool
) -> Estimate:
    """Estimate the usage of the rest of a table.

    Args:
        sample: The usage of the sample's agents.
        rest: The agents that have not started. If the sample has no agent of a model, the whole
            sample stands for it.
        price: Prices usage.
        is_shared: Whether the rest reads from the cache what the sample wrote there.

    Returns:
        Tokens as the budget counts them, and dollars.
    """
    by_model: dict[str, list[Measured]] = defaultdict(list)
    for each in sample:
        by_model[each.model].append(each)
    everything = [each for listed in by_model.values() for each in listed]
    sizes: dict[str, list[int]] = defaultdict(list)
    for agent in rest:
        sizes[agent.model].append(agent.input_tokens)
    tokens, cost = 0, Decimal()
    is_priced = True
    for model, inputs in sizes.items():
        usage = _scaled(by_model.get(model, everything), inputs, is_shared=is_shared)
        tokens += usage.budget_tokens
        usd = price(model, usage)
        is_priced = is_priced and usd is not None
        cost += usd or 0
    return Estimate(tokens, float(cost) if is_priced else None)


def _scaled(sample: Sequence[Measured], inputs: Sequence[int], *, is_shared: bool) -> Usage:
    """Estimated usage of agents whose first calls have these input sizes, in tokens."""
    if not sample:
        return Usage()
    took = sum((each.usage for each in sample), Usage())
    written, read = took.cache_creation_tokens, took.cache_read_tokens
    if is_shared:
        written, read = 0, written + read
    of_cache = [round(amount * len(inputs) / len(sample)) for amount in (written, read)]
    sizes = [each.input_tokens for each in sample]
    counted = [each.usage.total_tokens - each.usage.output_tokens for each in sample]
    whole = _by_size(counted, sizes, inputs, flattest=_LEAST_OF_INPUT)
    output = _by_size([each.usage.output_tokens for each in sample], sizes, inputs)
    return Usage(max(0, round(whole) - sum(of_cache)), round(output), *of_cache)


_LEAST_OF_INPUT = 0.5
"""Least slope of input: tokens that a provider counts per estimated token. Less is chance."""


def _by_size(
    counts: Sequence[int], sizes: Sequence[int], ahead: Sequence[int], *, flattest: float = 0
) -> float:
    """Tokens that the rows ahead take together, by a least-squares line through the sample.

    The slope is kept between `flattest` and proportional to the size, since a few rows of nearly
    equal size could give any slope. Rows of equal size give none: then input (`flattest` above 0)
    is taken as proportional, and output as the same for each row.

    Args:
        counts: Tokens that each row of the sample took.
        sizes: Estimated input tokens of each row of the sample.
        ahead: Estimated input tokens of each row that has not started.
        flattest: Least slope: more tokens per token of size.
    """
    mean, size = fmean(counts), max(1, fmean(sizes))
    in_proportion = mean / size
    slope = in_proportion if flattest else 0.0
    if spread := sum((each - size) ** 2 for each in sizes):
        pairs = zip(sizes, counts, strict=True)
        slope = sum((each - size) * (count - mean) for each, count in pairs) / spread
    slope = min(max(slope, flattest), in_proportion)
    return len(ahead) * mean + slope * (sum(ahead) - len(ahead) * size)


def usage_below(agent: Agent) -> Usage:
    """An agent's usage, all agents below it included."""
    return sum((usage_below(child) for child in agent.children), agent.services.usage)


class Sampling:
    """Asks after a sample whether the rest of a table runs.

    Args:
        run: The run's state.
    """

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._asker = Asker(run)

    async def answer(
        self,
        root: Agent,
        rest: Sequence[NumberedTask],
        measure: Callable[[], tuple[Sequence[Measured], Sequence[Ahead]]],
        *,
        is_shared: bool,
    ) -> Answer:
        """Whether the rest runs: `go`, `stop`, or `ended` by a limit.

        Args:
            root: The root.
            rest: The tasks that have not started.
            measure: Returns the sample's usage, and the agents of the rest.
            is_shared: See `after_sample`.
        """
        past, numbers = root.services.past, [task.number for task in rest]
        found = past and past.verdict(SAMPLED, lambda value: value["numbers"] == numbers)
        if found:
            about = found["about"]
        else:
            sample, ahead = measure()
            about = self._about(sample, ahead, is_shared=is_shared)
        asking = _asking(numbers, about)
        if past is not None and found:
            answer = await self._asker.again(root, past, asking, found)
            if answer is not None:
                return answer
        is_recorded = past is not None and not past.asks_persons
        if is_recorded or self._run.questions.nobody_can_answer:
            return self._asker.goes(root, asking)
        if past is not None:
            await past.does_more()
        return await self._asker.ask(root, asking)

    def _about(
        self, sample: Sequence[Measured], ahead: Sequence[Ahead], *, is_shared: bool
    ) -> dict[str, Any]:
        price = self._run.request.price_usage
        took = sum(each.usage.budget_tokens for each in sample)
        paid = [price(each.model, each.usage) for each in sample]
        rest = after_sample(sample, ahead, price, is_shared=is_shared)
        return {
            "sample_agents": len(sample),
            "sample_tokens": took,
            "sample_cost_usd": None if None in paid else float(sum(filter(None, paid), Decimal())),
            "agents": len(ahead),
            "tokens": rest.tokens,
            "cost_usd": rest.cost_usd,
        }


def _asking(numbers: Sequence[int], about: dict[str, Any]) -> Asking:
    kept = {"numbers": list(numbers), "about": about}
    return Asking(SAMPLE, question(about), about, SAMPLED, kept, WAITS_FOR_SAMPLE)


def question(about: dict[str, Any]) -> str:
    """The text of the question after a sample."""
    took = _amount(about["sample_tokens"], about["sample_cost_usd"])
    rest = _amount(about["tokens"], about["cost_usd"])
    sample = counted(about["sample_agents"], "agent")
    return (
        f"The sample ({sample}) took {took}. The rest ({about['agents']:,}) is estimated to take "
        f"{rest}: go or stop?"
    )


def _amount(tokens: int, cost_usd: float | None) -> str:
    cost = "" if cost_usd is None else f" ({dollars(cost_usd)})"
    return f"{tokens:,} tokens{cost}"


def why_stopped(answer: Answer) -> str:
    """Why the rest does not start."""
    if answer.answer == ENDED or answer.by == "limit":
        return answer.reason
    return "a person stopped the map after its sample" + (
        f": {answer.reason}" if answer.reason else ""
    )
