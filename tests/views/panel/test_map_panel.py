"""The panel of a map: what its table sends to a page, and its line of progress."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

import pytest

from agentnb.core.events import AgentFailed
from agentnb.views.panel import wire
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.map_fold import MapProgress, MapShape, MapWatch
from agentnb.views.panel.map_panel import MapLine, MapPanel, cost_words, progress_markup
from agentnb.views.panel.map_table import BLANK, MapTable, short_answer
from agentnb.views.panel.module import STATIC, in_order
from tests.views.panel.manual_run import ManualRun, id_of
from tests.views.panel.test_wire import blank_row

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x07"


class Sent(MapTable):
    """A table whose messages a test reads."""

    def __init__(self, run: ManualRun, shape: MapShape) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__(FramePublisher(run.bus), shape)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append(content)

    def frame(self) -> dict[str, Any]:
        """Make the next frame; returns what was sent of it."""
        with self.publisher.lock:
            self.publisher._tick()
        return self.sent[-1]


@pytest.fixture
def run() -> ManualRun:
    return ManualRun().began()


def test_full_frame_has_the_table_and_later_ones_only_changes(run: ManualRun) -> None:
    run.spawned("1", "Which complaint is in it?").called("1")
    page = Sent(run, MapShape(2, 1, ["it came late", HOSTILE]))
    try:
        with page.publisher.lock:
            whole: dict[str, Any] = {**page._full_frame()}
            run.after(2).replied("1").completed("1", '{"label": "late", "score": 2}')
            change = page.frame()
    finally:
        page.close()

    assert (whole["rows"], whole["judges"]) == (2, 1)
    assert whole["labels"][0] == "it came late"
    assert "\u202e" not in whole["labels"][1]
    (one,) = [row for row in whole["agents"] if row["path"] == "1"]
    assert one["status"] == "running"
    assert one.keys() & {"task", "model", "parent", "error", "attempt"} == set()
    assert change["base"] == whole["seq"]
    assert "labels" not in change
    (ended,) = [row for row in change["agents"] if row["path"] == "1"]
    assert (ended["status"], ended["answer"]) == ("completed", "label: late, score: 2")


def test_page_that_opens_later_gets_answers_and_errors(run: ManualRun) -> None:
    for path in ("1", "2"):
        run.spawned(path).called(path).replied(path)
    run.completed("1", HOSTILE)
    run.tell(AgentFailed(agent_id=id_of("2"), error=HOSTILE, will_retry=False, attempt=1))
    run.ended()
    page = Sent(run, MapShape(2))
    try:
        whole: dict[str, Any] = {**page._full_frame()}
    finally:
        page.close()

    rows = {row["path"]: row for row in whole["agents"]}
    assert rows["1"]["answer"].startswith("<img src=x onerror=alert(1)>")  # text, set as text
    assert rows["2"]["error"].startswith("<img")
    assert not any(sign in str(rows) for sign in ("\u202e", "\x07"))


def test_blank_row_of_the_table_is_that_of_the_page() -> None:
    of_page = blank_row()

    assert BLANK == {name: of_page[name] for name in BLANK}
    assert of_page.keys() - BLANK.keys() == {"parent", "depth", "task", "model"}


def test_page_reads_each_field_of_the_frames_of_a_map() -> None:
    script = "\n".join((STATIC / name).read_text("utf-8") for name in in_order("map_panel.js"))
    own = get_type_hints(wire.MapFrameMessage).keys() - get_type_hints(wire.FrameMessage).keys()

    assert own == {"rows", "judges", "labels"}
    assert own == set(re.findall(r"\(frame\.(rows|judges|labels)\)", script))
    assert "agent.answer" in script


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It came late.\nTwo days.", "It came late. Two days."),
        ('{"label": "late", "score": 2, "sure": true}', "label: late, score: 2, sure: true"),
        ('{"value": "late"}', "late"),
        ('{"value": ["a", {"b": null}]}', "a, b: null"),
        ('"late"', "late"),
        ("{not json", "{not json"),
        ("[" * 5000, "["),
    ],
)
def test_answer_is_short_and_on_one_line(text: str, shown: str) -> None:
    answer = short_answer(text)

    assert answer.startswith(shown)
    assert len(answer) <= 160


def test_panel_has_the_parts_of_a_runs_panel_and_its_line_above_the_table(run: ManualRun) -> None:
    run.spawned("1").called("1")
    panel = MapPanel(FramePublisher(run.bus), MapShape(3))
    try:
        kinds = [type(part).__name__ for part in panel.children]
        line = panel.children[-2].value
    finally:
        panel.close()

    assert kinds[-2:] == ["MapLine", "MapTable"]
    assert kinds[0] == "_Top"
    assert "0 of 3 rows done" in line
    assert 'aria-valuenow="0"' in line
    assert repr(panel) == "MapPanel()"


def test_line_reads_the_events_of_each_frame_so_that_no_frame_has_those_of_a_second(
    run: ManualRun,
) -> None:
    publisher, watch = FramePublisher(run.bus), MapWatch(run.bus, MapShape(3))
    line = MapLine(publisher, watch)
    with publisher.lock:
        run.spawned("1").called("1")
        publisher._tick()
        shown = line.value
        run.replied("1").completed("1")
        publisher._tick()
        read, shown_then = watch._position, line.value
    run.ended()
    line.close()

    assert shown_then == shown  # what only grows is shown once a second
    assert read == len(run.bus) - 1


def test_line_knows_no_more_than_the_other_views_of_its_map(run: ManualRun) -> None:
    publisher = FramePublisher(run.bus)
    with publisher.lock:
        panel = MapPanel(publisher, MapShape(3))
        for path in ("1", "2"):
            run.spawned(path).called(path).replied(path)
        run.completed("1")
        publisher._tick()
        run.completed("2")

        publisher.keep()
        kept = panel.children[-2].get_state()["value"]
        publisher._tick()
        publisher.keep()
        then = panel.children[-2].get_state()["value"]
    run.ended()
    panel.close()

    assert "1 of 3 rows done" in kept
    assert "2 of 3 rows done" in then


def test_cost_is_told_in_dollars_where_there_are_prices_and_else_in_tokens() -> None:
    half = MapProgress(100, done=60, reused=20)  # 40 of 80 were paid for

    def priced(factor: float) -> str:
        return f"${0.4 * factor:.2f}"

    assert cost_words(half, times=priced, tokens=9) == ["$0.40 so far, about $0.80 at the end"]
    assert cost_words(half, times=lambda _: "", tokens=61_234) == [
        "61,234 tokens so far, about 120,000 at the end"
    ]
    over = MapProgress(100, done=100, is_over=True)
    assert cost_words(over, times=priced, tokens=9) == ["$0.40"]
    assert cost_words(MapProgress(100), times=priced, tokens=0) == []


def test_bar_and_words_escape_nothing_away() -> None:
    markup = progress_markup(MapProgress(3, done=1, failed=1), [HOSTILE])

    assert "<img" not in markup
    assert 'role="progressbar"' in markup
    assert 'aria-valuetext="1 of 3 rows done, 1 failed, 1 open"' in markup


def test_pace_stands_between_the_counts_and_the_cost_marked_for_pages_without_a_kernel() -> None:
    markup = progress_markup(MapProgress(3, done=1), ["$1 so far"], pace=["6.0 a minute"])

    spans = re.findall(r"<span( class=agentnb-pace)?>([^<]+)</span>", markup)
    assert spans[-2:] == [(" class=agentnb-pace", "6.0 a minute"), ("", "$1 so far")]
    assert not any(mark for mark, _ in spans[:-2])
