from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.types import AgentNode
from agentnb.views.figures.layout import (
    BLOCK_GAP,
    HEIGHT,
    Style,
    cut,
    layout,
    list_middles,
    root_levels,
    shared_room,
    tidy_middles,
)
from tests.views.figures.trees import SHAPES, tree


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Parents, each before its children in the order in which a tree is read, and heights."""
    depths = [0]
    for step in draw(st.lists(st.integers(0, 6), max_size=60)):
        depths.append(max(1, depths[-1] + 1 - step))
    parents = []
    for i, depth in enumerate(depths):
        above = [j for j in range(i) if depths[j] == depth - 1]
        parents.append(above[-1] if above else -1)
    count = len(depths)
    heights = draw(st.lists(st.floats(1, 500), min_size=count, max_size=count))
    return parents, heights


def levels_of(parents: list[int]) -> list[int]:
    levels: list[int] = []
    for parent in parents:
        levels.append(levels[parent] + 1 if parent >= 0 else 0)
    return levels


@given(forests())
def test_no_two_cells_of_a_level_overlap_and_they_stand_in_reading_order(
    forest: tuple[list[int], list[float]],
) -> None:
    parents, heights = forest
    middles = tidy_middles(parents, heights)
    levels = levels_of(parents)

    for level in set(levels):
        cells = [i for i in range(len(parents)) if levels[i] == level]
        for one, next_one in itertools.pairwise(cells):
            end = middles[one] + heights[one] / 2
            assert end <= middles[next_one] - heights[next_one] / 2 + 1e-6


@given(forests())
def test_what_is_below_two_siblings_is_apart_at_every_level(
    forest: tuple[list[int], list[float]],
) -> None:
    parents, heights = forest
    middles = tidy_middles(parents, heights)
    low = [m - h / 2 for m, h in zip(middles, heights, strict=True)]
    high = [m + h / 2 for m, h in zip(middles, heights, strict=True)]
    for i in range(len(parents) - 1, 0, -1):
        low[parents[i]] = min(low[parents[i]], low[i])
        high[parents[i]] = max(high[parents[i]], high[i])

    for parent in range(len(parents)):
        children = [i for i in range(len(parents)) if parents[i] == parent]
        for one, next_one in itertools.pairwise(children):
            assert high[one] <= low[next_one] + 1e-6


@given(forests())
def test_parent_stands_between_its_first_and_its_last_child(
    forest: tuple[list[int], list[float]],
) -> None:
    parents, heights = forest
    heights = [1.0] * len(heights)
    middles = tidy_middles(parents, heights)

    for parent in set(parents) - {-1}:
        children = [i for i, p in enumerate(parents) if p == parent]
        assert abs(middles[parent] - (middles[children[0]] + middles[children[-1]]) / 2) < 1e-6


@given(forests())
def test_no_room_is_lost_above_and_below(forest: tuple[list[int], list[float]]) -> None:
    parents, heights = forest
    middles = tidy_middles(parents, heights)

    leaves = sum(h for i, h in enumerate(heights) if i not in parents)
    top = min(m - h / 2 for m, h in zip(middles, heights, strict=True))
    bottom = max(m + h / 2 for m, h in zip(middles, heights, strict=True))
    assert top >= -1e-6
    assert bottom <= max(leaves, sum(heights)) + 1e-6


def test_list_sets_cells_one_below_the_other() -> None:
    assert list_middles([10, 20, 10]) == [5, 20, 35]


nodes = st.recursive(
    st.just(AgentNode("a", None, "1", "Do it", 0, "completed")),  # type: ignore[arg-type]
    lambda below: st.lists(below, min_size=1, max_size=7).map(
        lambda children: AgentNode(
            "a",
            None,
            "1",
            "Do it",
            0,
            "completed",  # type: ignore[arg-type]
            children=tuple(children),
        )
    ),
    max_leaves=60,
)
styles = st.builds(
    Style,
    row=st.just(17.0),
    columns=st.integers(0, 4),
    marks=st.just(42),
    fold=st.none() | st.integers(0, 4),
)


@given(nodes, styles)
def test_every_agent_is_in_exactly_one_cell_in_the_order_of_the_tree(
    root: AgentNode, style: Style
) -> None:
    cells = cut(root, style)

    assert [id(node) for cell in cells for node in cell.nodes] == [id(n) for n in root.walk()]
    assert all(cell.parent < i for i, cell in enumerate(cells))
    assert all(cell.level == cells[cell.parent].level + 1 for cell in cells[1:])
    assert all(not cell.is_block or len(cell.nodes) > 1 for cell in cells)


@given(nodes)
def test_fold_leaves_no_level_below_its_own_blocks(root: AgentNode) -> None:
    for fold in range(root_levels(root)):
        cells = cut(root, Style(row=17, columns=0, marks=42, fold=fold))

        assert max(cell.level for cell in cells) <= fold + 1


def test_block_is_as_tall_as_its_rows() -> None:
    cells = cut(tree("wide", 10), Style(row=20, columns=4))

    assert [cell.height for cell in cells] == [20, 3 * 20 + BLOCK_GAP]


def test_few_agents_have_cards_more_a_row_each_and_many_share_rows() -> None:
    def shown(count: int) -> tuple[bool, int, int]:
        style = layout(tree("wide", count)).style
        return style.has_cards, style.columns, len(layout(tree("wide", count)).cells)

    assert shown(5) == (True, 1, 5)
    assert shown(40) == (False, 1, 40)
    assert shown(300) == (False, 4, 2)
    assert shown(1000) == (False, 0, 2)


def test_deep_tree_is_a_list_and_a_shallow_one_has_columns() -> None:
    assert layout(tree("deep", 5)).is_list
    assert not layout(tree("three levels", 300)).is_list


def test_tree_of_any_shape_keeps_to_its_height() -> None:
    for shape in SHAPES:
        for size in (1, 60, 300, 2000, 5000):
            assert layout(tree(shape, size)).height <= HEIGHT, (shape, size)


def test_chain_of_thousands_of_agents_is_placed() -> None:
    placed = layout(tree("deep", 3_000))

    assert sum(len(cell.nodes) for cell in placed.cells) == 3_000
    assert root_levels(tree("deep", 3_000)) == 3_000


@given(st.lists(st.floats(0, 1000), max_size=10), st.floats(0, 3000))
def test_room_is_shared_out_evenly_and_never_beyond(wanted: list[float], room: float) -> None:
    given = shared_room(wanted, room)

    assert sum(given) <= room + 1e-6
    assert all(g <= w for g, w in zip(given, wanted, strict=True))
    least = max(given, default=0)
    assert all(g == w or g >= least - 1e-6 for g, w in zip(given, wanted, strict=True))
    assert sum(given) >= min(room, sum(wanted)) - 1e-6
