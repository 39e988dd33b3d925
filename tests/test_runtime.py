"""One thread and one loop; nothing of them is left at the end, with or without a fork."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from contextlib import suppress

import pytest

from agentnb.runtime import Runtime, get_runtime
from tests.notebook.forked import ForkServer
from tests.skips import needs_late_threads
from tests.support import DEADLINE_S, run_python


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make a loop in this process be given up."""
    monkeypatch.setattr("agentnb.runtime._EXIT_PATIENCE_S", DEADLINE_S)


def test_process_has_one_runtime_on_a_daemon_thread_of_its_own() -> None:
    runtime = get_runtime()

    assert get_runtime() is runtime
    assert runtime.is_current_thread is False
    assert runtime.call(lambda: runtime.is_current_thread)
    assert runtime.call(lambda: threading.current_thread().daemon)
    assert runtime.call(asyncio.get_running_loop) is runtime.loop


def test_call_on_the_runtime_thread_itself_does_not_wait_for_itself() -> None:
    runtime = get_runtime()

    assert runtime.call(lambda: runtime.call(lambda: "within")) == "within"


def test_what_a_call_raises_reaches_the_caller() -> None:
    def fail() -> None:
        raise LookupError("there")

    with pytest.raises(LookupError, match="there"):
        get_runtime().call(fail)


def test_close_ends_what_runs_then_closes_what_was_open_and_ends_the_thread() -> None:
    runtime = Runtime()
    order: list[str] = []
    began = threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("the work ended")

    async def broken() -> None:
        order.append("a closer raised")
        raise OSError("already gone")

    async def closer() -> None:
        order.append("the next one ran")

    runtime.at_close(broken)
    runtime.at_close(closer)
    runtime.submit(work())
    assert began.wait(DEADLINE_S)

    runtime.close()
    runtime.close()

    assert order == ["the work ended", "a closer raised", "the next one ran"]
    assert runtime.loop.is_closed()


def test_work_that_ends_after_the_runtime_has_given_up_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agentnb.runtime._EXIT_PATIENCE_S", 0.02)
    runtime = Runtime()
    may_end, has_ended, was_closed = (threading.Event() for _ in range(3))

    async def stubborn() -> str:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        task = asyncio.current_task()
        assert task is not None
        # One step later: all other callbacks of its end have been called then.
        task.add_done_callback(lambda _: runtime.loop.call_soon(has_ended.set))
        return "too late"

    async def closer() -> None:
        was_closed.set()

    runtime.at_close(closer)
    work = runtime.submit(stubborn())
    runtime.close()
    assert was_closed.wait(DEADLINE_S), "what is open is closed all the same"
    with pytest.raises(RuntimeError, match="no longer exists"):
        work.result(DEADLINE_S)
    may_end.set()
    assert has_ended.wait(DEADLINE_S)

    assert caplog.text == ""


@pytest.mark.parametrize("has_begun", [True, False])
def test_cancelled_future_cancels_its_work_and_wakes_whoever_waits(has_begun: bool) -> None:
    runtime = Runtime()
    began, may_go_on, was_cancelled = threading.Event(), threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    if not has_begun:
        runtime.loop.call_soon_threadsafe(may_go_on.wait)
    future = runtime.submit(work())
    if has_begun:
        assert began.wait(DEADLINE_S)
    assert future.cancel()
    may_go_on.set()

    assert concurrent.futures.wait([future], DEADLINE_S).done == {future}
    runtime.close()
    assert (began.is_set(), was_cancelled.is_set()) == (has_begun, has_begun)


def test_close_before_the_thread_has_begun_still_awaits_the_closers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_begin = threading.Event()
    begin = asyncio.set_event_loop

    def late(loop: asyncio.AbstractEventLoop) -> None:
        may_begin.wait(DEADLINE_S)
        begin(loop)

    monkeypatch.setattr(asyncio, "set_event_loop", late)
    runtime = Runtime()
    awaited: list[str] = []

    async def closer() -> None:
        awaited.append("the closer")

    runtime.at_close(closer)
    closing = threading.Thread(target=runtime.close)
    closing.start()
    while runtime.is_alive:
        pass
    may_begin.set()
    closing.join(DEADLINE_S)

    assert awaited == ["the closer"]
    assert runtime.loop.is_closed()


