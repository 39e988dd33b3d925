"""A list of runs tells how each ended, or whether it goes on, from what is in the store."""

from __future__ import annotations

import copy
import pickle
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.bundles import bundle_of
from agentnb.core.errors import AmbiguousRun, NoSuchRun
from agentnb.core.types import AgentStatus, Usage
from agentnb.store.database import open_to_write
from agentnb.store.runs import (
    STATUSES,
    RunInfo,
    RunList,
    calls_of,
    check_id,
    find_run,
    info_of,
    list_runs,
)
from agentnb.views.table import ROWS
from tests.store.filled import NOW, add_call, add_end, add_event, add_run
from tests.support import run_python


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = open_to_write(tmp_path / "x.db")
    yield db
    db.close()


def nobody(number: int) -> bool:
    return False


def ids(runs: RunList) -> list[str]:
    return [run.id for run in runs]


# -- one run ------------------------------------------------------------------------------------


def test_run_that_ended_has_what_was_kept_of_its_end(db: sqlite3.Connection) -> None:
    add_run(
        db,
        "7f01",
        process=1,
        name="compare",
        tags=("slow", "EU"),
        status="completed",
        agents=4,
        tokens_used=1_234,
        usage={"demo/small": [1, 2, 3, 4], "demo/large": [5, 6, 0, 0]},
        started_at=NOW + 0.25,
        duration_ms=2_500,
    )

    (run,) = list_runs(db, is_alive=nobody)

    assert run == RunInfo(
        id="7f01",
        name="compare",
        tags=("slow", "EU"),
        task="Compare A and B",
        status=AgentStatus.COMPLETED,
        model="demo/small",
        agents=4,
        tokens_used=1_234,
        started_at=datetime.fromtimestamp(NOW + 0.25, UTC),
        duration_ms=2_500,
        thread_id="thread of 7f01",
        session_id="session",
        usage={"demo/small": Usage(1, 2, 3, 4), "demo/large": Usage(5, 6)},
    )
    assert run.started_at.tzinfo is UTC


def fill_open_run(db: sqlite3.Connection) -> int:
    """A run of process 5 without an end: the root and three agents, of which one made no call."""
    run = add_run(db, "open", process=5)
    for seq, path in enumerate(("root", "1", "2", "3")):
        add_event(db, run, seq, "agent_spawned", path, at_s=float(seq))
    add_event(db, run, 4, "budget_update", None, at_s=4.0)
    add_call(db, run, "root", 1, at_s=0.5, duration_ms=100, usage=[10, 20, 3, 41])
    add_call(db, run, "1", 1, at_s=1.5, duration_ms=4_250, usage=[1, 2, 0, 9])
    add_call(db, run, "2", 1, at_s=2.5, usage=[7, 7, 0, 0], model="demo/large", duration_ms=1)
    add_call(db, run, "2", 2, at_s=5.25, text="half a rep")
    add_end(db, run, 1, "1")
    return run


def test_run_without_an_end_goes_on_as_long_as_its_process_lives(db: sqlite3.Connection) -> None:
    fill_open_run(db)

    (run,) = list_runs(db, is_alive={5}.__contains__)

    assert run.status is AgentStatus.RUNNING
    assert run.duration_ms is None
    assert run.agents == 4
    assert run.tokens_used == (10 + 20 + 3 + 5) + (1 + 2 + 1) + (7 + 7)
    assert run.usage == {"demo/small": Usage(11, 22, 3, 50), "demo/large": Usage(7, 7)}


def test_run_whose_process_is_gone_is_interrupted_with_what_is_known(
    db: sqlite3.Connection,
) -> None:
    fill_open_run(db)

    (run,) = list_runs(db, is_alive=nobody)

    assert run.status is AgentStatus.INTERRUPTED
    assert run.duration_ms == 5_750  # to the end of the call that ended last
    assert run.agents == 4
    assert run.tokens_used == 56
    assert db.execute("SELECT status, agents, usage FROM runs").fetchall() == [(None, None, None)]


