"""The values that everything speaks in are plain: frozen, comparable, picklable."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core import types
from agentnb.core.text import one_line
from agentnb.core.types import (
    AgentConfig,
    AgentMemoryContext,
    AgentNode,
    AgentStatus,
    Briefing,
    BudgetStatus,
    CancelReceipt,
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    OrchestratorResult,
    Role,
    RunUsage,
    SpawnInstruction,
    SpawnMode,
    Stopped,
    SubAgentResult,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolInputDelta,
    ToolOutput,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    ToolUseBlock,
    Usage,
    assistant_message,
    child_id,
    is_at_or_below,
    path_key,
    path_of,
    user_message,
)

LEAF = AgentNode("r.1", "r", "1", "leaf", 1, AgentStatus.FAILED, "p/m", 5, 6)
TREE = AgentNode("r", None, "root", "t", 0, AgentStatus.COMPLETED, children=(LEAF,))
REQUEST = CompletionRequest(
    "m", "s", (user_message("u"),), (ToolSpec("n", "d", {"type": "object"}),), extra={"k": [1]}
)
ONE_OF_EACH = [
    TextBlock("t", {"p http://h": {"citations": [{"a": 1}]}}),
    ThinkingBlock("t", "sig", redacted_data="x", extra={"p": {"reasoning": None}}),
    ToolUseBlock("i", "n", {"a": [1, {"b": None}]}, {"p": {"extra_content": {"g": "s"}}}),
    ToolResultBlock("i", "t", is_error=True),
    MediaBlock("image/png", "aGk=", "x.png"),
    OpaqueBlock("p http://h", {"type": "new_block"}),
    ToolOutput("t", (MediaBlock("image/png", "aGk=", "x.png"),)),
    Message(Role.ASSISTANT, (TextBlock("t"), ThinkingBlock("t"))),
    ToolSpec("n", "d", {}),
    REQUEST,
    TextDelta("t"),
    ThinkingDelta("t"),
    ToolInputDelta("{"),
    ToolUse("i", "n", {"a": 1}),
    Usage(1, 2, 3, 4),
    Stopped("end_turn", assistant_message("t")),
    AgentConfig("n", "p/m", 5, {"k": 1}),
    Briefing("system_prompt", "t", "n"),
    SubAgentResult("r.1", "t", AgentStatus.FAILED, "r", "e", 1, 2),
    TREE,
    CancelReceipt(("r.1",), 3, ("r.2",)),
    AgentMemoryContext("r", "t", "d"),
    RunUsage.of({"p/m": Usage(1, 2, 3, 4)}),
    OrchestratorResult(AgentStatus.COMPLETED, "answer", TREE),
    SpawnInstruction(SpawnMode.PARALLEL, ("a", "b")),
]
CLASSES = [
    cls
    for _, cls in inspect.getmembers(types, dataclasses.is_dataclass)
    if isinstance(cls, type) and cls.__module__ == types.__name__
]


def test_one_of_each_value_is_here() -> None:
    assert {type(value) for value in ONE_OF_EACH} == set(CLASSES)


@pytest.mark.parametrize("value", ONE_OF_EACH, ids=lambda v: type(v).__name__)
def test_value_is_the_same_after_the_way_to_another_process(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value


@pytest.mark.parametrize("value", ONE_OF_EACH, ids=lambda v: type(v).__name__)
def test_value_cannot_be_changed_or_given_more_fields(value: object) -> None:
    assert dataclasses.is_dataclass(value)
    for field in dataclasses.fields(value):
        with pytest.raises(FrozenInstanceError):
            setattr(value, field.name, None)
    assert not hasattr(value, "__dict__")


# -- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize("enum", [AgentStatus, SpawnMode, BudgetStatus, Role])
def test_value_of_an_enum_is_its_name_in_lower_case(
    enum: type[AgentStatus | SpawnMode | BudgetStatus | Role],
) -> None:
    for member in enum:
        assert member == member.name.lower()
        assert str(member) == member.name.lower()


def test_agent_has_ended_when_it_is_not_about_to_work_working_or_waiting() -> None:
    assert {status for status in AgentStatus if not status.is_terminal} == {
        AgentStatus.PENDING,
        AgentStatus.RUNNING,
        AgentStatus.WAITING,
    }


# -- conversation ------------------------------------------------------------------------------


def test_text_of_a_message_is_its_text_blocks_alone() -> None:
    blocks = (ThinkingBlock("no"), TextBlock("a"), ToolUseBlock("i", "n", {}), TextBlock("b"))
    assert Message(Role.ASSISTANT, blocks).text == "ab"


def test_assistant_that_said_nothing_has_no_empty_block() -> None:
    assert assistant_message("").content == ()
    assert assistant_message("x").content == (TextBlock("x"),)


def test_last_user_text_is_that_of_the_newest_user_message() -> None:
    messages = (user_message("old"), user_message("new"), assistant_message("reply"))

    assert CompletionRequest("m", "", messages).last_user_text == "new"
    assert CompletionRequest("m", "", (assistant_message("reply"),)).last_user_text == ""


# -- counts ------------------------------------------------------------------------------------


def test_usage_adds_field_by_field() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)
    assert Usage(1, 2, 3, 4).total_tokens == 10


@pytest.mark.parametrize(("read", "counted"), [(0, 0), (1, 1), (10, 1), (11, 2), (1000, 100)])
def test_cache_reads_take_a_tenth_from_the_pot(read: int, counted: int) -> None:
    assert Usage(100, 20, 3, read).budget_tokens == 123 + counted


def test_usage_of_a_run_is_the_sum_of_its_models() -> None:
    usage = RunUsage.of({"a": Usage(1, 2, 3, 4), "b": Usage(10, 20, 30, 40)})

    assert (usage.input_tokens, usage.output_tokens) == (11, 22)
    assert (usage.cache_creation_tokens, usage.cached_tokens) == (33, 44)
    assert usage.total_tokens == 110
    assert RunUsage.of({}) == RunUsage()


# -- results -----------------------------------------------------------------------------------


def test_output_is_the_final_response() -> None:
    assert OrchestratorResult(AgentStatus.COMPLETED, "answer", TREE).output == "answer"


def test_tree_is_walked_from_parent_to_child_in_order_and_printed_as_an_outline() -> None:
    def node(path: str, depth: int, *children: AgentNode) -> AgentNode:
        return AgentNode(
            path, None, path, f"task\n{path}", depth, AgentStatus.COMPLETED, children=children
        )

    tree = node("root", 0, node("1", 1, node("1.1", 2)), node("2", 1))

    assert [n.path for n in tree.walk()] == ["root", "1", "1.1", "2"]
    assert str(tree).splitlines()[:3] == [
        "root ✓ completed · task root",
        "├─ 1 ✓ completed · task 1",
        "│  └─ 1.1 ✓ completed · task 1.1",
    ]


def chain(levels: int, leaf: AgentNode = LEAF) -> AgentNode:
    tree = leaf
    for depth in reversed(range(levels)):
        tree = dataclasses.replace(LEAF, depth=depth, children=(tree,))
    return tree


def test_very_deep_tree_can_be_walked_printed_compared_and_hashed() -> None:
    tree, other_leaf = chain(5000), dataclasses.replace(LEAF, tokens_used=6)

    assert sum(1 for _ in tree.walk()) == 5001
    assert str(tree).splitlines()[1] == "│  not shown: 3,001 further agents: 3,001 failed"
    assert len(str(tree)) < 500_000
    assert tree == chain(5000)
    assert hash(tree) == hash(chain(5000))
    assert tree != chain(5000, other_leaf)
    assert tree != chain(4999)
    assert repr(tree) == "AgentNode(1, failed, 5001 agents, 'leaf')"


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(AgentNode)])
def test_trees_that_differ_in_any_field_of_any_agent_are_not_equal(field: str) -> None:
    changes: dict[str, object] = {
        "status": AgentStatus.RUNNING, "children": (LEAF,), "depth": 7, "tokens_used": 7,
        "duration_ms": 7,
    }  # fmt: skip
    other = dataclasses.replace(LEAF, **{field: changes.get(field, "other")})  # type: ignore[arg-type]

    assert LEAF != other
    assert dataclasses.replace(TREE, children=(other,)) != TREE
    assert dataclasses.replace(TREE, children=(LEAF,)) == TREE
    assert dataclasses.replace(TREE, children=(LEAF, LEAF)) != TREE
    assert TREE != "root [completed] t"


def test_same_agents_in_another_shape_are_another_tree() -> None:
    def node(*children: AgentNode) -> AgentNode:
        return dataclasses.replace(LEAF, children=children)

    assert node(node(node())) != node(node(), node())
    assert node(node(node()), node()) != node(node(), node(node()))


def test_tree_is_an_outline_also_as_the_value_of_a_cell() -> None:
    class Printer:
        def text(self, text: str) -> None:
            printed.append(text)

    printed: list[str] = []
    TREE._repr_pretty_(Printer(), False)

    assert printed == [str(TREE)] == ["root ✓ completed · t\n└─ 1 ✗ failed · leaf"]


def test_task_that_acts_on_a_terminal_is_printed_as_an_escape() -> None:
    tree = dataclasses.replace(LEAF, depth=0, task="a\x1b[2J\ud800\u202e b\u2028é 👩\u200d🔬")

    assert str(tree) == "1 ✗ failed · a\\x1b[2J\ufffd\\u202e b é 👩\u200d🔬"


# -- paths and lines ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent_id", "root_id", "path"),
    [
        ("nb_20261101_k3x9aa", "nb_20261101_k3x9aa", "root"),
        ("nb_20261101_k3x9aa.1", "nb_20261101_k3x9aa", "1"),
        ("t.1.2.10", "t", "1.2.10"),
        ("t.1", "t.1", "root"),
        ("t.1.1", "t.1", "1"),
        ("t.1.2.10", "t.1", "2.10"),
        ("t.10", "t.1", "t.10"),
        ("t", "t.1", "t"),
    ],
)
def test_path_is_what_follows_the_id_of_the_runs_root(
    agent_id: str, root_id: str, path: str
) -> None:
    assert path_of(agent_id, root_id) == path
    assert is_at_or_below(agent_id, root_id) == (path != agent_id)


def test_id_of_a_child_ends_in_the_number_of_its_task() -> None:
    assert path_of(child_id("t.1", 3), "t.1") == "3"


def test_paths_sort_as_a_tree_is_read() -> None:
    paths = ["root", "1", "1.1", "1.2", "1.10", "2", "2.1", "10", "10.1"]
    assert sorted(sorted(paths), key=path_key) == paths


@given(st.lists(st.text("0123456789.ax²", max_size=6)))
def test_any_paths_can_be_sorted(paths: list[str]) -> None:
    assert sorted(sorted(paths, key=path_key)) == sorted(paths)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ten chars.", "ten chars."),
        ("ten chars. ", "ten chars."),
        ("eleven char", "eleven ch…"),
        ("a" + " " * 500 + "b", "a b"),
        (" " * 500 + "b" * 11, "bbbbbbbbb…"),
        ("a " * 10**6, "a a a a a…"),
    ],
)
def test_one_line_is_cut_only_where_it_is_too_long_for_its_words(text: str, line: str) -> None:
    assert one_line(text, limit=10) == line


@given(st.text(max_size=60), st.integers(1, 30))
def test_one_line_is_one_and_no_longer_than_it_may_be(text: str, limit: int) -> None:
    line = one_line(text, limit=limit)

    assert len(line) <= limit
    assert line.split() == line.split(" ") or line == ""
    folded = " ".join(text.split())
    assert line == folded or line == folded[: limit - 1] + "…"
