"""How an agent comes to be: its id, its prompt, its first message, its place in the cancel tree.

A sub-agent is made from nothing but its task, the result before it in a sequence, and what
`AgentContext.child_for_task` hands on. This is where isolation is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentnb.core import prompt
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.events import AgentSpawned
from agentnb.core.jobs import Delegation
from agentnb.core.journal import ShieldedJournal
from agentnb.core.life import Agent, cache_prefix
from agentnb.core.meter import Meter
from agentnb.core.port import AgentPort, Siblings
from agentnb.core.protocols import Gate, JobOrder, Provider, Tool
from agentnb.core.request import RequestContext
from agentnb.core.synthesis import result_body
from agentnb.core.types import Message, SpawnMode, SubAgentResult, child_id, user_message


@dataclass(frozen=True, slots=True)
class Spawned:
    """How an agent was started, as its event tells it."""

    number: int = 0
    """Of its task among all of its parent's; the root has none."""
    index: int = 0
    total: int = 1
    mode: SpawnMode | None = None
    job_id: str = ""
    profile: str = ""


_AS_ROOT = Spawned()


class AgentFactory:
    """Makes the agents of one run, and announces each."""

    def __init__(
        self,
        provider: Provider,
        request: RequestContext,
        bus: EventBus,
        *,
        meter: Meter,
        journal: ShieldedJournal,
        max_depth: int,
        inherit_memory: bool,
        max_turns: int,
        tools: Sequence[Tool],
        delegation: Delegation,
    ) -> None:
        self._provider = provider
        self._request = request
        self._bus = bus
        self._meter = meter
        self._journal = journal
        self._max_depth = max_depth
        self._inherit_memory = inherit_memory
        self._max_turns = max_turns
        self._tools = tuple(tools)
        self._delegation = delegation

    def root(self, context: AgentContext, task: str, *, has_plan: bool) -> Agent:
        """Make the agent at the top; with a plan its conversation begins with the results."""
        first = () if has_plan else (user_message(task),)
        spawn_tools = () if has_plan else self._delegation.tools_at(0, self._max_depth)
        return self._make(
            self._request.thread_id,
            None,
            task,
            context,
            self._request,
            system=context.root_prompt(has_spawn_tools=bool(spawn_tools)),
            messages=(*context.conversation_history, *first),
            provider=self._provider,
            own_tools=self._tools,
            spawn_tools=spawn_tools,
        )

    def child(
        self, parent: Agent, slot: int, spawned: Spawned, previous: SubAgentResult | None
    ) -> Agent:
        """Make the sub-agent for `parent.results[slot]`, with what it may know."""
        request = parent.request.child()
        task = parent.results[slot].task
        context = parent.context.child_for_task(
            task, request.depth, inherit_memory=self._inherit_memory
        )
        spawn_tools = self._delegation.tools_at(request.depth, self._max_depth)
        child = self._make(
            child_id(parent.agent_id, spawned.number),
            parent,
            task,
            context,
            request,
            system=context.system_prompt,
            messages=(user_message(_first_message(task, previous)),),
            provider=parent.provider,
            own_tools=parent.own_tools,
            spawn_tools=spawn_tools,
            gate=parent.port.gate,
            spawned=spawned,
        )
        parent.children.append(child)
        return child

    def worker(self, parent: Agent, order: JobOrder, number: int, job_id: str) -> Agent:
        """Make the sub-agent that an agent ordered by a tool, with what the order hands it."""
        request, model = parent.request.child(), order.model
        context = parent.context.child_for_task(
            order.task,
            request.depth,
            inherit_memory=self._inherit_memory,
            model=model.name if model is not None else "",
            briefings=order.briefings,
        )
        index = len(parent.results) - 1
        spawn_tools = self._delegation.tools_at(request.depth, self._max_depth)
        child = self._make(
            child_id(parent.agent_id, number),
            parent,
            order.task,
            context,
            request,
            system=context.system_prompt,
            messages=(user_message(prompt.child_message(order.task, context=order.context)),),
            provider=parent.provider if model is None else model.provider,
            own_tools=order.tools,
            spawn_tools=spawn_tools,
            gate=parent.port.gate if model is None else model.gate,
            spawned=Spawned(
                number=number,
                index=index,
                total=index + 1,
                job_id=job_id,
                profile=order.profile,
            ),
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
        provider: Provider,
        own_tools: tuple[Tool, ...],
        spawn_tools: Sequence[Tool],
        gate: Gate | None = None,
        spawned: Spawned = _AS_ROOT,
    ) -> Agent:
        port = AgentPort(
            agent_id,
            provider=provider,
            request=request,
            bus=self._bus,
            meter=self._meter,
            journal=self._journal,
            siblings=Siblings() if parent is None else parent.below,
            cache_prefix=lambda: cache_prefix(parent, spawned.mode, spawned.total, system),
            gate=gate,
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
            provider=provider,
            own_tools=own_tools,
            spawn_tools=spawn_tools,
            turns_left=self._max_turns,
            started_at_s=request.clock.now(),
        )
        self._bus.publish(
            AgentSpawned(
                agent_id=agent_id,
                parent_id=parent.agent_id if parent else None,
                task_description=task,
                depth=request.depth,
                index=spawned.index,
                total=spawned.total,
                model=context.agent_config.model,
                mode=spawned.mode,
                job_id=spawned.job_id,
                profile=spawned.profile,
            )
        )
        return agent


def _first_message(task: str, previous: SubAgentResult | None) -> str:
    if previous is None:
        return prompt.child_message(task)
    return prompt.child_message(
        task, result_body(previous), status=previous.status, cut=previous.cut
    )
