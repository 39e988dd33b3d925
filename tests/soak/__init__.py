"""Harnesses that run for minutes, by hand: `python -m tests.soak NAME`."""
