"""A tool on a thread cannot be killed: who cancels it is told so, and waits no longer than 2 s."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agentnb.core.errors import RunCancelled
from agentnb.core.protocols import ToolContext
from agentnb.core.types import ToolSpec, ToolUse
from agentnb.providers.scripted import Reply
from agentnb.run import Run
from agentnb.runtime import get_runtime
from tests.cancel.phases import on_the_runtime
from tests.support import DEADLINE_S, by_agent, check_record, make_tree, run_python, spawn


class Blocking:
    """Blocks its thread until it is let go, whoever cancels it."""

    spec = ToolSpec("block", "Blocks.", {"type": "object"})

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun = threading.Event()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        return await context.on_thread(self._block)

    def _block(self) -> str:
        self.begun.set()
        assert self.go_on.wait(DEADLINE_S)
        return "at last"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocking]:
    monkeypatch.setattr("agentnb.core._call.tool_call.THREAD_PATIENCE_S", 0.02)
    blocking = Blocking()
    yield blocking
    blocking.go_on.set()


def started(tool: Blocking) -> Run:
    order = Reply("I block.", tool_uses=(ToolUse("t1", "block", {}),))
    provider = by_agent({"root": [spawn("A", "B"), "all there is"], "A": order})
    run = on_the_runtime(make_tree(provider, tools=[tool]))
    assert tool.begun.wait(DEADLINE_S)
    return run


def ended(run: Run) -> None:
    """Wait until the runtime knows that no thread goes on."""
    while run._request.abandoned.agent_ids:
        get_runtime().call(lambda: None)


def test_receipt_names_the_agent_whose_thread_goes_on_and_the_run_goes_on_without_it(
    tool: Blocking,
) -> None:
    run = started(tool)

    receipt = run.cancel("1")

    assert [path.partition(".")[2] for path in receipt.agents] == ["1"]
    assert receipt.still_running == receipt.agents
    result = run.result(DEADLINE_S)
    assert result.final_response == "all there is"
    assert [r.status for r in result.sub_agent_results] == ["cancelled", "completed"]
    check_record(run.events)


def test_later_cancel_says_whether_the_thread_still_goes_on(tool: Blocking) -> None:
    run = started(tool)
    first = run.cancel()
    with pytest.raises(RunCancelled):
        run.result(DEADLINE_S)

    assert first.still_running == (f"{run.tree.agent_id}.1",)  # type: ignore[union-attr]
    assert run.cancel("1").still_running == first.still_running
    assert run.cancel("2").still_running == ()
    assert run.cancel().still_running == first.still_running
    before = len(run.events)
    tool.go_on.set()
    ended(run)
    assert run.cancel().still_running == ()
    assert len(run.events) == before


def test_thread_that_blocks_for_ever_holds_up_no_exit() -> None:
    said = run_python(
        """
        import threading
        from agentnb.core.types import ToolSpec, ToolUse
        from agentnb import Reply, ScriptedProvider
        from tests.cancel.phases import on_the_runtime
        from tests.support import make_tree

        begun = threading.Event()

        def block():
            begun.set()
            threading.Event().wait()

        class Tool:
            spec = ToolSpec("block", "Blocks.", {"type": "object"})
            async def call(self, input, context):
                return await context.on_thread(block)

        order = Reply("", tool_uses=(ToolUse("t", "block", {}),))
        run = on_the_runtime(make_tree(ScriptedProvider([order]), tools=[Tool()]))
        begun.wait()
        print("begun")
        """
    )

    assert said == "begun\n"
