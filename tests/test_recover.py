"""`session.recover`: a run whose process was killed continues in another process."""

from __future__ import annotations

import asyncio
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentnb
from agentnb import CannotRecover, NoSuchRun, Price, Run, RunCancelled, RunChanged, Session
from agentnb.core import prompt
from agentnb.core.events import ModelCallFinished, RunFinished, RunPaused, RunResumed, RunStarted
from agentnb.core.past import Past
from agentnb.core.records import Kept
from agentnb.prices import dollars
from agentnb.recovery import RecoveryReceipt, Reused
from tests.recover_scene import PROFILE, begin, killed, session_of
from tests.support import DEADLINE_S, events_of, task_of, until


def test_run_of_three_levels_goes_on_with_what_was_open(tmp_path: Path) -> None:
    run_id = killed(tmp_path / "x.db", "delegates")
    session, provider = session_of(tmp_path / "x.db", "delegates")
    assert [str(info.status) for info in session.runs()] == ["interrupted"]
    before = session.load(run_id)

    run = session.recover(run_id[:12])
    result = run.result(DEADLINE_S)

    assert (run.id, result.output) == (run_id, "All of it.")
    assert {node.path: str(node.status) for node in result.agent_tree.walk()} == dict.fromkeys(
        ("root", "1", "1.1", "1.2", "2"), "completed"
    )
    asked = [task_of(request) for request in provider.requests]
    assert asked == ["B", "root"]
    assert run.receipt is not None
    assert run.receipt.reused.calls == 5
    assert run.receipt.uncertain == ("call 1 of agent 2 (scripted)",)
    assert run.receipt.changed == ()
    (info,) = session.runs()
    assert (info.id, str(info.status)) == (run_id, "completed")
    record = session.load(run_id)
    assert [event.recovered for event in events_of(record.events, RunStarted)] == [1]
    assert len(events_of(record.events, RunFinished)) == 1
    assert len(record.events) > len(before.events)
    own, _ = session_of(tmp_path / "x.db", "delegates", id=info.session_id)
    texts = [each.content for each in own.thread(run.thread_id).messages]
    assert texts == ["the task", "All of it."]


@pytest.mark.parametrize(
    ("scene", "asked"), [("is planned", ["B", "root"]), ("is planned in turn", ["B", "C"])]
)
def test_plan_of_a_person_goes_on_and_its_root_makes_none(
    tmp_path: Path, scene: str, asked: list[str]
) -> None:
    unbroken = begin(session_of(tmp_path / "unbroken.db", scene)[0], scene).result(DEADLINE_S)
    run_id = killed(tmp_path / "x.db", scene)
    session, provider = session_of(tmp_path / "x.db", scene)

    run = session.recover(run_id)
    result = run.result(DEADLINE_S)

    assert result.output == unbroken.output
    paths, before = (
        {node.path: (node.task, node.status) for node in each.agent_tree.walk()}
        for each in (result, unbroken)
    )
    assert paths == before
    assert [task_of(request) for request in provider.requests] == asked
    assert run.receipt is not None
    assert run.receipt.reused.calls == 1
    assert run.receipt.uncertain == ("call 1 of agent 2 (scripted)",)


def test_tool_whose_outcome_nobody_knows_is_told_or_repeated(tmp_path: Path) -> None:
    for unknown, on_recover, ordered, said in (
        ("tell", "tell", [], "nobody knows whether it did"),
        ("repeat", "tell", ["a chair"], "a chair is ordered"),
        ("tell", "repeat", ["a chair"], "a chair is ordered"),
    ):
        store = tmp_path / unknown / on_recover / "x.db"
        store.parent.mkdir(parents=True)
        run_id = killed(store, "calls a tool")
        ordered_now: list[str] = []
        session, _ = session_of(store, "calls a tool", ordered_now, on_recover)

        run = session.recover(run_id, unknown=unknown)

        assert said in run.result(DEADLINE_S).output
        assert ordered_now == ordered
        assert run.receipt is not None
        assert run.receipt.uncertain == ("tool 'order_it' of agent root (call 1)",)


def test_changed_prompt_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "calls a tool")
    session, provider = session_of(store, "calls a tool", tools=())

    with pytest.raises(RunChanged) as caught:
        session.recover(run_id)

    assert list(caught.value.agents) == ["root"]
    assert provider.requests == []
    assert [str(info.status) for info in session.runs()] == ["interrupted"]
    again, _ = session_of(store, "calls a tool")
    assert again.recover(run_id).result(DEADLINE_S).output


