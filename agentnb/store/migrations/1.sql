-- A kernel, or any other process that wrote runs here.
CREATE TABLE processes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at REAL NOT NULL            -- seconds since 1970
);

-- Columns without a type hold whole numbers; one of more than 63 bits is text.
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
);

CREATE INDEX runs_by_time ON runs (started_at);

-- Each message, system prompt and list of tools of a run, once.
CREATE TABLE contents (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,            -- within its run, from 1
    kind TEXT NOT NULL,                 -- system, user, assistant: a text; message, tools: JSON
    body TEXT NOT NULL,
    PRIMARY KEY (run, number)
);

-- No text deltas: they are in the `pieces` of their call.
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
;

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
);

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
);

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
;

CREATE TABLE verdicts (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,                -- JSON
    PRIMARY KEY (run, path, number)
) WITHOUT ROWID
;

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
;
