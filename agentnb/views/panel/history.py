"""One agent's model calls and tool calls as the panel shows them, and the notices of a run.

An agent's calls come from its own rows (`agentnb.core.calls`); notices come from the events of the
whole run: what was stopped, and what was not done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import indent
from typing import Any, Protocol, assert_never

from agentnb.core.calls import CallState, ToolCallState
from agentnb.core.codec import plain
from agentnb.core.events import (
    AgentCancelled,
    BudgetExhausted,
    BudgetResumed,
    Event,
    LimitReached,
    ModelCallFinished,
    RunFinished,
    RunStarted,
)
from agentnb.core.media import media_words
from agentnb.core.money import share_in_words
from agentnb.core.shown import counted, listed
from agentnb.core.text import visible, visible_text
from agentnb.core.tree import AgentState, TreeFold
from agentnb.core.types import (
    ROOT_PATH,
    AgentStatus,
    Block,
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    path_key,
)
from agentnb.views.arguments import code_in, shown_code
from agentnb.views.panel.pictures import WholeToolCalls, pictures_of
from agentnb.views.panel.wire import CallLine, Prompt, ToolLine, ToolPicture

_NAME_LENGTH = 200
_ONE_LINE = 100
"""Most characters of arguments on one line; longer ones have a line each."""
_MOST_CODE_IN_MESSAGE = 500_000
"""Most characters, in one message, of code that events cut."""
_MOST_PATHS = 12
_WHY_RESUMED = {
    "stop": "Stopped at the budget's question: no new calls start.",
    "timeout": "The budget's question was not answered in time: no new calls start.",
    "lowered": "The total was set to what is already used, or less.",
}


def tool_lines(calls: Sequence[ToolCallState], whole: WholeToolCalls) -> list[ToolLine]:
    """The entries of some calls of one agent, in order, for one message.

    Args:
        calls: The calls.
        whole: The bus's whole records, with the code and the pictures that events cut. If not all
            of these fit into a message, the newest calls get theirs.
    """
    lines, room = list[ToolLine](), _MOST_CODE_IN_MESSAGE
    for call, pictures in reversed([*zip(calls, pictures_of(calls, whole), strict=True)]):
        record = whole.get((call.started.agent_id, call.number)) if call.input_is_cut else None
        code = code_in(record.name, record.input) if record is not None else None
        shown = None if code is None else shown_code(code)
        if shown is not None:
            room -= len(shown)
        lines.append(_tool_line(call, pictures, shown if room >= 0 else None))
    return lines[::-1]


def _tool_line(
    call: ToolCallState, pictures: Sequence[ToolPicture], whole_code: str | None
) -> ToolLine:
    started, finished = call.started, call.finished
    result = "" if call.status == "cancelled" else call.result
    code = whole_code
    if code is None and (known := code_in(started.name, started.input)) is not None:
        code = shown_code(known)
    return {
        "n": call.number,
        "name": visible(started.name, _NAME_LENGTH),
        "status": call.status,
        "begun": round(call.begun_s, 2),
        "duration_ms": finished.duration_ms if finished is not None else None,
        "said": visible(call.said, _NAME_LENGTH) if finished is None else "",
        "input": visible_text(_arguments(started.input)) if code is None else code,
        "is_code": code is not None,
        # If the whole code is known, the shown code itself says what is left out.
        "input_cut": started.input_length if whole_code is None else None,
        "result": visible_text(result),
        "result_cut": finished.result_length if finished is not None else None,
        "pictures": [*pictures],
    }


def _arguments(given: Any) -> str:
    """Arguments as text; empty for none."""
    values = plain(given)
    if values in ({}, None):
        return ""
    text = json.dumps(values, ensure_ascii=False)
    if len(text) <= _ONE_LINE or not isinstance(values, dict):
        return text
    return json.dumps(values, ensure_ascii=False, indent=2)


def call_line(number: int, call: CallState) -> CallLine:
    """A call's entry in the list; `number` counts from 1."""
    finished = call.finished
    error = finished.error if finished is not None else None
    return {
        "n": number,
        "model": visible(call.started.model, 200),
        "attempt": call.started.attempt,
        "is_synthesis": call.started.is_synthesis,
        "status": _state_of(finished),
        "tokens": finished.usage.total_tokens if finished is not None else 0,
        "duration_ms": finished.duration_ms if finished is not None else None,
        "stop_reason": visible(finished.stop_reason, 60)
        if finished is not None and finished.stop_reason
        else None,
        "error": visible_text(error) if error else None,
    }


