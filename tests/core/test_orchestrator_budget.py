"""The end of the pot, the warning before it, and the question: never an error, never a hang."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentnb.core._budget.meter import synthesis_reserve
from agentnb.core.budget import estimate_input_tokens
from agentnb.core.context import AgentContext
from agentnb.core.errors import NoOpenQuestion, RunCancelled
from agentnb.core.events import (
    AgentCompleted,
    AgentExhausted,
    AgentSpawned,
    AgentWaiting,
    BudgetChanged,
    BudgetExhausted,
    BudgetPaused,
    BudgetResumed,
    BudgetUpdate,
    BudgetWarning,
    ModelCallFinished,
    RunFinished,
    SpawnIgnored,
    SynthesisStarted,
)
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    SpawnInstruction,
    SpawnMode,
    StreamEvent,
    TextDelta,
    ToolUse,
    Usage,
)
from agentnb.providers.gate import ConcurrencyGate
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.session import Session
from tests.core.clock import ManualClock
from tests.support import (
    Hold,
    Tree,
    by_agent,
    check_record,
    make_tree,
    path_of,
    requests_of,
    run_tree,
    spawn,
)

LONG = " ".join(["x" * 60] * 600)
"""About 9,000 tokens, in 200 pieces."""


def plan(*tasks: str, tokens: int, mode: str = "parallel") -> Reply:
    """A spawn that costs so many tokens."""
    return Reply(spawn(*tasks, mode=mode, before="I split it."), usage=Usage(tokens, 0))


# -- the end of the pot ---------------------------------------------------------------------------


async def test_call_that_does_not_fit_the_budget_is_never_sent() -> None:
    provider = ScriptedProvider(["never read"])

    tree = await run_tree(provider, budget=40)

    assert provider.requests == []
    assert tree.error is None
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert "nothing of it was done" in tree.result.final_response
    assert len(tree.of(BudgetExhausted)) == 1
    assert tree.of(RunFinished)[0].status is AgentStatus.EXHAUSTED
    assert [r.task for r in tree.result.incomplete] == ["the task"]


async def test_budget_of_nothing_is_exhausted_and_not_an_error() -> None:
    tree = await run_tree(ScriptedProvider([]), budget=0)

    assert tree.result.status is AgentStatus.EXHAUSTED
    assert tree.of(BudgetExhausted)[0].percentage == 100.0


async def test_only_answer_of_a_root_ends_where_the_budget_does_and_is_kept() -> None:
    provider = ScriptedProvider([LONG])

    tree = await run_tree(provider, budget=1000, max_depth=0)

    (request,) = provider.requests
    assert request.max_tokens < 1000
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert LONG.startswith(tree.result.final_response)
    assert len(tree.result.final_response) > 1000
    assert tree.request.budget.tokens_used <= 1000
    assert len(tree.of(BudgetExhausted)) == 1
    assert tree.result.cut is False, "the pot made that limit, not the model's"


class _Flood:
    """Never stops by itself, whatever `max_tokens` says."""

    name = "flood"
    closed = False

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        try:
            while True:
                yield TextDelta("word " * 20)
        finally:
            self.closed = True


async def test_stream_is_stopped_when_the_budget_cannot_carry_it() -> None:
    provider = _Flood()

    tree = await run_tree(provider, budget=2000, max_depth=0)

    assert provider.closed
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert tree.result.final_response.startswith("word word")
    assert tree.request.budget.tokens_used <= 2000
    assert tree.of(AgentExhausted)[0].reason


async def test_budget_that_ends_in_a_child_leaves_its_siblings_and_the_synthesis() -> None:
    hold = Hold()
    provider = by_agent(
        {
            "root": [plan("A", "B", tokens=30_000), "what there is"],
            "A": Reply(LONG, pause=hold),
        }
    )
    tree = make_tree(provider, budget=40_000)
    run = tree.start()
    await tree.saw(AgentCompleted, "2")
    hold.release()
    await run

    assert tree.statuses() == {"root": "exhausted", "1": "exhausted", "2": "completed"}
    assert tree.result.final_response == tree.result.synthesis == "what there is"
    partial = tree.result.sub_agent_results[0]
    assert partial.response
    assert LONG.startswith(partial.response)
    assert [r.task for r in tree.result.incomplete] == ["A"]
    (told,) = tree.of(BudgetExhausted)
    assert [path_of(i) for i in told.completed_agents] == ["2"]
    assert [path_of(i) for i in told.incomplete_agents] == ["root", "1"]
    results = requests_of(provider, "root")[1].last_user_text
    assert '<result task="A" status="exhausted" truncated="true">' in results
    assert '<result task="B" status="completed">\n    done: B\n' in results


async def test_sequence_ends_with_the_budget_and_the_rest_is_skipped_with_a_reason() -> None:
    provider = by_agent(
        {
            "root": [plan("A", "B", "C", tokens=30_000, mode="sequential"), "what there is"],
            "A": LONG,
        }
    )

    tree = await run_tree(provider, budget=40_000)

    assert [str(r.status) for r in tree.result.sub_agent_results] == [
        "exhausted",
        "skipped",
        "skipped",
    ]
    assert "budget" in str(tree.result.sub_agent_results[1].error)
    (ignored,) = tree.of(SpawnIgnored)
    assert ignored.tasks == ("B", "C")
    assert [e.task_description for e in tree.of(AgentSpawned) if e.depth] == ["A"]
    assert tree.result.final_response == "what there is"
    assert [r.task for r in tree.result.incomplete] == ["A", "B", "C"]
    assert len(tree.of(BudgetExhausted)) == 1


async def test_exhausted_inner_parent_hands_up_its_own_text_and_its_childrens_results() -> None:
    provider = by_agent(
        {
            "root": [spawn("P"), "what there is"],
            "P": plan("c1", "c2", tokens=30_000, mode="sequential"),
            "c1": "one is done",
            "c2": LONG,
        }
    )

    tree = await run_tree(provider, budget=40_000)

    assert tree.statuses() == {
        "root": "exhausted",
        "1": "exhausted",
        "1.1": "completed",
        "1.2": "exhausted",
    }
    assert len(requests_of(provider, "P")) == 1
    handed_up = tree.result.sub_agent_results[0].response
    assert handed_up.startswith("I split it.")
    assert "one is done" in handed_up
    assert "x" * 60 in handed_up
    results = requests_of(provider, "root")[1].last_user_text
    assert "I split it." in results
    assert "one is done" in results
    assert tree.result.final_response == "what there is"
    assert len(tree.of(BudgetExhausted)) == 1


async def test_results_larger_than_what_is_left_are_cut_evenly_and_marked() -> None:
    provider = by_agent(
        {"root": [plan("A", "B", "C", tokens=10_000), "together"], "A": LONG, "B": LONG, "C": "c"}
    )

    tree = await run_tree(provider, budget=40_000)

    assert tree.result.status is AgentStatus.COMPLETED
    results = requests_of(provider, "root")[1].last_user_text
    found = re.findall(
        r'<result task="(.)" status="completed"(?: cut="true")?( truncated="true")?>'
        r"\n    (.*?)\n  </result>",
        results,
    )
    assert [(task, bool(mark)) for task, mark, _ in found] == [
        ("A", True),
        ("B", True),
        ("C", False),
    ]
    a, b, c = (body for _, _, body in found)
    assert len(a) == len(b) > 1000
    assert LONG.startswith(a)
    assert c == "c"
    assert tree.request.budget.tokens_used <= 40_000


async def test_results_are_cut_by_the_providers_own_count_where_it_has_one() -> None:
    provider = by_agent({"root": [plan("A", "B", tokens=10_000), "together"], "A": LONG, "B": LONG})
    setattr(provider, "count_tokens", lambda request: 2 * estimate_input_tokens(request))  # noqa: B010

    tree = await run_tree(provider, budget=50_000)

    assert tree.result.final_response == "together"
    assert provider.requests[-1].last_user_text.count('truncated="true"') == 2


async def test_answer_is_put_together_without_a_model_when_no_call_fits() -> None:
    provider = by_agent({"root": spawn("A", before="I split it."), "A": LONG})

    tree = await run_tree(provider, budget=2000)

    assert len(requests_of(provider, "root")) == 1
    assert tree.error is None
    assert tree.result.status is AgentStatus.EXHAUSTED
    answer = tree.result.final_response
    assert "I split it." in answer
    assert "x" * 60 in answer
    assert "2,000 tokens" in answer
    assert "1 of 1 tasks" in answer
    assert len(tree.of(BudgetExhausted)) == 1


async def test_pot_is_not_passed_by_any_number_of_children_in_parallel() -> None:
    tasks = [f"task {n}" for n in range(20)]
    provider = by_agent({"root": [spawn(*tasks), "together"], **dict.fromkeys(tasks, LONG)})

    tree = await run_tree(provider, budget=30_000)

    assert tree.request.budget.tokens_used <= 30_000
    assert tree.request.budget.reserved == 0
    assert tree.result.final_response == "together"
    assert len(tree.of(BudgetExhausted)) == 1
    assert {str(r.status) for r in tree.result.sub_agent_results} == {"completed", "exhausted"}


async def test_reserve_is_left_for_the_roots_synthesis_and_used_by_it() -> None:
    provider = by_agent({"root": [plan("A", tokens=30_000), LONG], "A": LONG})

    tree = await run_tree(provider, budget=40_000)

    before = 40_000 - synthesis_reserve(40_000)
    calls = tree.of(ModelCallFinished)
    assert sum(call.usage.budget_tokens for call in calls[:2]) <= before
    assert before < tree.request.budget.tokens_used <= 40_000
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert tree.result.final_response.startswith("x" * 60), "the synthesis as far as it came"


TWENTY = tuple(f"Look into part {n}, and say what matters there." for n in range(20))


@pytest.mark.parametrize("by_person", [False, True])
async def test_root_with_much_to_hand_on_still_synthesises(by_person: bool) -> None:
    replies: dict[str, Any] = dict.fromkeys(TWENTY, "a finding in some words; " * 50)
    replies["root"] = ["together"] if by_person else [spawn(*TWENTY), "together"]

    tree = await run_tree(
        by_agent(replies),
        budget=20_000,
        context=AgentContext(soul_content="soul " * 1600),
        plan=SpawnInstruction(SpawnMode.PARALLEL, TWENTY) if by_person else None,
    )

    assert tree.result.synthesis == "together"
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert {str(r.status) for r in tree.result.sub_agent_results} == {"completed", "exhausted"}
    assert tree.request.budget.tokens_used <= 20_000


async def test_jobs_leave_what_the_synthesis_needs_whenever_they_are_started() -> None:
    def jobs(*tasks: str) -> Reply:
        return Reply(tool_uses=tuple(ToolUse(t, "spawn", {"task": t}) for t in tasks))

    script: dict[str, Any] = dict.fromkeys(TWENTY, "a finding in some words; " * 50)
    script["root"] = [jobs(*TWENTY[:3]), jobs(*TWENTY[3:]), "together", "together"]
    session = Session(
        provider=by_agent(script), soul="soul " * 1600, budget=20_000, delegation="tools"
    )

    run = session.spawn("the task")
    result = await run

    assert result.synthesis == "together"
    assert result.status is AgentStatus.EXHAUSTED
    assert {str(r.status) for r in result.sub_agent_results} == {"completed", "exhausted"}
    check_record(run.events)


async def test_plan_without_a_synthesis_may_use_the_whole_budget() -> None:
    plan = SpawnInstruction(SpawnMode.PARALLEL, ("A",))
    provider = by_agent({"A": "a"})

    tree = await run_tree(provider, budget=4000, plan=plan, synthesis=False)

    (request,) = provider.requests
    assert request.max_tokens == 4000 - estimate_input_tokens(request)
    assert tree.result.status is AgentStatus.COMPLETED


async def test_synthesis_that_does_not_fit_is_not_told_as_started() -> None:
    provider = by_agent({"root": spawn("A", before="I split it."), "A": LONG})

    tree = await run_tree(provider, budget=2000)

    assert tree.of(SynthesisStarted) == []
    assert "I split it." in tree.result.final_response


async def test_synthesis_that_is_cancelled_before_its_call_is_not_told_as_started() -> None:
    gate = ConcurrencyGate(8, clock=ManualClock())

    async def slowed_down() -> None:
        gate.throttle("scripted", 50)

    provider = by_agent({"root": spawn("A"), "A": Reply("what A says", pause=slowed_down)})
    tree = make_tree(provider, gate=gate)
    run = tree.start()
    await tree.saw(AgentWaiting, "root")

    tree.cancel("root")
    await run

    assert tree.of(SynthesisStarted) == []


async def test_difference_between_the_estimate_and_the_providers_count_is_reported() -> None:
    provider = ScriptedProvider([Reply("four letters", usage=Usage(1000, 10))])

    tree = await run_tree(provider, max_depth=0)

    (call,) = tree.of(ModelCallFinished)
    assert call.usage == Usage(1000, 10)
    assert call.estimate_error > 900
    assert tree.request.budget.tokens_used == 1010


async def test_last_budget_update_says_what_was_used_in_the_end() -> None:
    tree = await run_tree(by_agent({"root": [spawn("A", "B"), "ok"]}))

    last = tree.of(BudgetUpdate)[-1]
    assert last.tokens_used == tree.request.budget.tokens_used == tree.result.total_tokens_used
    assert tree.of(RunFinished)[0].tokens_used == last.tokens_used


# -- waiting for room, and new totals -------------------------------------------------------------


def two_of_which_one_fits() -> tuple[Tree, Hold]:
    """`A` stands in its stream and holds what there is; `B` waits for it to settle."""
    hold = Hold()
    provider = by_agent(
        {"root": [plan("A", "B", tokens=30_000), "ok"], "A": Reply("a short one", pause=hold)}
    )
    return make_tree(provider, budget=31_040, max_depth=1), hold


async def test_call_that_does_not_fit_waits_until_another_settles() -> None:
    tree, hold = two_of_which_one_fits()
    run = tree.start()
    waiting = await tree.saw(AgentWaiting, "2")
    assert "room in the budget" in waiting.reason

    hold.release()
    await run

    assert tree.statuses() == {"root": "completed", "1": "completed", "2": "completed"}
    assert tree.of(BudgetExhausted) == []


async def test_total_raised_in_mid_run_lets_waiting_calls_go_on() -> None:
    tree, hold = two_of_which_one_fits()
    run = tree.start()
    await tree.saw(AgentWaiting, "2")

    tree.request.budget.set_total(60_000)
    await tree.saw(AgentCompleted, "2")
    hold.release()
    await run

    (changed,) = tree.of(BudgetChanged)
    assert (changed.previous_total, changed.budget_total) == (31_040, 60_000)
    assert tree.result.status is AgentStatus.COMPLETED
    assert tree.of(BudgetExhausted) == []


async def test_total_set_below_what_is_used_ends_the_run_at_once() -> None:
    tree, hold = two_of_which_one_fits()
    run = tree.start()
    await hold.until_reached()

    tree.request.budget.set_total(100)
    await run

    assert tree.error is None
    assert tree.statuses() == {"root": "exhausted", "1": "exhausted", "2": "exhausted"}
    assert tree.result.sub_agent_results[0].response == "a short one"
    assert "a short one" in tree.result.final_response
    assert len(tree.of(BudgetExhausted)) == 1


async def test_total_set_below_what_is_used_ends_the_synthesis_too() -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A"), Reply("bringing it all together", pause=hold)]})
    tree = make_tree(provider)
    run = tree.start()
    await hold.until_reached()

    tree.request.budget.set_total(0)
    await run

    assert tree.result.status is AgentStatus.EXHAUSTED
    assert "bringing it all" in tree.result.final_response
    assert "done: A" in tree.result.final_response


async def test_raise_after_the_pot_was_empty_lets_later_tasks_run() -> None:
    hold = Hold()
    provider = by_agent(
        {
            "root": [plan("A", "B", tokens=30_000, mode="sequential"), "ok"],
            "A": Reply(LONG, pause=hold),
        }
    )
    tree = make_tree(provider, budget=40_000)
    run = tree.start()
    await hold.until_reached()
    tree.request.budget.set_total(100_000)
    hold.release()
    await run

    assert tree.statuses()["2"] == "completed"


# -- the warning ----------------------------------------------------------------------------------


def near_the_end(*, mode: str = "parallel") -> ScriptedProvider:
    """The root's plan takes 85 of 100 thousand tokens."""
    return by_agent({"root": [plan("A", "B", tokens=85_000, mode=mode), "what there is"]})


