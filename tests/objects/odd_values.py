"""Objects that make it hard to describe them: hostile ones, huge ones, and any by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import strategies as st


class Foreign(BaseException):
    """What foreign code may raise: no `Exception`, as a panic of polars is none."""


def _raise(*_: object, **__: object) -> NoReturn:
    raise Foreign


class Raises:
    """Everything that one can ask of it raises what no `except Exception` catches."""

    __getattr__ = __len__ = __iter__ = __repr__ = __str__ = __eq__ = __hash__ = __bool__ = _raise

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise Foreign


class RaisingDict(dict[str, int]):
    __len__ = __iter__ = __repr__ = items = keys = values = _raise


class RaisingText(str):
    __len__ = __getitem__ = __str__ = __repr__ = __iter__ = encode = _raise


class RaisingList(list[int]):
    __len__ = __iter__ = __getitem__ = __repr__ = _raise


class Meta(type):
    @property
    def __module__(cls) -> Any:  # type: ignore[override]
        raise Foreign

    __subclasscheck__ = __instancecheck__ = _raise


class OfMeta(metaclass=Meta):
    """Its class raises as well."""


class RaisingHook:
    def _repr_llm_(self) -> str:
        raise Foreign


class HookOfNoText:
    async def _repr_llm_(self) -> str:
        return "never awaited"


class AnswersToAll:
    """As a mock does."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: "made up"


class Frame(pd.DataFrame):  # type: ignore[misc]
    """A frame whose parts raise."""

    iloc = dtypes = property(_raise)


@dataclass
class RaisingField:
    fine: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "fine":
            raise Foreign
        return object.__getattribute__(self, name)


def cells_of(*values: object) -> Any:
    """An array of objects that numpy does not look at."""
    cells = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        cells[at] = value
    return cells


def circle() -> list[Any]:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


HOSTILE: dict[str, Any] = {
    "all raises": Raises(),
    "dict": RaisingDict(a=1),
    "text": RaisingText("a text"),
    "list": RaisingList([1, 2]),
    "metaclass": OfMeta(),
    "its class": OfMeta,
    "hook": RaisingHook(),
    "hook of no text": HookOfNoText(),
    "answers to all": AnswersToAll(),
    "frame": Frame({"a": [1]}),
    "field": RaisingField(),
    "circle": circle(),
    "in a list": [Raises(), RaisingDict(a=1), RaisingText("x")],
    "in a dict": {"k": Raises(), "d": {"e": {"f": RaisingList([1])}}},
    "in a cell": pd.Series(cells_of(Raises(), RaisingHook()), dtype=object).to_frame("a"),
    "in an array": cells_of(Raises(), None),
}

_texts = st.text(st.characters(), max_size=60)  # half surrogates, too
_cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    _texts,
    st.binary(max_size=20),
    st.datetimes(),
    st.booleans().map(lambda _: 10**5_000),
    # By itself the first one would stop hypothesis, too.
    st.sampled_from([*HOSTILE][1:]).map(lambda which: HOSTILE[which]),
)
_hashable: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), _texts, st.tuples(_texts, _texts)
)
_nested = st.recursive(
    _cells,
    lambda inner: st.one_of(
        st.lists(inner, max_size=12),
        st.dictionaries(_hashable, inner, max_size=12),
        st.tuples(inner, inner),
        st.sets(_hashable, max_size=12),
    ),
    max_leaves=20,
)


@st.composite
def _frames(draw: st.DrawFn) -> Any:
    names: list[Any] = draw(st.lists(_hashable, max_size=8))
    rows = draw(st.integers(0, 8))
    columns = [draw(st.lists(_cells, min_size=rows, max_size=rows)) for _ in names]
    series = [pd.Series(cells_of(*cells), dtype=object) for cells in columns]
    frame = pd.concat(series or [pd.Series([], dtype=object)], axis=1)
    if names:
        frame.columns = pd.Index(names, dtype=object, tupleize_cols=False)
    is_series: bool = draw(st.booleans())
    return frame.iloc[:, 0] if names and is_series else frame


@st.composite
def _polars(draw: st.DrawFn) -> Any:
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    rows = draw(st.integers(0, 8))
    names = draw(st.lists(texts, max_size=6, unique=True))
    numbers = st.one_of(st.none(), st.floats(allow_nan=True))
    kinds = (st.one_of(st.none(), texts), numbers, st.lists(st.integers(0, 9), max_size=4))
    columns = {
        name: draw(st.lists(draw(st.sampled_from(kinds)), min_size=rows, max_size=rows))
        for name in names
    }
    return pl.DataFrame(columns, strict=False)


ANY = st.one_of(
    _nested,
    _frames(),
    _polars(),
    st.lists(_cells, max_size=12).map(lambda cells: cells_of(*cells)),
    st.lists(st.floats(), max_size=40).map(np.array),
    _texts.map(lambda text: text * 200),
)
"""Any object, of any kind."""
