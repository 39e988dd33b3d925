"""Malicious saved runs, and every way to view a record.

Each document is from a real run, changed in a few places by a seed, so that failures can be
repeated.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from agentnb.record import RunRecord
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.wire import Frame

VALUES: Sequence[Any] = (
    None, True, -1, 0, 1, 2, -0.5, 0.1, 1e9, 1e24, 10**23, 10**25, -(10**30), 10**400, 1e308,
    math.inf, -math.inf, math.nan, "", "nan", "inf", "0x" + "f" * 30_000, "9" * 5_000, "root", "1",
    "x" * 100_000, "\x1b[2J\u202e", "\ud800", "r.1.1", ".", "٣", [], {}, [[]], [None], {"kind": 1},
    [1, 2, 10**25], ["a", "b"],
)  # fmt: skip
"""Values for any field, whatever its type."""


def deep(levels: int) -> Any:
    value: Any = 1
    for number in range(levels):
        value = [value] if number % 2 else {"k": value}
    return value


class Mutator:
    """Changes documents; a seed gives one sequence of changes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def changed(self, document: Mapping[str, Any]) -> str:
        """The text of a document, changed in one or two places."""
        mine = copy.deepcopy(dict(document))
        for _ in range(self.random.randint(1, 2)):
            self.random.choice(self._ways)(mine)
        text = json.dumps(mine)
        return self._damaged(text) if self.random.random() < 0.05 else text

    @property
    def _ways(self) -> Sequence[Callable[[dict[str, Any]], None]]:
        return (self._set_field,) * 10 + (
            self._set_head, self._move, self._drop, self._double, self._shift_time, self._rename,
            self._kind, self._deepen, self._borrow, self._jump,
        )  # fmt: skip

    def _line(self, document: dict[str, Any]) -> dict[str, Any]:
        lines = document.get("entries")
        if "tool_calls" in document and self.random.random() < 0.3:
            lines = document["tool_calls"]
        found = self.random.choice(lines) if isinstance(lines, list) and lines else {}
        return found if isinstance(found, dict) else {}

    def _set_field(self, document: dict[str, Any]) -> None:
        inside: Any = self._line(document)
        while inside:
            key = self.random.choice(
                [*(inside if isinstance(inside, dict) else range(len(inside)))]
            )
            if isinstance(inside[key], dict | list) and inside[key] and self.random.random() < 0.8:
                inside = inside[key]
                continue
            inside[key] = self._instead_of(inside[key])
            return

    def _instead_of(self, value: Any) -> Any:
        """A value, mostly of the same type: a value that is refused at once tests little."""
        kind = str if isinstance(value, str) else int | float
        alike = [other for other in VALUES if isinstance(other, kind)]
        return self.random.choice(alike if self.random.random() < 0.8 else VALUES)

    def _set_head(self, document: dict[str, Any]) -> None:
        key = self.random.choice(
            ["version", "agentnb", "run_id", "task", "entries", "tool_calls", "format"]
        )
        if self.random.random() < 0.3:
            document[key] = self.random.choice(VALUES)

    def _places(self, document: dict[str, Any]) -> tuple[list[Any], int, int]:
        lines = document.get("entries")
        if not isinstance(lines, list) or not lines:
            return [None], 0, 0
        return lines, self.random.randrange(len(lines)), self.random.randrange(len(lines))

    def _move(self, document: dict[str, Any]) -> None:
        lines, one, other = self._places(document)
        lines.insert(other, lines.pop(one))

    def _drop(self, document: dict[str, Any]) -> None:
        lines, one, other = self._places(document)
        del lines[min(one, other) : min(one, other) + self.random.choice([1, 1, 1, 10])]

    def _double(self, document: dict[str, Any]) -> None:
        lines, one, other = self._places(document)
        lines.insert(other, copy.deepcopy(lines[one]))

    def _shift_time(self, document: dict[str, Any]) -> None:
        lines, one, _ = self._places(document)
        shift = self.random.choice([-1e9, -5, -0.5, 0.5, 1e6, 9e8])
        for line in lines[one:]:
            if isinstance(line, dict) and isinstance(line.get("at_s"), float):
                line["at_s"] += shift

    def _jump(self, document: dict[str, Any]) -> None:
        self._line(document)["at_s"] = self.random.choice([0, 1e-9, 3.0, 1e8, 9.99e8])

    def _rename(self, document: dict[str, Any]) -> None:
        """Put another agent's id into some of the events."""
        ids = [line.get("agent_id") for line in document.get("entries") or [{}] if line]
        line = self._line(document)
        key = self.random.choice(["agent_id", "parent_id"])
        if key in line:
            line[key] = self.random.choice([*ids, "r", "r.1", "r.1.1", "1", "root"])

    def _kind(self, document: dict[str, Any]) -> None:
        line = self._line(document)
        line["kind"] = self.random.choice(
            ["run_started", "run_finished", "agent_spawned", "agent_failed", "x" * 100_000]
        )

    def _deepen(self, document: dict[str, Any]) -> None:
        line = self._line(document)
        key = self.random.choice(["input", "request", "text"])
        line[key] = deep(self.random.choice([5, 99, 150, 190, 300]))

    def _borrow(self, document: dict[str, Any]) -> None:
        """Put the fields of two events into one."""
        self._line(document).update(copy.deepcopy(self._line(document)))

    def _damaged(self, text: str) -> str:
        at = self.random.randrange(len(text))
        cut = self.random.choice(["", "\0", "}", '"', "9" * 6_000, "NaN", "1e999"])
        return text[:at] + cut + text[at + self.random.choice([0, 1, 50]) :]


class Watching:
    """A view that keeps nothing."""

    is_read = True

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def show(self, frame: Frame) -> None:
        self.frames.append(frame)

    def read_on(self) -> None:
        pass

    def renew(self) -> None:
        pass


def look_at_everything(record: RunRecord, *, with_pictures: bool = True) -> None:
    """View a record in every way that a person can, without the widgets themselves.

    Args:
        record: The loaded run.
        with_pictures: Draw the figures, not only their layout; this takes most of the time.
    """
    values = (
        record, record.tree, record.status, record.done, record.thread_id, record.output,
        record.notes, record.usage, record.usage.total_tokens, record.budget,
        record.budget.percentage, record.tool_counts, record.cost, record.cost.by_agent,
        record.graph, record.to_records(), record.events, record.agents,
    )  # fmt: skip
    shown = [f"{value!r} {value}" for value in values]
    shown += [f"{record.agent(agent.path)!r}" for agent in record.agents[:20]]
    assert all(shown)
    assert record._repr_mimebundle_()
    for figure in (record.plot(), record.plot_timeline(), record.plot_tokens(dark=True)):
        assert max(figure.get_size_inches()) < 200
        assert figure.alt_text
        if with_pictures:
            assert figure.bundle()
    assert record.to_json()
    view = Watching()
    feed: FramePublisher = record._new_publisher()
    feed.attach(view)
    json.dumps([[dict(each.rows), repr(each.summary)] for each in view.frames], allow_nan=False)
    for part in (0.0, 0.3, 1.0):
        fold = feed.at(part * feed.now_s)
        json.dumps([fold.row(agent_id) for agent_id in fold.tree.agents], allow_nan=False)
