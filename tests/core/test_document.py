"""A run as a document: strict JSON, an event on each line, and the same entries when it is read."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.core.errors import UnreadableRun
from agentnb.core.events import (
    AgentSpawned,
    AgentTextDelta,
    Event,
    Row,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.records import STARTED as STARTED_CALL
from agentnb.core.records import ToolCallRecord
from agentnb.core.types import AgentStatus
from agentnb.errors import UPDATE
from agentnb.record import _parse
from agentnb.run_file import read_document, write_document
from tests.core.test_codec import EVENTS, TEXTS

STARTED = RunStarted(task_description="t", model="p/m", budget_total=9, max_depth=3)
SPAWNED = AgentSpawned(agent_id="a", parent_id=None, task_description="t", depth=0)
SAID = AgentTextDelta(agent_id="a", text='She said: "Grüß Gott",\nand left.')
ENDED = RunFinished(status=AgentStatus.COMPLETED, tokens_used=1, duration_ms=2)


def rows_of(*events: Event) -> list[Row]:
    return [row_of(seq / 7, event) for seq, event in enumerate(events)]


def row_of(at_s: float, event: Event) -> Row:
    """As a record keeps it."""
    if isinstance(event, AgentTextDelta):
        return at_s, event.agent_id, event.text
    return at_s, event


def written(*events: Event, task: str = "a task") -> str:
    return write_document("r", task, rows_of(*events), agentnb="1.2.3")


def read(text: str) -> tuple[str, str, list[Row]]:
    """Id, task and rows; `load_run`'s quicker reader of JSON reads the same."""
    document = read_document(text, source="run.json")
    assert read_document(text, source="run.json", parse=_parse) == document
    return document.run_id, document.task, document.rows


def test_document_has_a_head_and_each_event_on_a_line_of_its_own() -> None:
    assert written(STARTED, SAID) == (
        "{\n"
        '"format": "agentnb run",\n'
        '"version": 2,\n'
        '"agentnb": "1.2.3",\n'
        '"run_id": "r",\n'
        '"task": "a task",\n'
        '"entries": [\n'
        '{"at_s": 0.0, "kind": "run_started", "task_description": "t", "model": "p/m", '
        '"budget_total": 9, "max_depth": 3, "thread_id": "", "recovered": 0, "unit": "tokens"},\n'
        '{"at_s": 0.14285714285714285, "kind": "agent_text_delta", "agent_id": "a", '
        '"text": "She said: \\"Grüß Gott\\",\\nand left."}\n'
        "]\n"
        "}\n"
    )


@settings(deadline=None)
@given(
    TEXTS,
    st.lists(st.tuples(st.floats(0, 1e8), EVENTS), max_size=6),
    st.sampled_from([None, 2]),
)
def test_rows_come_back_equal_however_the_document_was_laid_out_since(
    task: str, happened: Sequence[tuple[float, Event]], indent: int | None
) -> None:
    rows = [row_of(at_s, event) for at_s, event in happened]
    document = write_document("r", task, rows, agentnb="")

    laid_out = json.dumps(json.loads(document, parse_constant=pytest.fail), indent=indent)

    assert read(document) == read(laid_out) == ("r", task, rows)
    assert len(document.split("\n")) == 10 + max(1, len(rows))


def test_run_that_has_not_begun_is_a_document_too() -> None:
    assert read(written()) == ("r", "a task", [])


def test_equal_records_make_equal_documents() -> None:
    assert written(STARTED, SAID, ENDED) == written(STARTED, SAID, ENDED)


@pytest.mark.parametrize("acting", ["\ud800", "\x9b31m", "\u202e", "\u2028", "\u0085", "\x1b[2J"])
def test_text_that_acts_on_whoever_looks_at_the_file_is_escaped_and_comes_back(acting: str) -> None:
    said = AgentTextDelta(agent_id="ü", text=acting + "ü")
    spawned = AgentSpawned(agent_id="ü", parent_id=None, task_description=acting + "ü", depth=0)

    document = written(spawned, said, task=acting)

    assert acting[0] not in document
    assert document.count("ü") == 4
    assert document.encode().decode() == document
    assert read(document) == ("r", acting, rows_of(spawned, said))


def test_deltas_are_read_as_light_rows_that_share_their_agents_id() -> None:
    said = [AgentTextDelta(agent_id="".join(["nb_", "1"]), text=text) for text in ("one", "two")]

    rows = read(written(STARTED, *said))[2]

    assert rows[1:] == [(1 / 7, "nb_1", "one"), (2 / 7, "nb_1", "two")]
    assert rows[1][1] is rows[2][1]


