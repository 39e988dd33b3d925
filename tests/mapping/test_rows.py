"""What a map takes as a table, and what it asks for each row."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from pydantic import BaseModel

from agentnb.core.collector import MANY
from agentnb.mapping.cells import cell_text, is_missing
from agentnb.mapping.prompts import prompts_of
from agentnb.mapping.rows import read_rows
from tests.mapping.mapped import prompts_sent, refusal_of, session_of


class Letter(BaseModel):
    text: str
    pages: int = 1


@dataclass
class Card:
    text: str
    pages: int = 1


class Slip(NamedTuple):
    text: str
    pages: int = 1


class Note:
    def __init__(self, text: str) -> None:
        self.text, self.pages, self._hidden = text, 1, "hidden"


ROWS: dict[str, Any] = {
    "pandas": pd.DataFrame({"text": ["late", "lost"], "pages": [1, 1]}),
    "polars": pl.DataFrame({"text": ["late", "lost"], "pages": [1, 1]}),
    "narwhals": nw.from_native(pl.DataFrame({"text": ["late", "lost"], "pages": [1, 1]})),
    "dicts": [{"text": "late", "pages": 1}, {"pages": 1, "text": "lost"}],
    "pydantic": [Letter(text="late"), Letter(text="lost")],
    "dataclasses": [Card("late"), Card("lost")],
    "named tuples": (Slip("late"), Slip("lost")),
    "objects": [Note("late"), Note("lost")],
    "one pass": ({"text": text, "pages": 1} for text in ("late", "lost")),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_each_row_is_asked_with_what_it_has_in_the_columns(rows: Any) -> None:
    assert prompts_sent(rows, "{{ pages }} page: {{text}}?") == ["1 page: late?", "1 page: lost?"]


@pytest.mark.parametrize(
    "rows",
    [
        ["late", "lost"],
        iter(["late", "lost"]),
        np.array(["late", "lost"]),
        pd.Series(["late", "lost"], name="what"),
        pd.Series(["late", "lost"], name=7),
        pd.Index(["late", "lost"]),
        pl.Series(["late", "lost"]),
    ],
    ids=["list", "iterator", "array", "series", "numbered series", "index", "polars"],
)
def test_texts_are_the_column_text(rows: Any) -> None:
    assert prompts_sent(rows, "Is {{text}} bad?") == ["Is late bad?", "Is lost bad?"]


def test_series_has_the_column_of_its_name_too() -> None:
    assert prompts_sent(pd.Series(["late"], name="what"), "{{what}}, {{text}}") == ["late, late"]


def test_files_are_read_as_text_with_name_and_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffgrüße".encode())

    (prompt,) = prompts_sent([tmp_path / "a.txt"], "{{text}} in {{name}} at {{path}}")

    assert prompt == f"grüße in a.txt at {tmp_path / 'a.txt'}"


def test_file_that_is_no_text_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")

    assert "'bad.txt" in refusal_of([tmp_path / "good.txt", tmp_path / "bad.txt"]).replace(
        str(tmp_path) + "/", ""
    )
    assert "gone.txt" in refusal_of([tmp_path / "gone.txt"])
    assert "`rows[0]`" in refusal_of([tmp_path])


REFUSED: dict[str, tuple[Any, Any, list[str]]] = {
    "a missing column": (
        pd.DataFrame({"Text": ["a"], "id": [1]}), "{{text}}", ["'text'", "'id'", "mean 'Text'"],
    ),
    "a missing key of one row": (
        [{"text": "a", "id": 1}, {"id": 2}], "{{text}}", ["`rows[1]`", "'text'"],
    ),
    "no column named": (["a", "b"], "Is it bad?", ["`{{text}}`"]),
    "no column of a frame named": (pd.DataFrame({"q": [1]}), "Is it bad?", ["`{{q}}`"]),
    "a blank prompt": (["a"], "  ", ["`prompt`"]),
    "a prompt that is no text": (["a"], 3, ["`prompt`", "3"]),
    "a row that leaves the prompt blank": (["a", " "], "{{text}}", ["`rows[1]`", "blank"]),
    "rows of two kinds": (["a", {"text": "b"}], "{{text}}", ["`rows[1]`", "a dict", "a string"]),
    "a row that is a number": ([3], "{{text}}", ["`rows[0]`", "3"]),
    "a row that is missing": (["a", None], "{{text}}", ["`rows[1]`", "None"]),
    "one text": ("abc", "{{text}}", ["`rows`", "'abc'"]),
    "a dict of columns": ({"text": ["a"]}, "{{text}}", ["list of dicts"]),
    "a number": (3, "{{text}}", ["`rows`", "3"]),
    "a set": ({"a"}, "{{text}}", ["`rows`"]),
    "a lazy frame": (pl.LazyFrame({"text": ["a"]}), "{{text}}", ["collect"]),
    "columns of two levels": (
        pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])),
        "{{a}}", ["levels"],
    ),
    "a column twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "{{a}}", ["'a'", "rename"]),
    "two columns that print alike": (
        pd.DataFrame([[1, 2]], columns=[1, "1"]), "{{1}}", ["'1'", "rename"],
    ),
    "bytes": ([{"text": b"a"}], "{{text}}", ["`rows[0]`", "'text'", "bytes"]),
    "an image that is not there": ([Path("a.PNG")], "{{text}}", ["`rows[0]`", "a.PNG'"]),
    "an image of another kind": ([Path("a.HEIC")], "{{name}}", ["`rows[0]`", "'a.HEIC'", "PNG"]),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "prompt", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_mapped_is_refused_before_any_call(
    rows: Any, prompt: Any, says: list[str]
) -> None:
    message = refusal_of(rows, prompt)

    assert [word for word in says if word not in message] == [], message


ARGUMENTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no judge": ({"judges": 0}, ["`judges`", "0"]),
    "judges that are no number": ({"judges": True}, ["`judges`", "True"]),
    "one text for models": ({"models": "demo"}, ["`models`", "'demo'"]),
    "no model": ({"models": []}, ["`models`", "empty"]),
    "a model without a name": ({"models": ["demo", ""]}, ["`models[1]`"]),
    "judges and models that differ": ({"models": ["demo"] * 3, "judges": 2}, ["2", "3"]),
    "a sample of none": ({"sample": 0}, ["`sample`"]),
    "fewer than no retries": ({"retry_failed": -1}, ["`retry_failed`"]),
    "retries that are no number": ({"retry_failed": "1"}, ["`retry_failed`", "'1'"]),
    "a sample that is no whole number": ({"sample": 2.0}, ["`sample`", "2.0"]),
    "models in no order": ({"models": {"demo"}}, ["`models`", "list"]),
    "a depth below none": ({"max_depth": -1}, ["`max_depth`"]),
    "one text for tools": ({"tools": "workspace"}, ["`tools`"]),
    "a tool that is none": ({"tools": [3]}, ["`tools`", "3", "give a function"]),
    "a tool that nobody knows": ({"tools": ["nosuch"]}, ["`tools`", "'nosuch'", "'workspace'"]),
    "a reuse that is neither": ({"reuse": "no"}, ["`reuse`", "'no'", "True or False"]),
    "a reuse of none": ({"reuse": None}, ["`reuse`", "None"]),
    "a progress that is neither": ({"progress": "x"}, ["`progress`", "'x'", "True or False"]),
    "a shared that is no text": ({"shared": None}, ["`shared`", "None"]),
    "an output that is no type": ({"output": 3}, ["`output`", "3"]),
    "an output that is anything": ({"output": object}, ["`output`", "object", "JsonValue"]),
    "an output in quotes": ({"output": "int"}, ["`output`", "'int'", "without quotes"]),
    "a name of two lines": ({"name": "a\nb"}, ["`name`"]),
    "a budget below nothing": ({"budget": -1}, ["`budget`", "-1"]),
    "a budget in a float": ({"budget": 4.0}, ["`budget`", "4.0", '"$4"']),
    "an unknown key": ({"key": "ID"}, ["`key`", "'ID'", "mean 'id'"]),
    "a key that is no name": ({"key": 3}, ["`key`", "3"]),
    "a key twice": ({"key": "text"}, ["`rows[2]`", "`rows[0]`", "'a'"]),
    "a key that is missing": ({"key": "id"}, ["`rows[1]`", "'id'"]),
}


@pytest.mark.parametrize(("given", "says"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_argument_that_is_wrong_is_refused_before_any_call(
    given: dict[str, Any], says: list[str]
) -> None:
    rows = [{"text": "a", "id": 1}, {"text": "b", "id": None}, {"text": "a", "id": 3}]

    message = refusal_of(rows, **given)

    assert [word for word in says if word not in message] == [], message


def test_row_without_what_the_prompt_does_not_name_is_no_mistake() -> None:
    assert prompts_sent([{"text": "a"}, {"text": "b", "id": 1}], "{{text}}") == ["a", "b"]


def test_name_of_a_column_may_be_any_words() -> None:
    rows = pd.DataFrame({"unit price": [2], " odd ": [3], 7: [4], "größe": [5]})

    assert prompts_sent(rows, "{{unit price}} {{ odd }} {{7}} {{ größe }}") == ["2 3 4 5"]


def test_what_a_cell_holds_is_never_filled_in() -> None:
    rows = [{"text": "see {{id}} and \\1", "id": 7}]

    assert prompts_sent(rows, "{{text}}, {{id}}") == ["see {{id}} and \\1, 7"]


def test_long_cell_is_asked_whole() -> None:
    text = "0123456789" * 20_000

    assert prompts_sent([text], "{{text}}.") == [f"{text}."]


def test_same_prompt_for_each_row_of_a_table_without_columns() -> None:
    assert prompts_sent(pd.DataFrame(index=[4, 5]), "Say a word.") == ["Say a word."] * 2


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(1.5), "1.5"),
        (np.int8(3), "3"),
        (np.bool_(True), "True"),
        (Colour.RED, "red"),
        (Decimal("1.50"), "1.50"),
        (date(2026, 11, 23), "2026-11-23"),
        ([np.float32(0.5), None, Colour.RED], '[0.5, null, "red"]'),
        ({"ä": (1, Card("x"))}, '{"ä": [1, {"text": "x", "pages": 1}]}'),
        (Letter(text="x"), '{"text": "x", "pages": 1}'),
        (np.array([[1, 2]]), "[[1, 2]]"),
    ],
)
def test_cell_prints_as_python_prints_it_or_as_json(value: Any, text: str) -> None:
    assert cell_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        float("nan"),
        np.float32("nan"),
        np.datetime64("NaT", "s"),
        pd.NaT,
        pd.NA,
        Decimal("nan"),
    ],
    ids=repr,
)
def test_missing_cell_is_an_empty_text(value: Any) -> None:
    assert is_missing(value)
    assert cell_text(value) == ""


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": ["x", None], "b": [1.5, None], "c": pd.array([1, None], dtype="Int64")}),
        pl.DataFrame({"a": ["x", None], "b": [1.5, None], "c": [1, None]}),
    ],
    ids=["pandas", "polars"],
)
def test_missing_values_of_a_frame_are_empty(frame: Any) -> None:
    assert prompts_of("{{a}}|{{b}}|{{c}}", read_rows(frame)) == ("x|1.5|1", "||")


def test_what_changes_in_a_frame_later_changes_nothing() -> None:
    frame = pd.DataFrame({"text": ["a", "b"]})
    table = read_rows(frame)

    frame.loc[0, "text"] = "changed"

    assert list(table.column("text")) == ["a", "b"]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_empty_frame_ends_at_once_with_an_empty_frame(make: Callable[[Any], Any]) -> None:
    session = session_of(lambda _: pytest.fail("a call was made"))
    run = session.map(make({"text": []}), "{{text}}?", Letter)

    out = run.result()

    assert run.result() is out

    assert (out.status, len(out), len(out.df), out.to_records()) == ("completed", 0, 0, [])
    assert [*out.df.columns] == ["text", "pages", "status", "error", "tokens", "cost_usd", "path"]
    assert isinstance(out.df, make)  # type: ignore[arg-type]


def test_empty_list_has_no_columns_that_could_be_missing() -> None:
    assert session_of().map([], "{{text}}?", key="id").result().to_records() == []


def test_lists_need_neither_pandas_nor_polars_nor_narwhals() -> None:
    program = """
import sys
for name in ("pandas", "polars"):
    sys.modules[name] = None
from agentnb import ScriptedProvider, Session
out = Session(provider=ScriptedProvider(lambda _: "ok"), store=None).map(["a"], "{{text}}").result()
print(out.to_records()[0]["answer"])
print("narwhals" in sys.modules)
try:
    out.df
except ImportError as error:
    print("pandas" in str(error), "to_records" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stdout.split() == ["ok", "False", "True", "True"], done.stderr


def test_rows_without_any_column_are_an_empty_map_or_a_clear_error() -> None:
    assert prompts_sent(pd.DataFrame(), "{{text}}?", key="text") == []
    assert "no 'text'" in refusal_of([{}])


def test_collector_pauses_while_very_many_rows_begin_and_then_goes_on() -> None:
    seen = list[bool]()

    def answer(_: str) -> str:
        seen.append(gc.isenabled())
        return "ok"

    session = session_of(answer, max_concurrency=1_000)
    session.map(["a"] * 3, "{{text}}?").result()
    few, seen = seen, []
    session.map(["b"] * MANY, "{{text}}?").result()

    assert few == [True] * 3
    assert seen == [False] * MANY
    assert gc.isenabled()
