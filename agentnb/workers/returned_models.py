"""Makes pictures and fitted models from a worker's file. See `returned`.

Of a model's class only the name comes from the worker. The class must be an estimator of
scikit-learn, from a module that this process can import from there; no method of it runs, and what
it is made of are the plain values of the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentnb.workers.inside.figures import png_size
from agentnb.workers.returned_values import (
    Maker,
    NotReadable,
    Source,
    array_in,
    library,
    number_in,
    text_in,
)

_CLASS = re.compile(r"(sklearn(?:\.[a-z_][a-z0-9_]*)+):([A-Z][A-Za-z0-9_]*)")
_NO_MODELS = ("tests", "conftest", "datasets", "externals", "experimental", "_build_utils")
_MOST_IN_PICTURE = 1_000_000
_MOST_PIXELS = 8_000_000


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as it was drawn: a live one holds code, and cannot come back."""

    png: bytes
    width: int
    """Pixels."""
    height: int

    def __repr__(self) -> str:
        return f"<Picture: {self.width} x {self.height}>"

    def _repr_png_(self) -> bytes:
        return self.png


def _picture(source: Source, node: dict[str, Any]) -> Picture:
    png = bytes(source.buffer(node.get("b")))
    width, height = png_size(png)
    if not 0 < width * height <= _MOST_PIXELS or len(png) > _MOST_IN_PICTURE:
        raise NotReadable("it is not a picture, or too large")
    return Picture(png, width, height)


def _estimator(source: Source, node: dict[str, Any]) -> Any:
    kind = _estimator_class(text_in(node, "class", most=200))
    state = node.get("state")
    if type(state) is not dict:
        raise NotReadable("it has no state")
    values = {}
    for name, each in state.items():
        if not name.isidentifier() or name.startswith("__"):
            raise NotReadable("it has an attribute that no model has")
        if "memory" in name and each is not None:
            # A pipeline would unpickle what it finds in that folder.
            raise NotReadable("its `memory` names a cache: set it to None")
        values[name] = source.value(each)
    made: Any = object.__new__(kind)
    made.__dict__.update(values)
    return made


def _estimator_class(name: str) -> type:
    found = _CLASS.fullmatch(name)
    if found is None or any(part in _NO_MODELS for part in found[1].split(".")):
        raise NotReadable(f"{name!r} is not a model that can come back")
    base = library("sklearn.base").BaseEstimator
    kind = vars(library(found[1])).get(found[2])
    if not isinstance(kind, type) or not issubclass(kind, base) or kind.__module__ != found[1]:
        raise NotReadable(f"{name!r} is not a model that can come back")
    return kind


def _tree(source: Source, node: dict[str, Any]) -> Any:
    """A decision tree. Its methods trust the numbers in it, so all are checked here."""
    np, trees = library("numpy"), library("sklearn.tree._tree")
    given = node.get("nodes")
    if type(given) is not dict or {*given} != {*trees.NODE_DTYPE.names}:
        raise NotReadable("its nodes are of another version")
    columns = {name: array_in(source, each, kinds="iufb") for name, each in given.items()}
    count = len(columns["left_child"])
    if count < 1 or any(len(each) != count for each in columns.values()):
        raise NotReadable("its nodes have no common number")
    features = number_in(node, "n_features")
    outputs, depth = number_in(node, "n_outputs"), number_in(node, "max_depth")
    classes = array_in(source, node.get("n_classes"), kinds="i")
    left, right = columns["left_child"], columns["right_child"]
    is_leaf = left == -1
    numbers = np.arange(count)
    # A child stands after its parent: so no walk goes round in a circle or out of the tree.
    fine = is_leaf | ((left > numbers) & (right > numbers) & (left < count) & (right < count))
    fine &= is_leaf | ((columns["feature"] >= 0) & (columns["feature"] < features))
    values = array_in(source, node.get("values"), kinds="f", dimensions=3)
    most = int(classes.max(initial=0))
    if not fine.all() or len(classes) != outputs or classes.min(initial=1) < 1:
        raise NotReadable("its nodes do not make a tree")
    if values.shape != (count, outputs, most) or not 0 <= depth <= count:
        raise NotReadable("its values do not fit its nodes")
    nodes = np.zeros(count, trees.NODE_DTYPE)
    for name, column in columns.items():
        nodes[name] = column
    made = trees.Tree(features, classes.astype(np.intp), outputs)
    state = {"max_depth": depth, "node_count": count, "nodes": nodes}
    made.__setstate__({**state, "values": np.ascontiguousarray(values, "f8")})
    return made


MODELS: Mapping[str, Maker] = {"picture": _picture, "estimator": _estimator, "tree": _tree}
