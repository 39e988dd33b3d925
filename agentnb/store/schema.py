"""The store's schema as numbered migrations, and the check that a file is ours.

`PRAGMA application_id` marks the file as ours, `PRAGMA user_version` is the number of its
migrations. A migration is never changed after its release: a file of any earlier version is updated
by the migrations that it lacks.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x41474E42  # "AGNB"

_FIRST = (
    # A kernel, or any other process that wrote runs here.
    """
    CREATE TABLE processes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        started_at REAL NOT NULL            -- seconds since 1970
    )
    """,
    # Columns without a type hold whole numbers; one of more than 63 bits is text.
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        thread_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        name TEXT NOT NULL,
        tags TEXT NOT NULL,                 -- JSON: [tag, …]
        task TEXT NOT NULL,
        model TEXT NOT NULL,
        budget_total NOT NULL,
        max_depth NOT NULL,
        settings TEXT NOT NULL,             -- JSON object
        started_at REAL NOT NULL,           -- seconds since 1970
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL,
        version TEXT NOT NULL,              -- of agentnb
        status TEXT,                        -- this and what follows: NULL until the run has ended
        error TEXT,
        agents INTEGER,
        tokens_used,
        usage TEXT,                         -- JSON: {model: a usage as in model_calls}
        duration_ms
    )
    """,
    "CREATE INDEX runs_by_time ON runs (started_at)",
    # Each message, system prompt and list of tools of a run, once.
    """
    CREATE TABLE contents (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,            -- within its run, from 1
        kind TEXT NOT NULL,                 -- system, user, assistant: a text; message, tools: JSON
        body TEXT NOT NULL,
        PRIMARY KEY (run, number)
    )
    """,
    # No text deltas: they are in the `pieces` of their call.
    """
    CREATE TABLE events (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        at_s REAL NOT NULL,
        kind TEXT NOT NULL,
        path TEXT,                          -- the agent's; NULL for an event of the run
        number INTEGER,                     -- of the record that has the rest of its fields
        body TEXT,                          -- JSON: the fields that no record has
        PRIMARY KEY (run, seq)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE model_calls (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        key TEXT NOT NULL,
        model TEXT NOT NULL,
        is_synthesis INTEGER NOT NULL,
        request TEXT NOT NULL,              -- JSON: numbers of contents, see agentnb.store.reader
        at_s REAL NOT NULL,
        status TEXT NOT NULL,               -- started, finished
        text TEXT,                          -- the reply's text so far
        pieces BLOB,                        -- the text deltas: lengths, times, seqs
        message TEXT,                       -- JSON; `true` if it is the text and nothing else
        stop_reason TEXT,
        usage TEXT,                         -- JSON: [input, output, cache creation, cache read]
        error TEXT,                         -- JSON
        duration_ms,
        estimate_error NOT NULL,
        PRIMARY KEY (run, path, number)
    )
    """,
    """
    CREATE TABLE tool_calls (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,
        agent_id TEXT NOT NULL,
        tool_use_id TEXT NOT NULL,
        name TEXT NOT NULL,
        input TEXT NOT NULL,                -- JSON object, whole
        effects INTEGER NOT NULL,
        at_s REAL NOT NULL,
        status TEXT NOT NULL,               -- started, finished
        result TEXT,                        -- whole
        is_error INTEGER NOT NULL,
        duration_ms,
        PRIMARY KEY (run, path, number)
    )
    """,
    """
    CREATE TABLE orders (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        place INTEGER NOT NULL,             -- in the order in which they were heard, from 1
        kind TEXT NOT NULL,
        by TEXT NOT NULL,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,            -- of the newest call
        at_s REAL NOT NULL,
        value TEXT NOT NULL,                -- JSON
        PRIMARY KEY (run, place)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE verdicts (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        value TEXT NOT NULL,                -- JSON
        PRIMARY KEY (run, path, number)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE ends (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        place INTEGER NOT NULL,             -- in the order in which the agents ended, from 1
        path TEXT,                          -- the agent's; NULL for the run
        attempt INTEGER NOT NULL,
        status TEXT NOT NULL,
        text TEXT,                          -- NULL: a part of the text of the agent's call
        number INTEGER,                     -- the number of that call
        first INTEGER,                      -- the part's first character, from 0; NULL: all of it
        length INTEGER,                     -- how many characters
        error TEXT,
        cut INTEGER NOT NULL,
        tokens_used NOT NULL,
        duration_ms NOT NULL,
        at_s REAL NOT NULL,
        by TEXT NOT NULL,                   -- who cancelled it; empty if nobody did
        PRIMARY KEY (run, place)
    ) WITHOUT ROWID
    """,
)

