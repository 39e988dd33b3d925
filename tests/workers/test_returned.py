"""What a worker leaves comes back as it was; what is not in the table is left out, and says why."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import math
import uuid
import zoneinfo
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure

from agentnb.workers.returned_models import Picture
from tests.workers.left import came_back, left_and_read

ZONE = zoneinfo.ZoneInfo("Europe/Berlin")
HOURS = pd.date_range("2026-03-28 22:00", periods=4, freq="h", tz="Europe/Berlin", name="when")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        10**400,
        1.5,
        math.inf,
        "short",
        "a\x00b\ud800 " + "long" * 1_000,
        2 - 3j,
        b"\x00\xff",
        bytearray(b"ab"),
        [1, [2, (3, None)]],
        {"a": {1, 2}, 5: frozenset({"x"}), (1, 2): "tuple"},
        collections.OrderedDict(b=1, a=2),
        collections.Counter("abca"),
        collections.deque([1, 2]),
        slice(1, None, 2),
        datetime.date(2026, 1, 2),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),  # noqa: UP017
        datetime.datetime(2026, 10, 25, 2, 30, tzinfo=ZONE, fold=1),
        datetime.timedelta(days=-1, microseconds=3),
        decimal.Decimal("1.10"),
        fractions.Fraction(-1, 3),
        uuid.UUID(int=7),
    ],
    ids=repr,
)
def test_plain_value_comes_back_equal_and_of_its_type(tmp_path: Path, value: Any) -> None:
    back = came_back(tmp_path, value)

    if isinstance(value, str):
        value = value.replace("\ud800", "\ufffd" * 3)  # half of a pair is no character
    assert type(back) is type(value)
    assert back == value
    assert getattr(back, "tzinfo", None) == getattr(value, "tzinfo", None)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=">i2").reshape(3, 2)),
        np.array([True, False]),
        np.array(["a", "bcd"]),
        np.array(["2026-01-02", "NaT"], "M8[s]"),
        np.zeros((0, 3)),
        np.array(3 + 4j),
        np.arange(10)[::3],
    ],
    ids=lambda value: f"{value.dtype} {value.shape}",
)
def test_array_comes_back_equal_and_can_be_written_to(tmp_path: Path, value: Any) -> None:
    back = came_back(tmp_path, value)

    np.testing.assert_array_equal(back, value)
    assert back.dtype == value.dtype
    assert back.flags.writeable


def test_array_of_objects_and_scalars_come_back(tmp_path: Path) -> None:
    value = np.array([1, "a", None, {"k": [2]}], dtype=object).reshape(2, 2)

    assert came_back(tmp_path, value).tolist() == value.tolist()
    back = came_back(tmp_path, [np.float32(0.5), np.datetime64("2026-01-01", "D")])
    assert [type(each) for each in back] == [np.float32, np.datetime64]


FRAMES = {
    "numbers": pd.DataFrame({"a": [1, 2], "b": [0.5, math.nan]}),
    "texts": pd.DataFrame({"a": ["x", None], "b": pd.array(["y", pd.NA], dtype="string")}),
    "objects": pd.DataFrame({"a": pd.Series(["x", None, 3], dtype=object)}),
    "old texts": pd.DataFrame({"a": pd.Series(["x", "y"], dtype=object)}),
    "kinds": pd.DataFrame(
        {
            "category": pd.Categorical(["b", "a", None], categories=["b", "a"], ordered=True),
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "truth": pd.array([True, None, False], dtype="boolean"),
            "when": pd.to_datetime(["2026-01-01", None, "2026-01-03"]),
            "long": pd.to_timedelta([1, 2, 3], unit="s"),
            "period": pd.period_range("2026-01", periods=3, freq="M"),
            "within": pd.interval_range(0, 3),
        }
    ),
    "zone": pd.DataFrame({"x": range(4)}, index=HOURS),
    "levels": pd.DataFrame(
        {"x": [1.0, 2.0, 3.0]},
        index=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["k", None]),
    ),
    "twice the same name": pd.DataFrame([[1, 2.5]], columns=["a", "a"]),
    "nothing": pd.DataFrame(),
    "no rows": pd.DataFrame({"a": pd.Series([], dtype="int8")}),
    "names that are numbers": pd.DataFrame(np.eye(3), columns=[10, 20, 30]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frame_of_pandas_comes_back_equal(tmp_path: Path, name: str) -> None:
    back = came_back(tmp_path, FRAMES[name])

    pd.testing.assert_frame_equal(back, FRAMES[name])
    assert getattr(back.index, "freq", None) == getattr(FRAMES[name].index, "freq", None)


def test_series_index_and_single_values_of_pandas_come_back(tmp_path: Path) -> None:
    series = pd.Series([1, 2], index=["a", "b"], name=("x", 1))
    texts = pd.Series(["a", "b"], dtype=object)
    single = [HOURS[0], pd.Timestamp("2026-01-01"), pd.Timedelta("1h"), pd.NA, pd.NaT]

    pd.testing.assert_series_equal(came_back(tmp_path, series), series)
    pd.testing.assert_series_equal(came_back(tmp_path, texts), texts)
    pd.testing.assert_index_equal(came_back(tmp_path, HOURS), HOURS)
    back = came_back(tmp_path, single)
    assert back[:3] == single[:3]
    assert back[3] is pd.NA
    assert back[4] is pd.NaT
    assert back[0].tz.key == "Europe/Berlin"


def test_frame_of_polars_comes_back_equal(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "n": pl.Series([1, None, 3], dtype=pl.Int32),
            "x": [0.5, None, -1.0],
            "t": [True, None, False],
            "s": ["a", None, "c"],
            "c": pl.Series(["u", "v", None], dtype=pl.Categorical),
            "d": [datetime.date(2026, 1, 1), None, datetime.date(2026, 1, 3)],
            "z": pl.Series([datetime.datetime(2026, 1, 1)] * 3).dt.replace_time_zone("Asia/Tokyo"),
            "l": [datetime.timedelta(seconds=1)] * 3,
            "h": [datetime.time(1, 2, 3)] * 3,
        }
    )

    back = came_back(tmp_path, {"frame": frame, "series": frame["s"]})

    assert back["frame"].schema == frame.schema
    assert back["frame"].to_dict(as_series=False) == frame.to_dict(as_series=False)
    assert back["series"].to_list() == ["a", None, "c"]


def test_figure_comes_back_as_a_picture(tmp_path: Path) -> None:
    figure = Figure(figsize=(4, 3))
    figure.subplots().plot([1, 2])

    picture = came_back(tmp_path, figure)

    assert isinstance(picture, Picture)
    assert (picture.width, picture.height) == (400, 300)
    assert picture._repr_png_().startswith(b"\x89PNG")


class OfTheUser:
    pass


class Text(str):
    pass


LOOP: list[Any] = []
LOOP.append(LOOP)
UNKNOWN = {
    "a class of the user": (OfTheUser(), "OfTheUser cannot come back"),
    "a subclass": (Text("x"), "Text cannot come back"),
    "an object that holds itself": (LOOP, "nested more than 40 levels"),
    "an array of records": (np.zeros(2, [("a", "i4")]), "cannot come back"),
    "an array with one": (np.array([OfTheUser()], dtype=object), "OfTheUser cannot"),
    "a column of lists": (pl.DataFrame({"a": [[1], [2]]}), r"a column of List\(Int64\) cannot"),
    "a lazy frame": (pl.LazyFrame({"a": [1]}), "`collect\\(\\)` it"),
    "a generator": ((i for i in "a"), "generator cannot come back"),
    "too many values": ([0] * 600_000, "put them into an array"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_has_no_form_is_left_out_with_the_reason_and_the_others_come(
    tmp_path: Path, name: str
) -> None:
    value, reason = UNKNOWN[name]

    returned = left_and_read(tmp_path, {"bad": value, "good": [1]})

    assert returned.objects == {"good": [1]}
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(returned.left_out["bad"])


def test_modules_functions_and_classes_are_not_spoken_of(tmp_path: Path) -> None:
    names = {"np": np, "f": came_back, "C": OfTheUser, "p": print}

    returned = left_and_read(tmp_path, names)

    assert (returned.objects, returned.left_out) == ({}, {})


def test_what_would_be_too_large_is_left_out_and_the_rest_comes(tmp_path: Path) -> None:
    names = {"large": np.zeros(200_000), "small": np.zeros(10)}

    returned = left_and_read(tmp_path, names, most=1_000_000)

    assert list(returned.objects) == ["small"]
    assert "larger than the memory" in returned.left_out["large"]
