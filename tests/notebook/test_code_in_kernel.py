"""`code="kernel"` in a real kernel: while a cell waits for the run, else between cells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Door, Kernel, a_door

SCRIPT = """
import agentnb, asyncio, threading
from agentnb.core._call import tool_call

tool_call.THREAD_PATIENCE_S = 240  # a busy kernel may not hear at once that code has to stop
code = lambda text: agentnb.Reply(tool_uses=(agentnb.ToolUse("c", "python", {"code": text}),))
spin = "begun.set()\\nwhile True: pass"
provider = agentnb.ScriptedProvider({
    "Add": [code("seen.append('code')\\ntotal = sum(given)\\ntotal")] * 40,
    "6\\n(Bound: total)": "It is 6.",
    "Wait": [code("seen.append('of another run')")] * 9,
    "(no output)": "It ran.",
    "Spin": [code(spin)] * 9,
    "Draw": [code("import matplotlib.pyplot as plt\\nplt.plot([1, 2])\\nplt.show()\\nNone")] * 9,
    "(figure 1": "Drawn.",
    "Leave": [code("exit()")] * 9,
    "RuntimeError: This would end": "It stays.",
})
session = agentnb.configure(provider=provider, approve=lambda *_: "approve")
calls_that_wait = lambda run: [e for e in run.events if e.event.kind == "tool_call_reported"]
given, begun = [1, 2, 3], threading.Event()

def ask(task):
    global seen, run
    seen = []
    globals().pop("total", None)
    begun.clear()
    run = session.spawn(task, code="kernel")
    return run
"""


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with a_door() as door:
        yield door


@pytest.fixture(scope="module")
def kernel(fork_server: ForkServer) -> Iterator[Kernel]:
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb", SCRIPT)
        yield kernel


@pytest.mark.parametrize("wait", ["await run", "run.result()"])
def test_code_runs_while_the_cell_waits_for_its_run(kernel: Kernel, wait: str) -> None:
    shown = kernel.ok(f"_ = ask('Add')\nanswer = {wait}\nanswer.output, total")

    assert shown.result == "('It is 6.', 6)"
    assert shown.stdout == ""


def test_code_runs_while_a_spawn_cell_waits(kernel: Kernel) -> None:
    kernel.ok("seen, total = [], 0")

    kernel.ok("%%spawn --quiet --code kernel\nAdd")

    assert kernel.value("total, seen") == (6, ["code"])


def test_person_approves_a_call_of_a_background_run_and_it_runs_between_cells(
    kernel: Kernel,
) -> None:
    kernel.ok("asking = agentnb.Session(provider=provider)\nseen, total = [], 0")
    cell = "run = asking.spawn('Add', code='kernel')\nwhile not run.questions: pass\n"
    shown = kernel.ok(f"{cell}print(run.questions[0].value['arguments']['code'])")
    assert "total = sum(given)" in shown.stdout

    kernel.ok("run.answer('q1', 'approve')")
    kernel.ok("run.result(240)")

    assert kernel.value("total, seen") == (6, ["code"])


def test_nothing_runs_in_the_middle_of_a_cell_that_awaits_something_else(kernel: Kernel) -> None:
    # The call waits for the main thread: its report says so. Then the loop turns many times.
    cell = """
_ = ask("Add")
while not (calls_that_wait(run) or run.done):
    await asyncio.sleep(0.01)
for _ in range(50):
    await asyncio.sleep(0)
seen.append("cell")
"""
    kernel.ok(cell)
    kernel.ok("while not run.done: await asyncio.sleep(0.01)\nseen.append('next cell')")

    assert kernel.value("seen, total") == (["cell", "code", "next cell"], 6)


def test_cell_that_waits_for_a_run_makes_no_call_of_another_run(kernel: Kernel) -> None:
    # The other run's call is first in the queue when the cell begins to wait.
    cell = """
other = session.spawn("Wait", code="kernel")
while not (calls_that_wait(other) or other.done):
    await asyncio.sleep(0.01)
_ = await ask("Add")
seen.append("cell")
"""
    kernel.ok("seen = []", cell)
    kernel.ok("while not other.done: await asyncio.sleep(0.01)")

    assert kernel.value("seen") == ["code", "cell", "of another run"]


def test_interrupt_of_code_stops_the_run_of_its_spawn_cell(kernel: Kernel, door: Door) -> None:
    kernel.ok(
        "begun = threading.Event()\nimport socket\n"
        f"knock = lambda: (begun.wait(240), socket.create_connection(('127.0.0.1', {door.port})))\n"
        "threading.Thread(target=knock).start()"
    )
    cell_id = kernel.send("%%spawn --code kernel\nSpin")
    door.wait_for_knock()
    kernel.interrupt()

    shown = kernel.collect(cell_id)

    assert shown.error == "RunCancelled: The run was cancelled (interrupted)."
    assert kernel.value("1 + 1") == 2


def test_cancel_stops_code_between_cells_and_the_kernel_works_on(
    kernel: Kernel, door: Door
) -> None:
    # While the code spins no cell runs: so a thread cancels. A cell that came before the code
    # would keep it from beginning.
    kernel.ok(
        "import socket\n_ = ask('Spin')\n"
        f"knock = lambda: socket.create_connection(('127.0.0.1', {door.port}))\n"
        "cancel = lambda: (begun.wait(240), knock(), receipts.append(run.cancel()))\n"
        "receipts = []\n"
        "canceller = threading.Thread(target=cancel)\ncanceller.start()"
    )
    door.wait_for_knock()

    kernel.ok("canceller.join()")

    assert kernel.value("receipts[0].still_running, str(run.status)") == ((), "cancelled")


def test_figures_go_to_the_agent_and_not_into_the_cell(kernel: Kernel) -> None:
    kernel.ok("%matplotlib inline")

    shown = kernel.ok("answer = await ask('Draw')\nanswer.output")

    assert shown.result == "'Drawn.'"
    assert (shown.pictures, shown.displays) == ([], [])
    assert kernel.value("len(run.agent('root').tool_calls[0].media)") == 1


def test_exit_in_code_does_not_end_the_kernel(kernel: Kernel) -> None:
    assert kernel.ok("(await ask('Leave')).output").result == "'It stays.'"
    assert kernel.value("1 + 1") == 2
