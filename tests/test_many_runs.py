"""A process holds no more after hundreds of runs than after the first.

In processes of their own, since the whole process is measured.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.notebook.forked import SDKS, ForkServer
from tests.soak.runs import faults_of, measured_in_a_fresh_process

# Warnings may be of a slow machine (asyncio) or a person's login (the SDK); a leak is an error.
_QUIET = "import logging; logging.disable(logging.WARNING)"


Told = Callable[[str], Any]


@pytest.fixture
def told(fork_server: ForkServer) -> Told:
    """Gives the JSON that a process prints. It runs as a user's process, so a leak is real."""
    fork_server.preload(*SDKS)

    def json_of(code: str) -> Any:
        said = fork_server.printed_by(f"{_QUIET}\n{textwrap.dedent(code)}", debug=False)
        return json.loads(said)

    return json_of


def test_hundreds_of_runs_of_every_fate_leave_nothing_behind() -> None:
    """Threads, files, tasks, timers, objects and memory after 300 runs are those after 100."""
    measures = measured_in_a_fresh_process(100, 250, 255, 300)

    assert measures[-1]["runs"] >= 300
    assert measures[0]["census"]["tasks"] == measures[0]["census"]["timers"] == 0
    assert faults_of(measures) == []


def test_fifty_trees_at_once_share_one_gate_and_leave_nothing_behind(told: Told) -> None:
    """Some are cancelled in mid-stream, from threads; all end, and none leaves anything behind."""
    seen = told(
        """
        import json, threading
        from collections import Counter
        from dataclasses import asdict

        from agentnb import AgentnbError, ScriptedProvider, Session
        from agentnb.core.types import AgentStatus
        from agentnb.providers.scripted import Reply
        from agentnb.runtime import get_runtime
        from tests.census import census, settled
        from tests.support import Hold, check_record, spawn, task_of

        open_calls, most, full = 0, 0, threading.Event()
        hold = Hold()

        class Counting(ScriptedProvider):
            async def stream(self, request):
                global open_calls, most
                open_calls += 1
                most = max(most, open_calls)
                try:
                    async for event in super().stream(request):
                        yield event
                finally:
                    open_calls -= 1

        async def held():
            if open_calls == 32:
                full.set()
            await hold()

        def answer(request):
            task = task_of(request)
            if len(request.messages) > 1:
                return "All of it."
            if task == "root":
                return spawn("left", "right")
            if len(task) < 12:
                return spawn(task + " left", task + " right", mode="sequential")
            return Reply("Words, and more words than one piece holds.", pause=held)

        provider = Counting(answer)
        runtime = get_runtime()

        def fifty():
            global hold
            session = Session(provider=provider, max_concurrency=32)
            hold = Hold()
            full.clear()
            runs = [session.spawn(f"tree {n}", budget=200_000) for n in range(50)]
            assert full.wait(30)
            # The first ones: of a later run the root may still wait at the gate.
            stopped = runs[:10]
            threads = [
                threading.Thread(target=run.cancel, args=(None if n % 2 else "1",))
                for n, run in enumerate(stopped)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            hold.release()
            ends = Counter()
            for run in runs:
                try:
                    run.result()
                except AgentnbError:
                    pass
                check_record(run.events)
                ends[run.status] += 1
            assert open_calls == 0
            provider.requests.clear()
            return ends

        fifty()
        settled(runtime)
        before = asdict(census(runtime))
        ends = fifty()
        settled(runtime)
        print(json.dumps([ends, most, before, asdict(census(runtime))]))
        """
    )
    ends, most, before, after = seen

    assert ends == {"completed": 45, "cancelled": 5}
    assert most == 32
    assert before["tasks"] == before["timers"] == 0
    assert after == before


