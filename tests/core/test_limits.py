"""What a run may start, and whether it may go on: one question for all who ask."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from agentnb.core.budget import RequestBudget
from agentnb.core.errors import InvalidRequest, StreamBroken
from agentnb.core.events import (
    AgentExhausted,
    BudgetExhausted,
    BudgetPaused,
    LimitReached,
    ModelCallStarted,
    SpawnIgnored,
    ToolCallFinished,
)
from agentnb.core.limits import Refusal, RunLimits
from agentnb.core.request import RequestContext
from agentnb.core.types import AgentStatus, SpawnInstruction, SpawnMode, Usage
from agentnb.providers.scripted import Reply
from tests.core.clock import ManualClock, everyone_waits
from tests.core.tool_bodies import Tool, order
from tests.support import Hold, Tree, by_agent, make_tree, run_tree, spawn

# -- one task -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "tasks", "refused"),
    [
        ({"max_depth": 1}, [("A", 2)], ("max_depth", 1)),
        ({"max_agents": 1}, [("A", 1), ("B", 1)], ("max_agents", 1)),
        ({"cycle_threshold": 1}, [("A", 1), (" a ", 1)], ("cycle", 1)),
        ({"stop_after_failures": 2}, [("A", 1)], ("stop_after_failures", 2)),
    ],
)
def test_refusal_names_its_limit_and_the_value_and_can_be_kept(
    limits: dict[str, Any], tasks: list[tuple[str, int]], refused: tuple[str, float]
) -> None:
    asked = RunLimits(**limits)
    for _ in range(limits.get("stop_after_failures", 0)):
        asked.agent_failed()

    answers = [asked.admit(task, depth, ("root",)) for task, depth in tasks]
    last = answers.pop()

    assert not any(answers)
    assert last is not None
    assert (last.limit, last.value) == refused
    assert pickle.loads(pickle.dumps(last)) == last


def test_what_bounds_models_does_not_bind_a_person_s_own_list() -> None:
    limits = RunLimits(max_depth=0, max_agents=0, cycle_threshold=1)

    assert [limits.admit("A", 1, ("A",), in_plan=True) for _ in range(3)] == [None] * 3

    ends = RunLimits(stop_after_failures=1)
    ends.agent_failed()
    refusal = ends.admit("A", 1, (), in_plan=True)
    assert refusal is not None
    assert refusal.limit == "stop_after_failures"


def test_task_that_is_refused_for_another_reason_takes_no_sub_agent_s_place() -> None:
    limits = RunLimits(max_agents=1, cycle_threshold=1)

    assert limits.admit("A", 1, ("A",)) is not None
    assert limits.admit("B", 1, ("root",)) is None


def test_after_the_end_only_the_root_s_synthesis_may_be_called() -> None:
    limits = RunLimits(stop_after_failures=1)
    assert limits.may_call() is None
    limits.agent_failed()

    assert isinstance(limits.may_call(), Refusal)
    assert limits.may_call(for_root_synthesis=True) is None


def test_limit_of_the_orchestrator_holds_beside_the_request_s() -> None:
    limits = RunLimits(max_depth=2)
    limits.lower_depth(5)
    assert limits.max_depth == 2
    limits.lower_depth(1)
    assert limits.too_deep(2) == Refusal(
        "max_depth", "sub-agents at depth 2 are not allowed (the deepest is 1)", 1
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_time_s": 0}, "`max_time_s` must be a number of seconds above 0, not 0"),
        ({"max_time_s": -1.5}, "`max_time_s` must be .* not -1.5"),
        ({"max_time_s": float("nan")}, "`max_time_s` must be .* not nan"),
        ({"max_time_s": True}, "`max_time_s` must be .* not True"),
        ({"max_time_s": "60"}, "`max_time_s` must be .* not '60'"),
        ({"stop_after_failures": 0}, "`stop_after_failures` must be .*at least 1, not 0"),
        ({"stop_after_failures": 1.5}, "`stop_after_failures` must be .* not 1.5"),
        ({"stop_after_failures": True}, "`stop_after_failures` must be .* not True"),
    ],
)
def test_limit_that_makes_no_sense_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RequestContext(RequestBudget(1), **wrong)


# -- the time of a run ----------------------------------------------------------------------------


def _timed(replies: dict[str, Any], **more: Any) -> tuple[Tree, ManualClock]:
    clock = ManualClock()
    return make_tree(by_agent(replies), clock=clock, max_time_s=60, **more), clock


def _check_ended(tree: Tree, limit: str, value: float) -> LimitReached:
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert tree.of(BudgetExhausted) == []
    [reached] = tree.of(LimitReached)
    assert (reached.limit, reached.value) == (limit, value)
    return reached


async def test_time_ends_open_calls_keeps_what_came_and_leaves_the_synthesis() -> None:
    hold = Hold()
    tree, clock = _timed(
        {"root": [spawn("A", "B"), "what there is"], "A": Reply("half of A", pause=hold)}
    )
    run = tree.start()
    await hold.until_reached()
    await everyone_waits()
    clock.advance(59.9)
    await everyone_waits()
    assert tree.of(LimitReached) == []
    clock.advance(0.1)
    await run

    reached = _check_ended(tree, "max_time_s", 60)
    assert reached.completed_agents == (tree.id_of("2"),)
    assert reached.incomplete_agents == (tree.id_of("root"), tree.id_of("1"))
    assert tree.statuses() == {"root": "exhausted", "1": "exhausted", "2": "completed"}
    assert tree.result.sub_agent_results[0].response == "half of A"
    assert "60 s" in tree.of(AgentExhausted, "1")[0].reason
    assert tree.result.synthesis == tree.result.final_response == "what there is"
    assert clock.pending == 0


async def test_root_whose_time_is_over_before_it_delegated_has_what_it_said() -> None:
    hold = Hold()
    tree, clock = _timed({"root": Reply("the beginning", pause=hold)})
    run = tree.start()
    await hold.until_reached()
    clock.advance(60)
    await run

    _check_ended(tree, "max_time_s", 60)
    assert tree.result.final_response == "the beginning"


async def test_answer_of_a_run_that_came_to_no_word_in_time_names_the_setting() -> None:
    hold = Hold()
    tree, clock = _timed({"root": Reply("", pause=hold)})
    run = tree.start()
    await hold.until_reached()
    clock.advance(60)
    await run

    _check_ended(tree, "max_time_s", 60)
    assert "`max_time_s`" in tree.result.final_response
    assert "budget" not in tree.result.final_response


async def test_task_that_waits_for_its_turn_when_the_time_is_over_is_named_as_not_done() -> None:
    hold = Hold()
    tree, clock = _timed(
        {"root": [spawn("A", "B", mode="sequential"), "ok"], "A": Reply("half", pause=hold)}
    )
    run = tree.start()
    await hold.until_reached()
    clock.advance(60)
    await run

    _check_ended(tree, "max_time_s", 60)
    [ignored] = tree.of(SpawnIgnored)
    assert ignored.tasks == ("B",)
    assert "60 s" in ignored.reason
    assert [str(r.status) for r in tree.result.sub_agent_results] == ["exhausted", "skipped"]


async def test_time_that_a_person_takes_to_answer_does_not_count() -> None:
    hold = Hold()
    tree, clock = _timed(
        {
            "root": [Reply(spawn("A"), usage=Usage(85_000, 0)), "ok"],
            "A": Reply("half of A", pause=hold),
        },
        budget=100_000,
        is_attended=lambda: True,
    )
    run = tree.start()
    await tree.saw(BudgetPaused)
    clock.advance(599)
    await everyone_waits()
    assert tree.of(LimitReached) == []
    assert tree.request.meter is not None
    tree.request.meter.answer("continue")
    await hold.until_reached()
    clock.advance(59)
    await everyone_waits()
    assert tree.of(LimitReached) == []
    clock.advance(1)
    await run

    _check_ended(tree, "max_time_s", 60)


async def test_time_is_not_over_for_a_root_that_brings_everything_together() -> None:
    hold = Hold()
    tree, clock = _timed({"root": [spawn("A"), Reply("all of it", pause=hold)], "A": "a"})
    run = tree.start()
    await hold.until_reached()
    clock.advance(59)
    clock.advance(500)
    await everyone_waits()
    hold.release()
    await run

    assert tree.of(LimitReached) == []
    assert tree.result.status is AgentStatus.COMPLETED
    assert tree.result.final_response == "all of it"


async def test_answer_about_the_budget_does_not_start_the_time_of_a_synthesis() -> None:
    hold = Hold()
    tree, clock = _timed(
        {
            "root": [spawn("A"), Reply("all of it", pause=hold)],
            "A": Reply("a", usage=Usage(85_000, 0)),
        },
        budget=100_000,
        is_attended=lambda: True,
    )
    run = tree.start()
    await hold.until_reached()
    assert tree.request.meter is not None
    assert tree.request.meter.is_paused
    tree.request.meter.answer("continue")
    clock.advance(100)
    await everyone_waits()
    hold.release()
    await run

    assert tree.of(LimitReached) == []
    assert tree.result.status is AgentStatus.COMPLETED


async def test_run_in_time_tells_of_no_limit_and_leaves_no_timer() -> None:
    tree, clock = _timed({"root": [spawn("A"), "ok"]})
    await tree.run()

    assert tree.of(LimitReached) == []
    assert tree.result.status is AgentStatus.COMPLETED
    assert clock.pending == 0


async def test_tool_is_stopped_when_the_time_is_over_and_its_agent_keeps_its_words() -> None:
    began = asyncio.Event()

    async def body(*_: Any) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    tree, clock = _timed({"root": order("look")}, tools=[Tool(body)])
    run = tree.start()
    await began.wait()
    clock.advance(60)
    await run

    _check_ended(tree, "max_time_s", 60)
    assert tree.result.final_response == "I look."
    [finished] = tree.of(ToolCallFinished)
    assert "'look' was stopped" in finished.result
    assert "60 s" in finished.result


async def test_tool_of_the_synthesis_is_not_run_any_more_when_the_time_is_over() -> None:
    hold, ran = Hold(), []

    async def body(*_: Any) -> str:
        ran.append(1)
        return "never"

    replies = {"root": [spawn("A"), order("look"), "ok"], "A": Reply("half", pause=hold)}
    tree, clock = _timed(replies, tools=[Tool(body)])
    run = tree.start()
    await hold.until_reached()
    clock.advance(60)
    await run

    _check_ended(tree, "max_time_s", 60)
    assert ran == []
    assert "'look' was not run" in tree.of(ToolCallFinished)[0].result
    assert tree.result.final_response == "ok"


# -- failures -------------------------------------------------------------------------------------


class _OneAtATime:
    """A gate with one slot; whoever waits for it has no call yet."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def acquire(self, model: str, *, on_wait: Any) -> Any:
        return self._lock

    def throttle(self, model: str, seconds: float) -> None:
        return


