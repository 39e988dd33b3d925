from __future__ import annotations

import itertools

import pytest

from agentnb.core.events import AgentCancelled, AgentFailed, BudgetChanged, BudgetPaused
from agentnb.views.figures import plot_timeline
from agentnb.views.figures.spans import times
from agentnb.views.figures.timeline import DRAWN, _longest, _thinned, _with_label
from tests.views.figures.records import (
    budget_update,
    call_finished,
    call_started,
    completed,
    finished,
    record,
    rows_of,
    spawned,
    started,
)
from tests.views.figures.trees import SHAPES, SIZES, crowded, marks, texts

R = "nb_20261101_k3x9aa"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_label_meets_another_or_leaves_the_figure(shape: str, size: int) -> None:
    assert crowded(plot_timeline(record(size, shape=shape)), with_marks=False) == []


@pytest.mark.parametrize("size", SIZES)
def test_each_agent_has_a_bar_that_ends_in_the_mark_of_its_status(size: int) -> None:
    figure = plot_timeline(record(size))

    assert marks(figure) == {"completed": size + 1}  # and one in the key


def test_small_run_names_each_agent_its_task_and_what_the_colours_mean() -> None:
    words = texts(plot_timeline(record(5)))

    assert {"root", "1", "2", "1.1", "2.1", "Find arguments against"} <= set(words)
    assert {"model call", "tool", "waiting to ask", "waiting for its sub-agents"} <= set(words)
    assert {"Budget", "total", "used", "80 % of it", "5 completed"} <= set(words)
    assert "0" in words
    assert "1 s" in words


def test_key_has_only_what_there_is_to_see() -> None:
    rows = rows_of(
        [(0, spawned(R)), (0, call_started(R)), (1, call_finished(R)), (1, completed(R))]
    )

    words = texts(plot_timeline(rows))

    assert "model call" in words
    assert not {"tool", "waiting to ask", "tried again", "Budget"} & set(words)


def test_pauses_and_retries_are_in_the_key_when_they_happened() -> None:
    rows = rows_of(
        [
            (0, started()),
            (0, spawned(R)),
            (0, call_started(R)),
            (1, AgentFailed(agent_id=R, error="", will_retry=True, attempt=1)),
            (2, BudgetPaused(tokens_used=9, budget_total=10, percentage=90, wait_s=1)),
            (3, budget_update(9, 10)),
        ]
    )

    assert {"tried again", "paused"} <= set(texts(plot_timeline(rows)))


@pytest.mark.parametrize(
    "rows",
    [
        rows_of([(0, started()), (0, spawned(R)), (0, AgentCancelled(agent_id=R, reason=""))]),
        rows_of([(0, started(0)), (0, spawned(R)), (0, completed(R)), (0, finished())]),
        rows_of([(5, spawned(R)), (5, completed(R))]),
        rows_of([(0, spawned(R)), (1e-9, completed(R))]),
        rows_of([(0, spawned(R)), (1e6, completed(R))]),
        rows_of(
            [
                (0, started(10)),
                (0, spawned(R)),
                (1, BudgetChanged(budget_total=0, previous_total=10, tokens_used=0)),
            ]
        ),
        record(5)[:9],
    ],
    ids=[
        "cancelled",
        "no time, no budget",
        "late",
        "short",
        "long",
        "budget taken away",
        "goes on",
    ],
)
def test_run_of_any_kind_has_a_timeline(rows: list) -> None:  # type: ignore[type-arg]
    assert crowded(plot_timeline(rows)) == []


@pytest.mark.parametrize(
    ("used", "total", "words", "axis"),
    [
        (3_200_000, 4_000_000, "$3.20 of the budget of $4.00 used (80 %)", ["$0", "$2", "$4"]),
        (12_345, 500_000, "$0.0123 of the budget of $0.50 used (2 %)", ["$0", "$0.20", "$0.40"]),
        (9, 100, "$0.000009 of the budget of $0.0001 used (9 %)", ["$0", "$0.00005", "$0.00010"]),
        (1, 10**12, "$0.000001 of the budget of $1,000,000.00 used (<1 %)", ["$0", "$500k", "$1M"]),
    ],
)
def test_budget_of_money_is_told_in_dollars(
    used: int, total: int, words: str, axis: list[str]
) -> None:
    rows = rows_of(
        [
            (0, started(total, "usd")),
            (0, spawned(R)),
            (1, budget_update(used, total, "usd")),
            (1, completed(R)),
            (1, finished()),
        ]
    )

    figure = plot_timeline(rows)

    assert words in texts(figure)
    assert figure.alt_text.endswith(f"{words}.")
    assert [word for word in texts(figure) if word.startswith("$") and " " not in word] == axis
    assert crowded(figure) == []


@pytest.mark.parametrize("rows", [[], rows_of([(0.0, started())])])
def test_run_without_an_agent_is_a_figure_that_says_so(rows: list) -> None:  # type: ignore[type-arg]
    figure = plot_timeline(rows)

    assert "no agent" in figure.alt_text
    assert texts(figure) == [figure.alt_text]


def test_of_very_many_agents_those_that_took_longest_are_drawn_and_the_rest_is_counted() -> None:
    figure = plot_timeline(record(1000))

    assert marks(figure)["completed"] == DRAWN + 1
    assert f"… {1000 - DRAWN} more agents, which took less time than these" in texts(figure)
    assert "root" in texts(figure)
    assert figure.get_figheight() * 96 <= 1900
    assert crowded(figure, with_marks=False) == []


def test_agent_that_took_long_is_drawn_also_where_it_comes_last() -> None:
    count = DRAWN + 100
    told = [(0.0, spawned(R))]
    told += [(0.0, spawned(f"{R}.{i}", R, f"task {i}")) for i in range(1, count)]
    told += [(1.0, completed(f"{R}.{i}")) for i in range(1, count - 1)]
    told += [(9.0, completed(f"{R}.{count - 1}")), (9.0, completed(R))]

    agents = times(rows_of(told)).agents

    drawn = [agent.path for agent in _longest(agents)]
    assert len(drawn) == DRAWN
    assert drawn[0] == "root"
    assert drawn[-1] == str(count - 1)


def test_where_labels_are_thinned_out_those_high_in_the_tree_stay() -> None:
    paths = ["root", *(f"1.{i}" for i in range(1, 20)), "2", "2.1"]

    assert _with_label(paths, 24.0) == list(range(len(paths)))
    chosen = [paths[i] for i in _with_label(paths, 5.0)]
    assert {"root", "2"} <= set(chosen)
    places = _with_label(paths, 5.0)
    assert all(b - a >= 3 for a, b in itertools.pairwise(places))


def test_points_closer_than_a_dot_are_drawn_as_few_that_look_the_same() -> None:
    points = [(i / 1000, float(i % 7)) for i in range(100_000)]

    kept = _thinned(points)

    assert len(kept) < 2000
    assert {y for _, y in kept} >= {0.0, 6.0}
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]


def test_alternative_text_shows_the_time_the_agents_and_the_budget() -> None:
    rows = rows_of(
        [(0, started(200)), (0, spawned(R)), (1, budget_update(50, 200)), (2.5, completed(R))]
    )

    figure = plot_timeline(rows)

    assert figure.alt_text == (
        "Timeline of 1 agent over 2.5 s: root completed. "
        "50 of 200 tokens of the budget used (25 %)."
    )
    assert repr(figure) == "<Figure: timeline of 1 agent>"
