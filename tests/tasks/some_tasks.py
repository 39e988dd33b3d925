"""Tasks as values, for tests of words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from agentnb.core.durable import Priority, Task, TaskNote, TaskStatus

SESSION = "nb_20261123_k3x9aa"
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def some_task(notes: Sequence[str] = (), **fields: Any) -> Task:
    given = {
        "id": "t1",
        "title": "Compare",
        "prompt": "Compare the two.",
        "status": TaskStatus.PENDING,
        "priority": Priority.HIGH,
        "assigned_to": None,
        "created_by": None,
        "thread": SESSION,
        "created_at": NOON,
        "updated_at": NOON,
    }
    made = tuple(TaskNote(text, None, NOON) for text in notes)
    return Task(**{**given, **fields}, notes=made)