def _calls(tree: Tree) -> int:
    return len(tree.of(ModelCallStarted))


async def test_so_many_failures_let_nothing_new_begin_but_the_synthesis() -> None:
    wrong = InvalidRequest("no")
    provider = by_agent({"A": wrong, "B": wrong, "root": "what there is"})
    plan = SpawnInstruction(SpawnMode.SEQUENTIAL, ("A", "B", "C", "D"))
    tree = await run_tree(provider, plan=plan, stop_after_failures=2)

    reached = _check_ended(tree, "stop_after_failures", 2)
    assert reached.completed_agents == ()
    assert reached.incomplete_agents == tuple(map(tree.id_of, ("root", "1", "2")))
    assert [str(r.status) for r in tree.result.sub_agent_results] == ["failed"] * 2 + [
        "skipped"
    ] * 2
    [ignored] = tree.of(SpawnIgnored)
    assert ignored.tasks == ("C", "D")
    assert "limit of 2 failed sub-agents" in ignored.reason
    assert tree.result.synthesis == "what there is"
    assert _calls(tree) == 3


async def test_agent_that_waits_for_its_first_call_at_the_last_failure_makes_none() -> None:
    provider = by_agent(
        {"root": [spawn("A", "B", "C"), "what there is"], "A": InvalidRequest("no")}
    )
    tree = await run_tree(provider, stop_after_failures=1, gate=_OneAtATime())

    _check_ended(tree, "stop_after_failures", 1)
    assert tree.statuses() == {
        "root": "exhausted", "1": "failed", "2": "exhausted", "3": "exhausted"
    }  # fmt: skip
    assert _calls(tree) == 3
    assert "limit of 1 failed sub-agent" in tree.of(AgentExhausted, "3")[0].reason


