"""Servers that die, hang, flood, talk nonsense, or will not go."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tracemalloc
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

import agentnb
from agentnb.core.errors import McpServerFailed, RunCancelled
from agentnb.core.events import RunFinished, ToolCallStarted
from agentnb.tools.mcp import owner, process, transport
from tests.forks import run_program
from tests.mcp.scene import (
    called,
    is_alive,
    pids_in,
    results,
    said_in,
    server,
    session_with,
    until,
    use,
)
from tests.support import DEADLINE_S

# -- at its start ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (server("dies-at-start"), "exited with code 1; there is no configuration"),
        (agentnb.mcp("no-such-program-here", name="t"), "no program 'no-such-program-here'"),
        (server("breaks-protocol"), "breaks the protocol .*tools: "),
        (server("refuses"), "cannot be used, .*: the licence has ended"),
        (agentnb.mcp(sys.executable, args=["-c", "print('hello')"], name="t"), "with code 0"),
    ],
    ids=["dies", "is not there", "breaks the protocol", "refuses", "is no server"],
)
def test_server_that_cannot_be_used_fails_the_run_before_a_model_is_asked(
    of: object, says: str
) -> None:
    with session_with(of, script=["never"]) as session:
        run = session.spawn("Go.")
        with pytest.raises(McpServerFailed, match=says) as failed:
            run.result(DEADLINE_S)
        assert session.settings.provider.requests == []  # type: ignore[union-attr]

    assert failed.value.server == "t"
    (end,) = [each.event for each in run.events if isinstance(each.event, RunFinished)]
    assert end.status == "failed"


def test_server_that_does_not_answer_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(transport, "CONNECT_S", 0.3)
    monkeypatch.setattr(process, "EOF_PATIENCE_S", DEADLINE_S)  # to begin, and to speak
    with session_with(server("waits-at-start", f"log={log}"), script=["never"]) as session:
        with pytest.raises(McpServerFailed, match=r"answer within 0\.3 s: waiting for the data"):
            session.run_sync("Go.")

    assert [pid for pid in pids_in(log) if is_alive(pid)] == []


def test_cancel_ends_a_run_that_waits_for_a_server_and_the_server_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with session_with(server("hangs-at-start", f"log={log}"), script=["never"]) as session:
        run = session.spawn("Go.")
        until(lambda: bool(pids_in(log)), "its start")
        run.cancel()
        with pytest.raises(RunCancelled):
            run.result(DEADLINE_S)
        (pid,) = pids_in(log)
        until(lambda: not is_alive(pid), "its end, with the session still open")


# -- at work --------------------------------------------------------------------------------------


def test_server_that_dies_in_a_call_is_an_error_result_and_is_connected_once_more(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    names = ("t__die", "t__echo", "t__die", "t__echo")
    script = [*map(use, names), "one", use("t__echo"), "two"]
    with session_with(server(f"log={log}"), script=script) as session:
        first = session.spawn("Call.")
        first.result()
        calls = [(c.is_error, str(c.result)) for c in first.agent("root").tool_calls]
        second = results(session.spawn("Again."))

    assert calls[0][0]
    assert "exited with code 3; the disk is full" in calls[0][1]
    assert calls[1] == (False, "hi"), "it was connected once more"
    assert "exited with code 3" in calls[2][1]
    assert calls[3][0], "and only once"
    assert "not started once more before the next run" in calls[3][1]
    assert second == {"t__echo": "hi"}
    assert len(pids_in(log)) == 3


def test_server_that_was_killed_between_calls_is_connected_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = [use("t__echo"), "one", use("t__echo"), "two"]
    with session_with(server(f"log={log}"), script=script) as session:
        session.run_sync("One.")
        (pid,) = pids_in(log)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_alive(pid), "its end")
        assert results(session.spawn("Two.")) == {"t__echo": "hi"}


def test_call_that_takes_too_long_is_cancelled_at_the_server_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # The first call is over when all that a first call needs has been read.
    script = [use("t__echo"), use("t__sleep"), use("t__echo"), "done"]
    with session_with(server(f"log={log}", timeout_s=5), script=script) as session:
        run = session.spawn("Call them.")
        until(lambda: "call sleep hi" in said_in(log), "the call")
        found = results(run)
        # The server may be slower than the answer, and it ends with the session.
        until(lambda: "cancelled sleep" in said_in(log), "word of the cancel")

    assert found["t__sleep"] == "!The tool 't__sleep' was stopped: it did not end within 5 s."
    assert found["t__echo"] == "hi"


def test_cancel_of_a_run_is_told_to_the_server_which_stays(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with session_with(
        server(f"log={log}"), script=[use("t__sleep"), use("t__echo"), "x"]
    ) as session:
        run = session.spawn("Sleep.")
        until(lambda: "call sleep hi" in said_in(log), "the call")
        run.cancel()
        with pytest.raises(RunCancelled):
            run.result(DEADLINE_S)
        until(lambda: "cancelled sleep" in said_in(log), "word of the cancel")
        assert results(session.spawn("Go on.")) == {"t__echo": "hi"}
        assert len(pids_in(log)) == 1


def test_server_that_stops_to_read_is_gone_and_connected_again() -> None:
    found = called("t__stop_reading", "t__echo", of=server("stop_reading"))

    assert found["t__stop_reading"].startswith("!The MCP server 't' is gone")
    assert "it closed its input" in found["t__stop_reading"]
    assert found["t__echo"] == "hi"


def test_lines_that_are_no_messages_are_passed_over() -> None:
    assert called("t__garbage", of=server()) == {"t__garbage": "hi"}


def test_answer_that_is_no_message_and_an_error_with_any_code_end_one_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    of = server("odd-answers", f"log={log}", timeout_s=DEADLINE_S, approval=False)
    found = called("t__echo", "t__write", "t__erase", "t__steps", of=of)

    could_not = "!The MCP server 't' could not do this: "
    assert found == {
        "t__echo": f"{could_not}what it answered is no message of the protocol",
        "t__write": f"{could_not}no more today",
        "t__erase": f"{could_not}error -32000 without a word",
        "t__steps": "hi",
    }
    assert len(pids_in(log)) == 1, "the connection is not over"


def test_flood_on_both_outputs_holds_up_nothing_and_is_not_kept(tmp_path: Path) -> None:
    transport.load_sdk()
    tracemalloc.start()
    try:
        found = called("t__echo", of=server("floods"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found == {"t__echo": "hi"}
    assert peak < 4 * 2**20, "each flood alone is of 8 MB"


def test_huge_result_is_cut_for_the_model() -> None:
    with session_with(server(), script=[use("t__big"), "done"]) as session:
        run = session.spawn("Go.")
        run.result()
        (_, request) = session.settings.provider.requests  # type: ignore[union-attr]

    assert 100_000 <= len(str(request.messages[-1])) < 102_000


def test_message_without_an_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_OF_LINE", 2**20)
    found = called("t__big", "t__echo", of=server())

    assert "gone" in found["t__big"]
    assert "it sent a message of more than" in found["t__big"]
    assert found["t__echo"] == "hi"


# -- at its end -----------------------------------------------------------------------------------


def test_server_that_ignores_its_end_is_killed_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with session_with(server("stubborn", "has-child", f"log={log}"), script=["done"]) as session:
        session.run_sync("Go.")
        server_pid, child_pid = pids_in(log)
        assert is_alive(server_pid)
        assert is_alive(child_pid)

    assert not is_alive(server_pid)
    until(lambda: not is_alive(child_pid), "the end of its child, which nobody awaits")


def test_server_without_runs_is_closed_after_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(owner, "IDLE_S", 0.05)
    with session_with(server(f"log={log}"), script=["one", use("t__echo"), "two"]) as session:
        session.run_sync("One.")
        (pid,) = pids_in(log)
        until(lambda: not is_alive(pid), "its end")
        assert results(session.spawn("Two.")) == {"t__echo": "hi"}


def test_server_that_is_being_closed_is_gone_before_the_next_run_starts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(owner, "IDLE_S", 0.05)
    script = ["one", use("t__echo"), "two"]
    with session_with(server("stubborn", f"log={log}"), script=script) as session:
        session.run_sync("One.")
        until(lambda: "stays" in said_in(log), "the end of its input, which it ignores")
        assert results(session.spawn("Two.")) == {"t__echo": "hi"}
        first, _ = pids_in(log)
        assert not is_alive(first), "both would hold the same files"


def test_close_of_a_session_ends_the_calls_that_are_open(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with session_with(server(f"log={log}"), script=[use("t__sleep")]) as session:
        run = session.spawn("Sleep.")
        until(lambda: any(isinstance(e.event, ToolCallStarted) for e in run.events), "the call")
    with pytest.raises(RunCancelled):
        run.result(DEADLINE_S)

    assert [pid for pid in pids_in(log) if is_alive(pid)] == []


async def test_connection_that_is_closed_before_its_task_has_begun_is_closed() -> None:
    one = owner.Owner(server())
    asked = asyncio.ensure_future(one.do(AsyncMock()))
    await asyncio.sleep(0)  # it has made the connection, whose task has not had a step

    async with asyncio.timeout(DEADLINE_S):
        await one.aclose()
        with pytest.raises(owner.ServerGone, match="it was closed"):
            await asked


def test_process_whose_loop_is_blocked_for_good_ends_its_servers_all_the_same(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    code = f"""
import sys, threading, time
from agentnb import Session, ScriptedProvider, runtime
from tests.mcp.scene import server, use
runtime._EXIT_PATIENCE_S = 0.1  # the loop never comes to it, however long it is waited for
session = Session(
    provider=ScriptedProvider(["one"]), tools=[server("stubborn", {f"log={log}"!r})], store=None
)
session.run_sync("One.")
blocked = threading.Event()
runtime.get_runtime().call_soon(lambda: (blocked.set(), time.sleep(600)))
blocked.wait()
"""
    done = run_program(code)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(pids_in(log)) == 1
    assert not is_alive(pids_in(log)[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_forked_process_has_servers_of_its_own_and_leaves_those_of_its_parent(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    code = f"""
import gc, os, sys, warnings
from tests.mcp.scene import results, server, session_with, use
warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
script = [use("t__echo"), "one"] * 2
with session_with(server({f"log={log}"!r}), script=script) as session:
    print(results(session.spawn("One.")), flush=True)
    if (child := os.fork()) == 0:
        print(results(session.spawn("Two.")), flush=True)
        session.close()
        del session
        gc.collect()
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
    print(results(session.spawn("Two.")), flush=True)
"""
    done = run_program(code)

    hi = "{'t__echo': 'hi'}"
    assert (done.stdout.split("\n"), done.stderr) == ([hi, hi, "0", hi, ""], "")
    assert len(pids_in(log)) == 2
    assert [pid for pid in pids_in(log) if is_alive(pid)] == []
