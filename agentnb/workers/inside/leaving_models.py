"""Figures and fitted models as nodes of the file that a worker leaves. See `leaving`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from agentnb.workers.inside.figures import drawn
from agentnb.workers.inside.leaving_frames import array_node
from agentnb.workers.inside.leaving_values import CannotLeave, Maker, Writer


def _figure(writer: Writer, value: Any, depth: int) -> Any:
    if isinstance(value, sys.modules["matplotlib.figure"].Figure):
        picture = drawn(value)
        if picture is None:
            raise CannotLeave("the figure is too large for a picture")
        return {"t": "picture", "b": writer.buffer(picture)}
    if type(value).__module__.startswith("matplotlib."):
        raise CannotLeave(f"a matplotlib {type(value).__name__} cannot come back alone")
    return None


def _sklearn(writer: Writer, value: Any, depth: int) -> Any:
    kind = type(value)
    if kind.__module__ == "sklearn.tree._tree" and kind.__name__ == "Tree":
        return _tree(writer, value, depth)
    if not kind.__module__.startswith("sklearn.") or not isinstance(
        value, sys.modules["sklearn.base"].BaseEstimator
    ):
        return None
    state = {name: writer.node(each, depth) for name, each in vars(value).items()}
    return {"t": "estimator", "class": f"{kind.__module__}:{kind.__name__}", "state": state}


def _tree(writer: Writer, tree: Any, depth: int) -> Any:
    state = tree.__getstate__()
    nodes = {
        name: array_node(writer, state["nodes"][name], depth) for name in state["nodes"].dtype.names
    }
    return {
        "t": "tree",
        "n_features": int(tree.n_features),
        "n_classes": array_node(writer, tree.n_classes, depth),
        "n_outputs": int(tree.n_outputs),
        "max_depth": int(state["max_depth"]),
        "nodes": nodes,
        "values": array_node(writer, state["values"], depth),
    }


MODELS: Mapping[str, Maker] = {"matplotlib.figure": _figure, "sklearn.base": _sklearn}
"""By the module that must have been imported for such a value to be."""
