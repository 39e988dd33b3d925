"""Recording into a file: while a run goes on, at its end, anew, in `auto`, and by several."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentnb.cassette import Cassette, CassetteJournal
from agentnb.core.records import STARTED, RunHead, VerdictRecord
from agentnb.core.types import Usage
from tests.cassette.runs import Handed, changed, content, lines_of, places, recorded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lesson.cassette.jsonl"


async def whole(
    path: Path, label: str = "a run", answer: str = "an answer", mode: str = "record"
) -> None:
    """A run of a root and two children, each with two calls."""
    run = Handed(path, label, mode)
    run.call("root", "begin")
    for child in ("1", "2"):
        run.call(child, f"part {child}")
        run.call(child, "go on", answer if child == "1" else "an answer")
        run.end(child, text=answer if child == "1" else "an answer")
    run.verdict("root", "admitted", {"numbers": [1, 2], "refused": []})
    run.call("root", f"results: {answer}", f"in all: {answer}")
    await run.finish()


# -- while it goes on ---------------------------------------------------------------------------


async def test_what_has_finished_is_in_the_file_after_a_commit(path: Path) -> None:
    run = Handed(path)
    run.call("2", "two")
    await run.commit()
    run.call("1", "one")
    await run.commit()
    run.call("1", "not committed")

    cassette = Cassette.read(path)
    assert [(c.path, c.number) for c in cassette.calls("a run")] == [("1", 1), ("2", 1)]
    assert any("did not end" in note for note in cassette.notes)
    assert cassette.journal("a run").ends == ()


async def test_what_has_not_finished_is_not_recorded(path: Path) -> None:
    run = Handed(path)
    call = run.call("root", "go")
    run.journal.intend(replace(call, number=2, status=STARTED))
    run.journal.keep(replace(call, number=3, status=STARTED))
    run.journal.published([])
    await run.finish()

    assert [call.number for call in Cassette.read(path).calls("a run")] == [1]


async def test_at_the_end_of_the_run_the_file_is_in_order(path: Path) -> None:
    run = Handed(path)
    for child in ("2", "1"):
        run.call(child, "go")
        await run.commit()
    before = content(path)
    await run.finish()

    assert "recording" in before
    assert "recording" not in content(path)
    assert [each["path"] for each in lines_of(path) if each.get("kind") == "call"] == ["1", "2"]
    assert Cassette.read(path).notes == ()


async def test_recording_that_died_leaves_the_earlier_one_until_a_call_has_finished(
    path: Path,
) -> None:
    await whole(path)
    before = content(path)
    run = Handed(path)
    run.verdict("root", "recalled", [])
    await run.commit()
    assert content(path) == before

    run.call("root", "begin", "otherwise")
    await run.commit()

    assert content(path).startswith(before)
    assert [c.text for c in Cassette.read(path).calls("a run")] == ["otherwise"]


async def test_killed_process_leaves_a_file_that_reads(path: Path) -> None:
    await whole(path, "another")
    code = f"""
import asyncio, os, pathlib
from tests.cassette.runs import Handed
async def main():
    run = Handed(pathlib.Path({str(path)!r}))
    for n in range(5):
        run.call("root", f"part {{n}}")
        await run.commit()
    run.call("root", "never committed")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False)

    assert ended.returncode == -9
    cassette = Cassette.read(path)
    assert len(cassette.calls("a run")) == 5
    assert len(cassette.calls("another")) == 6


async def test_line_that_a_kill_cut_is_gone_when_the_next_run_appends(path: Path) -> None:
    run = Handed(path)
    run.call("root", "one")
    run.call("root", "two")
    await run.commit()
    os.truncate(path, len(content(path).encode()) - 20)
    run = Handed(path, "next")
    run.call("root", "one")
    await run.commit()
    assert len(Cassette.read(path).calls("a run")) == 1

    await run.finish()
    assert Cassette.read(path).labels == ("next", "a run")


async def test_last_line_without_an_end_gets_one(path: Path) -> None:
    await whole(path)
    os.truncate(path, len(content(path).encode()) - 1)
    run = Handed(path, "next")
    run.call("root", "one")
    await run.commit()

    assert Cassette.read(path).labels == ("a run", "next")
    assert Cassette.read(path).journal("a run").ends[-1].path is None


async def test_empty_file_and_no_file_are_recorded_into(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "none"):
        await whole(tmp_path / name)
        assert Cassette.read(tmp_path / name).labels == ("a run",)


async def test_run_without_a_finished_call_is_recorded_at_its_end(path: Path) -> None:
    await Handed(path).finish("failed")

    journal = Cassette.read(path).journal("a run")
    assert journal.calls == ()
    assert [end.status for end in journal.ends] == ["failed", "failed"]


