"""Frames: everything at once, then what changes, to the last one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import ClassVar

import pytest

from agentnb.core.types import AgentStatus
from agentnb.views.panel import frames
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.wire import Frame
from tests.support import DEADLINE_S
from tests.views.panel.manual_run import ManualRun, Screen


class WatchedScreen(Screen):
    """A screen that a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._came = threading.Condition()

    def show(self, frame: Frame) -> None:
        with self._came:
            super().show(frame)
            self._came.notify_all()

    def read_on(self) -> None:
        with self._came:
            super().read_on()
            self._came.notify_all()

    def wait_until(self, is_so: Callable[[WatchedScreen], bool]) -> None:
        with self._came:
            assert self._came.wait_for(lambda: is_so(self), DEADLINE_S), self.frames[-1:]


def panel_threads() -> int:
    return sum(thread.name == "agentnb-panel" for thread in threading.enumerate())


def wait_for_no_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "agentnb-panel":
            thread.join(DEADLINE_S)
    assert panel_threads() == 0


def test_run_whose_end_cannot_be_told_takes_no_other_end_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FramePublisher, "_go", lambda publisher: None)
    publishers, screens = [], [Screen() for _ in range(3)]
    for screen in screens:
        publishers.append(FramePublisher(ManualRun().began().bus))
        publishers[-1].attach(screen)
    monkeypatch.setattr(frames, "_attached", publishers)
    broken = publishers[0]

    def fails(*_: object, **__: object) -> None:
        raise ValueError("no end")

    monkeypatch.setattr(broken, "interrupt", fails)
    frames.interrupt_open()
    monkeypatch.setattr(broken, "show_end", fails)
    frames.show_ends()

    said = [screen.frames[-1].summary.status for screen in screens[1:]]
    assert said == [AgentStatus.INTERRUPTED] * 2


def test_interrupt_at_the_end_of_a_cell_leaves_no_view_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cell's code has ended: there is nothing left to stop."""
    monkeypatch.setattr(FramePublisher, "_go", lambda publisher: None)
    monkeypatch.setattr(frames, "was_any_shown", lambda: False)

    class Interrupted(Screen):
        def show(self, frame: Frame) -> None:
            super().show(frame)
            signal.raise_signal(signal.SIGINT)

    run = ManualRun().began()
    publisher, first, second = FramePublisher(run.bus), Interrupted(), Screen()
    publisher.attach(second)
    monkeypatch.setattr(frames, "_attached", [publisher])
    monkeypatch.setattr(publisher, "_views", [first, second])
    run.spawned("1")

    try:
        frames.catch_up()
    except KeyboardInterrupt:
        pytest.fail("it would end the tests, too")

    assert first.frames == second.frames[1:]
    assert "1" in second.rows
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_view_gets_everything_when_it_is_attached() -> None:
    run = ManualRun().began().spawned("1").called("1").said("1", "x" * 40)
    publisher, screen = FramePublisher(run.bus), Screen()

    publisher.attach(screen)
    publisher.detach(screen)

    (frame,) = screen.frames
    assert list(frame.rows) == ["root", "1"]
    assert frame.rows["1"]["tokens"] == 10
    wait_for_no_thread()


def test_view_gets_what_changes_and_nothing_else() -> None:
    run = ManualRun().began().spawned("1").called("1")
    publisher, screen = FramePublisher(run.bus), WatchedScreen()
    publisher.attach(screen)

    run.said("1", "x" * 40)
    screen.wait_until(lambda s: s.rows["1"]["tokens"] == 10)

    change = next(frame.rows for frame in screen.frames[1:] if frame.rows)
    assert change == {"1": {"tokens": 10, "estimated": True, "doing": ""}}
    run.completed("1").completed("root").ended()
    screen.wait_until(lambda s: s.frames[-1].summary.done)
    wait_for_no_thread()


def test_what_only_grows_comes_once_a_second_and_all_else_at_once() -> None:
    run = ManualRun().began().spawned("1").called("1").said("1", "x" * 4)
    publisher, screen = FramePublisher(run.bus), Screen()
    with publisher.lock:  # its own thread waits: frames are made here
        publisher.attach(screen)
        shown = len(screen.frames)
        run.after(0.4).said("1", "x" * 36)
        publisher._tick()
        assert (len(screen.frames), screen.read) == (shown, 1)
        run.spawned("2")
        publisher._tick()
        assert list(screen.frames[-1].rows) == ["root", "2"]
        run.after(0.6).said("1", "x" * 4)
        publisher._tick()
        assert screen.frames[-1].rows == {"1": {"tokens": 11}}
        run.ended()
    wait_for_no_thread()


