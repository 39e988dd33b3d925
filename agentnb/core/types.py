"""The values that everything else speaks in: frozen, comparable, picklable.

Nothing here knows how a run is made. A value that crosses a seam (to a provider, to a
store, to an engine on another machine) is made of these and of nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from agentnb.core.shown import Listed, Shown, outline_of
from agentnb.core.text import literal, quoted, visible

ROOT_PATH = "root"
DEEPEST = 100
"""Lists and objects within each other; what is deeper is written as text."""
MOST_BITS = 2048
"""Of a number in digits. Python refuses to read very long ones, and how long can be set."""
MOST = 10**24
"""The greatest number of anything that a run counts. Whoever means no limit writes less, and sums
of such numbers are far from what a `float` cannot hold."""
MALFORMED_INPUT = "(no JSON object)"
"""The one key of a tool call's input whose arguments are no JSON object; under it, the raw text."""


class AgentStatus(StrEnum):
    """Where an agent, or a whole run, stands."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXHAUSTED = "exhausted"
    """Stopped by the budget, with what it had."""
    INTERRUPTED = "interrupted"
    """The process died under it."""
    SKIPPED = "skipped"
    """Asked for, never started."""

    @property
    def is_terminal(self) -> bool:
        return self not in (AgentStatus.PENDING, AgentStatus.RUNNING, AgentStatus.WAITING)


class SpawnMode(StrEnum):
    """How the tasks of one spawn are run."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


class BudgetStatus(StrEnum):
    """What adding tokens to a budget led to."""

    OK = "ok"
    WARNING = "warning"
    EXHAUSTED = "exhausted"


class Role(StrEnum):
    """Who speaks a message of a conversation."""

    USER = "user"
    ASSISTANT = "assistant"


# -- conversation ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text in a message."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """A model's thinking, which has to be sent back as it came, signature included."""

    text: str
    signature: str = ""
    redacted_data: str | None = None
    """Set for a block whose text the API keeps to itself; `text` is then empty."""


@dataclass(frozen=True, slots=True)
class ToolUseBlock:
    """A model's order to run a tool, as it stands in the conversation."""

    id: str
    name: str
    input: Mapping[str, Any]
    """By name; `{MALFORMED_INPUT: raw text}` where the arguments were none."""


@dataclass(frozen=True, slots=True)
class ToolResultBlock:
    """What a tool gave back, as it stands in the conversation."""

    tool_use_id: str
    text: str
    is_error: bool = False


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join([block.text for block in self.content if isinstance(block, TextBlock)])


def user_message(text: str) -> Message:
    return Message(Role.USER, (TextBlock(text),))


def assistant_message(text: str) -> Message:
    return Message(Role.ASSISTANT, (TextBlock(text),) if text else ())


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it: name, description and JSON schema of its input."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One call to a model: all that a provider needs to know, and nothing of who asks."""

    model: str
    """The provider's own name of the model, without the `provider/` part."""
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    cache_prefix: int = 0
    """How many leading characters of `system` are shared with sibling agents and worth a
    cache breakpoint; 0 for none. A provider without prompt caching passes over it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the provider's own API, sent as they are."""

    def limited(self, *, max_tokens: int, cache_prefix: int) -> CompletionRequest:
        """The same request, as it may go out."""
        return CompletionRequest(
            self.model,
            self.system,
            self.messages,
            self.tools,
            max_tokens,
            cache_prefix,
            self.extra,
        )

    @property
    def last_user_text(self) -> str:
        """The text of the newest user message, tool results included; empty without one."""
        for message in reversed(self.messages):
            if message.role == Role.USER:
                texts = (b for b in message.content if isinstance(b, TextBlock | ToolResultBlock))
                return "".join(block.text for block in texts)
        return ""


# -- what a provider streams ------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class TextDelta:
    text: str

    def __init__(self, text: str) -> None:
        # Made more often than anything else: the `__init__` that a dataclass gets takes twice as
        # long.
        _set_text(self, text)


_set_text = TextDelta.__dict__["text"].__set__


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A complete tool call: never one that was cut."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolInputDelta(ThinkingDelta):
    """A piece of a tool call that is not whole yet: as of thinking, only the budget hears of it.

    A provider may leave it out, and say nothing before the `ToolUse`.
    """


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the provider counts them; cumulative, so the newest counts."""

    input_tokens: int = 0
    """Input that was neither written to nor read from the provider's cache."""
    output_tokens: int = 0
    """Thinking included."""
    cache_creation_tokens: int = 0
    cache_read_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_creation_tokens
            + self.cache_read_tokens
        )

    @property
    def budget_tokens(self) -> int:
        """What the call takes from the budget: cache reads count a tenth, as they are priced."""
        full = self.input_tokens + self.cache_creation_tokens + self.output_tokens
        return full + -(-self.cache_read_tokens // 10)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_tokens + other.cache_creation_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
        )


