"""Checks that a release must pass, run by hand: `python -m tests.release NAME`."""