def test_trouble_with_keeping_the_run_is_told_once() -> None:
    class Kept:
        footer = "Kept in a file."
        trouble: str | None = None

    run, kept = ManualRun().began(), Kept()
    publisher, screen = FramePublisher(run.bus, kept=kept), Screen()
    with publisher.lock:
        publisher.attach(screen)
        publisher._tick()
        assert [*screen.frames[-1].summary.notices] == []
        kept.trouble = "The disk is full."
        publisher._tick()
        publisher._tick()
        assert [*screen.frames[-1].summary.notices] == ["The disk is full."]
        run.ended()
    wait_for_no_thread()


def test_line_on_how_a_run_was_answered_is_told_once_when_it_has_ended() -> None:
    run = ManualRun().began()
    publisher, screen = FramePublisher(run.bus, at_end=lambda: "2 new calls."), Screen()
    with publisher.lock:
        publisher.attach(screen)
        assert [*screen.frames[-1].summary.notices] == []
        run.ended()
        publisher._tick()
        publisher._tick()
    wait_for_no_thread()
    assert [*screen.frames[-1].summary.notices] == ["2 new calls."]


def test_begin_of_a_reply_is_shown_at_once() -> None:
    run = ManualRun().began().called("root")
    publisher, screen = FramePublisher(run.bus), Screen()
    with publisher.lock:
        publisher.attach(screen)
        run.after(0.1).said("root", "Hello")
        publisher._tick()
        assert screen.frames[-1].rows == {"root": {"tokens": 1, "estimated": True, "doing": ""}}
        run.ended()
    wait_for_no_thread()


def test_report_of_a_tool_comes_once_a_second_and_its_begin_and_end_at_once() -> None:
    run = ManualRun().began().called("root").replied("root")
    publisher, screen = FramePublisher(run.bus), Screen()
    with publisher.lock:
        publisher.attach(screen)
        run.after(0.1).tool("root", "a")
        publisher._tick()
        tool = {"name": "look_up", "said": "", "since": 0.1}
        assert screen.frames[-1].rows["root"] == {
            "tool": tool,
            "tool_calls": 1,
            "doing": "tool look_up",
        }
        run.reported("root", "a", "1 of 9")
        publisher._tick()
        assert screen.frames[-1].rows == {"root": {"tool": {**tool, "said": "1 of 9"}}}
        shown = len(screen.frames)
        run.after(0.2).reported("root", "a", "2 of 9")
        publisher._tick()
        run.after(0.2).reported("root", "a", "3 of 9")
        publisher._tick()
        assert (len(screen.frames), screen.read) == (shown, 2)
        run.after(0.6)
        publisher._tick()
        assert screen.frames[-1].rows == {"root": {"tool": {**tool, "said": "3 of 9"}}}
        run.tool_ended("root", "a", is_error=True)
        publisher._tick()
        assert screen.frames[-1].rows == {"root": {"tool": None, "tool_errors": 1, "doing": ""}}
        run.ended()
    wait_for_no_thread()


def test_publisher_sleeps_through_text_that_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentnb.views.panel.frames.TICK_S", DEADLINE_S)
    run = ManualRun().began().called("root").said("root", "Hm")
    publisher, screen = FramePublisher(run.bus), WatchedScreen()
    publisher.attach(screen)
    run.said("root", "more").spawned("1")
    screen.wait_until(lambda s: "1" in s.rows)
    before = screen.read

    run.said("root", "and more").spawned("2")
    screen.wait_until(lambda s: "2" in s.rows)
    assert screen.read == before
    screen.is_read = True
    run.bus.notify()
    run.said("root", "read")
    screen.wait_until(lambda s: s.read > before)
    run.ended()


def test_frames_are_numbered_without_a_gap() -> None:
    run = ManualRun().began()
    publisher, screen = FramePublisher(run.bus), WatchedScreen()
    publisher.attach(screen)
    for path in ("1", "2", "3"):
        run.spawned(path)
        screen.wait_until(lambda s, path=path: path in s.rows)  # type: ignore[misc]
    run.ended()
    screen.wait_until(lambda s: s.frames[-1].summary.done)

    seqs = [frame.seq for frame in screen.frames]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


