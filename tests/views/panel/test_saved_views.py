"""What a notebook saves of a live view: its last frame, as the front end last heard it."""

from __future__ import annotations

from typing import Any

import pytest
from ipywidgets import Widget

from agentnb.core.events import AgentWaiting, QuestionAsked, RunPaused
from agentnb.views.panel import frames, renewal, tree_view
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.header import Header, Notices
from agentnb.views.panel.map_fold import MapShape
from agentnb.views.panel.map_table import MapTable
from agentnb.views.panel.panel import RunPanel
from agentnb.views.panel.renewal import SAVE_EVERY_S
from agentnb.views.panel.tree_view import TreeView
from tests.support import DEADLINE_S
from tests.views.panel.manual_run import ManualRun, id_of
from tests.views.panel.stage import FrontEnd


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return 1_700_000_000.4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tree_view, "time", clock)
    monkeypatch.setattr(renewal, "time", clock)
    return clock


class Saved(TreeView):
    """A tree view whose front end keeps its state, and whose frames a test makes."""

    def __init__(self, run: ManualRun) -> None:
        self.kept: list[dict[str, Any]] = []
        super().__init__(FramePublisher(run.bus))
        self._now = self.publisher._tick

    def send_state(self, key: Any = None) -> None:
        if key == "snapshot":
            self.kept.append(self.get_state("snapshot")["snapshot"])
        else:
            super().send_state(key)

    def tick(self) -> list[dict[str, Any]]:
        """Show what is new; what was sent to be saved meanwhile."""
        before = len(self.kept)
        with self.publisher.lock:
            self._now()
        return self.kept[before:]


def parts_of(widget: Widget) -> list[Widget]:
    below = [each for child in getattr(widget, "children", ()) for each in parts_of(child)]
    return [widget, *below]


@pytest.fixture
def run() -> ManualRun:
    return ManualRun().began().called("root", "Hello").spawned("1", "a part")