@dataclass(frozen=True, slots=True)
class Stopped:
    """The end mark of a complete turn: without it, a turn was cut."""

    reason: str
    """`end_turn`, `tool_use`, `max_tokens`, `refusal`, or whatever else the provider says."""
    message: Message
    """The assistant's message as it must be sent back."""


StreamEvent = TextDelta | ThinkingDelta | ToolUse | Usage | Stopped


# -- agents and results -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """A configured model: what stays the same for every task an agent is given."""

    name: str = "agent"
    model: str = ""
    """As a person writes it: `provider/model`. A provider is asked for the part after `/`."""
    max_output_tokens: int = 8192
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Handed to every `CompletionRequest` as it is."""

    def __post_init__(self) -> None:
        limit = self.max_output_tokens
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(
                f"`max_output_tokens` must be a whole number, at least 1, not {literal(limit)}."
            )
        if limit > MOST:
            raise ValueError(f"`max_output_tokens` must be at most {float(MOST):g}.")


@dataclass(frozen=True, slots=True)
class Briefing:
    """One text that stands before a sub-agent's task in its prompt."""

    section: str
    """The name of its tag."""
    text: str
    name: str = ""
    """Of the file that it was read from."""


@dataclass(frozen=True, slots=True, repr=False)
class SubAgentResult(Shown):
    """What became of one task that was handed to a sub-agent."""

    agent_id: str | None
    """`None` for a task that was skipped: no agent was made for it."""
    task: str
    status: AgentStatus
    response: str = ""
    """The answer, or as much of it as there was."""
    error: str | None = None
    tokens_used: int = 0
    """The agent's own tokens, those of its sub-agents not included."""
    duration_ms: int = 0
    path: str = ""
    """What a person reads: `1`, `1.2`; for a skipped task, the path its agent would have had."""
    cut: bool = False
    """A completed answer that is not whole: it ended at the model's `max_tokens`, at its context
    window, or at the agent's `max_turns`."""

    def __repr__(self) -> str:
        said = quoted(self.response) if self.response.strip() or not self.error else ""
        said = said or f"error={quoted(self.error or '')}"
        return f"SubAgentResult({self.status}, {quoted(self.task)}, {said})"


class SubAgentResults(Listed[SubAgentResult]):
    """What became of several tasks."""

    __slots__ = ()
    noun = "result"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AgentNode(Shown):
    """One agent of a tree, with its sub-agents in spawn order. Prints as an outline.

    Compared, hashed and printed level by level: a tree may be deeper than Python calls itself.
    """

    agent_id: str
    parent_id: str | None
    path: str
    """What a person reads: `root`, `1`, `1.2`."""
    task: str
    depth: int
    status: AgentStatus
    model: str = ""
    tokens_used: int = 0
    """The agent's own tokens, those of its sub-agents not included."""
    duration_ms: int = 0
    children: tuple[AgentNode, ...] = ()

    def walk(self) -> Iterator[AgentNode]:
        """This node and all below it, in path order: a parent before its children."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AgentNode):
            return NotImplemented
        if self is other:
            return True
        # As long as they are equal, so is the number of agents that are still to come.
        pairs = zip(self.walk(), other.walk(), strict=False)
        return all(one._own() == two._own() for one, two in pairs)

    def __hash__(self) -> int:
        return hash(self._own())

    def _own(self) -> tuple[object, ...]:
        """All but the sub-agents, and how many those are: in path order that makes the tree."""
        return (
            self.agent_id,
            self.parent_id,
            self.path,
            self.task,
            self.depth,
            self.status,
            self.model,
            self.tokens_used,
            self.duration_ms,
            len(self.children),
        )

    def __repr__(self) -> str:
        agents = sum(1 for _ in self.walk())
        path = visible(self.path, 60)
        return f"AgentNode({path}, {self.status}, {agents} agents, {quoted(self.task)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Within a list, say, it is the outline, too."""
        printer.text(str(self))

    def __str__(self) -> str:
        """The outline: a line for each agent."""
        return outline_of(self)


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """What a cancel did, told after it was done."""

    agents: tuple[str, ...]
    """Ids of the agents that were stopped; empty when there was nothing left to stop."""
    duration_ms: int
    still_running: tuple[str, ...] = ()
    """Ids of agents with a synchronous tool that outlived the wait: a thread cannot be killed."""


@dataclass(frozen=True, slots=True, repr=False)
class AgentMemoryContext(Shown):
    """What an agent that completed could remember: its task and its answer."""

    agent_id: str
    response_text: str
    task_description: str

    def __repr__(self) -> str:
        return f"AgentMemoryContext({quoted(self.task_description)}, {quoted(self.response_text)})"


class AgentMemoryContexts(Listed[AgentMemoryContext]):
    """What several agents could remember."""

    __slots__ = ()
    noun = "memory context"


