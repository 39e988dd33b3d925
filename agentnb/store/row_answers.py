"""Reads the answers to the rows of earlier maps, with a few statements instead of whole runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from sqlite3 import Connection
from typing import Any

from agentnb.core.plan import ReusedAnswer

_RUNS = (
    "SELECT id, run_id, json_extract(settings, '$.output.schema') FROM runs "
    "WHERE {same} AND json_type(settings, '$.map') IS NOT NULL ORDER BY id DESC"
)
# Only children of the root: `1`, not `root` and not `1.2`. An answer that was cut does not count.
_ENDS = (
    "SELECT e.path, first.key, e.text, said.text, e.first, e.length FROM ends e "
    "JOIN model_calls first ON first.run = e.run AND first.path = e.path AND first.number = 1 "
    "LEFT JOIN model_calls said "
    "ON said.run = e.run AND said.path = e.path AND said.number = e.number "
    "WHERE e.run = ? AND e.status = 'completed' AND NOT e.cut AND e.path NOT GLOB '*[^0-9]*' "
    "ORDER BY e.place"
)
_REUSED = "SELECT path, value FROM verdicts WHERE run = ? AND kind = 'reused'"


def row_answers(
    db: Connection, name: str, task: str, *, schema: str, most: int
) -> Iterator[dict[str, list[ReusedAnswer]]]:
    """The answers of each earlier map, by the key of the row's first call; the newest map first.

    Args:
        db: A connection.
        name: The name of the maps; empty for maps without one.
        task: Their prompt, if they have no name.
        schema: `schema_text` of their answers' type. The keys do not always contain it: a row that
            may use tools first is asked for the type later.
        most: Most maps to read.
    """
    same = "name = :name" if name else "name = '' AND task = :task"
    rows = db.execute(_RUNS.format(same=same), {"name": name, "task": task})
    alike = ((run, run_id) for run, run_id, kept in rows if _canonical(kept) == schema)
    for run, run_id in list(islice(alike, most)):
        yield _answers_of(db, run, run_id)


def schema_text(schema: Mapping[str, Any] | None) -> str:
    """The schema of an answer type as text for comparisons; `None` stands for text answers."""
    return json.dumps(schema, sort_keys=True, ensure_ascii=False)


def _canonical(kept: str | None) -> str:
    return schema_text(None if kept is None else json.loads(kept))


def _answers_of(db: Connection, run: int, run_id: str) -> dict[str, list[ReusedAnswer]]:
    found: dict[int, tuple[str, ReusedAnswer]] = {}
    for path, key, own, of_call, first, length in db.execute(_ENDS, (run,)):
        text = _text(own if own is not None else of_call or "")
        if own is None and first is not None:
            text = text[first : first + length]
        found[int(path)] = key, ReusedAnswer(run_id, text)
    for path, value in db.execute(_REUSED, (run,)):
        reused = json.loads(_text(value))
        if reused.get("foreign"):
            continue
        answer = ReusedAnswer(reused["run"] or run_id, reused["text"])
        found.setdefault(int(path), (reused["key"], answer))
    by_key: dict[str, list[ReusedAnswer]] = {}
    for number in sorted(found):
        key, answer = found[number]
        by_key.setdefault(key, []).append(answer)
    return by_key


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
