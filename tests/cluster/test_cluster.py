"""Runs on a cluster of processes: what goes out, what stays, and what happens when one dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import agentnb
from agentnb import Reply, ScriptedProvider, Session, ToolUse
from agentnb.cluster import connection, host, workers
from agentnb.cluster.engine import DaskEngine
from agentnb.cluster.wire import MOST_UNREAD, Versions
from agentnb.core.budget import BYTES_PER_TOKEN
from agentnb.core.errors import ClusterFailed
from agentnb.core.events import (
    AgentFailed,
    AgentTextDelta,
    AgentWaiting,
    ModelCallStarted,
    ToolCallFinished,
    ToolCallReported,
)
from agentnb.core.pauses import PAUSED
from agentnb.core.types import AgentStatus
from agentnb.providers import registry
from agentnb.run import Run
from tests.cluster import natives
from tests.cluster.natives import Counter, Drip, Keyless, SlowOnce, notes
from tests.cluster.on_cluster import a_cluster
from tests.support import DEADLINE_S

WORKERS = 4


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with a_cluster(WORKERS) as client:
        yield client


@pytest.fixture
def engine(client: Client) -> DaskEngine:
    return DaskEngine(client)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Registers a provider that workers make; returns a model of it."""
    monkeypatch.setattr(registry, "_registered", {**registry._registered})

    def register(kind: type, *arguments: Any, **named: Any) -> str:
        name = f"{kind.__name__.lower()}-{len(registry._registered)}"
        agentnb.register_provider(name, partial(kind, *arguments, **named))
        return f"{name}/model"

    return register


def session(**settings: Any) -> Session:
    return Session(store=None, config=False, **settings)


def calls(name: str, *inputs: dict[str, Any]) -> Reply:
    return Reply("", tool_uses=tuple(ToolUse(f"t{n}", name, each) for n, each in enumerate(inputs)))


def results(run: Run[Any]) -> list[str]:
    return [e.event.result for e in run.events if isinstance(e.event, ToolCallFinished)]


def pieces(run: Run[Any]) -> list[str]:
    return [e.event.text for e in run.events if isinstance(e.event, AgentTextDelta)]


def reasons(run: Run[Any]) -> list[str]:
    return [e.event.reason for e in run.events if isinstance(e.event, AgentWaiting)]


def wait_until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.01)


def pids(client: Client) -> dict[str, int]:
    found: dict[str, int] = client.run(os.getpid)
    return found


# -- what goes out, and what stays ----------------------------------------------------------------


def test_blocking_tools_run_on_workers_and_all_else_stays(
    client: Client, engine: DaskEngine
) -> None:
    provider = ScriptedProvider([calls("where", {}), calls("where_async", {}), "done"])
    run = session(
        provider=provider, tools=[natives.where, natives.where_async], engine=engine
    ).spawn("go")

    assert run.result().final_response == "done"
    on_worker, here = results(run)
    assert int(on_worker) in pids(client).values()
    assert int(here) == os.getpid()
    assert len(provider.requests) == 3  # a provider object stays, and notes its requests
    reports = [e.event.text for e in run.events if isinstance(e.event, ToolCallReported)]
    assert reports == ["on its way"]


def test_tool_that_is_named_stays_and_may_use_what_the_run_shares(client: Client) -> None:
    script: list[str | Reply] = [calls("shares", {}), "done"]
    goes = session(
        provider=ScriptedProvider(script), tools=[natives.shares], engine=DaskEngine(client)
    ).spawn("go")
    stays = session(
        provider=ScriptedProvider(script),
        tools=[natives.shares],
        engine=DaskEngine(client, local_tools=["shares"]),
    ).spawn("go")

    goes.result(), stays.result()
    (refused,), (shared,) = results(goes), results(stays)
    assert "context.workspace" in refused
    assert "local_tools=" in refused
    assert shared == "0"


