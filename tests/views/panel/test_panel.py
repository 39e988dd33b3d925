"""The whole panel: its parts together, and nothing left of it when it is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ipywidgets import Box, Label, Widget

from agentnb.core.types import AgentStatus
from agentnb.views.panel import show
from agentnb.views.panel.controls import BudgetBar, BudgetNumber, BudgetSlider, CancelButton
from agentnb.views.panel.header import Footer, Header, Notices
from agentnb.views.panel.map_fold import MapShape
from agentnb.views.panel.map_table import MapTable
from agentnb.views.panel.panel import RunPanel
from agentnb.views.panel.question import BudgetQuestion
from agentnb.views.panel.tree_view import TreeView
from agentnb.views.panel.wire import Question
from tests.views.panel.stage import FrontEnd, Stage, open_widgets


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    yield
    Widget.close_all()


def parts(widget: Widget) -> list[Widget]:
    """A widget and all below it, from above."""
    children = widget.children if isinstance(widget, Box) else ()
    return [widget, *(part for child in children for part in parts(child))]


def kinds(widget: Widget) -> list[str]:
    wanted = (Header, CancelButton, BudgetBar, BudgetSlider, BudgetNumber)
    wanted += (BudgetQuestion, Notices, TreeView)  # type: ignore[assignment]
    return [type(part).__name__ for part in parts(widget) if isinstance(part, wanted)]


def the(kind: type[Widget], panel: RunPanel) -> Widget:
    (found,) = [part for part in parts(panel) if isinstance(part, kind)]
    return found


def test_panel_has_header_budget_question_notices_and_tree_in_this_order() -> None:
    assert kinds(RunPanel(Stage())) == [
        "Header",
        "CancelButton",
        "BudgetBar",
        "BudgetSlider",
        "BudgetNumber",
        "BudgetQuestion",
        "Notices",
        "TreeView",
    ]


def test_panels_need_no_model_that_colab_lacks() -> None:
    """Its public widget manager has the models of ipywidgets 7, and anywidget's."""
    known = {
        *("AnyModel", "BoxModel", "VBoxModel", "LayoutModel"),
        *("ButtonModel", "ButtonStyleModel", "IntSliderModel", "SliderStyleModel"),
    }
    stage = Stage(question=Question(800, 1_000, 80.0, 60.0, 0.0))
    RunPanel(stage, MapTable(stage, MapShape(1, 1, ["row"])))

    state = Widget.get_manager_state()["state"].values()
    assert {model["model_name"] for model in state} <= known


def test_panel_of_a_run_from_a_file_has_no_controls() -> None:
    panel = RunPanel(Stage(has_controls=False, done=True, status=AgentStatus.COMPLETED))

    assert kinds(panel) == ["Header", "BudgetBar", "Notices", "TreeView"]


class Keeping:
    """Where the run is kept."""

    footer = "Kept in <here>."
    trouble: str | None = None


def footers(panel: RunPanel) -> list[str]:
    return [part.value for part in parts(panel) if isinstance(part, Footer)]


def test_footer_says_where_the_run_is_kept_as_text_and_is_the_last_part() -> None:
    stage, kept = Stage(), Keeping()
    stage.kept = kept
    panel = RunPanel(stage)

    (line,) = footers(panel)
    assert "Kept in &lt;here&gt;." in line
    assert isinstance(panel.children[-1], Footer)

    kept.footer = "This run is in memory only."
    stage.frame(tokens_used=1)  # the next frame, whatever it is for
    assert "This run is in memory only." in footers(panel)[0]


def test_run_that_is_kept_nowhere_has_no_footer() -> None:
    stage = Stage()
    assert footers(RunPanel(stage)) == []

    stage.kept = Keeping()
    stage.kept.footer = ""
    assert footers(RunPanel(stage)) == []


def test_two_panels_of_one_run_stay_in_step() -> None:
    stage = Stage(budget_total=50_000)
    one, other = RunPanel(stage), RunPanel(stage)

    FrontEnd(the(BudgetSlider, one)).moves(value=80_000)
    stage.work()
    stage.frame(tokens_used=1_000)

    for panel in (one, other):
        assert the(BudgetSlider, panel).value == 80_000
        assert the(BudgetNumber, panel).value == 80_000
        assert "1,000 of 80,000 tokens" in the(BudgetBar, panel).value


def test_controls_of_a_run_that_is_done_are_there_and_disabled() -> None:
    stage = Stage(question=Question(8, 10, 80.0, 600.0, 0.0))
    panel = RunPanel(stage)
    before = kinds(panel)

    stage.frame(done=True, status=AgentStatus.COMPLETED, question=None)

    assert kinds(panel) == before
    controls = [part for part in parts(panel) if hasattr(part, "disabled") and part.layout]
    buttons = [part for part in controls if part.__class__.__name__.endswith("Button")]
    assert len(buttons) == 4  # Pause run, Cancel run, Continue, Stop
    assert all(part.disabled for part in buttons)
    assert the(BudgetSlider, panel).disabled
    assert the(BudgetNumber, panel).disabled


def test_slider_and_number_take_no_room_when_the_run_has_ended_and_the_bar_stays() -> None:
    stage = Stage()
    panel = RunPanel(stage)
    setters = [the(kind, panel) for kind in (BudgetSlider, BudgetNumber)]
    assert [setter.layout.display for setter in setters] == ["", ""]

    stage.frame(done=True, status=AgentStatus.COMPLETED)

    assert [setter.layout.display for setter in setters] == ["none", "none"]
    assert the(BudgetBar, panel).layout.display != "none"
    assert the(CancelButton, panel).layout.display != "none"


def test_closed_panel_costs_nothing_and_leaves_nothing_in_the_kernel() -> None:
    stage, before = Stage(), open_widgets()
    panel = RunPanel(stage)
    assert len(stage.views) > 5

    panel.close()
    panel.close()

    assert stage.views == []
    assert open_widgets() == before


def test_panel_takes_a_tree_that_is_given() -> None:
    tree = Label("my own")

    assert RunPanel(Stage(), tree).children[-1] is tree


def test_panel_prints_the_same_in_every_run_and_has_its_class() -> None:
    panel = RunPanel(Stage())

    assert repr(panel) == "RunPanel()"
    assert "agentnb-panel" in panel._dom_classes


def test_no_part_scrolls_in_itself() -> None:
    # A box of ipywidgets does by default, and then cannot be reached by the keyboard.
    boxes = [part for part in parts(RunPanel(Stage())) if isinstance(part, Box)]

    assert {box.layout.overflow for box in boxes} == {"visible"}


def test_terminal_says_that_a_live_view_needs_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(show, "is_interactive", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))

    show.show_live(Label())

    (said,) = shown
    assert isinstance(said, dict)
    assert list(said) == ["text/plain"]
    assert "%spawn status" in said["text/plain"]
