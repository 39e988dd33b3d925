"""A run that a person steers: its orders become events at once, and its questions are a test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentnb.core.errors import AgentEnded, NoOpenQuestion
from agentnb.core.events import AgentTold, QuestionAnswered, QuestionAsked, RunPaused, RunResumed
from agentnb.core.protocols import RunControls
from agentnb.core.questions import OPTIONS, Question
from agentnb.core.types import CancelReceipt
from agentnb.views.panel.commands import Commands
from agentnb.views.panel.frames import FramePublisher
from tests.views.panel.manual_run import ManualRun, id_of


class AskedRun(RunControls):
    """Publishes what a person's orders lead to; `given` has the orders."""

    def __init__(self, *, is_awaited: bool = True) -> None:
        self.run = ManualRun().began()
        self.given: list[tuple[Any, ...]] = []
        self._open: dict[str, Question] = {}
        self._asked = 0
        self.publisher = FramePublisher(
            self.run.bus,
            commands=lambda tell: Commands(self, _at_once, tell),
            is_awaited=lambda: is_awaited,
        )

    def asks(self, path: str, kind: str, text: str, value: Any = None) -> Question:
        """An agent asks."""
        self._asked += 1
        options = OPTIONS[kind]
        question = Question(
            f"q{self._asked}", kind, id_of(path), path, text, options, value, 20.0, 180.0
        )
        self._open[question.id] = question
        self.run.tell(
            QuestionAsked(
                agent_id=question.agent_id,
                question_id=question.id,
                question=kind,
                text=text,
                options=options,
                wait_s=180.0,
            )
        )
        return question

    def asks_to_call(self, agent: str, tool: str = "delete_file", **arguments: Any) -> Question:
        """An agent asks whether it may call a tool."""
        about = {"tool": tool, "arguments": arguments}
        return self.asks(agent, "approval", f"May agent {agent} call {tool}?", about)

    # -- controls -----------------------------------------------------------------------------

    def cancel(self, agent: str | None = None, reason: str | None = None) -> CancelReceipt:
        self.given.append(("cancel", agent))
        return CancelReceipt((), 0)

    def set_budget(self, total: int) -> None:
        self.given.append(("set_budget", total))

    def answer_budget(self, answer: str) -> None:
        self.given.append(("answer_budget", answer))

    def pause(self, agent: str | None = None) -> None:
        self.given.append(("pause", agent))
        self.run.tell(RunPaused(agent_id=None if agent is None else id_of(agent), by="panel"))

    def resume(self, agent: str | None = None) -> None:
        self.given.append(("resume", agent))
        self.run.tell(RunResumed(agent_id=None if agent is None else id_of(agent), by="panel"))

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(self._open.values())

    def answer(
        self, question_id: str, answer: str, *, value: Any = None, reason: str | None = None
    ) -> None:
        question = self._open.pop(question_id, None)
        if question is None:
            raise NoOpenQuestion(question_id, tuple(self._open))
        self.given.append(("answer", question_id, answer, value, reason))
        self.run.tell(
            QuestionAnswered(
                agent_id=question.agent_id,
                question_id=question_id,
                answer=answer,
                by="panel",
                reason=reason or "",
            )
        )

    def tell(self, agent: str, text: str) -> None:
        found = self.publisher.fold.tree.agent_at(agent)
        if found is None or found.status.is_terminal:
            raise AgentEnded(agent)
        self.given.append(("tell", agent, text))

    def reads(self, path: str, text: str) -> None:
        """An agent reads what a person said."""
        self.run.tell(AgentTold(agent_id=id_of(path), text=text, by="panel"))


def _at_once(function: Callable[[], object]) -> None:
    function()
