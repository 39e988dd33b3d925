"""■ in a real kernel: cancels the run of a cell that owns it; any other cell only stops waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import STUBBORN, Door, Kernel, Shown, a_door

SCRIPT = """
import agentnb

provider = agentnb.ScriptedProvider({
    "Alone": agentnb.Reply("Begun and then held, and ended.", pause=hold),
    "Stubborn": agentnb.Reply("Begun and then held, and ended.", pause=stubborn),
    "Quick": "At once.",
})
session = agentnb.configure(provider=provider)
"""


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with a_door() as door:
        yield door


@pytest.fixture(scope="module")
def kernel(door: Door, fork_server: ForkServer) -> Iterator[Kernel]:
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb", door.hold, STUBBORN, SCRIPT)
        yield kernel


def interrupted(kernel: Kernel, door: Door, cell: str) -> Shown:
    """The outputs of a cell that is interrupted while its run streams, with another cell queued."""
    kernel.ok("went_on = False")
    cell_id = kernel.send(cell)
    next_id = kernel.send("went_on = True")
    door.wait_for_knock()
    kernel.interrupt()
    shown = kernel.collect(cell_id)
    assert kernel.collect(next_id).status == "aborted"
    assert kernel.value("went_on") is False
    return shown


def test_interrupt_of_a_spawn_cell_cancels_the_run_and_shows_what_was_reached(
    kernel: Kernel, door: Door
) -> None:
    shown = interrupted(kernel, door, "%%spawn -o answer\nAlone")

    door.wait_until_left()
    assert shown.status == "error"
    assert shown.error == "RunCancelled: The run was cancelled (interrupted)."
    (display,) = shown.displays
    answer, _, tree = display["text/plain"].partition("\n\nroot ")
    assert answer.startswith("Begun and then")
    assert "ended" not in answer
    assert tree.startswith("■ cancelled · Alone\n")
    assert shown.unstable == []
    assert kernel.value("agentnb.get_session().newest_run.done") is True
    assert kernel.value("'answer' in globals()") is False


def test_kernel_works_on_after_an_interrupt(kernel: Kernel, door: Door) -> None:
    interrupted(kernel, door, "%%spawn\nAlone")
    door.wait_until_left()

    shown = kernel.ok("%%spawn --quiet -o answer\nQuick")

    assert [d["text/plain"] for d in shown.displays] == ["At once."]
    assert kernel.value("answer.output") == "At once."
    kernel.ok("del answer")


def test_interrupt_of_run_sync_cancels_the_run_and_keeps_what_was_reached(
    kernel: Kernel, door: Door
) -> None:
    cell = "try:\n    session.run_sync('Alone')\nexcept agentnb.RunCancelled as error:\n"
    cell += "    reached = error.partial_result\n    raise"

    shown = interrupted(kernel, door, cell)

    door.wait_until_left()
    assert shown.error.endswith("RunCancelled: The run was cancelled (interrupted).")
    assert "During handling" not in shown.error
    assert kernel.value("str(reached.status), 'Begun and then' in reached.output") == (
        "cancelled",
        True,
    )


@pytest.mark.parametrize(
    ("cell", "error"),
    [("await run", "CancelledError"), ("run.result()", "KeyboardInterrupt")],
)
def test_interrupt_of_a_plain_wait_ends_the_wait_and_the_run_goes_on(
    kernel: Kernel, door: Door, cell: str, error: str
) -> None:
    shown = interrupted(kernel, door, f"run = session.spawn('Alone')\n{cell}")

    assert shown.error_name == error
    assert kernel.value("str(run.status), run.done") == ("running", False)
    door.open()
    assert kernel.value("run.result(60).output") == "Begun and then held, and ended."


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        (
            "%%spawn\nStubborn",
            "Interrupted: The cell no longer waits for the run; "
            "`%spawn status` shows whether it has ended.",
        ),
        ("session.run_sync('Stubborn')", "KeyboardInterrupt: "),
    ],
)
def test_second_interrupt_gives_up_waiting_for_what_does_not_stop(
    kernel: Kernel, door: Door, cell: str, error: str
) -> None:
    cell_id = kernel.send(cell)
    door.wait_for_knock()
    kernel.interrupt()
    door.wait_for_knock()  # cancelled, and back again
    kernel.interrupt()

    shown = kernel.collect(cell_id)

    assert shown.status == "error"
    assert shown.error.endswith(error)
    assert "\n" not in shown.error or "%%spawn" not in cell
    assert kernel.value("session.newest_run.done") is False
    kernel.ok("let_go = True")
    door.open()
    kernel.run("session.newest_run.result(60)")
    assert kernel.value("session.newest_run.done") is True
