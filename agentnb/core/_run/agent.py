"""One agent: its creation, its state while it runs, and its end.

A sub-agent gets only its task, the context in its order, and what `AgentContext.child_for_task`
passes on: isolation is enforced here. Only an agent's own methods write its fields.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from agentnb.core import prompt
from agentnb.core._call.services import AgentServices, Siblings
from agentnb.core._run.jobs import AgentJobs, JobHost
from agentnb.core.cancel import CancelScope
from agentnb.core.context import AgentContext
from agentnb.core.errors import OrchestratorError
from agentnb.core.events import AgentSpawned, SpawnIgnored
from agentnb.core.plan import Plan
from agentnb.core.protocols import (
    AgentOutcome,
    Gate,
    JobOrder,
    OutputType,
    Provider,
    Tool,
    TypedAnswer,
)
from agentnb.core.records import EndRecord
from agentnb.core.request import RequestContext, RunState
from agentnb.core.spawn import SPAWN, read_reply
from agentnb.core.synthesis import result_body, said_and_results, with_short_tool_results
from agentnb.core.types import (
    AgentStatus,
    Block,
    CompletionRequest,
    Message,
    Role,
    SpawnMode,
    SubAgentResult,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    bare_model,
    child_id,
    path_of,
    user_message,
    with_texts,
)

MAX_ATTEMPTS = 2
BEFORE_ITS_TURN = " before its turn"
"""Suffix of the reason why a task did not start, after the limit in words: `Meter.ended_by`."""


class NumberedTask(NamedTuple):
    """A task that an agent asked for."""

    number: int
    """Counts all tasks that this agent asked for, skipped ones included."""
    task: str


@dataclass(slots=True)
class Agent:
    """One agent and its state."""

    agent_id: str
    parent: Agent | None
    task: str
    context: AgentContext
    request: RequestContext
    scope: CancelScope
    services: AgentServices
    system: str
    messages: tuple[Message, ...]
    provider: Provider
    """Answers its calls."""
    own_tools: tuple[Tool, ...]
    """Tools that it may call and pass on: all but the spawn tools."""
    spawn_tools: Sequence[Tool]
    jobs: AgentJobs | None
    """The sub-agents that it starts by tools; `None` if it may not."""
    below: Siblings
    """State that its children share."""
    turns_left: int
    started_at_s: float
    turns_taken: int = 0
    attempt: int = 1
    attempts: int = MAX_ATTEMPTS
    """Most attempts in all."""
    link: int = 0
    """Index of its current model in a fallback chain."""
    said: str = ""
    """Its text before it delegated."""
    results: list[SubAgentResult] = field(default_factory=list)
    """Results of its sub-agents, in task order; a task that has not ended is `skipped`."""
    numbers: list[int] = field(default_factory=list)
    """Task numbers, in the order of `results`."""
    synthesis: str = ""
    answer: str = ""
    """Its answer, while it takes one more turn for a person's note; else empty."""
    output: OutputType | None = None
    """The type of its answer; `None` for text."""
    can_only_answer: bool = False
    """Whether it has neither tools nor sub-agents, so that its first reply is its answer."""
    was_asked_for_type: bool = False
    """Whether its newest call asked for a typed answer."""
    final_answer: ToolUseBlock | None = None
    """The answer in its newest reply's tool call."""
    children: list[Agent] = field(default_factory=list)

    # -- what it is -------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """`provider/model`."""
        return self.context.agent_config.model

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def path(self) -> str:
        """As shown to a person: `root`, `1`, `1.2`."""
        return self.services.path

    @property
    def lineage(self) -> tuple[str, ...]:
        """Its own task, then its ancestors' in this run."""
        tasks, agent = [], self
        while agent.parent is not None:
            tasks.append(agent.task)
            agent = agent.parent
        return (*tasks, agent.task)

    @property
    def tools(self) -> dict[str, Tool]:
        """All tools that it may call, by name."""
        return {tool.spec.name: tool for tool in (*self.own_tools, *self.spawn_tools)}

    @property
    def reached(self) -> str:
        """Its text so far, without a spawn block or the beginning of one."""
        return read_reply(self.services.text).text_before or self.said

    @property
    def partial_answer(self) -> str:
        """The answer of an agent that ended early: its text so far, then the results.

        An answer already given is kept until another is complete.
        """
        if self.answer:
            return self.answer
        return said_and_results(self.reached, self.results)

    def has_unreported_jobs(self) -> bool:
        """Whether a job is running, or its result is not yet reported to the agent."""
        return self.jobs is not None and self.jobs.has_unreported

    def elapsed_ms(self) -> int:
        """Milliseconds since it was spawned."""
        return round((self.request.clock.now() - self.started_at_s) * 1000)

    # -- what changes it --------------------------------------------------------------------------

    def apply(self, outcome: AgentOutcome) -> None:
        """Take over the conversation, the model and the turns of an attempt that ended."""
        self.messages, self.final_answer = outcome.messages, outcome.final_answer
        self.link = outcome.link
        self.turns_taken += outcome.turns_used
        # At least one: a synthesis or a corrective turn needs a turn for its answer.
        self.turns_left = max(1, self.turns_left - outcome.turns_used)

    def start_next_attempt(self) -> None:
        self.attempt += 1

    def add_message(self, text: str) -> None:
        """Append a user message to the conversation."""
        self.messages = (*self.messages, user_message(text))

    def drop_reply(self) -> None:
        """Remove the newest reply, so that the same call can be made again."""
        self.messages = self.messages[:-1]

    def answer_tool_calls(self, text: str) -> None:
        """Append a user message to a conversation that may end with tool calls.

        A tool call may not stay without a result, so each gets the text as its result; without tool
        calls the text is the message.
        """
        messages = self.messages
        if not messages[-1].content:  # an empty reply cannot be sent back
            messages = messages[:-1]
        if messages[-1].role is Role.USER:  # its turns were used up: tool results come last
            self.messages = with_texts(messages, (text,))
            return
        calls = [each.id for each in messages[-1].content if isinstance(each, ToolUseBlock)]
        answers: tuple[Block, ...] = tuple(ToolResultBlock(call, text, True) for call in calls)
        self.messages = (*messages, Message(Role.USER, answers or (TextBlock(text),)))

    def recall(self, memories: Sequence[str]) -> None:
        """Add to the root's recalled memories. Only before its first call."""
        known = dict.fromkeys((*self.context.recalled_memories, *memories))
        self.context = replace(self.context, recalled_memories=tuple(known))
        self.system = self.context.root_prompt(has_spawn_tools=bool(self.spawn_tools))

    def shorten_tool_results(self, whole: tuple[Message, ...], limit: int) -> None:
        """Replace the conversation by `whole`, its tool results cut to `limit` characters."""
        self.messages = with_short_tool_results(whole, limit)

    def set_text_before_results(self, text: str) -> None:
        self.said = text

    def set_synthesis(self, synthesis: str) -> None:
        self.synthesis = synthesis

    def keep_answer(self, answer: str) -> None:
        """Keep the agent's answer while it takes one more turn."""
        self.answer = answer

    def tell(self, conversation: tuple[Message, ...], texts: Sequence[str]) -> None:
        """Replace the conversation by one that ends with a user message, and add texts to that."""
        self.messages = with_texts(conversation, texts)

    def number(self, tasks: Sequence[str]) -> list[NumberedTask]:
        """Number the tasks of one delegation: once, before any of them is refused or started."""
        numbers = self.services.take_numbers(len(tasks))
        return [NumberedTask(*pair) for pair in zip(numbers, tasks, strict=True)]

    def path_of_child(self, number: int) -> str:
        """The path of the sub-agent with that number, whether or not it exists."""
        return path_of(child_id(self.agent_id, number), self.request.thread_id)

    def add_task(self, task: NumberedTask, why: str) -> int:
        """Append a `skipped` result for a task; `put` replaces it when the task has ended.

        Args:
            task: The task.
            why: Why it is not done yet.

        Returns:
            Its index in `results`.
        """
        path = self.path_of_child(task.number)
        self.results.append(
            SubAgentResult(None, task.task, AgentStatus.SKIPPED, error=why, path=path)
        )
        self.numbers.append(task.number)
        return len(self.results) - 1

    def ignore(self, reason: str, tasks: Sequence[NumberedTask] = ()) -> None:
        """Publish that a spawn of this agent, or some of its tasks, is not followed."""
        self.services.publish(
            SpawnIgnored(
                agent_id=self.agent_id,
                reason=reason,
                tasks=tuple(task for _, task in tasks),
                numbers=tuple(number for number, _ in tasks),
            )
        )

    def put(self, index: int, result: SubAgentResult) -> None:
        """Set the result of a task."""
        self.results[index] = result

    def break_cycles(self) -> None:
        """Drop children and jobs at the run's end: they refer back here and to the record."""
        self.children.clear()
        if self.jobs is not None:
            self.jobs.break_cycles()


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """How an agent ended."""

    status: AgentStatus
    text: str
    error: OrchestratorError | None = None
    reason: str = ""
    cut: bool = False
    from_outside: asyncio.CancelledError | None = None
    is_answer: bool = True
    """Whether its model ended the text itself, as its answer."""
    typed: TypedAnswer | None = None
    """Its typed answer, if one was asked for and given."""

    def result_of(self, agent: Agent) -> SubAgentResult:
        """The result that the agent's parent gets."""
        is_completed = self.status is AgentStatus.COMPLETED
        error = self.reason or (str(self.error) if self.error else None)
        return SubAgentResult(
            agent_id=agent.agent_id,
            task=agent.task,
            status=self.status,
            response=self.text,
            error=None if is_completed else error,
            tokens_used=agent.services.usage.total_tokens,
            duration_ms=agent.elapsed_ms(),
            path=agent.path,
            cut=self.cut and is_completed,
            data=None if self.typed is None else self.typed.data,
        )

    def record_of(self, agent: Agent, result: SubAgentResult, at_s: float) -> EndRecord:
        """The agent's end record, from which its terminal event is made."""
        return EndRecord(
            agent.path,
            self.status,
            self.text,
            result.error,
            self.cut,
            result.tokens_used,
            result.duration_ms,
            at_s,
            agent.attempt,
            agent.scope.by if self.status is AgentStatus.CANCELLED else "",
        )


