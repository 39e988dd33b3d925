"""Tasks that people and agents give to persistent agents, and the threads of these agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentnb.core.durable import Priority, Task, TaskList, TaskNote, TaskStatus
from agentnb.tasks.wording import format_task_assignment, format_task_completion

if TYPE_CHECKING:
    from agentnb.tasks.board import Tasks

__all__ = [
    "Priority",
    "Task",
    "TaskList",
    "TaskNote",
    "TaskStatus",
    "Tasks",
    "format_task_assignment",
    "format_task_completion",
]


def __getattr__(name: str) -> Any:
    if name != "Tasks":  # loads SQLite
        raise AttributeError(f"module 'agentnb.tasks' has no attribute {name!r}")
    return import_module("agentnb.tasks.board").Tasks
