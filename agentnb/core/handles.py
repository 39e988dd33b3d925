"""Handles: objects of a person that agents refer to by name.

The core knows no objects. It asks for the description of an agent's objects, reports which agent
passes which objects on, and when an agent has ended. An agent has only the names passed to it.
"""

from __future__ import annotations

from typing import Protocol


class Handles(Protocol):
    """The objects of one run. For the run's loop only; all but `agent_ended` must be quick."""

    def told_to_root(self) -> str:
        """The root's description of its objects; empty without objects."""
        ...

    def told_to_child(self, parent_id: str, task: str, context: str = "") -> str:
        """A sub-agent's description of the objects that its task and context would pass on.

        Args:
            parent_id: The agent that delegates.
            task: The sub-agent's task.
            context: The context besides the task.
        """
        ...

    def hand_over(self, parent_id: str, child_id: str, task: str, context: str = "") -> None:
        """Give a new sub-agent the objects that its task and context pass on."""
        ...

    async def agent_ended(self, agent_id: str) -> None:
        """Take over the objects that an agent made, and release what it held outside the run.

        Awaited once for each agent that started, whatever ended it: after its sub-agents have
        ended, and before its terminal event.
        """
        ...
