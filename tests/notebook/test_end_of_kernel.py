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


def test_page_hears_of_the_end_of_open_runs_before_its_kernel_is_gone() -> None:
    """Its last state is what a notebook saves. Not in a forked kernel, which ends in other ways."""
    with started() as kernel:
        kernel.ok(
            "%load_ext agentnb",
            "import asyncio; from agentnb.testing import Reply, ScriptedProvider",
            "from agentnb.views.panel.frames import FramePublisher",
            "FramePublisher._go = lambda publisher: None  # nothing is shown but at the end",
            "async def hold(): await asyncio.Event().wait()",
            "import agentnb",
            "provider = ScriptedProvider([Reply('', pause=hold)])",
            "run = agentnb.configure(provider=provider, store=None).spawn('Wait')",
            "run.panel()",
        )
        assert kernel.shut_down() == 0
        said = [message["content"] for message in kernel.left()]

    states = [each["data"].get("state", {}) for each in said if "data" in each]
    (frame,) = [state["snapshot"] for state in states if "snapshot" in state]
    assert (frame["done"], frame["status"]) == (True, "cancelled")
    (words,) = [each["data"]["text/plain"] for each in said if "transient" in each]
    assert "cancelled: 1 agent" in words