def test_last_frame_always_comes_and_then_nothing_runs() -> None:
    run = ManualRun().began().called("root")
    publisher, screen = FramePublisher(run.bus), WatchedScreen()
    publisher.attach(screen)

    run.said("root", "bye").replied("root", tokens=7).completed("root").ended()
    screen.wait_until(lambda s: s.frames[-1].summary.done)

    assert screen.rows["root"]["status"] == "completed"
    assert screen.rows["root"]["tokens"] == 7
    wait_for_no_thread()


def test_two_views_are_shown_the_same_and_a_late_one_everything() -> None:
    run = ManualRun().began().spawned("1")
    publisher, early, late = FramePublisher(run.bus), WatchedScreen(), WatchedScreen()
    publisher.attach(early)
    run.called("1").said("1", "x" * 40)
    early.wait_until(lambda s: s.rows["1"]["tokens"] == 10)
    publisher.attach(late)
    run.completed("1").completed("root").ended()
    early.wait_until(lambda s: s.frames[-1].summary.done)
    late.wait_until(lambda s: s.frames[-1].summary.done)

    assert early.rows == late.rows
    assert early.frames[-1] is late.frames[-1]


def test_view_of_a_run_that_has_ended_gets_everything_without_a_thread() -> None:
    run = ManualRun().began().completed("root").ended()
    screen = Screen()

    FramePublisher(run.bus).attach(screen)

    assert screen.frames[-1].summary.done
    assert screen.rows["root"]["status"] == "completed"
    assert panel_threads() == 0


def test_publisher_whose_last_view_is_gone_rests_and_wakes_for_the_next_one() -> None:
    run = ManualRun().began()
    publisher, first, second = FramePublisher(run.bus), WatchedScreen(), WatchedScreen()
    publisher.attach(first)
    publisher.detach(first)
    run.spawned("1")
    wait_for_no_thread()

    publisher.attach(second)
    run.spawned("2").ended()
    second.wait_until(lambda s: s.frames[-1].summary.done)

    assert list(second.rows) == ["root", "1", "2"]
    assert len(first.frames) == 1


def test_interrupt_in_the_middle_of_a_frame_loses_nothing() -> None:
    class Interrupted(Screen):
        def show(self, frame: Frame) -> None:
            super().show(frame)
            if len(self.frames) == 2:
                raise KeyboardInterrupt

    run = ManualRun().began()
    publisher, first, second = FramePublisher(run.bus), Interrupted(), WatchedScreen()
    with publisher.lock:
        publisher.attach(first)
        publisher.attach(second)
        run.spawned("1")
        with pytest.raises(KeyboardInterrupt):
            publisher._tick()
    run.spawned("2").ended()
    second.wait_until(lambda s: s.frames[-1].summary.done)

    assert sorted(second.rows) == ["1", "2", "root"]


def test_publisher_that_fails_ends_its_views_in_silence_and_serves_new_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = ManualRun().began()
    calls = [RuntimeError("no budget")]

    def budget() -> tuple[int, int, str]:
        if len(screen.frames) and calls:
            raise calls.pop()
        return 1, 2, "tokens"

    publisher, screen, later = FramePublisher(run.bus, budget=budget), Screen(), WatchedScreen()
    publisher.attach(screen)
    run.spawned("1")
    wait_for_no_thread()
    assert "no budget" in caplog.text

    publisher.attach(later)
    run.spawned("2").ended()
    later.wait_until(lambda s: s.frames[-1].summary.done)

    assert sorted(later.rows) == ["1", "2", "root"]


def test_view_that_fails_is_left_out_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Screen):
        def show(self, frame: Frame) -> None:
            super().show(frame)
            if len(self.frames) > 1:
                raise RuntimeError("no front end")

    run = ManualRun().began()
    publisher, broken, screen = FramePublisher(run.bus), Broken(), WatchedScreen()
    publisher.attach(broken)
    publisher.attach(screen)
    run.spawned("1")
    screen.wait_until(lambda s: "1" in s.rows)
    run.ended()
    screen.wait_until(lambda s: s.frames[-1].summary.done)

    assert len(broken.frames) == 2
    assert "no front end" in caplog.text


