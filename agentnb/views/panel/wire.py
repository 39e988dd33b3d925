"""The messages between the kernel and the pages that show a run, in both directions.

Frames, details and notices go out; commands come in. Widgets in Python (header, budget, question)
get a `Frame`, and the tree view sends it on as a `FrameMessage`. The JavaScript uses the same
names; `tests/views/panel/test_wire.py` compares them.

Anyone with access to the page or the kernel can send anything. So each field of a command has a
rule, and messages that break one are refused. All texts that go out are visible texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    Required,
    TypedDict,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from agentnb.core.types import AgentStatus
from agentnb.views.panel.limits import LARGEST

# -- a frame, as widgets in Python get it ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """The open question after a budget warning: continue or stop?"""

    tokens_used: int
    budget_total: int
    percentage: float
    """Used part of the total when it was asked, from 0 to 100."""
    wait_s: float
    """How long it waits for an answer before the run stops, in seconds."""
    asked_at_s: float
    """Seconds since the run began."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run as a whole, at one time."""

    status: AgentStatus
    done: bool
    """Whether the run has ended: the summary is final."""
    at_s: float
    """Seconds since the run began; its duration when it is done."""
    agents: int
    """The root included."""
    by_status: Mapping[AgentStatus, int]
    doing: str
    """One line: what the run waits for, such as "waiting for the first token"; or empty."""
    tokens_used: int
    """Tokens used, as the budget counts them."""
    budget_total: int
    cost: str
    """Such as "about $0.0123 (estimate)"; empty while nothing is known."""
    question: Question | None
    notices: tuple[str, ...]
    """One visible line each, oldest first: cancelled branches, work not done for lack of budget,
    why the run failed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: the state that a view shows from now on."""

    seq: int
    """The number of the frame, dense from 1."""
    rows: Mapping[str, AgentRow]
    """By path, the changed fields; all fields of a new agent."""
    summary: Summary
    """Always complete."""


# -- to a page ------------------------------------------------------------------------------------


class ToolMark(TypedDict):
    """The open tool call that a card names."""

    name: str
    """`look_up`, or `look_up and 2 more`."""
    said: str
    """What it reported last; empty for nothing."""
    since: float
    """When it began, in seconds since the run did."""


class AgentRow(TypedDict, total=False):
    """An agent's row in the tree.

    A row has all fields when its agent is new, and later its path and what changed.
    """

    path: str
    """`root`, `1`, `1.2`."""
    parent: str | None
    """The parent's path; `None` for the root."""
    depth: int
    task: str
    """Its beginning, on one line."""
    model: str
    status: str
    tokens: int
    """So far, including an estimate of the open reply."""
    estimated: bool
    begun: float | None
    """In seconds since the run began; so is `ended`."""
    ended: float | None
    """`None` until it has ended."""
    doing: str
    """What it does or waits for; empty if its text says it."""
    tool: ToolMark | None
    """`None` while no tool call is open."""
    tool_calls: int
    tool_errors: int
    until: float | None
    """When its wait ends, in seconds since the run began; `None` where that is unknown."""
    stalled: bool
    """Whether its open call has been silent for long."""
    attempt: int
    """From 1."""
    error: str | None
    notes: int
    """Number of notes in the details."""
    reused: bool
    """Whether all its work is taken from the record of an earlier process."""


class FrameMessage(TypedDict):
    """The tree, or its changes since the previous frame."""

    type: Literal["frame"]
    seq: int
    base: int | None
    """The frame that this one is based on; `None` for a full frame."""
    at: float
    """Seconds since the run began; its duration when it is done."""
    done: bool
    status: str
    agents: list[AgentRow]


class ReplayMessage(TypedDict):
    """The tree at an earlier time: its agents, with the fields that change while they run."""

    type: Literal["replay"]
    view: str
    n: int
    at: float | None
    """The requested time."""
    agents: list[AgentRow]