@pytest.mark.parametrize("policy", ["ask", "continue"])
async def test_warning_goes_by_when_nobody_is_there_or_it_is_to_continue(policy: str) -> None:
    tree = await run_tree(near_the_end(), budget=100_000, on_budget_warning=policy)

    (warning,) = tree.of(BudgetWarning)
    assert (warning.tokens_used, warning.budget_total) == (85_000, 100_000)
    assert warning.percentage == 85.0
    assert tree.of(BudgetPaused) == []
    assert tree.result.status is AgentStatus.COMPLETED


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_stop_at_the_warning_starts_nothing_new_but_the_synthesis(mode: str) -> None:
    provider = near_the_end(mode=mode)

    tree = await run_tree(provider, budget=100_000, on_budget_warning="stop")

    assert len(provider.requests) == 2
    assert requests_of(provider, "A") == requests_of(provider, "B") == []
    assert tree.result.final_response == "what there is"
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert len(tree.of(BudgetExhausted)) == 1
    assert [r.task for r in tree.result.incomplete] == ["A", "B"]


async def test_stop_at_the_warning_ends_open_streams_and_keeps_what_came() -> None:
    hold = Hold()
    provider = by_agent(
        {
            "root": [spawn("A", "B"), "what there is"],
            "A": Reply("so far so good", pause=hold),
            "B": Reply("expensive", usage=Usage(85_000, 0)),
        }
    )

    tree = await run_tree(provider, budget=100_000, on_budget_warning="stop")

    assert hold.reached.is_set()
    assert tree.statuses() == {"root": "exhausted", "1": "exhausted", "2": "completed"}
    assert tree.result.sub_agent_results[0].response == "so far so"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("answer", ["continue", "stop"])
