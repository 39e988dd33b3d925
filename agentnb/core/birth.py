"""How an agent comes to be: its id, its prompt, its first message, its place in the cancel tree.

A sub-agent is made from nothing but its task, the result before it in a sequence, and what
`AgentContext.child_for_task` hands on. This is where isolation is kept.
"""

from __future__ import annotations

from agentnb.core import prompt
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.events import AgentSpawned
from agentnb.core.journal import CarefulJournal
from agentnb.core.life import Agent, cache_prefix
from agentnb.core.meter import Meter
from agentnb.core.port import AgentPort, Siblings
from agentnb.core.protocols import Provider
from agentnb.core.request import RequestContext
from agentnb.core.types import Message, SpawnMode, user_message


class AgentFactory:
    """Makes the agents of one run, and announces each."""

    def __init__(
        self,
        provider: Provider,
        request: RequestContext,
        bus: EventBus,
        *,
        meter: Meter,
        journal: CarefulJournal,
        max_depth: int,
        inherit_memory: bool,
        max_turns: int,
    ) -> None:
        self._provider = provider
        self._request = request
        self._bus = bus
        self._meter = meter
        self._journal = journal
        self._max_depth = max_depth
        self._inherit_memory = inherit_memory
        self._max_turns = max_turns

    def root(self, context: AgentContext, task: str, *, has_plan: bool) -> Agent:
        """Make the agent at the top; with a plan its conversation begins with the results."""
        first = () if has_plan else (user_message(task),)
        return self._make(
            self._request.thread_id,
            None,
            task,
            context,
            self._request,
            system=prompt.for_root(context, max_depth=self._max_depth),
            messages=(*context.conversation_history, *first),
        )

    def child(self, parent: Agent, index: int, mode: SpawnMode, previous: str | None) -> Agent:
        """Make the sub-agent for `parent.results[index]`, with what it may know."""
        request = parent.request.child()
        task = parent.results[index].task
        context = parent.context.child_for_task(
            task, request.depth, inherit_memory=self._inherit_memory
        )
        child = self._make(
            parent.next_child_id(),
            parent,
            task,
            context,
            request,
            system=prompt.for_child(context, max_depth=self._max_depth),
            messages=(user_message(prompt.child_message(task, previous)),),
            index=index,
            total=len(parent.results),
            mode=mode,
        )
        parent.children.append(child)
        return child

    def _make(
        self,
        agent_id: str,
        parent: Agent | None,
        task: str,
        context: AgentContext,
        request: RequestContext,
        *,
        system: str,
        messages: tuple[Message, ...],
        index: int = 0,
        total: int = 1,
        mode: SpawnMode | None = None,
    ) -> Agent:
        port = AgentPort(
            agent_id,
            provider=self._provider,
            request=request,
            bus=self._bus,
            meter=self._meter,
            journal=self._journal,
            siblings=Siblings() if parent is None else parent.below,
            cache_prefix=lambda: cache_prefix(parent, mode, total, system),
        )
        agent = Agent(
            agent_id=agent_id,
            parent=parent,
            task=task,
            context=context,
            request=request,
            scope=request.cancellation.scope(agent_id, parent.agent_id if parent else None),
            port=port,
            system=system,
            messages=messages,
            turns_left=self._max_turns,
            started_at_s=request.clock.now(),
        )
        self._bus.publish(
            AgentSpawned(
                agent_id=agent_id,
                parent_id=parent.agent_id if parent else None,
                task_description=task,
                depth=request.depth,
                index=index,
                total=total,
                model=context.agent_config.model,
                mode=mode,
            )
        )
        return agent
