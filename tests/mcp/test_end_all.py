"""The end of all servers when the process ends, and Ctrl-C meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import NoReturn

import pytest

from agentnb.tools.mcp import process
from agentnb.tools.mcp.process import ServerProcess, end_all
from tests.support import DEADLINE_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no process groups here")

STUBBORN = """
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
threading.Event().wait()
"""


async def test_interrupt_ends_the_wait_for_a_server_that_does_not_end_and_kills_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(_: float) -> NoReturn:
        raise KeyboardInterrupt

    server = ServerProcess([sys.executable, "-c", STUBBORN], {**os.environ}, None, lambda: None)
    await server.connect()
    assert await anext(server.lines()) == b"ready"
    monkeypatch.setattr(process, "_is_exiting", False)  # `end_all` sets it
    monkeypatch.setattr(process, "_alive", {server})
    its_time = SimpleNamespace(monotonic=time.monotonic, sleep=interrupt)
    monkeypatch.setattr(process, "time", its_time)

    with pytest.raises(KeyboardInterrupt):
        end_all()

    assert server._process.wait(DEADLINE_S) == -signal.SIGKILL
    server.kill()