def test_what_only_looks_like_a_delta_inside_an_event_is_left_as_it_is() -> None:
    trap = {"kind": "agent_text_delta", "at_s": 0, "agent_id": "a", "text": "t"}
    document = json.loads(written(STARTED))
    document["entries"].append(
        {"at_s": 1, "kind": "tool_call_started", "agent_id": "a", "tool_use_id": "i", "name": "n"}
        | {"input": trap}
    )

    assert getattr(read(json.dumps(document))[2][1][1], "input", None) == trap


# -- what the events hold in part ----------------------------------------------------------------

BEGUN = ToolCallStarted(
    agent_id="a", tool_use_id="i", name="n", input={"x": "begin"}, input_length=9_000
)
DONE = ToolCallFinished(
    agent_id="a",
    tool_use_id="i",
    name="n",
    result_summary="It be",
    is_error=False,
    duration_ms=7,
    result="It be",
    result_length=5_000,
)
WHOLE_CALL = ToolCallRecord(
    "a", "i", "n", {"x": "beginning", "y": [1]}, "It begins\u202e.", number=1, effects=False
)


def with_tool_call(*events: Event, call: ToolCallRecord = WHOLE_CALL) -> str:
    rows = rows_of(STARTED, SPAWNED, *events)
    whole = {(call.agent_id, call.number): call}
    return write_document("r", "t", rows, agentnb="1.2.3", whole_tool_calls=whole)


def test_what_the_events_cut_is_in_a_section_of_its_own_and_comes_back() -> None:
    document = with_tool_call(BEGUN, DONE)

    assert document.endswith(
        "],\n"
        '"tool_calls": [\n'
        '{"agent_id": "a", "number": 1, "input": {"x": "beginning", "y": [1]}, '
        '"result": "It begins\\u202e.", "effects": false}\n'
        "]\n"
        "}\n"
    )
    whole = replace(WHOLE_CALL, path="root", at_s=2 / 7, duration_ms=7, ended=1)
    read_back = read_document(document, source="run.json")
    assert read_back.whole_tool_calls == {("a", 1): whole}
    assert read_document(document, source="run.json", parse=_parse) == read_back


@pytest.mark.parametrize(
    ("events", "call", "given"),
    [
        ([BEGUN, replace(DONE, result_length=None)], WHOLE_CALL, {"input"}),
        ([replace(BEGUN, input_length=None), DONE], WHOLE_CALL, {"result"}),
        ([BEGUN], replace(WHOLE_CALL, status=STARTED_CALL), {"input"}),
        ([replace(BEGUN, input_length=None)], WHOLE_CALL, None),
        ([], WHOLE_CALL, None),
        ([BEGUN, DONE], replace(WHOLE_CALL, number=2), None),
        ([BEGUN, DONE], replace(WHOLE_CALL, status=STARTED_CALL), None),
    ],
    ids=["input", "result", "open", "not cut yet", "not begun", "another's", "not whole"],
)
def test_only_what_is_cut_in_these_events_is_written_twice(
    events: Sequence[Event], call: ToolCallRecord, given: set[str] | None
) -> None:
    document = with_tool_call(*events, call=call)

    lines = json.loads(document).get("tool_calls", [])

    assert [line.keys() - {"agent_id", "number", "effects"} for line in lines] == (
        [] if given is None else [given]
    )
    whole = read_document(document, source="run.json").whole_tool_calls
    assert list(whole) == ([] if given is None else [("a", 1)])


CUT = json.loads(with_tool_call(BEGUN, DONE))
LINE = CUT["tool_calls"][0]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ({}, "its `tool_calls` is not a list. "),
        (None, "its `tool_calls` is not a list. "),
        ([5], "its tool call 0 is invalid: it is not an object. "),
        ([LINE, {}], "its tool call 1 is invalid: it lacks a string `agent_id` or a whole "
        "`number`"),
        ([LINE | {"agent_id": [1]}], "its tool call 0 is invalid: it lacks a string `agent_id` or"),
        ([LINE | {"number": True}], "its tool call 0 is invalid: it lacks a string `agent_id` or "
        "a "),
        ([LINE | {"number": 1.0}], "its tool call 0 is invalid: it lacks a string `agent_id` or "
        "a "),
        ([LINE | {"result": None}], "its tool call 0 is invalid: its `result` is not a string"),
        ([LINE | {"effects": "no"}], "its tool call 0 is invalid: its `result` is not a string, "
        "or"),
        ([LINE | {"number": 2}], "its tool call 0 is invalid: agent 'a' has no tool call 2. "),
        ([LINE | {"number": 10**5000}], "its tool call 0 is invalid: agent 'a' has no tool call"),
        ([LINE | {"agent_id": "b" * 9000}], "its tool call 0 is invalid: agent 'bbb"),
        ([LINE, LINE], "its tool call 1 is invalid: the call came before. "),
        ([{k: LINE[k] for k in LINE if k != "result"}],
         "its tool call 0 is invalid: it must have what its events cut"),
        ([{k: LINE[k] for k in LINE if k != "input"}],
         "its tool call 0 is invalid: it must have what its events cut"),
    ],
)  # fmt: skip
def test_tool_call_that_fits_no_event_is_refused(lines: Any, complaint: str) -> None:
    document = copy.deepcopy(CUT | {"tool_calls": lines})

    with pytest.raises(UnreadableRun) as refused:
        read_document("", source="some.json", parse=lambda _: document)

    assert complaint in str(refused.value)
    assert len(str(refused.value)) < 500


