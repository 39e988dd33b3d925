-- The number of the first task that the root asks for; 0 in runs from before it was kept.
ALTER TABLE runs ADD COLUMN first_child INTEGER NOT NULL DEFAULT 0;

-- The error in closing the stream of a complete reply.
ALTER TABLE model_calls ADD COLUMN not_closed TEXT;

-- Place among the agent's tool calls in the order in which they ended; 0 while it is open.
ALTER TABLE tool_calls ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