async def _with_open_call_at_the_last_failure(text: str) -> Tree:
    """A run in which `A` says this, and ends only after the failure of `B` has ended the work."""
    hold = Hold()
    provider = by_agent(
        {
            "root": [spawn("A", "B"), "what there is"],
            "A": Reply(text, pause=hold),
            "B": InvalidRequest("no"),
        }
    )
    tree = make_tree(provider, stop_after_failures=1)
    run = tree.start()
    await tree.saw(LimitReached)
    hold.release()
    await run
    _check_ended(tree, "stop_after_failures", 1)
    return tree


async def test_call_that_is_open_at_the_last_failure_runs_to_its_end() -> None:
    tree = await _with_open_call_at_the_last_failure("all of A")

    assert tree.statuses() == {"root": "exhausted", "1": "completed", "2": "failed"}
    assert tree.result.sub_agent_results[0].response == "all of A"


async def test_task_of_a_later_block_is_refused_after_the_last_failure() -> None:
    tree = await _with_open_call_at_the_last_failure(spawn("deeper", before="I ask others."))

    [ignored] = tree.of(SpawnIgnored, "1")
    assert ignored.tasks == ("deeper",)
    assert tree.result.sub_agent_results[0].response == "I ask others."


async def test_failures_below_the_limit_and_a_retry_that_helps_do_not_count() -> None:
    provider = by_agent(
        {
            "root": [spawn("A", "B", "C"), "ok"],
            "A": InvalidRequest("no"),
            "B": [Reply("half", error=StreamBroken("cut")), "b"],
        }
    )
    tree = await run_tree(provider, stop_after_failures=2)

    assert tree.of(LimitReached) == []
    assert tree.result.status is AgentStatus.COMPLETED
