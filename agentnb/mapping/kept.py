"""A map as plain values in its run's stored settings, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentnb.core.types import SpawnMode
from agentnb.mapping import documents
from agentnb.mapping.options import MapOptions

MAP = "map"
"""The key in a run's settings that only a map has."""


def as_plain(
    tasks: Sequence[str],
    options: MapOptions,
    left_out: Mapping[int, str],
) -> dict[str, Any]:
    """A map as plain values; a prompt is stored once for all its judges."""
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
    """The options of a stored map; its documents are read again.

    Raises:
        ValueError: A document is gone, or has changed.
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
    """The plan of a stored map, in the form in which a list of tasks is stored."""
    tasks = [prompt for prompt in plain["prompts"] for _ in range(plain["judges"])]
    return {"mode": SpawnMode.PARALLEL, "tasks": tasks, "synthesis": False}


def left_out_of(plain: Mapping[str, Any]) -> dict[int, str]:
    """Why a stored map leaves out rows, by the agents' numbers."""
    return {int(number): str(why) for number, why in plain.get("left_out", ())}
