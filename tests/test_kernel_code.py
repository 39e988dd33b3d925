"""`code="kernel"` in this process, a script without a kernel, while pytest's main thread waits."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import agentnb
from agentnb import AgentStatus, Reply, ScriptedProvider, Session, ToolUse, kernel_code
from agentnb.core.errors import ToolError
from agentnb.core.protocols import ToolContext
from agentnb.core.threads import run_in_thread
from agentnb.core.types import CompletionRequest, ToolResultBlock
from agentnb.main_thread import MAIN, Guarded, MainCall, MainThread
from agentnb.testing import by_agent, requests_of, spawn
from tests.skips import needs_late_threads
from tests.support import DEADLINE_S

NAMES = vars(sys.modules["__main__"])
FIGURE = "import matplotlib.pyplot as plt\nfigure = plt.figure()\nplt.plot([1, 3, 2])\nNone"


def run_code(code: str, name: str = "c") -> Reply:
    return Reply(tool_uses=(ToolUse(name, "python", {"code": code}),))


def result_of(request: CompletionRequest) -> ToolResultBlock:
    blocks = [block for message in request.messages for block in message.content]
    return [block for block in blocks if isinstance(block, ToolResultBlock)][-1]


def session_of(provider: ScriptedProvider, **settings: Any) -> Session:
    given = {"store": None, "approve": lambda *_: "approve", **settings}
    return Session(provider=provider, **given)


def came_of(code: str, **settings: Any) -> ToolResultBlock:
    """What the model reads of one cell, run while the main thread waits for the run."""
    provider = by_agent({"root": [run_code(code), "done"]})
    with session_of(provider, **settings) as session:
        assert session.spawn("go", code="kernel").result(240).output == "done"
    return result_of(requests_of(provider, "root")[1])


@pytest.fixture(autouse=True)
def names() -> Iterator[dict[str, Any]]:
    """This script's names, restored afterwards."""
    before, handler = dict(NAMES), signal.getsignal(signal.SIGINT)
    yield NAMES
    NAMES.clear()
    NAMES.update(before)
    assert signal.getsignal(signal.SIGINT) is handler


def test_code_runs_on_the_persons_own_names_while_the_script_waits(names: dict[str, Any]) -> None:
    names["basket"] = basket = ["pear"]

    result = came_of("print('packed')\nbasket.append('fig')\nfresh = 2\nlen(basket)")

    assert basket == ["pear", "fig"]
    assert names["fresh"] == 2
    assert result.text == "packed\n2\n(Bound: fresh)"


def test_code_that_is_denied_does_not_run(names: dict[str, Any]) -> None:
    result = came_of("touched = True", approve=lambda *_: "deny")

    assert "touched" not in names
    assert result.is_error
    assert "was not run" in result.text


def test_no_setting_spares_a_call_its_question() -> None:
    provider = by_agent({"root": [run_code("1"), "done"]})
    asked: list[Any] = []
    with Session(provider=provider, store=None) as session:
        run = session.spawn("go", code="kernel")

        def answer() -> None:
            while not run.questions and not run.done:
                time.sleep(0.01)
            for question in run.questions:
                asked.append(question.value)
                run.answer(question.id, "deny")

        thread = threading.Thread(target=answer)
        thread.start()
        run.result(240)
        thread.join()
    assert asked == [{"tool": "python", "arguments": {"code": "1"}}]


def test_error_has_its_line_and_the_names_that_were_bound_stay(names: dict[str, Any]) -> None:
    result = came_of("first = 1\nfirst / 0")

    assert result.is_error
    assert "Line 2: first / 0" in result.text
    assert "ZeroDivisionError" in result.text
    assert names["first"] == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import asyncio\nawait asyncio.sleep(0)", "cannot `await`"),
        ("input('Name?')", "`input()` does not work here"),
        ("import sys\nsys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("x = (", "SyntaxError"),
    ],
)
def test_code_that_cannot_run_is_an_error_and_the_script_continues(code: str, said: str) -> None:
    result = came_of(code)

    assert result.is_error
    assert said in result.text


