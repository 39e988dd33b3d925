"""A task may come up so many times in a run, and never below itself."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.cycles import CycleDetector


@pytest.mark.parametrize("threshold", [1, 3, 5])
def test_sighting_after_the_threshold_is_a_cycle_and_so_is_every_later_one(threshold: int) -> None:
    detector = CycleDetector(threshold)

    sightings = [detector.check_and_register("Count words", 1) for _ in range(threshold + 2)]

    assert [bool(sighting) for sighting in sightings] == [False] * threshold + [True] * 2


def test_threshold_is_three_unless_said_otherwise() -> None:
    assert CycleDetector().threshold == 3


def test_description_names_the_normalised_task_the_count_and_the_threshold() -> None:
    detector = CycleDetector(7)
    for _ in range(7):
        detector.check_and_register("Count  WORDS\n", 1)

    description = detector.check_and_register("count words", 2)

    assert description == (
        'the task "count words" at depth 2 came up 8 times in this run, '
        "more often than the threshold of 7 allows"
    )


def test_case_and_white_space_make_no_other_task() -> None:
    detector = CycleDetector(1)

    assert detector.check_and_register("Count\twords ", 1) is None
    assert detector.check_and_register("  count \n WORDS", 3) is not None


def test_other_tasks_count_on_their_own() -> None:
    detector = CycleDetector(1)

    assert detector.check_and_register("count words", 1) is None
    assert detector.check_and_register("countwords", 1) is None
    assert detector.check_and_register("count words.", 1) is None


def test_task_of_an_ancestor_is_a_cycle_at_once() -> None:
    description = CycleDetector(3).check_and_register(
        "Count Words", 2, ancestors=["Write a report", " count\nwords"]
    )

    assert description == (
        'the task "count words" at depth 2 is the task of an agent above it '
        "(it came up 1 time in this run; the threshold is 3)"
    )


def test_other_ancestors_are_no_cycle() -> None:
    assert CycleDetector(1).check_and_register("a", 2, ancestors=("b", "a b", "")) is None


def test_refused_sighting_counts_as_well() -> None:
    detector = CycleDetector(1)

    assert detector.check_and_register("a", 2, ancestors=["a"]) is not None
    assert detector.check_and_register("a", 1) is not None


def test_runs_do_not_see_each_other() -> None:
    assert CycleDetector(1).check_and_register("a", 1) is None
    assert CycleDetector(1).check_and_register("a", 1) is None


@pytest.mark.parametrize("threshold", [0, -1])
def test_threshold_below_one_is_refused(threshold: int) -> None:
    with pytest.raises(ValueError, match=f"threshold is {threshold}.*at least 1"):
        CycleDetector(threshold)


def test_long_task_is_shortened_in_the_description() -> None:
    description = CycleDetector().check_and_register("a" * 10_000, 1, ancestors=["A" * 10_000])

    assert description is not None
    assert len(description) < 400


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_a_task(task: str) -> None:
    detector = CycleDetector(1)

    assert detector.check_and_register(task, 1) is None
    assert detector.check_and_register(f" {task} ", 1) is not None


def test_threads_together_pass_no_more_than_the_threshold() -> None:
    detector = CycleDetector(50)
    together = threading.Barrier(4)
    passed: list[None] = []

    def ask() -> None:
        together.wait(timeout=10)
        for _ in range(100):
            if detector.check_and_register("a", 1) is None:
                passed.append(None)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(passed) == 50
    assert "401 times" in (detector.check_and_register("a", 1) or "")