def test_process_with_an_open_run_exits_promptly_and_in_silence(fork_server: ForkServer) -> None:
    printed = fork_server.printed_by(
        """
        from agentnb import Reply, ScriptedProvider, Session
        from tests.support import Hold

        hold = Hold()
        run = Session(provider=ScriptedProvider([Reply("half of it", pause=hold)])).spawn("x")
        hold.wait()
        print(run)
        """
    )

    assert printed == "Run('x', running)\n"


def test_process_with_a_run_that_does_not_stop_exits_in_silence_all_the_same(
    fork_server: ForkServer,
) -> None:
    printed = fork_server.printed_by(
        """
        import asyncio, threading
        from agentnb import Reply, ScriptedProvider, Session

        streams = threading.Event()

        async def stubborn():
            while True:
                streams.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass

        provider = ScriptedProvider([Reply("half of it", pause=stubborn)])
        run = Session(provider=provider).spawn("x")
        streams.wait()
        print(run)
        """
    )

    assert printed == "Run('x', running)\n"


def test_process_whose_tasks_are_cancelled_before_they_begin_exits_in_silence(
    fork_server: ForkServer,
) -> None:
    printed = fork_server.printed_by(
        """
        import asyncio, threading
        import anyio
        from agentnb.runtime import get_runtime

        began = threading.Event()

        async def host():
            async with anyio.create_task_group() as children:
                while True:
                    children.start_soon(child)
                    began.set()
                    await asyncio.sleep(0)

        async def child():
            pass

        get_runtime().submit(host())
        began.wait()
        print("one child, at every moment, has not begun")
        """
    )

    assert printed == "one child, at every moment, has not begun\n"


def test_process_whose_tasks_start_others_to_the_end_exits_in_silence(
    fork_server: ForkServer,
) -> None:
    printed = fork_server.printed_by(
        """
        import asyncio, threading
        from agentnb.runtime import get_runtime

        began = threading.Event()
        children = []

        async def host():
            try:
                while True:
                    children.append(asyncio.create_task(asyncio.sleep(3600)))
                    began.set()
                    await asyncio.sleep(0)
            finally:
                children.append(asyncio.create_task(asyncio.sleep(3600)))

        get_runtime().submit(host())
        began.wait()
        print("one child, at every moment, is new")
        """
    )

    assert printed == "one child, at every moment, is new\n"


def test_slow_function_before_the_cancel_takes_no_time_from_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = Runtime()
    began = threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)

    def slow() -> None:
        now = runtime.loop.time
        monkeypatch.setattr(runtime.loop, "time", lambda: now() + 60)

    runtime.submit(work())
    assert began.wait(DEADLINE_S)
    runtime.close(slow)

    assert runtime.loop.is_closed()


def test_exit_functions_are_called_once_the_blocked_loop_is_given_up(
    fork_server: ForkServer,
) -> None:
    printed = fork_server.printed_by(
        """
        import threading
        from agentnb import runtime

        def broken():
            raise OSError

        runtime._EXIT_PATIENCE_S = 0.1
        runtime.at_exit(lambda: print("after"))
        runtime.before_exit(broken)
        runtime.before_exit(lambda: print("before"))
        runtime.get_runtime().call_soon(threading.Event().wait)
        """
    )

    assert printed == "before\nafter\n"


def test_interrupt_at_exit_ends_a_wait_and_skips_nothing(fork_server: ForkServer) -> None:
    printed = fork_server.printed_by(
        """
        import signal, threading
        from agentnb import runtime

        def interrupted(*_):
            signal.raise_signal(signal.SIGINT)
            print("not reached")

        signal.signal(signal.SIGINT, signal.default_int_handler)
        runtime.get_runtime().call_soon(threading.Event().wait)
        runtime._WorkFuture.result = interrupted  # the wait for the loop
        runtime.before_exit(interrupted)
        runtime.at_exit(interrupted)
        runtime.at_exit(lambda: print("last"))
        """
    )

    assert printed == "last\n"


