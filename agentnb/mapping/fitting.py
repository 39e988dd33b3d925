"""Checks before the first call that a map without its own budget fits the session's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentnb.core.budget import as_json, estimate_tokens
from agentnb.core.media import media_tokens
from agentnb.core.money import TOKENS, USD, Rate, in_words, money_text
from agentnb.core.protocols import OutputType
from agentnb.mapping.documents import Document

OUTPUT_OF_ROW = 256
"""Expected tokens of output for each row: enough for a short answer with its reason."""


class Expected(NamedTuple):
    """What the rows of a map are expected to use at least."""

    rows: int
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Input and output tokens together, as a budget of tokens counts them."""
        return self.input_tokens + self.output_tokens

    def micros(self, rates: Sequence[Rate]) -> int:
        """The cost in micro-dollars, at the prices of the judges' models in equal shares."""
        read, written = (-(-each // len(rates)) for each in (self.input_tokens, self.output_tokens))
        return sum(rate.of_input(read) + rate.of_output(written) for rate in rates)


def expected(
    prompts: Sequence[str],
    system: str,
    output: OutputType | None,
    *,
    known: int,
    judges: int,
    documents: Sequence[Document | None] = (),
) -> Expected:
    """Estimate a map: each prompt by its size, and `OUTPUT_OF_ROW` for each answer.

    Args:
        prompts: One for each row and judge.
        system: The system prompt, which all rows share.
        output: The type of the answers.
        known: How many of the answers may be reused.
        judges: Agents for each row.
        documents: The files of the rows, if they have any.
    """
    each = estimate_tokens(system)
    if output is not None:
        each += estimate_tokens(as_json(output.schema))
    open_ones = max(0, len(prompts) - known)
    size = sum(map(estimate_tokens, prompts))
    size += judges * sum(media_tokens(each.block) for each in documents if each is not None)
    size = size * open_ones // max(1, len(prompts))
    return Expected(-(-open_ones // judges), open_ones * each + size, open_ones * OUTPUT_OF_ROW)


def check_fits(expected: Expected, budget: int, rates: Sequence[Rate] = ()) -> None:
    """Raise unless the rows fit the session's budget.

    Args:
        expected: The estimate.
        budget: In tokens; in micro-dollars if there are `rates`.
        rates: The prices of the judges' models, for a budget in dollars.

    Raises:
        ValueError: The rows do not fit.
    """
    unit = USD if rates else TOKENS
    amount = expected.micros(rates) if rates else expected.tokens
    if amount <= budget:
        return
    own = _rounded(amount * 2)
    raise ValueError(
        f"The map of {expected.rows:,} rows is estimated at {in_words(amount, unit)}, more than "
        f"the session's budget of {in_words(budget, unit)}: give the map its own, as "
        + (f"`budget={own:_}`." if unit == TOKENS else f'`budget="{money_text(own)}"`.')
    )


def _rounded(amount: int) -> int:
    """`amount`, rounded up to one significant digit."""
    unit = 10 ** (len(str(amount)) - 1)
    return int(-(-amount // unit) * unit)
