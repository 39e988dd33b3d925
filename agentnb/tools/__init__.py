"""Tools: the user's functions, the run's workspace, memories, and delegation.

A tool is any object with `spec` and `call` (`agentnb.core.protocols.Tool`). pydantic is imported
when the first tool is made, not before.
"""
