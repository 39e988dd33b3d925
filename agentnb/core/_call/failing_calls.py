"""Tool calls that fail in the same way again and again: they end their agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agentnb.core.budget import as_json
from agentnb.core.errors import NoAnswer
from agentnb.core.text import literal, one_line
from agentnb.core.types import Block, ToolResultBlock, ToolUseBlock

_TOLERATED = 3
"""How often the same call may fail in the same way, each time in a turn of its own."""


class FailingCalls:
    """Counts an agent's equal calls with equal errors.

    A result that the agent has not seen before is progress: the count begins again.
    """

    def __init__(self) -> None:
        self._times: Counter[tuple[str, str, str, bool]] = Counter()
        self.is_repeated = False
        """Whether the model is to be told, with the newest results, that it repeats itself."""
        self.error: NoAnswer | None = None
        """Why the agent has to end: it made the call again."""

    def count(self, orders: Sequence[ToolUseBlock], results: Sequence[Block]) -> None:
        """Count the calls of one turn."""
        found = {each.tool_use_id: each for each in results if isinstance(each, ToolResultBlock)}
        turn = {
            (order.name, as_json(order.input), result.text, result.is_error)
            for order in orders
            if (result := found.get(order.id)) is not None
        }
        if any(not call[-1] and call not in self._times for call in turn):
            self._times = Counter({call: 1 for call in self._times if not call[-1]})
        self._times.update(turn)
        failing = [(self._times[call], call) for call in turn if call[-1]]
        times, (name, _, error, _) = max(failing, default=(0, ("", "", "", True)))
        self.is_repeated = times == _TOLERATED
        if times > _TOLERATED:
            self.error = NoAnswer(
                f"The model made the same call of {literal(name)} {times} times, and each failed: "
                f"{one_line(error).rstrip('.')}. Put the task in other words, or ask another model."
            )