def test_run_that_ended_or_is_not_there_cannot_be_recovered(tmp_path: Path) -> None:
    session, _ = session_of(tmp_path / "x.db", "delegates")
    run = session.spawn("the task")
    run.result(DEADLINE_S)

    with pytest.raises(CannotRecover, match="it has ended"):
        session.recover(run.id)
    with pytest.raises(NoSuchRun):
        session.recover("nothing")
    with pytest.raises(ValueError, match="'tell' or 'repeat'"):
        session.recover(run.id, unknown="perhaps")
    assert run.receipt is None


def test_run_that_is_killed_while_it_is_recovered_can_be_recovered_again(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "delegates")
    assert killed(store, "delegates", run_id) == run_id
    session, provider = session_of(store, "delegates")

    run = session.recover(run_id)

    assert run.result(DEADLINE_S).output == "All of it."
    assert [task_of(request) for request in provider.requests] == ["B", "root"]
    assert [event.recovered for event in events_of(run.events, RunStarted)] == [2]
    assert run.receipt is not None
    assert run.receipt.reused.calls == 5


def test_run_that_is_killed_paused_is_recovered_paused_and_goes_on_when_resumed(
    tmp_path: Path,
) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "is paused")
    assert killed(store, "is paused", run_id) == run_id  # during its recovery, paused
    session, provider = session_of(store, "is paused")

    run = session.recover(run_id)

    assert run.paused == ("root",)
    with pytest.raises(TimeoutError):
        run.result(0)
    assert provider.requests == []
    run.resume()
    assert run.result(DEADLINE_S).output == "All of it."
    assert [task_of(request) for request in provider.requests] == ["root"]
    record = session.load(run_id)
    assert [each.by for each in events_of(record.events, RunPaused)] == ["code"]
    assert len(events_of(record.events, RunResumed)) == 1


def test_run_of_a_message_goes_on_when_its_session_is_opened(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "is asked again")
    session, _ = session_of(store, "is asked again")
    (session_id,) = {info.session_id for info in session.runs()}

    own, _ = session_of(store, "is asked again", id=session_id)

    thread = own.thread(own.load(run_id).thread_id)
    asyncio.run(until(lambda: len(thread.messages) == 4))
    assert {message.run_id for message in thread.messages[2:]} == {run_id}
    with pytest.raises(CannotRecover, match="it has ended"):
        own.recover(run_id)


def test_changed_agents_are_kept_as_recorded_or_do_their_work_again(tmp_path: Path) -> None:
    """All agents have a new tool."""

    @agentnb.tool
    def look_up(what: str) -> str:
        return what

    for changed, asked_again in (("keep", ["B", "root"]), ("redo", None)):
        store = tmp_path / changed / "x.db"
        store.parent.mkdir()
        run_id = killed(store, "delegates")
        session, provider = session_of(store, "delegates", tools=[look_up])
        with pytest.raises(RunChanged):
            session.recover(run_id)

        run = session.recover(run_id, changed=changed)

        assert run.result(DEADLINE_S).output == "All of it."
        assert run.receipt is not None
        asked = [task_of(request) for request in provider.requests]
        if asked_again is None:
            assert set(asked) == {"root", "A", "A1", "A2", "B"}
            assert run.receipt.changed
        else:
            assert asked == asked_again


# -- the receipt -----------------------------------------------------------------------------------

Dead = Callable[[str, Path], tuple[Path, str]]


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Dead:
    """Copies the store of a process that was killed in a scene; gives the copy and the run's id."""
    known: dict[str, tuple[Path, str]] = {}

    def copied(scene: str, folder: Path) -> tuple[Path, str]:
        if scene not in known:
            place = tmp_path_factory.mktemp("killed")
            (place / "agentnb.yaml").write_text(PROFILE % "Review.")
            known[scene] = place, killed(place / "x.db", scene)
        place, run_id = known[scene]
        shutil.copytree(place, folder)
        return folder / "x.db", run_id

    return copied


CHANGES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], list[str], int]] = {
    "version": ("delegates", ("1",), ("1", "1.1", "1.2"), ["B", "root"], 6),
    "tool": ("calls a tool", ("root",), ("root",), ["root"], 2),
    "profile": ("has a profile", ("1",), ("1",), ["root"], 3),
}
"""For each change: the scene, the agents that do not match, those that do not match if the run
continues with recorded work, the calls made then, and the number of calls if work is redone."""