def test_time_goes_on_where_no_event_comes() -> None:
    run = ManualRun().began().called("root")
    publisher, screen = FramePublisher(run.bus), WatchedScreen()
    publisher.attach(screen)

    run.after(40)
    screen.wait_until(lambda s: s.frames[-1].summary.at_s == 40)

    screen.wait_until(lambda s: s.rows["root"]["stalled"])
    run.ended()
    screen.wait_until(lambda s: s.frames[-1].summary.done)


def test_what_is_shown_beside_the_events_is_a_notice_of_every_view() -> None:
    run = ManualRun().began().ended(AgentStatus.FAILED, error="no key")
    publisher, screen = FramePublisher(run.bus), Screen()
    publisher.attach(screen)

    publisher.tell("The order came\ntoo late.")

    assert screen.frames[-1].summary.notices == (
        "The run failed: no key",
        "The order came too late.",
    )


def test_order_that_fails_on_the_runs_own_thread_waits_for_no_view() -> None:
    run = ManualRun().began()
    publisher, screen = FramePublisher(run.bus), WatchedScreen()
    publisher.attach(screen)

    with publisher.lock:  # a view is being shown something, for as long as it takes
        failing = threading.Thread(target=publisher.tell, args=("It failed.",))
        failing.start()
        failing.join(DEADLINE_S)
        assert not failing.is_alive()

    screen.wait_until(lambda s: s.frames[-1].summary.notices == ("It failed.",))
    run.ended()
    screen.wait_until(lambda s: s.frames[-1].summary.done)


def test_budget_itself_is_asked_if_it_is_given() -> None:
    run = ManualRun().began().ended()
    screen = Screen()

    FramePublisher(run.bus, budget=lambda: (30, 40, "tokens")).attach(screen)

    assert (screen.frames[-1].summary.tokens_used, screen.frames[-1].summary.budget_total) == (
        30,
        40,
    )


def test_cost_is_asked_for_when_a_call_has_ended() -> None:
    class Costs:
        by_agent: ClassVar = {"root": "$1"}

        def __str__(self) -> str:
            return "about $2"

        def times(self, factor: float) -> str:
            return f"${2 * factor:g}"

    run = ManualRun().began().called("root")
    publisher, screen = FramePublisher(run.bus, cost=Costs), WatchedScreen()
    publisher.attach(screen)
    assert screen.frames[-1].summary.cost == ""

    run.replied("root").completed("root").ended()
    screen.wait_until(lambda s: s.frames[-1].summary.done)

    assert screen.frames[-1].summary.cost == "about $2"
    assert (publisher.cost_of("root"), publisher.cost_of("1")) == ("$1", "")
    assert publisher.cost_times(3) == "$6"


def test_cost_is_summed_up_with_each_frame_so_that_no_frame_has_many_calls() -> None:
    run, asked = ManualRun().began().spawned("1").spawned("2").called("1").called("2"), []

    class Costs:
        by_agent: ClassVar = dict[str, str]()

        def __init__(self) -> None:
            asked.append(len(run.bus))

        def times(self, factor: float) -> str:
            return ""

    publisher, screen = FramePublisher(run.bus, cost=Costs), Screen()
    with publisher.lock:
        publisher.attach(screen)
        for path in ("1", "2"):
            run.replied(path)
            publisher._tick()
        publisher._tick()  # no call has ended since
    run.ended()

    assert asked == [len(run.bus) - 2, len(run.bus) - 1]


def test_replay_shows_the_tree_as_it_was_forwards_and_backwards() -> None:
    run = ManualRun().began().called("root").after(1).said("root", "x" * 40).after(1)
    run.replied("root", tokens=50).spawned("1").after(1).completed("1").completed("root").ended()
    publisher = FramePublisher(run.bus)

    def at(seconds: float) -> list[tuple[str, str, int]]:
        fold = publisher.at(seconds)
        rows = [fold.row(agent_id) for agent_id in fold.tree.agents]
        return [(row["path"], row["status"], row["tokens"]) for row in rows]

    assert at(0.5) == [("root", "running", 0)]
    assert at(2.5) == [("root", "running", 50), ("1", "pending", 0)]
    assert at(1.5) == [("root", "running", 10)]
    assert at(3) == [("root", "completed", 50), ("1", "completed", 0)]
