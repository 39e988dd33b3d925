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

_NAMES = {
    "agent_view": "AgentView",
    "checking.check": "check",
    "checking.compare": "compare",
    "cluster.engine": "DaskEngine",
    "config": "Config load_config",
    "core.context": "AgentContext",
    "core.durable": "AgentMetadata MemoryEntry MemoryList Task TaskList",
    "core.errors": (
        "AgentnbError AmbiguousRun BadAssignment CannotRecover InternalError LlmError "
        "NoOpenQuestion NoSuchMemory NoSuchRun NoSuchSession NoSuchTask NoSuchThread NotRecorded "
        "OrchestratorError RunCancelled RunChanged SessionClosed TaskInProgress ToolError "
        "UnreadableRun"
    ),
    "core.protocols": "ToolContext",
    "core.questions": "Question",
    "core.types": (
        "AgentNode AgentStatus CancelReceipt MediaBlock OrchestratorResult SubAgentResult "
        "ToolOutput ToolUse"
    ),
    "default_session": "configure delete_run get_session prune runs",
    "errors": "BadCassette CheckFailed ConfigError ModeChanged NoCassette",
    "mapping.agreement": "Agreement",
    "mapping.result": "MapResult",
    "mapping.run": "MapRun",
    "prices": "Cost Price set_prices",
    "providers.demo": "DemoProvider",
    "providers.registry": "register_provider",
    "providers.scripted": "Reply ScriptedProvider",
    "record": "RunRecord load_run",
    "run": "Run",
    "runtime": "allow_nested_loops",
    "session": "Session",
    "store.runs": "RunInfo RunList",
    "tasks.lists": "AgentList ThreadList",
    "tasks.thread": "Thread",
    "telemetry.switch": "instrument",
    "tools.function": "tool",
    "tools.mcp.server": "mcp",
}
"""The public names of each module."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

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