class NoticesMessage(TypedDict):
    """New notices, for screen readers."""

    type: Literal["notices"]
    lines: list[str]


class TokenCounts(TypedDict):
    """The provider's token counts of an agent's ended calls."""

    input: int
    output: int
    cache_read: int
    cache_write: int


class CallLine(TypedDict):
    """One model call in the list of an agent's calls."""

    n: int
    model: str
    attempt: int
    is_synthesis: bool
    status: str
    """`open`, `done`, `error`, `cancelled` or `stopped`."""
    tokens: int
    duration_ms: int | None
    """`None` while it is open; so are the next two."""
    stop_reason: str | None
    error: str | None


class ToolLine(TypedDict):
    """One call in the list of an agent's tool calls."""

    n: int
    name: str
    status: str
    """`open`, `done`, `error`, `cancelled` or `interrupted`."""
    begun: float
    """Seconds since the run began."""
    duration_ms: int | None
    said: str
    """Its last report, while it is open."""
    input: str
    input_cut: int | None
    """The full length, if the event has only the beginning; so is `result_cut`."""
    result: str
    result_cut: int | None


class PromptMessage(TypedDict):
    """One message of a prompt, tool calls and results included."""

    role: str
    text: str


class Prompt(TypedDict):
    """A request as it was sent."""

    system: str
    messages: list[PromptMessage]


class AgentDetails(TypedDict, total=False):
    """The details of one agent."""

    task: str
    model: str
    job: str
    """Its id as a job; empty if it is none."""
    profile: str
    reused: str
    """What of its work is taken from the record of an earlier process, in words; or empty."""
    status: str
    tokens: TokenCounts
    cost: str
    """In words; empty while it is unknown."""
    error: str | None
    notes: list[str]
    calls: list[CallLine]
    call: int | None
    """The number of the shown call; `None` while there is none."""
    following: bool
    """Whether it always shows the newest call."""
    tools: list[ToolLine]
    """With `reset` all of them; else the new or changed ones."""
    prompt: Prompt | None
    text: str
    """The reply so far, with `reset` only."""
    add: str
    """The reply's next text."""


class DetailsMessage(AgentDetails, total=False):
    """The details of one agent, or their changes.

    For an unknown agent it has only `agent` and `at`.
    """

    type: Required[Literal["details"]]
    view: str
    n: Required[int]
    """Counts from 0; a message that does not follow the previous number is ignored."""
    reset: Required[bool]
    """Whether the details are complete."""
    agent: str
    at: float | None
    """The shown time; `None` is now."""


PageMessage = FrameMessage | ReplayMessage | NoticesMessage | DetailsMessage

Fields = TypeVar("Fields", bound=Mapping[str, object])


def changed_fields(now: Fields, before: Mapping[str, object]) -> Fields:
    """The fields of a row, or of details, that differ from those sent before."""
    return cast(Fields, {name: value for name, value in now.items() if before[name] != value})


# -- from a page ----------------------------------------------------------------------------------


class MessageRefused(ValueError):
    """A message is invalid; the error quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for one field of a command."""

    is_valid: Callable[[object], bool]
    words: str


def _whole(least: int, most: int = LARGEST) -> Rule:
    """A whole number, not a `bool`."""
    return Rule(
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least:,} to {most:,}",
    )


def _text(longest: int, *, shortest: int = 1) -> Rule:
    return Rule(
        lambda value: isinstance(value, str) and shortest <= len(value) <= longest,
        f"a text of {shortest:,} to {longest:,} characters",
    )


_SECONDS = Rule(
    lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= LARGEST  # `nan` is not
    ),
    "a number of seconds from 0",
)
_MOST_IN_TEXT = 1_000

ViewId = Annotated[str, _text(100)]
"""The name that a view gave itself."""
AgentPath = Annotated[str, _text(_MOST_IN_TEXT)]


class HelloCommand(TypedDict):
    """A view has opened, and requests a full frame."""

    type: Literal["hello"]
    view: ViewId