_SECOND = (
    # A durable conversation; its id is its agent's. A session is the thread whose `session_id` is
    # its own id.
    """
    CREATE TABLE threads (
        id TEXT PRIMARY KEY,
        session_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        parent_id TEXT REFERENCES threads (id) ON DELETE CASCADE,
        forked_from TEXT REFERENCES threads (id) ON DELETE SET NULL,
        next_child INTEGER NOT NULL DEFAULT 1 CHECK (next_child >= 1),
        next_task INTEGER NOT NULL DEFAULT 1 CHECK (next_task >= 1),    -- of a session
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL,   -- that is at work on it
        run_id TEXT,                        -- of its newest run
        title TEXT NOT NULL DEFAULT '',     -- the beginning of its first message
        created_at REAL NOT NULL            -- seconds since 1970, as all times here
    )
    """,
    "CREATE INDEX threads_by_session ON threads (session_id, created_at)",
    "CREATE INDEX threads_by_parent ON threads (parent_id)",
    "CREATE INDEX threads_by_origin ON threads (forked_from) WHERE forked_from IS NOT NULL",
    "CREATE INDEX threads_at_work ON threads (run_id) WHERE process IS NOT NULL",
    """
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        place INTEGER CHECK (place >= 1),   -- in the conversation; NULL while it is queued
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        kind TEXT NOT NULL
            CHECK (kind IN ('message', 'task_assignment', 'task_completion', 'note')),
        content TEXT NOT NULL,
        author TEXT,                        -- an agent's thread
        run_id TEXT,
        created_at REAL NOT NULL,
        UNIQUE (thread_id, place)
    )
    """,
    """
    CREATE TABLE tasks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        id TEXT NOT NULL,
        title TEXT NOT NULL CHECK (trim(title) <> ''),
        prompt TEXT NOT NULL,
        status TEXT NOT NULL
            CHECK (status IN ('pending', 'in_progress', 'completed', 'blocked', 'archived')),
        priority TEXT NOT NULL CHECK (priority IN ('high', 'medium', 'low')),
        assigned_to TEXT REFERENCES threads (id) ON DELETE SET NULL,
        created_by TEXT REFERENCES threads (id) ON DELETE SET NULL,
        pot TEXT,                           -- the run in whose budget the work on it stands
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        UNIQUE (session_id, id)
    )
    """,
    "CREATE INDEX tasks_by_agent ON tasks (assigned_to)",
    "CREATE INDEX tasks_by_creator ON tasks (created_by)",
    """
    CREATE TABLE task_notes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        task INTEGER NOT NULL REFERENCES tasks (number) ON DELETE CASCADE,
        text TEXT NOT NULL,
        author TEXT REFERENCES threads (id) ON DELETE SET NULL,
        created_at REAL NOT NULL
    )
    """,
    "CREATE INDEX task_notes_by_task ON task_notes (task)",
    """
    CREATE TABLE agent_metadata (
        thread_id TEXT PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        profile TEXT NOT NULL DEFAULT '',
        kind TEXT NOT NULL CHECK (kind IN ('persistent', 'ephemeral')),
        created_for_task INTEGER REFERENCES tasks (number) ON DELETE SET NULL,
        parent_thread_id TEXT REFERENCES threads (id) ON DELETE SET NULL,
        current_task TEXT,
        created_at REAL NOT NULL
    )
    """,
    "CREATE INDEX agents_by_name ON agent_metadata (name)",
    "CREATE INDEX agents_by_parent ON agent_metadata (parent_thread_id)",
    # Waiting messages: to begin a run (`run`), or for the next turn of a running agent (`notice`).
    # A message that began a run stays until the run's end is in its thread.
    """
    CREATE TABLE queue (
        message INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
        thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL,   -- that will run it
        kind TEXT NOT NULL CHECK (kind IN ('run', 'notice')),
        task INTEGER REFERENCES tasks (number) ON DELETE SET NULL,
        pot TEXT,                           -- the run in whose budget its own run stands
        settings TEXT NOT NULL,             -- JSON: those that were given for its run
        run_id TEXT                         -- its run, once that has begun
    )
    """,
    "CREATE INDEX queue_by_thread ON queue (thread_id, message)",
    "CREATE INDEX runs_by_thread ON runs (thread_id)",
    """
    CREATE TABLE memories (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        text TEXT NOT NULL CHECK (trim(text) <> ''),
        source_agent_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        created_at REAL NOT NULL
    )
    """,
    # The rest is the full-text index of the memories.
    "CREATE VIRTUAL TABLE memories_text USING fts5 (text, content='memories', content_rowid='id')",
    """
    CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
        INSERT INTO memories_text (rowid, text) VALUES (new.id, new.text);
    END
    """,
    """
    CREATE TRIGGER memories_deleted AFTER DELETE ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, text)
        VALUES ('delete', old.id, old.text);
    END
    """,
)

