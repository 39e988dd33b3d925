"""A person's orders and questions in a run, folded from its events.

These are pauses, questions with their answers, plans before agents start, and notes to agents. The
panel shows them in notes and notices; a run's outline and the saved outputs do not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentTold,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    RunPaused,
    RunResumed,
    SpawnPlanned,
    is_terminal,
)
from agentnb.core.questions import BUDGET
from agentnb.core.shown import counted
from agentnb.core.text import visible
from agentnb.core.types import ROOT_PATH
from agentnb.views.panel.clock import clock

PAUSED = "paused"
"""The `AgentWaiting.reason` of a held agent."""
HERE, ABOVE = "here", "above"
"""The place of the pause that holds an agent: the agent itself, or the run or a branch above."""

HEARD = frozenset(
    {
        *(RunPaused, RunResumed, QuestionAsked, QuestionAnswered, SpawnPlanned, AgentTold),
        *(RunFinished, AgentFailed, AgentCompleted, AgentCancelled, AgentExhausted),
        AgentInterrupted,
    }
)
"""Types of the events that `PersonFold` learns from: only few of a large map's events."""

_WHOLE_RUN = ""
_BY = {
    "panel": "in the panel",
    "code": "by code",
    "gate": "by your function",
    "limit": "no answer",
    "agent": "by an agent",
}


@dataclass(slots=True)
class _Pause:
    path: str
    """The top of the branch; empty for the whole run."""
    since_s: float
    until_s: float | None = None


class PersonFold:
    """Folds a person's part in a run. Feed each event once, in order."""

    def __init__(self) -> None:
        self.marks: list[float] = []
        """Times at which a person paused, resumed, was asked or answered."""
        self._asked: dict[str, QuestionAsked] = {}
        """The open questions, by id."""
        self._asking: Counter[str] = Counter()
        """By agent id: the number of its open questions."""
        self._notes: defaultdict[str, list[str]] = defaultdict(list)
        self._note_of: dict[str, int] = {}
        """By question id: the place of its note."""
        self._told: Counter[str] = Counter()
        self._pauses: list[_Pause] = []
        self._open_pauses: list[_Pause] = []
        self._notices: tuple[str, ...] = ()

    # -- in ---------------------------------------------------------------------------------------

    def learn(self, at_s: float, event: Event, path: str) -> bool:
        """Fold in an event.

        Args:
            at_s: The event's time, in seconds since the run began.
            event: Any event; events that are not `HEARD` change nothing.
            path: The path of its agent; empty for an event of the whole run.

        Returns:
            Whether other agents' rows may have changed, too.
        """
        match event:
            case RunPaused():
                self._pauses.append(_Pause(path, at_s))
                self._open_pauses.append(self._pauses[-1])
            case RunResumed():
                self._resume(path, at_s)
            case QuestionAsked():
                self._ask(event)
            case QuestionAnswered():
                self._answer(event)
            case SpawnPlanned():
                self._notes[event.agent_id].append(plan_words(event))
                return False
            case AgentTold():
                self._told[event.agent_id] += 1
                return False
            case RunFinished():
                self._resume(_WHOLE_RUN, at_s)
                self._asked.clear()
                self._asking.clear()
                return True
            case _ if is_terminal(event):
                self._end(path, at_s)
                return False
            case _:
                return False
        self.marks.append(round(at_s, 2))
        is_of_pauses = isinstance(event, RunPaused | RunResumed)
        if is_of_pauses:
            self._notices = tuple(_pause_words(pause) for pause in self._pauses)
        return is_of_pauses

    def _resume(self, path: str, at_s: float) -> None:
        self._over([p for p in self._open_pauses if _is_in(p.path, path)], at_s)

    def _end(self, path: str, at_s: float) -> None:
        """An agent has ended, and with it its pause, which has no event of its own."""
        if ended := [pause for pause in self._open_pauses if pause.path == path]:
            self._over(ended, at_s)

    def _over(self, pauses: Sequence[_Pause], at_s: float) -> None:
        for pause in pauses:
            pause.until_s = at_s
            self._open_pauses.remove(pause)
        self._notices = tuple(_pause_words(pause) for pause in self._pauses)

    def _ask(self, event: QuestionAsked) -> None:
        if event.question == BUDGET:  # the panel shows that question from its own events
            return
        self._asked[event.question_id] = event
        self._asking[event.agent_id] += 1
        notes = self._notes[event.agent_id]
        self._note_of[event.question_id] = len(notes)
        notes.append(f"asks: {event.text}")

    def _answer(self, event: QuestionAnswered) -> None:
        asked = self._asked.pop(event.question_id, None)
        if asked is None:
            return
        self._asking[event.agent_id] -= 1
        place = self._note_of.pop(event.question_id)
        self._notes[event.agent_id][place] = f"asked: {asked.text} {_answer_words(event)}"

    # -- out --------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the whole run is paused."""
        return any(pause.path in (_WHOLE_RUN, ROOT_PATH) for pause in self._open_pauses)

    @property
    def questions(self) -> int:
        """The number of open questions, without the budget's."""
        return len(self._asked)

    @property
    def notices(self) -> tuple[str, ...]:
        """One line per pause, oldest first."""
        return self._notices

    def paused(self, path: str) -> str:
        """Where a person's pause holds an agent: `HERE`, `ABOVE`, or empty if none does."""
        if not self._open_pauses:
            return ""
        tops = {pause.path for pause in self._open_pauses}
        if path in tops:
            return HERE
        return ABOVE if any(_is_below(path, top) for top in tops) else ""

    def asks(self, agent_id: str) -> bool:
        """Whether an agent waits for an answer."""
        return self._asking[agent_id] > 0

    def notes(self, agent_id: str) -> Sequence[str]:
        """An agent's questions and plans, oldest first."""
        return self._notes.get(agent_id, ())

    def told(self, agent_id: str) -> int:
        """The number of notes from persons that an agent has read."""
        return self._told[agent_id]


def _is_in(path: str, top: str) -> bool:
    return path == top or _is_below(path, top)


def _is_below(path: str, top: str) -> bool:
    """Whether an agent is below another one, or in the run for an empty `top`."""
    if top in (_WHOLE_RUN, ROOT_PATH):
        return path != top
    return path.startswith(f"{top}.")


def plan_words(plan: SpawnPlanned) -> str:
    """`plans 12 agents, at most 96,000 tokens, at most $0.80`."""
    cost = plan.estimated_cost_usd
    price = "price unknown" if cost is None else f"at most {_dollars(cost)}"
    agents, tokens = counted(len(plan.tasks), "agent"), counted(plan.estimated_tokens, "token")
    return f"plans {agents}, at most {tokens}, {price}"


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.1 or not amount else f"${amount:.4f}"


def _answer_words(event: QuestionAnswered) -> str:
    reason = f": {event.reason}" if event.reason else ""
    if event.answer == "ended":
        return f"(it ended before an answer{reason})"
    how = "" if event.value is None else f" {event.value}"
    return f"({event.answer}{how}, {_BY.get(event.by, event.by)}{reason})"


def _pause_words(pause: _Pause) -> str:
    whom = f" {visible(pause.path, 100)}" if pause.path else ""
    since = clock(pause.since_s)
    if pause.until_s is None:
        return f"Paused{whom} since {since} min: no new call or tool starts."
    return f"Paused{whom} from {since} to {clock(pause.until_s)} min."
