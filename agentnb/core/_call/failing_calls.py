"""Tool calls that fail in the same way again and again: they end their agent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from agentnb.core.budget import as_json
from agentnb.core.errors import NoAnswer
from agentnb.core.spawn import SPAWN
from agentnb.core.text import literal, one_line
from agentnb.core.tool_results import calls_in
from agentnb.core.types import Block, Message, ToolResultBlock, ToolUseBlock

_Call = tuple[str, str, str, bool]
_TOLERATED = 3
"""How often the same call may fail in the same way, each time in a turn of its own."""


class FailingCalls:
    """Counts an agent's equal calls with equal errors.

    A result that the agent has not seen before is progress: the count begins again.

    Args:
        messages: Its conversation so far, whose calls count, too. What a thread said before is
            text without calls.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._times: Counter[_Call] = Counter()
        self.is_repeated = False
        """Whether the model is to be told, with the newest results, that it repeats itself."""
        for said, answer in pairwise(messages):
            self.count(calls_in(said), answer.content)

    def count(self, orders: Sequence[ToolUseBlock], results: Sequence[Block]) -> NoAnswer | None:
        """Count the calls of one turn; returns why the agent has to end, if it has to."""
        found = {each.tool_use_id: each for each in results if isinstance(each, ToolResultBlock)}
        turn = {
            _known_as(order, result): result.text
            for order in orders
            if (result := found.get(order.id)) is not None
        }
        if any(not call[-1] and call not in self._times for call in turn):
            self._times = Counter({call: 1 for call in self._times if not call[-1]})
        self._times.update(turn.keys())
        failing = [(self._times[call], call) for call in turn if call[-1]]
        times, worst = max(failing, default=(0, None))
        self.is_repeated = times == _TOLERATED
        if times <= _TOLERATED or worst is None:
            return None
        why = one_line(turn[worst]).partition(". ")[0]  # what follows is advice to the model
        return NoAnswer(
            f"The model made the same call of {literal(worst[0])} {times} times, and each failed: "
            f"{why.rstrip('.')}. Put the task in other words, or ask another model."
        )


def _known_as(order: ToolUseBlock, result: ToolResultBlock) -> _Call:
    """What equal calls with equal results have in common."""
    # The refusals of a spawn count how often a task came up.
    text = re.sub(r"\d+", "", result.text) if order.name == SPAWN else result.text
    return order.name, as_json(dict(sorted(order.input.items()))), text, result.is_error
