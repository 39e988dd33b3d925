"""The end of a thread's conversation, for live views, which read it often and only in part.

All functions work within their caller's transaction (`agentnb.store.transactions`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from agentnb.core.durable import MessageKind
from agentnb.core.types import ROOT_PATH, Role

if TYPE_CHECKING:
    from sqlite3 import Connection


class MessageRow(NamedTuple):
    """A message as it is stored."""

    id: int
    role: Role
    content: str
    kind: MessageKind
    author: str | None
    run_id: str | None
    is_queued: bool


def state_of(db: Connection, thread_id: str) -> tuple[object, ...]:
    """A value that differs after any change of a conversation, or of the process that runs it."""
    messages = db.execute(
        "SELECT count(*), max(id), count(place), count(run_id) FROM messages WHERE thread_id = ?",
        (thread_id,),
    ).fetchone()
    thread = db.execute("SELECT process, run_id FROM threads WHERE id = ?", (thread_id,)).fetchone()
    queued = db.execute("SELECT count(*) FROM queue WHERE thread_id = ?", (thread_id,)).fetchone()
    return *messages, thread, *queued


def newest_messages(db: Connection, thread_id: str, most: int) -> list[MessageRow]:
    """The newest messages of a thread in order, the queued ones last."""
    found = db.execute(
        "SELECT id, role, content, kind, author, run_id, place IS NULL FROM messages "
        "WHERE thread_id = ? ORDER BY place IS NULL DESC, place DESC, id DESC LIMIT ?",
        (thread_id, most),
    ).fetchall()
    return [
        MessageRow(number, Role(role), content, MessageKind(kind), author, run_id, bool(is_queued))
        for number, role, content, kind, author, run_id, is_queued in reversed(found)
    ]


def count_messages(db: Connection, thread_id: str) -> int:
    """The number of messages of a thread, including queued ones."""
    found = db.execute("SELECT count(*) FROM messages WHERE thread_id = ?", (thread_id,))
    return int(found.fetchone()[0])


def tool_counts(db: Connection, run_ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """By run: the number of its root's tool calls, and how many of them were errors."""
    marks = ", ".join("?" * len(run_ids))
    found = db.execute(
        "SELECT runs.run_id, count(*), sum(is_error) FROM runs JOIN tool_calls "
        f"ON tool_calls.run = runs.id AND tool_calls.path = ? WHERE runs.run_id IN ({marks}) "
        "GROUP BY runs.run_id",
        (ROOT_PATH, *run_ids),
    )
    return {run_id: (calls, errors) for run_id, calls, errors in found}
