"""Calls that are used no more: they are marked, named, taken out, and wanted again."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentnb.__main__ import WRONG, main
from agentnb.cassette import Cassette, prune, unused
from tests.cassette.runs import Handed, changed, content, lines_of, places


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lesson.cassette.jsonl"


async def run_of(
    path: Path, part: str, mode: str = "auto", status: str = "completed", label: str = "a run"
) -> None:
    """A run in which agent 1 is asked for `part`; with another one the root's end differs, too."""
    run = Handed(path, label, mode)
    run.call("root", "begin")
    run.call("1", f"look into {part}", f"found {part}")
    run.tool("1", {"part": part})
    run.end("1", text=f"found {part}")
    run.call("2", "the other part")
    run.end("2")
    run.call("root", f"1 found {part}", "in all")
    run.call("root", "and last", "at last")
    await run.finish(status)


async def test_after_one_prompt_was_edited_just_its_calls_and_later_ones_above_are_in_the_diff(
    path: Path,
) -> None:
    await run_of(path, "tides")
    before = content(path)
    await run_of(path, "winds")
    after = content(path)

    assert places(changed(before, after)) == {
        ("call", "1", 1),
        ("tool_call", "1", 1),
        ("end", "1", None),
        ("call", "root", 2),
        ("call", "root", 3),
    }
    assert [each["number"] for each in lines_of(path) if each.get("unused")] == [2, 3, 1, 1]


async def test_unused_calls_are_named_with_agent_number_and_words(path: Path) -> None:
    await run_of(path, "tides")
    assert unused(Cassette.read(path)) == ()
    await run_of(path, "winds")

    found = unused(Cassette.read(path))

    assert [(each.path, each.number, bool(each.key)) for each in found] == [
        ("root", 2, True),
        ("root", 3, True),
        ("1", 1, True),
        ("1", 1, False),
    ]
    assert found[2].begins == "look into tides"
    assert "agent 1, call 1" in str(found[2])
    assert "tides" in str(found[2])


async def test_what_was_used_may_be_given(path: Path) -> None:
    await run_of(path, "tides")
    cassette = Cassette.read(path)
    used = [(c.path, c.number, c.key) for c in cassette.calls("a run") if c.path != "2"]

    assert [each.path for each in unused(cassette, {"a run": used})] == ["2"]
    assert unused(cassette, {"another": []}) == ()


async def test_prompt_that_is_changed_back_is_used_again(path: Path) -> None:
    await run_of(path, "tides")
    before = Cassette.read(path).journal("a run")
    await run_of(path, "winds")
    await run_of(path, "tides")

    cassette = Cassette.read(path)
    assert {each.begins for each in unused(cassette) if each.key} >= {"look into winds"}
    after = cassette.journal("a run")
    assert [call.key for call in after.calls] == [call.key for call in before.calls]
    assert after.tool_calls[0].input == {"part": "tides"}
    assert len(cassette.calls("a run")) == 8


async def test_prune_takes_out_what_is_not_used_and_nothing_else(path: Path) -> None:
    await run_of(path, "winds")
    expected = Cassette.read(path)
    path.unlink()  # noqa: ASYNC240
    await run_of(path, "tides", label="another")
    await run_of(path, "tides")
    await run_of(path, "winds")
    rest = [each for each in lines_of(path) if not each.get("unused")]

    gone = prune(path)

    assert len(gone) == 4
    assert lines_of(path) == rest
    assert Cassette.read(path).calls("a run") == expected.calls("a run")
    before = content(path)
    assert prune(path) == ()
    assert content(path) == before


async def test_prune_of_a_call_that_others_go_on_from_keeps_what_they_say(path: Path) -> None:
    await run_of(path, "tides")
    text = content(path).replace('"duration_ms":200}', '"duration_ms":200,"unused":true}', 1)
    path.write_bytes(text.encode())  # noqa: ASYNC240
    before = Cassette.read(path).calls("a run")

    (gone,) = prune(path)

    assert (gone.path, gone.number) == ("root", 1)
    after = Cassette.read(path).calls("a run")
    assert [call.request for call in after] == [call.request for call in before[1:]]
    assert after == before[1:]


async def test_run_that_failed_marks_only_what_it_did_otherwise(path: Path) -> None:
    await run_of(path, "tides")
    run = Handed(path, mode="auto")
    run.call("root", "begin")
    run.call("1", "look into winds")
    await run.finish("failed")

    assert [(each.path, each.number) for each in unused(Cassette.read(path))] == [("1", 1)]


async def test_run_that_was_cancelled_marks_all_that_it_did_not_come_to(path: Path) -> None:
    """In a replay nothing may stand behind the cancel."""
    await run_of(path, "tides")
    recorded = {(each.path, each.number) for each in Cassette.read(path).calls("a run")}
    run = Handed(path, mode="auto")
    run.call("root", "begin")
    await run.finish("cancelled")

    cassette = Cassette.read(path)
    marked = {(each.path, each.number) for each in unused(cassette) if each.key}
    assert marked == recorded - {("root", 1)}
    assert len(cassette.calls("a run")) == len(recorded)  # the next `auto` finds them


async def test_record_leaves_nothing_unused(path: Path) -> None:
    await run_of(path, "tides")
    await run_of(path, "winds")
    await run_of(path, "rain", mode="record")

    assert unused(Cassette.read(path)) == ()
    assert len(Cassette.read(path).calls("a run")) == 5


async def test_command_prunes_each_file_and_names_the_calls(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_of(path, "tides")
    await run_of(path, "winds")

    assert main(["cassette", "prune", str(path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{path}: 4 calls removed"
    assert len(said) == 5
    assert "look into tides" in said[3]
    assert main(["cassette", "prune", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: no unused calls in its runs ('a run')")


async def test_command_tells_of_a_file_that_is_wrong_and_sees_to_the_others(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_of(path, "tides")
    wrong = path.with_name("wrong")
    wrong.write_text("no cassette\n", encoding="utf-8")

    assert main(["cassette", "prune", str(wrong), str(path.with_name("none")), str(path)]) == WRONG

    told = capsys.readouterr()
    assert "line 1" in told.err
    assert "no such file" in told.err
    assert str(path) in told.out
    assert wrong.read_bytes() == b"no cassette\n"