def test_wrong_arguments_never_leave_this_process(engine: DaskEngine) -> None:
    provider = ScriptedProvider([calls("log", {"flie": "x"}), "done"])
    run = session(provider=provider, tools=[natives.log], engine=engine).spawn("go")

    run.result()
    (complaint,) = results(run)
    assert "`file` is missing" in complaint


def test_approval_is_asked_for_here_and_the_tool_then_runs_there(engine: DaskEngine) -> None:
    asked: list[int] = []

    def approve(_: Any) -> str:
        asked.append(os.getpid())
        return "approve" if len(asked) == 1 else "deny"

    gated = agentnb.tool(natives.where, approval=approve)
    script: list[str | Reply] = [calls("where", {}), calls("where", {}), "done"]
    run = session(provider=ScriptedProvider(script), tools=[gated], engine=engine).spawn("go")

    run.result()
    ran, refused = results(run)
    assert asked == [os.getpid()] * 2
    assert int(ran) != os.getpid()
    assert "was not run" in refused


def test_paused_run_sends_nothing_out(
    engine: DaskEngine, made: Callable[..., str], tmp_path: Path
) -> None:
    file, go = tmp_path / "notes", tmp_path / "go"
    own = session(model=made(SlowOnce, str(file), str(go)), engine=engine, max_concurrency=1)
    run = own.spawn_all(["t0", "t1"], synthesis=False)
    wait_until(lambda: len(notes(file)) == 1)
    run.pause()
    go.touch()
    wait_until(lambda: PAUSED in reasons(run))
    assert len(notes(file)) == 1
    run.resume()

    assert run.result().status is AgentStatus.COMPLETED
    assert len(notes(file)) == 2


def test_registered_provider_answers_on_the_workers(
    engine: DaskEngine, made: Callable[..., str]
) -> None:
    run = session(model=made(Counter, 3), engine=engine).spawn("count")

    assert run.result().final_response == "0 1 2"


def test_demo_tree_and_map_run_on_the_workers(engine: DaskEngine) -> None:
    here = session(model="demo").spawn("Compare three things")
    there = session(model="demo", engine=engine).spawn("Compare three things")
    assert there.result().final_response == here.result().final_response

    table = session(model="demo", engine=engine).map(["a", "b", "c"], "About {{text}}")
    assert [row["status"] for row in table.result().to_records()] == ["completed"] * 3


