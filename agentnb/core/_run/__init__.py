"""One run of one tree: its agents, their jobs, its result. Private to the core."""
