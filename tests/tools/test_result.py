"""Whatever a function returns, a model gets text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

import numpy as np
import pydantic
import pytest

from agentnb.tools.result import as_text


class Colour(StrEnum):
    RED = "red"


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


@dataclass
class Place:
    name: str
    at: tuple[float, float]


class Person(pydantic.BaseModel):
    name: str
    born: date


class Table:
    """Stands for a DataFrame: it says by `str` what it holds."""

    def __str__(self) -> str:
        return "a  b\n1  2"


ITSELF: list[Any] = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (Colour.RED, "red"),
        (Loud("quiet"), "quiet"),
        (None, "(no output)"),
        (3, "3"),
        (True, "True"),
        (2.5, "2.5"),
        (b"\xff", "b'\\xff'"),
        ({"a": [1, None, "ø"]}, '{"a":[1,null,"ø"]}'),
        ((1, 2), "[1,2]"),
        ({7}, "[7]"),
        ([], "[]"),
        (Place("Oslo", (59.9, 10.7)), '{"name":"Oslo","at":[59.9,10.7]}'),
        (Person(name="A", born=date(1999, 1, 2)), '{"name":"A","born":"1999-01-02"}'),
        ([Place("Oslo", (1, 2)), Table()], '[{"name":"Oslo","at":[1,2]},"a  b\\n1  2"]'),
        ({"x": float("nan")}, '{"x":"NaN"}'),
        (Table(), "a  b\n1  2"),
        (Place, str(Place)),
        (np.array([1, 2]), "[1 2]"),
        (ITSELF, "[[...]]"),
        (["half \ud83d"], "['half \\ud83d']"),
        ([b"\xff"], "[b'\\xff']"),
    ],
    ids=lambda value: type(value).__name__,  # the same in every process, as workers need it
)
def test_value_as_text(value: object, text: str) -> None:
    made = as_text(value)

    assert made == text
    assert type(made) is str
