"""A saved run answers as before, without provider, key or network."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.errors import AuthenticationFailed, OrchestratorError, UnreadableRun
from agentnb.core.events import AgentCompleted, BudgetUpdate, Row, RunFinished, RunStarted
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentStatus, RunUsage, ToolUse, Usage
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.record import RunRecord, load_run
from agentnb.run import Run
from agentnb.run_file import Document, read_document
from agentnb.session import Session
from tests.support import DEADLINE_S, Hold, by_agent, nothing_left_on_the_runtime, run_python, spawn


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with nothing_left_on_the_runtime():
        yield


def a_run(**settings: Any) -> Run:
    """Everything at once: two levels, a failure, a skipped task, a whole answer."""
    provider = by_agent(
        {
            "root": [spawn("A", "B", "root", before="I split it."), "Grüße, together"],
            "A": [Reply(tool_uses=(ToolUse("t", "no_such_tool", {}),)), spawn("A1"), "A is done"],
            "B": [Reply("half", error=AuthenticationFailed("no", status_code=401))],
        }
    )
    run = Session(provider=provider, **settings).spawn("root")
    run.result(DEADLINE_S)
    return run


def reloaded(run: RunRecord, folder: Path) -> RunRecord:
    run.to_json(folder / "run.json")
    return load_run(folder / "run.json")


def told(run: RunRecord) -> dict[str, Any]:
    """All that a record has."""
    return {
        "id": run.id,
        "task": run.task,
        "events": run.events,
        "tree": run.tree,
        "outline": str(run.tree),
        "notes": run.notes,
        "status": run.status,
        "done": run.done,
        "output": run.output,
        "usage": run.usage,
        "graph": ([*run.graph.nodes(data=True)], [*run.graph.edges]),
        "records": run.to_records(),
        "agents": run.agents,
        "json": run.to_json(),
    }


def test_loaded_run_tells_what_the_run_told(tmp_path: Path) -> None:
    run = a_run()

    record = reloaded(run, tmp_path)

    assert told(record) == told(run)
    assert len(record.events) > 20
    assert record.status is AgentStatus.COMPLETED
    assert record.output == "Grüße, together"
    assert [r["status"] for r in record.to_records()] == [
        "completed", "completed", "completed", "failed", "skipped",
    ]  # fmt: skip
    assert [(r["tool_calls"], r["tool_errors"]) for r in record.to_records()] == [
        (0, 0), (1, 1), (0, 0), (0, 0), (0, 0),
    ]  # fmt: skip
    assert record.tool_counts == {"1": (1, 1)}
    assert any("skipped" in note or "not started" in note for note in record.notes["root"])
    assert repr(record) == "RunRecord('root', completed)"


def test_loaded_run_has_the_budget_of_the_run(tmp_path: Path) -> None:
    run = a_run(budget=123_456)
    assert run.result().total_tokens_used > 0

    budget = reloaded(run, tmp_path).budget

    assert isinstance(budget, RequestBudget)
    assert (budget.total, budget.tokens_used) == (123_456, run.budget.tokens_used)


def test_pot_is_as_the_newest_event_that_tells_of_it_says() -> None:
    bus = EventBus("r")
    record = RunRecord("r", "t", bus)
    pots = [(record.budget.total, record.budget.tokens_used)]
    for event in (
        RunStarted(task_description="t", model="p/m", budget_total=100, max_depth=3),
        BudgetUpdate(tokens_used=5, budget_total=90, percentage=5.6),
        RunFinished(status=AgentStatus.COMPLETED, tokens_used=7, duration_ms=1),
    ):
        bus.publish(event)
        pots.append((record.budget.total, record.budget.tokens_used))

    assert pots == [(0, 0), (100, 0), (90, 5), (90, 7)]


def test_total_that_was_changed_is_the_total_of_the_loaded_run(tmp_path: Path) -> None:
    run, hold = held()
    run.set_budget(77_777)
    hold.release()
    run.result(DEADLINE_S)

    assert reloaded(run, tmp_path).budget.total == 77_777


def test_loaded_run_streams_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    run = a_run()
    record = reloaded(run, tmp_path)

    async def streamed() -> list[Any]:
        return [entry async for entry in record.stream()]

    assert asyncio.run(streamed()) == run.events


def held() -> tuple[Run, Hold]:
    """A run of three agents: one has completed, one is in mid-stream, and the root waits."""
    hold = Hold()
    script = [spawn("B", "A", mode="sequential"), "ok"]
    provider = by_agent({"root": script, "A": Reply("half of it, the rest", pause=hold)})
    run = Session(provider=provider).spawn("root")
    hold.wait()
    return run, hold


def test_run_that_goes_on_is_written_as_it_is_and_loaded_as_it_was(tmp_path: Path) -> None:
    run, hold = held()

    record = reloaded(run, tmp_path)
    events = run.events
    hold.release()
    run.result(DEADLINE_S)

    assert record.events == events
    assert (record.status, record.done, record.output) == (AgentStatus.RUNNING, False, "")
    assert str(record.tree) == "root ► running · root\n├─ 1 ✓ completed · B\n└─ 2 ► running · A"
    assert len(run.events) > len(events)


def test_output_is_that_of_the_result_also_when_the_run_failed_or_was_cancelled() -> None:
    failing = ScriptedProvider([Reply("half a word", error=AuthenticationFailed("wrong key"))])
    failed = Session(provider=failing).spawn("a task")
    with pytest.raises(OrchestratorError) as why_failed:
        failed.result(DEADLINE_S)
    cancelled, _ = held()
    cancelled.cancel(reason="took too long")
    with pytest.raises(OrchestratorError) as why_cancelled:
        cancelled.result(DEADLINE_S)

    for run, error in [(failed, why_failed.value), (cancelled, why_cancelled.value)]:
        assert error.partial_result is not None
        assert run.output == error.partial_result.output
    assert failed.output.endswith("*wrong key*")
    assert "took too long" in cancelled.output


def test_output_is_the_roots_and_not_that_of_the_agent_that_ended_last() -> None:
    run = a_run()
    answers = [e.event.text for e in run.events if isinstance(e.event, AgentCompleted)]

    assert len(answers) == 3
    assert run.output == run.result().output == answers[-1]


def test_document_is_given_or_written_and_replaces_what_was_there(tmp_path: Path) -> None:
    run = a_run()
    path = tmp_path / "run.json"
    path.write_text("x" * 1_000_000)

    assert run.to_json(str(path)) is None

    assert path.read_text(encoding="utf-8") == run.to_json()
    assert json.loads(run.to_json())["agentnb"] == agentnb.__version__
    with pytest.raises(FileNotFoundError):
        run.to_json(tmp_path / "nowhere" / "run.json")


def test_file_that_cannot_be_written_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run()
    path = tmp_path / "run.json"
    run.to_json(path)
    before = path.read_bytes()

    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data[:100])
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("agentnb.files.os.fdopen", lambda made, mode: Full(made, mode))
        with pytest.raises(OSError, match="No space left"):
            run.to_json(path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_link_is_replaced_by_the_file_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    run = a_run()
    (tmp_path / "link.json").symlink_to(tmp_path / "run.json")
    run.to_json(tmp_path / "link.json")

    assert not (tmp_path / "link.json").is_symlink()
    assert not (tmp_path / "run.json").exists()
    assert load_run(tmp_path / "link.json").events == run.events


def test_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    run = a_run()
    path = tmp_path / "run.json"
    path.write_text(run.to_json(), encoding="utf-8-sig")

    assert load_run(str(path)).events == run.events


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "there is no such file in "),
        (b'{"cells": [], "nbformat": 4}', "it is a notebook. Open it in Jupyter."),
        ("{}".encode("utf-16"), "it is not UTF-8 text (byte 0xff at 0)."),
        (b"{}\n", "it is JSON, but not a run. Give the path of a file that `run.to_json(path)` "),
    ],
)
def test_file_that_holds_no_run_is_named_with_what_it_is(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / "some.file"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(UnreadableRun) as refused:
        load_run(path)

    assert f"some.file' cannot be read as a run: {complaint}" in str(refused.value)


def test_folder_is_no_run_and_neither_is_the_document_itself(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRun, match="it is a folder"):
        load_run(tmp_path)
    with pytest.raises(UnreadableRun, match="cannot be read as a run") as refused:
        load_run(a_run().to_json())
    assert len(str(refused.value)) < 500
    with pytest.raises(UnreadableRun, match="null"):
        load_run("a\0b")


def test_collector_rests_during_a_load_and_is_as_it_was_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    a_run().to_json(path)
    rested: list[bool] = []

    def noting(text: str, **how: Any) -> Document:
        rested.append(not gc.isenabled())
        return read_document(text, **how)

    monkeypatch.setattr("agentnb.record.read_document", noting)

    assert gc.isenabled()
    load_run(path)
    assert gc.isenabled()
    assert rested == [True]
    with pytest.raises(UnreadableRun):
        load_run(tmp_path)
    assert gc.isenabled()
    gc.disable()
    try:
        load_run(path)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_loaded_run_needs_no_provider_and_no_thread_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    a_run().to_json(path)

    printed = run_python(f"""
        import sys, threading
        import agentnb
        run = agentnb.load_run({str(path)!r})
        print(run.output)
        print(run.tree)
        assert run.usage.total_tokens and run.to_records() and run.notes
        assert threading.active_count() == 1, threading.enumerate()
        for name in ("anthropic", "networkx", "matplotlib", "genai_prices", "IPython"):
            assert name not in sys.modules, name
        assert not any(name.startswith("agentnb.providers") for name in sys.modules)
    """)

    assert printed.splitlines()[:2] == ["Grüße, together", "root ✓ completed · root"]


def test_orders_are_for_runs_that_can_follow_them(tmp_path: Path) -> None:
    record = reloaded(a_run(), tmp_path)

    for order in ("cancel", "set_budget", "answer_budget", "result"):
        assert hasattr(Run, order)
        assert not hasattr(record, order)


def test_one_thread_at_a_time_brings_a_record_up_to_now() -> None:
    both_inside = threading.Barrier(2)

    class Meeting(EventBus):
        def rows_since(self, seq: int) -> list[Row]:
            with suppress(threading.BrokenBarrierError):
                both_inside.wait(0.2)
                met.append(seq)
            return super().rows_since(seq)

    met: list[int] = []
    bus = Meeting("r")
    for entry in a_run().events:
        bus.publish(entry.event)
    record = RunRecord("r", "root", bus)
    usages: list[RunUsage] = []
    readers = [threading.Thread(target=lambda: usages.append(record.usage)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(DEADLINE_S)

    assert met == []
    assert usages[0] == usages[1] == TreeFold(bus.entries).usage


def test_record_that_is_read_from_many_threads_while_it_grows_is_read_right() -> None:
    run, hold = held()
    wrong: list[object] = []
    over = threading.Event()

    def watch() -> None:
        seen = 0
        while not over.is_set() or seen == 0:
            seen += 1
            tree, records, usage = run.tree, run.to_records(), run.usage
            if tree is None or [r["path"] for r in records] != ["root", "1", "2"]:
                wrong.append(records)
            if usage.total_tokens > sum(r["tokens_used"] for r in run.to_records()):
                wrong.append(usage)

    watchers = [threading.Thread(target=watch) for _ in range(6)]
    for watcher in watchers:
        watcher.start()
    hold.release()
    result = run.result(DEADLINE_S)
    over.set()
    for watcher in watchers:
        watcher.join(DEADLINE_S)

    assert wrong == []
    assert run.usage == result.usage
    assert run.tree == result.agent_tree
    assert sum(run.usage.by_model.values(), Usage()).total_tokens > 0


def test_cost_so_far_leaves_out_open_calls_and_agents_without_one_that_has_ended() -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A", "B"), "all"], "B": Reply("half", pause=hold)})
    run = Session(provider=provider).spawn("root")
    hold.wait()

    so_far = run._cost_so_far()

    assert set(so_far.by_agent) - {"1"} == {"root"}
    assert "open" not in str(so_far)
    hold.release()
    run.result(DEADLINE_S)
    assert set(run._cost_so_far().by_agent) == {"root", "1", "2"}
