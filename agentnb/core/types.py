"""The core's values: frozen, comparable, picklable.

Nothing here knows how a run works. Providers, stores and engines on other machines get only these
values.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from agentnb.core.durable import MemoryEntry, MemoryList
from agentnb.core.shown import Listed, Shown, outline_of
from agentnb.core.text import literal, quoted, visible

ROOT_PATH = "root"
DEEPEST = 100
"""Most levels of nested lists and objects; deeper values are written as text."""
MOST_BITS = 2048
"""Most bits of an integer that is written in digits. Python refuses to read very long ones, from a
configurable length on."""
MOST = 10**24
"""The greatest count in a run: enough to mean "no limit", and sums of such numbers still fit into
a `float`."""
FINAL_ANSWER = "final_answer"
"""The tool for a model's typed answer."""
MALFORMED_INPUT = "(no JSON object)"
"""The only key in a tool call's input if its arguments are not a JSON object: the raw text."""


class AgentStatus(StrEnum):
    """The status of an agent or a whole run."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXHAUSTED = "exhausted"
    """Stopped by the budget or a limit; its partial answer is kept."""
    INTERRUPTED = "interrupted"
    """The process died while it ran."""
    SKIPPED = "skipped"
    """Requested, never started."""

    @property
    def is_terminal(self) -> bool:
        return self not in (AgentStatus.PENDING, AgentStatus.RUNNING, AgentStatus.WAITING)


class SpawnMode(StrEnum):
    """How the tasks of one spawn run."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


class BudgetStatus(StrEnum):
    """The state of a budget after tokens were added."""

    OK = "ok"
    WARNING = "warning"
    EXHAUSTED = "exhausted"


class Role(StrEnum):
    """The author of a message."""

    USER = "user"
    ASSISTANT = "assistant"


# -- conversation ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text in a message."""

    text: str
    extra: Mapping[str, Any] | None = None
    """What its provider keeps with it, to send it back: by the word of `OpaqueBlock.api`. `None`
    for nothing."""


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """A model's thinking. It must be sent back unchanged, signature included."""

    text: str
    signature: str = ""
    redacted_data: str | None = None
    """Set if the API withholds the text; `text` is then empty."""
    extra: Mapping[str, Any] | None = None
    """As of `TextBlock`."""


@dataclass(frozen=True, slots=True)
class ToolUseBlock:
    """A tool call in a message."""

    id: str
    name: str
    input: Mapping[str, Any]
    """Arguments by name; `{MALFORMED_INPUT: raw text}` if they were not a JSON object."""
    extra: Mapping[str, Any] | None = None
    """As of `TextBlock`."""


@dataclass(frozen=True, slots=True)
class ToolResultBlock:
    """A tool's result in a message."""

    tool_use_id: str
    text: str
    is_error: bool = False


class _Measured:
    """Cached facts about a block's data. They are not fields, so they do not affect comparisons."""

    __slots__ = ("_digest", "_tokens")


@dataclass(frozen=True, slots=True, repr=False)
class MediaBlock(_Measured):
    """An image or a PDF in a message."""

    media_type: str
    """`image/png`, `image/jpeg`, `image/gif`, `image/webp` or `application/pdf`."""
    data: str
    """The file in base64; where a file is only named, `sha256:DIGEST/BYTES` (see `named`)."""
    name: str = ""
    """A name for persons. No model reads it, so it does not change the key of a call."""

    @property
    def digest(self) -> str:
        """SHA-256 of `data`, as 64 hexadecimal characters. Megabytes are read once."""
        known: str | None = getattr(self, "_digest", None)
        if known is None:
            found = _NAMED_FILE.fullmatch(self.data)
            known = found[1] if found else hashlib.sha256(_utf8(self.data)).hexdigest()
            object.__setattr__(self, "_digest", known)
        return known

    @property
    def size(self) -> int:
        """Bytes of the file."""
        found = _NAMED_FILE.fullmatch(self.data)
        return int(found[2]) if found else len(self.data) * 3 // 4 - self.data[-2:].count("=")

    @property
    def is_base64(self) -> bool:
        """Whether all characters of `data` belong to base64."""
        return self.data.isascii() and not self.data.encode().translate(None, _BASE64)

    @property
    def is_named(self) -> bool:
        """Whether `data` only names the file instead of holding it."""
        return _NAMED_FILE.fullmatch(self.data) is not None

    @property
    def is_image(self) -> bool:
        """Whether it is a whole image of its stated type, safe to show in a page."""
        begins = _IMAGE_BEGINS.get(self.media_type)
        if begins is None or self.is_named:
            return False
        try:
            return begins.match(binascii.a2b_base64(self.data, strict_mode=True)) is not None
        except ValueError:
            return False

    def named(self) -> MediaBlock:
        """The block without the file; its `digest` stays."""
        if self.is_named:
            return self
        return MediaBlock(self.media_type, f"sha256:{self.digest}/{self.size}", self.name)

    def __repr__(self) -> str:
        return f"MediaBlock({literal(self.media_type)}, {self.size} bytes, {literal(self.name)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Displays an image as an image in a notebook."""
        return {"text/plain": repr(self)} | ({self.media_type: self.data} if self.is_image else {})