async def test_callable_is_given_the_warning_and_obeyed(answer: str, is_async: bool) -> None:
    asked: list[BudgetWarning] = []

    def gate(warning: BudgetWarning) -> str:
        asked.append(warning)
        return answer

    async def async_gate(warning: BudgetWarning) -> str:
        return gate(warning)

    tree = await run_tree(
        near_the_end(), budget=100_000, budget_gate=async_gate if is_async else gate
    )

    assert asked == tree.of(BudgetWarning)
    assert [e.reason for e in tree.of(BudgetResumed)] == [answer]
    status = AgentStatus.COMPLETED if answer == "continue" else AgentStatus.EXHAUSTED
    assert tree.result.status is status
    assert {str(r.status) for r in tree.result.sub_agent_results} == {str(status)}


async def test_blocking_gate_does_not_stall_open_streams() -> None:
    answering = threading.Event()
    hold = Hold()

    def gate(warning: BudgetWarning) -> str:
        assert answering.wait(30)
        return "continue"

    provider = by_agent(
        {
            "root": [spawn("A", "B"), "ok"],
            "A": Reply("goes on meanwhile", pause=hold),
            "B": Reply("expensive", usage=Usage(85_000, 0)),
        }
    )
    tree = make_tree(provider, budget=100_000, budget_gate=gate)
    run = tree.start()
    await tree.saw(BudgetPaused)
    hold.release()
    await tree.saw(AgentCompleted, "1")
    answering.set()
    await run

    assert tree.result.status is AgentStatus.COMPLETED