def test_document_without_the_section_is_read_as_before() -> None:
    assert read(written(STARTED))[2] == rows_of(STARTED)
    assert read_document(written(STARTED), source="r").whole_tool_calls == {}


# -- what is no run ------------------------------------------------------------------------------


def changed(**head: Any) -> str:
    return json.dumps(json.loads(written(STARTED, SAID)) | head)


def with_line(line: Any) -> str:
    return changed(entries=[*json.loads(written(STARTED, SAID))["entries"], line])


DELTA = {"at_s": 1.0, "kind": "agent_text_delta", "agent_id": "a", "text": "t"}
WHOLE = written(STARTED, SPAWNED, SAID, ENDED)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it is not JSON (Expecting value: line 1 column 1 (char 0)). Give the path"),
        ("just words", "it is not JSON (Expecting value: line 1 column 1 (char 0)). Give the"),
        ("[" * 100_000, "it is not JSON ("),
        ("[1" + "0" * 5000 + "]", "it is not JSON ("),
        ("[]", "it is JSON, but not a run. Give the path of a file that `run.to_json(path)`"),
        ('"agentnb run"', "it is JSON, but not a run. "),
        ("{}", "it is JSON, but not a run. "),
        ('{"cells": [], "nbformat": 4}', "it is a notebook. Open it in Jupyter."),
        (changed(version=3), "it has version 3 of the format, from agentnb 1.2.3, and this agentnb "
         "reads up to version 2. " + UPDATE),
        (changed(version="1"), "its `version` is '1', which does not exist. "),
        (changed(version=0), "its `version` is 0, which does not exist. "),
        (changed(version=True), "its `version` is True, which does not exist. "),
        (changed(run_id=None), "its head lacks a string `run_id`, a string `task` or a list "
        "`entries`"),
        (changed(entries={}), "its head lacks a string `run_id`, a string `task` or a list "
        "`entries`"),
        (with_line({"at_s": 1, "kind": "agent_dreamed"}), "its event 2 is of the kind "
         "'agent_dreamed', which this agentnb does not know. " + UPDATE),
        (with_line(5), "its event 2 is invalid: it is a number and not an object. "),
        (with_line({"at_s": 1}), "its event 2 is invalid: it has no `kind`. "),
        (with_line(DELTA | {"text": None}), "its event 2 is invalid: `text`: it is null and not a"),
        (with_line(DELTA | {"agent_id": 3}), "its event 2 is invalid: `agent_id`: it is a number "),
        (with_line(DELTA | {"at_s": "1"}),
         "its event 2 is invalid: `at_s` is not a time in seconds. "),
        (with_line(DELTA | {"at_s": -1}),
         "its event 2 is invalid: `at_s` is not a time in seconds. "),
        (with_line(DELTA | {"at_s": math.nan}), "it is not JSON (NaN is not a number). "),
        (with_line(DELTA | {"at_s": 1e300}), "its event 2 is invalid: `at_s` is not a time in "),
        (with_line(DELTA).replace("1.0", "1e999"),
         "its event 2 is invalid: `at_s` is not a time in "),
        (with_line({"kind": "synthesis_started", "agent_id": "a", "total": 1, "at_s": 1e300}),
         "its event 2 is invalid: `at_s` is not a time in seconds. "),
        (with_line({"kind": "synthesis_started", "agent_id": "a", "total": 1}),
         "its event 2 is invalid: `at_s` is not a time in seconds. "),
    ],
)  # fmt: skip
def test_document_that_is_no_run_is_refused_with_what_it_is_and_what_to_do(
    text: str, complaint: str
) -> None:
    with pytest.raises(UnreadableRun) as refused:
        read_document(text, source="some.json")

    assert str(refused.value).startswith(f"'some.json' cannot be read as a run: {complaint}")
    assert refused.value.source == "some.json"


@pytest.mark.parametrize("length", [1, 100, len(WHOLE) // 2, len(WHOLE) - 30, len(WHOLE) - 3])
def test_document_that_was_cut_says_where(length: int) -> None:
    lines = WHOLE[:length].count("\n") + 1

    with pytest.raises(UnreadableRun, match=r"some\.json") as refused:
        read_document(WHOLE[:length], source="some.json")

    if length > 50:
        assert f"it is cut off or damaged in line {lines} (" in str(refused.value)
        assert str(refused.value).endswith("Copy it again as a whole, or write it again.")
