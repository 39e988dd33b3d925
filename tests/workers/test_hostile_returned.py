"""A worker's file is hostile: whatever is in it, nothing of it runs, and no bound is passed."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentnb.workers.inside.leaving import MAGIC, leave
from agentnb.workers.returned import Returned
from tests.workers.left import forge, forged, forged_header, left_and_read, read


def words(returned: Returned) -> str:
    assert returned.objects == {}
    return " ".join(returned.left_out.values())


def array(dtype: str = "<i8", shape: Any = (1,), buffer: Any = 0) -> dict[str, Any]:
    return {"t": "array", "d": dtype, "s": shape, "b": buffer}


INDEX = {"t": "range", "v": [0, 1, 1], "name": None}
EIGHT = [b"\0" * 8]


class _Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch exploded",)


def test_pickle_is_not_read_whatever_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "left").write_bytes(pickle.dumps(_Bomb()))
    whole = words(read(tmp_path / "left"))
    node = words(forged(tmp_path, {"t": "pickle", "b": 0}, [pickle.dumps(_Bomb())]))

    assert "does not begin as what a worker leaves" in whole
    assert "'pickle' cannot come back" in node
    assert not (tmp_path / "exploded").exists()


def test_no_reader_knows_pickle_or_a_way_to_run_text() -> None:
    code = (
        "import sys, agentnb.workers.returned\n"
        "for name in ('returned', 'returned_values', 'returned_frames', 'returned_models'):\n"
        "    module = vars(sys.modules[f'agentnb.workers.{name}'])\n"
        "    assert not {'pickle', 'marshal', 'joblib', 'dill'} & module.keys(), name\n"
        "assert 'pickle' not in sys.modules"
    )

    subprocess.run([sys.executable, "-S", "-P", "-c", code], check=True, env=dict(os.environ))


REFUSED: dict[str, tuple[Any, list[bytes], str]] = {
    "unknown type": ({"t": "os.system", "v": ["id"]}, [], "cannot come back"),
    "a type that is a list": ({"t": ["list"], "v": []}, [], "not in the form"),
    "a bare list": ([1, 2], [], "not in the form"),
    "objects from bytes": (array("|O"), EIGHT, "an array of '|O' cannot come back"),
    "records": (array("<i4,|O"), EIGHT, "cannot come back"),
    "void": (array("|V8"), EIGHT, "cannot come back"),
    "a name that numpy would parse": (array("i4, (2,)f8"), EIGHT, "cannot come back"),
    "a shape too large": (array(shape=[2**40]), EIGHT, "does not fit its 8 bytes"),
    "a shape that overflows": (array(shape=[2**62, 4]), EIGHT, "does not fit"),
    "a negative shape": (array(shape=[-1]), EIGHT, "it has no shape"),
    "a shape of truth": (array(shape=[True]), EIGHT, "it has no shape"),
    "many dimensions": (array(shape=[1] * 60), EIGHT, "it has no shape"),
    "a buffer that is not there": (array(buffer=3), EIGHT, "a buffer that is not there"),
    "a buffer before the first": (array(buffer=-1), EIGHT, "a buffer that is not there"),
    "a number of many digits": ({"t": "int", "v": "0x" + "f" * 20_000}, [], "not a text"),
    "a fraction with an exponent": ({"t": "Fraction", "v": "1e999999999"}, [], "not a fraction"),
    "a zone that is a path": (
        {"t": "datetime", "v": "2026-01-01", "zone": "../../etc/passwd"},
        [],
        "is not known",
    ),
    "texts that are longer than their buffer": (
        {"t": "texts", "n": 1, "l": 0, "b": 1},
        [struct.pack("<q", 2**40), b"abc"],
        "lengths are wrong",
    ),
    "texts whose lengths overflow": (
        {"t": "texts", "n": 2, "l": 0, "b": 1},
        [struct.pack("<qq", 2**63 - 1, 2**63 - 1), b"abc"],
        "lengths are wrong",
    ),
    "keys without values": ({"t": "dict", "k": [1, 2], "v": [1]}, [], "not as many values"),
    "a list as a key": ({"t": "dict", "k": [{"t": "list", "v": []}], "v": [1]}, [], "TypeError"),
    "an index that is a text": ({"t": "series", "v": "abc", "index": "abc"}, [], "not one"),
    "a column that is a text": ({"t": "series", "v": "abc", "index": INDEX}, [], "not one"),
    "a column of two dimensions": (
        {"t": "series", "v": array(shape=[1, 1]), "index": INDEX},
        EIGHT,
        "not one",
    ),
    "columns of several lengths": (
        {"t": "frame", "columns": INDEX, "index": INDEX, "v": [array("|i1", [8])]},
        EIGHT,
        "do not fit its index",
    ),
    "codes beyond the levels": (
        {"t": "levels", "v": [INDEX], "codes": [array("|i1", [1])], "names": [None]},
        [b"\x05"],
        "values that are not there",
    ),
    "categories beyond the codes": (
        {"t": "category", "codes": array("|i1", [1]), "of": INDEX},
        [b"\x05"],
        "ValueError",
    ),
    "a mask of another length": (
        {"t": "masked", "d": "Int8", "v": array("|i1", [2]), "mask": array("|b1", [1], 1)},
        [b"\0\0", b"\0"],
        "do not fit its mask",
    ),
    "a masked column of objects": (
        {"t": "masked", "d": "object", "v": array(), "mask": array()},
        EIGHT,
        "cannot come back",
    ),
    "a period of any text": (
        {"t": "period", "v": array(), "freq": "M]; import os"},
        EIGHT,
        "is not known",
    ),
    "a type of polars that is none": (
        {"t": "polars", "v": [{"name": "a", "d": "Object", "v": array(), "mask": None}]},
        EIGHT,
        "cannot come back",
    ),
    "an attribute of polars": (
        {"t": "polars", "v": [{"name": "a", "d": "read_csv", "v": array(), "mask": None}]},
        EIGHT,
        "cannot come back",
    ),
    "a sparse matrix by another name": (
        {"t": "sparse", "kind": "load_npz", "s": [1, 1], "data": array()},
        EIGHT,
        "cannot come back",
    ),
    "a picture that is none": ({"t": "picture", "b": 0}, [b"GIF89a"], "not a picture"),
    "a picture of many pixels": (
        {"t": "picture", "b": 0},
        [b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 2**31, 2**31)],
        "or too large",
    ),
    "a model of another package": (
        {"t": "estimator", "class": "os:system", "state": {}},
        [],
        "not a model that can come back",
    ),
    "a model that is a function": (
        {"t": "estimator", "class": "sklearn.base:clone", "state": {}},
        [],
        "not a model that can come back",
    ),
    "a model by a path": (
        {"t": "estimator", "class": "sklearn.base.os:System", "state": {}},
        [],
        "sklearn",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_made_up_node_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    node, buffers, reason = REFUSED[name]

    assert reason in words(forged(tmp_path, node, buffers))


@pytest.mark.parametrize(
    "places", [[[0, 2**62]], [[-64, 8]], [[0, 8], [4, 8]], [[0, True]], [["0", 8]], [[0]], [None]]
)
def test_buffer_outside_the_file_or_over_another_is_refused(tmp_path: Path, places: Any) -> None:
    header = {"names": {"value": 1}, "buffers": places}

    assert "could not be read" in words(forged_header(tmp_path, header, b"\0" * 64))


def test_header_may_be_neither_long_nor_deep_nor_anything_else(tmp_path: Path) -> None:
    for content in (
        MAGIC + (2**60).to_bytes(8, "little"),
        MAGIC + (10).to_bytes(8, "little") + b"{",
        MAGIC + (200_000).to_bytes(8, "little") + b"[" * 200_000,
        MAGIC + (6).to_bytes(8, "little") + b"[1, 2]",
        MAGIC,
        b"",
    ):
        (tmp_path / "left").write_bytes(content)
        assert "could not be read" in words(read(tmp_path / "left"))


def test_values_are_bounded_in_depth_and_number(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"t": "tuple", "v": [deep]}
    many = {"t": "list", "v": [{"t": "list", "v": [0] * 1_000}] * 600}

    assert "nested more than" in words(forged(tmp_path, deep))
    assert "more than 500,000 plain values" in words(forged(tmp_path, many))


def test_reading_stops_when_its_time_is_over(tmp_path: Path) -> None:
    left_and_read(tmp_path, {"value": list(range(1_000))})

    late = read(tmp_path / "left", seconds=-1)

    assert late.left_out == {"value": "there was no time left to read it"}


def test_values_that_were_chosen_to_have_one_hash_cannot_hold_it_up(tmp_path: Path) -> None:
    step = sys.hash_info.modulus
    same = [{"t": "int", "v": hex(step * i)} for i in range(1, 60_000)]
    header = {"names": {"value": {"t": "set", "v": same}}, "buffers": []}

    late = read(forge(tmp_path, header), seconds=1)  # all of it would take minutes

    assert late.left_out == {"value": "there was no time left to read it"}


def test_what_is_not_a_file_is_not_read(tmp_path: Path) -> None:
    secret, left = tmp_path / "secret", tmp_path / "left"
    leave({"value": 1}, secret, most=1_000)
    assert read(secret).objects == {"value": 1}
    makers: list[Callable[[], object]] = [
        lambda: left.symlink_to(secret),
        lambda: os.mkfifo(left),
        lambda: left.mkdir(),
        lambda: None,
    ]
    for make in makers:
        make()
        assert "could not be read" in words(read(left))
        if left.is_dir():
            left.rmdir()
        else:
            left.unlink(missing_ok=True)


def test_file_larger_than_the_bound_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "left").open("wb") as file:
        file.truncate(2**40)  # it takes no room on the disk

    assert "bytes, and may have" in words(read(tmp_path / "left"))


def test_names_and_reasons_are_checked_too(tmp_path: Path) -> None:
    header = {
        "names": {"fine": 1, "_hidden": 1, "no name": 1, "__class__": 1},
        "left_out": {"other": "x" * 10_000, "\x1b[2J": "y", "fine": "z"},
        "buffers": [],
    }

    returned = forged_header(tmp_path, header)

    assert returned.objects == {"fine": 1}
    assert list(returned.left_out) == ["other"]
    assert len(returned.left_out["other"]) == 500


def test_truth_value_that_is_neither_becomes_true(tmp_path: Path) -> None:
    returned = forged(tmp_path, array("|b1", [3]), [b"\x00\x01\x07"])

    np.testing.assert_array_equal(returned.objects["value"].view("u1"), [0, 1, 1])


# -- models: a library of that name and shape, so that none has to be installed -------------------

LIBRARY = {
    "__init__.py": "",
    "base.py": """
        class BaseEstimator:
            def __setstate__(self, state):
                raise SystemExit("a method of a model ran")
        def clone(estimator): ...
    """,
    "linear_model/__init__.py": "from sklearn.linear_model._base import LinearRegression",
    "linear_model/_base.py": """
        from sklearn.base import BaseEstimator
        class LinearRegression(BaseEstimator):
            def __init__(self, memory=None):
                self.memory = memory
        class NoModel: ...
    """,
}


@pytest.fixture
def sklearn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for scikit-learn, as if it were installed."""
    from agentnb.workers import returned_values

    write_library(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(returned_values, "_installed", lambda: [tmp_path / "site"])
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        del sys.modules[name]


def write_library(folder: Path) -> None:
    for name, text in LIBRARY.items():
        file = folder / "sklearn" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")


def model(state: dict[str, Any], kind: str = "sklearn.linear_model._base:LinearRegression") -> Any:
    return {"t": "estimator", "class": kind, "state": state}


@pytest.mark.usefixtures("sklearn")
def test_fitted_model_comes_back_without_any_method_of_it(tmp_path: Path) -> None:
    import importlib

    kind = importlib.import_module("sklearn.linear_model").LinearRegression
    fitted = kind()
    fitted.coef_ = np.array([1.0, 2.0])

    returned = left_and_read(tmp_path, {"model": fitted})

    assert returned.left_out == {}
    assert type(returned.objects["model"]) is kind
    assert returned.objects["model"].coef_.tolist() == [1.0, 2.0]


@pytest.mark.usefixtures("sklearn")
def test_model_is_refused_that_is_no_estimator_or_would_read_a_folder(tmp_path: Path) -> None:
    no_model = model({}, "sklearn.linear_model._base:NoModel")
    other_place = model({}, "sklearn.linear_model:LinearRegression")

    assert "not a model" in words(forged(tmp_path, no_model))
    assert "not a model" in words(forged(tmp_path, other_place))
    assert "`memory` names a cache" in words(forged(tmp_path, model({"memory": "/tmp/evil"})))
    assert "no model has" in words(forged(tmp_path, model({"__class__": 1})))


def test_library_that_lies_in_the_working_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_library(tmp_path)
    (tmp_path / "sklearn" / "__init__.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert "`sklearn` is not installed here" in words(forged(tmp_path, model({})))


def test_reasons_are_plain_text(tmp_path: Path) -> None:
    header = {"names": {}, "left_out": {"value": ["\x1b[2J"]}, "buffers": []}

    assert json.dumps(dict(forged_header(tmp_path, header).left_out))
