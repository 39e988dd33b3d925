"""A total that a person ordered, and frames that come meanwhile."""

from __future__ import annotations

from agentnb.views.panel.commands import PendingValue


def test_without_a_command_the_newest_frame_is_shown() -> None:
    pending = PendingValue(50)

    assert pending.heard(60) == 60
    assert pending.shown == 60


def test_frame_made_before_a_command_does_not_move_the_control_back() -> None:
    pending = PendingValue(50)

    pending.give(80)

    assert pending.shown == 80
    assert pending.heard(50) == 80  # the order is still on its way
    pending.made(True)
    assert pending.heard(50) == 80  # this frame was under way while it was made
    assert pending.heard(80) == 80


def test_what_somebody_else_sets_afterwards_is_shown_at_once() -> None:
    pending = PendingValue(50)
    pending.give(80)
    pending.made(True)

    assert pending.heard(80) == 80
    assert pending.heard(50) == 50


def test_total_that_somebody_else_set_meanwhile_is_shown_with_the_first_frame() -> None:
    pending = PendingValue(50)
    pending.give(80)
    pending.made(True)

    assert pending.heard(60) == 60


def test_total_that_was_set_back_meanwhile_is_shown_with_the_second_frame() -> None:
    pending = PendingValue(50)
    pending.give(80)
    pending.made(True)

    assert pending.heard(50) == 80
    assert pending.heard(50) == 50


def test_of_several_commands_in_a_row_only_the_last_is_shown() -> None:
    pending = PendingValue(50)
    pending.give(80)
    pending.give(70)
    pending.made(True)

    assert pending.heard(80) == 70
    pending.made(True)
    assert pending.heard(80) == 70  # made between the two
    assert pending.heard(70) == 70


def test_order_and_its_taking_back_leave_the_control_where_it_was() -> None:
    pending = PendingValue(50)
    pending.give(80)
    pending.give(50)
    pending.made(True)
    pending.made(True)

    assert [pending.heard(total) for total in (80, 50, 50)] == [50, 50, 50]


def test_order_that_failed_gives_way_to_what_the_run_has() -> None:
    pending = PendingValue(50)
    pending.give(80)

    pending.made(False)

    assert pending.shown == 50
    assert pending.heard(50) == 50


def test_failed_command_does_not_take_a_later_one_with_it() -> None:
    pending = PendingValue(50)
    pending.give(80)
    pending.give(70)

    pending.made(False)

    assert pending.shown == 70


def test_when_the_run_is_over_what_it_says_holds() -> None:
    pending = PendingValue(50)
    pending.give(80)

    pending.forget()

    assert pending.heard(50) == 50
