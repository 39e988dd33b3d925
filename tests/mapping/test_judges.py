"""Several judges for each row: what most of them say, and how far they agree."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import krippendorff
import numpy as np
import pandas as pd
import polars as pl
import pytest
from pydantic import BaseModel

from agentnb import ScriptedProvider, Session
from agentnb.core.errors import LlmError
from agentnb.core.types import CompletionRequest
from agentnb.mapping.agreement import _alpha_in_little_memory, alpha_of
from agentnb.mapping.answers import majority
from agentnb.mapping.cells import MISSING
from agentnb.mapping.result import MapResult
from tests.mapping.mapped import refusal_of

_ = MISSING
# Krippendorff 2011, page 8: four observers, twelve units.
PUBLISHED: Sequence[Sequence[Any]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]


class Verdict(BaseModel):
    kind: str
    score: int


def judged(
    rows: Sequence[Sequence[str]], output: Any = str, *, frame: Any = None, **arguments: Any
) -> MapResult:
    """The result of a map whose judges say what stands in `rows`.

    An empty text is a failure, and so are all after it, however often a judge is tried.
    """
    said = {f"row {at} ": list(words) for at, words in enumerate(rows)}
    texts = [*said]

    def reply(request: CompletionRequest) -> str | LlmError:
        text = next(text for text in texts if text in request.messages[0].text)
        words = said[text]
        return (words and words.pop(0)) or LlmError("broken", retryable=False)

    session = Session(provider=ScriptedProvider(reply), store=None, max_concurrency=1)
    table = texts if frame is None else frame(texts)
    arguments = {"judges": len(rows[0]), "retry_failed": 0, **arguments}
    return session.map(table, "{{text}}?", output, **arguments).result()


# -- alpha ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_is_that_of_the_published_example(level: str, alpha: float) -> None:
    assert round(alpha_of([*zip(*PUBLISHED, strict=True)], level), 3) == alpha


def test_alpha_of_texts_is_that_of_the_published_example() -> None:
    rows = [
        [_ if each is _ else "abcde"[each - 1] for each in row]
        for row in zip(*PUBLISHED, strict=True)
    ]

    assert round(alpha_of(rows), 3) == 0.743


@pytest.mark.parametrize("level", ["nominal", "interval"])
def test_alpha_of_many_values_is_the_same_without_the_library(level: str) -> None:
    chance = random.Random(20)
    rows = np.array([[float(chance.randrange(9)) for _ in range(4)] for _ in range(60)])
    rows[3:30, 0] = np.nan

    found = _alpha_in_little_memory(rows, level == "nominal")

    assert found == pytest.approx(krippendorff.alpha(rows.T, level_of_measurement=level))  # type: ignore[arg-type]


def test_alpha_of_thousands_of_different_values_needs_little_memory() -> None:
    assert alpha_of([(f"a {n}", f"b {n}") for n in range(20_000)]) == 0
    assert alpha_of([(n, n + 1) for n in range(20_000)], "interval") > 0.999
    with pytest.raises(ValueError, match="ordinal"):
        alpha_of([(n, n + 1) for n in range(20_000)], "ordinal")


def test_alpha_is_1_where_all_say_the_same_and_nothing_where_none_is_judged_twice() -> None:
    assert alpha_of([("a", "a"), ("a", "a")]) == 1.0
    assert math.isnan(alpha_of([("a", MISSING), (MISSING, "b")]))


def test_truth_is_not_the_number_1() -> None:
    assert alpha_of([(True, 1), ("a", "a")]) < 1


# -- what most say --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "found"),
    [
        (["a", "b", "a"], "a"),
        (["a", "b"], None),
        (["a", "b", "c", "a", "d"], "a"),
        ([MISSING, "b", MISSING], "b"),
        ([MISSING], None),
        ([None, None, "a"], None),
        ([[1], [2], [2]], [2]),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {}], {"a": 1, "b": 2}),
        ([1, True, True], True),
    ],
)
def test_majority_is_what_most_said_and_nothing_for_a_tie(votes: list[Any], found: Any) -> None:
    assert majority(votes) == found
    assert type(majority(votes)) is type(found)


def test_each_judge_has_a_column_beside_the_majority() -> None:
    rows = [["a", "a", "b"], ["b", "c", "a"]]
    frame = judged(rows).df

    assert [*frame.columns[:5]] == ["answer", "answer_1", "answer_2", "answer_3", "status"]
    assert [*frame.answer_2] == ["a", "c"]
    assert frame.answer[0] == "a"
    assert pd.isna(frame.answer[1])
    assert [*frame.status] == ["completed"] * 2
    assert [*frame.path] == ["1", "4"]


def test_fields_are_judged_one_by_one_with_the_types_of_their_values() -> None:
    verdict = '{{"kind": "{}", "score": {}}}'.format
    rows = [[verdict("a", 1), verdict("b", 2), verdict("a", 2)]]
    out = judged(rows, Verdict)

    record = out.to_records()[0]
    assert (record["kind"], record["score"], record["score_1"]) == ("a", 2, 1)
    assert str(out.df.score.dtype) == str(out.df.score_3.dtype) == "Int64"
    assert out.data == [
        (Verdict(kind="a", score=1), Verdict(kind="b", score=2), Verdict(kind="a", score=2))
    ]


def test_row_is_completed_by_more_than_half_of_its_judges() -> None:
    out = judged([["a", "a", ""], ["a", "", ""], ["", "", ""]])

    first, second, third = out.to_records()
    assert (first["status"], first["answer"], first["answer_3"]) == ("completed", "a", None)
    assert first["error"].startswith("judge 3: ")
    assert (second["status"], second["answer"], second["answer_1"]) == ("failed", None, "a")
    assert third["status"] == "failed"
    assert all(f"judge {n}: " in third["error"] for n in (1, 2, 3))


def test_tokens_of_a_row_are_those_of_all_its_judges() -> None:
    rows = [["a", "b", "c"], ["a", "b", "c"]]

    assert judged(rows).df.tokens[1] == 3 * judged([row[:1] for row in rows]).df.tokens[1]


def test_models_give_the_judges_in_their_order() -> None:
    session = Session(model="demo", store=None)
    run = session.map(["a", "b"], "{{text}}?", models=["demo", "demo"])

    assert [*run.result().df.columns[:3]] == ["answer", "answer_1", "answer_2"]


@pytest.mark.parametrize("judges", [1, 4])
def test_each_judge_asks_the_model_at_its_place(judges: int) -> None:
    session = Session(provider=ScriptedProvider(lambda request: request.model), store=None)
    run = session.map(
        ["a", "b"], "{{text}}?", models=["scripted/strict", "scripted/mild"], judges=judges
    )

    for record in run.result().to_records():
        said = [record[f"answer_{number}"] for number in range(1, max(2, judges) + 1)]
        assert said == ["strict", "mild"] * (max(2, judges) // 2)


# -- agreement ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        None,
        lambda texts: pl.DataFrame({"text": texts}),
        lambda texts: pd.DataFrame({"text": texts}, index=["i", "j", "k"]),
    ],
    ids=["list", "polars", "pandas"],
)
def test_agreement_has_alpha_rows_and_those_that_differ(frame: Any) -> None:
    out = judged([["a", "a"], ["a", "b"], ["b", ""]], frame=frame)

    found = out.agreement()

    assert found.rows == 2
    assert found.alpha == pytest.approx(alpha_of([("a", "a"), ("a", "b")]))
    assert type(found.disagreements) is type(out.df)
    assert [*found.disagreements.columns] == ["row", "answer_1", "answer_2", "path"]
    assert [*found.disagreements["row"]] == [1]
    assert [*found.disagreements["answer_2"]] == ["b"]
    if isinstance(out.df, pd.DataFrame):
        assert [*found.disagreements.index] == [out.df.index[1]]


def test_agreement_of_a_field_compares_numbers_by_their_distance_unless_told() -> None:
    verdict = '{{"kind": "{}", "score": {}}}'.format
    scores = [(1, 2), (5, 5), (4, 3)]
    out = judged([[verdict("x", score) for score in row] for row in scores], Verdict)

    for level in ("interval", "ordinal", "nominal"):
        found = out.agreement("score", level=level)
        assert found.alpha == pytest.approx(alpha_of(scores, level))
        assert found.level == level
    assert out.agreement("score").level == "interval"
    assert (out.agreement("kind").alpha, out.agreement("kind").differing) == (1.0, 0)
    whole = [(str(one), str(other)) for one, other in scores]
    assert out.agreement().alpha == pytest.approx(alpha_of(whole))


@pytest.mark.parametrize("as_column", [True, False])
def test_labels_of_a_person_count_as_one_judge_more(as_column: bool) -> None:
    labels = ["a", None, "b"]

    def frame(texts: list[str]) -> pd.DataFrame:
        return pd.DataFrame({"text": texts, "mine": labels})

    out = judged([["a"], ["b"], ["c"]], frame=frame)

    found = out.agreement(labels="mine" if as_column else labels)

    assert found.rows == 2
    assert found.alpha == pytest.approx(alpha_of([("a", "a"), ("c", "b")]))
    assert found.disagreements.iloc[0].to_dict() == {
        "row": 2, "answer": "c", "mine" if as_column else "labels": "b", "path": "3",
    }  # fmt: skip


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "one judge": ({}, ["judges", "labels"]),
    "an unknown field": ({"field": "kin"}, ["'kin'", "'kind'"]),
    "an unknown column": ({"field": "kind", "labels": "txt"}, ["'txt'", "mean 'text'"]),
    "labels of all fields": ({"labels": "text"}, ["field"]),
    "labels for other rows": ({"field": "kind", "labels": ["a", "b"]}, ["2", "1"]),
    "labels that are none": ({"field": "kind", "labels": 3}, ["`labels`", "3"]),
    "an unknown level": ({"field": "score", "labels": [1], "level": "best"}, ["`level`", "'best'"]),
    "numbers wanted": ({"field": "kind", "labels": ["a"], "level": "ordinal"}, ["ordinal"]),
}


@pytest.mark.parametrize(("given", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_agreement_that_cannot_be_is_refused(given: dict[str, Any], says: list[str]) -> None:
    out = judged([['{"kind": "a", "score": 1}']], Verdict)

    with pytest.raises(ValueError) as refused:  # noqa: PT011, the words are compared
        out.agreement(**given)
    assert [word for word in says if word not in str(refused.value)] == [], refused.value


def test_agreement_as_the_last_value_of_a_cell_is_a_small_table() -> None:
    found = judged([["<b>", "c"], ["a", "a"]]).agreement()

    shown = found._repr_mimebundle_()

    assert repr(found) == f"Agreement({found.in_words})"
    assert shown["text/plain"].startswith(f"Agreement: {found.in_words}\n")
    assert "2 rows, 1 differ" in found.in_words
    assert "&lt;b&gt;" in shown["text/html"]


def test_number_of_judges_that_no_memory_holds_is_refused() -> None:
    assert "at most 100" in refusal_of(["a"], judges=10**9)
