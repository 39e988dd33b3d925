"""`Run.cancel` in every phase from wherever it may be called, and from many places at once."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentnb.core.errors import RunCancelled
from agentnb.core.events import AgentCancelled, AgentSpawned, ModelCallStarted
from agentnb.core.types import AgentStatus, CancelReceipt, CompletionRequest, OrchestratorResult
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.session import Session
from tests.cancel.phases import PHASES, Situation, on_the_runtime, open_below
from tests.support import (
    DEADLINE_S,
    Hold,
    check_record,
    check_result,
    events_of,
    nothing_left_on_the_runtime,
    path_of,
    spawn,
    task_of,
)


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with nothing_left_on_the_runtime():
        yield


# -- who calls ------------------------------------------------------------------------------------

Order = Callable[[], CancelReceipt]


def on_the_main_thread(cancel: Order) -> list[CancelReceipt]:
    return [cancel()]


def on_another_thread(cancel: Order) -> list[CancelReceipt]:
    with ThreadPoolExecutor(1) as pool:
        return [pool.submit(cancel).result(DEADLINE_S)]


def in_a_task_of_another_loop(cancel: Order) -> list[CancelReceipt]:
    async def task() -> CancelReceipt:
        await asyncio.sleep(0)
        return cancel()

    with ThreadPoolExecutor(1) as pool:
        return [pool.submit(lambda: asyncio.run(task())).result(DEADLINE_S)]


def in_a_callback_of_the_runtime(cancel: Order) -> list[CancelReceipt]:
    return [get_runtime().call(cancel)]


def on_two_threads_at_once(cancel: Order) -> list[CancelReceipt]:
    together = threading.Barrier(2)

    def work() -> CancelReceipt:
        together.wait(DEADLINE_S)
        return cancel()

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(work) for _ in range(2)]
        return [future.result(DEADLINE_S) for future in both]


CALLERS = (
    on_the_main_thread,
    on_another_thread,
    in_a_task_of_another_loop,
    in_a_callback_of_the_runtime,
    on_two_threads_at_once,
)


def ended(run: Run) -> OrchestratorResult:
    try:
        return run.result(DEADLINE_S)
    except RunCancelled as cancelled:
        reached = cancelled.partial_result
    assert reached is not None
    return reached


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("busy", "target"), [("1.1", "1.1"), ("1.1", "1"), ("1", "root")])
@pytest.mark.parametrize("phase", PHASES)
def test_cancel_in_every_phase_from_everywhere_is_told_truly_once(
    phase: str, busy: str, target: str, caller: Callable[[Order], list[CancelReceipt]]
) -> None:
    situation = Situation(phase, busy)
    run = on_the_runtime(situation.tree)
    asyncio.run(situation.reached())
    expected = open_below(situation.tree.bus, target)
    held = {path for path in ("root", "2") if path in open_below(situation.tree.bus, path)}

    receipts = caller(lambda: run.cancel(target))
    if caller is in_a_callback_of_the_runtime:
        assert receipts[0].still_running == receipts[0].agents
        assert run.cancel(target).agents == ()  # nothing more to stop, but this one waits for it
    else:
        assert [receipt.still_running for receipt in receipts] == [()] * len(receipts)
    calls = len(events_of(run.events, ModelCallStarted))
    assert held.intersection(open_below(situation.tree.bus, "root")) == held.difference(expected)
    assert run.done is (target == "root")
    situation.let_go()
    result = ended(run)

    agents = [path_of(agent_id) for receipt in receipts for agent_id in receipt.agents]
    assert sorted(agents) == sorted(expected), "between them they name each one once"
    assert len({receipt.agents for receipt in receipts}) == len(receipts)
    assert {path_of(e.agent_id) for e in events_of(run.events, AgentCancelled)} == set(expected)
    later = events_of(run.events, ModelCallStarted)[calls:]
    assert {path_of(call.agent_id) for call in later}.isdisjoint(expected)
    assert run.cancel(target) == CancelReceipt((), 0)
    check_record(run.events)
    check_result(result, run.events)


def test_run_that_is_cancelled_before_its_root_exists_names_the_root() -> None:
    session = Session(provider=ScriptedProvider([]))

    def spawn_and_cancel() -> tuple[Run, list[CancelReceipt]]:
        run = session.spawn("a task")  # on the runtime's thread it cannot begin before we return
        return run, [run.cancel(), run.cancel()]

    run, receipts = get_runtime().call(spawn_and_cancel)

    with pytest.raises(RunCancelled):
        run.result(DEADLINE_S)
    assert run.tree is not None
    root = (run.tree.agent_id,)
    assert [(receipt.agents, receipt.still_running) for receipt in receipts] == [
        (root, root),
        ((), ()),
    ]


def test_run_that_is_cancelled_at_once_names_the_root() -> None:
    for _ in range(50):
        run = Session(provider=ScriptedProvider([Reply("half", pause=asyncio.Event().wait)])).spawn(
            "a task"
        )
        receipt = run.cancel()

        assert run.done
        assert run.tree is not None
        assert receipt.agents == (run.tree.agent_id,)
        assert receipt.still_running == ()


# -- many at once ---------------------------------------------------------------------------------


def _talkative(request: CompletionRequest, hold: Hold) -> Reply:
    """43 agents at three depths, that stream in small pieces; some of them are held."""
    task = task_of(request)
    if "<sub_agent_results>" in request.last_user_text:
        return Reply(f"{task} brings it all together, " * 5)
    if task == "root":
        return Reply(spawn(*(f"part {i}" for i in range(6))))
    if task.count(" ") == 1:
        mode = "sequential" if task == "part 3" else "parallel"
        return Reply(spawn(*(f"{task} of {i}" for i in range(6)), mode=mode))
    pause = hold if task.endswith(("3", "4", "5")) else None
    return Reply(f"{task} goes on and on, " * 20, pause=pause)


@pytest.mark.parametrize("seed", range(8))
def test_random_cancels_from_many_threads_keep_every_promise(seed: int) -> None:
    hold = Hold()
    provider = ScriptedProvider(lambda request: _talkative(request, hold), pace_s=1e-9)
    session = Session(provider=provider, max_concurrency=20)
    run = session.spawn("the task")

    async def somebody() -> None:
        async with asyncio.timeout(DEADLINE_S):
            async for entry in run.stream():
                if events_of([entry], AgentSpawned, "1"):
                    return

    def cancel_at_random(number: int) -> list[CancelReceipt]:
        choose = random.Random(f"{seed} {number}")
        receipts: list[CancelReceipt] = []
        while len(receipts) < 6 and not run.done:
            paths = [agent.path for agent in run.agents]
            receipts.append(run.cancel(choose.choice(paths[1:])))
        return [*receipts, *([run.cancel()] if seed % 2 else [])]

    asyncio.run(somebody())
    with ThreadPoolExecutor(4) as pool:
        receipts = [r for found in pool.map(cancel_at_random, range(4)) for r in found]
    hold.release()
    result = ended(run)

    check_record(run.events)
    check_result(result, run.events)
    named = [agent_id for receipt in receipts for agent_id in receipt.agents]
    assert len(named) == len(set(named)), "nobody is stopped twice"
    assert set(named) == {event.agent_id for event in events_of(run.events, AgentCancelled)}
    assert named
    assert run.tree is not None
    assert (run.status is AgentStatus.CANCELLED) is (run.tree.agent_id in named)
    assert all(receipt.still_running == () for receipt in receipts)
    assert run.budget.reserved == 0