# -- agent creation ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spawned:
    """How an agent was started: fields of its `AgentSpawned`."""

    number: int = 0
    """Number of its task among all of its parent's; 0 for the root."""
    index: int = 0
    total: int = 1
    mode: SpawnMode | None = None
    job_id: str = ""
    profile: str = ""


_AS_ROOT = Spawned()


def root_agent(
    run: RunState,
    host: JobHost,
    context: AgentContext,
    task: str,
    *,
    has_plan: bool,
    output: OutputType | None = None,
) -> Agent:
    """Create the root. With a plan, its conversation starts with the results, not with the task."""
    request = run.request
    told = "" if request.handles is None else request.handles.told_to_root()
    first = () if has_plan else (_with_objects(task, told),)
    spawn_tools = () if has_plan else run.delegation.tools_at(0, request.max_depth)
    return _make(
        run,
        host,
        request.thread_id,
        None,
        task,
        context,
        request,
        system=context.root_prompt(has_spawn_tools=bool(spawn_tools)),
        messages=(*context.conversation_history, *first),
        provider=run.provider,
        gate=request.gate,
        own_tools=run.tools,
        spawn_tools=spawn_tools,
        output=output,
    )


def agent_for_row(
    run: RunState, host: JobHost, parent: Agent, task: str, spawned: Spawned, plan: Plan
) -> Agent:
    """Create the agent of one row and judge. Its system prompt is the one that all rows share."""
    rows, request = plan.rows, parent.request.child()
    assert rows is not None
    model = rows.model_of(spawned.number)
    context = parent.context.for_row(rows.system, "" if model is None else model.name)
    child = _make(
        run,
        host,
        child_id(parent.agent_id, spawned.number),
        parent,
        task,
        context,
        request,
        system=context.system_prompt,
        messages=(rows.message(spawned.number, task),),
        provider=parent.provider if model is None else model.provider,
        gate=parent.services.gate if model is None else model.gate,
        own_tools=parent.own_tools,
        spawn_tools=run.delegation.tools_at(request.depth, request.max_depth),
        spawned=spawned,
        output=plan.output,
        cached=len(context.system_prompt) if rows.is_shared else 0,
        attempts=rows.attempts,
    )
    parent.children.append(child)
    return child


