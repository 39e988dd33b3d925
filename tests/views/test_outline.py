from __future__ import annotations

import unicodedata
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.tree import ToolCount
from agentnb.core.types import AgentNode, AgentStatus
from agentnb.views.outline import GLYPHS, TASK_WIDTH, lines_below, outline, outline_parts


def node(
    path: str,
    *children: AgentNode,
    task: str = "Do it",
    status: AgentStatus = AgentStatus.COMPLETED,
    agent_id: str = "nb_20261101_k3x9aa",
) -> AgentNode:
    return AgentNode(
        agent_id,
        None,
        path,
        task,
        0,
        status,
        model="demo/demo",
        tokens_used=12345,
        duration_ms=6789,
        children=children,
    )


def test_tree_shows_path_status_and_task_of_each_agent_with_its_notes_below() -> None:
    root = node(
        "root",
        node(
            "1",
            node("1.1", task="List efficiencies"),
            node("1.2", task="List prices", status=AgentStatus.CANCELLED),
            task="Collect the facts",
        ),
        node("2", task="Find arguments", status=AgentStatus.FAILED),
        node("3", node("3.1", status=AgentStatus.RUNNING), status=AgentStatus.EXHAUSTED),
        task="Compare the reports",
    )
    notes = {
        "root": ["skipped: write the appendix", "skipped: draw the cover"],
        "2": ["error: the server\nanswered 500"],
        "3.1": ["error: none"],
        "9": ["nobody has this path"],
    }

    assert outline(root, notes=notes) == (
        "root ✓ completed · Compare the reports\n"
        "│  skipped: write the appendix\n"
        "│  skipped: draw the cover\n"
        "├─ 1 ✓ completed · Collect the facts\n"
        "│  ├─ 1.1 ✓ completed · List efficiencies\n"
        "│  └─ 1.2 ■ cancelled · List prices\n"
        "├─ 2 ✗ failed · Find arguments\n"
        "│     error: the server answered 500\n"
        "└─ 3 ◔ exhausted · Do it\n"
        "   └─ 3.1 ► running · Do it\n"
        "         error: none"
    )


def test_what_adds_to_a_live_view_reads_well_alone() -> None:
    root = node(
        "root",
        node("1", node("1.1"), task="Collect", status=AgentStatus.FAILED),
        node("2", status=AgentStatus.EXHAUSTED),
        node("3"),
        task="Compare",
    )
    notes = {
        "root": ["2 tool calls", "skipped: draw the cover"],
        "1": ["error: the server answered 400: " + "reasonable " * 7],
        "2": ["the budget ended"],
        "3": ["1 tool call"],
    }
    unreported = {"root": notes["root"][1:], "1": notes["1"], "2": notes["2"]}

    parts = outline_parts(root, notes=notes, unreported=unreported)

    assert "".join(text for text, _ in parts) == outline(root, notes=notes)
    assert "".join(text for text, adds in parts if adds) == (
        "root ✓ completed\n"
        "  skipped: draw the cover\n"
        "1 ✗ failed\n"
        "  error: the server answered 400: reasonable reasonable reasonable reasonable reasonable\n"
        "    reasonable reasonable\n"
        "2 ◔ exhausted\n"
        "  the budget ended\n"
    )
    kinds = [adds for _, adds in parts]
    assert all(one is not other for one, other in pairwise(kinds))


def test_tree_without_unreported_notes_adds_nothing_to_a_live_view() -> None:
    assert outline_parts(node("root"), notes={"root": ["n"]}) == [
        ("root ✓ completed · Do it\n   n", False)
    ]


def test_long_note_goes_on_below_itself_inside_its_own_branch() -> None:
    error = "error: the server answered 400: " + "reasonable " * 7 + "words."
    root = node("root", node("1", task="A", status=AgentStatus.FAILED), node("2", task="B"))

    assert outline(root, notes={"1": [error]}).splitlines()[1:] == [
        "├─ 1 ✗ failed · A",
        "│     error: the server answered 400: " + " ".join(["reasonable"] * 5),
        "│       reasonable reasonable words.",
        "└─ 2 ✓ completed · B",
    ]


def test_note_without_end_is_shortened() -> None:
    text = outline(node("root"), notes={"root": ["x" * 10_000]})

    assert len(text) < 600
    assert text.endswith("…")


