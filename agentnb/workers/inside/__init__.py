"""Runs in a worker's processes, never in the person's: none of it may be trusted by it.

`fork_server` starts one `guard` for each worker, and the guard starts the worker, `kernel`.
"""
