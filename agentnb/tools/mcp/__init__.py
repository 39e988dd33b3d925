"""Tools of MCP servers: programs of others that this process starts, or that it reaches by HTTP.

`server` says which server; `pool` has those of a session, and what one run sees of them; `owner`
keeps one server connected; `process` and `transport` carry its messages, `listing` mends its lists
of tools; `tool` and `result` make of its tools and its answers what a model gets. The MCP SDK is
imported when the first server is connected, never before.
"""
