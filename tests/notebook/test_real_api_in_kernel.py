"""End to end: `%%spawn` in a real kernel, the real SDK, HTTP, and back into the cell.

The kernel is a separate process that has only what a person would set: a key and, for the
loopback server, a base URL.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.loopback.said import Reply
from tests.loopback.server import LoopbackServer
from tests.notebook.kernel import Kernel, started

PLAN = """I split it.
<spawn_agents>
  <agent task="Count the whales." />
  <agent task="Count the seals." />
  <agent task="Count the crabs." />
</spawn_agents>"""
SEALS = '<spawn_agents mode="sequential"><agent task="Look." /><agent task="Add." /></spawn_agents>'
KEY = "key-of-this-test"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel.ok("%load_ext agentnb")
        yield kernel


def point_at(server: LoopbackServer, kernel: Kernel, *, key: str = KEY) -> None:
    kernel.ok(
        f"import os; os.environ['ANTHROPIC_BASE_URL'] = {server.url!r}",
        f"os.environ['ANTHROPIC_API_KEY'] = {key!r}",
    )


def test_tree_runs_over_http_and_comes_back_into_the_cell(kernel: Kernel) -> None:
    rules: dict[str, Any] = {
        '<result task="Look."': "12 seals.",
        "<sub_agent_results>": "**3 whales**, 12 seals; the crabs are missing.",
        "Count everything": PLAN,
        "Count the whales": "3 whales.",
        "Count the seals": SEALS,
        "Count the crabs": Reply(status=400, message="no crabs, please"),
        "<previous_result>": "All in all 12.",
        "Look.": "5 here and 7 there.",
    }
    with LoopbackServer(rules, keys=[KEY]) as server:
        point_at(server, kernel)
        shown = kernel.run(
            "%%spawn --model anthropic/claude-sonnet-5-5 -o counted\nCount everything."
        )
        used = kernel.value("counted.total_tokens_used")

    (display,) = shown.displays
    assert shown.status == "ok", shown
    answer, _, tree = display["text/plain"].partition("\n\n")
    assert tree.splitlines() == [
        "root ✓ completed · Count everything.",
        "├─ 1 ✓ completed · Count the whales.",
        "├─ 2 ✓ completed · Count the seals.",
        "│  ├─ 2.1 ✓ completed · Look.",
        "│  └─ 2.2 ✓ completed · Add.",
        "└─ 3 ✗ failed · Count the crabs.",
        *tree.splitlines()[6:],
    ]
    assert "no crabs, please" in tree.splitlines()[6]
    assert answer == "**3 whales**, 12 seals; the crabs are missing."
    assert "<strong>3 whales</strong>" in display["text/html"]
    assert len(server.requests) == 8, "one refused call is not made again"
    assert {r.body["model"] for r in server.requests} == {"claude-sonnet-5-5"}
    assert used > 0


def test_key_that_is_not_taken_is_one_line_and_the_next_run_takes_the_new_one(
    kernel: Kernel,
) -> None:
    cell = "%%spawn --model anthropic/claude-sonnet-5-5\nHello."
    with LoopbackServer({"Hello": "Well said."}, keys=[KEY]) as server:
        point_at(server, kernel, key="an-old-key")
        refused = kernel.run(cell)
        point_at(server, kernel)
        taken = kernel.run(cell)

    assert refused.status == "error"
    assert refused.error.startswith("AuthenticationFailed: ")
    assert "\n" not in refused.error
    assert "an-old-key" not in refused.text
    assert taken.displays[0]["text/plain"].startswith("Well said.\n\nroot ✓")


# Follows the next run on the kernel's own loop, where it gets its turns only while the cell
# waits, and calls on the server as soon as the run has heard something.
KNOCK = """
import agentnb, asyncio
from agentnb.session import Session

spawn_as_it_is = Session.spawn

def spawn_and_follow(self, *args, **limits):
    Session.spawn = spawn_as_it_is
    run = self.spawn(*args, **limits)
    global knocking
    knocking = asyncio.ensure_future(knock(run))
    return run

async def knock(run):
    async for entry in run.stream():
        if entry.event.kind == "agent_text_delta":
            break
    _, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"GET /knock HTTP/1.1\\r\\nhost: here\\r\\n\\r\\n")
    await writer.drain()

Session.spawn = spawn_and_follow
"""


def test_interrupt_closes_the_connections_and_keeps_what_had_come(kernel: Kernel) -> None:
    hold = threading.Event()
    rules = {"Talk": Reply(text="This is the beginning of a long talk.", hold=hold)}
    with LoopbackServer(rules, keys=[KEY]) as server:
        point_at(server, kernel)
        port = server.url.rpartition(":")[2]
        kernel.ok(f"PORT = {port}", KNOCK)
        cell = kernel.send("%%spawn --model anthropic/claude-sonnet-5-5\nTalk.")
        server.wait_requests(2)
        kernel.interrupt()
        shown = kernel.collect(cell)
        server.wait_closed(1)

    assert shown.error == "RunCancelled: The run was cancelled (interrupted)."
    assert "root ■ cancelled · Talk." in shown.displays[0]["text/plain"]
    assert "This is the begi" in shown.displays[0]["text/plain"]
