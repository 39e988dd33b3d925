"""`AgentView` of live, finished and loaded runs: conversation, text, calls, usage."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb.core.errors import AuthenticationFailed, UnknownAgent
from agentnb.core.types import AgentStatus, Role, TextBlock, ToolUse, Usage
from agentnb.providers.scripted import Reply
from agentnb.record import load_run
from agentnb.run import Run
from agentnb.session import Session
from tests.support import DEADLINE_S, Hold, by_agent, nothing_left_on_the_runtime, run_python, spawn


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with nothing_left_on_the_runtime():
        yield


@pytest.fixture(autouse=True)
def a_price() -> Iterator[None]:
    agentnb.set_prices({"scripted": agentnb.Price(1, 10)})
    yield
    agentnb.set_prices({})


def read(pages: int) -> str:
    """Read some pages."""
    return "x" * pages


def usage(tokens: int) -> Usage:
    return Usage(tokens, 1)


def finished(**settings: Any) -> Run:
    """Two levels, tools, a skipped task, a failure, a cut answer."""
    provider = by_agent(
        {
            "root": [
                Reply(spawn("A", "the task", "B", before="I split it."), usage=usage(10)),
                Reply("together", usage=usage(20)),
            ],
            "A": [
                Reply("I look.", tool_uses=(ToolUse("t", "read", {"pages": 3}),), usage=usage(1)),
                Reply(spawn("A1"), usage=usage(2)),
                Reply("A is cut", usage=usage(3), stop_reason="max_tokens"),
            ],
            "A1": Reply("A1 is done", usage=usage(4)),
            "B": Reply("half", error=AuthenticationFailed("no", status_code=401)),
        }
    )
    run = Session(provider=provider, tools=[agentnb.tool(read)], **settings).spawn("the task")
    run.result(DEADLINE_S)
    return run


def test_agent_shows_its_task_its_calls_and_its_text() -> None:
    run = finished()

    agent = run.agent("1")

    assert (agent.path, agent.parent, agent.children) == ("1", "root", ("1.1",))
    assert agent.agent_id == f"{run.thread_id}.1"
    assert (agent.task, agent.status, agent.depth) == ("A", AgentStatus.COMPLETED, 1)
    assert (agent.text, agent.error, agent.cut) == ("A is cut", None, True)
    assert [(call.number, call.text[:7], call.stop_reason) for call in agent.calls] == [
        (1, "I look.", "tool_use"),
        (2, "<spawn_", "end_turn"),
        (3, "A is cu", "max_tokens"),
    ]
    assert [call.is_synthesis for call in agent.calls] == [False, False, True]
    assert {(call.status, call.attempt, call.error, call.model) for call in agent.calls} == {
        ("finished", 1, None, "scripted")
    }
    assert [call.usage for call in agent.calls] == [usage(1), usage(2), usage(3)]
    (tool,) = agent.tool_calls
    assert (tool.name, tool.input, tool.result, tool.is_error) == (
        "read",
        {"pages": 3},
        "xxx",
        False,
    )
    assert (tool.path, tool.number, tool.status) == ("1", 1, "finished")
    assert agent.messages[:-1] == agent.calls[-1].request.messages
    assert agent.messages[-1].role is Role.ASSISTANT
    assert agent.messages[-1].content == (TextBlock("A is cut"),)
    assert agent.is_whole
    assert repr(agent) == "AgentView(1, completed, 'A', 'A is cut')"
    with pytest.raises(dataclasses.FrozenInstanceError):
        agent.text = ""  # type: ignore[misc]


def test_agent_shows_its_own_usage_and_that_of_its_branch() -> None:
    run = finished()
    root, first, leaf = run.agent("root"), run.agent("1"), run.agent("1.1")

    assert root.subtree_usage == run.usage
    assert root.subtree_cost.usd == run.cost.usd
    assert {agent.path: agent.cost for agent in run.agents} == run.cost.by_agent
    assert first.usage.by_model == {"scripted": Usage(6, 3)}
    assert first.subtree_usage.by_model == {"scripted": Usage(10, 4)}
    assert leaf.usage == leaf.subtree_usage
    assert first.subtree_cost.usd == pytest.approx((10 * 1 + 4 * 10) / 1e6)


def test_all_agents_come_in_path_order_and_each_as_it_is_asked_for_alone() -> None:
    run = finished()

    assert [agent.path for agent in run.agents] == ["root", "1", "1.1", "3"]
    assert run.agents == tuple(run.agent(agent.path) for agent in run.agents)
    assert run.agents == tuple(run.agent(agent.agent_id) for agent in run.agents)


def test_failed_agent_shows_its_partial_result_and_the_reason() -> None:
    agent = finished().agent("3")

    assert (agent.status, agent.text) == (AgentStatus.FAILED, "half")
    assert agent.error == "no"
    assert agent.calls[-1].stop_reason is None
    assert agent.messages[-1].text == "half"
    assert agent.calls[-1].message == agent.messages[-1]
    assert agent.calls[-1].error == {
        "class": "",
        "message": "no",
        "retryable": False,
        "retry_after_s": None,
        "status": None,
    }
    assert agent.is_whole, "the reply broke off, and nothing more of it came"


def test_skipped_task_has_a_row_with_its_number_and_its_reason() -> None:
    run = finished()

    rows = {row["path"]: row for row in run.to_records()}

    assert list(rows) == ["root", "1", "1.1", "2", "3"]
    assert len({tuple(row) for row in rows.values()}) == 1, "all have the same columns"
    skipped = rows["2"]
    assert (skipped["task"], skipped["status"], skipped["answer"]) == ("the task", "skipped", "")
    assert "the task of an agent above it" in skipped["error"]
    assert (skipped["depth"], skipped["agent_id"], skipped["calls"]) == (1, None, 0)
    assert skipped["parent_id"] == run.thread_id
    with pytest.raises(UnknownAgent, match=r"'2'.*known: 'root', '1', '1\.1', '3'"):
        run.agent("2")
    with pytest.raises(UnknownAgent):
        run.cancel("2")


def test_row_of_an_agent_has_its_answer_and_what_it_and_its_branch_used() -> None:
    run = finished()

    rows = {row["path"]: row for row in run.to_records()}

    for agent in run.agents:
        row = rows[agent.path]
        assert (row["answer"], row["error"], row["cut"]) == (agent.text, agent.error, agent.cut)
        assert row["calls"] == len(agent.calls)
        assert row["tool_calls"] == len(agent.tool_calls)
        assert row["tokens_used"] == agent.usage.total_tokens
        assert row["subtree_tokens"] == agent.subtree_usage.total_tokens
        assert row["cost_usd"] == agent.cost.usd
        assert row["subtree_cost_usd"] == agent.subtree_cost.usd
        assert (row["model"], row["duration_ms"]) == (agent.model, agent.duration_ms)
    assert rows["root"]["subtree_tokens"] == run.usage.total_tokens
    plain = (str, int, float, bool, type(None))
    assert all(isinstance(value, plain) for row in rows.values() for value in row.values())


def test_agent_of_a_model_without_a_price_has_no_amount() -> None:
    agentnb.set_prices({})
    rows = finished().to_records()

    assert [row["cost_usd"] for row in rows if row["calls"]] == [None] * 4
    assert rows[0]["subtree_cost_usd"] is None


def test_loaded_run_tells_the_same_of_each_agent(tmp_path: Path) -> None:
    run = finished()
    run.to_json(tmp_path / "run.json")

    loaded = load_run(tmp_path / "run.json")

    assert loaded.agents == run.agents
    assert loaded.to_records() == run.to_records()


def test_working_agent_shows_its_text_so_far_and_its_view_does_not_change(
    tmp_path: Path,
) -> None:
    hold = Hold()
    said = Reply("half of it, the rest", pause=hold)
    root = [spawn("A", before="I split it."), "together"]
    run = Session(provider=by_agent({"root": root, "A": said})).spawn("the task")
    assert run.agents == () or run.agent("root")
    hold.wait()

    root_then, then = run.agent("root"), run.agent("1")
    run.to_json(tmp_path / "run.json")
    loaded = load_run(tmp_path / "run.json")
    rows = run.to_records()

    assert root_then.text == "I split it.", "the block is no part of what it said"
    assert (root_then.status, then.status) == (AgentStatus.RUNNING, AgentStatus.RUNNING)
    assert then.text
    assert "half of it, the rest".startswith(then.text)
    assert (then.calls[0].status, then.calls[0].usage) == ("started", None)
    assert not then.is_whole
    assert (then.cost.usd, then.usage.total_tokens) == (None, 0), "the call is still open"
    assert loaded.agents == (root_then, then)
    assert loaded.to_records() == rows
    assert [row["answer"] for row in rows] == [root_then.text, then.text]
    hold.release()
    run.result(DEADLINE_S)
    assert run.agent("1").text == "half of it, the rest"
    assert not then.is_whole
    assert run.agent("1").is_whole


def test_root_that_plans_nothing_has_the_status_that_the_tree_has() -> None:
    hold = Hold()
    run = Session(provider=by_agent({"A": Reply("a", pause=hold)})).spawn_all(
        ["A"], synthesis=False
    )
    hold.wait()

    root = run.agent("root")

    assert (root.status, root.calls, root.messages, root.text) == (AgentStatus.RUNNING, (), (), "")
    assert root.is_whole
    hold.release()
    run.result(DEADLINE_S)


def test_unknown_agent_names_the_known_paths_before_the_run_has_begun_too() -> None:
    printed = run_python("""
        from agentnb.core.bus import EventBus
        from agentnb.core.errors import UnknownAgent
        from agentnb.record import RunRecord
        record = RunRecord("r", "t", EventBus("r"))
        try:
            record.agent("root")
        except UnknownAgent as error:
            print(error.known, len(record.agents), record.to_records())
        import sys
        print("genai_prices" in sys.modules, "anywidget" in sys.modules)
    """)

    assert printed.split("\n")[:2] == ["() 0 []", "False False"]
