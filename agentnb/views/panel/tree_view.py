"""The tree of a run with the details of an agent, drawn in the browser.

Python holds the state and JavaScript draws it. Frames are numbered, each based on the one before; a
front end that missed one requests a full frame. The details of each view are kept here, so that an
agent's text is sent only to views that show it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import anywidget
import traitlets

from agentnb.core.money import TOKENS
from agentnb.core.questions import BUDGET
from agentnb.core.types import AgentStatus
from agentnb.views.figures.words import counted
from agentnb.views.panel.asked import question_row, value_of
from agentnb.views.panel.beside import Beside
from agentnb.views.panel.comm import hear
from agentnb.views.panel.commands import Commands, Made
from agentnb.views.panel.details import Details
from agentnb.views.panel.fold import HALF_A_STEP_S
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.limits import allowed_total, ceiling, highest_total
from agentnb.views.panel.module import ENTRY, joined_module, style
from agentnb.views.panel.renewal import MOST_SAVED, left_out
from agentnb.views.panel.rules import MessageRefused
from agentnb.views.panel.viewers import GONE_AFTER_S
from agentnb.views.panel.widgets import RunWidget
from agentnb.views.panel.wire import (
    AgentRow,
    Command,
    DetailsCommand,
    Frame,
    FrameMessage,
    NewestMessage,
    PageMessage,
    QuestionRow,
    SavedFrame,
    checked_command,
)

MOST_VIEWS = 64
"""Most views of one `TreeView`, on all pages together."""


class TreeView(RunWidget, anywidget.AnyWidget):
    """A live picture of a run: its tree, one agent's details, and a scrubber when it is done.

    Args:
        publisher: The run's frames.
        height: Height of the tree in pixels; 0 for a default that fits most cells.
        can_answer: Whether its viewers can answer the budget question.
    """

    _entry: ClassVar[str] = ENTRY
    """The module that draws it."""
    _sheets: ClassVar[tuple[str, ...]] = ()
    """Style sheets that it needs in addition to the panel's."""

    publisher: FramePublisher
    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Any().tag(sync=True, to_json=lambda _, view: view._kept or view._saved())
    """A full frame of at most `MOST_SAVED` agents, as of the newest frame that is kept. It is all
    that a notebook saves of the view, since frames are messages. It has no value in Python."""
    controls = traitlets.Bool(True).tag(sync=True)
    """Whether it can steer the run."""
    notify = traitlets.Bool(False).tag(sync=True)
    """Whether a page out of sight learns that the run has ended or asks."""
    height = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, publisher: FramePublisher, *, height: int = 0, can_answer: bool = False
    ) -> None:
        self._can_answer = can_answer
        self._seq: int | None = None
        self._kept: SavedFrame | None = None
        """The snapshot while it may change: a page requests the state of each view alone, and they
        have to agree. What is newer comes when the page says `hello`."""
        self._status: AgentStatus | None = None
        self._notices: Sequence[str] = ()
        self._questions: dict[str, QuestionRow] = {}
        """The open questions, by id."""
        self._marks = 0
        """Number of marks that the pages have."""
        self._details: dict[str, Details] = {}
        self._seen_at_s: dict[str, float] = {}
        """When each view last reported that it is open, oldest first."""
        with publisher.lock:  # no frame may come between the sent state and the next frame
            self.attach(publisher)
            super().__init__(
                _esm=joined_module(self._entry),
                _css=style(*self._sheets),
                controls=publisher.commands is not None,
                height=height,
            )
        hear(self)

    def close(self) -> None:
        """Remove it from all pages and stop updating it."""
        if self.comm is not None:
            self.publisher.viewers.gone(self.model_id)
        super().close()

    def _ipython_display_(self) -> None:
        super()._ipython_display_()
        Beside(self.publisher)

    # -- out --------------------------------------------------------------------------------------

    def show(self, frame: Frame) -> None:
        """Send a frame, and new details to each view."""
        base, status = self._seq, frame.summary.status
        self.notify = self.publisher.is_unwatched
        is_new = self._ask(frame.summary.questions)
        if base is None or frame.rows or is_new or status is not self._status:
            self._seq, self._status = frame.seq, status
            if base is not None:  # the first frame is in the snapshot
                self._say(self._frame(frame, base=base, with_questions=is_new))
        if frame.is_kept:
            self._kept = None if frame.summary.done else self._saved()
            if base is not None:
                self.send_state("snapshot")
        if frame.summary.notices is not self._notices:
            self._announce(frame.summary.notices, is_first=base is None)
        self.read_on()

    @property
    def is_read(self) -> bool:
        """Whether a view shows an agent whose text is growing."""
        fold = self.publisher.fold
        return any(details.is_live(fold) for details in self._details.values())

    def read_on(self) -> None:
        """Send new details to each view."""
        publisher = self.publisher
        for view, details in self._details.items():
            message = details.more(publisher.fold, publisher.cost_of)
            if message is not None:
                self._say({**message, "view": view})

    def _ask(self, open_questions: int) -> bool:
        """Take over the open questions and marks; returns whether they have changed."""
        commands, known = self.publisher.commands, self._questions
        asked = commands.questions if commands is not None and open_questions else ()
        self._questions = {
            question.id: known.get(question.id) or question_row(question)
            for question in asked
            if question.kind != BUDGET  # the budget's question has its own widget
        }
        marks_before, self._marks = self._marks, len(self.publisher.fold.person.marks)
        return self._questions.keys() != known.keys() or self._marks != marks_before

    def _announce(self, notices: Sequence[str], *, is_first: bool) -> None:
        """Send new notices, for screen readers."""
        known, self._notices = frozenset(self._notices), notices
        lines = [line for line in notices if line not in known]
        if lines and not is_first:
            self._say({"type": "notices", "lines": lines})

    def _say(self, message: PageMessage) -> None:
        self.send(message)

    def _full_frame(self) -> FrameMessage:
        with self.publisher.lock:
            frame = self._frame(self.publisher.whole(), base=None, with_questions=True)
            # The number of the last sent frame: frames without rows are not sent.
            return frame if self._seq is None else {**frame, "seq": self._seq}

    def _saved(self) -> SavedFrame:
        """The full frame, with its time, and cut for a page that may have no kernel."""
        frame = cast(SavedFrame, {**self._full_frame(), "made": round(time.time())})
        return self._cut(frame) if len(frame["agents"]) > MOST_SAVED else frame

    def _cut(self, frame: SavedFrame) -> SavedFrame:
        """The first agents of a frame; parents come before their children."""
        rest = frame["agents"][MOST_SAVED:]
        more = left_out(counted(len(rest), "more agent"), map(status_of, rest))
        kept = frame["agents"][:MOST_SAVED]
        return cast(SavedFrame, {**frame, "agents": kept, "left_out": more})

    def _frame(self, frame: Frame, *, base: int | None, with_questions: bool) -> FrameMessage:
        rows = [self._row(path, row) for path, row in frame.rows.items()]
        summary = frame.summary
        # The scrubber uses the times of events, which differ from the run's duration if it began
        # long after it was ordered, or was recovered.
        at_s = self.publisher.fold.newest_s if summary.done else summary.at_s
        message: FrameMessage = {
            "type": "frame",
            "seq": frame.seq,
            "base": base,
            "at": round(at_s, 3),
            "done": summary.done,
            "status": str(summary.status),
            "agents": rows,
        }
        if self.publisher.done and not summary.done:
            message["still"] = round(self.publisher.as_of)
        if with_questions:
            message["questions"] = list(self._questions.values())
            message["marks"] = self.publisher.fold.person.marks
        return message

    def _row(self, path: str, row: AgentRow) -> AgentRow:
        """A row for the page, which finds a changed one by its path."""
        return {**row, "path": path}

    # -- in ---------------------------------------------------------------------------------------

    def take(self, content: Mapping[str, Any]) -> None:
        """Handle a message from a front end, on any thread."""
        command = checked_command(content)
        with self.publisher.lock:
            self._act_on(command)

    def _act_on(self, command: Command) -> None:
        """Execute a command if it is valid for this run."""
        match command["type"]:
            case "hello":
                self._seen(command["view"])
                self._say(self._full_frame())
                if not self.publisher.done:
                    self.publisher.keep()  # the page asked for each state at another time
            case "here":
                self._seen(command["view"])
            case "bye":
                self._gone(command["view"])
            case "resend":
                self._say(self._full_frame())
            case "sync":
                is_newest = command["seq"] == self._seq
                self._say(NewestMessage(type="newest") if is_newest else self._full_frame())
            case "details":
                if command["view"] not in self._seen_at_s:
                    raise MessageRefused(
                        "a request for details from a view that never announced itself"
                    )
                self._show_details(command)
            case _ if self.publisher.commands is not None:
                self._order(command, self.publisher.commands)

    def _order(self, command: Command, commands: Commands) -> None:
        """Pass a person's command on to the run."""
        match command["type"]:
            case "budget":
                commands.set_budget(self._allowed(command["total"]))
            case "answer":
                value, answer = value_of(command), command["answer"]
                made = self._made("answer", command["question"])
                reason = command["reason"]
                commands.answer_question(
                    command["question"], answer, value=value, reason=reason, made=made
                )
            case "cancel" | "pause" | "resume" | "tell" as order:
                agent = command["agent"]
                if self.publisher.fold.tree.agent_at(agent) is None:
                    raise MessageRefused("`agent` must be one of this run")
                made = self._made(order, agent)
                match command["type"]:
                    case "cancel":
                        commands.cancel(agent, made=made)
                    case "pause":
                        commands.pause(agent, made=made)
                    case "resume":
                        commands.resume(agent, made=made)
                    case "tell":
                        commands.tell_agent(agent, command["text"], made=made)

    def _made(self, order: str, about: str) -> Made:
        """A callback that tells the pages if the run did not accept a command."""

        def made(worked: bool) -> None:
            if not worked:
                self._say({"type": "failed", "command": order, "about": about})

        return made

    def _allowed(self, total: int) -> int:
        """The allowed total nearest to the one that a page requests."""
        summary = self.publisher.whole().summary
        if total < summary.tokens_used:  # this would end the run, and no page sends it
            raise MessageRefused("`total` must be at least what is used")
        limit = ceiling() if summary.unit == TOKENS else None  # a teacher's ceiling counts tokens
        highest = highest_total(summary.budget_total, limit)
        return allowed_total(total, used=summary.tokens_used, highest=highest)

    def _seen(self, view: str) -> None:
        if self._can_answer:
            self.publisher.viewers.seen(self.model_id, view)
        now_s = time.monotonic()
        self._seen_at_s.pop(view, None)
        self._seen_at_s[view] = now_s
        for other, at_s in self._seen_at_s.items():
            # Stop sending to a page that seems closed. Keep it known: after the run's end a page
            # no longer reports that it is open, but may still request details.
            if at_s < now_s - GONE_AFTER_S:
                self._details.pop(other, None)
        if len(self._seen_at_s) > MOST_VIEWS:
            self._gone(next(iter(self._seen_at_s)))

    def _gone(self, view: str) -> None:
        self.publisher.viewers.gone(self.model_id, view)
        self._seen_at_s.pop(view, None)
        self._details.pop(view, None)

    def _show_details(self, command: DetailsCommand) -> None:
        view, call, at = command["view"], command["call"], command["at"]
        # Times in rows are rounded: add half a step so that the replay includes their events.
        at_s = None if at is None else float(at) + HALF_A_STEP_S
        whole = self.publisher.bus.whole_tool_calls
        details = Details(command["agent"], call=call, at_s=at_s, whole=whole)
        fold, cost_of = self.publisher.fold, self.publisher.cost_of
        if at_s is not None:
            if fold.root is not None:
                at_s = details.at_s = max(at_s, fold.root.spawned_at_s)  # the root is always there
            fold, cost_of = self.publisher.at(at_s), lambda path: ""  # unknown then
            rows = [fold.changing_row(agent_id) for agent_id in fold.tree.agents]
            self._say({"type": "replay", "view": view, "n": 0, "at": at, "agents": rows})
        self._details[view] = details
        self.publisher.bus.notify()  # send the agent's next text at once
        self._say({**details.whole(fold, cost_of), "view": view})


def status_of(row: AgentRow) -> str:
    """An agent's status; a new agent's row has none."""
    return str(row.get("status", AgentStatus.PENDING))
