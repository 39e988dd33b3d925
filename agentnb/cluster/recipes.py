"""Recipes from which workers make a run's providers and tools.

A worker makes a provider as this process did, with the keys of its own environment: no key is ever
sent. A provider that a person's code has made keeps its state, and so stays in this process.
"""

from __future__ import annotations

from functools import lru_cache, partial
from hashlib import sha256
from typing import Any

from agentnb.cluster.wire import Recipe
from agentnb.core.errors import ClusterFailed, in_words
from agentnb.core.protocols import Provider
from agentnb.core.text import literal
from agentnb.models import registry
from agentnb.providers.registry import Origin
from agentnb.tools.function import FunctionTool

MOST_BYTES = 50_000_000
"""Largest function of a tool, with what it refers to."""


def recipe_of_provider(provider: Provider) -> Recipe | None:
    """How a worker makes a provider; `None` for one that stays here.

    Raises:
        ClusterFailed: It cannot be sent.
    """
    origin = registry.origin_of(provider)
    return None if origin is None else _recipe_of_origin(origin)


@lru_cache(maxsize=64)  # asked for each attempt
def _recipe_of_origin(origin: Origin) -> Recipe:
    make = partial(origin.factory, **dict(origin.settings))
    fix = "define its factory in a module that the workers have, too"
    return _recipe(make, f"The provider {literal(origin.name)}", fix)


def recipe_of_tool(tool: FunctionTool[Any, Any]) -> Recipe:
    """A tool's function, for the workers.

    Raises:
        ClusterFailed: It cannot be sent.
    """
    name = literal(tool.spec.name)
    fix = f"keep it in this process: `DaskEngine(client, local_tools=[{name}])`"
    return _recipe(tool.function, f"The tool {name}", fix)


def pickled_value(value: Any) -> bytes:
    """A value as bytes, also one of a person's own class, or a function of a cell.

    Raises:
        Exception: It cannot be pickled.
    """
    import cloudpickle  # of the extra

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def _recipe(function: Any, what: str, fix: str) -> Recipe:
    try:
        pickled = pickled_value(function)
    except Exception as error:  # of whatever the function refers to
        raise ClusterFailed(
            f"{what} cannot be sent to the workers ({in_words(error)}): {fix}."
        ) from None
    if len(pickled) > MOST_BYTES:
        raise ClusterFailed(
            f"{what} refers to {len(pickled) / 1e6:,.0f} MB, and at most {MOST_BYTES / 1e6:,.0f} "
            f"MB are sent to a worker. Let it read its data from a file, or {fix}."
        )
    return Recipe(sha256(pickled).hexdigest(), pickled)
