"""What an agent is about to start is told before, and a person may stop it or allow less of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.core.budget import estimate_input_tokens
from agentnb.core.context import AgentContext
from agentnb.core.errors import NoOpenQuestion, RunCancelled
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentSpawned,
    AgentWaiting,
    ModelCallFinished,
    ModelCallStarted,
    QuestionAnswered,
    QuestionAsked,
    SpawnIgnored,
    SpawnPlanned,
)
from agentnb.core.questions import WAITS_FOR_PLAN, Question
from agentnb.core.spawn import SpawnInstruction, SpawnMode
from agentnb.core.types import AgentConfig, CompletionRequest, Usage
from agentnb.providers.scripted import ScriptedProvider
from tests.by_tools import order, run_of, start, wait
from tests.core.clock import ManualClock, everyone_waits
from tests.support import Tree, by_agent, examples, make_tree, path_of, requests_of, run_tree, spawn

TREE: dict[str, Any] = {
    "root": [spawn("A", "B"), "All."],
    "A": [spawn("A1", "A2", mode="sequential"), "a"],
    "B": "b",
    "A1": "a1",
    "A2": "a2",
}
FOUR: dict[str, Any] = {"root": [spawn("A", "B", "C", "D"), "All."], **dict.fromkeys("ABCD", "x")}


def plans(tree: Tree) -> dict[str, SpawnPlanned]:
    """By path: the only plan of each agent."""
    found = {path_of(event.agent_id): event for event in tree.of(SpawnPlanned)}
    assert len(found) == len(tree.of(SpawnPlanned))
    return found


def started(tree: Tree) -> list[str]:
    """The tasks of the sub-agents."""
    return [event.task_description for event in tree.of(AgentSpawned) if event.parent_id]


def only_question(tree: Tree) -> Question:
    (question,) = tree.request.open_questions
    return question


async def asked(script: dict[str, Any], **more: Any) -> tuple[Tree, asyncio.Task[Tree]]:
    """A run that waits for the answers to all of its plans."""
    tree = make_tree(by_agent(script), **{"on_plan": "ask", "clock": ManualClock(), **more})
    task = tree.start()
    await everyone_waits()
    return tree, task


# -- the event ------------------------------------------------------------------------------------


async def test_every_delegation_by_a_block_is_told_before_its_first_sub_agent() -> None:
    tree = await run_tree(by_agent(TREE))

    assert {path: (p.mode, p.tasks, p.numbers) for path, p in plans(tree).items()} == {
        "root": (SpawnMode.PARALLEL, ("A", "B"), (1, 2)),
        "1": (SpawnMode.SEQUENTIAL, ("A1", "A2"), (1, 2)),
    }
    for plan in tree.of(SpawnPlanned):
        place = tree.events.index(plan)
        children = [
            at
            for at, event in enumerate(tree.events)
            if isinstance(event, AgentSpawned) and event.parent_id == plan.agent_id
        ]
        assert place < min(children)


@pytest.mark.parametrize("mode", SpawnMode)
@pytest.mark.parametrize("synthesis", [True, False])
async def test_persons_own_list_is_told_before_its_first_task(
    mode: SpawnMode, synthesis: bool
) -> None:
    tree = await run_tree(
        by_agent({"root": "All.", "A": "a", "B": "b"}),
        plan=SpawnInstruction(mode, ("A", "B")),
        synthesis=synthesis,
    )

    assert (plans(tree)["root"].tasks, plans(tree)["root"].mode) == (("A", "B"), mode)
    kinds = [type(event) for event in tree.events]
    assert kinds.index(SpawnPlanned) == 2  # the run, and its root, which no plan starts


def test_job_is_not_told_as_a_plan() -> None:
    provider = by_agent({"root": [order(start("A")), order(wait()), "All."], "A": "a"})
    run, _ = run_of(provider, on_plan=lambda planned: "stop")

    spawned = [entry.event for entry in run.events if isinstance(entry.event, AgentSpawned)]
    assert [each.task_description for each in spawned] == ["Do it.", "A"]
    assert not [entry for entry in run.events if isinstance(entry.event, SpawnPlanned)]


async def test_only_the_tasks_that_the_limits_admit_are_planned() -> None:
    tree = await run_tree(by_agent(FOUR), max_agents=2)

    assert (plans(tree)["root"].tasks, plans(tree)["root"].numbers) == (("A", "B"), (1, 2))


async def test_block_of_which_nothing_is_admitted_is_no_plan() -> None:
    tree = await run_tree(by_agent({"root": [spawn("A"), "Alone."]}), max_agents=0)

    assert tree.of(SpawnPlanned) == []


# -- the bound ------------------------------------------------------------------------------------

MAX_OUTPUT = 60
LENGTHS = st.integers(1, 4 * MAX_OUTPUT)
LEAVES = st.tuples(LENGTHS)
DRAWN = st.recursive(
    LEAVES,
    lambda below: st.tuples(
        LENGTHS,
        st.sampled_from(["parallel", "sequential"]),
        st.lists(below, min_size=1, max_size=4),
    ),
    max_leaves=8,
)
"""Length of an agent's answer; of one that delegates also the mode, and its sub-agents."""