def agent_for_task(
    run: RunState,
    host: JobHost,
    parent: Agent,
    task: str,
    spawned: Spawned,
    previous: SubAgentResult | None,
    output: OutputType | None = None,
) -> Agent:
    """Create the sub-agent for a task of a spawn block or a plan."""
    message = (
        prompt.child_message(task)
        if previous is None
        else prompt.child_message(
            task, result_body(previous), status=previous.status, cut=previous.cut
        )
    )
    order = JobOrder(task, tools=parent.own_tools, output=output)
    return _child(run, host, parent, order, message, spawned)


def agent_for_job(
    run: RunState, host: JobHost, parent: Agent, order: JobOrder, spawned: Spawned
) -> Agent:
    """Create the sub-agent that an agent started with a spawn tool."""
    message = prompt.child_message(order.task, context=order.context)
    return _child(run, host, parent, order, message, spawned)


def _child(
    run: RunState, host: JobHost, parent: Agent, order: JobOrder, message: str, spawned: Spawned
) -> Agent:
    request, model = parent.request.child(order.gated), order.model
    agent_id = child_id(parent.agent_id, spawned.number)
    told = ""
    if request.handles is not None:
        told = request.handles.told_to_child(parent.agent_id, order.task, order.context)
        request.handles.hand_over(parent.agent_id, agent_id, order.task, order.context)
    context = parent.context.child_for_task(
        order.task,
        request.depth,
        inherit_memory=run.inherit_memory,
        model=model.name if model is not None else "",
        briefings=order.briefings,
    )
    child = _make(
        run,
        host,
        agent_id,
        parent,
        order.task,
        context,
        request,
        system=context.system_prompt,
        messages=(_with_objects(message, told),),
        provider=parent.provider if model is None else model.provider,
        gate=parent.services.gate if model is None else model.gate,
        own_tools=order.tools,
        spawn_tools=run.delegation.tools_at(request.depth, request.max_depth),
        spawned=spawned,
        output=order.output,
    )
    parent.children.append(child)
    return child


