"""One agent's model calls and tool calls, folded from the rows of the record.

A state is what is known of a call after the events so far. The record, the panel and a saved run
read calls with these folds and with no others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from agentnb.core.events import (
    Event,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    ToolCallFinished,
    ToolCallReported,
    ToolCallStarted,
    is_terminal,
)
from agentnb.core.records import FINISHED, STARTED, Piece, ToolCallRecord
from agentnb.core.types import CompletionRequest, MediaBlock, Usage


@dataclass(slots=True, eq=False)
class ToolCallState:
    """One tool call, perhaps unfinished."""

    number: int
    """Position among its agent's tool calls, from 1, in the order in which they began."""
    started: ToolCallStarted
    begun_s: float
    """Seconds since the run began."""
    said: str = ""
    """Its last report."""
    finished: ToolCallFinished | None = None
    is_abandoned: bool = False
    """Whether its agent ended before it did: the process died."""

    ended: int = 0
    """Position among its agent's ended tool calls, from 1; 0 while it is open."""

    @property
    def status(self) -> str:
        """`open`, `done`, `error`, `cancelled`, or `interrupted` if it never ended."""
        if self.finished is None:
            return "interrupted" if self.is_abandoned else "open"
        if self.finished.was_cancelled:
            return "cancelled"
        return "error" if self.finished.is_error else "done"

    @property
    def input_is_cut(self) -> bool:
        """Whether the events hold only a part of the input."""
        return self.started.input_length is not None

    @property
    def result_is_cut(self) -> bool:
        """Whether the events hold only a part of the result."""
        return self.finished is not None and self.finished.result_length is not None

    @property
    def is_cut(self) -> bool:
        """Whether the events hold only a part of the input or the result."""
        return self.input_is_cut or self.result_is_cut or bool(self.media)

    @property
    def media(self) -> tuple[MediaBlock, ...]:
        """The files in the result, only named: see `MediaBlock.named`."""
        return () if self.finished is None else self.finished.media

    @property
    def result(self) -> str:
        """The result as the events hold it; empty while the call is open."""
        if self.finished is None:
            return ""
        # Older records hold only the first line of a result.
        return self.finished.result or self.finished.result_summary

    def is_known_whole(self, whole: ToolCallRecord | None) -> bool:
        """Whether the call has ended, and its input and result are known whole.

        Args:
            whole: The bus's whole record of it, if there is one.
        """
        finished = self.finished
        if finished is None or (finished.result_summary and not finished.result):
            return False
        has_whole = whole is not None and whole.status == FINISHED
        return has_whole or not self.is_cut

    def record(self, path: str, whole: ToolCallRecord | None) -> ToolCallRecord:
        """The call as a record.

        Args:
            path: Its agent's path.
            whole: The bus's whole record of it, if there is one: supplies what the events cut.
        """
        started, finished = self.started, self.finished
        return ToolCallRecord(
            agent_id=started.agent_id,
            tool_use_id=started.tool_use_id,
            name=started.name,
            input=whole.input if whole is not None and self.input_is_cut else started.input,
            result=whole.result if whole is not None and self.result_is_cut else self.result,
            is_error=finished is not None and finished.is_error,
            path=path,
            number=self.number,
            effects=whole is None or whole.effects,
            at_s=self.begun_s,
            duration_ms=finished.duration_ms if finished is not None else None,
            status=STARTED if finished is None else FINISHED,
            ended=self.ended,
            media=self.media if whole is None or not self.media else whole.media,
            unseen=() if whole is None else whole.unseen,
        )


class ToolCallHistory:
    """The tool calls of one agent. Takes the agent's events, each once and in order."""

    def __init__(self) -> None:
        self.calls: list[ToolCallState] = []
        self._open: dict[str, ToolCallState] = {}
        self._changed: dict[int, ToolCallState] = {}
        self._ended = 0

    def learn(self, at_s: float, event: Event) -> None:
        """Record an event."""
        match event:
            case ToolCallStarted():
                call = ToolCallState(len(self.calls) + 1, event, at_s)
                self.calls.append(call)
                # Some servers reuse an id: the newest call counts.
                self._open[event.tool_use_id] = self._changed[call.number] = call
            case ToolCallReported():
                if (reporting := self._open.get(event.tool_use_id)) is not None:
                    reporting.said = event.text
                    self._changed[reporting.number] = reporting
            case ToolCallFinished():
                if (ended := self._open.pop(event.tool_use_id, None)) is not None:
                    self._ended += 1
                    ended.finished, ended.ended = event, self._ended
                    self._changed[ended.number] = ended
            case _ if self._open and is_terminal(event):
                self._abandon_open()

    def _abandon_open(self) -> None:
        for call in self._open.values():
            call.is_abandoned = True
            self._changed[call.number] = call
        self._open.clear()

    def take_changed(self) -> list[ToolCallState]:
        """The calls that are new or changed since the last `take_changed`, in order."""
        changed = [self._changed[number] for number in sorted(self._changed)]
        self._changed.clear()
        return changed


@dataclass(slots=True, eq=False)
class CallState:
    """One model call: its request, and its reply so far."""

    started: ModelCallStarted
    begun_s: float = 0.0
    """Seconds since the run began."""
    tools_before: int = 0
    """Number of its agent's tool calls that began before it."""
    pieces: list[Piece] = field(default_factory=list)
    """The reply's text as it arrived."""
    finished: ModelCallFinished | None = None

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join([text for _, text in self.pieces])

    @property
    def request(self) -> CompletionRequest:
        """The request as it was sent."""
        return self.started.request


class CallHistory:
    """The calls of one agent. Takes the rows of the record, each once and in order."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.calls: list[CallState] = []
        self.tools = ToolCallHistory()

    def feed(self, rows: Iterable[Row]) -> None:
        """Record rows; each once, in order."""
        agent_id = self.agent_id
        for row in rows:
            if len(row) == 3:
                if row[1] == agent_id and self.calls:
                    self.calls[-1].pieces.append((row[0], row[2]))
                continue
            at_s, event = row
            if getattr(event, "agent_id", None) != agent_id:
                continue
            if isinstance(event, ModelCallStarted):
                self.calls.append(CallState(event, at_s, len(self.tools.calls)))
            elif isinstance(event, ModelCallFinished):
                if self.calls:
                    self.calls[-1].finished = event
            else:
                self.tools.learn(at_s, event)

    @property
    def usage(self) -> Usage:
        """The provider's token counts of the ended calls."""
        ended = [call.finished.usage for call in self.calls if call.finished is not None]
        return sum(ended, Usage())


def tool_calls_in(
    rows: Iterable[Row], agent_ids: Collection[str]
) -> dict[tuple[str, int], ToolCallState]:
    """The tool calls of some agents, in the order in which they began.

    Args:
        rows: All rows of a run, in order.
        agent_ids: The agents.

    Returns:
        The calls, by agent id and number.
    """
    histories = {agent_id: ToolCallHistory() for agent_id in agent_ids}
    found: dict[tuple[str, int], ToolCallState] = {}
    for row in rows:
        if len(row) == 3:
            continue
        at_s, event = row
        history = histories.get(getattr(event, "agent_id", ""))
        if history is None:
            continue
        history.learn(at_s, event)
        if isinstance(event, ToolCallStarted):
            call = history.calls[-1]
            found[event.agent_id, call.number] = call
    return found
