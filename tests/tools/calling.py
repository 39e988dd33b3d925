"""A tool called as a model calls it, without a run around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentnb.core.protocols import Jobs, Memory, Tool, ToolContext
from agentnb.core.types import ToolOutput

T = TypeVar("T")


@dataclass
class Context:
    """Fulfils `ToolContext`; what would be done on a thread is done at once."""

    agent_id: str = "nb_20261101_k3x9aa"
    path: str = "root"
    run_id: str = "0192f0c1d2e37a4b8c9d0e1f2a3b4c5d"
    workspace: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False
    jobs: Jobs | None = None
    memory: Memory | None = None
    reports: list[str] = field(default_factory=list)

    def report(self, text: str) -> None:
        self.reports.append(text)

    async def on_thread(self, function: Callable[[], T]) -> T:
        return function()


def in_context(notes: dict[str, str] | None = None) -> ToolContext:
    return Context(notes={} if notes is None else notes)


def output_of(
    tool: Tool, input: Mapping[str, Any], context: ToolContext | None = None
) -> str | ToolOutput:
    return asyncio.run(tool.call(input, context or in_context()))


def called(tool: Tool, input: Mapping[str, Any], context: ToolContext | None = None) -> str:
    text = output_of(tool, input, context)
    assert isinstance(text, str)
    return text