_THIRD = (
    # Marks of the tasks that led to it (`agentnb.core.cycles.mark`), as JSON.
    "ALTER TABLE tasks ADD COLUMN above TEXT NOT NULL DEFAULT '[]'",
    "CREATE INDEX threads_by_process ON threads (process) WHERE process IS NOT NULL",
    # The process that last used the budget of a run that has assigned tasks, or one below it. Only
    # the topmost run of each chain is here.
    """
    CREATE TABLE pots (
        run_id TEXT PRIMARY KEY,
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL
    ) WITHOUT ROWID
    """,
)

_FOURTH = (
    # The number of the first task that the root asks for; 0 in runs from before it was kept.
    "ALTER TABLE runs ADD COLUMN first_child INTEGER NOT NULL DEFAULT 0",
    # The error in closing the stream of a complete reply.
    "ALTER TABLE model_calls ADD COLUMN not_closed TEXT",
    # Place among the agent's tool calls in the order in which they ended; 0 while it is open.
    "ALTER TABLE tool_calls ADD COLUMN ended INTEGER NOT NULL DEFAULT 0",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD, _FOURTH)
"""The statements of each migration."""

VERSION = len(MIGRATIONS)
"""The version that this code reads and writes."""


class NotOurs(ValueError):
    """A database that this code must not touch. The message is a clause."""


def version_of(db: sqlite3.Connection) -> int:
    """The number of migrations of a file; 0 for an empty one. Changes nothing.

    Raises:
        NotOurs: It is another program's database, or of a newer version.
        sqlite3.Error: It is not a database, or damaged.
    """
    # In one transaction: another process may be creating the file right now.
    is_own = not db.in_transaction
    if is_own:
        db.execute("BEGIN")
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        if is_own:
            db.execute("COMMIT")
    if application != APPLICATION_ID and (application or version or tables):
        raise NotOurs("it is another program's database")
    if version > VERSION:
        raise NotOurs(
            f"a newer agentnb wrote it (its schema is {version}, and this one knows {VERSION})"
        )
    return int(version)


def _is_of_search(statement: str) -> bool:
    return "memories_text" in statement


def _has_search(db: sqlite3.Connection) -> bool:
    """Whether this SQLite has full-text search (FTS5)."""
    found = db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone()
    return found is not None


def migrate(db: sqlite3.Connection, *, needs_search: bool = True) -> None:
    """Update a file in one transaction. Another process may do so at the same time.

    Args:
        db: A connection that is not in a transaction.
        needs_search: Whether an SQLite without full-text search is an error; if not, the file then
            has no full-text search.
    """
    if version_of(db) == VERSION:
        return
    db.execute("BEGIN")
    try:
        # Must come before the first table; pruning can then free space without rewriting the file.
        # In the transaction, since others would else see a file with a page and without a version.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # locks the file
        for number, statements in enumerate(MIGRATIONS[version_of(db) :], version_of(db) + 1):
            for statement in statements:
                if needs_search or not _is_of_search(statement) or _has_search(db):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
