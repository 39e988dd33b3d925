"""The records of a run are plain values: small, comparable, picklable, and JSON without loss."""

from __future__ import annotations

import dataclasses
import json
import pickle
import typing
from typing import Any

import pytest

from agentnb.core.codec import plain
from agentnb.core.records import (
    FINISHED,
    STARTED,
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    RunHead,
    RunJournal,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    Usage,
    assistant_message,
    user_message,
)

CALL = CallRecord("1", 1, 1, "key", CompletionRequest("any", "", (user_message("Go on."),)))
ONE_OF_EACH: list[Any] = [
    RunHead("run", "nb", "the task", "demo/any", settings={"budget": 5}),
    dataclasses.replace(
        CALL,
        pieces=((0.1, "An "), (0.2, "answer")),
        message=assistant_message("An answer"),
        usage=Usage(1, 2, 3, 4),
        status=FINISHED,
    ),
    ToolCallRecord("nb.1", "t1", "look", {"a": [1]}, "seen"),
    OrderRecord("cancel", "panel", "1", 2, 0.5, {"agent": None, "reason": "enough"}),
    VerdictRecord("1", 1, "clamped", 500),
    EndRecord(None, AgentStatus.COMPLETED, "An answer"),
]


def test_one_of_each_record_is_here() -> None:
    assert {type(record) for record in ONE_OF_EACH} == {RunHead, *typing.get_args(Kept)}


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: type(record).__name__)
def test_record_is_frozen_small_and_the_same_after_a_pickle(record: Any) -> None:
    assert pickle.loads(pickle.dumps(record)) == record
    assert not hasattr(record, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, "another")


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: type(record).__name__)
def test_fields_of_a_record_are_json(record: Any) -> None:
    for field in dataclasses.fields(record):
        written = plain(getattr(record, field.name))
        assert json.loads(json.dumps(written)) == written


def test_text_of_a_call_is_its_pieces() -> None:
    assert ONE_OF_EACH[1].text == "An answer"
    assert CALL.text == ""


def test_call_is_open_until_it_has_its_result_and_a_tool_call_is_not() -> None:
    """A record that is made with a result needs no word about it, and a call begins without one."""
    assert CALL.status == STARTED
    assert ToolCallRecord("nb.1", "t1", "look", {}).status == FINISHED


def test_journal_of_a_run_has_a_place_for_each_record() -> None:
    held = typing.get_type_hints(RunJournal)
    kinds = {typing.get_args(hint)[0] for hint in held.values() if typing.get_origin(hint) is tuple}

    assert kinds == set(typing.get_args(Kept))