def _state_of(finished: ModelCallFinished | None) -> str:
    if finished is None:
        return "open"
    if finished.stop_reason is not None:
        return "done"
    # An ordered end is not an error: a cancel says so, and an end by the budget has no error.
    if finished.error == "cancelled":
        return "cancelled"
    return "error" if finished.error else "stopped"


def prompt_of(request: CompletionRequest) -> Prompt:
    """A whole request as it was sent, with control characters made visible."""
    return {
        "system": visible_text(request.system),
        "messages": [
            {"role": str(message.role), "text": visible_text(_words_of(message))}
            for message in request.messages
        ],
    }


def _words_of(message: Message) -> str:
    """The whole content of a message, tool calls and results included."""
    return "\n\n".join(_block_words(block) for block in message.content)


def _block_words(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case ThinkingBlock():
            return f"(thinking) {block.text or '(kept by the API)'}"
        case OpaqueBlock():
            return f"(kept for the API) {json.dumps(plain(block.data), ensure_ascii=False)}"
        case ToolUseBlock():
            code = code_in(block.name, block.input)
            if code is not None:
                lines = indent(code.strip("\n"), "    ")
                return f"(tool call {block.id}) {block.name}:\n{lines}"
            return f"(tool call {block.id}) {block.name}({json.dumps(dict(block.input))})"
        case ToolResultBlock():
            said = "tool error" if block.is_error else "tool result"
            return f"({said} {block.tool_use_id}) {block.text}"
        case MediaBlock():
            return media_words(block)
    assert_never(block)


class ReusedWork(Protocol):
    """The part of one agent's work that comes from an earlier process's record."""

    @property
    def calls(self) -> int:
        """The number of its reused calls."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether all of its work is reused, since it had ended."""
        ...


class Receipt(Protocol):
    """What a recovery reused of a run's earlier work."""

    @property
    def lines(self) -> Sequence[str]:
        """The receipt as lines for a person."""
        ...

    @property
    def by_agent(self) -> Mapping[str, ReusedWork]:
        """By path: the reused work of each agent that has any."""
        ...


ReceiptOf = Callable[[], Receipt | None]
"""Returns a run's receipt; `None` for a run that was not, or not yet, recovered here."""


def reused_in_words(work: ReusedWork | None, calls: int) -> str:
    """The reused part of an agent's work, in words; empty for none.

    Args:
        work: The reused work; `None` for none.
        calls: The number of calls that the agent has made, including reused ones.
    """
    if work is None:
        return ""
    if work.has_ended:
        return "it had finished before the run was recovered"
    # A view of an earlier time may show fewer calls than are reused.
    return f"{min(work.calls, calls):,} of {counted(calls, 'call')}" if calls else ""


class RunNotices:
    """Collects a run's events and creates the notices from them.

    Args:
        receipt: Returns the receipt of its recovery.
    """

    def __init__(self, receipt: ReceiptOf = lambda: None) -> None:
        self.is_stale = False
        """Whether the lines may have changed."""
        self._answers: list[str] = []
        self._cancelled: list[str] = []
        """Ids of the agents that were cancelled; they may have continued since."""
        self._exhausted: BudgetExhausted | LimitReached | None = None
        self._end: RunFinished | None = None
        self._lines: tuple[str, ...] = ()
        self._receipt = receipt
        self._receipt_told: Receipt | None = None
        self._recovered = 0
        """How many times the run was recovered."""

    def learn(self, event: Event) -> None:
        """Record an event of the whole run, or an agent's cancellation."""
        match event:
            case AgentCancelled():
                self._cancelled.append(event.agent_id)
            case RunStarted(recovered=times) if times:
                self._recovered = times
            case BudgetResumed(reason=reason) if reason.startswith("stop: "):
                self._answers.append(visible(f"Stopped: {reason.removeprefix('stop: ')}", 200))
            case BudgetResumed(reason=reason) if reason in _WHY_RESUMED:
                self._answers.append(_WHY_RESUMED[reason])
            case BudgetExhausted() | LimitReached():
                self._exhausted = event
            case RunFinished():
                self._end = event
            case _:
                return
        self.is_stale = True

    def lines(self, tree: TreeFold) -> tuple[str, ...]:
        """One visible line per notice, oldest first."""
        receipt = self._receipt()
        if self.is_stale or receipt is not self._receipt_told:
            self.is_stale, self._receipt_told = False, receipt
            self._lines = tuple(self._made(tree))
        return self._lines

    def _made(self, tree: TreeFold) -> list[str]:
        lines = [*self._of_recovery(), *self._answers]
        if self._exhausted is not None:
            lines.append(_of_exhausted(self._exhausted, tree))
        lines += _of_cancelled(tree.agents[agent_id] for agent_id in self._cancelled)
        if self._end is not None:
            lines += self._of_end(self._end, tree)
        return lines

    def _of_recovery(self) -> list[str]:
        if self._receipt_told is not None:
            return [visible(line, 300) for line in self._receipt_told.lines]
        times = "" if self._recovered == 1 else f" {self._recovered:,} times"
        return [f"Recovered{times} after its process had died."] if self._recovered else []

    def _of_end(self, end: RunFinished, tree: TreeFold) -> list[str]:
        if end.status is AgentStatus.FAILED:
            return [visible(f"The run failed: {end.error}", 300)]
        if end.status is not AgentStatus.EXHAUSTED or self._exhausted is not None:
            return []
        # Only the synthesis is missing: no other notice says so.
        root = next((agent for agent in tree.agents.values() if not agent.depth), None)
        why = root.error if root is not None and root.error else "the budget ended"
        done = [a.path for a in tree.agents.values() if a.status is AgentStatus.COMPLETED]
        line = f"The results were not combined: {why}. Done: {_listed(done) or 'nothing'}."
        return [visible(line, 300)]


def unreported_notes(tree: TreeFold) -> dict[str, list[str]]:
    """The notes of an ended run's tree that neither its notices nor its answer contain, by path.

    The notices say why a branch was cancelled or the run failed; the answer of an exhausted run
    says why it is incomplete. A sub-agent's error may be cut on its card, and other notes are only
    in the details, which must be opened.
    """
    return {
        agent.path: lines
        for agent in tree.in_path_order()
        if (lines := [*([] if _is_reported(agent) else agent.reasons), *agent.notes])
    }


def _is_reported(agent: AgentState) -> bool:
    return agent.parent_id is None or agent.status is AgentStatus.CANCELLED


def _of_exhausted(event: BudgetExhausted | LimitReached, tree: TreeFold) -> str:
    done = _listed([tree.path_of(agent_id) for agent_id in event.completed_agents])
    undone = [tree.path_of(agent_id) for agent_id in event.incomplete_agents]
    left = _listed([path for path in undone if path != ROOT_PATH])
    what_was_done = f"Done by then: {done or 'nothing'}."
    if isinstance(event, LimitReached):
        limit = f"{visible(event.limit, 60)}={event.value:g}"
        head = f"Stopped by {limit}. {what_was_done}"
        return f"{head} Not done: {left or 'the answer itself'}."
    if event.tokens_used >= event.budget_total:
        head = f"The budget is used up at {_share(event)}."
        return f"{head} {what_was_done} Not done: {left or 'the answer itself'}."
    # Other agents may continue, and raising the total does not restore what was cut.
    head = f"At {_share(event)} the budget had no room for"
    return f"{head} {left or 'the answer itself'}. {what_was_done}"


def _share(event: BudgetExhausted) -> str:
    return share_in_words(event.tokens_used, event.budget_total, event.unit)


def _of_cancelled(agents: Iterable[AgentState]) -> list[str]:
    """One line for each cancelled branch, by its topmost agent."""
    gone = {a.agent_id: a for a in agents if a.status is AgentStatus.CANCELLED}
    tops: dict[str, str] = {}
    below: dict[str, list[str]] = {}
    for agent in sorted(gone.values(), key=lambda agent: agent.key):  # parents first
        if agent.parent_id in gone:
            top = tops[agent.agent_id] = tops[str(agent.parent_id)]
            below[top].append(agent.path)
        else:
            tops[agent.agent_id], below[agent.agent_id] = agent.agent_id, []
    return [_of_branch(gone[top], paths) for top, paths in below.items()]


def _of_branch(top: AgentState, below: Sequence[str]) -> str:
    whom, more = top.path, f" with {_listed(below)} below it" if below else ""
    if top.parent_id is None:
        whom, more = "the run", f" with {_listed(below)} that were working" if below else ""
    return visible(f"Cancelled: {whom}{more} ({top.error or 'no reason given'}).", 300)


def _listed(paths: Sequence[str]) -> str:
    return listed(sorted(paths, key=path_key), most=_MOST_PATHS, none="")
