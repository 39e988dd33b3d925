"""What is kept of a map in its run's settings, and the map that is made of it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentnb.core.types import SpawnMode
from agentnb.mapping import documents
from agentnb.mapping.options import MapOptions

MAP = "map"
"""Where a run's settings tell that it is a map."""


def as_plain(
    tasks: Sequence[str],
    options: MapOptions,
    left_out: Mapping[int, str],
) -> dict[str, Any]:
    """A map as plain values: each prompt once, whatever the number of its judges."""
    plain: dict[str, Any] = {
        "prompts": list(tasks[:: options.judges]),
        "shared": options.shared,
        "judges": options.judges,
        "models": list(options.models),
        "sample": options.sample,
        "retry_failed": options.retry_failed,
    }
    if options.documents:
        plain["documents"] = documents.to_plain(options.documents)
    if left_out:
        plain["left_out"] = [[number, why] for number, why in left_out.items()]
    return plain


def options_of(plain: Mapping[str, Any]) -> MapOptions:
    """The options of a map that was kept; its documents are read again.

    Raises:
        ValueError: One of them is not there any more, or has changed.
    """
    return MapOptions(
        plain["shared"],
        plain["judges"],
        tuple(plain["models"]),
        plain["sample"],
        plain["retry_failed"],
        documents.from_plain(plain.get("documents", ())),
    )


def plan_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a map that was kept, as that of a list of tasks is kept."""
    tasks = [prompt for prompt in plain["prompts"] for _ in range(plain["judges"])]
    return {"mode": SpawnMode.PARALLEL, "tasks": tasks, "synthesis": False}


def left_out_of(plain: Mapping[str, Any]) -> dict[int, str]:
    """The rows of a kept map that it leaves out, by the agents' numbers."""
    return {int(number): str(why) for number, why in plain.get("left_out", ())}
