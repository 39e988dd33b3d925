"""`DaskEngine` with workers in this process: whatever needs no other process, and no Dask."""

from __future__ import annotations

import asyncio
import os
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Reply, ScriptedProvider, Session, ToolUse
from agentnb.cluster import engine as engines
from agentnb.cluster import recipes, workers
from agentnb.cluster.engine import DaskEngine
from agentnb.cluster.remote import on_workers
from agentnb.cluster.workers import Workers
from agentnb.core._call import tool_call
from agentnb.core.errors import ClusterFailed, WorkerLost
from agentnb.core.events import AgentWaiting, ProviderFailover, ToolCallFinished
from agentnb.core.protocols import (
    ToolContext,
    supports_key_check,
    supports_media,
    supports_ready,
    supports_token_count,
    supports_tools,
)
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    MediaBlock,
    Stopped,
    StreamEvent,
    TextDelta,
    ToolOutput,
    assistant_message,
)
from agentnb.models import registry as made_here
from agentnb.providers import registry
from agentnb.run import Run
from agentnb.testing import equal_records
from tests.cluster.in_process import InProcessClient, in_process
from tests.files_of import png
from tests.recover_scene import killed, session_of
from tests.support import DEADLINE_S, reported_by
from tests.support import until as wait_for


@pytest.fixture
def client() -> Iterator[InProcessClient]:
    with in_process() as client:
        yield client


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Registers a provider that workers make; returns a model of it."""
    monkeypatch.setattr(registry, "_registered", {**registry._registered})

    def register(kind: Any, *arguments: Any) -> str:
        name = f"{kind.__name__.lower()}-{len(registry._registered)}"
        agentnb.register_provider(name, partial(kind, *arguments))
        return f"{name}/model"

    return register


class Echo:
    """Answers with one text; can do what it says."""

    name = "echo"

    def __init__(self, text: str = "echo", error: Exception | None = None) -> None:
        self._text, self._error = text, error

    def supports_media(self, model: str, media_type: str) -> bool:
        return media_type == "image/gif"

    def supports_tools(self, model: str) -> bool:
        return model != "toolless"

    def count_tokens(self, request: CompletionRequest) -> int:
        return 123

    async def ready(self) -> None:
        """Nothing to load."""

    async def check_key(self) -> None:
        """It needs none."""

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        if self._error is not None:
            raise self._error
        yield TextDelta(self._text)
        yield Stopped("end_turn", assistant_message(self._text))


class Hanging(Echo):
    """Never answers."""

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        yield TextDelta("wait")
        await asyncio.Event().wait()


def session(client: InProcessClient, **settings: Any) -> Session:
    engine = DaskEngine(client)
    return Session(**{"store": None, "config": False, "engine": engine} | settings)


def calls(*names: str) -> Reply:
    return Reply("", tool_uses=tuple(ToolUse(f"t{n}", name, {}) for n, name in enumerate(names)))


def finished(run: Run[Any]) -> list[ToolCallFinished]:
    return [e.event for e in run.events if isinstance(e.event, ToolCallFinished)]


def went_out(client: InProcessClient) -> int:
    return sum(name == "take" for _, name in client.asked)


def until(holds: Callable[[], object]) -> None:
    asyncio.run(wait_for(holds))


# -- what a run has on workers as here ------------------------------------------------------------


def picture() -> ToolOutput:
    """Draw."""
    return ToolOutput("a dot", (MediaBlock("image/png", b64encode(png()).decode(), "dot.png"),))


def number() -> int:
    """Say a number."""
    return 7


def slow(context: ToolContext) -> str:
    """Wait to be cancelled."""
    while not context.cancelled:
        threading.Event().wait(0.001)
    return "too late"


def exits() -> str:
    """End the process."""
    raise SystemExit(3)


def test_tools_pictures_limits_and_exits_are_told_as_in_process(client: InProcessClient) -> None:
    tools = [picture, number, agentnb.tool(slow, timeout_s=0.05), exits]
    names = "picture", "number", "slow", "exits"
    there = session(client, provider=ScriptedProvider([calls(*names), "done"]), tools=tools)
    here = session(
        client, provider=ScriptedProvider([calls(*names), "done"]), tools=tools, engine=None
    )

    runs = [each.spawn("go") for each in (here, there)]
    assert [run.result().final_response for run in runs] == ["done", "done"]
    ours, theirs = ({e.tool_use_id: e for e in finished(run)} for run in runs)
    assert {id: (e.result, e.is_error) for id, e in theirs.items()} == {
        id: (e.result, e.is_error) for id, e in ours.items()
    }
    assert "did not end within" in theirs["t2"].result
    assert "SystemExit" in theirs["t3"].result
    assert theirs["t0"].media == ours["t0"].media
    assert len(theirs["t0"].media) == 1
    assert went_out(client)


@dataclass
class Count:
    """An answer of a type that only this process knows."""

    number: int


def test_typed_answer_is_read_here(client: InProcessClient, made: Callable[..., str]) -> None:
    run = session(client, model=made(Echo, '{"number": 3}')).spawn("count", output=Count)
    assert run.result().data == Count(3)
    assert went_out(client)


def test_rows_of_a_map_call_tools_on_workers(client: InProcessClient) -> None:
    provider = ScriptedProvider([calls("number"), "seven"] * 3)
    table = session(client, provider=provider, tools=[number], max_concurrency=1).map(
        ["a", "b", "c"], "About {{text}}", tools=[number]
    )
    assert [row["status"] for row in table.result().to_records()] == ["completed"] * 3
    assert went_out(client) == 3


def test_chain_of_a_model_there_and_one_here_moves_on(
    client: InProcessClient, made: Callable[..., str]
) -> None:
    overloaded = agentnb.core.errors.Overloaded("too many", retryable=False)
    chain = (made(Echo, "x", overloaded), made(Echo, "second"))
    run = session(client, model=chain).spawn("go")
    assert run.result().final_response == "second"
    assert [e for e in run.events if isinstance(e.event, ProviderFailover)]


def test_what_a_model_can_do_is_said_here_and_what_it_loads_is_the_workers(
    client: InProcessClient, made: Callable[..., str]
) -> None:
    engine = DaskEngine(client)
    provider, _ = made_here.resolve(made(Echo))

    async def never(_: object) -> Any:
        raise AssertionError("nothing is asked")

    remote = on_workers(provider, engine._recipe_of_provider, never)
    assert remote is not provider
    assert remote.name == "echo"
    assert supports_media(remote, "m", "image/gif")
    assert not supports_media(remote, "m", "image/png")
    assert not supports_tools(remote, "toolless")
    assert supports_token_count(remote)
    assert not supports_ready(remote)
    assert not supports_key_check(remote)
    scripted = ScriptedProvider(["x"])
    assert on_workers(scripted, engine._recipe_of_provider, never) is scripted


def test_two_sessions_share_an_engine_and_two_engines_a_client(
    client: InProcessClient, made: Callable[..., str]
) -> None:
    model, engine = made(Echo), DaskEngine(client)
    sessions = [session(client, model=model, engine=engine) for _ in range(2)]
    sessions.append(session(client, model=model))
    runs = [each.spawn("go") for each in sessions for _ in range(5)]
    assert {run.result().final_response for run in runs} == {"echo"}
    assert {each.connection.attempts for each in engine._workers._there.values()} == {0}
    checks = [name for _, name in client.asked if name == "check"]
    assert len(checks) == 2 * 2  # of each engine, at each worker, once


def test_run_on_a_loop_of_its_own_is_answered(
    client: InProcessClient, made: Callable[..., str]
) -> None:
    engine = DaskEngine(client)
    provider, _ = made_here.resolve(made(Echo))

    async def ask() -> list[StreamEvent]:
        async def place(_: object) -> Any:
            return await engine._some_worker(float("inf"), lambda: None)

        remote = on_workers(provider, engine._recipe_of_provider, place)
        return [each async for each in remote.stream(CompletionRequest("m", "", ()))]

    for _ in range(2):
        assert TextDelta("echo") in asyncio.run(ask())


def test_tool_of_a_profile_that_cannot_be_sent_fails_its_agent_with_the_fix(
    client: InProcessClient,
) -> None:
    lock = threading.Lock()

    def locked() -> str:
        """Hold a lock."""
        with lock:
            return "held"

    async def run() -> Any:
        work: Any = type("Work", (), {"request": CompletionRequest("m", "", ()), "link": 0})()
        tool = agentnb.tool(locked)
        return await DaskEngine(client).run(
            work,
            provider=ScriptedProvider([]),
            tools={"locked": tool},
            services=None,  # type: ignore[arg-type]
        )

    outcome = asyncio.run(run())
    assert isinstance(outcome.error, ClusterFailed)
    assert "local_tools=['locked']" in str(outcome.error)
    assert not outcome.may_retry


def test_tool_that_refers_to_too_much_is_refused_with_the_fix(
    client: InProcessClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "MOST_BYTES", 1_000_000)
    table = bytes(2_000_000)

    def look() -> str:
        """Look at a table."""
        return str(len(table))

    with pytest.raises(
        ClusterFailed, match=r"'look' refers to 2 MB, and at most 1 MB .*local_tools="
    ):
        session(client, model="demo", tools=[look]).spawn("go").result()


# -- workers that come, pause and go --------------------------------------------------------------


def test_run_that_waits_for_a_worker_is_cancelled_at_once(made: Callable[..., str]) -> None:
    with in_process(workers=0) as client:
        run = session(client, model=made(Echo)).spawn("go")
        until(lambda: client.asked)
        run.cancel()
        tree = run.tree
        assert tree is not None
        assert tree.status is AgentStatus.CANCELLED


def test_run_without_a_worker_ends_with_what_to_do(
    made: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "WORKER_PATIENCE_S", 0)
    with in_process(workers=0) as client, pytest.raises(ClusterFailed, match="scale"):
        session(client, model=made(Echo)).spawn("go").result()


def test_worker_that_is_gone_is_lost_and_the_agent_goes_on_elsewhere(
    client: InProcessClient, made: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOOK_S", 0.01)
    run = session(client, model=made(Hanging)).spawn("go")
    until(lambda: any("take" in each for each in client.asked))
    (at,) = {address for address, name in client.asked if name == "take"}
    client.workers.pop(at)
    until(lambda: len({address for address, name in client.asked if name == "take"}) == 2)
    run.cancel()
    assert any(
        "no longer knows it" in str(e.event) or "no route" in str(e.event) for e in run.events
    )


# -- a tool that is stopped -----------------------------------------------------------------------


class Scene:
    """What a tool that blocks shares with its test."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.over = (threading.Event() for _ in range(3))