_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_NAMED_FILE = re.compile("sha256:([0-9a-f]{64})/([0-9]{1,12})")
_IMAGE_BEGINS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""The first bytes of each type of image, so that only images display as such."""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate has no UTF-8


@dataclass(frozen=True, slots=True)
class OpaqueBlock:
    """A part of a model's message that only its provider understands. It is sent back unchanged."""

    api: str
    """The provider's own word for where it came from, such as its name and address. Only there it
    is sent back."""
    data: Mapping[str, Any]
    """JSON values; their meaning is the provider's."""


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | MediaBlock | OpaqueBlock


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's result of text and images or PDFs.

    The model gets the files after all results of its turn, if it accepts their type; else a line in
    the text says what it cannot see. So the text should make sense without the files.
    """

    text: str
    media: tuple[MediaBlock, ...] = ()
    """At most 8, of at most 1 MB each; a line says how many more were left out."""


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


def with_texts(messages: Sequence[Message], texts: Sequence[str]) -> tuple[Message, ...]:
    """A conversation with texts added at the end of its last message."""
    *before, last = messages
    added = tuple(TextBlock(text) for text in texts)
    return (*before, replace(last, content=(*last.content, *added)))


def assistant_message(text: str) -> Message:
    return Message(Role.ASSISTANT, (TextBlock(text),) if text else ())


def sendable_reply(message: Message, stop_reason: str | None) -> Message:
    """A complete reply for the conversation, without tool calls that will get no result.

    Args:
        message: The reply.
        stop_reason: Its stop reason. Tools run only after `tool_use`.
    """
    if stop_reason == "tool_use":
        return message
    kept = tuple([block for block in message.content if not isinstance(block, ToolUseBlock)])
    return message if len(kept) == len(message.content) else Message(message.role, kept)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as described to a model: name, description and JSON schema of its input."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One call to a model: everything that a provider needs."""

    model: str
    """The provider's own name of the model, without the `provider/` part."""
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    cache_prefix: int = 0
    """Number of leading characters of `system` that are shared with sibling agents and worth a
    cache breakpoint; 0 for none. A provider without prompt caching ignores it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the provider's own API, sent unchanged."""
    output_schema: Mapping[str, Any] | None = None
    """JSON schema of the object that the reply must be; `None` for text. With it the only tool is
    `FINAL_ANSWER`, or there is none and the last message asks for JSON."""

    def limited(self, *, max_tokens: int, cache_prefix: int) -> CompletionRequest:
        """The same request with another `max_tokens` and `cache_prefix`."""
        return CompletionRequest(
            self.model,
            self.system,
            self.messages,
            self.tools,
            max_tokens,
            cache_prefix,
            self.extra,
            self.output_schema,
        )

    @property
    def last_user_text(self) -> str:
        """The text of the newest user message, tool results included; empty without one."""
        for message in reversed(self.messages):
            if message.role == Role.USER:
                texts = (b for b in message.content if isinstance(b, TextBlock | ToolResultBlock))
                return "".join(block.text for block in texts)
        return ""


# -- events of a provider's stream ------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class TextDelta:
    text: str

    def __init__(self, text: str) -> None:
        # Created more often than any other object. This is twice as fast as a dataclass's own
        # `__init__`.
        _set_text(self, text)


_set_text = TextDelta.__dict__["text"].__set__


@dataclass(frozen=True, slots=True, init=False)
class ThinkingDelta:
    text: str

    def __init__(self, text: str) -> None:  # see `TextDelta`
        _set_thought(self, text)


