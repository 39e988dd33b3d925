"""Blocking work comes back to the task that awaits it, whatever became of it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Coroutine
from contextlib import closing
from typing import Any

import pytest

from agentnb.core import threads
from agentnb.core.threads import ThreadCall, run_in_thread
from tests.support import DEADLINE_S, run_python, until

TOPIC: contextvars.ContextVar[str] = contextvars.ContextVar("topic", default="none")


async def test_result_comes_back_from_a_daemon_thread_of_its_own() -> None:
    def work() -> tuple[str, bool, bool]:
        me = threading.current_thread()
        return me.name, me.daemon, me is threading.main_thread()

    assert await run_in_thread(work) == ("agentnb-worker", True, False)


async def test_coroutine_that_comes_after_its_caller_was_cancelled_is_closed() -> None:
    may_end, made = threading.Event(), asyncio.sleep(0)

    def work() -> Coroutine[Any, Any, None]:
        may_end.wait(DEADLINE_S)
        return made

    waiting = asyncio.create_task(run_in_thread(work))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    may_end.set()

    await until(lambda: inspect.getcoroutinestate(made) == inspect.CORO_CLOSED)


def test_coroutine_that_comes_to_a_loop_that_never_runs_again_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, told, made = threading.Event(), threading.Event(), asyncio.sleep(0)

    def work() -> Coroutine[Any, Any, None]:
        may_end.wait(DEADLINE_S)
        return made

    async def leave_early() -> None:
        call = ThreadCall(work)
        call.start()
        call.abandon()

    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(leave_early())
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda _: told.set())
        may_end.set()
        assert told.wait(DEADLINE_S)

    assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED


async def test_coroutine_of_a_call_that_is_abandoned_after_its_end_is_closed() -> None:
    made = asyncio.sleep(0)
    call = ThreadCall(lambda: made)
    call.start()
    await call.wait()
    call.abandon()

    assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED


async def test_none_is_a_result() -> None:
    def work() -> None:
        return

    await run_in_thread(work)


async def test_loop_goes_on_while_the_thread_is_busy() -> None:
    may_end = threading.Event()
    waiting = asyncio.create_task(run_in_thread(lambda: may_end.wait(30)))
    await asyncio.sleep(0)

    assert not waiting.done()
    may_end.set()

    assert await waiting


async def test_work_sees_the_context_of_its_caller_and_keeps_its_own_changes() -> None:
    TOPIC.set("whales")

    def work() -> str:
        seen = TOPIC.get()
        TOPIC.set("changed")
        return seen

    assert await run_in_thread(work) == "whales"
    assert TOPIC.get() == "whales"


async def test_error_reaches_the_awaiting_task_as_it_is() -> None:
    wrong = LookupError("nothing there")

    def work() -> None:
        raise wrong

    with pytest.raises(LookupError) as caught:
        await run_in_thread(work)

    assert caught.value is wrong


@pytest.mark.parametrize(
    "raised", [StopIteration("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
async def test_what_no_loop_can_carry_arrives_as_an_error_that_names_it(
    raised: BaseException,
) -> None:
    def work() -> None:
        raise raised

    with pytest.raises(RuntimeError, match=type(raised).__name__) as caught:
        await run_in_thread(work)

    assert caught.value.__cause__ is raised


async def test_cancelled_task_leaves_the_thread_behind_and_what_it_returns_is_dropped() -> None:
    began, may_end, ended = (threading.Event() for _ in range(3))

    def work() -> str:
        began.set()
        may_end.wait(30)
        ended.set()
        return "too late"

    waiting = asyncio.create_task(run_in_thread(work))
    assert await run_in_thread(lambda: began.wait(30))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert not ended.is_set()
    may_end.set()
    assert await run_in_thread(lambda: ended.wait(30))


def test_thread_that_outlives_its_loop_ends_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_S", 0.01)
    began, may_end = threading.Event(), threading.Event()
    workers: list[threading.Thread] = []

    def work() -> None:
        workers.append(threading.current_thread())
        began.set()
        may_end.wait(30)

    async def leave_early() -> None:
        waiting = asyncio.create_task(run_in_thread(work))
        await run_in_thread(lambda: began.wait(30))
        waiting.cancel()

    asyncio.run(leave_early())
    may_end.set()
    workers[0].join(30)

    assert not workers[0].is_alive()


# -- threads that are kept for a moment ------------------------------------------------------------


async def test_work_that_comes_one_after_the_other_shares_a_daemon_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle: list[threads._Worker] = []  # none that an earlier test left
    monkeypatch.setattr(threads, "_idle", idle)
    monkeypatch.setattr(threads, "_IDLE_S", DEADLINE_S)
    first = await run_in_thread(threading.current_thread)
    await until(lambda: idle)  # it says so after it has handed over

    assert await run_in_thread(threading.current_thread) is first
    assert first.daemon
    await until(lambda: idle)
    monkeypatch.undo()
    idle[0].orders.put(lambda: None)  # so that it looks at its time anew, and ends


async def test_work_at_the_same_time_has_a_thread_each() -> None:
    both = threading.Barrier(9)
    calls = [ThreadCall(lambda: both.wait(DEADLINE_S)) for _ in range(8)]
    for call in calls:
        call.start()
    both.wait(DEADLINE_S)
    for call in calls:
        await call.wait()

    assert {call.result() for call in calls} <= set(range(9))


async def test_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_S", 0.01)
    monkeypatch.setattr(threads, "_idle", [])

    thread = await run_in_thread(threading.current_thread)

    await asyncio.to_thread(thread.join, DEADLINE_S)
    assert not thread.is_alive()
    await until(lambda: threads._idle == [])  # nor does one that an earlier test left


def test_thread_that_blocks_holds_up_neither_the_loop_nor_the_exit() -> None:
    said = run_python(
        """
        import asyncio, threading
        from agentnb.core.threads import ThreadCall

        async def main():
            call = ThreadCall(threading.Event().wait)
            call.start()
            try:
                await asyncio.wait_for(call.wait(), 0.01)
            except TimeoutError:
                print("left", call.has_ended)

        asyncio.run(main())
        """
    )

    assert said == "left False\n"


def test_forked_process_has_threads_of_its_own() -> None:
    said = run_python(
        """
        import asyncio, os, warnings
        from agentnb.core import threads
        warnings.simplefilter("ignore", DeprecationWarning)

        async def work():
            call = threads.ThreadCall(os.getpid)
            call.start()
            await call.wait()
            return call.result()

        async def warm():
            await work()
            while not threads._idle:
                await asyncio.sleep(0)

        asyncio.run(warm())
        child = os.fork()
        if child == 0:
            os._exit(0 if asyncio.run(work()) == os.getpid() else 1)
        print(os.waitpid(child, 0)[1])
        """
    )

    assert said == "0\n"