def _raising(warning: BudgetWarning) -> str:
    raise KeyError("no such setting")


def _used_up(warning: BudgetWarning) -> str:
    return next(iter(()))


async def _raising_async(warning: BudgetWarning) -> str:
    raise KeyError("no such setting")


@pytest.mark.parametrize(
    "gate", [_raising, _used_up, _raising_async, lambda warning: "perhaps", lambda warning: None]
)
async def test_gate_that_raises_or_answers_nonsense_stops(gate: Any) -> None:
    tree = await run_tree(
        near_the_end(),
        budget=100_000,
        budget_gate=gate,
    )

    assert tree.error is None
    assert tree.result.status is AgentStatus.EXHAUSTED
    assert {str(r.status) for r in tree.result.sub_agent_results} == {"exhausted"}
    assert tree.result.final_response == "what there is"


# -- the question, with a person there ------------------------------------------------------------


async def paused(**more: Any) -> tuple[Tree, asyncio.Task[Tree]]:
    """A run that holds its children back until somebody answers."""
    tree = make_tree(near_the_end(), budget=100_000, is_attended=lambda: True, **more)
    run = tree.start()
    await tree.saw(AgentWaiting, "2")
    assert isinstance(tree.provider, ScriptedProvider)
    assert len(tree.provider.requests) == 1, "every new call is held"
    assert tree.of(BudgetPaused)[0].wait_s == 600
    return tree, run


