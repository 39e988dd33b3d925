"""The details that one view shows: an agent and one of its calls, now or at an earlier time.

Details are sent in full once, then only changes: text is appended, never sent again, and only new
or changed tool calls are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agentnb.core.calls import CallHistory, CallState
from agentnb.core.secrets import SHORTEST, secrets_as_known
from agentnb.core.text import visible, visible_text
from agentnb.core.tree import AgentState
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.history import call_line, prompt_of, reused_in_words, tool_lines
from agentnb.views.panel.pictures import WholeToolCalls
from agentnb.views.panel.wire import (
    AgentDetails,
    CallLine,
    DetailsMessage,
    ToolLine,
    changed_fields,
)

_MOST_NOTES = 100
"""Most notes that are shown of an agent, which has one for each of its skipped tasks."""

CostOf = Callable[[str], str]
"""From an agent's path to its cost, in words."""


class Details:
    """The details of one agent for one view.

    Args:
        path: The agent's path. An unknown agent has empty details.
        call: The number of a call, from 1; `None` follows the newest.
        at_s: A time of the run, in seconds; `None` is now.
        whole: The whole records of tool calls that the events cut: only these have pictures and
            long code.
    """

    def __init__(
        self,
        path: str,
        *,
        call: int | None = None,
        at_s: float | None = None,
        whole: WholeToolCalls | None = None,
    ) -> None:
        self.path = path
        self.call = call
        self.at_s = at_s
        self._whole = {} if whole is None else whole  # an empty one is filled during the run
        self._n = 0
        self._position = 0
        self._history: CallHistory | None = None
        self._shown: CallState | None = None
        self._pieces = 0
        self._held = ""
        """Received text that is not shown yet: it may be half a line end or half a secret."""
        self._end = ""
        """The end of the shown text, unmasked."""
        self._given: set[int] = set()
        """Numbers of the tool calls whose arguments were sent."""
        self._made: dict[str, tuple[Any, Any]] = {}
        self._facts_sent: AgentDetails = {}

    def whole(self, fold: PanelFold, cost_of: CostOf) -> DetailsMessage:
        """The full details, at the time of `fold`."""
        self._n = 0
        head: DetailsMessage = {
            "type": "details",
            "n": 0,
            "reset": True,
            "agent": self.path,
            "at": self.at_s,
        }
        agent = fold.tree.agent_at(self.path)
        if agent is None:
            return head
        history = self._history = self._history or CallHistory(agent.agent_id)
        self._catch_up(fold, history)
        self._facts_sent = self._facts(fold, agent, history, cost_of)
        call = self._shown = self._chosen(history)
        self._pieces = len(call.pieces) if call is not None else 0
        text, self._held = _without_half(call.text, call) if call is not None else ("", "")
        self._end = text[-SHORTEST:]
        return {
            **head,
            **self._facts_sent,
            "tools": self._lines_of(history, whole=True),
            "prompt": prompt_of(call.request) if call is not None else None,
            "text": visible_text(text),
        }

    def more(self, fold: PanelFold, cost_of: CostOf) -> DetailsMessage | None:
        """The changes since the last message; `None` without any, and for a past time."""
        agent = fold.tree.agent_at(self.path) if self.at_s is None else None
        if agent is None:
            return None
        if self._history is None:
            return self.whole(fold, cost_of)
        self._catch_up(fold, self._history)
        if self._chosen(self._history) is not self._shown or self._ends_in_a_secret():
            return self.whole(fold, cost_of)
        facts = self._facts(fold, agent, self._history, cost_of)
        changed = changed_fields(facts, self._facts_sent)
        self._facts_sent = facts
        if fresh := self._fresh_text():
            changed["add"] = fresh
        if tools := self._lines_of(self._history):
            changed["tools"] = tools
        if not changed:
            return None
        self._n += 1
        head: DetailsMessage = {"type": "details", "n": self._n, "reset": False}
        return {**head, **changed}

    def is_live(self, fold: PanelFold) -> bool:
        """Whether its text may grow: it shows the present, and the agent has an open call."""
        agent = fold.tree.agent_at(self.path) if self.at_s is None else None
        return agent is not None and fold.is_calling(agent.agent_id)

    def _catch_up(self, fold: PanelFold, history: CallHistory) -> None:
        rows = fold.own.get(history.agent_id, [])
        history.feed(rows[self._position :])
        self._position = len(rows)

    def _chosen(self, history: CallHistory) -> CallState | None:
        if self.call is not None and 1 <= self.call <= len(history.calls):
            return history.calls[self.call - 1]
        return history.calls[-1] if history.calls else None

    @property
    def _fresh(self) -> str:
        """The received text that is not shown yet."""
        pieces = self._shown.pieces if self._shown is not None else []
        return self._held + "".join([text for _, text in pieces[self._pieces :]])

    def _ends_in_a_secret(self) -> bool:
        """Whether the shown text ends in the beginning of a secret."""
        fresh, mask = self._fresh, secrets_as_known().mask
        return mask(self._end + fresh) != self._end + mask(fresh)

    def _fresh_text(self) -> str:
        call, fresh = self._shown, self._fresh
        if call is None or (fresh == self._held and call.finished is None):
            return ""
        self._pieces = len(call.pieces)
        fresh, self._held = _without_half(fresh, call, after=self._end)
        self._end = (self._end + fresh)[-SHORTEST:]
        return visible_text(fresh)

    def _once(self, name: str, raw: Any, made: Callable[[Any], Any]) -> Any:
        """`made(raw)`, cached until `raw` is another object: it may be a megabyte."""
        known = self._made.get(name)
        if known is None or known[0] is not raw:
            known = self._made[name] = (raw, made(raw))
        return known[1]

    def _facts(
        self, fold: PanelFold, agent: AgentState, history: CallHistory, cost_of: CostOf
    ) -> AgentDetails:
        usage, shown = history.usage, self._chosen(history)
        return {
            "task": self._once("task", agent.task, visible_text),
            "model": visible(agent.model, 200),
            "job": visible(agent.job_id, 40),
            "profile": visible(agent.profile, 200),
            "reused": reused_in_words(fold.reused_of(self.path), len(history.calls)),
            "status": str(agent.status),
            "tokens": {
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "cache_read": usage.cache_read_tokens,
                "cache_write": usage.cache_creation_tokens,
            },
            "cost": cost_of(self.path),
            "error": self._once("error", agent.error, visible_text) if agent.error else None,
            "notes": self._notes([*agent.notes, *fold.person.notes(agent.agent_id)]),
            "told": fold.person.told(agent.agent_id),
            "calls": [
                self._once(f"call {n}", call.finished, partial(_line_of, n, call))
                for n, call in enumerate(history.calls, 1)
            ],
            "call": history.calls.index(shown) + 1 if shown is not None else None,
            "following": self.call is None,
        }

    def _lines_of(self, history: CallHistory, *, whole: bool = False) -> list[ToolLine]:
        """The agent's tool calls: all of them, or those changed since the last call."""
        changed = history.tools.take_changed()
        if whole:
            self._given.clear()
        lines = tool_lines(history.tools.calls if whole else changed, self._whole)
        for line in lines:
            if line["n"] in self._given:  # it never changes, and code is long
                del line["input"], line["is_code"], line["input_cut"]
            self._given.add(line["n"])
        return lines

    def _notes(self, notes: Sequence[str]) -> list[str]:
        shown = [
            self._once(f"note {n}", note, visible_text)
            for n, note in enumerate(notes[:_MOST_NOTES])
        ]
        more = len(notes) - len(shown)
        return [*shown, f"… and {more:,} more"] if more else shown


def _line_of(number: int, call: CallState, _: object) -> CallLine:
    return call_line(number, call)


def _without_half(text: str, call: CallState, *, after: str = "") -> tuple[str, str]:
    """Split new text, which follows `after`, into what can be shown and what must wait."""
    if call.finished is not None:
        return text, ""
    begun = secrets_as_known().beginning_at_end(after + text)
    whole = len(text) - min(len(text), max(text.endswith("\r"), begun))
    return text[:whole], text[whole:]