def test_run_that_was_killed_before_its_first_call_is_listed(db: sqlite3.Connection) -> None:
    add_run(db, "empty", process=5)

    (run,) = list_runs(db, is_alive=nobody)

    assert (run.status, run.agents, run.tokens_used, run.duration_ms) == ("interrupted", 0, 0, 0)
    assert run.usage == {}


def test_run_of_no_known_process_is_interrupted(db: sqlite3.Connection) -> None:
    add_run(db, "a")

    (run,) = list_runs(db, is_alive=lambda number: True)

    assert run.status is AgentStatus.INTERRUPTED


def test_run_that_ends_while_it_is_listed_is_never_called_interrupted(
    db: sqlite3.Connection,
) -> None:
    """Its process may write the end and go between the reading of its row and the question."""
    add_run(db, "a", process=5)

    def ends_and_goes(number: int) -> bool:
        db.execute("UPDATE runs SET status = 'completed', agents = 3, tokens_used = 9")
        return False

    (run,) = list_runs(db, is_alive=ends_and_goes)

    assert (run.status, run.agents, run.tokens_used) == ("completed", 3, 9)


def test_run_that_is_deleted_while_it_is_listed_is_left_out(db: sqlite3.Connection) -> None:
    add_run(db, "a", process=5)

    def deleted(number: int) -> bool:
        db.execute("DELETE FROM runs")
        return False

    assert list_runs(db, is_alive=deleted) == []


def test_counts_of_more_than_63_bits_come_back(db: sqlite3.Connection) -> None:
    add_run(db, "a", status="completed", tokens_used=str(2**70), duration_ms=str(2**65))

    (run,) = list_runs(db, is_alive=nobody)

    assert (run.tokens_used, run.duration_ms) == (2**70, 2**65)


def test_half_a_character_comes_back(db: sqlite3.Connection) -> None:
    half = "half \ud83d".encode("utf-8", "surrogatepass")
    add_run(db, "a", name=half, task=half, model=half, status="completed")
    add_call(db, add_run(db, "b"), "root", model=half, usage=[1, 2, 0, 0])  # type: ignore[arg-type]

    b, a = list_runs(db, is_alive=nobody, text="")

    assert (a.name, a.task, a.model) == ("half \ud83d",) * 3
    assert b.usage == {"half \ud83d": Usage(1, 2)}
    assert [model for _, model, _, _ in calls_of(db, "b") or []] == ["half \ud83d"]
    assert ids(list_runs(db, is_alive=nobody, text="HALF")) == ["a"]
    assert "half" in bundle_of(RunList([a]))["text/html"]


# -- its price ----------------------------------------------------------------------------------


def test_price_is_asked_for_only_when_it_is_read(db: sqlite3.Connection) -> None:
    add_run(db, "7f01", status="completed")
    asked: list[str] = []

    def cost_of(run_id: str) -> float:
        asked.append(run_id)
        return 0.25

    (run,) = list_runs(db, is_alive=nobody, cost_of=cost_of)
    repr(run)
    bundle_of(RunList([run]))
    assert asked == []

    assert run.cost_usd == 0.25
    assert asked == ["7f01"]


def test_run_without_prices_has_no_cost(db: sqlite3.Connection) -> None:
    add_run(db, "a", status="completed")

    assert list_runs(db, is_alive=nobody)[0].cost_usd is None


def test_calls_are_priced_one_by_one(db: sqlite3.Connection) -> None:
    """A price may depend on the length of a call's input, so a sum over calls has none."""
    run = add_run(db, "a", started_at=NOW)
    add_call(db, run, "root", 1, at_s=59.0, usage=[1, 2, 3, 4])
    add_call(db, run, "1", 1, at_s=61.0, usage=[5, 6, 0, 0], model="demo/large")
    add_call(db, run, "1", 2, at_s=62.0)
    minute = datetime.fromtimestamp(NOW - NOW % 60, UTC)

    assert NOW % 60 == 40
    calls = calls_of(db, "a")
    assert calls is not None
    assert sorted(calls, key=lambda call: call[0::3]) == [
        ("1", "demo/large", Usage(5, 6), minute + timedelta(minutes=1)),
        ("1", "demo/small", None, minute + timedelta(minutes=1)),
        ("root", "demo/small", Usage(1, 2, 3, 4), minute + timedelta(minutes=1)),
    ]
    assert calls_of(db, "b") is None


