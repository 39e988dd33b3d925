"""The end of a process, or a copy of it, with a run open over real sockets."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.loopback import LoopbackServer, Reply
from tests.notebook.forked import SDKS, ForkServer
from tests.support import DEADLINE_S

TALK = "This is the beginning of a long talk, and here is its end."
BEGIN = """
    import asyncio, gc, logging, os, socket, sys, warnings
    from agentnb import Session

    # One tells where it found the key, the other what was slow.
    for name in ("anthropic", "asyncio"):
        logging.getLogger(name).setLevel("ERROR")

    session = Session("anthropic/claude-sonnet-5-5")
    run = session.spawn("Talk.")

    async def heard():
        async for entry in run.stream():
            if entry.event.kind == "agent_text_delta":
                return

    asyncio.run(heard())
    """


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-api03-not-a-real-key")


@pytest.fixture
def with_sdks(fork_server: ForkServer) -> ForkServer:
    fork_server.preload(*SDKS)
    return fork_server


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_forked_process_works_and_ends_and_the_parents_stream_goes_on(
    monkeypatch: pytest.MonkeyPatch, with_sdks: ForkServer
) -> None:
    hold = threading.Event()
    code = f"""{BEGIN}
    warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
    if os.fork() == 0:
        print(session.run_sync("Quick.").output, flush=True)
        del run, session
        gc.collect()
        sys.exit()
    _, status = os.wait()
    print(status, flush=True)
    port = int(os.environ["ANTHROPIC_BASE_URL"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as knock:
        knock.sendall(b"GET /knock HTTP/1.1\\r\\nhost: here\\r\\n\\r\\n")
    print(run.result(60).output)
    """
    with (
        LoopbackServer({"Talk": Reply(text=TALK, hold=hold), "Quick": "At once."}) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        printed = pool.submit(with_sdks.printed_by, code)
        server.wait_requests(3)
        hold.set()
        assert printed.result(DEADLINE_S) == f"At once.\n0\n{TALK}\n"
        server.wait_disconnected()
        assert server.closed == []


def test_process_that_ends_hangs_up_on_its_open_run(
    monkeypatch: pytest.MonkeyPatch, with_sdks: ForkServer
) -> None:
    hold = threading.Event()
    with LoopbackServer({"Talk": Reply(text=TALK, hold=hold)}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert with_sdks.printed_by(f"{BEGIN}\n    sys.exit()") == ""
        server.wait_closed(1)
        server.wait_disconnected()
