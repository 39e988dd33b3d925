"""The live boards of a session: its tasks, and its threads with their conversations.

A board is told what there is by a `BoardSource`, which knows the store and the session; it polls
that while a page shows it, and sends what changed. It looks like the panel of a run, with whose
parts it is built.
"""