async def test_pause_holds_new_calls_until_a_person_continues() -> None:
    tree, run = await paused()
    assert tree.request.meter is not None

    tree.request.meter.answer("continue")
    await run

    assert tree.result.status is AgentStatus.COMPLETED
    assert [e.reason for e in tree.of(BudgetResumed)] == ["continue"]
    assert {w.reason for w in tree.of(AgentWaiting)} == {"an answer to the budget's question"}


async def test_pause_ends_in_the_synthesis_when_a_person_stops() -> None:
    tree, run = await paused()
    assert tree.request.meter is not None

    tree.request.meter.answer("stop")
    await run

    assert tree.statuses() == {"root": "exhausted", "1": "exhausted", "2": "exhausted"}
    assert tree.result.final_response == "what there is"
    assert [e.reason for e in tree.of(BudgetResumed)] == ["stop"]
    assert len(tree.of(BudgetExhausted)) == 1


async def test_pause_without_an_answer_stops_after_its_time() -> None:
    clock = ManualClock(sleeps_end=True)
    tree, run = await paused(clock=clock)

    clock.advance(599)
    assert tree.request.meter is not None
    assert tree.request.meter.is_paused
    clock.advance(1)
    await run

    assert tree.result.status is AgentStatus.EXHAUSTED
    assert [e.reason for e in tree.of(BudgetResumed)] == ["timeout"]


