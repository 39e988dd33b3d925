"""Stores runs in a SQLite file: see `docs/store.md`."""
