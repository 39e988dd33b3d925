"""Stores with runs in them, written row by row, without a kernel."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

NOW = 1_795_000_000.0
"""When the runs begin unless a test says otherwise, in seconds since 1970."""


def add_run(
    db: sqlite3.Connection,
    run_id: str,
    *,
    process: int | None = None,
    tags: Sequence[str] = (),
    usage: Mapping[str, Sequence[int]] | None = None,
    **columns: Any,
) -> int:
    """Add a run, which has ended if `status` is given; return its number."""
    if process is not None:
        db.execute("INSERT OR IGNORE INTO processes VALUES (?, 'host', 1, 0)", (process,))
    row = {
        "run_id": run_id,
        "thread_id": f"thread of {run_id}",
        "session_id": "session",
        "name": "",
        "tags": json.dumps(tags),
        "task": "Compare A and B",
        "model": "demo/small",
        "budget_total": 50_000,
        "max_depth": 3,
        "settings": "{}",
        "started_at": NOW,
        "process": process,
        "version": "1",
        "usage": None if usage is None else json.dumps(usage),
        **columns,
    }
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    return db.execute(f"INSERT INTO runs ({names}) VALUES ({values})", row).lastrowid or 0


def add_call(
    db: sqlite3.Connection,
    run: int,
    path: str,
    number: int = 1,
    *,
    at_s: float = 0.0,
    duration_ms: int | None = None,
    usage: Sequence[int] | None = None,
    model: str = "demo/small",
    text: str = "",
) -> None:
    """Add a model call, which is open without `usage`."""
    db.execute(
        "INSERT INTO model_calls (run, path, number, attempt, key, model, is_synthesis, request, "
        "at_s, status, text, usage, duration_ms, estimate_error) "
        "VALUES (?, ?, ?, 1, 'k', ?, 0, '[]', ?, ?, ?, ?, ?, 0)",
        (
            run,
            path,
            number,
            model,
            at_s,
            "started" if usage is None else "finished",
            text,
            None if usage is None else json.dumps(usage),
            duration_ms,
        ),
    )


def add_event(
    db: sqlite3.Connection, run: int, seq: int, kind: str, path: str | None, at_s: float = 0.0
) -> None:
    db.execute(
        "INSERT INTO events (run, seq, at_s, kind, path) VALUES (?, ?, ?, ?, ?)",
        (run, seq, at_s, kind, path),
    )


def add_end(
    db: sqlite3.Connection,
    run: int,
    place: int,
    path: str | None,
    *,
    status: str = "completed",
    text: str | None = None,
) -> None:
    db.execute(
        "INSERT INTO ends "
        "(run, place, path, attempt, status, text, cut, tokens_used, duration_ms, at_s, by) "
        "VALUES (?, ?, ?, 1, ?, ?, 0, 0, 0, 0, '')",
        (run, place, path, status, text),
    )
