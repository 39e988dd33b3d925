-- A durable conversation; its id is its agent's. A session is the thread whose `session_id` is
-- its own id.
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
);

CREATE INDEX threads_by_session ON threads (session_id, created_at);

CREATE INDEX threads_by_parent ON threads (parent_id);

CREATE INDEX threads_by_origin ON threads (forked_from) WHERE forked_from IS NOT NULL;

CREATE INDEX threads_at_work ON threads (run_id) WHERE process IS NOT NULL;

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
);

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
);

CREATE INDEX tasks_by_agent ON tasks (assigned_to);

CREATE INDEX tasks_by_creator ON tasks (created_by);

CREATE TABLE task_notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES tasks (number) ON DELETE CASCADE,
    text TEXT NOT NULL,
    author TEXT REFERENCES threads (id) ON DELETE SET NULL,
    created_at REAL NOT NULL
);

CREATE INDEX task_notes_by_task ON task_notes (task);

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
);

CREATE INDEX agents_by_name ON agent_metadata (name);

CREATE INDEX agents_by_parent ON agent_metadata (parent_thread_id);

-- Waiting messages: to begin a run (`run`), or for the next turn of a running agent (`notice`).
-- A message that began a run stays until the run's end is in its thread.
CREATE TABLE queue (
    message INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    process INTEGER REFERENCES processes (id) ON DELETE SET NULL,   -- that will run it
    kind TEXT NOT NULL CHECK (kind IN ('run', 'notice')),
    task INTEGER REFERENCES tasks (number) ON DELETE SET NULL,
    pot TEXT,                           -- the run in whose budget its own run stands
    settings TEXT NOT NULL,             -- JSON: those that were given for its run
    run_id TEXT                         -- its run, once that has begun
);

CREATE INDEX queue_by_thread ON queue (thread_id, message);

CREATE INDEX runs_by_thread ON runs (thread_id);

CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL CHECK (trim(text) <> ''),
    source_agent_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    created_at REAL NOT NULL
);

-- The rest is the full-text index of the memories.
CREATE VIRTUAL TABLE memories_text USING fts5 (text, content='memories', content_rowid='id');

CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memories_text (rowid, text) VALUES (new.id, new.text);
END;

CREATE TRIGGER memories_deleted AFTER DELETE ON memories BEGIN
    INSERT INTO memories_text (memories_text, rowid, text)
    VALUES ('delete', old.id, old.text);
END;
