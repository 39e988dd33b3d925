"""What a view looks at: one agent, one of its calls, now or at an earlier time of the run.

A look is sent whole once, and then only what changed: text is appended, never sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentnb.core.bus import EventBus
from agentnb.core.tree import AgentState, TreeFold
from agentnb.views.panel.story import CallStory, Story, call_line, prompt_of
from agentnb.views.text import visible, visible_text

CostOf = Callable[[str], str]
"""From an agent's path to what it has cost, in words."""


class Look:
    """What one view is shown of one agent.

    Args:
        path: The agent's. One that is not there (yet) is shown as nothing.
        call: The number of a call, from 1; `None` follows the newest.
        at_s: A time of the run, in seconds; `None` is now.
    """

    def __init__(self, path: str, *, call: int | None = None, at_s: float | None = None) -> None:
        self.path = path
        self.call = call
        self.at_s = at_s
        self._n = 0
        self._position = 0
        self._story: Story | None = None
        self._shown: CallStory | None = None
        self._pieces = 0
        self._told: dict[str, Any] = {}

    def whole(self, bus: EventBus, tree: TreeFold, cost_of: CostOf) -> dict[str, Any]:
        """Everything there is to see."""
        if self.at_s is not None:
            tree, cost_of = _tree_at(bus, self.at_s), _no_cost
        self._n = 0
        head = {"type": "look", "n": 0, "reset": True, "agent": self.path, "at": self.at_s}
        agent = _agent_at(tree, self.path)
        if agent is None:
            return head
        story = self._story = self._story or Story(agent.agent_id)
        self._catch_up(bus, story)
        self._told = self._facts(agent, story, cost_of)
        call = self._shown = self._chosen(story)
        self._pieces = len(call.pieces) if call is not None else 0
        return {
            **head,
            **self._told,
            "prompt": prompt_of(call.request) if call is not None else None,
            "text": visible_text(call.text) if call is not None else "",
        }

    def more(self, bus: EventBus, tree: TreeFold, cost_of: CostOf) -> dict[str, Any] | None:
        """What changed since the last time; `None` when nothing did, or the past is looked at."""
        agent = _agent_at(tree, self.path) if self.at_s is None else None
        if agent is None:
            return None
        if self._story is None:
            return self.whole(bus, tree, cost_of)
        self._catch_up(bus, self._story)
        if self._chosen(self._story) is not self._shown:
            return self.whole(bus, tree, cost_of)
        facts = self._facts(agent, self._story, cost_of)
        changed = {name: value for name, value in facts.items() if self._told[name] != value}
        self._told = facts
        changed |= self._fresh_text()
        if not changed:
            return None
        self._n += 1
        return {"type": "look", "n": self._n, "reset": False, **changed}

    def _catch_up(self, bus: EventBus, story: Story) -> None:
        rows = bus.rows_since(self._position)
        self._position += len(rows)
        at_s = self.at_s
        story.feed(rows if at_s is None else [row for row in rows if row[0] <= at_s])

    def _chosen(self, story: Story) -> CallStory | None:
        if self.call is not None and 1 <= self.call <= len(story.calls):
            return story.calls[self.call - 1]
        return story.calls[-1] if story.calls else None

    def _fresh_text(self) -> dict[str, str]:
        if self._shown is None or len(self._shown.pieces) == self._pieces:
            return {}
        fresh = "".join(self._shown.pieces[self._pieces :])
        self._pieces = len(self._shown.pieces)
        return {"add": visible_text(fresh)}

    def _facts(self, agent: AgentState, story: Story, cost_of: CostOf) -> dict[str, Any]:
        usage, shown = story.usage, self._chosen(story)
        return {
            "task": visible_text(agent.task),
            "model": visible(agent.model, 200),
            "status": str(agent.status),
            "tokens": {
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "cache_read": usage.cache_read_tokens,
                "cache_write": usage.cache_creation_tokens,
            },
            "cost": cost_of(self.path),
            "error": visible_text(agent.error) if agent.error else None,
            "notes": [visible_text(note) for note in agent.notes],
            "calls": [call_line(number, call) for number, call in enumerate(story.calls, 1)],
            "call": story.calls.index(shown) + 1 if shown is not None else None,
            "following": self.call is None,
        }


def _agent_at(tree: TreeFold, path: str) -> AgentState | None:
    return next((agent for agent in tree.agents.values() if agent.path == path), None)


def _tree_at(bus: EventBus, at_s: float) -> TreeFold:
    """The tree as it was: text alone changes nothing that a look tells of it."""
    tree = TreeFold()
    tree.feed([row for row in bus.milestones if row[0] <= at_s])
    return tree


def _no_cost(path: str) -> str:
    return ""