def script_of(drawn: Any, task: str, script: dict[str, Any]) -> dict[str, Any]:
    if len(drawn) == 1:
        script[task] = "w" * drawn[0]
    else:
        length, mode, below = drawn
        names = [f"{task}<{number}>" for number in range(len(below))]
        script[task] = [spawn(*names, mode=mode), "w" * length]
        for name, each in zip(names, below, strict=True):
            script_of(each, name, script)
    return script


def sure_calls(tree: Tree, plan: SpawnPlanned) -> list[Usage]:
    """What the calls took that the plan speaks of: the first of each sub-agent, the synthesis."""
    found, open_calls = [], {}
    for event in tree.events:
        if isinstance(event, ModelCallStarted):
            parent = event.agent_id.rpartition(".")[0]
            is_first = parent == plan.agent_id and event.agent_id not in open_calls
            is_synthesis = event.agent_id == plan.agent_id and event.is_synthesis
            open_calls[event.agent_id] = is_first or is_synthesis
        elif isinstance(event, ModelCallFinished) and open_calls[event.agent_id]:
            found.append(event.usage)
    return found


async def drawn_tree(drawn: Any, **more: Any) -> Tree:
    config = AgentConfig(max_output_tokens=MAX_OUTPUT)
    return await run_tree(
        by_agent(script_of(drawn, "root", {})),
        "the task",
        context=AgentContext(agent_config=config),
        cycle_threshold=100,
        **more,
    )


def usd(model: str, input_tokens: int, output_tokens: int) -> Decimal:
    return Decimal(3 * input_tokens + 15 * output_tokens) / 1_000_000


@given(DRAWN)
@settings(max_examples=examples(30), deadline=None)
def test_calls_that_are_sure_to_come_take_at_most_what_is_told(drawn: Any) -> None:
    tree = asyncio.run(drawn_tree(drawn, price=usd))

    for plan in tree.of(SpawnPlanned):
        calls = sure_calls(tree, plan)
        assert len(calls) == len(plan.tasks) + 1
        assert sum(each.total_tokens for each in calls) <= plan.estimated_tokens
        cost = sum(usd("", each.input_tokens, each.output_tokens) for each in calls)
        assert plan.estimated_cost_usd is not None
        assert cost <= Decimal(str(plan.estimated_cost_usd)) + Decimal("1e-9")


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_bound_is_near_for_answers_of_full_length(mode: str) -> None:
    full = (4 * MAX_OUTPUT,)
    tree = await drawn_tree((4 * MAX_OUTPUT, mode, [full] * 5))

    (plan,) = tree.of(SpawnPlanned)
    real = sum(each.total_tokens for each in sure_calls(tree, plan))
    assert 0.85 * plan.estimated_tokens < real <= plan.estimated_tokens


