"""A file that is no cassette, or a damaged one: an error with the line, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentnb.cassette import BadCassette, Cassette, CassetteJournal, prune
from agentnb.cassette.lines import content_of
from agentnb.cassette.schema import can_be_read, read_line
from agentnb.core.errors import AgentnbError
from agentnb.errors import UPDATE
from tests.cassette.runs import Handed, content
from tests.support import examples


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("valid") / "a.cassette.jsonl"

    async def record() -> None:
        for label in ("one", "two"):
            run = Handed(path, label)
            run.call("root", "begin, é")
            run.call("root", "go on")
            run.tool("root", {"at": 1})
            run.verdict("root", "admitted", {"numbers": [1], "refused": []})
            run.call("1", "a part")
            run.order("cancel", {"agent": "1", "reason": "enough"})
            run.end("1", "cancelled")
            await run.finish()

    asyncio.run(record())
    return path.read_bytes()


def read(tmp_path: Path, data: bytes) -> Cassette:
    """Read the bytes, and all that can be made of them; they stay as they are."""
    path = tmp_path / "a.cassette.jsonl"
    path.write_bytes(data)
    try:
        cassette = Cassette.read(path)
        for label in cassette.labels:
            for call in (*cassette.journal(label).calls, *cassette.calls(label)):
                assert call.request.messages is not None
        return cassette
    finally:
        assert path.read_bytes() == data


def bad(tmp_path: Path, data: bytes) -> BadCassette:
    with pytest.raises(BadCassette) as caught:
        read(tmp_path, data)
    error = caught.value
    assert isinstance(error, AgentnbError)
    assert error.path == str(tmp_path / "a.cassette.jsonl")
    assert str(error.path) in str(error)
    assert error.fix in str(error)
    with pytest.raises(BadCassette):  # nothing is recorded into it either
        CassetteJournal(tmp_path / "a.cassette.jsonl", "one")
    with pytest.raises(BadCassette):
        prune(tmp_path / "a.cassette.jsonl")
    assert (tmp_path / "a.cassette.jsonl").read_bytes() == data
    return error


def test_run_without_the_line_that_says_what_it_was_is_an_error(
    tmp_path: Path, valid: bytes
) -> None:
    lines = valid.splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines, 1) if b'"run":"two"' in line)
    del lines[place - 1]

    error = bad(tmp_path, b"".join(lines))

    assert error.line == place
    assert "'two'" in str(error)


def line_or_none(tmp_path: Path, data: bytes) -> int | None:
    """The line of the error; `None` if the bytes are read."""
    try:
        read(tmp_path, data)
    except BadCassette as error:
        return error.line or 0
    return None


def edited(data: bytes, line: int, change: Callable[[dict[str, Any]], object]) -> bytes:
    lines = data.split(b"\n")
    fields = json.loads(lines[line - 1])
    change(fields)
    lines[line - 1] = json.dumps(fields).encode()
    return b"\n".join(lines)


def line_of(data: bytes, **wanted: object) -> int:
    """The first line, from 1, with these fields."""
    for place, line in enumerate(data.split(b"\n"), 1):
        fields = json.loads(line)
        if all(fields.get(name) == value for name, value in wanted.items()):
            return place
    raise AssertionError("no such line")


def test_valid_file_reads_whole_and_without_notes(tmp_path: Path, valid: bytes) -> None:
    cassette = read(tmp_path, valid)

    assert cassette.labels == ("one", "two")
    assert len(cassette.journal("two").calls) == 3
    assert cassette.notes == ()


def test_every_cut_is_read_or_named_with_its_line(tmp_path: Path, valid: bytes) -> None:
    head = valid.index(b"\n")
    for at in range(1, head):
        assert bad(tmp_path, valid[:at]).line == 1
    for at in range(head, len(valid)):
        cut = valid[:at]
        is_whole = at == head or cut.endswith(b"\n") or valid[at : at + 1] == b"\n"
        found = content_of(cut, "a")
        assert len(found.lines) == cut.count(b"\n") - 1 + (is_whole and valid[at - 1 : at] == b"}")
        last = cut.count(b"\n") + 1
        assert [f"line {last}, " in note for note in found.notes] == ([] if is_whole else [True])


def test_line_that_is_cut_elsewhere_is_an_error_at_that_line(tmp_path: Path, valid: bytes) -> None:
    lines = valid.split(b"\n")
    for place in range(1, len(lines) - 2):
        cut = [*lines[:place], lines[place][:-9], *lines[place + 1 :]]
        assert bad(tmp_path, b"\n".join(cut)).line == place + 1


@pytest.mark.parametrize("mark", [b"<<<<<<< HEAD", b"=======", b">>>>>>> theirs", b"||||||| 3fa"])
@pytest.mark.parametrize("line", [1, 5])
def test_conflict_of_git_is_named_with_its_line(
    tmp_path: Path, valid: bytes, mark: bytes, line: int
) -> None:
    lines = valid.split(b"\n")
    error = bad(tmp_path, b"\n".join([*lines[: line - 1], mark, *lines[line - 1 :]]))

    assert error.line == line
    assert "conflict" in error.why
    assert "Keep one side" in error.fix


def test_newer_file_says_to_update(tmp_path: Path, valid: bytes) -> None:
    error = bad(tmp_path, valid.replace(b'"agentnb_cassette": 1', b'"agentnb_cassette": 2'))

    assert (error.line, "version 2" in error.why) == (1, True)
    assert error.fix == UPDATE


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b"\n\n", 1),
        (b'{"nbformat": 4, "cells": []}', 1),
        (b"\x89PNG\r\n\x1a\n\x00\x00", 1),
        (b"SQLite format 3\x00", 1),
        (b"name,value\na,1\n", 1),
        (b'{"agentnb_cassette": true}\n', 1),
        (b'{"agentnb_cassette": "1"}\n', 1),
        (b'{"agentnb_cassette": 0}\n', 1),
        (b'{"agentnb_cassette": 1}\n\xff\xfe\n', 2),
        (b'{"agentnb_cassette": 1}\n{"kind":"run","run":"a","task":"\xe9","model":"m"}\n', 2),
        (b'{"agentnb_cassette": 1}\n[]\n', 2),
        (b'{"agentnb_cassette": 1}\n' + b"[" * 100_000 + b"\n", 2),
        (b"[" * 100_000, 1),
    ],
)
def test_empty_or_foreign_file_is_named(tmp_path: Path, data: bytes, line: int) -> None:
    if data == b"":  # what is recorded into it takes nothing away
        with pytest.raises(BadCassette) as caught:
            read(tmp_path, data)
        assert caught.value.line == 1
        return
    assert bad(tmp_path, data).line == line


WRONG: list[tuple[dict[str, object], str, object]] = [
    ({"kind": "call"}, "number", 0),
    ({"kind": "call"}, "number", True),
    ({"kind": "call"}, "number", "1"),
    ({"kind": "call"}, "path", "root.1"),
    ({"kind": "call"}, "path", "../1"),
    ({"kind": "call"}, "key", "abc"),
    ({"kind": "call"}, "at_s", -1),
    ({"kind": "call"}, "duration_ms", 1.5),
    ({"kind": "call"}, "usage", [1, 2, 3]),
    ({"kind": "call"}, "usage", [1, 2, 3, -4]),
    ({"kind": "call"}, "piece_lengths", []),
    ({"kind": "call"}, "piece_ms", [1]),
    ({"kind": "call"}, "reply", {"role": "system", "content": ""}),
    ({"kind": "call"}, "reply", {"role": "user", "content": [{"kind": "image_block"}]}),
    ({"kind": "call"}, "error", {"class": "Overloaded"}),
    ({"kind": "call"}, "request", {"new": [], "max_tokens": 5}),
    ({"kind": "call"}, "request", {"new": ["reply"], "max_tokens": 5, "system": ""}),
    ({"kind": "call"}, "request", {"new": [], "kept": 3, "max_tokens": 5, "system": ""}),
    ({"kind": "tool_call"}, "input", []),
    ({"kind": "tool_call"}, "result", None),
    ({"kind": "verdict"}, "value", []),
    ({"kind": "verdict"}, "value", {"numbers": [1]}),
    ({"kind": "order"}, "what", "dance"),
    ({"kind": "order"}, "value", {"agent": "1"}),
    ({"kind": "end"}, "status", "running"),
    ({"kind": "end"}, "status", "done"),
    ({"kind": "run"}, "task", None),
    ({"kind": "run"}, "run", ""),
    ({"kind": "run"}, "kind", "event"),
    ({"kind": "run"}, "budget", -1),
    ({"kind": "run"}, "date", "yesterday"),
    ({"kind": "run"}, "date", "2026-02-30"),
]


@pytest.mark.parametrize(("where", "name", "value"), WRONG)
def test_wrong_value_is_an_error_at_its_line(
    tmp_path: Path, valid: bytes, where: dict[str, object], name: str, value: object
) -> None:
    lines = valid[: valid.rindex(b"\n")]
    place = line_of(lines, **where)

    error = bad(tmp_path, edited(valid, place, lambda fields: fields.update({name: value})))

    assert error.line == place
    assert name.partition("_")[0] in error.why


@pytest.mark.parametrize(
    "change",
    [
        {"after": "7:0123456789ab"},
        {"after": "2:0123456789ab"},
        {"kept": 9},
    ],
)
def test_call_that_goes_on_from_nothing_is_an_error_at_its_line(
    tmp_path: Path, valid: bytes, change: dict[str, object]
) -> None:
    place = line_of(valid[: valid.rindex(b"\n")], kind="call", number=2)

    error = bad(tmp_path, edited(valid, place, lambda fields: fields["request"].update(change)))

    assert error.line == place


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("call", "stop_reason", "x"), ("verdict", "what", "lost_"), ("end", "text", "x"),
     ("run", "task", "x"), ("tool_call", "result", "x")],
)  # fmt: skip
def test_line_that_contradicts_another_is_an_error(
    tmp_path: Path, valid: bytes, kind: str, name: str, value: object
) -> None:
    lines = valid[: valid.rindex(b"\n")]
    place = line_of(lines, kind=kind)
    twice = lines.split(b"\n")
    twice.insert(place, twice[place - 1])

    assert read(tmp_path, b"\n".join(twice)).notes != ()
    error = bad(
        tmp_path,
        edited(b"\n".join(twice), place + 1, lambda fields: fields.update({name: value})),
    )
    assert error.line == place + 1
    assert f"line {place}" in error.why


def test_unknown_fields_blank_lines_and_ends_of_windows_are_passed_over(
    tmp_path: Path, valid: bytes
) -> None:
    odd = edited(valid, 2, lambda fields: fields.update({"later": {"a": 1}}))

    cassette = read(tmp_path, odd.replace(b"\n", b"\r\n") + b"\r\n\r\n")

    assert len(cassette.journal("one").calls) == 3
    assert cassette.notes == ()


def test_folder_pipe_missing_and_too_large_file_are_named(tmp_path: Path, valid: bytes) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_bytes(valid)
    for path, words in (
        (tmp_path, "folder"),
        (pipe, "pipe"),
        (large, "larger"),
        (tmp_path / "none", "no such file"),
        (Path("a\0b"), ""),
    ):
        with pytest.raises(BadCassette) as caught:
            Cassette.read(path, max_bytes=len(valid) - 1)
        assert words in caught.value.why
        assert caught.value.line is None
        assert caught.value.fix


_fragments = st.sampled_from(
    [b"\n", b'{"kind":"run"}', b"{", b"}", b'"', b"null", b"1e999", b"\\ud800", b"-1", b"\xff"]
)


@settings(max_examples=examples(50), deadline=None)
@given(data=st.binary(max_size=60) | st.lists(_fragments, max_size=12).map(b"".join))
@example(data=b'{"agentnb_cassette": 1}')
def test_no_bytes_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    for whole in (data, b'{"agentnb_cassette": 1}\n' + data):
        found = line_or_none(tmp_path_factory.getbasetemp(), whole)
        assert found is None or found >= 1


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


@settings(max_examples=examples(50), deadline=None)
@given(line=st.integers(0, 10**6), field=st.integers(0, 10**6), value=_values)
def test_line_that_is_checked_by_its_values_can_be_read(
    valid: bytes, line: int, field: int, value: Any
) -> None:
    lines = valid.splitlines()[1:]
    fields = json.loads(lines[line % len(lines)])
    assert can_be_read(fields)
    others = sorted(fields.keys() - {"piece_lengths", "piece_ms"})
    fields[others[field % len(others)]] = value

    if can_be_read(fields):
        read_line(json.dumps(fields).encode(), checks_values=False)


@settings(max_examples=examples(50), deadline=None)
@given(at=st.integers(0, 10**6), length=st.integers(0, 40), put=st.binary(max_size=8) | _fragments)
def test_no_edit_of_a_valid_file_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, valid: bytes, at: int, length: int, put: bytes
) -> None:
    at %= len(valid)
    data = valid[:at] + put + valid[at + length :]
    found = line_or_none(tmp_path_factory.getbasetemp(), data)
    assert found is None or found >= valid[:at].count(b"\n") + 1


async def test_file_that_is_damaged_while_a_run_records_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette.jsonl"
    run = Handed(path)
    run.call("root", "begin")
    await run.commit()
    damaged = content(path).replace('"kind"', "<<<", 1) + "more\n"
    path.write_bytes(damaged.encode())
    run.call("root", "go on")

    with pytest.raises(BadCassette):
        await run.commit()
    with pytest.raises(BadCassette):
        await run.finish()
    assert content(path) == damaged
