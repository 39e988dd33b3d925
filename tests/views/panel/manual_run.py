"""A run whose events and time a test controls."""

from __future__ import annotations

from typing import Any, Self

from agentnb.core.bus import EventBus
from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    AgentTextDelta,
    ModelCallFinished,
    ModelCallStarted,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallReported,
    ToolCallStarted,
)
from agentnb.core.types import AgentStatus, CompletionRequest, Usage, user_message
from agentnb.views.panel.wire import Frame
from tests.core.clock import ManualClock

ROOT = "nb_20261101_abcdef"


class ManualRun:
    """Publishes a run's events step by step."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = EventBus("run", clock=self.clock)

    def began(self, task: str = "the task", unit: str = "tokens") -> Self:
        began = RunStarted(
            task_description=task, model="m", budget_total=1000, max_depth=3, unit=unit
        )
        self.bus.publish(began)
        return self.spawned("root", task)

    def spawned(self, path: str, task: str = "a task", **how: Any) -> Self:
        parent = None if path == "root" else id_of(path.rpartition(".")[0] or "root")
        depth = 0 if path == "root" else path.count(".") + 1
        self.bus.publish(
            AgentSpawned(
                agent_id=id_of(path),
                parent_id=parent,
                task_description=task,
                depth=depth,
                model="m/one",
                **how,
            )
        )
        return self

    def called(self, path: str, said: str = "hello", **how: Any) -> Self:
        request = CompletionRequest(
            model="m/one", system="be brief", messages=(user_message(said),)
        )
        self.bus.publish(
            ModelCallStarted(agent_id=id_of(path), request=request, model="m/one", **how)
        )
        return self

    def said(self, path: str, text: str) -> Self:
        self.bus.publish(AgentTextDelta(agent_id=id_of(path), text=text))
        return self

    def replied(self, path: str, *, tokens: int = 100, **how: Any) -> Self:
        self.bus.publish(
            ModelCallFinished(
                agent_id=id_of(path),
                model="m/one",
                duration_ms=10,
                **{"usage": Usage(tokens, 0), "stop_reason": "end_turn", **how},
            )
        )
        return self

    def tool(self, path: str, tool_use_id: str, name: str = "look_up", **how: Any) -> Self:
        """A tool call begins."""
        started = ToolCallStarted(
            agent_id=id_of(path), tool_use_id=tool_use_id, name=name, **{"input": {}, **how}
        )
        return self.tell(started)

    def reported(self, path: str, tool_use_id: str, text: str, name: str = "look_up") -> Self:
        return self.tell(
            ToolCallReported(agent_id=id_of(path), tool_use_id=tool_use_id, name=name, text=text)
        )

    def tool_ended(self, path: str, tool_use_id: str, result: str = "found", **how: Any) -> Self:
        ended = ToolCallFinished(
            agent_id=id_of(path),
            tool_use_id=tool_use_id,
            name="look_up",
            result_summary=result[:200],
            result=result,
            **{"is_error": False, "duration_ms": 1200, **how},
        )
        return self.tell(ended)

    def completed(self, path: str, text: str = "done") -> Self:
        self.bus.publish(
            AgentCompleted(
                agent_id=id_of(path), result_summary=text, text=text, tokens_used=1, duration_ms=10
            )
        )
        return self

    def ended(self, status: AgentStatus = AgentStatus.COMPLETED, **how: Any) -> Self:
        self.bus.publish(RunFinished(status=status, tokens_used=1, duration_ms=10, **how))
        return self

    def tell(self, *events: Any) -> Self:
        for event in events:
            self.bus.publish(event)
        return self

    def after(self, seconds: float) -> Self:
        self.clock.advance(seconds)
        return self


def id_of(path: str) -> str:
    return ROOT if path == "root" else f"{ROOT}.{path}"


class Screen:
    """A view that keeps its frames, and the rows that a front end would have."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.is_read = False
        self.read = 0
        """Number of calls of `read_on`."""

    def show(self, frame: Frame) -> None:
        self.frames.append(frame)
        for path, fields in frame.rows.items():
            self.rows.setdefault(path, {}).update(fields)

    def read_on(self) -> None:
        self.read += 1

    def renew(self) -> None:
        pass