_set_thought = ThinkingDelta.__dict__["text"].__set__


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A complete tool call; a cut one is never reported."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolInputDelta(ThinkingDelta):
    """A piece of a tool call that is not complete; like thinking, it is only metered.

    Optional: a provider may yield just the `ToolUse`.
    """


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call by the provider's count; cumulative, so the newest replaces the others."""

    input_tokens: int = 0
    """Input that was neither written to nor read from the provider's cache."""
    output_tokens: int = 0
    """Includes thinking."""
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
        """Tokens taken from the budget: cache reads count a tenth, like their price."""
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
    """`end_turn`, `tool_use`, `max_tokens`, `refusal`, or another of the provider's."""
    message: Message
    """The assistant's message, as it must be sent back."""
    note: str = ""
    """What a person should know of the end, as a sentence; of a `refusal`, why the model declined,
    and what to do. Empty for nothing."""


StreamEvent = TextDelta | ThinkingDelta | ToolUse | Usage | Stopped


# -- agents and results -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """A configured model: what is the same for every task of an agent."""

    name: str = "agent"
    model: str = ""
    """`provider/model`. The provider gets the part after `/`."""
    max_output_tokens: int = 8192
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Passed to every `CompletionRequest` unchanged."""

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
    """A text before a sub-agent's task in its prompt."""

    section: str
    """The name of its tag in the prompt."""
    text: str
    name: str = ""
    """The file that it was read from; empty for none."""


@dataclass(frozen=True, slots=True, repr=False)
class SubAgentResult(Shown):
    """The result of a sub-agent's task."""

    agent_id: str | None
    """`None` for a skipped task, which has no agent."""
    task: str
    status: AgentStatus
    response: str = ""
    """The answer, or its beginning."""
    error: str | None = None
    tokens_used: int = 0
    """The agent's own tokens, without those of its sub-agents."""
    duration_ms: int = 0
    path: str = ""
    """`1`, `1.2`; for a skipped task, the path that its agent would have."""
    cut: bool = False
    """Whether a completed answer is incomplete: it ended at the model's `max_tokens`, at its
    context window, or at the agent's `max_turns`."""
    data: Any = field(default=None, compare=False)
    """The typed answer; `None` for text."""

    def __repr__(self) -> str:
        said = quoted(self.response) if self.response.strip() or not self.error else ""
        said = said or f"error={quoted(self.error or '')}"
        return f"SubAgentResult({self.status}, {quoted(self.task)}, {said})"


class SubAgentResults(Listed[SubAgentResult]):
    """The results of several tasks."""

    __slots__ = ()
    noun = "result"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AgentNode(Shown):
    """One agent of a tree, with its sub-agents in path order. Prints as an outline.

    Compared, hashed and printed without recursion: a tree may be deeper than Python's stack.
    """

    agent_id: str
    parent_id: str | None
    path: str
    """`root`, `1`, `1.2`."""
    task: str
    depth: int
    status: AgentStatus
    model: str = ""
    tokens_used: int = 0
    """The agent's own tokens, without those of its sub-agents."""
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
        # `_own` has the number of children: as long as nodes are equal, both have as many to come.
        pairs = zip(self.walk(), other.walk(), strict=False)
        return all(one._own() == two._own() for one, two in pairs)

    def __hash__(self) -> int:
        return hash(self._own())

    def _own(self) -> tuple[object, ...]:
        """All fields, with the number of children instead of the children.

        In path order, these determine the tree.
        """
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
        """The outline, also inside a list, for example."""
        printer.text(str(self))

    def __str__(self) -> str:
        """The outline: a line for each agent."""
        return outline_of(self)


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """What a cancel did."""

    agents: tuple[str, ...]
    """Ids of the stopped agents; empty if none was left to stop."""
    duration_ms: int
    still_running: tuple[str, ...] = ()
    """Ids of agents with an abandoned tool, whose thread keeps running."""


@dataclass(frozen=True, slots=True, repr=False)
class AgentMemoryContext(Shown):
    """A completed agent's task and answer, which could be stored as a memory."""

    agent_id: str
    response_text: str
    task_description: str

    def __repr__(self) -> str:
        return f"AgentMemoryContext({quoted(self.task_description)}, {quoted(self.response_text)})"


class AgentMemoryContexts(Listed[AgentMemoryContext]):
    """Tasks and answers of several agents, which could be stored as memories."""

    __slots__ = ()
    noun = "memory context"


