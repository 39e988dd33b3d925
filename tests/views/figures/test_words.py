from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.types import AgentStatus, RunUsage
from agentnb.views.figures.ticks import ticks, time_ticks
from agentnb.views.figures.words import (
    by_status,
    cache_words,
    counted,
    seconds,
    share,
    short_count,
    status_list,
)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (0, "0"),
        (987, "987"),
        (999, "999"),
        (1000, "1k"),
        (1234, "1.2k"),
        (99_940, "99.9k"),
        (99_960, "100k"),
        (999_499, "999k"),
        (999_600, "1M"),
        (1_234_567, "1.2M"),
        (2_000_000_000, "2G"),
    ],
)
def test_tokens_are_short(tokens: int, words: str) -> None:
    assert short_count(tokens) == words


@given(st.integers(0, 10**12))
def test_no_number_of_tokens_takes_more_than_five_letters(tokens: int) -> None:
    assert len(short_count(tokens)) <= 5


@pytest.mark.parametrize(
    ("duration_s", "words"),
    [
        (0, "0 ms"),
        (0.34, "340 ms"),
        (0.9996, "1 s"),
        (3.21, "3.2 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (4800, "1 h 20 min"),
        (7200, "2 h"),
    ],
)
def test_times_are_given_in_a_unit_that_fits(duration_s: float, words: str) -> None:
    assert seconds(duration_s) == words


def test_shares_and_counts_are_given_in_words() -> None:
    assert [share(1, 8), share(1, 1000), share(0, 5), share(1, 0)] == ["12 %", "<1 %", "0 %", "0 %"]
    assert [share(996, 1000), share(5, 5)] == [">99 %", "100 %"]
    assert [counted(1, "agent"), counted(1234, "agent")] == ["1 agent", "1,234 agents"]


def test_share_of_the_input_from_a_cache_is_told_where_any_input_touched_one() -> None:
    read = RunUsage(input_tokens=600, cache_creation_tokens=400, cached_tokens=1000)

    assert cache_words(read) == "50 % of input from cache (1,000 tokens)"
    assert cache_words(RunUsage(100, 10, cache_creation_tokens=5)) == "0 % of input from cache"
    assert cache_words(RunUsage(100, 10)) == ""


def test_statuses_are_counted_in_their_own_order() -> None:
    given = [AgentStatus.FAILED, AgentStatus.COMPLETED, AgentStatus.FAILED]

    assert list(by_status(given).items()) == [(AgentStatus.COMPLETED, 1), (AgentStatus.FAILED, 2)]


def test_few_agents_are_named_one_by_one_and_many_by_what_went_wrong() -> None:
    done, failed = AgentStatus.COMPLETED, AgentStatus.FAILED

    assert status_list([("root", done), ("1", failed)]) == "root completed, 1 failed"
    many = [("root", done), *[(str(i), done if i % 2 else failed) for i in range(1, 31)]]
    assert status_list(many) == (
        "16 completed, 15 failed (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, …)"
    )


@given(st.floats(1e-6, 1e9), st.integers(1, 12))
def test_ticks_are_few_round_and_evenly_apart(end: float, count: int) -> None:
    for places in (ticks(end, count), time_ticks(end, count)):
        assert places[0] == 0
        assert len(places) <= count + 1
        assert places[-1] <= end * 1.001
        step = places[1] if len(places) > 1 else end
        assert all(b - a == pytest.approx(step) for a, b in itertools.pairwise(places))


def test_no_time_has_one_tick() -> None:
    assert ticks(0, 5) == time_ticks(0, 5) == [0.0]


def test_long_times_have_ticks_that_are_round_as_times() -> None:
    assert time_ticks(100, 8) == [0, 15, 30, 45, 60, 75, 90]
    assert time_ticks(1000, 8) == [0, 300, 600, 900]
    assert time_ticks(4 * 3600, 8) == [0, 1800, 3600, 5400, 7200, 9000, 10800, 12600, 14400]
