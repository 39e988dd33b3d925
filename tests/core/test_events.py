"""The union of events is closed, and each is told apart by the snake_case of its name."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
import typing
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from agentnb.core import events
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentSpawned,
    Entry,
    Event,
    RunFinished,
    TerminalEvent,
    is_terminal,
)
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    MediaBlock,
    SpawnMode,
    Usage,
    user_message,
)

CLASSES = [
    cls
    for _, cls in inspect.getmembers(events, dataclasses.is_dataclass)
    if isinstance(cls, type) and cls.__module__ == events.__name__ and cls is not Entry
]
BY_TYPE: dict[str, Any] = {
    "str": "text",
    "str | None": "text",
    "int": 1,
    "int | None": 1,
    "float": 1.5,
    "float | None": 1.5,
    "bool": True,
    "Any": {"k": [1]},
    "AgentStatus": AgentStatus.COMPLETED,
    "SpawnMode | None": None,
    "SpawnMode": SpawnMode.SEQUENTIAL,
    "Usage": Usage(1, 2),
    "Message | None": user_message("u"),
    "CompletionRequest": CompletionRequest("m", "s", (user_message("u"),)),
    "tuple[str, ...]": ("a", "b"),
    "tuple[int, ...]": (1, 2),
    "tuple[MediaBlock, ...]": (MediaBlock("image/png", "aGVsbG8=", "hello.png").named(),),
}


def made(cls: type) -> Event:
    """One event of a class, every field set."""
    fields = [f for f in dataclasses.fields(cls) if f.name != "kind"]
    event: Event = cls(**{f.name: BY_TYPE[str(f.type)] for f in fields})
    return event


def test_every_event_class_is_in_the_union() -> None:
    assert set(typing.get_args(Event)) == set(CLASSES)
    assert len(CLASSES) == 34


@pytest.mark.parametrize("cls", CLASSES)
def test_kind_is_the_name_in_snake_case_and_nothing_else_can_be(cls: type) -> None:
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    assert typing.get_args(typing.get_type_hints(cls)["kind"]) == (kind,)
    assert made(cls).kind == kind


@pytest.mark.parametrize("cls", CLASSES)
def test_event_is_frozen_named_by_field_and_survives_the_way_to_another_process(cls: type) -> None:
    event = made(cls)

    for field in dataclasses.fields(cls):
        assert field.kw_only
        with pytest.raises(FrozenInstanceError):
            setattr(event, field.name, None)
    assert not hasattr(event, "__dict__")
    assert pickle.loads(pickle.dumps(event)) == event


@pytest.mark.parametrize("cls", CLASSES)
def test_field_of_an_event_has_a_name_from_the_contract(cls: type) -> None:
    own = {
        "by", "kind", "message", "model", "mode", "cut", "status", "request", "usage",
        "stop_reason", "name",
        "input", "is_error", "is_synthesis", "tool_use_id", "estimate_error", "previous_total",
        "tasks", "input_length", "result", "result_length", "job_id", "profile",
        "thread_id", "number", "numbers", "limit", "value", "memory_id", "created_at", "recovered",
        "question_id", "question", "options", "answer", "estimated_tokens", "estimated_cost_usd",
        "typed", "unit", "media",
    }  # fmt: skip
    shared = {
        "agent_id", "parent_id", "task_description", "depth", "index", "total", "text",
        "result_summary", "tokens_used", "duration_ms", "error", "will_retry", "reason",
        "budget_total", "percentage", "completed_agents", "incomplete_agents",
        "attempted_depth", "max_depth", "cycle_description", "fact", "from_provider",
        "to_provider", "wait_s", "attempt", "unit",
    }  # fmt: skip
    assert {f.name for f in dataclasses.fields(cls)} <= own | shared


def test_what_ends_an_agent_is_terminal_and_nothing_else() -> None:
    terminal = {AgentCompleted, AgentCancelled, AgentExhausted, AgentInterrupted, AgentFailed}

    assert set(typing.get_args(TerminalEvent)) == terminal
    for cls in set(CLASSES) - {AgentFailed}:
        assert is_terminal(made(cls)) == (cls in terminal), cls


def test_failed_attempt_is_terminal_only_when_it_is_not_tried_again() -> None:
    def failed(will_retry: bool) -> AgentFailed:
        return AgentFailed(agent_id="a", error="e", will_retry=will_retry, attempt=1)

    assert is_terminal(failed(False))
    assert not is_terminal(failed(True))


def test_entry_is_a_plain_value_too() -> None:
    event = RunFinished(status=AgentStatus.COMPLETED, tokens_used=0, duration_ms=0)
    entry = Entry("run", 3, 0.5, event)

    assert entry.seq_first is None
    assert pickle.loads(pickle.dumps(entry)) == entry
    with pytest.raises(FrozenInstanceError):
        entry.seq = 4  # type: ignore[misc]


def test_root_is_spawned_without_a_parent() -> None:
    event = AgentSpawned(agent_id="a", parent_id=None, task_description="t", depth=0)
    assert (event.index, event.total, event.mode) == (0, 1, None)
