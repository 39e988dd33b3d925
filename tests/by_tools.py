"""Helpers for runs with delegation by tools: a model's calls and their results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentnb import Session
from agentnb.core.events import ToolCallFinished
from agentnb.core.protocols import Provider
from agentnb.core.types import OrchestratorResult
from agentnb.run import Run
from agentnb.testing import tool_calls as order
from agentnb.testing import tool_results_in as results_in
from tests.support import DEADLINE_S

__all__ = [
    "ID",
    "order",
    "paths",
    "results_in",
    "run_of",
    "session_of",
    "start",
    "told",
    "wait",
]

ID = re.compile(r"[0-9a-f]{6}")


def start(task: str, **more: str) -> tuple[str, Mapping[str, Any]]:
    return "spawn", {"task": task, **more}


def wait(ids: str = "*") -> tuple[str, Mapping[str, Any]]:
    return "spawn_await", {"job_ids": ids}


def session_of(provider: Provider, **settings: Any) -> Session:
    return Session(provider=provider, **{"delegation": "tools", "config": False, **settings})


def run_of(provider: Provider, **settings: Any) -> tuple[Run, OrchestratorResult]:
    run = session_of(provider, **settings).spawn("Do it.")
    return run, run.result(DEADLINE_S)


def told(run: Run, agent: str = "root") -> list[tuple[str, str, bool]]:
    """Name, result and whether it is an error, of each of an agent's tool calls."""
    return [
        (event.name, event.result, event.is_error)
        for event in (entry.event for entry in run.events)
        if isinstance(event, ToolCallFinished)
        and event.agent_id.partition(".")[2] == agent.replace("root", "")
    ]


def paths(result: OrchestratorResult) -> dict[str, str]:
    return {node.path: f"{node.task}: {node.status}" for node in result.agent_tree.walk()}
