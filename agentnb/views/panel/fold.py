"""Folds a run's events into what a live view shows.

Takes rows of the record; gives the rows of changed agents and a summary. The tree's fold
(`agentnb.core.tree`) decides statuses; this module adds what matters only while watching: what an
agent waits for, how long its reply is, and whether it is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agentnb.core.budget import BYTES_PER_TOKEN
from agentnb.core.events import (
    AgentCancelled,
    AgentSpawned,
    BudgetPaused,
    BudgetResumed,
    BudgetUpdate,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RunFinished,
    RunStarted,
    ToolCallReported,
    is_terminal,
)
from agentnb.core.money import TOKENS
from agentnb.core.text import visible
from agentnb.core.tree import LINE_LENGTH, STALLED_AFTER_S, Activity, AgentState, TreeFold
from agentnb.core.types import AgentStatus
from agentnb.views.panel.history import ReceiptOf, ReusedWork, RunNotices
from agentnb.views.panel.person import HEARD, PAUSED, PersonFold
from agentnb.views.panel.wire import AgentRow, Question, Summary, ToolMark

TIME_DIGITS = 2
"""Decimals of the times in a row, in seconds."""
HALF_A_STEP_S = 0.5 * 10**-TIME_DIGITS
"""The largest rounding error of a time."""

_TASK_LENGTH = 300


class PanelFold:
    """Folds record rows into view rows and a summary. Guarded by the publisher's lock.

    Args:
        receipt: Returns the run's recovery receipt: the events do not say what was reused.
    """

    def __init__(self, receipt: ReceiptOf = lambda: None) -> None:
        self.tree = TreeFold()
        self.touched: set[str] = set()
        """Ids of the agents whose row may have changed since `take_touched`."""
        self.said_more: set[str] = set()
        """Ids of the agents with only more text or a new tool report: most changes are these."""
        self.done = False
        self.own: dict[str, list[Row]] = {}
        """Rows by agent, so that details of one agent need not read all rows."""
        self.calls_ended = 0
        self.person = PersonFold()
        """A person's orders and questions."""
        self._statuses = _StatusCount(self.tree)
        self.newest_s = 0.0
        """Time of the newest row, in seconds since the run began."""
        self._calling: dict[str, Activity] = {}
        """By id, the agents with an open call."""
        self._stalled: set[str] = set()
        self._question: Question | None = None
        self._end: RunFinished | None = None
        self._receipt = receipt
        self._notices = RunNotices(receipt)
        self._parts: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._joined: tuple[str, ...] = ()
        self._budget = (0, 0)
        self._unit = TOKENS
        self._has_changed = False

    # -- in ---------------------------------------------------------------------------------------

    def feed(self, rows: list[Row]) -> None:
        """Fold in rows; each row once, in order."""
        if not rows:
            return
        apply_text, said_more, own = self.tree.apply_text, self.said_more, self.own
        changed = self._statuses.changed
        for row in rows:
            if len(row) == 3:
                at_s, agent_id, text = row
                changed.add(agent_id)
                if apply_text(at_s, agent_id, text).said == len(text):
                    self.touched.add(agent_id)  # its first text
                said_more.add(agent_id)
                own.setdefault(agent_id, []).append(row)
            else:
                self._learn(*row)
        self.newest_s = rows[-1][0]

    def _learn(self, at_s: float, event: Event) -> None:
        if isinstance(event, ToolCallReported):
            self._reported(event)  # before the tree overwrites the last report
        self.tree.learn(at_s, event)
        agent_id: str | None = getattr(event, "agent_id", None)
        if type(event) in HEARD:
            path = "" if agent_id is None else self.tree.path_of(agent_id)
            if self.person.learn(at_s, event, path):
                self._touch_open()
        if agent_id is None:
            self._learn_of_run(at_s, event)
            return
        self._statuses.changed.add(agent_id)
        self.own.setdefault(agent_id, []).append((at_s, event))
        match event:
            case ToolCallReported():
                return
            case AgentSpawned(parent_id=str(parent_id)):
                self._touch(parent_id)
            case ModelCallStarted():
                self._calling[agent_id] = self.tree.agents[agent_id].activity
                self._stalled.discard(agent_id)
            case ModelCallFinished():
                self._no_call(agent_id)
                self.calls_ended += 1
        self.touched.add(agent_id)
        if is_terminal(event):
            self._ended(agent_id, event)

    def _touch_open(self) -> None:
        """A pause holds all agents of a branch: show it on each."""
        agents = self.tree.agents.values()
        self.touched.update(a.agent_id for a in agents if not self.tree.status_of(a).is_terminal)

    def _touch(self, agent_id: str | None) -> None:
        if agent_id is not None and agent_id in self.tree.agents:
            self.touched.add(agent_id)
            self._statuses.changed.add(agent_id)

    def _reported(self, event: ToolCallReported) -> None:
        agent = self.tree.agents.get(event.agent_id)
        tool = agent.activity.tools.get(event.tool_use_id) if agent is not None else None
        if tool is not None:
            # Show the first report at once; later ones may come ten times a second.
            (self.said_more if tool.said else self.touched).add(event.agent_id)

    def _no_call(self, agent_id: str) -> None:
        self._calling.pop(agent_id, None)
        self._stalled.discard(agent_id)

    def _ended(self, agent_id: str, event: Event) -> None:
        self._no_call(agent_id)
        if isinstance(event, AgentCancelled):
            self._notices.learn(event)
        self._touch(self.tree.agents[agent_id].parent_id)

    def _learn_of_run(self, at_s: float, event: Event) -> None:
        self._has_changed |= not isinstance(event, BudgetUpdate)
        used, total = self._budget
        if isinstance(event, RunStarted):
            self._unit = event.unit
        if not isinstance(event, RunFinished) or self._unit == TOKENS:  # else it counts tokens
            used = getattr(event, "tokens_used", used)
        self._budget = used, getattr(event, "budget_total", total)
        match event:
            case BudgetPaused():
                self._question = Question(
                    event.tokens_used,
                    event.budget_total,
                    event.percentage,
                    event.wait_s,
                    at_s,
                    event.unit,
                )
            case BudgetResumed():
                self._question = None
            case RunFinished():
                self._end, self._question, self.done = event, None, True
        self._notices.learn(event)

    def notice_silence(self, now_s: float) -> None:
        """Mark agents that have been silent for too long. Takes time for each agent with a call."""
        for agent_id, activity in self._calling.items():
            is_stalled = now_s - activity.heard_at_s >= STALLED_AFTER_S
            if is_stalled is not (agent_id in self._stalled):
                (self._stalled.add if is_stalled else self._stalled.discard)(agent_id)
                self.touched.add(agent_id)

    # -- out --------------------------------------------------------------------------------------

    def take_changed(self) -> bool:
        """Whether anything other than a growing number has changed since the last call."""
        has_changed, self._has_changed = self._has_changed or bool(self.touched), False
        return has_changed

    def take_touched(self) -> list[str]:
        """Ids of the agents that may have changed, parents first."""
        agents = self.tree.agents
        if len(self.touched) < len(agents) // 8:
            touched = sorted(self.touched, key=lambda agent_id: agents[agent_id].key)
        else:  # in the order of their creation
            touched = [agent_id for agent_id in agents if agent_id in self.touched]
        self.touched.clear()
        return touched

    def is_calling(self, agent_id: str) -> bool:
        """Whether an agent has an open call: its text may grow."""
        return agent_id in self._calling

    def tokens_of(self, agent_id: str) -> int:
        """An agent's tokens: counted for ended calls, estimated for an open one."""
        agent = self.tree.agents[agent_id]
        return agent.tokens_used + agent.activity.said // BYTES_PER_TOKEN

    def reused_of(self, path: str) -> ReusedWork | None:
        """The part of an agent's work that comes from an earlier process's record."""
        receipt = self._receipt()
        return None if receipt is None else receipt.by_agent.get(path)

    def row(self, agent_id: str) -> AgentRow:
        """An agent's row for the tree: plain values, and visible texts on one line."""
        agent = self.tree.agents[agent_id]
        return {
            "path": agent.path,
            "parent": self.tree.path_of(agent.parent_id) if agent.parent_id else None,
            "depth": agent.depth,
            "task": visible(agent.task, _TASK_LENGTH),
            "model": visible(agent.model, LINE_LENGTH),
            **self._changing(agent),
        }

    def changing_row(self, agent_id: str) -> AgentRow:
        """The fields of a row that change while an agent runs, and its path."""
        agent = self.tree.agents[agent_id]
        return {"path": agent.path, **self._changing(agent)}

    def _changing(self, agent: AgentState) -> AgentRow:
        activity, status = agent.activity, self.tree.status_of(agent)
        is_stalled = agent.agent_id in self._stalled
        has_ended = status.is_terminal
        reused = self.reused_of(agent.path) if has_ended else None
        paused = "" if has_ended else self.person.paused(agent.path)
        # For a held agent `paused` says enough, and only while it is true.
        is_held = status is AgentStatus.WAITING and agent.waiting_for == PAUSED
        is_silent = has_ended or is_held
        doing = "" if is_silent else self.tree.describe(agent, is_stalled=is_stalled)
        ended_s = agent.spawned_at_s + agent.duration_ms / 1000
        return {
            "status": str(status),
            "tokens": self.tokens_of(agent.agent_id),
            "estimated": bool(activity.said),
            "begun": round(agent.spawned_at_s, TIME_DIGITS),
            "ended": round(ended_s, TIME_DIGITS) if has_ended else None,
            "doing": doing,
            "tool": None if has_ended else _open_tool(activity),
            "tool_calls": agent.tool_calls,
            "tool_errors": agent.tool_errors,
            "until": activity.wait_until_s if status is AgentStatus.WAITING else None,
            "stalled": is_stalled,
            "attempt": activity.attempt,
            "error": visible(agent.error, LINE_LENGTH) if agent.error else None,
            "notes": len(agent.notes) + len(self.person.notes(agent.agent_id)),
            "reused": reused is not None and reused.has_ended,
            "paused": paused,
            "asks": not has_ended and self.person.asks(agent.agent_id),
        }

    def summary(self, now_s: float, *, cost: str, budget: tuple[int, int, str] | None) -> Summary:
        """The run's summary.

        Args:
            now_s: Seconds since the run began.
            cost: The cost, in words.
            budget: What is used, the total, and their unit; `None` takes them from the events,
                which say the unit only when the run has begun.
        """
        used, total, unit = (*self._budget, self._unit) if budget is None else budget
        return Summary(
            status=self.status,
            done=self.done,
            at_s=self._end.duration_ms / 1000 if self._end is not None else now_s,
            agents=len(self.tree.agents),
            by_status=self._statuses.counts(),
            doing=self._run_activity(),
            tokens_used=used,
            budget_total=total,
            cost=cost,
            question=self._question,
            notices=self._lines(),
            is_paused=self.person.is_paused,
            questions=self.person.questions + (self._question is not None),
            unit=unit,
            usage=self.tree.usage,
        )

    def _lines(self) -> tuple[str, ...]:
        """The notices; the same object until they change."""
        parts = self.person.notices, self._notices.lines(self.tree)
        if any(part is not known for part, known in zip(parts, self._parts, strict=True)):
            self._parts, self._joined = parts, (*parts[0], *parts[1])
        return self._joined

    @property
    def root(self) -> AgentState | None:
        """The root agent, once it has spawned."""
        return next((a for a in self.tree.agents.values() if not a.depth and a.task), None)

    @property
    def status(self) -> AgentStatus:
        """The run's status: its root's status until the run ends."""
        if self._end is not None:
            return self._end.status
        root = self.root
        if root is None:
            return AgentStatus.PENDING
        status = self.tree.status_of(root)
        return AgentStatus.RUNNING if status.is_terminal else status

    def _run_activity(self) -> str:
        if self.done:
            return ""
        if self._question is not None:
            return "new calls wait for an answer about the budget"
        if self.person.is_paused:
            return "no new call or tool starts"
        root = self.root
        if root is None:
            # While it waits for earlier messages of its thread, it has no event.
            return "starting" if self.tree.root_id else "waiting for its turn"
        is_stalled = root.agent_id in self._stalled
        return self.tree.describe(root, is_stalled=is_stalled, with_reports=True)


class _StatusCount:
    """The number of agents with each status, recounted only for changed agents.

    Counting a tree of 6,000 agents would take longer than everything else in a frame.
    """

    def __init__(self, tree: TreeFold) -> None:
        self.changed: set[str] = set()
        """Ids of the agents whose status may have changed since they were counted."""
        self._tree = tree
        self._known: dict[str, AgentStatus] = {}
        self._counts: Counter[AgentStatus] = Counter()

    def counts(self) -> Mapping[AgentStatus, int]:
        """The number of agents by status, without zeros."""
        tree, known, counts = self._tree, self._known, self._counts
        for agent_id in self.changed:
            status, before = tree.status_of(tree.agents[agent_id]), known.get(agent_id)
            if status is before:
                continue
            known[agent_id] = status
            counts[status] += 1
            if before is not None:
                counts[before] -= 1
        self.changed.clear()
        return +counts


def _open_tool(activity: Activity) -> ToolMark | None:
    """The mark of an open tool call: its name, its last report and when it began."""
    tool = activity.newest_tool
    if tool is None:
        return None
    said = visible(tool.said, LINE_LENGTH)
    return {"name": activity.tool_words, "said": said, "since": round(tool.since_s, TIME_DIGITS)}
