"""Values as text in prompts: the same in every kernel, in `{{…}}` and in the cells of tables."""

from __future__ import annotations

from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import attrs
import pytest
from pydantic import BaseModel

from agentnb.mapping.cells import cell_text
from agentnb.notebook.template import fill
from agentnb.objects.written import written

SET = {8, 1}
"""Its own order is that of Python's table: 8, 1."""


@dataclass
class Found:
    name: str
    at: set[int]


class Model(BaseModel):
    name: str
    at: frozenset[int]
    rest: list[set[int]] = []


@attrs.define
class Defined:
    name: str
    at: set[int]
    unseen: int = attrs.field(default=0, repr=False)


@attrs.define
class Shortened:
    at: set[int] = attrs.field(repr=lambda at: f"{len(at)} of them")


class Place(NamedTuple):
    name: str
    at: set[int]


class OwnList(list[set[int]]): ...


class OwnDict(dict[str, Any]): ...


class OwnSet(set[int]): ...


class OwnWords(list[set[int]]):
    def __repr__(self) -> str:
        return "my own words"


class OwnSpace(SimpleNamespace): ...


class Kind(Enum):
    BOTH = SET


class Level(IntEnum):
    LOW = 1


class Mark(Flag):
    A = auto()
    B = auto()


class Thing:
    pass


class Named:
    def __str__(self) -> str:
        return f"a thing of {Thing()}"


def endless() -> list[Any]:
    items: list[Any] = [{8, 1}]
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (SET, "{1, 8}"),
        (frozenset(SET), "frozenset({1, 8})"),
        (set(), "set()"),
        (frozenset(), "frozenset()"),
        ({"known": SET, "n": 1}, "{'known': {1, 8}, 'n': 1}"),
        ({frozenset(SET): "a"}, "{frozenset({1, 8}): 'a'}"),
        ([1, (SET,)], "[1, ({1, 8},)]"),
        ((SET, 2), "({1, 8}, 2)"),
        (Found("x", SET), "Found(name='x', at={1, 8})"),
        (Model(name="x", at=frozenset(SET)), "Model(name='x', at=frozenset({1, 8}), rest=[])"),
        (defaultdict(set, a=SET), "defaultdict(<class 'set'>, {'a': {1, 8}})"),
        (OrderedDict(a=SET), "OrderedDict({'a': {1, 8}})"),
        (OrderedDict(), "OrderedDict()"),
        (Counter([frozenset(SET), 1, 1]), "Counter({1: 2, frozenset({1, 8}): 1})"),
        (Counter(), "Counter()"),
        (deque([SET]), "deque([{1, 8}])"),
        (deque(), "deque([])"),
        (ChainMap({"a": SET}, {}), "ChainMap({'a': {1, 8}}, {})"),
        (SimpleNamespace(a=SET, b=1), "namespace(a={1, 8}, b=1)"),
        (OwnSpace(a=[SET]), "OwnSpace(a=[{1, 8}])"),
        ([Kind.BOTH], "[<Kind.BOTH: {1, 8}>]"),
        (UserDict(a=SET), "{'a': {1, 8}}"),
        (UserList([SET]), "[{1, 8}]"),
        ([MappingProxyType({"a": SET})], "[mappingproxy({'a': {1, 8}})]"),
        (Defined("x", SET), "Defined(name='x', at={1, 8})"),
        (Shortened(SET), "Shortened(at=2 of them)"),
        (Place("x", SET), "Place(name='x', at={1, 8})"),
        (OwnList([SET]), "[{1, 8}]"),
        (OwnDict(a=[SET]), "{'a': [{1, 8}]}"),
        (OwnSet(SET), "OwnSet({1, 8})"),
        (OwnSet(), "OwnSet()"),
        ({"a": (Place("x", OwnSet(SET)),)}, "{'a': (Place(name='x', at=OwnSet({1, 8})),)}"),
        (OwnWords([SET]), "my own words"),
        ({"a": SET}.values(), "dict_values([{1, 8}])"),
        (UserDict(a=SET).items(), "ItemsView({'a': {1, 8}})"),
        (MappingProxyType({"a": SET}), "mappingproxy({'a': {1, 8}})"),
        ([{frozenset(SET): 1}.keys()], "[dict_keys([frozenset({1, 8})])]"),
        ({"a": SET}.items(), "dict_items([('a', {1, 8})])"),
        ([ValueError(SET)], "[ValueError({1, 8})]"),
        (ValueError(SET), "{1, 8}"),
        (ValueError(SET, 1), "({1, 8}, 1)"),
        (ValueError(), ""),
        (KeyError("a"), "'a'"),
        (ChainMap({"a": 1}), "ChainMap({'a': 1})"),
        (Kind.BOTH, "Kind.BOTH"),
        ([Level.LOW, Mark.A | Mark.B], "[<Level.LOW: 1>, <Mark.A|B: 3>]"),
        (UserList([1]), "[1]"),
        (Thing(), "<tests.objects.test_written.Thing object>"),
        (
            [Thing(), "it is at 0x12ab"],
            "[<tests.objects.test_written.Thing object>, 'it is at 0x12ab']",
        ),
        (Named(), "a thing of <tests.objects.test_written.Thing object>"),
        ("it is at 0x12ab", "it is at 0x12ab"),
        (["it is at 0x12ab"], "['it is at 0x12ab']"),
        ({"b": 2, "a": [None, 1.5]}, "{'b': 2, 'a': [None, 1.5]}"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_value_is_written_whole_and_in_order(value: Any, text: str) -> None:
    assert repr(SET) == "{8, 1}", "a set of an order of its own"
    assert written(value) == text
    assert fill("Is it in {{value}}?", {"value": value}) == f"Is it in {text}?"


def test_deque_within_itself_ends() -> None:
    items: deque[object] = deque([1])
    items.append(items)

    assert written(items) == "deque([1, ...])"


def test_list_within_itself_ends() -> None:
    assert written(endless()).startswith("[{1, 8}, [")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (SET, "[1, 8]"),
        (frozenset(SET), "[1, 8]"),
        ({"known": [SET]}, '{"known": [[1, 8]]}'),
        ({frozenset(SET): 1, 2: 3, None: 4}, '{"frozenset({1, 8})": 1, "2": 3, "None": 4}'),
        (Found("x", SET), '{"name": "x", "at": [1, 8]}'),
        (
            Model(name="x", at=frozenset(SET), rest=[SET, {3}]),
            '{"name": "x", "at": [1, 8], "rest": [[1, 8], [3]]}',
        ),
        (Thing(), "<tests.objects.test_written.Thing object>"),
        ([Thing()], '["<tests.objects.test_written.Thing object>"]'),
    ],
)
def test_cell_of_a_table_is_written_in_order(value: Any, text: str) -> None:
    assert cell_text(value) == text
