"""The table of a map, drawn in the browser: one line per row, one agent per judge of a row.

It is a `TreeView` that sends less: no task and no model of an agent, which 2,000 rows have in
common, and for a new agent only what differs from a blank row. Only full frames have the rows'
labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from agentnb.core.text import visible
from agentnb.core.types import AgentStatus
from agentnb.views.figures.words import counted
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.map_fold import MapShape
from agentnb.views.panel.renewal import MOST_SAVED, left_out
from agentnb.views.panel.tree_view import TreeView, status_of
from agentnb.views.panel.wire import (
    AgentRow,
    Frame,
    FrameMessage,
    MapFrameMessage,
    MapRow,
    SavedFrame,
)
from agentnb.views.table import ROWS, Table

_ANSWER_LENGTH = 160
_LABEL_LENGTH = 120

BLANK: Mapping[str, object] = {
    "status": "pending",
    "tokens": 0,
    "estimated": False,
    "begun": None,
    "ended": None,
    "doing": "",
    "tool": None,
    "tool_calls": 0,
    "tool_errors": 0,
    "until": None,
    "stalled": False,
    "attempt": 1,
    "error": None,
    "notes": 0,
    "reused": False,
    "paused": "",
    "asks": False,
}
"""The values that the page assumes for fields missing in a new row."""


class MapTable(TreeView):
    """The rows of a map with their agents' details.

    Args:
        publisher: The frames of the map's run.
        shape: The map's table.
        height: Height of the table in pixels; 0 for a default that fits most cells.
        can_answer: Whether its viewers can answer the budget question.
    """

    _entry: ClassVar[str] = "map_panel.js"
    _sheets: ClassVar[tuple[str, ...]] = ("map.css",)

    def __init__(
        self,
        publisher: FramePublisher,
        shape: MapShape,
        *,
        height: int = 0,
        can_answer: bool = False,
    ) -> None:
        self._shape = shape
        super().__init__(publisher, height=height, can_answer=can_answer)

    def _frame(self, frame: Frame, *, base: int | None, with_questions: bool) -> FrameMessage:
        message = super()._frame(frame, base=base, with_questions=with_questions)
        if base is not None:
            return message
        shape = self._shape
        whole: MapFrameMessage = {
            **message,
            "rows": shape.rows,
            "judges": shape.judges,
            "labels": [visible(label, _LABEL_LENGTH) for label in shape.labels],
        }
        return whole

    def _cut(self, frame: SavedFrame) -> SavedFrame:
        """The first rows of a frame."""
        judges, rows = self._shape.judges, self._shape.rows
        agents, rest = list[AgentRow](), list[AgentRow]()
        for row in frame["agents"]:
            number = row["path"].partition(".")[0]
            is_kept = not number.isdecimal() or int(number) <= MOST_SAVED * judges
            (agents if is_kept else rest).append(row)
        if rows <= MOST_SAVED:
            return frame
        what = counted(rows - MOST_SAVED, "more row")
        more = left_out(what if judges == 1 else f"{what}, by judge", map(status_of, rest))
        labels = cast(MapFrameMessage, frame).get("labels", [])[:MOST_SAVED]
        shape = {"rows": MOST_SAVED, "labels": labels}
        return cast(SavedFrame, {**frame, **shape, "agents": agents, "left_out": more})

    def first_rows(self) -> Table:
        """The first rows: a line for each row and judge, with its status and its answer."""
        judges = self._shape.judges
        lines = []
        for number in range(1, min(self._shape.rows, ROWS) * judges + 1):
            at, judge = divmod(number - 1, judges)
            label = self._shape.labels[at] if self._shape.labels else str(at + 1)
            agent = self.publisher.fold.tree.agent_at(str(number))
            status = AgentStatus.PENDING if agent is None else agent.status
            answer = "" if agent is None else agent.answer or agent.error or ""
            name = f"{label} ({judge + 1})" if judges > 1 else label
            lines.append((name, str(status), short_answer(answer)))
        return Table(("row", "status", "answer"), lines, length=self._shape.rows * judges)

    def _row(self, path: str, row: AgentRow) -> AgentRow:
        sent = cast(MapRow, {**row, "path": path})
        if "task" in row:
            differing = {k: v for k, v in row.items() if k in BLANK and v != BLANK[k]}
            sent = cast(MapRow, {**differing, "path": path})
        if row.get("status") == AgentStatus.COMPLETED:
            agent = self.publisher.fold.tree.agent_at(path)
            sent["answer"] = short_answer(agent.answer or "") if agent is not None else ""
        return sent


def short_answer(text: str) -> str:
    """An answer for one cell of a table; an object is shown as `label: late, score: 2`."""
    if text[:1] in ("{", "[", '"') and len(text) < 100 * _ANSWER_LENGTH:
        try:
            text = _in_words(json.loads(text))
        except (ValueError, RecursionError):
            pass  # it only looks like JSON at its beginning
    return visible(text, _ANSWER_LENGTH)


def _in_words(value: Any) -> str:
    match value:
        case {"value": only} if len(value) == 1:
            return _in_words(only)
        case dict():
            return ", ".join(f"{name}: {_in_words(one)}" for name, one in value.items())
        case list():
            return ", ".join(map(_in_words, value))
        case str():
            return value
    return json.dumps(value, ensure_ascii=False)
