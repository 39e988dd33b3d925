"""Who counts as somebody who looks."""

from __future__ import annotations

from agentnb.views.panel.viewers import FIRST_VIEW_S, GONE_AFTER_S, Viewers
from tests.core.clock import ManualClock


def test_view_counts_until_it_takes_its_leave() -> None:
    viewers = Viewers(ManualClock().now)
    viewers.seen("m", "one")
    viewers.seen("m", "two")

    viewers.gone("m", "one")
    assert viewers.any()
    viewers.gone("m", "two")
    assert not viewers.any()


def test_view_of_a_page_that_was_closed_counts_for_a_while_only() -> None:
    clock = ManualClock()
    viewers = Viewers(clock.now)
    viewers.seen("m", "one")

    clock.advance(GONE_AFTER_S - 1)
    assert viewers.any()
    clock.advance(2)
    assert not viewers.any()


def test_view_that_says_it_is_there_goes_on_to_count() -> None:
    clock = ManualClock()
    viewers = Viewers(clock.now)
    for _ in range(10):
        viewers.seen("m", "one")
        clock.advance(GONE_AFTER_S / 2)

    assert viewers.any()


def test_closed_widget_takes_all_its_views_along() -> None:
    viewers = Viewers(ManualClock().now)
    viewers.seen("m", "one")
    viewers.seen("m", "two")

    viewers.gone("m")

    assert not viewers.any()


def test_run_that_nobody_waits_for_can_always_be_answered() -> None:
    assert Viewers(ManualClock().now).patience() is None


def test_run_whose_caller_waits_is_answered_by_a_view_alone() -> None:
    viewers = Viewers(ManualClock().now)
    viewers.only_views_answer(expects_view=False)

    assert viewers.patience() == 0
    viewers.seen("m", "one")
    assert viewers.patience() is None
    viewers.gone("m")
    assert viewers.patience() is None, "its page may come back"


def test_view_that_is_about_to_be_shown_has_a_little_time_to_come() -> None:
    clock = ManualClock()
    viewers = Viewers(clock.now)
    viewers.only_views_answer(expects_view=True)

    clock.advance(1)
    assert viewers.patience() == FIRST_VIEW_S - 1
    clock.advance(FIRST_VIEW_S)
    assert viewers.patience() == 0
