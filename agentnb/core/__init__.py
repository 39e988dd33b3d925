"""The orchestration core: a tree of agents, its budget, its events. Standard library only."""
