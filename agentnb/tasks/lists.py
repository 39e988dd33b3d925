"""A session's threads and agents, as lists that display as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from agentnb.core.durable import AgentMetadata, ThreadMessage
from agentnb.core.shown import Bundle, Listed, counted
from agentnb.core.types import AgentStatus


class ListedThread(Protocol):
    """What a list shows of a thread."""

    @property
    def id(self) -> str:
        """Its id, which is also its agent's id."""
        ...

    @property
    def title(self) -> str:
        """The agent's name, or the beginning of the first message."""
        ...

    @property
    def status(self) -> AgentStatus:
        """The status of its agent."""
        ...

    @property
    def metadata(self) -> AgentMetadata | None:
        """Its agent's data; `None` for a thread without an agent."""
        ...

    @property
    def messages(self) -> Sequence[ThreadMessage]:
        """Its conversation."""
        ...


class ThreadList(Listed[Any]):
    """Threads, newest first. Its items are `agentnb.Thread`."""

    __slots__ = ()
    noun = "thread"

    @property
    def headline(self) -> str:
        """`12 threads`. Without statuses, which would take one query per thread."""
        return counted(len(self), self.noun)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per thread: `pandas.DataFrame(session.threads().to_records())`."""
        return [_thread_record(thread) for thread in self]

    def _bundle(self) -> Bundle:
        # Imported only when it is shown: loading Markdown takes time.
        from agentnb.bundles import list_bundle

        return list_bundle(self, ("", "thread", "status", "messages"), _thread_row)


class AgentList(Listed[AgentMetadata]):
    """Agents of a session, in order of creation."""

    __slots__ = ()
    noun = "agent"

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per agent: `pandas.DataFrame(session.agents().to_records())`."""
        return [_agent_record(agent) for agent in self]

    def _bundle(self) -> Bundle:
        from agentnb.bundles import list_bundle

        return list_bundle(self, ("agent", "model", "kind", "current task"), _agent_row)


def _model(agent: AgentMetadata) -> str:
    return f"{agent.provider}/{agent.model}"


def _thread_row(place: int, thread: ListedThread) -> tuple[object, ...]:
    return place, thread.title or "(no message yet)", thread.status, f"{len(thread.messages):,}"


def _agent_row(_: int, agent: AgentMetadata) -> tuple[object, ...]:
    return agent.name, _model(agent), agent.kind, agent.current_task or ""


def _thread_record(thread: ListedThread) -> dict[str, Any]:
    agent = thread.metadata
    return {
        "id": thread.id,
        "title": thread.title,
        "status": str(thread.status),
        "messages": len(thread.messages),
        "agent": None if agent is None else agent.name,
        "model": None if agent is None else _model(agent),
        "kind": None if agent is None else str(agent.kind),
        "current_task": None if agent is None else agent.current_task,
    }


def _agent_record(agent: AgentMetadata) -> dict[str, Any]:
    return {
        "thread_id": agent.thread_id,
        "name": agent.name,
        "model": _model(agent),
        "profile": agent.profile,
        "kind": str(agent.kind),
        "created_for_task": agent.created_for_task,
        "parent_thread_id": agent.parent_thread_id,
        "current_task": agent.current_task,
        "created_at": agent.created_at,
    }
