"""An agent's children are numbered once, also across runs, and every reader agrees."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentnb.core.events import AgentSpawned, CycleDetected, DepthLimitReached, SpawnIgnored
from agentnb.core.numbers import ChildNumbers
from agentnb.core.tree import TreeFold
from agentnb.testing.memory_journal import MemoryJournal
from tests.support import by_agent, make_tree, spawn

THREAD = "nb_20261101_k3x9aa"


def test_numbers_begin_at_one_and_each_is_given_once() -> None:
    numbers = ChildNumbers()

    assert numbers.next("a") == 1
    assert (numbers.take("a"), numbers.take("a", 3), numbers.take("b", 2)) == (
        (1,),
        (2, 3, 4),
        (1, 2),
    )
    assert (numbers.next("a"), numbers.next("b"), numbers.next("c")) == (5, 3, 1)


def test_numbers_go_on_where_they_are_told_to() -> None:
    numbers = ChildNumbers()
    numbers.start("a", 5)

    assert numbers.next("a") == 5
    assert numbers.take("a", 2) == (5, 6)
    assert numbers.all() == {"a": 7}


def test_agents_that_gave_none_are_not_listed_unless_they_were_started() -> None:
    numbers = ChildNumbers()
    numbers.start("a", 1)
    assert numbers.take("b", 0) == ()
    numbers.next("c")

    assert numbers.all() == {"a": 1}


@pytest.mark.parametrize("first", [0, -1, 1.5, True, "2"])
def test_beginning_that_is_no_number_is_refused(first: Any) -> None:
    with pytest.raises(ValueError, match="`first` must be a whole number, at least 1"):
        ChildNumbers().start("a", first)


def test_number_that_was_given_is_not_given_again() -> None:
    numbers = ChildNumbers()
    numbers.take("a", 3)

    with pytest.raises(ValueError, match=r"number 3 .* the next is 4"):
        numbers.start("a", 3)
    numbers.start("a", 4)
    assert numbers.take("a") == (4,)


def test_many_threads_are_given_no_number_twice() -> None:
    numbers = ChildNumbers()
    start = threading.Barrier(8)

    def take(count: int) -> list[int]:
        start.wait()
        return [number for _ in range(100) for number in numbers.take("a", count)]

    with ThreadPoolExecutor(8) as pool:
        given = [n for each in pool.map(take, [1, 2, 3, 1, 2, 3, 1, 2]) for n in each]

    assert sorted(given) == list(range(1, 1501))


# -- in a run --------------------------------------------------------------------------------------


async def test_children_of_a_run_on_a_continued_thread_go_on_where_they_stopped() -> None:
    replies = {
        "root": [spawn("A", "the task", "B"), "together"],
        "A": [spawn("A1"), "A is done"],
    }
    journal = MemoryJournal()
    tree = make_tree(by_agent(replies), thread_id=f"{THREAD}.1", journal=journal)
    tree.request.numbers.start(f"{THREAD}.1", 5)

    await tree.run()

    spawned = {each.agent_id: each.index for each in tree.of(AgentSpawned)}
    assert spawned == {
        f"{THREAD}.1": 0,
        f"{THREAD}.1.5": 0,
        f"{THREAD}.1.7": 2,
        f"{THREAD}.1.5.1": 0,
    }
    assert [each.number for each in tree.of(CycleDetected)] == [6]
    paths = ["root", "5", "5.1", "7"]
    assert [node.path for node in tree.result.agent_tree.walk()] == paths
    assert [result.path for result in tree.result.sub_agent_results] == ["5", "6", "7"]
    assert [each.path for each in tree.result.incomplete] == ["6"]
    assert tree.request.numbers.all() == {f"{THREAD}.1": 8, f"{THREAD}.1.5": 2}
    fold = TreeFold(tree.entries)
    assert [path for path, _, _ in fold.skipped()] == ["6"]
    kept = journal.load(tree.request.run_id)
    assert sorted({call.path for call in kept.calls}) == sorted(paths)
    assert sorted(end.path for end in kept.ends if end.path is not None) == sorted(paths)


async def test_task_that_is_dropped_with_its_block_has_a_number_that_goes_on() -> None:
    replies = {"root": [spawn("A") + spawn("B", "C"), "together"]}
    tree = make_tree(by_agent(replies), thread_id=THREAD)
    tree.request.numbers.start(THREAD, 3)

    await tree.run()

    [ignored] = tree.of(SpawnIgnored)
    assert (ignored.tasks, ignored.numbers) == (("B", "C"), (4, 5))
    assert [path for path, _, _ in TreeFold(tree.entries).skipped()] == ["4", "5"]


async def test_task_that_is_too_deep_has_a_number_that_goes_on() -> None:
    tree = make_tree(by_agent({"root": [spawn("A"), "alone"]}), thread_id=THREAD, max_depth=0)
    tree.request.numbers.start(THREAD, 9)

    await tree.run()

    [told] = tree.of(DepthLimitReached)
    assert told.numbers == (9,)
    assert [path for path, _, _ in TreeFold(tree.entries).skipped()] == ["9"]


def test_numbers_that_others_have_are_passed_over() -> None:
    numbers = ChildNumbers()
    numbers.start("a", 2)
    numbers.pass_over("a", [3, 5])
    numbers.pass_over("a", [100_001])

    assert numbers.take("a") == (2,)
    assert numbers.take("a", 2) == (4, 6)
    assert numbers.take("a", 0) == ()
    assert numbers.take("b") == (1,)
    assert numbers.all() == {"a": 7, "b": 2}
