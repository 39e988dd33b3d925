"""agentnb: trees of language-model agents, watched and steered from a notebook.

`%load_ext agentnb`, then `%%spawn` a task; or, from Python, `Session().run_sync("a task")`.

Public names are loaded on first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentnb.core.shown import present_with

if TYPE_CHECKING:
    from agentnb.agent_view import AgentView
    from agentnb.checking.check import check
    from agentnb.checking.compare import compare
    from agentnb.cluster.engine import DaskEngine
    from agentnb.config import Config, load_config
    from agentnb.core.context import AgentContext
    from agentnb.core.durable import AgentMetadata, MemoryEntry, MemoryList, Task, TaskList
    from agentnb.core.errors import (
        AgentnbError,
        AmbiguousRun,
        BadAssignment,
        CannotRecover,
        InternalError,
        LlmError,
        NoOpenQuestion,
        NoSuchMemory,
        NoSuchRun,
        NoSuchSession,
        NoSuchTask,
        NoSuchThread,
        NotRecorded,
        OrchestratorError,
        RunCancelled,
        RunChanged,
        SessionClosed,
        TaskInProgress,
        ToolError,
        UnreadableRun,
    )
    from agentnb.core.protocols import ToolContext
    from agentnb.core.questions import Question
    from agentnb.core.types import (
        AgentNode,
        AgentStatus,
        CancelReceipt,
        MediaBlock,
        OrchestratorResult,
        SubAgentResult,
        ToolOutput,
        ToolUse,
    )
    from agentnb.default_session import configure, delete_run, get_session, prune, runs
    from agentnb.errors import BadCassette, CheckFailed, ConfigError, ModeChanged, NoCassette
    from agentnb.mapping.agreement import Agreement
    from agentnb.mapping.result import MapResult
    from agentnb.mapping.run import MapRun
    from agentnb.prices import Cost, Price, set_prices
    from agentnb.providers.demo import DemoProvider
    from agentnb.providers.registry import register_provider
    from agentnb.providers.scripted import Reply, ScriptedProvider
    from agentnb.record import RunRecord, load_run
    from agentnb.run import Run
    from agentnb.runtime import allow_nested_loops
    from agentnb.session import Session
    from agentnb.store.runs import RunInfo, RunList
    from agentnb.tasks.lists import AgentList, ThreadList
    from agentnb.tasks.thread import Thread
    from agentnb.telemetry.switch import instrument
    from agentnb.tools.function import tool
    from agentnb.tools.mcp.server import mcp

__version__ = "0.2.0"

_HOMES = {
    "AgentContext": "core.context",
    "AgentList": "tasks.lists",
    "AgentMetadata": "core.durable",
    "AgentNode": "core.types",
    "AgentStatus": "core.types",
    "AgentView": "agent_view",
    "AgentnbError": "core.errors",
    "Agreement": "mapping.agreement",
    "AmbiguousRun": "core.errors",
    "BadAssignment": "core.errors",
    "BadCassette": "errors",
    "CancelReceipt": "core.types",
    "CannotRecover": "core.errors",
    "CheckFailed": "errors",
    "RunChanged": "core.errors",
    "Config": "config",
    "ConfigError": "errors",
    "Cost": "prices",
    "DaskEngine": "cluster.engine",
    "DemoProvider": "providers.demo",
    "InternalError": "core.errors",
    "LlmError": "core.errors",
    "MapResult": "mapping.result",
    "MapRun": "mapping.run",
    "MediaBlock": "core.types",
    "MemoryEntry": "core.durable",
    "MemoryList": "core.durable",
    "ModeChanged": "errors",
    "NoCassette": "errors",
    "NoOpenQuestion": "core.errors",
    "NoSuchMemory": "core.errors",
    "NoSuchRun": "core.errors",
    "NoSuchSession": "core.errors",
    "NoSuchTask": "core.errors",
    "NoSuchThread": "core.errors",
    "NotRecorded": "core.errors",
    "OrchestratorError": "core.errors",
    "OrchestratorResult": "core.types",
    "Price": "prices",
    "Question": "core.questions",
    "Reply": "providers.scripted",
    "Run": "run",
    "RunCancelled": "core.errors",
    "RunInfo": "store.runs",
    "RunList": "store.runs",
    "RunRecord": "record",
    "ScriptedProvider": "providers.scripted",
    "Session": "session",
    "SessionClosed": "core.errors",
    "SubAgentResult": "core.types",
    "Task": "core.durable",
    "TaskInProgress": "core.errors",
    "TaskList": "core.durable",
    "Thread": "tasks.thread",
    "ThreadList": "tasks.lists",
    "ToolContext": "core.protocols",
    "ToolError": "core.errors",
    "ToolOutput": "core.types",
    "ToolUse": "core.types",
    "UnreadableRun": "core.errors",
    "allow_nested_loops": "runtime",
    "check": "checking.check",
    "compare": "checking.compare",
    "configure": "default_session",
    "delete_run": "default_session",
    "get_session": "default_session",
    "instrument": "telemetry.switch",
    "load_config": "config",
    "load_run": "record",
    "mcp": "tools.mcp.server",
    "prune": "default_session",
    "register_provider": "providers.registry",
    "runs": "default_session",
    "set_prices": "prices",
    "tool": "tools.function",
}

__all__ = [
    "AgentContext",
    "AgentList",
    "AgentMetadata",
    "AgentNode",
    "AgentStatus",
    "AgentView",
    "AgentnbError",
    "Agreement",
    "AmbiguousRun",
    "BadAssignment",
    "BadCassette",
    "CancelReceipt",
    "CannotRecover",
    "CheckFailed",
    "Config",
    "ConfigError",
    "Cost",
    "DaskEngine",
    "DemoProvider",
    "InternalError",
    "LlmError",
    "MapResult",
    "MapRun",
    "MediaBlock",
    "MemoryEntry",
    "MemoryList",
    "ModeChanged",
    "NoCassette",
    "NoOpenQuestion",
    "NoSuchMemory",
    "NoSuchRun",
    "NoSuchSession",
    "NoSuchTask",
    "NoSuchThread",
    "NotRecorded",
    "OrchestratorError",
    "OrchestratorResult",
    "Price",
    "Question",
    "Reply",
    "Run",
    "RunCancelled",
    "RunChanged",
    "RunInfo",
    "RunList",
    "RunRecord",
    "ScriptedProvider",
    "Session",
    "SessionClosed",
    "SubAgentResult",
    "Task",
    "TaskInProgress",
    "TaskList",
    "Thread",
    "ThreadList",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolUse",
    "UnreadableRun",
    "__version__",
    "allow_nested_loops",
    "check",
    "compare",
    "configure",
    "delete_run",
    "get_session",
    "instrument",
    "load_config",
    "load_ipython_extension",
    "load_run",
    "mcp",
    "prune",
    "register_provider",
    "runs",
    "set_prices",
    "tool",
]


_IPYTHON = (8, 20)
"""The oldest that has what the magics need."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentnb' has no attribute {name!r}")
    value = getattr(import_module(f"agentnb.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Load the magics. `%load_ext agentnb` calls it."""
    ipython = sys.modules["IPython"]
    if ipython.version_info[:2] < _IPYTHON:
        # Shown as one line, without a traceback.
        raise import_module("IPython.core.error").UsageError(
            f"agentnb needs IPython {'.'.join(map(str, _IPYTHON))} or newer, and this kernel runs "
            f"{ipython.__version__}: if agentnb was installed just now, restart the kernel, else "
            "install `ipython>=8.20,<9` in its environment and restart it."
        )
    from agentnb.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics. `%unload_ext agentnb` calls it."""
    from agentnb.notebook import unload

    unload(shell)


def _offer_magics() -> None:
    """Register the magics for loading on first use, for a notebook that only imports the package.

    Does nothing unless IPython is loaded already: an import elsewhere stays light.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        for magic in ("spawn", "agentnb"):
            shell.magics_manager.register_lazy(magic, __name__)


def _bundle_of(value: object) -> dict[str, str]:
    """The MIME bundle of one of our values. Loads `agentnb.bundles` on the first call."""
    from agentnb.bundles import bundle_of

    return bundle_of(value)


def _outline_of(tree: Any) -> str:
    from agentnb.views.outline import outline_shortened  # as late as the other

    return outline_shortened(tree, {})


_offer_magics()
present_with(_bundle_of, _outline_of)
