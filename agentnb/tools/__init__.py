"""Tools that are made here: a person's own functions, and the run's workspace.

What a model may call is anything with `spec` and `call` (`agentnb.core.protocols.Tool`). pydantic
is loaded when the first tool is made, not before.
"""
