"""Calls and tools on the workers of a Dask cluster.

`engine.py` has the engine that a session uses: an attempt's turns are taken in the session's
process, as without a cluster; the calls and tools of a turn run on a worker. `connection.py` talks
to one worker, `host.py` is the other end in the worker's process, and `wire.py` has the messages.
"""
