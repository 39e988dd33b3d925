"""Runs with an MCP server that end at a random moment: nothing remains, and no error is printed.

Each point is a process of its own with a session and a server. The server behaves well, ignores its
end, has a child, hangs at its start or floods. At a random moment the run is cancelled, or the
process is interrupted, ends by itself or is killed; every tenth is a kernel that is shut down. Then
no process of the server may remain, and the error output must be empty.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from agentnb import ScriptedProvider, Session
from agentnb.core.errors import OrchestratorError
from agentnb.runtime import at_exit
from tests.forks import Program
from tests.mcp.scene import is_alive, pids_in, said_in, server, use
from tests.notebook.kernel import started

PATIENCE_S = 3.0
"""Seconds from the order to its end, and from there to the end of what is left."""
_DELAYS = (0.0, 0.5)
_DEADLINE_S = 120
SERVERS = ("", "stubborn", "has-child", "hangs-at-start", "floods")
ORDERS = ("cancel", "interrupt", "exit", "kill")
_OF_KERNEL = 10
"""One in this many points shuts down a kernel."""


# -- the process ----------------------------------------------------------------------------------


def live(order: str, delay_s: str, *words: str) -> None:
    """Be one process: begin a run, and end it after a delay in seconds.

    It imports the SDK first: else most moments would fall into the import.
    """
    # `sleep` never ends by itself.
    script: list[Any] = [use("t__echo"), use("t__sleep", "t__echo"), "done"]
    session = Session(provider=ScriptedProvider(script), tools=[server(*words)], store=None)

    def say(what: str) -> None:
        os.write(1, f"{what}\n".encode())

    if order == "interrupt":
        with suppress(KeyboardInterrupt, OrchestratorError):
            say("begins")
            session.run_sync("Go.")
        with suppress(KeyboardInterrupt):  # it may come late
            session.close()
        say("ended")
        return
    run = session.spawn("Go.")
    say("begins")
    time.sleep(float(delay_s))
    say("ordered")
    match order:
        case "cancel":
            run.cancel()
            with suppress(OrchestratorError):
                run.result(_DEADLINE_S)
            session.close()
            say("ended")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            at_exit(partial(say, "ended"))  # after the earlier exit handlers
            sys.exit()


# -- the points -----------------------------------------------------------------------------------


def points(
    folder: Path, count: int, seed: int, *, patience_s: float = PATIENCE_S
) -> Iterator[tuple[str, list[str]]]:
    """Yield what was done and what broke, for each point.

    Args:
        folder: An empty one.
        count: The number of points.
        seed: Decides moments, servers and orders.
        patience_s: Seconds in which a point has to end.
    """
    by_chance = random.Random(seed)
    for number in range(1, count + 1):
        log = folder / f"log-{number}"
        word, delay_s = by_chance.choice(SERVERS), by_chance.uniform(*_DELAYS)
        order = by_chance.choice(ORDERS)
        if order == "kill" and word in ("stubborn", "has-child", "hangs-at-start"):
            word = ""  # a server that does not read its input does not notice a kill: see the docs
        words = [each for each in (word, f"log={log}") if each]
        if number % _OF_KERNEL == 0:
            order = "kernel"
            took_s, faults = _kernel(words, delay_s)
        else:
            took_s, faults = _process(order, delay_s, words)
        if took_s > patience_s:
            faults.append(f"it took {took_s:.1f} s to end")
        faults += _left(log, patience_s)
        begun, calls = len(pids_in(log)), sum(line[:5] == "call " for line in said_in(log))
        yield (
            f"{order} after {delay_s:.3f} s, {word or 'a good server'}: {begun} processes, "
            f"{calls} calls, {took_s:.2f} s",
            faults,
        )


def _process(order: str, delay_s: float, words: list[str]) -> tuple[float, list[str]]:
    """Seconds that the end took, and its faults.

    The end of the run and its server, and of a process that is killed. The time that an interpreter
    takes to exit after that depends on the machine's load.
    """
    code = "import sys; from tests.soak.mcp import live; live(*sys.argv[1:])"
    process = Program(code, order, delay_s, *words)
    process.stdout.readline()
    if order == "interrupt":
        time.sleep(delay_s)
        process.interrupt()
    else:
        process.stdout.readline()
    began_s = time.monotonic()
    line = process.stdout.readline()  # `ended`, or nothing from a killed process
    took_s = time.monotonic() - began_s
    done = process.end()
    assert (line or done.stdout).strip() in ("ended", ""), line + done.stdout
    faults = [f"it complained: {done.stderr[-1500:]}"] if done.stderr else []
    if done.returncode not in (0, -signal.SIGKILL if order == "kill" else 0):
        faults.append(f"it exited with {done.returncode}")
    return took_s, faults


def _kernel(words: list[str], delay_s: float) -> tuple[float, list[str]]:
    with started() as kernel:
        shown = kernel.run(
            "from agentnb import ScriptedProvider, Session\n"
            "from agentnb.tools.mcp import transport\n"
            "from tests.mcp.scene import server, use\n"
            "transport.load_sdk()\n"
            "script = [use('t__echo'), use('t__sleep', 't__echo'), 'done']\n"
            "session = Session(provider=ScriptedProvider(script), "
            f"tools=[server(*{words!r})], store=None)\n"
            "run = session.spawn('Go.')"
        )
        time.sleep(delay_s)
        began_s = time.monotonic()
        code = kernel.shut_down()
    faults = [f"the cell failed: {shown.text.strip()}"] if shown.text.strip() else []
    return time.monotonic() - began_s, faults + ([f"it exited with {code}"] if code else [])


def _left(log: Path, patience_s: float) -> list[str]:
    """The server's processes that still exist."""
    until = time.monotonic() + patience_s
    while left := [pid for pid in pids_in(log) if is_alive(pid)]:
        if time.monotonic() > until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return [f"{len(left)} of its {len(pids_in(log))} processes were left"]
        time.sleep(0.02)
    return []