def test_process_that_exits_closes_the_open_run_and_tells_its_events(
    fork_server: ForkServer,
) -> None:
    # In an interpreter of its own: whose exit function was registered first is the point.
    printed = run_python(
        """
        import atexit

        @atexit.register  # called after agentnb's own, which is registered later
        def told():
            print([e.event.kind for e in run.events if e.event.kind != 'budget_update'][-2:])

        from agentnb import Reply, ScriptedProvider, Session, runtime
        from tests.support import DEADLINE_S, Hold

        runtime._EXIT_PATIENCE_S = DEADLINE_S
        hold = Hold()
        run = Session(provider=ScriptedProvider([Reply("half of it", pause=hold)])).spawn("x")
        hold.wait()
        """
    )

    assert printed == "['agent_cancelled', 'run_finished']\n"


def test_fork_leaves_a_working_runtime_in_the_child_and_the_run_in_the_parent(
    fork_server: ForkServer,
) -> None:
    printed = fork_server.printed_by(
        """
        import os, warnings
        from agentnb import Reply, ScriptedProvider, Session
        from tests.support import Hold

        hold = Hold()
        provider = ScriptedProvider([Reply("half of it", pause=hold), "in the child"])
        session = Session(provider=provider, max_concurrency=1)
        run = session.spawn("x")
        hold.wait()
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
        pid = os.fork()
        if pid == 0:
            print(session.run_sync("y").output, flush=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        hold.release()
        print(run.result(30).output)
        """
    )

    assert printed == "in the child\nhalf of it\n"


def test_system_exit_on_the_loop_does_not_take_the_other_runs_with_it(
    fork_server: ForkServer,
) -> None:
    said = fork_server.printed_by(
        """
        import asyncio
        from agentnb import ScriptedProvider, Session
        from agentnb.runtime import get_runtime

        def leave():
            raise SystemExit(3)

        get_runtime().loop.call_soon_threadsafe(leave)
        print(Session(provider=ScriptedProvider(["still here"])).run_sync("hello").output)
        """
    )

    assert said.strip() == "still here"


def test_run_of_the_parent_process_says_in_a_forked_one_that_it_is_not_there(
    fork_server: ForkServer,
) -> None:
    said = fork_server.printed_by(
        """
        import asyncio, os, threading, warnings
        from agentnb import Reply, ScriptedProvider, Session

        streams = threading.Event()

        async def held():
            streams.set()
            await asyncio.Event().wait()

        session = Session(provider=ScriptedProvider([Reply("a", pause=held)]))
        run = session.spawn("hello")
        streams.wait(30)
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
        if os.fork() == 0:
            async def watch():
                async for entry in run.stream():
                    print(entry.event.kind, flush=True)

            session.close()
            for order in (run.result, run.cancel, lambda: asyncio.run(watch())):
                try:
                    order()
                except RuntimeError as error:
                    print(error, flush=True)
            os._exit(0)
        os.wait()
        """
    )

    assert said.count("This run's event loop no longer exists") == 3
    assert "agent_text_delta\n" in said, "what was there before the fork can be read"


def test_name_look_up_that_never_ends_does_not_hold_up_the_process(
    fork_server: ForkServer,
) -> None:
    printed = fork_server.printed_by(
        """
        import asyncio, socket, threading
        from agentnb.runtime import get_runtime

        asked = threading.Event()

        def look_up(*_):
            asked.set()
            threading.Event().wait()

        socket.getaddrinfo = look_up
        get_runtime().submit(asyncio.open_connection("nobody.invalid", 80))
        asked.wait()
        print("asked")
        """
    )

    assert printed == "asked\n"


@needs_late_threads
def test_thread_that_outlives_the_main_thread_can_still_look_up_names(
    fork_server: ForkServer,
) -> None:
    printed = fork_server.printed_by(
        """
        import concurrent.futures.thread, threading, time
        from agentnb.runtime import get_runtime

        def look_up():
            while not concurrent.futures.thread._shutdown:  # set when the main thread has ended
                time.sleep(0.001)
            loop = get_runtime().loop
            address = ("127.0.0.1", 80)
            print(get_runtime().submit(loop.getaddrinfo(*address, proto=6)).result()[0][-1])
            print(get_runtime().submit(loop.getnameinfo(address, 3)).result())

        threading.Thread(target=look_up).start()
        """
    )

    assert printed == "('127.0.0.1', 80)\n('127.0.0.1', '80')\n"