def _with_objects(message: str, told: str) -> Message:
    """The first message of an agent, followed by the description of its objects."""
    first = user_message(message)
    return with_texts((first,), (told,))[0] if told else first


def first_request(run: RunState, parent: Agent, task: str) -> CompletionRequest:
    """The first request of the sub-agent for a task of a spawn block or a plan."""
    request = parent.request.child()
    context = parent.context.child_for_task(task, request.depth, inherit_memory=run.inherit_memory)
    tools = (*parent.own_tools, *run.delegation.tools_at(request.depth, request.max_depth))
    config, handles = context.agent_config, request.handles
    told = "" if handles is None else handles.told_to_child(parent.agent_id, task)
    return CompletionRequest(
        model=bare_model(config.model),
        system=context.system_prompt,
        messages=(_with_objects(prompt.child_message(task), told),),
        tools=tuple(tool.spec for tool in tools),
        max_tokens=config.max_output_tokens,
        extra=config.extra,
    )


def _make(
    run: RunState,
    host: JobHost,
    agent_id: str,
    parent: Agent | None,
    task: str,
    context: AgentContext,
    request: RequestContext,
    *,
    system: str,
    messages: tuple[Message, ...],
    provider: Provider,
    gate: Gate,
    own_tools: tuple[Tool, ...],
    spawn_tools: Sequence[Tool],
    spawned: Spawned = _AS_ROOT,
    output: OutputType | None = None,
    cached: int | None = None,
    attempts: int = MAX_ATTEMPTS,
) -> Agent:
    # `cached`: leading characters of its system prompt worth a cache breakpoint in each call;
    # `None` if that depends on its siblings.
    prefix = partial(_cache_prefix, parent.below if parent else None, spawned, system)
    jobs = AgentJobs(agent_id, own_tools, host) if spawn_tools else None
    withholds = run.delegation.by_tools and not spawn_tools
    services = AgentServices(
        agent_id,
        run,
        provider=provider,
        siblings=Siblings() if parent is None else parent.below,
        cache_prefix=prefix if cached is None else lambda: cached,
        gate=gate,
        jobs=jobs,
        withheld={SPAWN: partial(host.withhold_spawn, agent_id)} if withholds else {},
        gated=request.gated,
    )
    agent = Agent(
        agent_id=agent_id,
        parent=parent,
        task=task,
        context=context,
        request=request,
        scope=request.cancellation.scope(agent_id, parent.agent_id if parent else None),
        services=services,
        system=system,
        messages=messages,
        provider=provider,
        own_tools=own_tools,
        spawn_tools=spawn_tools,
        jobs=jobs,
        below=Siblings(),
        turns_left=run.max_turns,
        started_at_s=request.clock.now(),
        output=output,
        can_only_answer=can_only_answer(run, context, request.depth, own_tools),
        attempts=attempts,
    )
    run.bus.publish(
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
    request.pauses.agent_began(agent_id)
    return agent


def can_only_answer(
    run: RunState, context: AgentContext, depth: int, own_tools: Sequence[Tool]
) -> bool:
    """Whether an agent has neither tools nor sub-agents, so that its first reply is its answer."""
    spawn_tools = run.delegation.tools_at(depth, run.request.max_depth)
    return not (own_tools or spawn_tools or context.may_delegate_at(depth))


def _cache_prefix(siblings: Siblings | None, spawned: Spawned, system: str) -> int:
    """Length of the prefix that siblings share; 0 if no later call would read it from the cache."""
    if siblings is None or spawned.mode is None or spawned.total < 2:
        return 0
    # Parallel siblings call at once: before one of them has answered, each would pay for the write.
    if spawned.mode is SpawnMode.PARALLEL and not siblings.have_answered:
        return 0
    return prompt.shared_prefix_length(system)