def test_finished_call_without_a_count_costs_nothing(db: sqlite3.Connection) -> None:
    add_call(db, add_run(db, "a"), "root")
    db.execute("UPDATE model_calls SET status = 'finished'")

    assert [usage for _, _, usage, _ in calls_of(db, "a") or []] == [Usage()]


# -- which runs ---------------------------------------------------------------------------------


def test_newest_run_comes_first_whatever_the_clock_said(db: sqlite3.Connection) -> None:
    for number, started_at in enumerate((NOW, NOW + 5, NOW - 3_600)):
        add_run(db, f"run {number}", started_at=started_at, status="completed")

    assert ids(list_runs(db, is_alive=nobody)) == ["run 2", "run 1", "run 0"]
    assert ids(list_runs(db, is_alive=nobody, limit=2)) == ["run 2", "run 1"]


def fill_one_of_each(db: sqlite3.Connection) -> None:
    for status in ("completed", "failed", "cancelled", "exhausted"):
        add_run(db, status, status=status, process=1)
    add_run(db, "running", process=2)
    add_run(db, "interrupted", process=1)


@pytest.mark.parametrize("status", STATUSES)
def test_runs_are_filtered_by_status(db: sqlite3.Connection, status: str) -> None:
    fill_one_of_each(db)

    found = list_runs(db, is_alive={2}.__contains__, status=status)

    assert [(run.id, run.status) for run in found] == [(status, status)]


def test_limit_counts_the_runs_that_were_wanted(db: sqlite3.Connection) -> None:
    for _ in range(2):
        for status in ("interrupted", "running", "completed"):
            ended = "completed" if status == "completed" else None
            process = 2 if status == "running" else 1
            number = db.execute("SELECT count(*) FROM runs").fetchone()[0]
            add_run(db, f"{status} {number}", process=process, status=ended, name=f"Nr {number}")

    def found(limit: int, status: str | None = None, text: str | None = None) -> list[str]:
        alive = {2}.__contains__
        return ids(list_runs(db, is_alive=alive, limit=limit, status=status, text=text))

    assert found(1, "interrupted") == ["interrupted 3"]
    assert found(5, "interrupted") == ["interrupted 3", "interrupted 0"]
    assert found(1, text="nr 1") == ["running 1"]
    assert found(1, "completed", "nr 2") == ["completed 2"]


@pytest.mark.parametrize(
    "text", ["COMPARE", "are a", "größe", "GRÖSSE", "Straße", "strasse", "%", "_x", "eu", "EU"]
)
def test_text_is_a_part_of_name_task_or_tags_whatever_its_case(
    db: sqlite3.Connection, text: str
) -> None:
    wanted: dict[str, dict[str, Any]] = {
        "by name": {"name": "compare A", "task": ""},
        "by task": {"task": "Die Größe der STRASSE: 5 % _X"},
        "by tag": {"tags": ("slow", "EU")},
    }
    fits = {
        "COMPARE": ["by name"],
        "are a": ["by name"],
        "größe": ["by task"],
        "GRÖSSE": ["by task"],
        "Straße": ["by task"],
        "strasse": ["by task"],
        "%": ["by task"],
        "_x": ["by task"],
        "eu": ["by tag"],
        "EU": ["by tag"],
    }
    for run_id, columns in wanted.items():
        add_run(db, run_id, status="completed", **{"task": "other", **columns})

    assert ids(list_runs(db, is_alive=nobody, text=text)) == fits[text]


def test_tags_are_searched_one_by_one(db: sqlite3.Connection) -> None:
    add_run(db, "a", status="completed", tags=("slow", "EU"))

    assert list_runs(db, is_alive=nobody, text='", "') == []
    assert list_runs(db, is_alive=nobody, text="wE") == []


