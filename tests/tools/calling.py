"""A tool called as a model calls it, without a run around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentnb.core.protocols import Jobs, Tool, ToolContext

T = TypeVar("T")


@dataclass
class Context:
    """Fulfils `ToolContext`; what would be done on a thread is done at once."""

    agent_id: str = "nb_20261101_k3x9aa"
    path: str = "root"
    workspace: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False
    jobs: Jobs | None = None
    reports: list[str] = field(default_factory=list)

    def report(self, text: str) -> None:
        self.reports.append(text)

    async def on_thread(self, function: Callable[[], T]) -> T:
        return function()


def in_context(notes: dict[str, str] | None = None) -> ToolContext:
    return Context(notes={} if notes is None else notes)


def called(tool: Tool, input: Mapping[str, Any], context: ToolContext | None = None) -> str:
    return asyncio.run(tool.call(input, context or in_context()))
