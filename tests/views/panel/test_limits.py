"""How far the budget's controls go."""

from __future__ import annotations

import pytest

from agentnb.errors import NotebookError
from agentnb.views.panel.limits import (
    CEILING_VARIABLE,
    LARGEST,
    allowed_total,
    ceiling_of,
    highest_total,
    slider_end,
    slider_step,
)

TOTALS = [0, 1, 499, 500, 501, 1234, 50_000, 123_456, 500_000, 10_000_000, 2**53, 10**30]


@pytest.mark.parametrize(
    ("total", "end"),
    [(50_000, 100_000), (60_000, 150_000), (123_456, 250_000), (500_000, 1_000_000), (0, 1_000)],
)
def test_slider_ends_at_a_round_number_of_about_twice_the_total(total: int, end: int) -> None:
    assert slider_end(total) == end


@pytest.mark.parametrize("total", TOTALS)
def test_slider_always_holds_the_total_and_has_room_above_it(total: int) -> None:
    end = slider_end(total)

    assert end >= total
    assert 1_000 <= end <= max(3 * total, 1_000)
    if 500 <= total <= LARGEST // 2:
        assert end >= 2 * total
        assert str(end).rstrip("0") in ("1", "15", "2", "25", "3", "4", "5", "6", "8")


def test_slider_grows_when_the_total_comes_near_its_end() -> None:
    assert slider_end(75_000, end=100_000) == 100_000
    assert slider_end(75_001, end=100_000) == 200_000
    assert slider_end(500_000, end=100_000) == 1_000_000


def test_slider_that_has_grown_does_not_shrink_under_a_persons_hand() -> None:
    assert slider_end(10, end=100_000) == 100_000
    assert slider_end(0, end=100_000) == 100_000


def test_slider_ends_at_the_ceiling() -> None:
    assert slider_end(50_000, ceiling=60_000) == 60_000
    assert slider_end(59_000, end=60_000, ceiling=60_000) == 60_000
    assert slider_end(50_000, ceiling=1_000_000) == 100_000


def test_total_above_the_ceiling_is_held_until_it_is_lowered() -> None:
    assert slider_end(80_000, ceiling=60_000) == 80_000
    assert highest_total(80_000, 60_000) == 80_000
    assert slider_end(40_000, end=80_000, ceiling=60_000) == 60_000
    assert highest_total(40_000, 60_000) == 60_000


def test_without_a_ceiling_any_total_goes_that_a_browser_can_hold() -> None:
    assert highest_total(50_000, None) == LARGEST == 9_007_199_254_740_991
    assert highest_total(50_000, 2**60) == LARGEST


@pytest.mark.parametrize(
    ("end", "step"), [(1_000, 5), (1_500, 10), (100_000, 500), (150_000, 1_000), (61_234, 500)]
)
def test_key_moves_the_slider_by_a_round_number(end: int, step: int) -> None:
    assert slider_step(end) == step


def test_key_moves_the_smallest_slider_too() -> None:
    assert slider_step(1) == 1


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        (80_000, 80_000),
        (12_345, 12_345),
        (12_344, 12_345),
        (0, 12_345),
        (-5, 12_345),
        (10**9, 10**6),
    ],
)
def test_allowed_is_the_nearest_total_between_what_is_used_and_the_end(
    wanted: int, allowed: int
) -> None:
    assert allowed_total(wanted, used=12_345, highest=10**6) == allowed


def test_end_holds_also_where_more_is_used() -> None:
    assert allowed_total(5, used=70_000, highest=60_000) == 60_000


@pytest.mark.parametrize(
    ("text", "ceiling"),
    [(None, None), ("", None), ("  ", None), ("200000", 200_000), (" 200_000 ", 200_000), ("1", 1)],
)
def test_ceiling_is_a_whole_number_of_tokens_or_nothing(
    text: str | None, ceiling: int | None
) -> None:
    assert ceiling_of(text) == ceiling


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e6", "200,000", "plenty", "9" * 5000])
def test_ceiling_that_is_no_number_of_tokens_is_named_with_what_to_do(text: str) -> None:
    with pytest.raises(NotebookError) as raised:
        ceiling_of(text)

    assert f"{CEILING_VARIABLE} is {text[:80]!r}" in str(raised.value)
    assert "such as 200_000" in str(raised.value)
    assert len(str(raised.value)) < 300
