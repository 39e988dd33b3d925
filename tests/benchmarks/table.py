"""The time to read a table, to fill its prompts, and to make the frame of the result.

Run by hand from the root of the checkout: `python -m tests.benchmarks.table [ROWS]`. The map itself
is run by a script and not measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pandas
import polars
from pydantic import BaseModel

import agentnb
from agentnb.mapping.prompts import prompts_of
from agentnb.mapping.rows import read_rows

T = TypeVar("T")


class Verdict(BaseModel):
    kind: str
    score: int
    tags: list[str]


REPLY = '{"kind": "late", "score": 3, "tags": ["post", "delay"]}'
PROMPT = "What does {{text}} complain of, number {{id}}?"


def main(rows: int = 10_000) -> None:
    columns = {
        "id": list(range(rows)),
        "text": [f"A letter, number {n}. " * 5 for n in range(rows)],
    }
    agentnb.set_prices({"scripted": agentnb.Price(3, 15)})
    session = agentnb.Session(
        provider=agentnb.ScriptedProvider(lambda _: REPLY), store=None, budget=rows * 10_000
    )
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        measure(session, frame)
    run = session.map(pandas.DataFrame(columns)[: rows // 3], PROMPT, Verdict, judges=3)
    out = run.result()
    timed("three judges: the frame", lambda: out.df)
    timed("three judges: agreement", lambda: out.agreement("kind"))


def measure(session: agentnb.Session, frame: Any) -> None:
    print(f"{type(frame).__module__.partition('.')[0]}, {len(frame):,} rows")
    table = timed("read them", lambda: read_rows(frame))
    timed("fill the prompts", lambda: prompts_of(PROMPT, table))
    run = session.map(frame, PROMPT, Verdict)
    out = timed("the map itself, scripted", run.result)
    timed("the columns with their costs", lambda: out.columns)
    timed("the frame", lambda: out.df)
    timed("the records", out.to_records)
    timed("a cell's last value", out._repr_mimebundle_)


def timed(what: str, work: Callable[[], T]) -> T:
    began = time.process_time()
    done = work()
    print(f"{what}: {time.process_time() - began:.3f} s")
    return done


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