scenes: dict[str, Scene] = {}


@pytest.fixture
def scene() -> Iterator[Scene]:
    scenes["now"] = Scene()
    yield scenes["now"]
    scenes.pop("now").go_on.set()


def tidies(context: ToolContext) -> str:
    """Notice a cancel, and take a while to end."""
    scene = scenes["now"]
    scene.begun.set()
    while not context.cancelled:
        threading.Event().wait(0.001)
    threading.Event().wait(0.3)
    scene.over.set()
    return "tidy"


def deaf() -> str:
    """Notice nothing."""
    scene = scenes["now"]
    scene.begun.set()
    assert scene.go_on.wait(DEADLINE_S)
    return "at last"


def blocked(client: InProcessClient, tool: Callable[..., str], scene: Scene) -> Run[Any]:
    provider = ScriptedProvider([calls(tool.__name__), "done"])
    run = session(client, provider=provider, tools=[tool]).spawn("go")
    assert scene.begun.wait(DEADLINE_S)
    return run


def root_of(run: Run[Any]) -> str:
    assert run.tree is not None
    return run.tree.agent_id


def test_cancel_returns_when_a_tool_that_notices_it_has_ended(
    client: InProcessClient, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_call, "THREAD_PATIENCE_S", DEADLINE_S)
    run = blocked(client, tidies, scene)
    receipt = run.cancel()
    assert scene.over.is_set()
    assert receipt.still_running == ()