async def test_pause_ends_when_the_total_is_raised() -> None:
    tree, run = await paused()

    tree.request.budget.set_total(200_000)
    await run

    assert tree.result.status is AgentStatus.COMPLETED
    assert [e.reason for e in tree.of(BudgetResumed)] == ["raised"]


async def test_pause_ends_when_the_total_is_set_below_what_is_used() -> None:
    tree, run = await paused()

    tree.request.budget.set_total(1000)
    await run

    assert tree.result.status is AgentStatus.EXHAUSTED
    assert "done: A" not in tree.result.final_response


async def test_synthesis_does_not_wait_for_the_question_that_a_child_brought_about() -> None:
    hold = Hold()
    replies: dict[str, Any] = {
        "root": [spawn("A"), Reply("what there is", pause=hold)],
        "A": Reply("expensive", usage=Usage(85_000, 0)),
    }
    tree = make_tree(by_agent(replies), budget=100_000, is_attended=lambda: True)
    run = tree.start()
    await hold.until_reached()
    assert tree.request.meter is not None
    assert tree.request.meter.is_paused, "and nobody has answered"
    hold.release()
    await run

    assert tree.result.final_response == "what there is"
    assert tree.result.status is AgentStatus.COMPLETED
    assert tree.of(AgentWaiting) == []
    assert [e.reason for e in tree.of(BudgetResumed)] == ["ended"]


