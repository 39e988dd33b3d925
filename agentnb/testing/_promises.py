"""How a promise of a journal is written down: its name, and what must be equal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from agentnb.core.events import AgentTextDelta, ModelCallStarted
from agentnb.core.records import STARTED, Piece, RunJournal
from agentnb.core.types import id_at
from agentnb.testing._handed import Bench

Promise = Callable[[Bench], Awaitable[None]]


class Promises(dict[str, Promise]):
    """Checks by the promises that they hold, in the order in which they are written down."""

    def promise(self, name: str) -> Callable[[Promise], Promise]:
        def add(body: Promise) -> Promise:
            self[name] = body
            return body

        return add


def holds(condition: object, why: str) -> None:
    # Not by `assert`, which `python -O` leaves out.
    if not condition:
        raise AssertionError(why)


def same(found: Any, expected: Any, what: str) -> None:
    holds(found == expected, f"{what}: {short(found)} where {short(expected)} was handed over")


def short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 600 else f"{said[:400]} … ({len(said):,} characters)"


PARTS = ("entries", "calls", "tool_calls", "orders", "verdicts", "ends")


def without_text_so_far(run: RunJournal) -> RunJournal:
    """The same with the records of open calls as they were intended.

    A journal may give such a record the text so far, as its entries have it.
    """
    calls = []
    for call in run.calls:
        if call.status == STARTED and call.pieces:
            same(list(call.pieces), _newest_pieces(run, call.path), "the pieces of an open call")
            call = replace(call, pieces=())
        calls.append(call)
    return replace(run, calls=tuple(calls))


def _newest_pieces(run: RunJournal, path: str) -> list[Piece]:
    """The text of an agent's newest reply, from the entries."""
    agent_id, pieces = id_at(path, run.head.thread_id), list[Piece]()
    for entry in run.entries:
        event = entry.event
        if isinstance(event, AgentTextDelta) and event.agent_id == agent_id:
            pieces.append((entry.at_s, event.text))
        elif isinstance(event, ModelCallStarted) and event.agent_id == agent_id:
            pieces.clear()
    return pieces


def same_run(found: RunJournal, expected: RunJournal) -> None:
    found = without_text_so_far(found)
    same(found.head, expected.head, "the head")
    for part in PARTS:
        these, those = list(getattr(found, part)), list(getattr(expected, part))
        for place, (one, other) in enumerate(zip(these, those, strict=False)):
            same(one, other, f"`{part}`, place {place}")
        same(len(these), len(those), f"number of `{part}`")


def texts(value: Any) -> Iterator[str]:
    """All texts in a value, keys included, in an order that does not depend on the texts."""
    if isinstance(value, str):
        yield str.__str__(value)
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from texts(key)
            yield from texts(value[key])
    elif is_dataclass(value):
        for each in fields(value):
            yield from texts(getattr(value, each.name))
    elif isinstance(value, Sequence):
        for item in value:
            yield from texts(item)
