"""A run in words beside its live view, for a page without one."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core.bus import EventBus
from agentnb.core.events import AgentFailed, QuestionAsked, RunPaused
from agentnb.core.types import AgentStatus
from agentnb.testing._outputs import compared
from agentnb.views.freeze import IN_WORDS, frozen
from agentnb.views.panel import beside
from agentnb.views.panel.beside import Beside
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.map_fold import MapShape
from agentnb.views.panel.map_table import MapTable
from tests.views.panel.manual_run import ManualRun, id_of


class Page:
    """The outputs of a cell, by display id."""

    def __init__(self) -> None:
        self.outputs: dict[str, Mapping[str, str]] = {}
        self.told = 0

    def show(self, bundle: Mapping[str, str], display_id: str | None) -> str:
        self.told += 1
        display_id = display_id or f"output {len(self.outputs) + 1}"
        self.outputs[display_id] = bundle
        return display_id

    @property
    def plain(self) -> str:
        (bundle,) = self.outputs.values()
        return bundle["text/plain"]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    monkeypatch.setattr(beside, "show_in_words", page.show)
    monkeypatch.setattr(beside, "is_notebook", lambda: True)
    monkeypatch.setattr(FramePublisher, "_go", lambda _: None)  # frames come by `tick` only
    return page


def tick(publisher: FramePublisher) -> None:
    with publisher.lock:
        publisher._tick()


def test_running_run_says_when_that_was_and_how_to_see_it_live(page: Page) -> None:
    run = ManualRun().began().called("root", "Hello").spawned("1", "a part")
    publisher = FramePublisher(run.bus)

    Beside(publisher)

    line, how = page.plain.splitlines()
    assert re.match(r"► running, as of \d\d:\d\d:\d\d [+-]\d{4}, 20\d\d-\d\d-\d\d: ", line)
    assert "2 agents: " in line
    assert "%spawn status" in how


def test_words_say_how_many_questions_are_open(page: Page) -> None:
    run = ManualRun().began().called("root", "Hello").spawned("1", "a part")
    for number in range(2):
        run.tell(
            QuestionAsked(
                agent_id=id_of("1"),
                question_id=f"q{number}",
                question="plan",
                text="So?",
                options=("go",),
            )
        )

    Beside(FramePublisher(run.bus))

    assert "; 2 questions; " in page.plain


def test_run_that_was_loaded_while_it_went_on_is_as_of_then(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ManualRun().began().called("root", "Hello")
    loaded = EventBus.of_record("r", [*run.bus.rows_since(0)])
    monkeypatch.setattr(EventBus, "now_s", 7_200.0)  # seconds since it was loaded
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)

    Beside(FramePublisher(loaded))

    line, how = page.plain.splitlines()
    then = time.strftime("%H:%M:%S %z, %Y-%m-%d", time.localtime(1_700_000_000 - 7_200))
    assert f", as of {then}: " in line
    assert "when it was loaded" in how


def test_end_and_pause_replace_the_words_and_other_frames_do_not(page: Page) -> None:
    run = ManualRun().began().called("root", "Hello").spawned("1", "a part")
    publisher = FramePublisher(run.bus)
    Beside(publisher)

    run.spawned("2")
    tick(publisher)
    assert page.told == 1
    run.tell(RunPaused(by="panel"))
    tick(publisher)
    assert page.plain.startswith("◫ paused, as of ")
    run.completed("1").completed("2").completed("root").ended()
    tick(publisher)

    assert page.plain == "✓ completed: 3 agents: 3 completed; 1 token."
    assert page.told == 3


def test_failed_run_says_so(page: Page) -> None:
    run = ManualRun().began().ended(AgentStatus.FAILED)

    Beside(FramePublisher(run.bus))

    assert page.plain.startswith("✗ failed: ")


def test_words_are_text_and_never_markup(page: Page) -> None:
    run = ManualRun().began().spawned("1").completed("1", "<b>bold</b>").ended()
    publisher = FramePublisher(run.bus)
    table = MapTable(publisher, MapShape(1, 1, ["<i>row</i>"]))

    Beside(publisher, table.first_rows)

    (bundle,) = page.outputs.values()
    assert "&lt;b&gt;" in bundle["text/html"]
    assert "<i>" not in bundle["text/html"]
    table.close()


@pytest.mark.parametrize("judges", [1, 2])
def test_map_shows_its_first_rows_and_counts_the_others(page: Page, judges: int) -> None:
    run = ManualRun().began()
    for number in range(1, 4):
        run.spawned(str(number))
    publisher = FramePublisher(run.completed("1", '{"value": "late"}').bus)
    table = MapTable(publisher, MapShape(30, judges, [f"row {n}" for n in range(30)]))

    Beside(publisher, table.first_rows)

    first = page.plain.splitlines()[3]
    assert first.split() == ["row", "0", *["(1)"] * (judges > 1), "completed", "late"]
    assert page.plain.splitlines()[-1] == f"… and {30 * judges - 20:,} more"
    table.close()


def test_failed_row_says_why(page: Page) -> None:
    failed = AgentFailed(
        agent_id=id_of("1"), error="out of order", will_retry=False, attempt=1, duration_ms=1
    )
    run = ManualRun().began().spawned("1").tell(failed).ended(AgentStatus.FAILED)
    publisher = FramePublisher(run.bus)
    table = MapTable(publisher, MapShape(1, 1, ["a"]))

    Beside(publisher, table.first_rows)

    assert page.plain.splitlines()[-1].split() == ["a", "failed", "out", "of", "order"]
    table.close()


@pytest.mark.parametrize("display", ["widget", "none"])
def test_display_variable_leaves_the_words_out(
    page: Page, monkeypatch: pytest.MonkeyPatch, display: str
) -> None:
    monkeypatch.setenv("AGENTNB_DISPLAY", display)

    Beside(FramePublisher(ManualRun().began().bus))

    assert page.outputs == {}


def test_no_comparison_looks_at_them_and_freezing_keeps_them() -> None:
    words: Any = {"output_type": "display_data", "data": {"text/plain": "x"}, "metadata": IN_WORDS}
    other: Any = {**words, "metadata": {}}
    notebook = {"cells": [{"outputs": [words, other]}], "metadata": {}}

    bare: Any = {**other, "data": {"text/html": ['<div class="agentnb-beside">', "</div>"]}}

    assert compared([words, other, bare]) == [other]
    assert frozen(notebook) == (notebook, 0)


@pytest.mark.parametrize(
    ("names", "is_left_out"),
    [
        ("agentnb-beside", True),
        ("agentnb-beside agentnb-meanwhile", True),
        ("agentnb-beside agentnb-open", True),
        ("agentnb-beside agentnb-meanwhile agentnb-open", True),
        ("agentnb-besides", False),
        ("agentnb-beside another", False),
    ],
)
def test_only_our_words_are_left_out_where_a_tool_took_the_mark_away(
    names: str, is_left_out: bool
) -> None:
    html = f'<div class="{names}">running</div>'
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": html}}

    assert compared([output]) == ([] if is_left_out else [output])
