-- Marks of the tasks that led to it (`agentnb.core.cycles.mark`), as JSON.
ALTER TABLE tasks ADD COLUMN above TEXT NOT NULL DEFAULT '[]';

CREATE INDEX threads_by_process ON threads (process) WHERE process IS NOT NULL;

-- The process that last used the budget of a run that has assigned tasks, or one below it. Only
-- the topmost run of each chain is here.
CREATE TABLE pots (
    run_id TEXT PRIMARY KEY,
    process INTEGER REFERENCES processes (id) ON DELETE SET NULL
) WITHOUT ROWID
;