@dataclass(frozen=True, slots=True)
class RunUsage:
    """The provider's token counts for a whole run, and for each of its models."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input read from the provider's cache."""
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


class _OfRun(Shown):
    """A value that leads to its run. The run is not a field: it is not compared, copied or sent."""

    __slots__ = ("_record",)

    @property
    def record(self) -> Any:
        """The `agentnb.RunRecord` of its run; `None` in a copy or a value made by hand.

        Neither compared nor shown.
        """
        return getattr(self, "_record", None)

    def give_record(self, record: object) -> None:
        """Set the record. Done once, by the run."""
        object.__setattr__(self, "_record", record)


@dataclass(frozen=True, slots=True, repr=False)
class OrchestratorResult(_OfRun):
    """The result of a run, partial if the run ended early."""

    status: AgentStatus
    final_response: str
    """The answer. Never empty: a stopped run says what was not done."""
    agent_tree: AgentNode
    pre_spawn_text: str = ""
    """The root's text before it delegated; empty if it did not."""
    sub_agent_results: tuple[SubAgentResult, ...] = ()
    """Results of the root's own sub-agents in task order, skipped tasks included."""
    synthesis: str = ""
    """The root's answer from its sub-agents' results; empty if it had none."""
    total_tokens_used: int = 0
    usage: RunUsage = field(default_factory=RunUsage)
    memory_contexts: tuple[AgentMemoryContext, ...] = ()
    """One for each completed agent, in path order."""
    incomplete: tuple[SubAgentResult, ...] = ()
    """Every incomplete task at any depth, with its partial result.

    Not a task that its agent was asked to do itself: one that was too deep, or in a spawn block
    that could not be read.
    """
    cut: bool = False
    """Whether the answer ended at the model's `max_tokens`, at its context window, or at the root's
    `max_turns`."""
    memories: tuple[MemoryEntry, ...] = ()
    """The memories that the agents stored, in order."""
    data: Any = field(default=None, compare=False)
    """The typed answer; `None` for text."""
    objects: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The objects that the agents' code bound, by name (`code="worker"`)."""

    def __post_init__(self) -> None:
        # For their short `repr`: that of a plain tuple of a thousand results would fill a cell.
        results, contexts = SubAgentResults, AgentMemoryContexts
        object.__setattr__(self, "sub_agent_results", results(self.sub_agent_results))
        object.__setattr__(self, "memory_contexts", contexts(self.memory_contexts))
        object.__setattr__(self, "incomplete", results(self.incomplete))
        object.__setattr__(self, "memories", MemoryList(self.memories))

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
    """The tasks of a spawn block, and how to run them."""

    mode: SpawnMode
    tasks: tuple[str, ...]


def text_so_far(messages: Sequence[Message]) -> str:
    """The text of a paused reply: the assistant's messages at the end of the conversation."""
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
    """The model's name without the provider of `provider/model` or `provider:model`."""
    return re.split("[/:]", model, maxsplit=1)[-1]


def path_of(agent_id: str, root_id: str) -> str:
    """The path of an agent, as shown to a person: the part of its id after the root's id.

    The root may itself be another thread's child: below `nb_20261101_k3x9aa.1` the agent
    `nb_20261101_k3x9aa.1.2` has the path `2`.

    Args:
        agent_id: The agent's id.
        root_id: The id of the run's root.

    Returns:
        `root` for the root itself; the whole id for an agent that is not below the root.
    """
    return ROOT_PATH if agent_id == root_id else agent_id.removeprefix(f"{root_id}.")


def id_at(path: str, root_id: str) -> str:
    """The id of the agent with a path: the inverse of `path_of`."""
    return root_id if path == ROOT_PATH else f"{root_id}.{path}"


def child_id(parent_id: str, number: int) -> str:
    """The id of the agent for its parent's task `number`, from 1."""
    return f"{parent_id}.{number}"


def is_at_or_below(agent_id: str, top_id: str) -> bool:
    """Whether an agent is `top_id` or below it, at any depth."""
    return agent_id == top_id or agent_id.startswith(f"{top_id}.")


def path_key(path: str) -> tuple[tuple[int, str], ...]:
    """Sort key of a path: `root`, `1`, `1.2`, `2`, `10`."""
    if path == ROOT_PATH:
        return ()
    return tuple([(int(p), "") if p.isdecimal() else (0, p) for p in path.split(".")])