def test_receipt_names_the_agent_whose_tool_goes_on_until_it_has_ended(
    client: InProcessClient, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_call, "THREAD_PATIENCE_S", 0.02)
    run = blocked(client, deaf, scene)
    assert run.cancel().still_running == (root_of(run),)
    assert run.cancel().still_running == (root_of(run),)
    scene.go_on.set()
    until(lambda: run.cancel().still_running == ())


def test_tool_that_goes_on_when_its_worker_is_lost_counts_no_longer(
    client: InProcessClient, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_call, "THREAD_PATIENCE_S", 0.02)
    run = blocked(client, deaf, scene)
    assert run.cancel().still_running == (root_of(run),)
    client.workers.clear()
    until(lambda: run.cancel().still_running == ())


def test_client_that_is_closed_in_the_middle_of_a_run_ends_it(
    client: InProcessClient, made: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOOK_S", 0.01)
    run = session(client, model=made(Hanging)).spawn("go")
    until(lambda: any("entries" in each for each in client.asked))
    client.status = "closed"
    with pytest.raises((ClusterFailed, WorkerLost), match="scheduler"):
        run.result(DEADLINE_S)


async def test_paused_worker_keeps_its_connection_and_gets_no_new_attempts() -> None:
    client = InProcessClient(asyncio.get_running_loop(), 2)
    client.workers["tcp://w0"]["nthreads"] = 4
    there = Workers(client)
    await there._look()
    first = there.least_busy()
    assert first is not None
    for _ in range(3):  # three of four threads are less busy than none of one only if it is empty
        there.begin_attempt(first)
    busy, free = there._there["tcp://w0"].connection, there._there["tcp://w1"].connection
    assert first is busy
    assert there.least_busy() is free

    client.workers["tcp://w1"]["status"] = "paused"
    await there._look()
    assert there.least_busy() is busy
    assert not free.lost
    client.workers["tcp://w1"]["status"] = "running"
    await there._look()
    assert there.least_busy() is free  # the same connection

    client.workers.clear()
    await there._look()
    assert there.least_busy() is None
    assert "no longer knows it" in free.lost
    for _ in range(3):
        there.end_attempt(busy)


async def test_scheduler_that_is_gone_is_the_loss_of_all_workers() -> None:
    client = InProcessClient(asyncio.get_running_loop(), 2)
    there = Workers(client)
    await there._look()
    connections = [each.connection for each in there._there.values()]
    client.status = "closed"
    with pytest.raises(ClusterFailed, match="scheduler cannot be reached"):
        await there._look()
    assert all(each.lost for each in connections)
    assert not await there.check(connections[0], [])
    client.status = "running"
    await there._look()
    assert there.least_busy() not in (None, *connections)


async def test_error_is_not_reported_if_the_caller_who_asked_the_scheduler_is_gone() -> None:
    async def scene() -> None:
        answer = asyncio.get_running_loop().create_future()
        client = InProcessClient(asyncio.get_running_loop(), 1)
        vars(client)["identity"] = lambda **_: answer
        there = Workers(client)
        waiting = asyncio.create_task(there._look())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert there._looking is not None
        answer.set_exception(OSError("closed"))
        await asyncio.wait({there._looking})

    assert await reported_by(scene) == []


async def test_error_is_not_reported_if_the_caller_who_checked_a_worker_is_gone() -> None:
    async def scene() -> None:
        client = InProcessClient(asyncio.get_running_loop(), 1)
        there = Workers(client)
        await there._look()
        connection = there.least_busy()
        assert connection is not None
        answer = asyncio.get_running_loop().create_future()
        vars(client)["run"] = lambda *_, **__: answer
        client.status = "closed"
        waiting = asyncio.create_task(there._unfit(connection, None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        (checking,) = there._fit.values()
        answer.set_exception(OSError("no route"))
        await asyncio.wait({checking})
        assert "exception=ClusterFailed" in repr(checking)  # to look at it would count as retrieved

    assert await reported_by(scene) == []


async def test_process_that_was_forked_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Workers(InProcessClient(asyncio.get_running_loop(), 1))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ClusterFailed, match="forked"):
        await there.refresh()


async def test_asynchronous_client_is_refused_before_it_can_lock_up_a_notebook() -> None:
    client = InProcessClient(asyncio.get_running_loop(), 1)
    client.asynchronous = True  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="asynchronous=True"):
        DaskEngine(client)


def test_wait_for_a_worker_is_an_event_that_makes_no_other_record(
    client: InProcessClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOOK_S", 0)

    async def pause() -> str:
        """Pause all workers."""
        for about in client.workers.values():
            about["status"] = "paused"
        return "paused"

    def run(**settings: Any) -> Run[Any]:
        provider = ScriptedProvider([calls("pause"), calls("number"), "done"])
        return session(client, provider=provider, tools=[pause, number], **settings).spawn("go")

    def waits() -> list[str]:
        return [e.event.reason for e in there.events if isinstance(e.event, AgentWaiting)]

    there = run()
    until(waits)
    assert waits() == ["a worker of the cluster"]
    for about in client.workers.values():
        about["status"] = "running"
    there.result()
    here = run(engine=None)
    here.result()
    assert equal_records(there, here) == []


# -- recover --------------------------------------------------------------------------------------


def test_run_is_recovered_on_the_engine_of_the_session_that_recovers_it(
    client: InProcessClient, tmp_path: Path
) -> None:
    store = tmp_path / "runs.db"
    run_id = killed(store, "calls a tool")
    ordered: list[str] = []
    again, _ = session_of(store, "calls a tool", ordered, "repeat", engine=DaskEngine(client))

    run = again.recover(run_id, unknown="tell")
    assert "a chair is ordered" in run.result(DEADLINE_S).output
    assert went_out(client) == 1
