"""Sessions with the small server of the tests, and what became of its processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agentnb
from agentnb import Reply, Run, ScriptedProvider, Session, ToolUse
from agentnb.tools.mcp.server import McpServer
from tests.support import DEADLINE_S

SERVER = Path(__file__).parent / "server.py"


def server(*words: str, name: str = "t", **settings: Any) -> McpServer:
    """The server of the tests, with what is wrong with it."""
    return agentnb.mcp(sys.executable, args=["-S", str(SERVER), *words], name=name, **settings)


def use(*names: str, **arguments: Any) -> Reply:
    """A reply that calls tools, all at once."""
    arguments = arguments or {"text": "hi"}
    return Reply(tool_uses=tuple(ToolUse(f"{n}-{at}", n, arguments) for at, n in enumerate(names)))


@contextmanager
def session_with(*tools: Any, script: Any = (), **settings: Any) -> Iterator[Session]:
    """A session without a store, which is closed in the end."""
    provider = ScriptedProvider([*script])
    given = {"store": None, "provider": provider, "tools": list(tools), "config": False}
    with Session(**{**given, **settings}) as session:
        yield session


def results(run: Run) -> dict[str, str]:
    """By name, the results of the root's tool calls; an error begins with `!`."""
    run.result()
    calls = run.agent("root").tool_calls
    return {each.name: ("!" if each.is_error else "") + str(each.result) for each in calls}


def called(*names: str, of: McpServer, settings: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The results of tools that one run calls, one after the other."""
    script = [*map(use, names), "done"]
    with session_with(of, script=script, **(settings or {})) as session:
        return results(session.spawn("Call them."))


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that is sure to come."""
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.005)


def said_in(log: Path) -> list[str]:
    """What the server wrote down."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def pids_in(log: Path) -> list[int]:
    """The processes that the server, and what it started, were."""
    return [int(line.split()[1]) for line in said_in(log) if line.startswith(("started", "child "))]


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"
