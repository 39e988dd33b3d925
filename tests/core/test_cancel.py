"""A scope stops its own task, once, says why, and leaves every other cancellation alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from agentnb.core import cancel
from agentnb.core.cancel import (
    AgentStopped,
    Cancellation,
    CancelScope,
    foreign,
    shielded,
    wait_shielded,
)
from agentnb.core.errors import InternalError
from agentnb.core.threads import run_in_thread
from tests.core.clock import everyone_waits
from tests.support import DEADLINE_S, reported_by

ROOT = "nb_20260101_aaaaaa"
CHILD = f"{ROOT}.1"
GRANDCHILD = f"{CHILD}.1"
SIBLING = f"{ROOT}.2"


class Agent:
    """A task in a scope, as the orchestrator runs one, with a record of how it ended."""

    def __init__(self, scope: CancelScope, body: Callable[[], Awaitable[object]]) -> None:
        self.scope = scope
        self.stopped: AgentStopped | None = None
        self.cancelling_after: int | None = None
        self._body = body
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        try:
            async with self.scope:
                await self._body()
        except AgentStopped as stop:
            self.stopped = stop
        finally:
            self.cancelling_after = me.cancelling()
        # The task is whole again: it can wait, as it must to tell its end.
        await asyncio.sleep(0)


async def for_ever() -> None:
    await asyncio.Event().wait()


def family() -> tuple[Cancellation, dict[str, CancelScope]]:
    cancellation = Cancellation()
    parents = {ROOT: None, CHILD: ROOT, GRANDCHILD: CHILD, SIBLING: ROOT}
    return cancellation, {a: cancellation.scope(a, parent) for a, parent in parents.items()}


def ids(scopes: list[CancelScope]) -> set[str]:
    return {scope.agent_id for scope in scopes}


async def test_cancel_while_it_waits_stops_the_task_and_says_who_and_why() -> None:
    cancellation = Cancellation()
    agent = Agent(cancellation.scope(ROOT), for_ever)
    await everyone_waits()

    assert ids(cancellation.cancel(ROOT, "enough")) == {ROOT}
    await agent.task

    assert agent.stopped is not None
    assert (agent.stopped.agent_id, agent.stopped.reason) == (ROOT, "enough")
    assert agent.cancelling_after == 0


async def test_cancel_before_entering_stops_it_before_its_first_step() -> None:
    cancellation = Cancellation()
    scope = cancellation.scope(ROOT)
    cancellation.cancel(ROOT, "too soon")
    steps: list[str] = []

    async def step() -> None:
        steps.append("made")

    agent = Agent(scope, step)
    await agent.task

    assert steps == []
    assert agent.stopped is not None
    assert agent.cancelling_after == 0


async def test_whole_run_cancelled_before_its_root_exists_stops_the_root_too() -> None:
    cancellation = Cancellation()
    assert cancellation.cancel(None, "never mind") == []

    agent = Agent(cancellation.scope(ROOT), for_ever)
    await agent.task

    assert agent.stopped is not None
    assert agent.stopped.reason == "never mind"


async def test_cancel_after_leaving_is_a_no_op() -> None:
    cancellation = Cancellation()

    async def done() -> None:
        return

    agent = Agent(cancellation.scope(ROOT), done)
    await agent.task

    assert cancellation.cancel(ROOT) == []
    assert cancellation.cancel() == []
    assert agent.stopped is None
    assert agent.scope.reason is None


@pytest.mark.parametrize("reason", ["first", ""])
async def test_second_cancel_is_a_no_op_and_the_first_reason_stands(reason: str) -> None:
    cancellation = Cancellation()
    cleaned_up: list[str] = []

    async def clean_up_slowly() -> None:
        try:
            await for_ever()
        finally:
            await everyone_waits()
            cleaned_up.append("to the end")

    agent = Agent(cancellation.scope(ROOT), clean_up_slowly)
    await everyone_waits()

    assert len(cancellation.cancel(ROOT, reason)) == 1
    assert cancellation.cancel(ROOT, "second") == []
    await asyncio.sleep(0)
    assert cancellation.cancel(None, "third") == []
    await agent.task

    assert cleaned_up == ["to the end"]
    assert agent.stopped is not None
    assert agent.stopped.reason == reason
    assert agent.cancelling_after == 0


async def test_cancel_of_a_parent_stops_everything_below_it_and_nothing_beside_it() -> None:
    cancellation, scopes = family()
    agents = {a: Agent(scope, for_ever) for a, scope in scopes.items()}
    await everyone_waits()

    assert ids(cancellation.cancel(CHILD, "this branch")) == {CHILD, GRANDCHILD}
    await agents[CHILD].task
    await agents[GRANDCHILD].task
    await everyone_waits()

    assert not agents[ROOT].task.done()
    assert not agents[SIBLING].task.done()
    assert ids(cancellation.cancel(None, "the rest")) == {ROOT, SIBLING}
    await agents[ROOT].task
    await agents[SIBLING].task
    reasons = {a: agent.stopped and agent.stopped.reason for a, agent in agents.items()}
    assert reasons == {
        ROOT: "the rest",
        CHILD: "this branch",
        GRANDCHILD: "this branch",
        SIBLING: "the rest",
    }


async def test_cancel_reaches_grandchildren_through_a_child_that_has_ended() -> None:
    cancellation, scopes = family()

    async def done() -> None:
        return

    await Agent(scopes[CHILD], done).task
    grandchild = Agent(scopes[GRANDCHILD], for_ever)
    await everyone_waits()

    assert ids(cancellation.cancel(CHILD)) == {GRANDCHILD}
    await grandchild.task


async def test_scope_made_below_a_cancelled_parent_is_cancelled_from_the_start() -> None:
    cancellation = Cancellation()
    parent = Agent(cancellation.scope(ROOT), for_ever)
    await everyone_waits()
    cancellation.cancel(ROOT, "enough")

    child = Agent(cancellation.scope(CHILD, ROOT), for_ever)
    grandchild = Agent(cancellation.scope(GRANDCHILD, CHILD), for_ever)
    await asyncio.gather(parent.task, child.task, grandchild.task)

    for agent in (child, grandchild):
        assert agent.stopped is not None
        assert agent.stopped.reason == "enough"


async def test_cancellation_from_elsewhere_passes_through() -> None:
    agent = Agent(Cancellation().scope(ROOT), for_ever)
    await everyone_waits()

    agent.task.cancel("from elsewhere")
    with pytest.raises(asyncio.CancelledError):
        await agent.task

    assert agent.stopped is None
    assert agent.cancelling_after == 1


@pytest.mark.parametrize("first", ["ours", "theirs"])
async def test_cancellation_from_elsewhere_passes_through_also_beside_our_own(first: str) -> None:
    cancellation = Cancellation()
    agent = Agent(cancellation.scope(ROOT), for_ever)
    await everyone_waits()

    if first == "ours":
        cancellation.cancel(ROOT)
        agent.task.cancel()
    else:
        agent.task.cancel()
        cancellation.cancel(ROOT)
    with pytest.raises(asyncio.CancelledError):
        await agent.task

    assert agent.cancelling_after == 1


async def test_timeout_around_a_scope_still_ends_as_a_timeout() -> None:
    cancellation = Cancellation()
    entered = asyncio.Event()

    async def run() -> None:
        async with asyncio.timeout(None) as deadline, cancellation.scope(ROOT):
            deadline.reschedule(asyncio.get_running_loop().time())
            entered.set()
            await for_ever()

    task = asyncio.create_task(run())
    await entered.wait()

    with pytest.raises(TimeoutError):
        await task


async def test_timeout_inside_a_scope_is_none_of_its_business() -> None:
    cancellation = Cancellation()

    async def time_out() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await for_ever()

    agent = Agent(cancellation.scope(ROOT), time_out)
    await agent.task

    assert agent.stopped is None
    assert agent.cancelling_after == 0


async def test_scope_in_a_task_that_was_cancelled_before_still_translates_its_own() -> None:
    cancellation = Cancellation()
    inner = cancellation.scope(ROOT)
    told: list[str] = []

    async def clean_up_in_a_scope() -> None:
        try:
            await for_ever()
        finally:
            try:
                async with inner:
                    await for_ever()
            except AgentStopped as stop:
                told.append(stop.reason)

    task = asyncio.create_task(clean_up_in_a_scope())
    await everyone_waits()
    task.cancel()
    await everyone_waits()
    cancellation.cancel(ROOT, "enough")
    with pytest.raises(asyncio.CancelledError):
        await task

    assert told == ["enough"]


async def test_cancel_in_a_body_s_last_step_is_not_left_hanging_over_the_task() -> None:
    cancellation = Cancellation()
    scope = cancellation.scope(ROOT)

    async def body() -> None:
        scope.reason = "late"
        # Delivered now: the body has no await left at which it could hear of it.
        scope._deliver()

    agent = Agent(scope, body)
    await agent.task

    assert agent.stopped is not None
    assert agent.stopped.reason == "late"
    assert agent.cancelling_after == 0


async def test_cancel_that_was_ordered_and_not_delivered_stops_all_the_same() -> None:
    cancellation = Cancellation()

    async def cancel_itself() -> None:
        cancellation.cancel(ROOT, "by itself")

    agent = Agent(cancellation.scope(ROOT), cancel_itself)
    await agent.task
    await everyone_waits()

    assert agent.stopped is not None
    assert agent.cancelling_after == 0


async def test_body_that_turns_the_cancel_into_an_error_is_stopped_with_that_as_the_cause() -> None:
    cancellation = Cancellation()

    async def fail_in_clean_up() -> None:
        try:
            await for_ever()
        finally:
            raise LookupError("on the way out")

    agent = Agent(cancellation.scope(ROOT), fail_in_clean_up)
    await everyone_waits()
    cancellation.cancel(ROOT)
    await agent.task

    assert agent.stopped is not None
    assert isinstance(agent.stopped.__cause__, LookupError)
    assert agent.cancelling_after == 0


async def test_body_that_swallows_the_cancel_is_stopped_when_it_leaves() -> None:
    cancellation = Cancellation()

    async def stubborn() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)

    agent = Agent(cancellation.scope(ROOT), stubborn)
    await everyone_waits()
    cancellation.cancel(ROOT)
    await agent.task

    assert agent.stopped is not None
    assert agent.cancelling_after == 0


async def test_error_of_a_body_that_nobody_cancelled_is_its_own() -> None:
    async def fail() -> None:
        raise LookupError

    agent = Agent(Cancellation().scope(ROOT), fail)
    with pytest.raises(LookupError):
        await agent.task


async def test_cancel_from_another_thread_reaches_the_task() -> None:
    cancellation = Cancellation()
    agent = Agent(cancellation.scope(ROOT), for_ever)
    await everyone_waits()

    hit = await run_in_thread(lambda: cancellation.cancel(ROOT, "from a button"))
    await agent.task

    assert ids(hit) == {ROOT}
    assert agent.stopped is not None
    assert agent.stopped.reason == "from a button"
    assert agent.cancelling_after == 0


async def test_of_many_threads_that_cancel_at_once_each_scope_is_stopped_by_one() -> None:
    cancellation, scopes = family()
    agents = [Agent(scope, for_ever) for scope in scopes.values()]
    await everyone_waits()
    start = threading.Barrier(8)

    def cancel() -> list[CancelScope]:
        start.wait()
        return cancellation.cancel()

    hits = await asyncio.gather(*[run_in_thread(cancel) for _ in range(8)])
    await asyncio.gather(*[agent.task for agent in agents])

    assert sorted(s.agent_id for hit in hits for s in hit) == sorted(scopes)
    assert {agent.cancelling_after for agent in agents} == {0}


def test_cancel_after_the_loop_is_gone_harms_nobody() -> None:
    cancellation = Cancellation()
    loop = asyncio.new_event_loop()

    async def enter() -> None:
        await cancellation.scope(ROOT).__aenter__()

    loop.run_until_complete(enter())
    loop.close()

    assert ids(cancellation.cancel(ROOT)) == {ROOT}


def test_unknown_agent_raises_and_known_ones_are_listed() -> None:
    cancellation, scopes = family()

    with pytest.raises(KeyError):
        cancellation.cancel(f"{ROOT}.9")

    assert cancellation.agent_ids == list(scopes)
    assert CHILD in cancellation.agent_ids
    assert f"{ROOT}.9" not in cancellation.agent_ids


@pytest.mark.parametrize(
    "raised", [ValueError("v"), SystemExit("out"), asyncio.CancelledError("mine"), GeneratorExit()]
)
async def test_whatever_the_code_of_others_raises_names_that_code(raised: BaseException) -> None:
    def gate() -> None:
        raise raised

    with pytest.raises(InternalError, match=f"{type(raised).__name__} in the gate") as told:
        with foreign("the gate"):
            gate()

    assert told.value.__cause__ is raised


async def test_declared_error_of_others_passes_as_it_is() -> None:
    with pytest.raises(LookupError) as told, foreign("the gate", passes=(LookupError,)):
        raise KeyError("k")

    assert type(told.value) is KeyError


async def test_own_cancellation_passes_through_the_code_of_others() -> None:
    async def ask() -> None:
        with foreign("the gate"):
            await for_ever()

    asked = asyncio.create_task(ask())
    await everyone_waits()
    asked.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_coroutine_that_waits_for_others_can_be_closed() -> None:
    async def ask() -> None:
        with foreign("the gate"):
            await asyncio.sleep(0)

    asked = ask()
    asked.send(None)
    asked.close()


async def test_shielded_wait_sees_all_ends_and_hands_the_cancellation_on() -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    work = [asyncio.create_task(gate.wait()) for gate in gates]
    arrived: list[bool] = []
    waiting = asyncio.create_task(wait_shielded(work, lambda: arrived.append(True)))
    await everyone_waits()

    waiting.cancel()
    await everyone_waits()
    assert (arrived, waiting.done()) == ([True], False)
    gates[0].set()
    waiting.cancel()
    await everyone_waits()
    assert (arrived, waiting.done()) == ([True, True], False)
    gates[1].set()

    assert isinstance(await waiting, asyncio.CancelledError)
    assert [each.result() for each in work] == [True, True]


async def test_shielded_wait_that_is_not_cancelled_hands_nothing_on() -> None:
    async def fail() -> None:
        raise KeyError("k")

    work = asyncio.create_task(fail())

    assert await wait_shielded([work]) is None
    assert await wait_shielded([]) is None
    assert isinstance(work.exception(), KeyError)


# -- the whole run, and the runs below -------------------------------------------------------------


async def test_wait_for_the_cancel_of_the_whole_run_ends_with_it_from_any_thread() -> None:
    cancellation, _ = family()
    waiting = [asyncio.create_task(cancellation.root_cancelled()) for _ in range(2)]
    await everyone_waits()
    cancellation.cancel(ROOT, "an agent is not the run")
    await everyone_waits()
    assert not any(each.done() for each in waiting)
    assert cancellation.root_by == ""

    await run_in_thread(lambda: cancellation.cancel(None, "enough", by="panel"))
    await asyncio.gather(*waiting)

    assert (cancellation.root_reason, cancellation.root_by) == ("enough", "panel")
    await cancellation.root_cancelled()  # returns at once now


async def test_wait_that_is_cancelled_itself_leaves_nothing_behind() -> None:
    cancellation = Cancellation()
    waiting = asyncio.create_task(cancellation.root_cancelled())
    await everyone_waits()

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert not vars(cancellation)["_waiting"]
    cancellation.cancel()


def test_wait_on_a_loop_that_is_gone_harms_nobody() -> None:
    cancellation = Cancellation()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(cancellation.root_cancelled())
    loop.run_until_complete(everyone_waits())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(waiting)
    late = loop.create_task(cancellation.root_cancelled())
    loop.run_until_complete(everyone_waits())
    loop.close()

    assert cancellation.cancel() == []
    assert not late.done()
    late.get_coro().close()  # else Python warns of it
    del late


def test_cancel_of_a_run_below_leaves_the_run_above_and_those_beside_it() -> None:
    above, below, beside = Cancellation(), Cancellation(), Cancellation()
    above.add_below(below)
    above.add_below(beside)

    below.cancel(None, "only this")

    assert [each.root_reason for each in (above, below, beside)] == [None, "only this", None]


def test_first_reason_of_a_run_below_stands() -> None:
    above, below = Cancellation(), Cancellation()
    above.add_below(below)
    below.cancel(None, "first", by="panel")

    above.cancel(None, "second")

    assert (below.root_reason, below.root_by) == ("first", "panel")


def test_run_that_comes_below_a_cancelled_one_is_cancelled_at_once_and_so_is_what_is_below_it() -> (
    None
):
    above, middle, low = Cancellation(), Cancellation(), Cancellation()
    middle.add_below(low)
    above.cancel(None, "enough", by="agent")

    above.add_below(middle)

    assert [(each.root_reason, each.root_by) for each in (middle, low)] == [("enough", "agent")] * 2


def test_runs_that_are_below_each_other_are_cancelled_once_each() -> None:
    one, other = Cancellation(), Cancellation()
    one.add_below(other)
    other.add_below(one)

    one.cancel(None, "enough")

    assert (one.root_reason, other.root_reason) == ("enough", "enough")


def test_all_runs_below_are_ordered_to_stop_before_one_of_them_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits for the end of another run must not begin when that one is cancelled, too."""
    runs = [Cancellation() for _ in range(4)]
    for above, below in ((0, 1), (0, 2), (2, 3)):
        runs[above].add_below(runs[below])
    seen = list[list[str | None]]()
    monkeypatch.setattr(
        cancel, "_deliver_soon", lambda scopes: seen.append([run.root_reason for run in runs])
    )

    runs[0].cancel(None, "enough")

    assert seen == [["enough"] * 4] * 4


