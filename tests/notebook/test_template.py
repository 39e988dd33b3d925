from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.errors import NotebookError
from agentnb.notebook.template import fill
from agentnb.objects.describe import describe

NAMES = {
    "city": "Ulm",
    "n": 3,
    "table": {"k": "Kiel", 3: "three", ("a", 1): "pair"},
    "rows": ["first", "second", "last"],
    "place": SimpleNamespace(name="Bonn", inner=SimpleNamespace(deep=["found"])),
    "braces": "{{city}}",
    "key": "k",
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{city}}", "Ulm"),
        ("a {{ city }}, b {{n}}", "a Ulm, b 3"),
        ("{{place.name}}", "Bonn"),
        ("{{place.inner.deep[0]}}", "found"),
        ('{{table["k"]}} {{table[3]}} {{table[("a", 1)]}}', "Kiel three pair"),
        ("{{table[key]}} {{table[n]}}", "Kiel three"),
        ("{{rows[-1]}}", "last"),
        ("{{\n city\n}}", "Ulm"),
        ("{city} {n", "{city} {n"),
        ("}} and { {city} }", "}} and { {city} }"),
        ("{{never closed", "{{never closed"),
        ("", ""),
    ],
)
def test_names_attributes_and_items_are_filled_in(template: str, expected: str) -> None:
    assert fill(template, NAMES) == expected


def test_value_that_holds_braces_is_text_and_not_filled_again() -> None:
    assert fill("{{braces}}", NAMES) == "{{city}}"


class Forest:
    def _repr_llm_(self) -> str:
        return "3 trees"


TABLE = pd.DataFrame({"a": range(9), "b": ["x"] * 9})
DESCRIBED = {
    "df": TABLE,
    "inner": SimpleNamespace(df=TABLE),
    "series": TABLE["a"],
    "polars": pl.DataFrame({"a": [1]}),
    "array": np.arange(9),
    "forest": Forest(),
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("df", TABLE),
        ("inner.df", TABLE),
        ("df['a']", TABLE["a"]),
        ("series", TABLE["a"]),
        ("polars", DESCRIBED["polars"]),
        ("array", DESCRIBED["array"]),
        ("forest", DESCRIBED["forest"]),
    ],
)
def test_data_and_what_describes_itself_is_named_and_described_below_the_task(
    expression: str, value: object
) -> None:
    hole = f"{{{{ {expression} }}}}"
    filled = fill(f"Look at {hole}, and again at {hole}.\n", DESCRIBED)

    named = f"Look at {expression}, and again at {expression}."
    assert filled == f"{named}\n\n{describe(expression, value)}"


def test_name_of_a_given_object_stays_for_the_session() -> None:
    assert fill("Look at {{ df }} in {{city}}.", NAMES, {"df"}) == "Look at {{ df }} in Ulm."


def test_frame_in_a_task_says_how_many_rows_it_leaves_out() -> None:
    assert "first 5 of 9 rows shown" in fill("{{df}}", DESCRIBED)


LONG = "x" * 5_000


@pytest.mark.parametrize(
    "value",
    [LONG, 3, 1.5, None, [LONG, {"a": 1}], {"a": [LONG]}, np.float64(2.5), np.array(3), Forest],
)
def test_text_number_dict_and_list_stand_as_they_are(value: object) -> None:
    assert fill("{{value}}", {"value": value}) == str(value)


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("{{citty}}", "'citty' is not defined (did you mean 'city'?)"),
        ("{{nowhere}}", "'nowhere' is not defined"),
        ("{{table[nowhere]}}", "'nowhere' is not defined"),
        ("{{place.nothing}}", "SimpleNamespace has no attribute 'nothing'"),
        ("{{table['x']}}", "dict has no item 'x'"),
        ("{{table[[1]]}}", "dict has no item [1]"),
        ("{{rows[7]}}", "list has no item 7"),
        ("{{n[0]}}", "int has no item 0"),
    ],
)
def test_what_is_not_there_is_named(template: str, named: str) -> None:
    with pytest.raises(NotebookError) as caught:
        fill(template, NAMES)

    assert named in str(caught.value)
    assert template in str(caught.value)
    assert "--raw" in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1",
        "1 + n",
        "a b",
        "x := 1",
        "print(city)",
        "city.upper()",
        "f'{city}'",
        "lambda: 1",
        "[city]",
        "rows[0:2]",
        "table[print('x')]",
        "table[{[]: 1}]",
        "\0",
        "(" * 300,
    ],
)
def test_anything_that_would_have_to_run_is_refused(expression: str) -> None:
    with pytest.raises(NotebookError, match="only names, attributes and items"):
        fill(f"{{{{{expression}}}}}", NAMES)


@given(st.text().filter(lambda text: "{{" not in text))
def test_text_without_double_braces_stays_as_it_is(text: str) -> None:
    assert fill(text, NAMES) == text


@given(st.text(alphabet="{}[]().'\"\\ \n0ktxcity", max_size=40))
def test_any_text_is_filled_or_refused_with_the_one_error(text: str) -> None:
    with suppress(NotebookError):
        assert isinstance(fill(text, NAMES), str)
