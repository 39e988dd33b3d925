"""A plain Python program, without IPython: the same session from every thread and every loop."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.notebook.kernel import DEADLINE_S, a_door

SETUP = """
import agentnb, asyncio, sys, threading
{hold}
session = agentnb.Session(provider=agentnb.ScriptedProvider({{
    "Hello": "Well said.",
    "Alone": agentnb.Reply("Begun and then held, and ended."{pause}),
}}))
"""
SIMPLE = SETUP.format(hold="", pause="")


def started(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(program: str) -> str:
    process = started(program)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert errors == ""
    return output.strip()


def test_main_thread_waits_with_run_sync_and_with_result() -> None:
    program = SIMPLE + (
        "print(session.run_sync('Hello').output)\nprint(session.spawn('Hello').result(60).output)"
    )

    assert output_of(program) == "Well said.\nWell said."


def test_other_threads_wait_at_the_same_time() -> None:
    program = SIMPLE + (
        "said = []\n"
        "work = lambda: said.append(session.run_sync('Hello').output)\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "print(said == ['Well said.'] * 8)"
    )

    assert output_of(program) == "True"


def test_coroutines_await_runs_under_asyncio_run() -> None:
    program = SIMPLE + (
        "async def main():\n"
        "    runs = [session.spawn('Hello') for _ in range(8)]\n"
        "    said = {(await run).output for run in runs}\n"
        "    kinds = [entry.event.kind async for entry in runs[0].stream()]\n"
        "    print(said, kinds[0], kinds[-1])\n"
        "asyncio.run(main())\n"
        "asyncio.run(main())"
    )

    assert output_of(program) == "\n".join(["{'Well said.'} run_started run_finished"] * 2)


def test_run_sync_works_inside_a_running_loop() -> None:
    program = SIMPLE + (
        "async def main():\n    print(session.run_sync('Hello').output)\nasyncio.run(main())"
    )

    assert output_of(program) == "Well said."


def test_nothing_of_ipython_is_loaded() -> None:
    program = SIMPLE + "session.run_sync('Hello')\nprint('IPython' in sys.modules)"

    assert output_of(program) == "False"


def test_program_ends_while_a_run_still_goes_on() -> None:
    program = SIMPLE + (
        "begun = threading.Event()\n"
        "async def for_ever():\n"
        "    begun.set()\n"
        "    await asyncio.Event().wait()\n"
        "reply = agentnb.Reply('Begun and then held', pause=for_ever)\n"
        "held = agentnb.Session(provider=agentnb.ScriptedProvider([reply])).spawn('Hold')\n"
        "begun.wait()\n"
        "print('the end')"
    )

    assert output_of(program) == "the end"


def test_interrupt_of_run_sync_cancels_the_run_and_raises() -> None:
    with a_door() as door:
        process = started(
            SETUP.format(hold=door.hold, pause=", pause=hold") + "session.run_sync('Alone')"
        )
        door.wait_for_knock()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        door.wait_until_left()

    assert process.returncode == 1
    assert errors.rstrip().endswith("RunCancelled: The run was cancelled (interrupted).")
    assert "KeyboardInterrupt" not in errors


def test_interrupt_that_comes_while_the_run_is_being_started_cancels_it_too() -> None:
    # The reply interrupts as soon as it streams, mostly before the main thread waits.
    program = SIMPLE + (
        "import os, signal\n"
        "async def interrupts():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    try:\n"
        "        await asyncio.Event().wait()\n"
        "    finally:\n"
        "        left.set()\n"
        "reply = agentnb.Reply('Begun and then held', pause=interrupts)\n"
        "session = agentnb.Session(provider=agentnb.ScriptedProvider([reply] * 20))\n"
        "for _ in range(20):\n"
        "    left = threading.Event()\n"
        "    try:\n"
        "        session.run_sync('Hold')\n"
        "    except (KeyboardInterrupt, agentnb.RunCancelled):\n"
        "        print(left.wait(60))"
    )

    assert output_of(program) == "\n".join(["True"] * 20)
