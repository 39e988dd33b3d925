from __future__ import annotations

import pytest

from agentnb.core.types import AgentNode, AgentStatus
from agentnb.views.figures import plot_tokens
from agentnb.views.figures.tokens import BARS
from tests.views.figures.trees import SHAPES, SIZES, crowded, marks, texts, tree


def spent(*tokens: int) -> AgentNode:
    children = tuple(
        AgentNode(f"a.{i}", "a", f"{i}", f"Task {i}", 1, AgentStatus.COMPLETED, tokens_used=n)
        for i, n in enumerate(tokens[1:], start=1)
    )
    return AgentNode(
        "a",
        None,
        "root",
        "All",
        0,
        AgentStatus.COMPLETED,
        tokens_used=tokens[0],
        children=children,
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_label_and_no_mark_meets_another_or_leaves_the_figure(shape: str, size: int) -> None:
    assert crowded(plot_tokens(tree(shape, size))) == []


def test_each_agent_has_its_own_tokens_and_its_share_the_largest_first() -> None:
    words = texts(plot_tokens(spent(100, 600, 300)))

    assert words[:2] == ["1,000 tokens", "by 3 agents, each its own"]
    assert words[3:] == [
        *("1", "Task 1", "600", "60 %"),
        *("2", "Task 2", "300", "30 %"),
        *("root", "All", "100", "10 %"),
    ]


def test_agents_that_spent_the_same_stand_in_the_order_of_the_tree() -> None:
    words = texts(plot_tokens(spent(5, 5, 5)))

    assert [w for w in words if w in ("root", "1", "2")] == ["root", "1", "2"]


def test_of_many_agents_the_largest_have_bars_and_the_rest_is_summed() -> None:
    figure = plot_tokens(spent(*[1000] * BARS, *[10] * 100))

    assert marks(figure)["completed"] == BARS + 1
    assert texts(figure)[-1] == "… 100 more agents: 1,000 tokens in all (2 %), at most 10 each"


@pytest.mark.parametrize("root", [spent(0), spent(0, 0), spent(10**12, 1), tree("wide", 5000)])
def test_numbers_of_any_size_are_drawn(root: AgentNode) -> None:
    assert crowded(plot_tokens(root)) == []


def test_alternative_text_names_who_spent_most() -> None:
    assert plot_tokens(spent(100, 600, 300)).alt_text == (
        "1,000 tokens by 3 agents, each its own: 1 600 (60 %), 2 300 (30 %), root 100 (10 %). "
        "root completed, 1 completed, 2 completed."
    )


def test_run_without_an_agent_is_a_figure_that_says_so() -> None:
    figure = plot_tokens(None)

    assert texts(figure) == [figure.alt_text]
    assert "no tokens" in figure.alt_text