class HereCommand(TypedDict):
    """A view is still open."""

    type: Literal["here"]
    view: ViewId


class ByeCommand(TypedDict):
    """A view has closed."""

    type: Literal["bye"]
    view: ViewId


class ResendCommand(TypedDict):
    """A view missed a frame, and requests a full one."""

    type: Literal["resend"]


class SyncCommand(TypedDict):
    """A view asks whether its frame is the newest."""

    type: Literal["sync"]
    seq: Annotated[int, _whole(-1)]
    """-1 for a page without a frame."""


class DetailsCommand(TypedDict):
    """A view requests an agent's details."""

    type: Literal["details"]
    view: ViewId
    agent: AgentPath
    call: Annotated[int, _whole(1)] | None
    """`None` follows the newest."""
    at: Annotated[float, _SECONDS] | None
    """A time of the run; `None` is now."""


class BudgetCommand(TypedDict):
    """Set the total."""

    type: Literal["budget"]
    total: Annotated[int, _whole(1)]


class CancelCommand(TypedDict):
    """Stop an agent and all below it."""

    type: Literal["cancel"]
    agent: AgentPath


Command = (
    HelloCommand
    | HereCommand
    | ByeCommand
    | ResendCommand
    | SyncCommand
    | DetailsCommand
    | BudgetCommand
    | CancelCommand
)


class SliderState(TypedDict, total=False):
    """The slider's state that a page may change."""

    value: Annotated[int, _whole(0)]


class FieldState(TypedDict, total=False):
    """The text field's state that a page may change."""

    value: Annotated[str, _text(_MOST_IN_TEXT, shortest=0)]


Rules = Mapping[str, Rule]


def rules_of(shape: type) -> Rules:
    """The rule of each field of a command or a state, except `type`."""
    hints = get_type_hints(shape, include_extras=True)
    return {name: _rule_of(hint) for name, hint in hints.items() if name != "type"}


def _rule_of(hint: Any) -> Rule:
    if get_origin(hint) is not Annotated:  # it may be `None`, too
        (inner,) = (part for part in get_args(hint) if part is not NoneType)
        rule = _rule_of(inner)
        return Rule(lambda value: value is None or rule.is_valid(value), f"{rule.words}, or null")
    (rule,) = hint.__metadata__
    return cast(Rule, rule)


def kind_of(shape: type) -> str:
    """The `type` of a message or command."""
    hint = get_type_hints(shape)["type"]  # without `Required`
    return cast(str, get_args(hint)[0])


COMMANDS: Mapping[str, Rules] = {kind_of(shape): rules_of(shape) for shape in get_args(Command)}
"""The commands of a page to the tree view, by `type`."""


def checked_command(content: object) -> Command:
    """Validate a message to the tree view; keeps only the fields of its kind.

    Raises:
        MessageRefused: It is not an object, its kind is unknown, or a value breaks its rule.
    """
    message = as_object(content)
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in COMMANDS:
        raise MessageRefused("there is no such kind of message")
    rules = COMMANDS[kind]
    values = _checked({name: message.get(name) for name in rules}, rules)
    return cast(Command, {"type": kind, **values})


def checked_state(state: object, rules: Rules) -> dict[str, Any]:
    """Validate the values that a page may change; others are ignored.

    Raises:
        MessageRefused: It is not an object, or a value breaks its rule.
    """
    given = as_object(state)
    return _checked({name: given[name] for name in rules if name in given}, rules)


def as_object(content: object) -> Mapping[str, Any]:
    """Return a message that is an object.

    Raises:
        MessageRefused: It is not an object.
    """
    if not isinstance(content, Mapping):
        raise MessageRefused("a message must be an object")
    return content


def _checked(values: dict[str, Any], rules: Rules) -> dict[str, Any]:
    for name, value in values.items():
        if not rules[name].is_valid(value):
            raise MessageRefused(f"`{name}` must be {rules[name].words}")
    return values
