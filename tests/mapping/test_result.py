"""The table of a map that goes out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Literal

import pandas as pd
import polars as pl
import pytest
from pydantic import BaseModel, Field

import agentnb
from agentnb.core.types import AgentStatus, Usage
from agentnb.mapping.result import MapResult
from agentnb.providers.scripted import Reply
from agentnb.testing import Hold, spawn
from tests.mapping.mapped import by_word, session_of

OURS = ["status", "error", "tokens", "cost_usd", "path"]


class Kind(Enum):
    LATE = "late"
    LOST = "lost"


class Verdict(BaseModel):
    kind: Kind
    score: int | None = None
    tags: list[str] = Field(default=[], alias="Tags")
    is_sure: bool | None = None
    since: date | None = None


ANSWERS = {
    "first": '{"kind": "late", "score": 3, "Tags": ["a", "b"], "since": "2026-11-23"}',
    "second": '{"kind": "lost", "is_sure": true}',
    "third": "no idea",
}
TEXTS = ["first", "second", "third"]


@pytest.fixture
def prices() -> Iterator[None]:
    agentnb.set_prices({"scripted": agentnb.Price(1, 1)})
    yield
    agentnb.set_prices({})


def mapped(rows: Any = TEXTS, output: Any = Verdict, prompt: str = "{{text}}?") -> MapResult:
    return session_of(by_word(ANSWERS)).map(rows, prompt, output).result()


# -- frames ---------------------------------------------------------------------------------------


def test_pandas_frame_keeps_its_index_and_gets_plain_columns() -> None:
    index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2), ("x", 1)], names=["side", None])
    out = mapped(pd.DataFrame({"text": TEXTS, "other": 1}, index=index))

    frame = out.df

    assert frame.index.equals(index)
    assert frame.index.names == ["side", None]
    assert [*frame.columns] == ["kind", "score", "tags", "is_sure", "since", *OURS]
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "kind": "str", "score": "Int64", "tags": "object", "is_sure": "boolean", "since": "str",
        "status": "str", "error": "str", "tokens": "Int64", "cost_usd": "float64", "path": "str",
    }  # fmt: skip
    first, second, third = frame.itertuples(index=False)
    assert (first.kind, first.score, first.tags, first.since) == (
        "late", 3, ["a", "b"], "2026-11-23",
    )  # fmt: skip
    assert (second.kind, second.is_sure, second.status) == ("lost", True, "completed")
    assert third.status == "failed"
    assert pd.isna(third.kind) and pd.isna(third.score)  # noqa: PT018, one thing is missing
    assert [*frame.path] == ["1", "2", "3"]
    assert frame is out.df


def test_series_gives_a_frame_with_its_index() -> None:
    out = mapped(pd.Series(TEXTS, index=["i", "j", "k"], name="letters"))

    assert [*out.df.index] == ["i", "j", "k"]
    assert [*out.ok.index] == ["i", "j"]


def test_polars_frame_goes_out_as_one_with_types_of_its_own() -> None:
    frame = mapped(pl.DataFrame({"text": TEXTS})).df

    assert isinstance(frame, pl.DataFrame)
    assert frame.schema["score"] == pl.Int64
    assert frame.schema["tags"] == pl.List(pl.String)
    assert frame.schema["is_sure"] == pl.Boolean
    assert frame["kind"].to_list() == ["late", "lost", None]


def test_ok_and_failed_are_the_rows_of_the_frame_of_each_fate() -> None:
    for rows in (TEXTS, pd.DataFrame({"text": TEXTS}), pl.DataFrame({"text": TEXTS})):
        out = mapped(rows)

        assert [*out.ok["path"]] == ["1", "2"]
        assert [*out.failed["path"]] == ["3"]
        assert "Verdict" in out.failed["error"].to_list()[0]


def test_list_goes_out_as_a_pandas_frame_and_as_records() -> None:
    out = mapped()

    assert [*out.df.index] == [0, 1, 2]
    assert [*out.to_records()[0]] == [*out.df.columns]
    assert out.to_records()[1]["kind"] == "lost"
    assert out.to_records()[2]["kind"] is None


def test_objects_of_the_answers_stay_in_order() -> None:
    first, second, third = mapped().data

    assert first == Verdict(kind=Kind.LATE, score=3, Tags=["a", "b"], since=date(2026, 11, 23))
    assert (second.kind, third) == (Kind.LOST, None)


@pytest.mark.parametrize(
    ("output", "reply", "value"),
    [
        (None, "A text.", "A text."),
        (int, "3", 3),
        (Literal["late", "lost"], '"late"', "late"),
        (Kind, '{"value": "lost"}', "lost"),
        (list[float], "[1, 2.5]", [1.0, 2.5]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
    ids=["text", "int", "Literal", "Enum", "list", "dict"],
)
def test_answer_without_fields_is_the_column_answer(output: Any, reply: str, value: Any) -> None:
    out = session_of(reply).map(["a"], "{{text}}?", output).result()

    assert [*out.df.columns] == ["answer", *OURS]
    assert out.df["answer"][0] == value


@dataclass
class Clashing:
    status: str
    agentnb_status: str
    path: int


def test_answer_that_may_be_nothing_is_none_and_no_text() -> None:
    out = session_of("null").map(["a"], "{{text}}?", int | None).result()
    assert (out.data, out.status) == ([None], "completed")


def test_own_column_gets_a_prefix_where_the_answer_has_such_a_field() -> None:
    reply = '{"status": "open", "agentnb_status": "x", "path": 7}'
    (record,) = session_of(reply).map(["a"], "{{text}}?", Clashing).result().to_records()

    assert (record["status"], record["path"]) == ("open", 7)
    assert record["agentnb_agentnb_status"] == "completed"
    assert record["agentnb_path"] == "1"


def test_number_too_large_for_a_column_of_numbers_stays_whole() -> None:
    for rows in (["a"], pl.DataFrame({"text": ["a"]})):
        out = session_of(str(2**70)).map(rows, "{{text}}?", int).result()

        assert out.df["answer"][0] == 2**70


def test_values_of_several_types_stay_what_they_are() -> None:
    answers = {"first": '{"value": "x"}', "second": '{"value": {"y": 1}}'}
    for rows in (TEXTS[:2], pl.DataFrame({"text": TEXTS[:2]})):
        out = session_of(by_word(answers)).map(rows, "{{text}}?", str | dict[str, int]).result()

        assert [*out.df["answer"]] == ["x", {"y": 1}]


# -- figures --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("prices")
def test_tokens_and_cost_of_a_row_are_its_own_and_of_all_below_it() -> None:
    below = agentnb.ScriptedProvider(
        lambda request: (
            spawn("look closer")
            if "first" in request.messages[0].text and len(request.messages) == 1
            else "done"
        )
    )
    session = agentnb.Session(provider=below, store=None)
    run = session.map(["first", "second"], "{{text}}?", max_depth=1)

    out = run.result()

    tokens = {view.path: view.usage.total_tokens for view in run.agents}
    assert "1.1" in tokens
    assert [*out.df.tokens] == [tokens["1"] + tokens["1.1"], tokens["2"]]
    assert out.cost is not None
    assert sum(out.df.cost_usd) == pytest.approx(out.cost.usd)
    assert [*out.df.cost_usd] == pytest.approx([count / 1e6 for count in out.df.tokens])


def test_unpriced_row_has_no_cost() -> None:
    out = mapped(["first"])

    assert out.to_records()[0]["cost_usd"] is None
    assert math.isnan(out.df.cost_usd[0])
    assert "unpriced" in str(out.cost)


def test_figures_of_the_table_say_how_much_of_the_input_came_from_a_cache() -> None:
    def reply(request: object) -> Reply:
        return Reply("late", usage=Usage(25, 5, 0, 75))

    session = agentnb.Session(provider=agentnb.ScriptedProvider(reply), store=None)
    out = session.map(["first", "second"], "{{text}}?").result()

    words = "2 rows: 2 completed, 210 tokens, 75 % of input from cache (150 tokens), unpriced"
    assert out.in_words == words
    assert out._repr_mimebundle_()["text/plain"].startswith(words)
    assert "cache" not in mapped(["first"]).in_words


def test_price_that_is_set_afterwards_counts() -> None:
    out = mapped(["first"])
    before = out.in_words
    agentnb.set_prices({"scripted": agentnb.Price(1, 1)})
    try:
        after = out.in_words
    finally:
        agentnb.set_prices({})

    assert before.endswith(" tokens, unpriced")
    assert "$0.0" in after


def test_first_column_comes_without_a_key_from_the_demo_model() -> None:
    texts = [f"Message {number}: my parcel is late" for number in range(20)]
    session = agentnb.Session(model="demo", store=None)

    out = session.map(texts, "What is it? {{text}}", Literal["delivery", "price"]).result()

    assert {*out.df["answer"]} <= {"delivery", "price"}
    assert len(out.ok) == 20


# -- a map that was stopped -----------------------------------------------------------------------


async def test_cancelled_map_gives_what_is_done_and_says_why_the_rest_is_not() -> None:
    hold = Hold()
    session = session_of(
        lambda prompt: "done" if "first" in prompt else Reply("never", pause=hold),
        max_concurrency=2,
    )
    run = session.map([*TEXTS, "fourth"], "{{text}}?")
    async for entry in run.stream():
        if entry.event.kind == "agent_completed":
            break
    hold.wait()
    run.cancel(reason="enough")

    out = run.result()

    assert out.status is AgentStatus.CANCELLED
    assert out.df.status[0] == "completed"
    assert {*out.df.status[1:]} <= {"cancelled", "skipped"}
    assert [*out.df.answer.isna()] == [False, True, True, True]
    assert all(error for error in out.df.error[1:])
    assert len(out.failed) == 3


def test_rows_beyond_the_budget_are_exhausted_with_the_reason() -> None:
    out = session_of("word " * 100).map(["a"] * 6, "{{text}}?", budget=600).result()

    assert out.status is AgentStatus.EXHAUSTED
    assert out.df.status[0] == "completed"
    assert (out.df.status[5], out.df.tokens[5]) == ("exhausted", 0)
    assert "600" in out.df.error[5]


def test_answer_that_was_cut_says_so() -> None:
    out = session_of(lambda _: Reply("half an", stop_reason="max_tokens")).map(["a"], "{{text}}?")

    (record,) = out.result().to_records()

    assert (record["answer"], record["status"]) == ("half an", "completed")
    assert "cut" in record["error"]


async def test_awaited_map_is_its_table() -> None:
    out = await session_of("done").map(["a"], "{{text}}?")

    assert out.to_records()[0]["answer"] == "done"


# -- as the last value of a cell ------------------------------------------------------------------


def test_cell_shows_few_rows_failures_first_and_the_figures() -> None:
    rows = [f"first {n}" for n in range(12)] + ["third"]
    out = mapped(rows)

    shown = out._repr_mimebundle_()

    assert repr(out).startswith("MapResult(13 rows: 12 completed, 1 failed, ")
    headline, _, *table = shown["text/plain"].split("\n")
    assert f"MapResult({headline})" == repr(out)
    assert table[1].split()[:2] == ["12", "failed"]
    assert table[2].split()[:3] == ["0", "late", "3"]
    assert "… and 3 more" in table
    assert shown["text/html"].count("<tr>") == 11
    assert shown == mapped(rows)._repr_mimebundle_()  # no id and no time


def test_cell_leaves_out_single_judges_before_anything_else() -> None:
    def columns(judges: int) -> list[str]:
        out = session_of("3").map(["a"], "{{text}}?", int, judges=judges).result()
        return str(out._repr_mimebundle_()["text/plain"]).split("\n")[2].split()

    assert columns(2) == ["answer", "answer_1", "answer_2", "status", "error"]
    assert columns(9) == ["answer", "status", "error"]


def test_cell_shows_a_models_words_as_words() -> None:
    evil = "<script>alert(1)</script> [a](http://x) \x1b[31m " + "long " * 100
    out = session_of(evil).map(["a"], "{{text}}?").result()

    html = out._repr_mimebundle_()["text/html"]

    assert "<script>" not in html
    assert "<a " not in html
    assert "\x1b" not in html + repr(out) + out._repr_mimebundle_()["text/plain"]
    assert max(map(len, re.findall(r"<td[^>]*>(.*?)</td>", html))) < 200