def test_new_figures_come_as_pictures_and_the_persons_own_stay_open() -> None:
    import matplotlib.pyplot as plt

    mine = plt.figure()
    try:
        result = came_of(FIGURE)
        assert plt.get_fignums() == [mine.number]
    finally:
        plt.close(mine)

    assert result.text.startswith("(figure 1: PNG")


def test_other_threads_print_where_they_did_while_code_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = came_of(
        "import threading\nt = threading.Thread(target=print, args=('theirs',))\n"
        "t.start()\nt.join()\nprint('ours')"
    )

    assert result.text.startswith("ours")
    assert "theirs" not in result.text
    assert capsys.readouterr().out == "theirs\n"


def test_calls_of_two_agents_run_one_at_a_time(names: dict[str, Any]) -> None:
    names["at_work"], names["most"] = [], []
    code = "at_work.append(1)\nmost.append(len(at_work))\nat_work.pop()\nNone"
    tasks = ["Count.", "Count too."]
    provider = by_agent(
        {"root": [spawn(*tasks), "done"]}
        | {task: [run_code(code), run_code(code), "counted"] for task in tasks}
    )
    with session_of(provider) as session:
        session.spawn("go", code="kernel").result(240)
    assert names["most"] == [1, 1, 1, 1]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine code may not hear at once that it has to stop."""
    monkeypatch.setattr("agentnb.core._call.tool_call.THREAD_PATIENCE_S", DEADLINE_S)


ENDLESS_ERROR = """
class Endless(Exception):
    def __str__(self):
        while True: pass
raise Endless
"""


@pytest.mark.parametrize(
    "code", ["while True: pass", "import time\ntime.sleep(10**6)", ENDLESS_ERROR]
)
def test_code_is_stopped_at_its_time_limit(code: str, patience: None) -> None:
    result = came_of(code, code_time_s=0.2)

    assert result.is_error
    assert "Stopped: it ran longer than 0.2 s" in result.text


@pytest.mark.parametrize("code", ["while True: pass", "import time\ntime.sleep(10**6)"])
def test_code_is_stopped_by_a_cancel_of_its_agent(
    code: str, names: dict[str, Any], patience: None
) -> None:
    names["begun"] = begun = threading.Event()
    provider = by_agent(
        {
            "root": [spawn("Run away.", "Stay."), "done without it"],
            "Run away.": [run_code(f"begun.set()\n{code}"), "never read"],
        }
    )
    with session_of(provider) as session:
        run = session.spawn("go", code="kernel")
        receipts = []

        def cancel() -> None:
            assert begun.wait(240)
            receipts.append(run.cancel("1"))

        thread = threading.Thread(target=cancel)
        thread.start()
        assert run.result(240).output == "done without it"
        thread.join()
    assert receipts[0].still_running == ()
    assert run.agent("1").status is AgentStatus.CANCELLED


def test_call_whose_agent_is_cancelled_while_it_waits_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    class Context:
        run_id, cancelled = "r", False

        async def on_thread(self, function: Callable[[], object]) -> object:
            return await run_in_thread(function)

    monkeypatch.setattr(kernel_code, "SLICE_S", DEADLINE_S)  # the watch does not check again
    put, context = MAIN.put, Context()

    async def scene() -> None:
        loop, is_put = asyncio.get_running_loop(), asyncio.Event()

        def noted(call: MainCall) -> None:
            put(call)
            loop.call_soon_threadsafe(is_put.set)

        monkeypatch.setattr(MAIN, "put", noted)
        code = kernel_code.KernelCode(60)
        running = asyncio.create_task(code.run("touched = True", cast("ToolContext", context)))
        await is_put.wait()
        context.cancelled = True
        MAIN.serve("r")
        with pytest.raises(ToolError, match="was not run"):
            await running

    asyncio.run(scene())

    assert "touched" not in names


def test_code_that_keeps_interrupts_from_itself_is_named_as_still_running(
    names: dict[str, Any],
) -> None:
    names["begun"], names["enough"] = begun, enough = threading.Event(), threading.Event()
    code = (
        "begun.set()\nwhile not enough.is_set():\n    try: enough.wait(0.01)\n"
        "    except KeyboardInterrupt: pass"
    )
    with session_of(by_agent({"root": [run_code(code), "never read"]})) as session:
        run = session.spawn("go", code="kernel")
        receipts = []

        def cancel() -> None:
            assert begun.wait(240)
            receipts.append(run.cancel())
            enough.set()

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(agentnb.RunCancelled):
            run.result(240)
        thread.join()
    assert receipts[0].still_running == (run.thread_id,)


def test_agent_learns_that_its_code_continues_after_its_time_limit(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    monkeypatch.setattr("agentnb.core._call.tool_call.THREAD_PATIENCE_S", 0.1)
    names["enough"] = enough = threading.Event()
    code = "while not enough.is_set():\n    try: enough.wait(0.01)\n    except: pass"

    def end(_: CompletionRequest) -> str:
        enough.set()
        return "done"

    provider = by_agent({"root": [run_code(code), end]})
    with session_of(provider, code_time_s=0.1) as session:
        session.spawn("go", code="kernel").result(240)

    result = result_of(requests_of(provider, "root")[1])
    assert result.is_error
    assert "told to stop after 0.1 s, and still runs" in result.text


def test_interrupt_of_the_code_is_the_interrupt_of_the_script_that_waits() -> None:
    code = "import signal\nsignal.raise_signal(signal.SIGINT)\nwhile True: pass"
    provider = by_agent({"root": [run_code(code), "never read"]})
    with session_of(provider) as session, pytest.raises(agentnb.RunCancelled, match="interrupted"):
        session.run_sync("go", code="kernel")


def test_script_that_does_not_wait_gets_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    monkeypatch.setattr(kernel_code, "GRACE_S", 0.1)
    provider = by_agent({"root": [run_code("touched = True"), "done"]})
    with session_of(provider) as session:
        run = session.spawn("go", code="kernel")
        waiter = threading.Thread(target=run.result)
        waiter.start()
        waiter.join()

    result = result_of(requests_of(provider, "root")[1])
    assert result.is_error
    assert "`await run`" in result.text
    assert "touched" not in names


SCRIPT_THAT_HAS_ENDED = """
import threading
import agentnb
from agentnb import kernel_code
from agentnb.testing import by_agent, requests_of, tool_calls