def test_many_runs_over_http_give_their_connections_and_files_back(told: Told) -> None:
    """Thirty in sequence, then fifty at once with some cut off, by the real SDK."""
    seen = told(
        """
        import json, os, threading
        from dataclasses import asdict

        os.environ["ANTHROPIC_API_KEY"] = "a-key"
        from agentnb import AgentnbError, Session
        from agentnb.core._call import services
        from agentnb.runtime import get_runtime
        from tests.census import census, settled
        from tests.loopback import LoopbackServer, Reply
        from tests.support import check_record, spawn

        services._FIRST_DELAY_S = 0.0
        runtime = get_runtime()
        settled(runtime)
        at_first = census(runtime)

        def answer(body):
            asked = body["messages"][0]["content"]
            asked = asked if isinstance(asked, str) else asked[0]["text"]
            if asked.startswith("tree") and len(body["messages"]) == 1:
                return spawn("a", "is cut" if asked == "tree 7" else "is refused", "b")
            if asked == "is refused":
                return Reply(status=400, message="no")
            if asked == "is cut":
                return Reply(events=[("ping", {"type": "ping"})])
            return Reply(text="Words, and more words.", hold=hold)

        with LoopbackServer(answer) as server:
            os.environ["ANTHROPIC_BASE_URL"] = server.url
            def ended(run):
                try:
                    run.result()
                except AgentnbError:
                    pass
                check_record(run.events)

            def counted():
                settled(runtime)
                # The client has hung up; the server may hear of it a little later.
                server._wait(lambda: len(server._open) <= 32, "at most 32 connections")
                return asdict(census(runtime))

            def fifty_at_once():
                session = Session(model="anthropic/m", max_concurrency=32)
                runs = [session.spawn(f"tree {n}") for n in range(50)]
                server.wait_streaming(32)
                for run in runs[::5]:
                    run.cancel()
                hold.set()
                for run in runs:
                    ended(run)

            hold = threading.Event()
            fifty_at_once()
            before = counted()
            session = Session(model="anthropic/m")
            for n in range(30):
                ended(session.spawn("alone"))
            del session
            hold = threading.Event()
            fifty_at_once()
            after = counted()
            runtime.close()
            server.wait_disconnected()
            left = server.streaming
        files = len(os.listdir("/proc/self/fd")) if at_first.files else None
        print(json.dumps([before, after, left, at_first.files, files]))
        """
    )
    before, after, left, files_before, files_after = seen

    assert after["tasks"] == 0
    assert after["timers"] <= 1, "the pool's own, for the connections that nobody uses any more"
    assert after["objects"] == before["objects"]
    assert after["threads"] <= before["threads"] + 1, "the server has one more that waited"
    assert left == 0
    # Without those of the runtime's own loop.
    assert files_after is None or files_after <= files_before


def test_calls_that_the_budget_halts_leave_nothing_in_the_http_client(told: Told) -> None:
    left, statuses = told(
        """
        import gc, json, os

        os.environ["ANTHROPIC_API_KEY"] = "a-key"
        from agentnb import Session
        from agentnb.runtime import get_runtime
        from tests.census import settled
        from tests.loopback import LoopbackServer, Reply

        long = Reply(text="Words, and more words. " * 4000, chunk=400)
        with LoopbackServer({"": long}) as server:
            os.environ["ANTHROPIC_BASE_URL"] = server.url
            session = Session(model="anthropic/m", max_output_tokens=100_000)
            runs = [session.spawn("t", budget=20_000) for _ in range(5)]
            statuses = sorted({run.result().status for run in runs})
            settled(get_runtime())
            left = sum(type(o).__name__ == "AsyncPoolRequest" for o in gc.get_objects())
        print(json.dumps([left, statuses]))
        """
    )

    assert statuses == ["exhausted"]
    assert left == 0


_BY_BLOCK = 'provider=by_agent({"root": [spawn("A", "B"), "together"]})'
_BY_TOOLS = """delegation="tools", provider=by_agent({"root": [
    Reply(tool_uses=[ToolUse(task, "spawn", {"task": task}) for task in "AB"]),
    Reply(tool_uses=[ToolUse("C", "spawn_await", {"job_ids": "*"})]),
    "together",
]})"""


@pytest.mark.parametrize("by", [_BY_BLOCK, _BY_TOOLS], ids=["block", "tools"])
def test_finished_run_goes_away_without_the_help_of_the_cyclic_collector(
    by: str, told: Told
) -> None:
    left = told(
        """
        import gc, json, weakref

        from agentnb import Reply, Session, ToolUse
        from agentnb.runtime import get_runtime
        from tests.support import by_agent, spawn

        Session(provider=by_agent({"root": "hello"})).run_sync("warm up")
        gc.collect()
        gc.disable()
        session = Session(SETTINGS)
        run = session.spawn("the task")
        assert len(run.result().agent_tree.children) == 2
        gone = [weakref.ref(part) for part in (run, run._request, run._bus, run._request.meter)]
        del run, session
        for _ in range(3):
            get_runtime().call(lambda: None)  # what the loop still held, it has let go of
        print(json.dumps([type(part()).__name__ for part in gone if part() is not None]))
        """.replace("SETTINGS", by.replace("\n", ""))
    )

    assert left == []