async def test_synthesis_does_not_wait_for_the_question_once_the_pot_is_empty() -> None:
    provider = by_agent({"root": [spawn("A"), "what there is"], "A": LONG})

    tree = await run_tree(provider, budget=10_000, is_attended=lambda: True)

    assert tree.of(BudgetPaused)
    assert tree.result.final_response == "what there is"
    assert [e.reason for e in tree.of(BudgetResumed)] == ["ended"]


@pytest.mark.parametrize("has_gate", [False, True], ids=["attended", "gate"])
async def test_nothing_is_asked_when_only_the_synthesis_is_left(has_gate: bool) -> None:
    asked: list[BudgetWarning] = []

    def gate(warning: BudgetWarning) -> str:
        asked.append(warning)
        return "continue"

    tasks = [f"part {n}" for n in range(10)]
    replies: dict[str, Any] = {
        "root": [spawn(*tasks), Reply("what there is", usage=Usage(1_400, 100))],
        **{task: Reply("some", usage=Usage(700, 200)) for task in tasks},
    }
    tree = await run_tree(
        by_agent(replies),
        budget=8_000,
        is_attended=lambda: True,
        budget_gate=gate if has_gate else None,
    )

    assert tree.result.final_response == "what there is"
    (warning,), (exhausted,) = tree.of(BudgetWarning), tree.of(BudgetExhausted)
    assert exhausted.percentage < 80 < 100 * tree.request.budget.tokens_used / 8_000, "later on"
    assert warning.tokens_used <= exhausted.tokens_used
    assert tree.of(BudgetPaused) == []
    assert asked == []


async def test_pause_has_its_end_when_the_run_is_cancelled_from_outside() -> None:
    tree, run = await paused()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    kinds = [type(event) for event in tree.events]
    assert kinds.count(BudgetResumed) == 1
    assert kinds.index(BudgetResumed) < kinds.index(RunFinished)


async def test_paused_run_can_be_cancelled() -> None:
    tree, run = await paused()

    tree.cancel("root")
    await run

    assert [e.reason for e in tree.of(BudgetResumed)] == ["ended"]

    assert isinstance(tree.error, RunCancelled)
    assert tree.statuses() == {"root": "cancelled", "1": "cancelled", "2": "cancelled"}


async def test_answer_counts_only_while_something_is_asked() -> None:
    tree, run = await paused()
    meter = tree.request.meter
    assert meter is not None

    with pytest.raises(ValueError, match="perhaps"):
        meter.answer("perhaps")
    meter.answer("continue")
    with pytest.raises(NoOpenQuestion):
        meter.answer("stop")
    await run
    with pytest.raises(NoOpenQuestion):
        meter.answer("stop")


async def test_raised_total_warns_and_asks_again_at_its_own_line() -> None:
    provider = by_agent(
        {
            "root": [plan("A", "B", tokens=85_000, mode="sequential"), "ok"],
            "A": Reply("a", usage=Usage(85_000, 0)),
        }
    )
    tree = make_tree(provider, budget=100_000, is_attended=lambda: True)
    run = tree.start()
    await tree.saw(AgentWaiting, "1")
    tree.request.budget.set_total(200_000)
    await tree.saw(AgentWaiting, "2")
    assert tree.request.meter is not None
    tree.request.meter.answer("continue")
    await run

    assert [w.budget_total for w in tree.of(BudgetWarning)] == [100_000, 200_000]
    assert [e.reason for e in tree.of(BudgetResumed)] == ["raised", "continue"]