@dataclass(frozen=True, slots=True)
class RunUsage:
    """The provider's plain numbers for a whole run, and for each model in it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input that was read from the provider's cache."""
    cache_creation_tokens: int = 0
    by_model: Mapping[str, Usage] = field(default_factory=dict)

    @classmethod
    def of(cls, by_model: Mapping[str, Usage]) -> RunUsage:
        total = sum(by_model.values(), Usage())
        return cls(
            input_tokens=total.input_tokens,
            output_tokens=total.output_tokens,
            cached_tokens=total.cache_read_tokens,
            cache_creation_tokens=total.cache_creation_tokens,
            by_model=dict(by_model),
        )

    @property
    def total_tokens(self) -> int:
        return (
            self.input_tokens + self.output_tokens + self.cached_tokens + self.cache_creation_tokens
        )


@dataclass(frozen=True, slots=True, repr=False)
class OrchestratorResult(Shown):
    """What a run came to, or had come to when it ended early."""

    status: AgentStatus
    final_response: str
    """The answer. Never empty: a run that was stopped says what was not done."""
    agent_tree: AgentNode
    pre_spawn_text: str = ""
    """What the root said before it delegated; empty when it did not."""
    sub_agent_results: tuple[SubAgentResult, ...] = ()
    """The root's own sub-agents in task order, skipped tasks included."""
    synthesis: str = ""
    """The root's last words after its sub-agents came back; empty when there were none."""
    total_tokens_used: int = 0
    usage: RunUsage = field(default_factory=RunUsage)
    memory_contexts: tuple[AgentMemoryContext, ...] = ()
    """One for each agent that completed, in path order."""
    incomplete: tuple[SubAgentResult, ...] = ()
    """Every task at any depth that was not completed, with what there is of it."""
    cut: bool = False
    """The answer ended at the model's `max_tokens`, at its context window, or at the root's
    `max_turns`."""

    def __post_init__(self) -> None:
        # Whoever made it: a tuple of a thousand results is no `repr` for a cell.
        results, memories = SubAgentResults, AgentMemoryContexts
        object.__setattr__(self, "sub_agent_results", results(self.sub_agent_results))
        object.__setattr__(self, "memory_contexts", memories(self.memory_contexts))
        object.__setattr__(self, "incomplete", results(self.incomplete))

    def __repr__(self) -> str:
        # On one line and without ids and times: it may be the last value of a cell.
        agents = sum(1 for _ in self.agent_tree.walk())
        return f"OrchestratorResult({self.status}, {agents} agents, {quoted(self.final_response)})"

    @property
    def output(self) -> str:
        """The answer: the same as `final_response`."""
        return self.final_response


@dataclass(frozen=True, slots=True)
class SpawnInstruction:
    """A reply's order to start sub-agents, as it was read from a spawn block."""

    mode: SpawnMode
    tasks: tuple[str, ...]


def text_so_far(messages: Sequence[Message]) -> str:
    """What a reply that was paused has said already: the text at the end of a conversation."""
    if not messages or messages[-1].role != Role.ASSISTANT:
        return ""
    said: list[str] = []
    for message in reversed(messages):
        if message.role != Role.ASSISTANT:
            break
        said.append(message.text)
    return "".join(reversed(said))


@lru_cache(maxsize=256)
def bare_model(model: str) -> str:
    """The provider's own name of a model: `provider/model` and `provider:model` without it."""
    return re.split("[/:]", model, maxsplit=1)[-1]


def path_of(agent_id: str, root_id: str) -> str:
    """The path that a person reads for an agent's id: what follows the id of the run's root.

    The root may itself be another thread's child: below `nb_20261101_k3x9aa.1` the agent
    `nb_20261101_k3x9aa.1.2` has the path `2`.

    Args:
        agent_id: The agent's id.
        root_id: The id of the run's root.

    Returns:
        `root` for the root itself; the id as it is for one that does not stand below the root.
    """
    return ROOT_PATH if agent_id == root_id else agent_id.removeprefix(f"{root_id}.")


def id_at(path: str, root_id: str) -> str:
    """The id of the agent with a path: what `path_of` takes apart."""
    return root_id if path == ROOT_PATH else f"{root_id}.{path}"


def child_id(parent_id: str, number: int) -> str:
    """The id of the agent that has its parent's task `number`, from 1."""
    return f"{parent_id}.{number}"


def is_at_or_below(agent_id: str, top_id: str) -> bool:
    """Whether an agent is `top_id` or stands below it, at any depth."""
    return agent_id == top_id or agent_id.startswith(f"{top_id}.")


def path_key(path: str) -> tuple[tuple[int, str], ...]:
    """Sorts paths as a tree is read: `root`, `1`, `1.2`, `2`, `10`."""
    if path == ROOT_PATH:
        return ()
    return tuple([(int(p), "") if p.isdecimal() else (0, p) for p in path.split(".")])
