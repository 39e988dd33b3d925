"""Blocking work comes back to the task that awaits it, whatever became of it."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from agentnb.core.threads import in_daemon_thread

TOPIC: contextvars.ContextVar[str] = contextvars.ContextVar("topic", default="none")


async def test_result_comes_back_from_a_daemon_thread_of_its_own() -> None:
    def work() -> tuple[str, bool, bool]:
        me = threading.current_thread()
        return me.name, me.daemon, me is threading.main_thread()

    assert await in_daemon_thread(work, name="worker") == ("worker", True, False)


async def test_none_is_a_result() -> None:
    def work() -> None:
        return

    await in_daemon_thread(work)


async def test_loop_goes_on_while_the_thread_is_busy() -> None:
    may_end = threading.Event()
    waiting = asyncio.create_task(in_daemon_thread(lambda: may_end.wait(30)))
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

    assert await in_daemon_thread(work) == "whales"
    assert TOPIC.get() == "whales"


async def test_error_reaches_the_awaiting_task_as_it_is() -> None:
    wrong = LookupError("nothing there")

    def work() -> None:
        raise wrong

    with pytest.raises(LookupError) as caught:
        await in_daemon_thread(work)

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
        await in_daemon_thread(work)

    assert caught.value.__cause__ is raised


async def test_cancelled_task_leaves_the_thread_behind_and_what_it_returns_is_dropped() -> None:
    began, may_end, ended = (threading.Event() for _ in range(3))

    def work() -> str:
        began.set()
        may_end.wait(30)
        ended.set()
        return "too late"

    waiting = asyncio.create_task(in_daemon_thread(work))
    assert await in_daemon_thread(lambda: began.wait(30))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert not ended.is_set()
    may_end.set()
    assert await in_daemon_thread(lambda: ended.wait(30))


def test_thread_that_outlives_its_loop_ends_in_peace() -> None:
    began, may_end = threading.Event(), threading.Event()
    workers: list[threading.Thread] = []

    def work() -> None:
        workers.append(threading.current_thread())
        began.set()
        may_end.wait(30)

    async def leave_early() -> None:
        waiting = asyncio.create_task(in_daemon_thread(work))
        await in_daemon_thread(lambda: began.wait(30))
        waiting.cancel()

    asyncio.run(leave_early())
    may_end.set()
    workers[0].join(30)

    assert not workers[0].is_alive()