async def test_list_without_a_synthesis_is_estimated_by_its_first_calls() -> None:
    seen: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> str:
        seen.append(request)
        return "x"

    plan = SpawnInstruction(SpawnMode.PARALLEL, ("A <&>", "Größe B"))
    tree = await run_tree(ScriptedProvider(answer), plan=plan, synthesis=False)

    inputs = [estimate_input_tokens(each) + each.max_tokens for each in seen]
    assert plans(tree)["root"].estimated_tokens == sum(inputs)


async def test_cost_is_not_known_without_a_price_for_a_model() -> None:
    assert plans(await run_tree(by_agent(TREE)))["root"].estimated_cost_usd is None


# -- the answers ----------------------------------------------------------------------------------


async def test_plan_is_asked_about_and_begins_with_go() -> None:
    tree, task = await asked(FOUR, price=usd)
    question = only_question(tree)

    plan = plans(tree)["root"]
    assert (question.kind, question.path, question.value) == ("plan", "root", plan)
    assert question.options == ("go", "stop", "fewer")
    cents = -(-int(Decimal(str(plan.estimated_cost_usd)) * 10_000) // 100) / 100
    assert question.text == (
        f"Start 4 agents, at most {plan.estimated_tokens:,} tokens, at most ${cents:.2f}: "
        "go, stop, or fewer?"
    )
    assert started(tree) == []
    assert tree.of(AgentWaiting)[-1].reason == WAITS_FOR_PLAN
    tree.request.answer(question.id, "go", by="panel")
    await task

    assert started(tree) == ["A", "B", "C", "D"]
    assert [(e.answer, e.by) for e in tree.of(QuestionAnswered)] == [("go", "panel")]


async def test_of_fewer_the_first_start_and_the_others_are_named_to_the_model() -> None:
    tree, task = await asked(FOUR, max_agents=4)
    tree.request.answer(only_question(tree).id, "fewer", value=1, reason="try it first")
    await task

    assert started(tree) == ["A"]
    (ignored,) = tree.of(SpawnIgnored)
    assert (ignored.tasks, ignored.numbers) == (("B", "C", "D"), (2, 3, 4))
    assert "1 of 4 tasks" in ignored.reason
    assert "try it first" in ignored.reason
    assert isinstance(tree.provider, ScriptedProvider)
    synthesis = requests_of(tree.provider, "root")[-1].messages[-1].text
    assert synthesis.count('status="skipped"') == 3
    assert ignored.reason in synthesis
    assert tree.result.final_response == "All."


async def test_stopped_plan_is_told_the_model_which_answers_itself() -> None:
    tree, task = await asked({"root": [spawn("A", "B"), "Alone."]})
    tree.request.answer(only_question(tree).id, "stop", reason="too dear")
    await task

    assert (started(tree), tree.result.final_response) == ([], "Alone.")
    assert isinstance(tree.provider, ScriptedProvider)
    assert "too dear" in requests_of(tree.provider, "root")[-1].messages[-1].text
    assert tree.of(SpawnIgnored)[0].numbers == (1, 2)


async def test_inner_agents_are_asked_each_for_itself() -> None:
    tree, task = await asked(TREE)
    tree.request.answer(only_question(tree).id, "go")
    await everyone_waits()
    inner = only_question(tree)
    assert (inner.path, inner.id) == ("1", "q2")
    tree.request.answer("q2", "fewer", value=1)
    await task

    assert started(tree) == ["A", "B", "A1"]


async def test_tasks_that_do_not_start_are_not_counted() -> None:
    script = {
        "root": [spawn("A", "B", mode="sequential"), "All."],
        "A": [spawn("same", "same", "other"), "a"],
        "B": [spawn("same", "same"), "b"],
        "same": "s",
        "other": "o",
    }
    allowed = iter([2, 1, 2])
    tree = await run_tree(
        by_agent(script), on_plan=lambda planned: next(allowed), max_agents=5, cycle_threshold=3
    )

    assert started(tree) == ["A", "same", "B", "same", "same"]
    assert tree.request.limits._started == 5


async def test_stopped_list_of_a_person_cancels_the_run() -> None:
    plan = SpawnInstruction(SpawnMode.PARALLEL, ("A", "B"))
    tree, task = await asked({"root": "All."}, plan=plan)
    tree.request.answer(only_question(tree).id, "stop", by="panel")
    await task

    assert isinstance(tree.error, RunCancelled)
    assert "stopped its plan" in str(tree.error)
    assert (started(tree), tree.of(AgentCancelled)[0].by) == ([], "panel")
    assert tree.of(SpawnIgnored)[0].tasks == ("A", "B")


async def test_fewer_of_a_persons_list_leaves_out_the_others() -> None:
    plan = SpawnInstruction(SpawnMode.PARALLEL, ("A", "B", "C"))
    tree, task = await asked({"root": "All.", "A": "a", "B": "b"}, plan=plan)
    tree.request.answer(only_question(tree).id, "fewer", value=2)
    await task

    assert started(tree) == ["A", "B"]
    assert tree.of(SpawnIgnored)[0].tasks == ("C",)
    assert tree.result.final_response == "All."


@pytest.mark.parametrize("value", [0, 5, True, None, "2", 1.0])
async def test_fewer_takes_a_number_of_its_tasks(value: Any) -> None:
    tree, task = await asked(FOUR)
    with pytest.raises(ValueError, match="from 1 to 4"):
        tree.request.answer("q1", "fewer", value=value)
    tree.request.answer("q1", "fewer", value=4)
    await task

    assert started(tree) == ["A", "B", "C", "D"]


async def test_first_of_two_answers_counts() -> None:
    tree, task = await asked(FOUR)
    tree.request.answer("q1", "stop", by="panel")
    with pytest.raises(NoOpenQuestion):
        tree.request.answer("q1", "go", by="code")
    await task

    assert started(tree) == []
    assert [(each.answer, each.by) for each in tree.of(QuestionAnswered)] == [("stop", "panel")]


async def test_plan_without_an_answer_in_time_is_stopped() -> None:
    clock = ManualClock()
    tree, task = await asked(FOUR, clock=clock, pause_timeout_s=30.0)
    clock.advance(29.0)
    await everyone_waits()
    assert not task.done()
    clock.advance(2.0)
    await task

    assert started(tree) == []
    (answered,) = tree.of(QuestionAnswered)
    assert (answered.answer, answered.by) == ("stop", "limit")
    assert "30 s" in answered.reason


async def test_run_that_nobody_can_answer_goes_and_asks_nothing() -> None:
    tree = await run_tree(by_agent(FOUR), on_plan="ask", patience=lambda: 0.0)

    assert (len(started(tree)), tree.of(QuestionAsked)) == (4, [])


async def test_plan_that_nobody_came_to_answer_goes() -> None:
    left = iter([1.0, 1.0, 0.0])
    clock = ManualClock()
    tree, task = await asked(FOUR, patience=lambda: next(left, 0.0), clock=clock)
    assert len(tree.of(QuestionAsked)) == 1
    clock.advance(1.0)
    await everyone_waits()
    await task

    assert len(started(tree)) == 4
    assert [(e.answer, e.by) for e in tree.of(QuestionAnswered)] == [("go", "limit")]


@pytest.mark.parametrize(
    ("limit", "is_asked"),
    [((4, 1e9), False), ((3, 1e9), True), ((4, 0.0), True), ((0, 1e9), True), (None, False)],
)
async def test_plan_above_a_number_of_agents_or_a_cost_is_asked_about(
    limit: Any, is_asked: bool
) -> None:
    tree, task = await asked(FOUR, on_plan="go", ask_above=limit, price=usd)

    assert bool(tree.request.open_questions) is is_asked
    for question in tree.request.open_questions:
        tree.request.answer(question.id, "go")
    await task


async def test_cost_that_is_not_known_is_above_no_limit() -> None:
    tree = await run_tree(by_agent(FOUR), ask_above=(4, 0.0))

    assert tree.of(QuestionAsked) == []


# -- a person's own function ----------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("returned", "starts"), [("go", 4), ("stop", 0), (0, 0), (2, 2), (4, 4), (9, 4)]
)
async def test_function_of_a_person_answers(returned: Any, starts: int, is_async: bool) -> None:
    given: list[SpawnPlanned] = []

    def gate(planned: SpawnPlanned) -> Any:
        given.append(planned)
        return returned

    async def slow_gate(planned: SpawnPlanned) -> Any:
        return gate(planned)

    script = {**FOUR, "root": [FOUR["root"][0], "All."]}
    tree = await run_tree(by_agent(script), on_plan=slow_gate if is_async else gate)

    assert given == tree.of(SpawnPlanned)
    assert len(started(tree)) == starts
    assert tree.of(QuestionAnswered)[0].by == "gate"


