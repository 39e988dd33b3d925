"""A kernel that is restarted or shut down closes its open runs' connections, and exits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentnb import Session
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
    assert (frame["done"], frame["status"]) == (True, "interrupted")
    (words,) = [each["data"]["text/plain"] for each in said if "transient" in each]
    assert "interrupted: 1 agent" in words


@pytest.mark.parametrize("what", ["run", "paused run", "map", "large map"])
def test_page_and_store_say_the_same_of_a_run_that_the_shutdown_interrupts(
    tmp_path: Path, what: str
) -> None:
    begin = {
        "run": "run = session.spawn('Wait')",
        "paused run": "run = session.spawn('Queue')",
        "map": "run = session.map(['one', 'two'], 'Say {{text}}')",
        # Its frame is larger than what pyzmq sends without copying.
        "large map": "run = session.map([f'two {n}' for n in range(900)], 'Say {{text}}')",
    }[what]
    with started() as kernel:
        kernel.ok(
            "%load_ext agentnb",
            "import asyncio; from agentnb.testing import Reply, ScriptedProvider, spawn",
            "from agentnb.views.panel.frames import FramePublisher",
            "FramePublisher._go = lambda publisher: None  # nothing is shown but at the end",
            "import threading; held = threading.Event()",
            "async def hold(): held.set(); await asyncio.Event().wait()",
            "def answer(request):\n"
            "    said = str(request.messages)\n"
            "    if 'Wait' in said: return spawn('one', 'two')\n"
            "    if 'Queue' in said: return spawn('two', 'one', mode='sequential')\n"
            "    return Reply('A long tale.', pause=hold) if 'two' in said else 'Done.'",
            "import agentnb",
            "session = agentnb.configure(\n"
            f"    provider=ScriptedProvider(answer), store={str(tmp_path / 'runs.db')!r}\n)",
            begin,
            "run.panel()",
        )
        kernel.ok("held.wait()")
        if what == "paused run":  # its next agent has begun, and makes no call
            kernel.ok(
                "run.pause()",
                "run.cancel('1')",
                "import time\nwhile run.agents[-1].path != '2': time.sleep(0.01)",
            )
        assert kernel.shut_down() == 0
        said = [message["content"] for message in kernel.left()]

    states = [each["data"].get("state", {}) for each in said if "data" in each]
    frames = [state["snapshot"] for state in states if "snapshot" in state]
    words = "".join(each["data"]["text/plain"] for each in said if "transient" in each)
    with Session(store=tmp_path / "runs.db") as session:
        (info,) = session.runs()
        record = session.load(info)
    assert frames
    assert {frame["status"] for frame in frames} == {"interrupted"} == {str(info.status)}
    assert f"{info.tokens_used} tokens" in words
    assert f"interrupted: {info.agents} agents: " in words
    assert (what == "large map") is (len(str(frames[-1])) > 100_000)
    shown = {row["path"]: row["status"] for row in frames[-1]["agents"]}
    assert shown == {agent.path: str(agent.status) for agent in record.agents}
    if "map" in what:
        lines = [state["value"] for state in states if "agentnb-map-progress" in str(state)]
        assert f">{info.agents - 1 - (what == 'map')} stopped<" in lines[-1]
        assert "running" not in lines[-1]


def test_run_that_waited_for_its_turn_is_not_shown_as_interrupted() -> None:
    """No record has it, so nothing can go on with it."""
    with started() as kernel:
        kernel.ok(
            "%load_ext agentnb",
            "import asyncio, agentnb; from agentnb.testing import Reply, ScriptedProvider",
            "async def hold(): await asyncio.Event().wait()",
            "provider = ScriptedProvider(lambda _: Reply('', pause=hold))",
            "session = agentnb.configure(provider=provider, store=None)",
            "first = session.spawn('Wait')",
            "session.spawn('Then', thread=first.thread_id).panel()",
        )
        assert kernel.shut_down() == 0
        said = [message["content"] for message in kernel.left()]

    states = [each["data"].get("state", {}) for each in said if "data" in each]
    assert "interrupted" not in str([state for state in states if "snapshot" in state])
    assert "interrupted" not in str([each for each in said if "transient" in each])