async def test_close_keeps_what_came_without_a_commit_and_a_second_one_does_nothing(
    path: Path,
) -> None:
    run = Handed(path)
    run.call("root", "go")
    run.journal.close()
    run.journal.close()

    assert len(Cassette.read(path).calls("a run")) == 1


def test_nothing_comes_before_a_run_has_begun(path: Path) -> None:
    journal = CassetteJournal(path, "a run")

    with pytest.raises(RuntimeError, match="begin"):
        journal.keep(VerdictRecord("root", 1, "told", 3))


def test_mode_that_records_nothing_is_an_error(path: Path) -> None:
    with pytest.raises(ValueError, match="replay"):
        CassetteJournal(path, "a run", "replay")


async def test_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    link, real = tmp_path / "link", tmp_path / "real"
    link.symlink_to(real)
    real.touch()
    await whole(link)

    assert link.is_symlink()
    assert Cassette.read(real).labels == ("a run",)


async def test_folder_that_cannot_be_written_fails_the_commit(tmp_path: Path) -> None:
    run = Handed(tmp_path / "no folder" / "a")
    run.call("root", "go")

    with pytest.raises(OSError, match="No such file"):
        await run.commit()


# -- anew ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["record", "auto"])
async def test_recording_the_same_again_changes_no_byte(path: Path, mode: str) -> None:
    run = Handed(path)
    run.call("root", "begin")
    run.order("budget", 5)
    run.order("budget", 5)
    await run.finish()
    before = content(path)
    run = Handed(path, mode=mode)
    run.at_s = 77.0  # nothing but times differs
    run.call("root", "begin", duration_ms=3)
    run.order("budget", 5)
    run.order("budget", 5)
    await run.finish()

    assert content(path) == before


@pytest.mark.parametrize(
    ("mode", "answer", "day"),
    [
        ("record", "an answer", "2026-11-01"),  # the same again: no byte changes
        ("record", "a better answer", "2026-11-30"),
        ("auto", "a better answer", "2026-11-01"),
    ],
)
async def test_day_of_a_run_is_that_of_its_recording(
    path: Path, mode: str, answer: str, day: str
) -> None:
    begun = datetime(2026, 11, 1, 23, 59, tzinfo=UTC).timestamp()
    run = Handed(path, head={"started_at": begun})
    run.call("root", "begin")
    await run.finish()

    run = Handed(path, mode=mode, head={"started_at": begun + 29 * 24 * 3600})
    run.call("root", "begin", answer)
    await run.finish()

    head = Cassette.read(path).journal("a run").head
    assert head.started_at == datetime.fromisoformat(f"{day}T00:00:00Z").timestamp()
    assert content(path).count(day) == 1


async def test_live_run_that_is_recorded_twice_is_the_same_file(path: Path) -> None:
    await recorded(path)
    before = content(path)
    await recorded(path)

    assert content(path) == before


async def test_only_what_changed_differs_when_a_child_is_recorded_anew(path: Path) -> None:
    await whole(path)
    before = content(path)
    await whole(path, answer="a better answer")

    assert places(changed(before, content(path))) == {
        ("call", "1", 2),
        ("end", "1", None),
        ("call", "root", 2),
    }


async def test_record_takes_the_place_of_its_label_and_leaves_the_others(path: Path) -> None:
    for label in ("a", "b", "c"):
        await whole(path, label)
    before = lines_of(path)
    run = Handed(path, "b")
    run.call("root", "something else")
    await run.finish()

    after = lines_of(path)
    assert [x for x in after if x.get("run") != "b"] == [x for x in before if x.get("run") != "b"]
    assert len(Cassette.read(path).calls("b")) == 1
    assert Cassette.read(path).labels == ("a", "b", "c")


async def test_more_tokens_or_another_stop_are_no_times(path: Path) -> None:
    for usage in (Usage(1, 2), Usage(1, 3)):
        run = Handed(path)
        run.call("root", "go", usage=usage)
        await run.finish()

    assert Cassette.read(path).calls("a run")[0].usage == Usage(1, 3)


# -- auto ---------------------------------------------------------------------------------------


async def test_auto_adds_the_calls_that_were_not_there_and_keeps_the_others_as_they_are(
    path: Path,
) -> None:
    await whole(path)
    before = content(path).split("\n")
    run = Handed(path, mode="auto")
    run.call("root", "begin")
    run.call("1", "part 1")
    run.call("1", "go on, please", "another answer")
    await run.commit()
    appended = content(path).split("\n")[len(before) - 1 :]

    assert content(path).split("\n")[: len(before) - 1] == before[:-1]
    assert [line for line in appended if '"call"' in line and '"go on, please"' not in line] == []
    calls = Cassette.read(path).calls("a run")
    assert [(c.path, c.number) for c in calls].count(("1", 2)) == 2
    assert Cassette.read(path).journal("a run").calls[3].text == "another answer"


