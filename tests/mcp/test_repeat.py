"""Runs with a server, once more: a replay starts none, and a recovery calls only what is new."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agentnb import ScriptedProvider, Session
from tests.forks import Program
from tests.mcp.scene import is_alive, pids_in, results, said_in, server, session_with, until, use
from tests.support import DEADLINE_S

KILLED = """
import sys, time
from pathlib import Path
from agentnb import ScriptedProvider, Session
from tests.mcp.scene import server, use

script = [use("t__echo"), use("t__sleep", "t__wait")]
log, store = sys.argv[1:]
session = Session(provider=ScriptedProvider(script), tools=[server(f"log={log}")], store=store)
print(session.spawn("Go.").id, flush=True)
time.sleep(600)
"""


def test_replay_starts_no_server_and_has_the_tools_of_the_record(tmp_path: Path) -> None:
    log, file = tmp_path / "log", tmp_path / "x.cassette.jsonl"
    of, gone = server(f"log={log}"), server("no-such-server", f"log={log}")
    script = [use("t__echo"), use("t__erase"), "done"]
    settings = {"cassette": file, "approve": lambda question: "approve"}
    with session_with(of, script=script, mode="record", **settings) as session:
        live = session.spawn("Go.")
        assert results(live) == {"t__echo": "hi", "t__erase": "hi"}
    before = pids_in(log)

    with session_with(gone, mode="replay", **settings) as session:
        again = session.spawn("Go.")
        assert results(again) == results(live)
        assert again.output == "done"
    assert pids_in(log) == before


def test_replay_needs_no_sdk(tmp_path: Path) -> None:
    file = tmp_path / "x.cassette.jsonl"
    with session_with(server(), script=[use("t__echo"), "done"], mode="record", cassette=file) as s:
        s.run_sync("Go.")
    code = f"""
import sys
sys.modules["mcp"] = None
from tests.mcp.scene import server, session_with
with session_with(server(), mode="replay", cassette={str(file)!r}) as session:
    print(session.run_sync("Go.").output)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert (done.stdout, done.stderr) == ("done\n", "")


def test_recovery_repeats_what_only_reads_and_tells_of_what_may_have_been_done(
    tmp_path: Path,
) -> None:
    log, store = tmp_path / "log", tmp_path / "x.db"
    with Program(KILLED, log, store) as killed:
        run_id = killed.stdout.readline().strip()
        until(lambda: {"call sleep hi", "call wait hi"} <= {*said_in(log)}, "both calls")
    (pid,) = pids_in(log)
    until(lambda: not is_alive(pid), "the end of the server, whose input was closed")

    other = tmp_path / "other"
    tools = [server("awake", f"log={other}")]
    provider = ScriptedProvider(["all of it"])
    with Session(provider=provider, tools=tools, store=store, config=False) as session:
        found = results(session.recover(run_id))

    assert found["t__echo"] == "hi"
    assert found["t__wait"] == "hi"
    assert "nobody knows whether it did" in found["t__sleep"]
    assert [line for line in said_in(other) if line.startswith("call")] == ["call wait hi"]


def test_recovery_with_a_server_whose_tools_are_others_now_goes_on(tmp_path: Path) -> None:
    log, store = tmp_path / "log", tmp_path / "x.db"
    with Program(KILLED, log, store) as killed:
        run_id = killed.stdout.readline().strip()
        until(lambda: "call wait hi" in said_in(log), "the call")

    provider = ScriptedProvider(["all of it"])
    tools = [server("bad-list")]  # it has no `wait`
    with Session(provider=provider, tools=tools, store=store, config=False) as session:
        run = session.recover(run_id)
        found = results(run)

    assert "Unknown tool: wait" in found["t__wait"]
    assert run.output == "all of it"
