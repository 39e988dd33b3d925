"""A kernel that is restarted or shut down closes its open runs' connections, and exits."""

from __future__ import annotations

import threading

import pytest

from tests.loopback import LoopbackServer, Reply
from tests.notebook.forked import LAUNCHER, SDKS, ForkServer
from tests.notebook.kernel import Kernel, started

KEY = "sk-ant-api03-not-a-real-key"
TALK = "Talk.", "This is the beginning of a long talk."


def point_at(server: LoopbackServer, kernel: Kernel) -> None:
    kernel.ok(
        "%load_ext agentnb",
        f"import os; os.environ['ANTHROPIC_BASE_URL'] = {server.url!r}",
        f"os.environ['ANTHROPIC_API_KEY'] = {KEY!r}",
    )


def test_restart_and_shutdown_hang_up_on_open_runs_and_nothing_has_to_be_killed(
    monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    fork_server.preload(*SDKS)
    monkeypatch.setattr(LAUNCHER, fork_server.launch)  # the manager is Jupyter's own
    hold = threading.Event()
    cell = "%%spawn --model anthropic/claude-sonnet-5-5\nTalk."
    with (
        LoopbackServer({"Talk": Reply(text=TALK[1], hold=hold)}) as server,
        started() as kernel,
    ):
        point_at(server, kernel)
        kernel.send(cell)
        server.wait_streaming(1)
        kernel.restart()
        server.wait_closed(1)
        server.wait_disconnected()

        point_at(server, kernel)
        assert "There is no run yet" in kernel.run("%spawn status").error
        kernel.ok(cell.replace("%%spawn", "%%spawn --bg"))
        server.wait_streaming(1)
        assert kernel.shut_down() == 0
        server.wait_closed(2)
        server.wait_disconnected()