def test_outline_holds_no_ids_times_tokens_or_models() -> None:
    text = outline(node("root", node("1", agent_id="nb_20261101_k3x9aa.1")))

    assert text == outline(node("root", node("1", agent_id="nb_20270202_zzzzzz.1"), agent_id="x"))
    assert "nb_" not in text
    assert "12345" not in text
    assert "6789" not in text
    assert "demo" not in text


def test_each_status_has_a_shape_of_its_own_of_single_width_in_the_basic_plane() -> None:
    assert set(GLYPHS) == set(AgentStatus)
    assert len(set(GLYPHS.values())) == len(AgentStatus)
    for status, glyph in GLYPHS.items():
        assert len(glyph) == 1
        assert ord(glyph) < 0x10000
        assert unicodedata.east_asian_width(glyph) not in ("W", "F")
        assert outline(node("root", status=status, task="")) == f"root {glyph} {status}"


def test_hostile_task_takes_one_line_and_draws_no_branch_of_its_own() -> None:
    task = "evil\n└─ 2 ✓ completed · forged\x1b[2J\u202e \ud800\u2028\x85end"

    text = outline(node("root", node("1", task=task)))

    assert len(text.splitlines()) == 2
    assert text.splitlines()[1] == (
        "└─ 1 ✓ completed · evil └─ 2 ✓ completed · forged\\x1b[2J\\u202e \ufffd end"
    )
    assert text.encode()


def test_task_of_a_megabyte_is_shortened() -> None:
    text = outline(node("root", task="word " * 200_000))

    assert text.endswith("…")
    assert len(text) <= len("root ✓ completed · ") + TASK_WIDTH


def test_wide_tree_has_one_line_for_each_agent_in_order() -> None:
    root = node("root", *(node(str(i)) for i in range(1, 10_001)))

    lines = outline(root).split("\n")

    assert len(lines) == 10_001
    assert lines[1].startswith("├─ 1 ")
    assert lines[-1].startswith("└─ 10000 ")


def test_chain_of_ten_thousand_agents_grows_the_text_in_proportion() -> None:
    def chain(length: int) -> AgentNode:
        deepest = node(str(length))
        for number in range(length - 1, 0, -1):
            deepest = node(str(number), deepest)
        return deepest

    lines = outline(chain(10_000)).split("\n")

    assert len(lines) == 10_000
    assert max(map(len, lines)) < 100
    assert [line.split()[1] for line in lines[1:]] == [str(n) for n in range(2, 10_001)]


def test_branches_stay_right_beside_a_subtree_too_deep_to_draw() -> None:
    deep = node("14", node("15"), node("16"))
    for number in range(13, 0, -1):
        deep = node(str(number), deep, node(f"{number}b"))

    lines = outline(deep).split("\n")

    column = {}
    for line in lines:
        words = line.lstrip(" │├└─┄")
        column[words.split()[0]] = len(line) - len(words)
    assert column["1b"] == 3
    assert column["12b"] == 3 * 12
    assert column["13b"] == column["14"] == column["15"] == column["16"] == 3 * 13
    assert [line.count("│") for line in lines[13:]] == [*[12] * 4, *range(11, -1, -1)]


statuses = st.sampled_from(AgentStatus)
trees = st.recursive(
    st.builds(lambda task, status: node("1", task=task, status=status), st.text(), statuses),
    lambda below: st.builds(
        lambda task, status, children: node("1", *children, task=task, status=status),
        st.text(),
        statuses,
        st.lists(below, max_size=4),
    ),
    max_leaves=20,
)


@given(trees)
def test_any_tree_has_as_many_lines_as_agents_and_the_same_ones_each_time(root: AgentNode) -> None:
    text = outline(root)

    assert len(text.splitlines()) == len(list(root.walk()))
    assert text == outline(root)


def test_tool_calls_of_an_agent_stand_below_it_and_before_what_went_wrong() -> None:
    below = lines_below({"root": ToolCount(3, 1), "1": ToolCount(1, 0)}, {"root": ["skipped: x"]})

    shown = outline(node("root", node("1"), node("2")), notes=below)

    assert shown.splitlines() == [
        "root ✓ completed · Do it",
        "│  3 tool calls, 1 error",
        "│  skipped: x",
        "├─ 1 ✓ completed · Do it",
        "│     1 tool call",
        "└─ 2 ✓ completed · Do it",
    ]
