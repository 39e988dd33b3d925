"""The rows of one transaction: collected, cleared of secrets, and written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

from agentnb.core.secrets import Secrets

Values = tuple[Any, ...]

_COLUMNS = {
    "contents": "run, number, kind, body",
    "model_calls": (
        "run, path, number, attempt, key, model, is_synthesis, request, at_s, status, text, pieces,"
        " message, stop_reason, usage, error, duration_ms, estimate_error, not_closed"
    ),
    "events": "run, seq, at_s, kind, path, number, body",
    "tool_calls": (
        "run, path, number, agent_id, tool_use_id, name, input, effects, at_s, status, result,"
        " is_error, duration_ms, ended"
    ),
    "orders": "run, place, kind, by, path, number, at_s, value",
    "verdicts": "run, path, number, kind, value",
    "ends": (
        "run, place, path, attempt, status, text, number, first, length, error, cut, tokens_used,"
        " duration_ms, at_s, by"
    ),
}
_REPLACED = ("model_calls", "tool_calls", "verdicts")
"""Tables whose rows are written again when more is known."""
_AT_ONCE = 32
"""Rows per statement: each statement releases the interpreter's lock and waits for it again."""


def _statements() -> Iterator[tuple[str, str, str]]:
    """For each table a statement for one row, and one for `_AT_ONCE`."""
    for table, columns in _COLUMNS.items():
        verb = "INSERT OR REPLACE" if table in _REPLACED else "INSERT"
        row = f"({', '.join('?' * (columns.count(',') + 1))})"
        head = f"{verb} INTO {table} ({columns}) VALUES "
        yield table, head + row, head + ", ".join([row] * _AT_ONCE)


_INSERTS = tuple(_statements())
_REPLY = (
    "UPDATE model_calls SET status = ?, text = ?, pieces = ?, message = ?, stop_reason = ?,"
    " usage = ?, error = ?, duration_ms = ?, estimate_error = ?, not_closed = ?"
    " WHERE run = ? AND path = ? AND number = ?"
)
_END_OF_RUN = (
    "UPDATE runs SET status = ?, error = ?, agents = ?, tokens_used = ?, usage = ?,"
    " duration_ms = ? WHERE id = ?"
)

_REPLACED_RUN = (
    *[f"DELETE FROM {table} WHERE run = :run" for table in _COLUMNS],
    "UPDATE runs SET model = :model, budget_total = :budget, max_depth = :depth,"
    " settings = :settings, version = :version, status = NULL, error = NULL, agents = NULL,"
    " tokens_used = NULL, usage = NULL, duration_ms = NULL WHERE id = :run",
)
"""Statements that remove everything of a run before it is written again. Its row stays, with what
lists need."""

_TEXTS: Mapping[str, itemgetter[Any]] = {
    "contents": itemgetter(3),
    "model_calls": itemgetter(5, 7, 10, 12, 13, 15, 18),
    "replies": itemgetter(1, 3, 4, 6, 9),
    "events": itemgetter(6),
    "tool_calls": itemgetter(3, 4, 5, 6, 10),
    "orders": itemgetter(2, 3, 7),
    "verdicts": itemgetter(3, 4),
    "ends": itemgetter(5, 9),
    "runs": itemgetter(1, 4),
    "replaced": itemgetter(0, 3, 4),
}
"""The columns that may contain text of a person or a model."""
_ONE_TEXT = ("contents", "events")


class Rows:
    """The rows that one transaction writes.

    Args:
        secrets: The secrets to mask.
    """

    __slots__ = (*_TEXTS, "secrets")

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self.contents: list[Values] = []
        self.events: list[Values] = []
        self.model_calls: list[Values] = []
        self.replies: list[Values] = []
        self.tool_calls: list[Values] = []
        self.orders: list[Values] = []
        self.verdicts: list[Values] = []
        self.ends: list[Values] = []
        self.runs: list[Values] = []
        self.replaced: list[Values] = []
        """For each run that is written again: model, budget, depth, settings, version, run."""

    def seal(self) -> None:
        """Mask the secrets in all texts, and make each text one that SQLite can store.

        Nearly always there is nothing to do, which one check of all texts together shows.
        """
        texts: list[str] = []
        for name, found_in in _TEXTS.items():
            found = map(found_in, getattr(self, name))
            every = found if name in _ONE_TEXT else chain.from_iterable(found)
            texts += [each for each in every if type(each) is str]  # not the bytes of files
        text = "\n".join(texts)
        if self.secrets.mask(text) is not text or not _is_unicode(text):
            for name in _TEXTS:
                rows: list[Values] = getattr(self, name)
                rows[:] = [sealed(row, self.secrets) for row in rows]

    def drop(self, run: int) -> None:
        """Leave out the rows of a run."""
        for name in _TEXTS:
            place = {"replies": -3, "runs": -1, "replaced": -1}.get(name, 0)
            rows: list[Values] = getattr(self, name)
            rows[:] = [row for row in rows if row[place] != run]

    def write(self, db: sqlite3.Connection) -> None:
        """Execute the statements."""
        for values in self.replaced:
            names = ("model", "budget", "depth", "settings", "version", "run")
            for statement in _REPLACED_RUN:
                db.execute(statement, dict(zip(names, values, strict=True)))
        for table, one, many in _INSERTS:
            rows: list[Values] = getattr(self, table)
            whole = len(rows) - len(rows) % _AT_ONCE
            for first in range(0, whole, _AT_ONCE):
                db.execute(many, [*chain.from_iterable(rows[first : first + _AT_ONCE])])
            if whole < len(rows):
                db.executemany(one, rows[whole:])
        db.executemany(_REPLY, self.replies)
        db.executemany(_END_OF_RUN, self.runs)


def sealed(values: Values, secrets: Secrets) -> Values:
    """Values with secrets masked. A text with a lone surrogate becomes bytes."""
    return tuple([_storable(secrets.mask(v)) if isinstance(v, str) else v for v in values])


def _storable(text: str) -> str | bytes:
    return text if _is_unicode(text) else text.encode("utf-8", "surrogatepass")


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