def raises(planned: SpawnPlanned) -> str:
    raise OSError("the ledger is closed")


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        (raises, "the ledger is closed"),
        (lambda planned: "perhaps", "'perhaps'"),
        (lambda planned: -1, "-1"),
        (lambda planned: True, "True"),
        (lambda planned: None, "None"),
    ],
)
async def test_function_that_raises_or_says_something_else_stops_the_plan(
    gate: Callable[[SpawnPlanned], object], said: str
) -> None:
    tree = await run_tree(by_agent({"root": [spawn("A"), "Alone."]}), on_plan=gate)

    assert (started(tree), tree.result.final_response) == ([], "Alone.")
    assert said in tree.of(SpawnIgnored)[0].reason


# -- what it holds --------------------------------------------------------------------------------


async def test_twenty_open_plans_hold_their_agents_only() -> None:
    names = [f"P{number}" for number in range(20)]
    script: dict[str, Any] = {"root": [spawn(*names, "free"), "All."], "free": [spawn("f"), "F."]}
    script |= {name: [spawn(f"{name} below"), "p"] for name in names}
    script |= {f"{name} below": "x" for name in names} | {"f": "x"}
    limits = {"gate": None, "cycle_threshold": 100}
    tree, task = await asked(script, **limits)
    tree.request.answer("q1", "go")
    await everyone_waits()
    assert len(tree.request.open_questions) == 21
    free = next(each for each in tree.request.open_questions if each.path == "21")
    tree.request.answer(free.id, "go")
    for _ in range(5):
        await everyone_waits()

    assert [e.agent_id for e in tree.of(AgentCompleted)] == [
        f"{tree.id_of('21')}.1",
        tree.id_of("21"),
    ]
    assert len(tree.request.open_questions) == 20
    for question in tree.request.open_questions:
        tree.request.answer(question.id, "stop" if question.path == "3" else "go")
    await task
    assert len(started(tree)) == 21 + 1 + 19


async def test_cancel_voids_the_question_and_names_the_tasks() -> None:
    tree, task = await asked(FOUR)
    tree.request.cancellation.cancel(None, "enough")
    await task

    assert tree.request.open_questions == ()
    assert [each.answer for each in tree.of(QuestionAnswered)] == ["ended"]
    assert tree.of(SpawnIgnored)[0].tasks == ("A", "B", "C", "D")


async def test_time_of_the_run_ends_the_wait_for_an_answer() -> None:
    clock = ManualClock()
    tree, task = await asked(FOUR, clock=clock, max_time_s=10.0, pause_timeout_s=1000.0)
    clock.advance(11.0)
    await task

    assert [each.answer for each in tree.of(QuestionAnswered)] == ["ended"]
    assert (started(tree), tree.statuses()["root"]) == ([], "exhausted")
    assert "time of 10 s" in tree.of(SpawnIgnored)[0].reason