@pytest.fixture
def saved(run: ManualRun, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(FramePublisher, "_go", lambda _: None)  # frames come by `tick` only
    view = Saved(run)
    yield view
    view.close()


def test_last_frame_is_saved_when_the_run_has_ended(run: ManualRun, saved: Saved) -> None:
    run.spawned("2").completed("1").completed("2").completed("root").ended()

    (kept,) = saved.tick()

    assert (kept["base"], kept["done"], kept["status"]) == (None, True, "completed")
    assert [row["path"] for row in kept["agents"]] == ["root", "1", "2"]
    assert {row["status"] for row in kept["agents"]} == {"completed"}
    assert kept["made"] == 1_700_000_000
    assert saved.tick() == []


def test_pause_is_saved_at_once(run: ManualRun, saved: Saved) -> None:
    run.tell(RunPaused(by="panel"))

    (kept,) = saved.tick()

    assert kept["done"] is False
    assert {row["paused"] for row in kept["agents"]} == {"above"}


def test_running_run_is_saved_from_time_to_time(run: ManualRun, saved: Saved, clock: Clock) -> None:
    for number in range(2, 6):
        run.spawned(str(number))
        assert saved.tick() == []

    clock.now_s += SAVE_EVERY_S
    run.spawned("6")
    (kept,) = saved.tick()
    assert len(kept["agents"]) == 7
    run.spawned("7")
    assert saved.tick() == []


def test_all_parts_of_a_panel_are_saved_as_of_one_time(
    run: ManualRun, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FramePublisher, "_go", lambda _: None)
    publisher = FramePublisher(run.bus)
    panel = RunPanel(publisher)
    (header,) = [each for each in parts_of(panel) if isinstance(each, Header)]
    (tree,) = [each for each in parts_of(panel) if isinstance(each, TreeView)]
    facts = header.children[1]
    sent: list[tuple[Widget, dict[str, Any]]] = []

    def hear(of: Widget) -> None:
        monkeypatch.setattr(of.comm, "send", lambda data, **_: sent.append((of, data)))

    hear(tree)
    hear(facts)

    def tick() -> dict[Widget, str]:
        """Show what is new; what is saved then."""
        sent.clear()
        with publisher.lock:
            publisher._tick()
        return {of: str(data["state"]) for of, data in sent if data["method"] == "update"}

    run.completed("1")
    assert tick() == {}
    assert "1 running, 1 completed" in facts.value
    assert {of for of, _ in sent} == {tree, facts}, "the page shows it at once"

    clock.now_s += SAVE_EVERY_S
    run.spawned("2")
    saved = tick()
    assert "1 pending, 1 running, 1 completed" in saved[facts]
    assert ["'2'" in saved[tree], "'completed'" in saved[tree]] == [True, True]

    clock.now_s += 1
    run.completed("2")
    assert tick() == {}
    run.completed("root").ended()
    saved = tick()
    assert "3 agents: 3 completed" in saved[facts]
    assert "running" not in saved[tree]
    panel.close()


def test_parts_of_a_panel_begin_with_one_frame_whatever_happens_meanwhile(
    run: ManualRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FramePublisher, "_go", lambda _: None)
    attach, numbers = FramePublisher.attach, iter(range(2, 100))

    def busy(publisher: FramePublisher, view: Any) -> None:
        attach(publisher, view)
        run.spawned(str(next(numbers)))

    monkeypatch.setattr(FramePublisher, "attach", busy)
    opened: dict[Widget, dict[str, Any]] = {}
    opening = Widget.open

    def heard(widget: Widget) -> None:
        opening(widget)
        opened[widget] = widget.get_state()

    monkeypatch.setattr(Widget, "open", heard)
    panel = RunPanel(FramePublisher(run.bus))

    (header,) = [each for each in parts_of(panel) if isinstance(each, Header)]
    (tree,) = [each for each in parts_of(panel) if isinstance(each, TreeView)]
    assert next(numbers) > 5, "some began meanwhile"
    assert "2 agents: 1 pending, 1 running" in header.children[1].value
    assert [row["path"] for row in opened[tree]["snapshot"]["agents"]] == ["root", "1"]
    panel.close()


def test_view_that_comes_later_is_saved_as_of_the_same_time_as_the_first(
    run: ManualRun, saved: Saved
) -> None:
    run.spawned("2")
    assert saved.tick() == []
    assert len(saved.publisher.whole().rows) == 3

    later = TreeView(saved.publisher)

    (kept,) = saved.kept
    assert [row["path"] for row in kept["agents"]] == ["root", "1", "2"]
    assert kept["agents"] == later.get_state("snapshot")["snapshot"]["agents"]
    TreeView(saved.publisher).close()
    assert len(saved.kept) == 1, "it agrees with these two"
    later.close()


def test_page_that_opens_again_is_sent_all_views_as_of_one_time(
    run: ManualRun, saved: Saved
) -> None:
    """It asks for the state of each alone, while frames come."""
    facts = Header(saved.publisher).children[1]
    run.spawned("2")
    assert saved.tick() == []
    assert "2 agents" in facts.get_state()["value"]
    assert len(saved.get_state()["snapshot"]["agents"]) == 2
    page = FrontEnd(facts)
    run.after(7)

    saved._handle_custom_msg({"type": "hello", "view": "reloaded"}, [])

    assert [(len(each["agents"]), each["at"]) for each in saved.kept] == [(3, 7.0)]
    assert "3 agents" in page.state["value"]
    assert "0:07" in page.state["value"]
    run.completed("1").completed("2").completed("root").ended()
    saved.tick()
    saved._handle_custom_msg({"type": "hello", "view": "another"}, [])
    assert len(saved.kept) == 2, "it has the end already"


@pytest.mark.parametrize("was_shown", [True, False])
def test_end_of_a_cell_is_shown_and_also_a_run_that_goes_on_where_no_page_listens(
    run: ManualRun, saved: Saved, monkeypatch: pytest.MonkeyPatch, was_shown: bool
) -> None:
    monkeypatch.setattr(frames, "was_any_shown", lambda: was_shown)
    notices = Notices(saved.publisher)
    run.spawned("2").tell(RunPaused(by="panel"))
    saved.tick()  # between two cells
    saved.kept.clear()
    hidden = FrontEnd(notices.layout)

    saved.publisher.catch_up()
    assert [len(each["agents"]) for each in saved.kept] == [3] * (not was_shown)
    assert hidden.messages == [{"display": ""}] * (not was_shown)

    run.completed("1").completed("2").completed("root").ended()
    for _ in range(2):
        saved.publisher.catch_up()
    assert [each["done"] for each in saved.kept][-1:] == [True]
    assert len(saved.kept) == 1 + (not was_shown)


def test_end_that_a_cell_has_shown_is_not_sent_again(
    run: ManualRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread finds it shown."""
    publisher = FramePublisher(run.bus, is_awaited=lambda: False)
    with publisher.lock:
        view = TreeView(publisher)
        thread = publisher._thread
        run.completed("root").ended()
        publisher.catch_up()
    assert thread is not None
    thread.join(DEADLINE_S)
    page = FrontEnd(view)

    publisher.catch_up()

    assert page.messages == []
    view.close()


def test_run_that_has_just_begun_is_saved_more_often(
    run: ManualRun, saved: Saved, clock: Clock
) -> None:
    begun_s, found = clock.now_s, []
    for _ in range(60):
        clock.now_s += 1
        run.after(1)
        found += [clock.now_s - begun_s] * len(saved.tick())

    assert found == [5, 10, 20, 40]


def test_question_is_saved_soon_however_many_there_are(
    run: ManualRun, saved: Saved, clock: Clock
) -> None:
    clock.now_s += 100
    run.after(1)
    assert len(saved.tick()) == 1

    for number in range(10):
        run.tell(
            QuestionAsked(
                agent_id=id_of("1"),
                question_id=f"q{number}",
                question="plan",
                text="So?",
                options=("go",),
            )
        )
        clock.now_s += 1
        assert len(saved.tick()) == (number in (4, 9))


def test_view_that_was_made_before_the_first_agent_is_saved_with_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FramePublisher, "_go", lambda _: None)
    run = ManualRun()
    view = Saved(run)
    run.began().called("root", "Hello")

    (kept,) = view.tick()

    assert [row["path"] for row in kept["agents"]] == ["root"]
    run.spawned("1")
    assert view.tick() == []
    view.close()


def test_run_that_waits_for_its_provider_is_not_saved_each_time(
    run: ManualRun, saved: Saved
) -> None:
    for attempt in range(2, 5):
        for path in ("root", "1"):
            wait = AgentWaiting(agent_id=id_of(path), reason="full", wait_s=1.0, attempt=attempt)
            run.tell(wait)
        assert saved.tick() == []
        assert saved.publisher.whole().summary.status == "waiting"
        run.called("root").called("1")
        assert saved.tick() == []
        assert saved.publisher.whole().summary.status == "running"


def test_end_between_two_cells_is_sent_again_with_all_parts_of_a_panel(
    run: ManualRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is hidden, or has a text, is in models of their own."""
    monkeypatch.setattr(FramePublisher, "_go", lambda _: None)
    publisher = FramePublisher(run.bus)
    panel = RunPanel(publisher)
    run.completed("root").ended()
    with publisher.lock:
        publisher._tick()
    publisher._is_end_unseen = True
    sent: list[str] = []
    monkeypatch.setattr(Widget, "send_state", lambda self, key=None: sent.append(self.model_id))

    publisher.show_end()

    parts = [each for child in panel.children for each in parts_of(child)]
    assert {model.model_id for each in parts for model in (each, each.layout)} <= {*sent}
    panel.close()


def test_end_is_shown_before_the_wait_for_the_run_is_over(run: ManualRun, saved: Saved) -> None:
    saved.publisher.show_end()
    assert saved.kept == [], "it has not ended"

    run.completed("root").ended()
    saved.publisher.show_end()

    (kept,) = saved.kept
    assert kept["done"] is True


@pytest.mark.parametrize("awaited", ["never", "always", "while the end is sent"])
def test_end_between_two_cells_is_sent_again_when_somebody_asks(
    run: ManualRun, monkeypatch: pytest.MonkeyPatch, awaited: str
) -> None:
    """nbclient hears a widget only while a cell runs."""
    monkeypatch.setattr(frames, "FRAME_S", 0)

    def is_awaited() -> bool:
        return awaited == "always" or (awaited != "never" and view.publisher.done)

    publisher = FramePublisher(run.bus, is_awaited=lambda: False)
    view = TreeView(publisher)
    publisher._is_awaited = is_awaited
    thread = view.publisher._thread
    assert thread is not None
    run.completed("root").ended()
    thread.join(DEADLINE_S)
    page = FrontEnd(view)

    for _ in range(2):
        view.publisher.show_end()

    assert [said["snapshot"]["done"] for said in page.messages] == [True] * (awaited != "always")
    view.close()


def test_saved_tree_has_a_thousand_agents_and_counts_the_others(run: ManualRun) -> None:
    for number in range(2, 1_200):
        run.spawned(str(number))
    run.completed("1").completed("1100").ended()
    view = TreeView(FramePublisher(run.bus))

    frame = view.get_state("snapshot")["snapshot"]

    assert len(frame["agents"]) == 1_000
    assert frame["agents"][0]["path"] == "root"
    assert frame["left_out"] == "200 more agents: 199 pending, 1 completed"
    assert len(view._full_frame()["agents"]) == 1_200, "a kernel answers with all"
    view.close()


@pytest.mark.parametrize(("rows", "judges"), [(1_200, 1), (1_100, 3)])
def test_saved_map_has_a_thousand_rows(rows: int, judges: int) -> None:
    run = ManualRun().began()
    for number in range(1, rows * judges + 1):
        run.spawned(str(number)).completed(str(number))
    run.spawned(f"{rows * judges}.1").ended()
    labels = [f"row {number}" for number in range(rows)]
    view = MapTable(FramePublisher(run.bus), MapShape(rows, judges, labels))

    frame = view.get_state("snapshot")["snapshot"]

    assert frame["rows"] == len(frame["labels"]) == 1_000
    assert len(frame["agents"]) == 1 + 1_000 * judges
    left = (rows - 1_000) * judges
    assert frame["left_out"].startswith(f"{rows - 1_000} more rows")
    assert f"{left} completed" in frame["left_out"]
    view.close()


def test_small_map_with_many_agents_is_saved_whole() -> None:
    run = ManualRun().began()
    for number in range(1, 1_201):
        run.spawned(str(number))
    view = MapTable(FramePublisher(run.bus), MapShape(400, 3))

    frame = view.get_state("snapshot")["snapshot"]

    assert len(frame["agents"]) == 1_201
    assert "left_out" not in frame
    view.close()
