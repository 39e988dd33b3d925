"""The live boards of a session: its tasks, and its threads with their conversations.

A board reads a `BoardSource`, which knows the store and the session: it polls the source while a
page shows the board, and sends what changed. It looks like the panel of a run and is built of the
same parts.
"""