def test_runs_of_a_thread_are_listed_by_its_id(db: sqlite3.Connection) -> None:
    for run, thread in (("a", "t"), ("b", "t.1"), ("c", "t"), ("d", "t")):
        status = None if run == "d" else "completed"
        add_run(db, run, thread_id=thread, name=f"nr {run}", status=status)
    assert ids(list_runs(db, is_alive=nobody, thread="t")) == ["d", "c", "a"]
    assert ids(list_runs(db, is_alive=nobody, thread="t", limit=1)) == ["d"]
    assert ids(list_runs(db, is_alive=nobody, thread="t", status="completed")) == ["c", "a"]
    assert ids(list_runs(db, is_alive=nobody, thread="t", text="NR A")) == ["a"]
    assert ids(list_runs(db, is_alive=nobody, thread="nobody")) == []


@pytest.mark.parametrize("limit", [0, -1, 2.5, "5", True])
def test_limit_is_a_whole_number_above_0(db: sqlite3.Connection, limit: object) -> None:
    with pytest.raises(ValueError, match="`limit` must be a whole number above 0, or None"):
        list_runs(db, is_alive=nobody, limit=limit)  # type: ignore[arg-type]


def test_unknown_status_names_the_known_ones(db: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match=r"running, completed, .* interrupted, not 'done'"):
        list_runs(db, is_alive=nobody, status="done")


def test_text_is_a_text(db: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="`text` must be a part of a run's name, task or tags"):
        list_runs(db, is_alive=nobody, text=5)  # type: ignore[arg-type]


# -- by the beginning of an id ------------------------------------------------------------------


def test_run_is_found_by_its_id_and_by_any_beginning_that_only_it_has(
    db: sqlite3.Connection,
) -> None:
    numbers = {each: add_run(db, each, status="completed") for each in ("7f01", "7f1a", "8")}

    for beginning, run_id in {"7f01": "7f01", "7f0": "7f01", " 7f1 ": "7f1a", "8": "8"}.items():
        assert find_run(db, beginning) == numbers[run_id]
        info = info_of(db, numbers[run_id], is_alive=nobody)
        assert info is not None
        assert info.id == run_id


def test_whole_id_counts_more_than_the_beginning_of_another(db: sqlite3.Connection) -> None:
    number = add_run(db, "7f", status="completed")
    add_run(db, "7f01", status="completed")

    assert find_run(db, "7f") == number


@pytest.mark.parametrize("run", ["", " ", "9", "7f011", "7F", "%", "7f0_", "7f\0"])
def test_run_that_is_not_there(db: sqlite3.Connection, run: str) -> None:
    add_run(db, "7f01", status="completed")

    with pytest.raises(NoSuchRun) as caught:
        find_run(db, run)

    assert caught.value.run == run


def test_beginning_of_several_ids_names_them_newest_first(db: sqlite3.Connection) -> None:
    for run_id in ("7f01", "7f1a", "8"):
        add_run(db, run_id, status="completed")

    with pytest.raises(AmbiguousRun) as caught:
        find_run(db, "7f")

    assert (caught.value.run, caught.value.known) == ("7f", ("7f1a", "7f01"))


@given(st.lists(st.text("01ab", min_size=1, max_size=4), unique=True), st.text("01ab", max_size=3))
def test_find_agrees_with_looking_at_every_id(known: list[str], beginning: str) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT UNIQUE)")
    db.executemany("INSERT INTO runs (run_id) VALUES (?)", [(each,) for each in known])
    fitting = [each for each in known if each.startswith(beginning)]

    if beginning in known:
        assert find_run(db, beginning) == known.index(beginning) + 1
    elif not beginning or not fitting:
        with pytest.raises(NoSuchRun):
            find_run(db, beginning)
    elif len(fitting) == 1:
        assert find_run(db, beginning) == known.index(fitting[0]) + 1
    else:
        with pytest.raises(AmbiguousRun) as caught:
            find_run(db, beginning)
        assert caught.value.known == tuple(reversed(fitting))
    db.close()


