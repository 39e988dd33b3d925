"""The memories of agents in a store, shared by all its runs and sessions.

All functions work within their caller's transaction (`agentnb.store.transactions`). A query is
words, never FTS5 syntax.
"""

from __future__ import annotations

import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from agentnb.core.durable import MemoryEntry, MemoryList
from agentnb.core.secrets import known_secrets
from agentnb.core.text import sendable

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.store.transactions import Transactions

MOST_WORDS = 256
"""Most words of a query that are searched for, from its beginning."""
_ENTRY = "m.text, m.source_agent_id, m.run_id, m.created_at, m.id"
_Row = tuple[str, str, str, float, int]


def add_memory(
    db: Connection, text: str, *, source_agent_id: str, run_id: str, now: float
) -> MemoryEntry:
    """Store a text with secrets masked, and return what was stored.

    Args:
        db: A connection in a transaction.
        text: The text, not blank.
        source_agent_id: The agent that stores it.
        run_id: The agent's run.
        now: The time in seconds since 1970.
    """
    text = known_secrets().mask(sendable(text))
    number = db.execute(
        "INSERT INTO memories (text, source_agent_id, run_id, created_at) VALUES (?, ?, ?, ?)",
        (text, source_agent_id, run_id, now),
    ).lastrowid
    assert number is not None
    return _entry((text, source_agent_id, run_id, now, number))


def search_memories(db: Connection, query: str, limit: int) -> MemoryList:
    """The memories that contain any word of a query, each text once.

    Memories with more and rarer words of the query come first; of equal ones, the newest.

    Args:
        db: A connection.
        query: The words; without any, nothing is found.
        limit: The most memories to return.
    """
    found_words = re.findall(r"\w+", unicodedata.normalize("NFC", query))
    words = {word.casefold(): word for word in found_words}
    if not words:
        return MemoryList()
    found = db.execute(
        f"SELECT {_ENTRY} FROM memories_text JOIN memories m ON m.id = memories_text.rowid "
        "WHERE memories_text MATCH ? ORDER BY bm25(memories_text), m.id DESC",
        (" OR ".join(f'"{word}"' for word in islice(words.values(), MOST_WORDS)),),
    )
    return MemoryList(islice(_each_text_once(map(_entry, found)), min(limit, sys.maxsize)))


def list_memories(db: Connection) -> MemoryList:
    """All memories, newest first."""
    return MemoryList(
        map(_entry, db.execute(f"SELECT {_ENTRY} FROM memories m ORDER BY m.id DESC"))
    )


def delete_memory(db: Connection, number: int) -> bool:
    """Delete a memory, so that its text is not left anywhere in the tables of memories.

    Returns:
        False if no memory has this number.
    """
    if number >= 2**63:  # SQLite has no such numbers
        return False
    (before,) = db.execute("PRAGMA secure_delete").fetchone()
    db.execute("PRAGMA secure_delete = ON").fetchall()  # overwrite what is deleted
    try:
        deleted = db.execute("DELETE FROM memories WHERE id = ?", (number,)).rowcount
        if deleted:  # the index keeps words of deleted texts until it is rebuilt
            db.execute("INSERT INTO memories_text (memories_text) VALUES ('optimize')")
    finally:
        db.execute(f"PRAGMA secure_delete = {before}").fetchall()
    return bool(deleted)


def _entry(row: _Row) -> MemoryEntry:
    text, source_agent_id, run_id, created_at, number = row
    made_at = datetime.fromtimestamp(created_at, UTC)
    return MemoryEntry(text, source_agent_id, run_id, made_at, number)


def _each_text_once(memories: Iterable[MemoryEntry]) -> Iterator[MemoryEntry]:
    seen: set[str] = set()
    for memory in memories:
        if memory.text not in seen:
            seen.add(memory.text)
            yield memory


class StoredMemories:
    """Implements `agentnb.core.protocols.MemoryKeeper` over a store.

    Args:
        transactions: Returns the store's database; called when it is first needed.
    """

    def __init__(self, transactions: Callable[[], Transactions]) -> None:
        self._transactions = transactions

    async def remember(self, agent_id: str, run_id: str, fact: str) -> MemoryEntry:
        """See `MemoryKeeper`."""
        add = partial(
            add_memory, text=fact, source_agent_id=agent_id, run_id=run_id, now=time.time()
        )
        return await self._transactions().done(add)

    async def recall(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        """See `MemoryKeeper`."""
        return await self._transactions().done(
            lambda db: search_memories(db, query, limit),
        )
