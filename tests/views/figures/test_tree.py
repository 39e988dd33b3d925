from __future__ import annotations

import pytest

from agentnb.core.types import AgentNode, AgentStatus
from agentnb.views.figures import plot_tree
from tests.views.figures.trees import SHAPES, SIZES, STATUSES, crowded, marks, texts, tree


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_label_and_no_mark_meets_another_or_leaves_the_figure(shape: str, size: int) -> None:
    assert crowded(plot_tree(tree(shape, size))) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_each_of_300_agents_has_its_mark_and_its_path(shape: str) -> None:
    root = tree(shape, 300, tasks=["Do it"])

    figure = plot_tree(root)

    words = texts(figure)
    keys = len({node.status for node in root.walk()})
    assert sum(marks(figure).values()) == 300 + keys
    # A long path keeps its end.
    assert [
        node.path
        for node in root.walk()
        if node.path not in words
        and not any(w[0] == "…" and node.path.endswith(w[1:]) for w in words if len(w) > 1)
    ] == []


@pytest.mark.parametrize("size", [1000, 5000])
@pytest.mark.parametrize("shape", SHAPES)
def test_thousands_of_agents_make_a_figure_of_bounded_size_with_a_mark_for_each(
    shape: str, size: int
) -> None:
    figure = plot_tree(tree(shape, size, tasks=["Do it"]))

    assert figure.get_figwidth() * 96 <= 1000
    assert figure.get_figheight() * 96 <= 2100
    assert sum(marks(figure).values()) == size + len(STATUSES)
    assert crowded(figure, with_marks=False) == []


def test_what_is_not_drawn_is_said() -> None:
    figure = plot_tree(tree("wide", 7001, tasks=["Do it"]))

    assert any("7,000 agents, 1 to 7000; the first 6,000 are drawn" in t for t in texts(figure))


def test_small_tree_shows_path_status_task_and_tokens_of_each_agent() -> None:
    child = AgentNode("a.1", "a", "1", "Read & note", 1, AgentStatus.FAILED, tokens_used=12_345)
    root = AgentNode("a", None, "root", "Compare", 0, AgentStatus.COMPLETED, children=(child,))

    figure = plot_tree(root)

    assert texts(figure)[:2] == ["2 agents", "12,345 tokens"]
    assert {"root", "completed", "Compare", "1", "failed", "Read & note", "12,345"} <= set(
        texts(figure)
    )
    assert {"1 completed", "1 failed"} <= set(texts(figure))
    assert marks(figure) == {"completed": 2, "failed": 2}


def test_every_status_is_known_by_its_shape_and_by_its_word() -> None:
    figure = plot_tree(tree("wide", 10))

    assert set(marks(figure)) == {str(status) for status in AgentStatus}
    assert {str(status) for status in AgentStatus} <= set(texts(figure))


@pytest.mark.parametrize("size", [40, 300])
def test_agents_that_are_not_completed_are_named_also_where_there_are_many(size: int) -> None:
    statuses = [AgentStatus.COMPLETED] * 19 + [AgentStatus.FAILED]

    words = texts(plot_tree(tree("three levels", size, statuses=statuses)))

    assert f"{size // 20} failed" in words
    assert f"{size - size // 20} completed" in words


def test_task_is_shown_as_it_is_written() -> None:
    tasks = ["Cost $5_000$ and \\frac{1}{2}", "a\nb\x1b[0m"]

    words = texts(plot_tree(tree("wide", 2, tasks=tasks)))

    assert "Cost $5_000$ and \\frac{1}{2}" in words
    assert "a b\\x1b[0m" in words


def test_alternative_text_names_paths_and_statuses_and_nothing_that_changes() -> None:
    def alt(agent_id: str, duration_ms: int) -> str:
        child = AgentNode(f"{agent_id}.1", agent_id, "1", "A", 1, AgentStatus.FAILED)
        return plot_tree(
            AgentNode(
                agent_id,
                None,
                "root",
                "B",
                0,
                AgentStatus.COMPLETED,
                duration_ms=duration_ms,
                children=(child,),
            )
        ).alt_text

    assert alt("nb_20261101_aaaaaa", 1) == "Tree of 2 agents: root completed, 1 failed."
    assert alt("nb_20261101_aaaaaa", 1) == alt("nb_20270202_zzzzzz", 999)


def test_alternative_text_of_many_agents_counts_them_and_names_what_went_wrong() -> None:
    statuses = [AgentStatus.COMPLETED] * 99 + [AgentStatus.FAILED]

    alt = plot_tree(tree("wide", 300, statuses=statuses)).alt_text

    assert alt == "Tree of 300 agents: 297 completed, 3 failed (99, 199, 299)."


def test_run_without_an_agent_is_a_figure_that_says_so() -> None:
    figure = plot_tree(None)

    assert "no agent" in " ".join(texts(figure))
    assert figure.alt_text == texts(figure)[0]
    assert crowded(figure) == []


def test_same_tree_makes_the_same_picture_whatever_its_ids_and_times() -> None:
    def picture(agent_id: str, duration_ms: int) -> bytes:
        root = AgentNode(
            agent_id, None, "root", "B", 0, AgentStatus.COMPLETED, duration_ms=duration_ms
        )
        return plot_tree(root).to_png()

    assert picture("nb_20261101_aaaaaa", 1) == picture("nb_20270202_zzzzzz", 999)
