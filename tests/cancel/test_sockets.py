"""A cancel over real sockets: the server sees exactly the cancelled agents hang up."""

from __future__ import annotations

import asyncio
import html
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agentnb.core.errors import RunCancelled
from agentnb.core.events import AgentCompleted, AgentTextDelta, AgentWaiting, ModelCallStarted
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.session import Session
from tests.cancel.phases import is_below
from tests.faults.wire import WIRES, ApiProvider, Wire
from tests.loopback import LoopbackServer, Received, Reply, system_of
from tests.support import DEADLINE_S, check_record, events_of, path_of, spawn


@pytest.fixture
def provider(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiProvider]:
    for name, value in wire.variables.items():
        monkeypatch.setenv(name, value)
    provider = wire.provider()
    yield provider
    get_runtime().submit(provider.aclose()).result(DEADLINE_S)


def asked_by(body: dict[str, Any]) -> str:
    """The task of the agent that asks, or `root`."""
    found = re.search(r"<task>\n(.*)\n</task>\Z", system_of(body), re.DOTALL)
    return html.unescape(found[1]) if found else "root"


class Script:
    """root over P (over L and M) and S; L stands in its phase, M and S are held in their text."""

    def __init__(self, phase: str) -> None:
        self.stands, self.others = threading.Event(), threading.Event()
        held = Reply(text="This far I came and no further.", hold=self.stands)
        self._standing = {
            "silence": Reply(events=[self.stands]),
            "text": held,
            "retry": Reply(status=503, headers={"retry-after": "50"}),
        }[phase]

    def __call__(self, body: dict[str, Any]) -> Reply:
        task = asked_by(body)
        if "<sub_agent_results>" in str(body["messages"][-1]):
            return Reply(text=f"{task}: all together")
        return {
            "root": Reply(text=spawn("P", "S")),
            "P": Reply(text=spawn("L", "M")),
            "L": self._standing,
        }.get(task, Reply(text=f"{task} said it all, to the end.", hold=self.others))


async def until(run: Run, kind: type[Any], path: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        async for entry in run.stream():
            if events_of([entry], kind, path):
                return
    raise AssertionError(f"no {kind.__name__} of {path}: {run.notes}")


TASKS = {"root": "root", "1": "P", "1.1": "L", "1.2": "M", "2": "S"}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("target", ["1.1", "1", "root"])
@pytest.mark.parametrize("phase", ["silence", "text", "retry"])
def test_cancel_hangs_up_on_the_branch_and_lets_the_others_finish(
    phase: str, target: str, wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(phase)
    with LoopbackServer(script) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)
        run = Session(f"{provider.name}/m", provider=provider).spawn("the task")
        stands = {"silence": ModelCallStarted, "text": AgentTextDelta, "retry": AgentWaiting}
        asyncio.run(until(run, stands[phase], "1.1"))
        for path in ("1.2", "2"):
            asyncio.run(until(run, AgentTextDelta, path))
        server.wait_requests(5)
        streams = {"S", "M"} | ({"L"} if phase != "retry" else set())
        server.wait_streaming(len(streams))

        receipt = run.cancel(target)
        assert receipt.still_running == ()
        stopped = {TASKS[path] for path in TASKS if is_below(path, target)}
        server.wait_closed(len(stopped & streams))
        script.others.set()
        try:
            run.result(DEADLINE_S)
        except RunCancelled:
            assert target == "root"

        hung_up: list[Received] = server.closed
        assert sorted(asked_by(r.body) for r in hung_up) == sorted(stopped & streams)
        assert sorted(TASKS[path_of(agent_id)] for agent_id in receipt.agents) == sorted(stopped)
        finished = {TASKS[path_of(e.agent_id)] for e in events_of(run.events, AgentCompleted)}
        assert finished == set(TASKS.values()) - stopped
        calls = [asked_by(request.body) for request in server.requests]
        assert sorted(calls[:5]) == sorted(TASKS.values())
        assert set(calls[5:]) == {"root", "P"} - stopped, "nobody who was stopped asked again"
        check_record(run.events)
        get_runtime().submit(provider.aclose()).result(DEADLINE_S)
        server.wait_disconnected()
