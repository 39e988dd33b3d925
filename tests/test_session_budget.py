"""`session_budget`: what all runs of a session may spend together, in this kernel and in others."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

import agentnb
from agentnb import Price, Run, Session
from agentnb.core.errors import SessionBudgetUsedUp
from agentnb.core.types import AgentStatus, CompletionRequest, Usage
from agentnb.notebook.magics import _status
from agentnb.notebook.settings import settings_text
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.store import pots
from tests.support import DEADLINE_S, Hold, spawn, task_of

PRICES = {"scripted": Price(input=3, output=15)}
USAGE = Usage(10_000, 1_000)
TOKENS, MICROS = 11_000, 45_000
"""The cost of each call of these runs."""
UNITS = {"tokens": (TOKENS, 30_000), "usd": (MICROS, "$0.12")}
"""The cost of a call, and a budget for two calls and part of a third."""


@pytest.fixture(autouse=True)
def priced() -> Iterator[None]:
    agentnb.set_prices(PRICES)
    yield
    agentnb.set_prices({})


def answer(hold: Hold | None) -> Any:
    """The root delegates A and B; B waits at the hold."""

    def reply(request: CompletionRequest) -> AnyReply:
        task = task_of(request)
        if task == "B":
            return Reply("B is done", usage=USAGE, pause=hold)
        if request.messages[-1].text == "two tasks":
            return Reply(spawn("A", "B"), usage=USAGE)
        return Reply("done", usage=USAGE)

    return reply


def session(hold: Hold | None = None, **given: Any) -> Session:
    given = {"store": None, "budget": 500_000} | given
    return Session(provider=ScriptedProvider(answer(hold)), **given)


def used_in(run: Run[Any]) -> int:
    """The spent part of the session's budget, while no lease is open."""
    (above,) = run.budget.above
    assert above.reserved == 0
    return above.tokens_used


def test_run_that_it_leaves_no_room_for_says_whose_budget_to_raise() -> None:
    assert session(session_budget=100).run_sync("one task").output == (
        "Nothing of this task was done: the session's budget (`session_budget`) is used up. "
        "Raise that budget."
    )


@pytest.mark.parametrize("kept", ["file", "memory"])
@pytest.mark.parametrize("budget", [400_000, "$4"])
@pytest.mark.parametrize("unit", UNITS)
def test_next_run_is_refused_once_it_is_used_up(
    unit: str, budget: Any, kept: str, tmp_path: Path
) -> None:
    each, total = UNITS[unit]
    store = tmp_path if kept == "file" else None
    ours = session(budget=budget, session_budget=total, store=store)
    runs = [ours.spawn("a task") for _ in range(2)]
    assert [run.result().status for run in runs] == [AgentStatus.COMPLETED] * 2
    assert used_in(runs[0]) == used_in(runs[1]) == 2 * each
    ours.spawn("a task").result()  # its estimate fits

    before = len(ours.runs(None))
    with pytest.raises(SessionBudgetUsedUp, match="session_budget"):
        ours.spawn("a task")
    with pytest.raises(SessionBudgetUsedUp):
        ours.map(["a row"], "{{text}}")

    assert len(ours.runs(None)) == before
    if store is not None:  # also for a session that opens it again
        with pytest.raises(SessionBudgetUsedUp):
            session(session_budget=total, store=store, id=ours.id).spawn("a task")


@pytest.mark.parametrize(("unit", "total"), [("tokens", 3_000), ("usd", "$0.02")])
def test_open_calls_end_when_it_is_used_up(unit: str, total: Any) -> None:
    ours = Session(provider=ScriptedProvider(["word " * 20_000]), store=None, session_budget=total)
    run = ours.spawn("a long task")

    assert run.result().status is AgentStatus.EXHAUSTED
    assert "session_budget" in str(run.notes)
    assert used_in(run) <= (3_000 if unit == "tokens" else 20_000)
    assert ours.spent == ("3,000 of 3,000 tokens" if unit == "tokens" else "$0.02 of $0.02")