def test_cancels_from_many_threads_meet_in_no_order_and_reach_every_run_below() -> None:
    for _ in range(20):
        runs = [Cancellation() for _ in range(8)]
        start = threading.Barrier(len(runs) + 1)

        def link(number: int, runs: list[Cancellation], start: threading.Barrier) -> None:
            start.wait()
            for step in (1, 3, 5):
                runs[number].add_below(runs[(number + step) % len(runs)])

        def stop(runs: list[Cancellation], start: threading.Barrier) -> None:
            start.wait()
            runs[0].cancel(None, "enough")

        threads = [
            *(threading.Thread(target=link, args=(n, runs, start), daemon=True) for n in range(8)),
            threading.Thread(target=stop, args=(runs, start), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "two runs wait for each other's lock"

        assert [each.root_reason for each in runs] == ["enough"] * len(runs)


async def test_shielded_work_goes_on_for_the_others_when_one_wait_is_cancelled() -> None:
    work = asyncio.get_running_loop().create_future()
    gives_up, stays = (asyncio.create_task(shielded(work)) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.wait({gives_up})
    work.set_result("done")

    assert gives_up.cancelled()
    assert await stays == "done"


@pytest.mark.parametrize("fails_first", [False, True])
async def test_shielded_work_whose_only_wait_was_cancelled_fails_without_a_report(
    fails_first: bool,
) -> None:
    async def scene() -> None:
        work = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(shielded(work))
        await asyncio.sleep(0)
        if fails_first:
            work.set_exception(OSError("the disk is full"))
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        if not fails_first:
            work.set_exception(OSError("the disk is full"))
        await asyncio.sleep(0)

    assert await reported_by(scene) == []
