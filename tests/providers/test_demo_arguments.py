"""What the demo model calls a tool with: fits its schema, and is about the task."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentnb import tool
from agentnb.providers.demo_arguments import CannotFill, arguments_for
from tests.tools.calling import called

TASK = "How long is the Rhine between Basel and New York, in 3 legs of 12.5 km?"


class Kind(enum.Enum):
    RIVER = "river"
    LAKE = "lake"


class Node(BaseModel):
    name: str
    depth: int = Field(ge=5, le=7)
    below: list[Node]


def everything(
    name: str,
    count: int,
    share: Annotated[float, Field(gt=0, lt=1)],
    even: Annotated[int, Field(ge=11, le=19, multiple_of=4)],
    kind: Kind,
    unit: Literal["km", "mi"],
    day: datetime.date,
    at: datetime.datetime,
    pair: tuple[int, str],
    several: Annotated[list[Kind], Field(min_length=2)],
    different: Annotated[set[Kind], Field(min_length=2)],
    node: Node,
    maybe: str | None,
    either: int | list[str],
    table: dict[str, int],
    short: Annotated[str, Field(max_length=3)],
    long: Annotated[str, Field(min_length=80)],
    code: Annotated[str, Field(pattern="^[A-Z][a-z]+$")],
    sure: bool,
    anything: Any,
    unneeded: int = 7,
) -> str:
    return "called"


def test_arguments_fit_everything_that_a_function_may_ask_for() -> None:
    asked = tool(everything)

    made = arguments_for(asked.spec.input_schema, TASK)

    assert called(asked, made) == "called"
    assert "unneeded" not in made
    assert made["node"]["below"] != []
    assert made["several"] == ["river", "river"]
    assert sorted(made["different"]) == ["lake", "river"]
    assert (made["unit"], made["day"], made["even"]) == ("km", "2026-01-15", 12)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "Rhine"),
        ({"type": "integer"}, 3),
        ({"type": "number", "minimum": 10}, 12.5),
        ({"type": "integer", "minimum": 40}, 40),
        ({"type": "integer", "exclusiveMaximum": -4}, -5),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, 0.25),
        ({"type": "string", "default": "set", "enum": ["a", "set"]}, "set"),
        ({"type": "string", "examples": ["Danube"], "default": "set"}, "Danube"),
        ({"const": 5}, 5),
        ({"type": ["null", "boolean"]}, True),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 3),
        ({"allOf": [{"$ref": "#/$defs/x"}, {"minimum": 20}]}, 25),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["Rhine", "Basel"]),
        ({"type": "array", "maxItems": 0}, []),
        ({"type": "string", "pattern": "^New"}, "New York"),
        ({}, "Rhine"),
    ],
)
def test_value_is_the_schemas_own_or_of_the_task_and_within_its_bounds(
    schema: Mapping[str, Any], expected: Any
) -> None:
    whole = {
        "type": "object",
        "properties": {"a": schema},
        "required": ["a"],
        "$defs": {"x": {"type": "integer", "maximum": 30}},
    }

    assert arguments_for(whole, TASK) == {"a": expected}


@pytest.mark.parametrize(
    ("task", "name", "expected"),
    [
        ("what is the weather in berlin", "city", "berlin"),
        ('Look up "a b" in Rome', "key", "a b"),
        ("Collect the facts about: Where is the Elbe?", "name", "Elbe"),
        ("Where is the Elbe?", "question", "Where is the Elbe?"),
        ("", "name", "example"),
    ],
)
def test_text_is_what_the_task_is_about(task: str, name: str, expected: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}

    assert arguments_for(schema, task) == {name: expected}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"pattern": r"^\\d{9}$", "type": "string"}, "`a` has to match"),
        ({"pattern": "(", "type": "string"}, "`a` has to match a pattern that cannot be read"),
        ({"pattern": [[]], "type": "string"}, "`a` has to match a pattern that cannot be read"),
        ({"pattern": "[[]]", "type": "string"}, "`a` has to match a pattern that cannot be read"),
        ({"minimum": 5, "maximum": 4, "type": "integer"}, "`a` has no value between 5 and 4"),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 2, "type": "integer"}, "between 1 and 2"),
        ({"minLength": 9, "maxLength": 8, "type": "string"}, "`a` has no value between 9 and 8"),
        ({"minItems": 1000, "type": "array"}, "`a` needs 1000 items"),
        ({"not": {"type": "string"}}, "`a` is described by what it must not be"),
        ({"$ref": "#/properties/a"}, "`a` refers to itself"),
        ({"$ref": "https://example.com/schema"}, "`a` refers to 'https://example.com/schema'"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "deeper than"),
        ({"type": "file"}, "`a` has the unknown type 'file'"),
        (False, "`a` takes no value at all"),
        ({"type": "integer", "minimum": "low"}, "its schema cannot be read"),
    ],
)
def test_what_cannot_be_made_up_is_said(schema: Any, why: str) -> None:
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"]}

    with pytest.raises(CannotFill) as raised:
        arguments_for(whole, TASK)

    assert why in str(raised.value)


def test_tool_that_needs_nothing_is_given_nothing() -> None:
    for schema in ({}, {"type": "object"}, {"type": "object", "properties": {"a": {}}}):
        assert arguments_for(schema, TASK) == {}


json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "properties", "required", "items", "enum", "minimum", "maximum", "anyOf", "a",
             "allOf", "$ref", "pattern", "minLength", "prefixItems", "uniqueItems", "minItems"]
        ),
        inner | st.sampled_from(["object", "array", "string", "integer", "#", "#/properties/a"]),
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(json, st.text(max_size=40))
def test_any_schema_is_filled_or_refused(schema: Any, task: str) -> None:
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"]}

    with suppress(CannotFill):  # and nothing else
        made = arguments_for(whole, task)
        assert list(made) == ["a"]
        assert repr(arguments_for(whole, task)) == repr(made)