def test_map_spends_no_more_than_the_session_has_left() -> None:
    ours = session(session_budget="$0.45", budget="$4", max_concurrency=2)
    ours.spawn("a task").result()
    out = ours.map([f"row {n}" for n in range(40)], "{{text}}", output=None)
    result = out.result()

    assert result.status is AgentStatus.EXHAUSTED
    used = used_in(out)
    # Two calls were open, and each cost more than estimated.
    assert 9 * MICROS <= used <= 10 * MICROS + 2 * MICROS
    with pytest.raises(SessionBudgetUsedUp):
        ours.spawn("a task")


def test_raised_total_applies_to_open_runs_and_to_configured_successors() -> None:
    hold = Hold()
    first = session(hold, session_budget=100_000)
    run = first.spawn("two tasks")
    assert hold.reached.wait(DEADLINE_S)
    second = session(session_budget=200_000)
    second.go_on(first, is_elsewhere=False)
    (above,) = run.budget.above
    assert above.total == 200_000
    hold.release()
    run.result()

    other = second.spawn("a task")
    other.result()
    assert used_in(other) == 5 * TOKENS
    assert second.spent == "55,000 of 200,000 tokens"


def test_record_and_replay_begin_with_nothing_spent(tmp_path: Path) -> None:
    given: dict[str, Any] = {"session_budget": 12_000, "cassette": tmp_path / "a.jsonl"}
    for mode in ("record", "replay"):
        with session(mode=mode, store=tmp_path, **given) as ours:
            assert ours.spawn("a task").result().final_response == "done"
            assert ours.spent == "11,000 of 12,000 tokens"


def test_it_is_a_setting_of_the_file_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agentnb.yaml").write_text("session:\n  session_budget: $20\n")
    ours = session(config=tmp_path)
    run = ours.spawn("a task")
    run.result()

    assert ours.spent == "$0.045 of $20.00"
    assert "session_budget       $20, $0.045 of $20.00 is used" in settings_text(ours)
    monkeypatch.setattr("agentnb.notebook.magics.get_session", lambda: ours)
    assert "the session's budget: $0.045 of $20.00 used" in _status(run, [])
    with pytest.raises(ValueError, match="`session_budget` must be"):
        session(session_budget=4.0)


# -- two processes ------------------------------------------------------------------------------


@contextmanager
def other_process(folder: Path, unit: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A process in mid-run, with three calls made; and the ids of session and run."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.test_session_budget", str(folder), unit],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            session_id, run_id = process.stdout.readline().split()
            yield process, session_id, run_id
        finally:
            process.kill()


@pytest.mark.parametrize("unit", UNITS)
def test_killed_kernel_leaves_what_it_spent_and_nothing_that_it_held(
    unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each, _ = UNITS[unit]
    waits = threading.Event()

    def is_elsewhere(db: Connection, session_id: str, **given: Any) -> bool:
        found = found_there(db, session_id, **given)
        if found:
            waits.set()
        return found

    found_there = pots.session_is_elsewhere
    monkeypatch.setattr(pots, "session_is_elsewhere", is_elsewhere)
    with other_process(tmp_path, unit) as (process, session_id, run_id):
        ours = session(store=tmp_path, id=session_id, session_budget=TOTALS[unit])
        run = ours.spawn("a task")
        assert waits.wait(DEADLINE_S)
        assert run.status is AgentStatus.PENDING
        process.kill()
        process.wait()
        assert run.result().status is AgentStatus.COMPLETED

    # The root and A had ended; B was open.
    assert used_in(run) == 3 * each
    again = ours.recover(run_id)
    assert again.result().status is AgentStatus.COMPLETED
    # B and the synthesis; also the lost call of B, by its estimate.
    assert 5 * each < used_in(again) < 5 * each + each // 10


TOTALS = {"tokens": 200_000, "usd": "$2"}


def main(folder: str, unit: str) -> None:
    agentnb.set_prices(PRICES)
    hold = Hold()
    ours = session(hold, store=folder, session_budget=TOTALS[unit])
    run = ours.spawn("two tasks")
    assert hold.reached.wait(DEADLINE_S)
    while not any(agent.status is AgentStatus.COMPLETED for agent in run.agents):
        pass
    ours.store.transactions().do(lambda db: None)  # all earlier work is on disk
    print(ours.id, run.id, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
