"""The end of a process with an open run: what is done by then is on disk, and nothing is after."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentnb import Session
from agentnb.agent_view import AgentView
from agentnb.store import writer as writers
from agentnb.store.writer import Writer
from tests.forks import printed_by, run_program
from tests.skips import needs_late_threads

PROGRAM = """
import atexit, threading
import agentnb
import agentnb.store.writer  # closes at exit before what is registered below
from agentnb import Reply, ScriptedProvider, Session, runtime
from agentnb.core.types import ToolUse
from tests.support import Hold

calls, replies = threading.Event(), [Hold(), Hold()]

@agentnb.tool
def order_it() -> str:
    "Order it."
    calls.set()
    return "It is ordered."

def let_it_call():
    replies[0].release()
    print(calls.wait({patience_s}))

{register}(let_it_call)
tool_use = ToolUse("u1", "order_it", {{}})
script = [Reply("I order it.", (tool_use,), pause=replies[0]), Reply("Done.", pause=replies[1])]
session = Session(provider=ScriptedProvider(script), tools=[order_it], store={store!r})
session.spawn("Order it.")
replies[0].wait()
"""


def root_after(store: Path, register: str, patience_s: float) -> tuple[str, AgentView]:
    """What the program printed, and the root of its run in the store."""
    printed = printed_by(PROGRAM.format(store=str(store), register=register, patience_s=patience_s))
    session = Session(store=store)
    (info,) = session.runs()
    assert info.status == "interrupted"
    return printed, session.load(info).agent("root")


@needs_late_threads
def test_tool_that_is_called_while_exit_functions_run_is_recorded(tmp_path: Path) -> None:
    printed, root = root_after(tmp_path / "x.db", "atexit.register", 60)

    assert printed == "True\n"
    assert [call.name for call in root.tool_calls] == ["order_it"]


def test_no_tool_is_called_between_the_end_of_the_record_and_that_of_the_run(
    tmp_path: Path,
) -> None:
    printed, root = root_after(tmp_path / "x.db", "runtime.before_exit", 0.2)

    assert printed == "False\n" * 2
    assert root.tool_calls == ()


def test_trouble_of_the_last_write_is_told() -> None:
    done = run_program(
        """
from types import SimpleNamespace
from agentnb.run_store import RunStore
from agentnb.runtime import before_exit

store = RunStore(None, "the default")
store._store = SimpleNamespace(trouble=None)
before_exit(lambda: setattr(store._store, "trouble", "The store is full."))
"""
    )

    assert (done.returncode, done.stderr) == (0, "The store is full.\n")


def test_interrupt_at_exit_ends_the_wait_for_one_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, closed = {Writer(tmp_path / "a.db"), Writer(tmp_path / "b.db")}, set[Writer]()

    def close(writer: Writer) -> None:
        closed.add(writer)
        raise KeyboardInterrupt

    monkeypatch.setattr(writers, "_open", both)
    monkeypatch.setattr(Writer, "close", close)

    writers._close_all()

    assert closed == both
