"""One run of one tree: its agents, their jobs, and what it comes to. For the core alone."""