@pytest.mark.parametrize("run", [None, 5, b"7f"])
def test_id_is_a_text(run: object) -> None:
    with pytest.raises(ValueError, match="`run` must be the id of a run, or its beginning"):
        check_id(run)  # type: ignore[arg-type]


def test_run_that_was_deleted_has_no_info(db: sqlite3.Connection) -> None:
    assert info_of(db, 1, is_alive=nobody) is None


def test_list_can_be_shown_without_the_database_and_the_prices() -> None:
    said = run_python("""
        import sys
        import agentnb.store.place, agentnb.store.runs, agentnb.store.upkeep
        print([each for each in ("sqlite3", "genai_prices", "pydantic") if each in sys.modules])
    """)

    assert said == "[]\n"


# -- shown --------------------------------------------------------------------------------------


def some_run(number: int = 1, **fields: object) -> RunInfo:
    given: dict[str, object] = {
        "id": f"7f01aa{number}",
        "name": "",
        "tags": (),
        "task": "Compare A and B",
        "status": AgentStatus.COMPLETED,
        "model": "demo/small",
        "agents": 4,
        "tokens_used": 1_234,
        "started_at": datetime.fromtimestamp(NOW, UTC),
        "duration_ms": 98_765,
        "thread_id": "nb_20261120_abcdef",
        "session_id": "5e55",
        "cost_of": {"7f01aa1": 0.5}.get,
    }
    return RunInfo(**{**given, **fields})  # type: ignore[arg-type]


def test_list_and_its_runs_show_no_ids_and_no_times() -> None:
    runs = RunList([some_run(), some_run(2, name="compare", status=AgentStatus.FAILED, agents=1)])
    bundle = bundle_of(runs)

    assert set(bundle) == {"text/plain", "text/html"}
    for text in (*bundle.values(), repr(runs), repr(runs[0])):
        assert not re.search("7f01|nb_|5e55|2026|98|0.5", text)
    for word in ("Compare A and B", "✓ completed", "compare", "failed", "1,234", "4", "tokens"):
        assert word in bundle["text/html"]


def test_words_of_a_list_and_a_run_are_one_line() -> None:
    runs = RunList([some_run(), some_run(task="two\nlines", tokens_used=0, agents=1)])

    assert repr(runs) == "RunList(2 runs: 2 completed)"
    assert repr(runs[:1]) == "RunList(1 run: 1 completed)"
    assert repr(RunList()) == "RunList(no runs)"
    assert repr(runs[0]) == "RunInfo('Compare A and B': completed, 4 agents, 1,234 tokens)"
    assert repr(runs[1]) == "RunInfo('two lines': completed, 1 agent, no tokens)"
    assert bundle_of(runs)["text/plain"] == repr(runs)


def test_empty_list_has_no_table() -> None:
    assert "<table>" not in bundle_of(RunList())["text/html"]


def test_long_list_shows_a_page_and_counts_the_rest() -> None:
    html = bundle_of(RunList(some_run(number) for number in range(ROWS + 5)))["text/html"]

    assert html.count("<tr>") == ROWS + 1
    assert "… and 5 more" in html


def test_records_are_flat_and_whole() -> None:
    record = RunList([some_run(name="compare", tags=("a", "b"))]).to_records()[0]

    assert record == {
        "id": "7f01aa1",
        "name": "compare",
        "tags": ["a", "b"],
        "task": "Compare A and B",
        "status": "completed",
        "model": "demo/small",
        "agents": 4,
        "tokens_used": 1_234,
        "cost_usd": 0.5,
        "started_at": datetime.fromtimestamp(NOW, UTC),
        "duration_ms": 98_765,
        "thread_id": "nb_20261120_abcdef",
        "session_id": "5e55",
    }
    assert type(record["status"]) is str


def test_list_is_copied_and_pickled() -> None:
    runs = RunList([some_run()])

    assert copy.copy(runs) == copy.deepcopy(runs) == runs
    assert pickle.loads(pickle.dumps(runs)) == runs
    assert repr(pickle.loads(pickle.dumps(runs))) == repr(runs)
    assert pickle.loads(pickle.dumps(runs))[0].cost_usd is None