kernel_code.GRACE_S = 10**6
code = tool_calls(("python", {"code": "print('touched')"}))

def ask():
    threading.main_thread().join()
    provider = by_agent({"root": [code, "done"]})
    session = agentnb.Session(provider=provider, store=None, approve=lambda *_: "approve")
    session.run_sync("go", code="kernel")
    print(requests_of(provider, "root")[1].messages[-1].content[0].text)

threading.Thread(target=ask).start()
"""


@needs_late_threads
def test_thread_that_outlives_the_script_gets_the_error_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT_THAT_HAS_ENDED],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )

    assert done.stdout == f"{kernel_code.NOT_SERVED}\n"
    assert done.stderr == ""


def test_wait_that_comes_after_the_call_is_in_time(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    monkeypatch.setattr(kernel_code, "GRACE_S", 10**6)
    looks: list[str] = []
    monkeypatch.setattr(MAIN, "may_serve", looks.append)
    provider = by_agent({"root": [run_code("touched = True"), "done"]})
    with session_of(provider) as session:
        run = session.spawn("go", code="kernel")
        while len(looks) < 3 and not run.done:
            time.sleep(0.01)
        run.result(240)

    assert names["touched"]


def test_code_that_waits_for_code_is_an_error_at_once_and_no_standstill(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    monkeypatch.setattr(kernel_code, "GRACE_S", 10**6)
    inner = by_agent({"root": [run_code("touched = True"), "done inside"]})
    with session_of(inner) as session:
        names["session"] = session
        result = came_of("session.run_sync('inner', code='kernel').output")

    assert result.text == "'done inside'"
    assert "was not run" in result_of(requests_of(inner, "root")[1]).text
    assert "touched" not in names


def test_replay_runs_no_code_and_calls_no_model(tmp_path: Path, names: dict[str, Any]) -> None:
    cassette = tmp_path / "x.cassette.jsonl"
    names["times"] = []
    script: dict[str, Any] = {"root": [run_code("times.append(1)\nlen(times)"), "done"]}
    with session_of(by_agent(script), mode="record", cassette=cassette) as session:
        session.spawn("go", code="kernel").result(240)
    with session_of(by_agent({}), mode="replay", cassette=cassette) as session:
        run = session.spawn("go", code="kernel")
        assert run.result(240).output == "done"
    assert names["times"] == [1]
    assert list(run.code) == ["times.append(1)\nlen(times)"]
    assert run.agent("root").tool_calls[0].result == "1"


# -- the main thread, without agents --------------------------------------------------------------


def served(work: Callable[[Guarded], object], beside: Callable[[MainCall], object]) -> MainCall:
    """A call of this thread, while another thread acts on it."""
    call = MainCall("r", work)
    thread = threading.Thread(target=beside, args=(call,))
    MAIN.put(call)
    thread.start()
    MAIN.serve("r")
    thread.join()
    return call


def test_stop_that_comes_late_never_reaches_what_runs_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentnb.main_thread.STOP_PAUSE_S", 0.0)

    def stop_until_it_ends(call: MainCall) -> None:
        while not call.ended.is_set():
            MAIN.stop(call)

    def work(guarded: Guarded) -> str:
        try:
            return guarded(lambda: "".join(map(str, range(300))))
        except KeyboardInterrupt:
            return "stopped"

    for _ in range(50):  # a stop that escaped would end this test
        call = served(work, stop_until_it_ends)
        assert call.error is None
        assert not call.was_interrupted


def test_call_ends_only_when_the_last_stop_was_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    kill = signal.pthread_kill
    late: list[threading.Thread] = []

    def kill_after_the_code(thread: int, number: int) -> None:
        def wait_and_kill() -> None:
            while MAIN._running is not None:
                time.sleep(0.001)
            time.sleep(0.05)
            kill(thread, number)

        late.append(threading.Thread(target=wait_and_kill))
        late[0].start()

    monkeypatch.setattr("agentnb.main_thread._DRAIN_S", 240)
    monkeypatch.setattr(signal, "pthread_kill", kill_after_the_code)
    call = MainCall("r", lambda guarded: guarded(lambda: MAIN.stop(call)))
    MAIN.put(call)

    MAIN.serve("r")

    late[0].join()  # the signal would end this test
    assert call.error is None
    assert not call.was_interrupted


def test_interrupt_amid_our_own_steps_breaks_none_and_reaches_the_caller() -> None:
    def work(guarded: Guarded) -> str:
        signal.raise_signal(signal.SIGINT)
        return "whole"

    call = MainCall("r", work)
    MAIN.put(call)
    with pytest.raises(KeyboardInterrupt):
        MAIN.serve("r")
    assert (call.value, call.was_interrupted) == ("whole", True)
    assert call.ended.is_set()


def test_call_that_was_withdrawn_is_never_made() -> None:
    call = MainCall("r", lambda _: pytest.fail("it was made"))
    MAIN.put(call)
    assert MAIN.withdraw(call)
    assert MAIN.serve("r") is None


def test_other_threads_make_no_call() -> None:
    call = MainCall("r", lambda _: "made")
    MAIN.put(call)
    thread = threading.Thread(target=MAIN.serve, args=("r",))
    thread.start()
    thread.join()
    assert not call.ended.is_set()
    assert MAIN.serve("r") is call
    assert call.value == "made"


def test_calls_that_a_wait_leaves_are_made_between_cells() -> None:
    main, made = MainThread(), list[str]()

    async def kernel() -> None:
        of_cells, last = asyncio.Lock(), asyncio.Event()
        main.serve_between_cells(asyncio.get_running_loop(), of_cells)
        async with of_cells:  # a cell that waits and then gives up
            with main.waits("r", lambda: None):
                main.put(MainCall("r", lambda _: made.append("first")))
                main.put(MainCall("r", lambda _: last.set()))
            assert made == []
        await asyncio.wait_for(last.wait(), DEADLINE_S)

    asyncio.run(kernel())

    assert made == ["first"]