@pytest.mark.parametrize("what", CHANGES)
def test_agents_that_no_longer_fit_are_named_and_refused_kept_or_do_it_again(
    what: str, dead: Dead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, misfits, kept, asked, again = CHANGES[what]
    settings: dict[str, Any] = {"tools": ()} if what == "tool" else {}
    if what == "version":
        as_it_was = prompt._shared_by_siblings.__wrapped__
        other = lambda *given: f"{as_it_was(*given)}\nBe kind."  # noqa: E731
        monkeypatch.setattr(prompt, "_shared_by_siblings", other)
    for changed in ("refuse", "keep", "redo"):
        store, run_id = dead(scene, tmp_path / changed)
        if what == "profile":
            store.with_name("agentnb.yaml").write_text(PROFILE % "Rhyme.")
        session, provider = session_of(store, scene, **settings)
        if changed == "refuse":
            with pytest.raises(RunChanged) as caught:
                session.recover(run_id)
            assert tuple(caught.value.agents) == misfits
            assert provider.requests == []
            continue

        run = session.recover(run_id, changed=changed)

        run.result(DEADLINE_S)
        assert run.receipt is not None
        if changed == "keep":
            assert run.receipt.changed == kept
            assert [task_of(request) for request in provider.requests] == asked
        else:
            assert run.receipt.changed == misfits
            assert len(provider.requests) == again


def test_refused_recovery_leaves_the_run_interrupted_and_is_not_the_newest_run(
    dead: Dead, tmp_path: Path
) -> None:
    store, run_id = dead("calls a tool", tmp_path / "x")
    session, _ = session_of(store, "calls a tool", tools=())
    first = session.spawn("Another task.")
    first.result(DEADLINE_S)

    with pytest.raises(RunChanged) as caught:
        session.recover(run_id)

    assert caught.value.__traceback__ is not None  # it keeps what was begun, as a notebook does
    assert session.newest_run is first
    assert session.run_ids == (first.id,)
    assert session.find_run(run_id) is None
    assert [str(info.status) for info in session.runs(status="interrupted")] == ["interrupted"]
    assert str(session.load(run_id).status) == "interrupted"
    run = session.recover(run_id, changed="keep")
    assert session.newest_run is run
    assert "nobody knows" in run.result(DEADLINE_S).output
    assert run.receipt is not None
    assert run.receipt.uncertain == ("tool 'order_it' of agent root (call 1)",)
    assert run.receipt.changed == ("root",)


def order_on_the_way(monkeypatch: pytest.MonkeyPatch, act: Callable[[Run], object]) -> None:
    """Act on a recovered run, on its loop, when it replays its first record."""
    begun: queue.SimpleQueue[Run] = queue.SimpleQueue()
    acts = [act]
    remember, kept = Session._remember, Past.kept

    def noting(session: Session, run: Run, *, is_newest: bool) -> None:
        remember(session, run, is_newest=is_newest)
        begun.put(run)

    def ordering(past: Past, record: Kept) -> None:
        if acts:
            acts.pop()(begun.get(timeout=DEADLINE_S))
        kept(past, record)

    monkeypatch.setattr(Session, "_remember", noting)
    monkeypatch.setattr(Past, "kept", ordering)


def test_run_that_is_cancelled_while_it_does_again_what_it_did_is_cancelled_with_all_of_it(
    dead: Dead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run_id = dead("delegates", tmp_path / "x")
    session, provider = session_of(store, "delegates")
    order_on_the_way(monkeypatch, lambda run: run.cancel(reason="not any more"))

    run = session.recover(run_id)

    with pytest.raises(RunCancelled, match="not any more"):
        run.result(DEADLINE_S)
    assert provider.requests == []
    assert run.receipt is not None
    assert run.receipt.reused.calls == 5
    del run
    other, _ = session_of(store, "delegates")
    (info,) = other.runs()
    assert str(info.status) == "cancelled"
    assert sum(used.budget_tokens for used in info.usage.values()) > 0
    assert len(events_of(other.load(run_id).events, ModelCallFinished)) == 5
    with pytest.raises(CannotRecover, match="it was cancelled"):
        other.recover(run_id)


@pytest.mark.parametrize("how", ["a second cancel", "an interrupt"])
def test_recovery_that_is_broken_off_changes_nothing(
    how: str, dead: Dead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run_id = dead("delegates", tmp_path / "x")
    session, provider = session_of(store, "delegates")
    if how == "an interrupt":
        stopped = threading.Event()
        _interrupt_the_wait(monkeypatch, stopped)
        order_on_the_way(monkeypatch, lambda _: stopped.wait(DEADLINE_S))
        with pytest.raises(KeyboardInterrupt):
            session.recover(run_id)
    else:
        order_on_the_way(monkeypatch, lambda run: [run.stop_soon("stop"), run.cancel()])
        with pytest.raises(RunCancelled):
            session.recover(run_id)

    assert provider.requests == []
    assert session.newest_run is None
    assert [str(info.status) for info in session.runs()] == ["interrupted"]
    run = session.recover(run_id)
    assert run.result(DEADLINE_S).output == "All of it."
    assert run.receipt is not None
    assert run.receipt.reused.calls == 5
    assert [event.recovered for event in events_of(run.events, RunStarted)] == [1]


def _interrupt_the_wait(monkeypatch: pytest.MonkeyPatch, stopped: threading.Event) -> None:
    """Interrupt the first wait for a recovery; `stopped` is set when the run must stop."""

    class Interrupted(threading.Event):
        was_interrupted = False

        def wait(self, timeout: float | None = None) -> bool:
            if not Interrupted.was_interrupted:
                Interrupted.was_interrupted = True
                raise KeyboardInterrupt
            return super().wait(timeout)

    as_it_was = Run.stop_soon

    def stop_soon(run: Run, reason: str, *, at_once: bool = False) -> bool:
        try:
            return as_it_was(run, reason, at_once=at_once)
        finally:
            stopped.set()

    monkeypatch.setattr("agentnb.run_store.threading", SimpleNamespace(Event=Interrupted))
    monkeypatch.setattr(Run, "stop_soon", stop_soon)


@pytest.fixture
def prices() -> Iterator[Callable[[dict[str, Price]], None]]:
    yield agentnb.set_prices
    agentnb.set_prices({})


def test_receipt_tells_the_saved_money_only_if_every_price_is_known(
    dead: Dead, tmp_path: Path, prices: Callable[[dict[str, Price]], None]
) -> None:
    for name, known in (("x", {"scripted": Price(3, 15)}), ("y", {})):
        store, run_id = dead("delegates", tmp_path / name)
        prices(known)
        session, _ = session_of(store, "delegates")
        (before,) = session.runs()
        run = session.recover(run_id)
        run.result(DEADLINE_S)

        assert run.receipt is not None
        reused = run.receipt.reused
        assert reused.tokens == sum(used.budget_tokens for used in before.usage.values()) > 0
        shown = run.receipt._repr_mimebundle_()
        if known:
            assert reused.cost_usd == float(known["scripted"].of(before.usage["scripted"]))
            saved = f", {dollars(reused.cost_usd)} saved"
            assert (
                f"about <span>$</span>{dollars(reused.cost_usd)[1:]}</td>" in (shown["text/html"])
            )
        else:
            assert reused.cost_usd is None
            saved = ""
            assert "no price is known" in shown["text/html"]
        assert str(run.receipt) == (
            f"Recovered: 5 calls reused ({reused.tokens:,} tokens{saved}); "
            "1 was open and is made again."
        )
        assert shown["text/plain"].splitlines() == [
            str(run.receipt),
            "Uncertain: call 1 of agent 2 (scripted).",
        ]
        assert {path: one.calls for path, one in run.receipt.by_agent.items()} == {
            "root": 1,
            "1": 2,
            "1.1": 1,
            "1.2": 1,
        }
        whole = {path for path, one in run.receipt.by_agent.items() if one.has_ended}
        assert whole == {"1", "1.1", "1.2"}


def test_receipt_in_words_for_one_and_for_many() -> None:
    def words(calls: int, tools: int, open_calls: int, open_tools: int) -> str:
        uncertain = tuple("x" * (open_calls + open_tools))
        reused = Reused(calls, tools, 120_400, 0.41)
        return str(
            RecoveryReceipt(reused, uncertain, (), open_calls=open_calls, open_tools=open_tools)
        )

    assert words(22, 14, 3, 0) == (
        "Recovered: 22 calls and 14 tool calls reused (120,400 tokens, $0.4100 saved); "
        "3 were open and are made again."
    )
    assert words(1, 0, 0, 1) == (
        "Recovered: 1 call reused (120,400 tokens, $0.4100 saved); "
        "1 tool call was open: its outcome is unknown."
    )
    assert words(0, 0, 1, 2) == (
        "Recovered: nothing to reuse; 1 was open and is made again; "
        "2 tool calls were open: their outcomes are unknown."
    )