async def test_auto_keeps_a_reply_that_was_replaced_from_changing_what_went_on_from_it(
    path: Path,
) -> None:
    run = Handed(path)
    run.call("root", "begin", "cut", stop_reason="max_tokens")
    second = run.call("root", "go on")
    await run.finish()
    run = Handed(path, mode="auto")
    run.call("root", "begin", "cut later", stop_reason="max_tokens")
    await run.finish()

    first, kept = Cassette.read(path).calls("a run")
    assert first.text == "cut later"
    assert kept.request == second.request


async def test_orders_verdicts_and_ends_are_those_of_the_newest_run_that_ended(path: Path) -> None:
    run = Handed(path)
    run.call("root", "begin")
    run.verdict("root", "clamped", {"call": 1, "max_tokens": 5, "limited_by": "it"})
    run.verdict("root", "recalled", [])
    run.order("answer", "more")
    run.end("1")
    await run.finish()
    run = Handed(path, mode="auto")
    run.call("root", "begin")
    run.verdict("root", "clamped", {"call": 1, "max_tokens": 9, "limited_by": "it"})
    await run.commit()
    under_way = Cassette.read(path).journal("a run")
    await run.finish()
    journal = Cassette.read(path).journal("a run")

    assert [verdict.kind for verdict in under_way.verdicts] == ["clamped", "recalled"]
    assert [verdict.value["max_tokens"] for verdict in journal.verdicts] == [9]
    assert journal.orders == ()
    assert [end.path for end in journal.ends] == ["root", None]


async def test_ends_come_leaves_first_whatever_their_times(path: Path) -> None:
    run = Handed(path)
    for child, at_s in (("1", 5.0), ("2.1", 9.0), ("2", 1.0), ("3", 2.0)):
        run.at_s = at_s
        run.end(child)
    run.at_s = 0.0
    await run.finish()

    ends = Cassette.read(path).journal("a run").ends
    assert [end.path for end in ends] == ["3", "1", "2.1", "2", "root", None]


# -- several ------------------------------------------------------------------------------------


async def test_runs_of_one_loop_record_into_one_file_at_the_same_time(path: Path) -> None:
    runs = [Handed(path, label) for label in "abcd"]
    for turn in range(3):
        for run in runs:
            run.call("root", f"turn {turn}")
        await asyncio.gather(*(run.commit() for run in runs))
    await asyncio.gather(*(run.finish() for run in runs))

    cassette = Cassette.read(path)
    assert sorted(cassette.labels) == [*"abcd"]
    assert [len(cassette.calls(label)) for label in "abcd"] == [3] * 4
    assert "recording" not in content(path)


async def test_run_that_ends_leaves_those_under_way_their_lines(path: Path) -> None:
    long, short = Handed(path, "long"), Handed(path, "short")
    long.call("root", "one")
    await long.commit()
    short.call("root", "one")
    await short.finish()
    assert len(Cassette.read(path).calls("long")) == 1
    long.call("root", "two")
    await long.commit()
    assert len(Cassette.read(path).calls("long")) == 2
    await long.finish()

    cassette = Cassette.read(path)
    assert [len(cassette.calls(label)) for label in ("long", "short")] == [2, 1]


def test_sessions_of_several_threads_record_into_one_file(path: Path) -> None:
    def record(label: str) -> None:
        for _ in range(3):
            asyncio.run(whole(path, label))

    threads = [threading.Thread(target=record, args=(label,)) for label in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    cassette = Cassette.read(path)
    assert [len(cassette.calls(label)) for label in "abcd"] == [6] * 4


async def test_processes_do_not_lose_each_others_lines(path: Path) -> None:
    code = """
import asyncio, pathlib, sys
from tests.cassette.runs import Handed
async def main(path, label):
    for n in range(3):
        run = Handed(path, f"{label}{n}")
        for turn in range(5):
            run.call("root", f"turn {turn}")
            await run.commit()
        await run.finish()
asyncio.run(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
"""
    command = [sys.executable, "-c", code, str(path)]
    started = [subprocess.Popen([*command, label]) for label in "ab"]  # noqa: ASYNC220
    assert [await asyncio.to_thread(each.wait) for each in started] == [0, 0]

    cassette = Cassette.read(path)
    assert sorted(cassette.labels) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [len(cassette.calls(label)) for label in cassette.labels] == [5] * 6


async def test_journal_says_in_one_line_what_it_is(path: Path) -> None:
    journal = CassetteJournal(path, "a run", "auto")
    journal.begin(RunHead("run", "nb", "the task", "demo/any"))

    assert repr(journal) == f"CassetteJournal({str(path)!r}, 'a run', 'auto')"