def test_equal_calls_each_run(engine: DaskEngine, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    script: list[str | Reply] = [calls("log", *[{"file": str(file)}] * 5), "done"]
    run = session(provider=ScriptedProvider(script), tools=[natives.log], engine=engine).spawn("go")

    run.result()
    assert [line for _, line in notes(file)] == ["line"] * 5


def test_attempts_are_spread_over_the_workers(
    client: Client, engine: DaskEngine, made: Callable[..., str], tmp_path: Path
) -> None:
    file, go = tmp_path / "notes", tmp_path / "go"
    tasks = [f"task {n}" for n in range(2 * WORKERS)]
    run = session(model=made(SlowOnce, str(file), str(go)), engine=engine).spawn_all(
        tasks, synthesis=False
    )

    wait_until(lambda: len(notes(file)) == len(tasks))
    go.touch()
    run.result()
    workers = [pid for pid, _ in notes(file)]
    assert sorted(map(workers.count, set(workers))) == [2] * WORKERS


# -- stop -----------------------------------------------------------------------------------------


def test_cancel_of_200_attempts_is_one_message_a_worker_and_closes_every_stream(
    engine: DaskEngine,
    made: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "notes"

    def said() -> list[str]:
        return [line for _, line in notes(file)]

    run = session(
        model=made(Drip, str(file), pace_s=0.2), engine=engine, max_concurrency=200
    ).spawn_all([f"task {n}" for n in range(200)], synthesis=False)
    wait_until(lambda: said().count("begin") == 200)
    sent: list[str] = []
    reach = connection.Connection._reach

    async def counting(self: Any, function: Any, *arguments: Any) -> Any:
        if function is host.take:
            sent.append(self.worker)
        return await reach(self, function, *arguments)

    monkeypatch.setattr(connection.Connection, "_reach", counting)
    run.cancel()

    tree = run.tree
    assert tree is not None
    assert {str(node.status) for node in tree.walk()} == {"cancelled"}
    wait_until(lambda: said().count("closed") == 200)
    assert len(set(sent)) == WORKERS
    assert len(sent) < 100  # and not 200: how many gather depends on the machine
    last = said()
    assert "word" not in last[last.index("closed") :] or last[-1] == "closed"


def test_cancelled_tool_sees_it_on_its_worker(engine: DaskEngine, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    provider = ScriptedProvider([calls("spin", {"file": str(file)}), "done"])
    run = session(provider=provider, tools=[natives.spin], engine=engine).spawn("go")

    wait_until(lambda: notes(file))
    run.cancel()
    wait_until(lambda: len(notes(file)) == 2)
    assert notes(file)[1][1] == "cancelled"


# -- budget ---------------------------------------------------------------------------------------


def test_worker_reads_at_most_a_slice_ahead_of_the_budget(
    engine: DaskEngine, made: Callable[..., str], tmp_path: Path
) -> None:
    file, word = tmp_path / "notes", "word" * 8
    run = session(
        model=made(Drip, str(file), word, pace_s=0),
        engine=engine,
        budget=6_000,
        delegation="tools",
    ).spawn("go")

    assert run.result().status is AgentStatus.EXHAUSTED
    wait_until(lambda: [line for _, line in notes(file)].count("closed") >= 1)
    said = [line for _, line in notes(file)].count("word") * len(word)
    metered = sum(len(e.event.text) for e in run.events if isinstance(e.event, AgentTextDelta))
    assert 0 <= said - metered <= MOST_UNREAD + len(word)
    assert metered < 6_000 * BYTES_PER_TOKEN


# -- a worker that dies ---------------------------------------------------------------------------


def test_killed_worker_costs_one_attempt_of_each_agent_on_it(
    made: Callable[..., str], tmp_path: Path
) -> None:
    file, go = tmp_path / "notes", tmp_path / "go"
    tasks = [f"t{n}" for n in range(6)]
    with a_cluster(2) as client:
        run = session(
            model=made(SlowOnce, str(file), str(go)), engine=DaskEngine(client)
        ).spawn_all(tasks, synthesis=False)
        wait_until(lambda: len(pieces(run)) == len(tasks))
        first = notes(file)
        victim = first[0][0]
        hit = sorted(line for pid, line in first if pid == victim)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(notes(file)) == len(tasks) + len(hit))
        go.touch()
        assert run.result().status is AgentStatus.COMPLETED

    again = sorted(line for _, line in notes(file)[len(tasks) :])
    assert again == hit  # those, once more; nothing else
    failed = [e.event for e in run.events if isinstance(e.event, AgentFailed)]
    assert len(failed) == len(hit)
    assert all("was lost" in each.error and each.will_retry for each in failed)


def test_tool_without_effects_is_called_again_if_its_worker_dies(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    script: list[str | Reply] = [calls("die_once", {"file": str(file)}), "done"]
    asks = agentnb.tool(natives.die_once)
    looks = agentnb.tool(natives.die_once, on_recover="repeat")
    with a_cluster(1) as client:
        told = session(
            provider=ScriptedProvider(script), tools=[asks], engine=DaskEngine(client)
        ).spawn("go")
        told.result()
        assert "Nobody knows" in results(told)[0]

        file.unlink()
        repeated = session(
            provider=ScriptedProvider(script), tools=[looks], engine=DaskEngine(client)
        ).spawn("go")
        repeated.result()
    assert results(repeated) == ["alive"]
    assert [e.event.attempt for e in repeated.events if isinstance(e.event, ModelCallStarted)] == [
        1,
        1,
    ]  # and no call to the model was made again


def test_call_waits_for_a_worker_that_the_cluster_is_starting(made: Callable[..., str]) -> None:
    with a_cluster(0) as client:
        run = session(model=made(Counter, 2), engine=DaskEngine(client)).spawn("go")
        cluster: Any = client.cluster
        cluster.scale(1)
        assert run.result().final_response == "0 1"


# -- what is lost on the way ----------------------------------------------------------------------


def test_10_000_pieces_come_in_order_to_a_late_subscriber_though_answers_are_lost(
    engine: DaskEngine, made: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [0]
    asker = workers.Workers._asker

    def losing(self: Any, address: str) -> Any:
        ask = asker(self, address)

        async def ask_or_lose(function: Any, *arguments: Any) -> Any:
            answer = await ask(function, *arguments)
            asked[0] += 1
            if function in (host.entries, host.take) and asked[0] % 3 == 0:
                raise OSError("the answer was lost")
            return answer

        return ask_or_lose

    monkeypatch.setattr(workers.Workers, "_asker", losing)
    monkeypatch.setattr("agentnb.cluster.connection._PAUSE_S", 0)
    run = session(model=made(Counter, 10_000), engine=engine, budget=1_000_000).spawn("count")

    text = run.result().final_response
    assert text == " ".join(map(str, range(10_000)))
    late = list(run.events)
    assert [each.seq for each in late] == list(range(late[-1].seq + 1))
    assert "".join(pieces(run)).strip() == text


# -- one sentence before the first call -----------------------------------------------------------


def refusal(run: Run[Any]) -> str:
    with pytest.raises(ClusterFailed) as caught:
        run.result()
    assert not [e for e in run.events if isinstance(e.event, ModelCallStarted)]
    return str(caught.value)


def test_worker_without_a_key_is_named_before_the_first_call(
    engine: DaskEngine, made: Callable[..., str]
) -> None:
    words = refusal(session(model=made(Keyless, 3), engine=engine).spawn("go"))

    assert "tcp://" in words
    assert "LAB_KEY" in words


def test_worker_of_another_version_is_named_before_the_first_call(
    engine: DaskEngine, made: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "versions", lambda: Versions("3.99", agentnb.__version__))

    words = refusal(session(model=made(Counter, 2), engine=engine).spawn("go"))
    assert "this session 3.99" in words
    assert "same version" in words


def test_worker_without_agentnb_is_named_before_the_first_call(
    made: Callable[..., str], tmp_path: Path
) -> None:
    blocker = tmp_path / "blocks.py"
    blocker.write_text(
        "import sys\n"
        "class Blocks:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'agentnb':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocks())\n"
        # It was forked from a process that has imported it.
        "for name in [each for each in sys.modules if each.split('.')[0] == 'agentnb']:\n"
        "    del sys.modules[name]\n"
    )
    with a_cluster(1, preload=str(blocker)) as client:
        words = refusal(session(model=made(Counter, 2), engine=DaskEngine(client)).spawn("go"))
    assert "no agentnb" in words
    assert "install" in words


def test_tool_that_cannot_be_sent_is_named_before_the_first_call(engine: DaskEngine) -> None:
    lock = __import__("threading").Lock()

    def locked() -> str:
        """Hold a lock."""
        with lock:
            return "held"

    words = refusal(session(model="demo", tools=[locked], engine=engine).spawn("go"))
    assert "'locked'" in words
    assert "local_tools=" in words


def test_closed_client_is_one_sentence(client: Client, made: Callable[..., str]) -> None:
    connect: Any = Client
    with connect(client.cluster, set_as_default=False) as another:
        engine = DaskEngine(another)
    words = refusal(session(model=made(Counter, 2), engine=engine).spawn("go"))
    assert "new client" in words or "new one" in words


@pytest.mark.parametrize("wrong", [None, "tcp://127.0.0.1:1", object()])
def test_what_is_no_client_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="Client"):
        DaskEngine(wrong)
