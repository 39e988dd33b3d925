"""Code that does its worst ends in time, with all that it started, and harms no one else."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from agentnb.core.threads import run_in_thread
from agentnb.workers.ran import Ran
from tests.forks import Program
from tests.soak.workers import points
from tests.workers.pools import LONG_S, Pool, in_the_end, marked, quick, resident

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="descendants are found by /proc, which only Linux has"
)

DETACHED = """
import os, subprocess, time, warnings
warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool({"given": [1]}, limits=quick(most_processes=20))
    yield pool
    pool.close()


@pytest.fixture
def agent(pool: Pool, request: pytest.FixtureRequest) -> Iterator[str]:
    """An agent of its own for each test, with a worker that has a name."""
    name = request.node.name
    pool.workers.give(name, ["given"])
    pool.run("mine = 1", name)
    yield name
    pool.end(name)


TIME_S = 3.0
"""Seconds in which code on a busy machine has begun and has started what it starts."""
ON_AND_ON = "import time\nwhile True: time.sleep(0.001)"
"""It never ends, and leaves the processor to others."""
PRINTED_AND_GONE = (
    f"before\nStopped: it ran longer than {TIME_S:g} s. Do less in one call.\nIts names are gone."
)
CODE: dict[str, tuple[str, str, str]] = {
    # name: (code, why, a part of the text)
    "a loop": ("while True: pass", "time", f"Stopped: it ran longer than {TIME_S:g} s."),
    "a sleep": ("import time; time.sleep(1e9)", "time", "Stopped: it ran longer"),
    "an await": ("import asyncio; await asyncio.sleep(1e9)", "time", "Stopped: it ran longer"),
    "a loop that catches all": (
        "import time\nwhile True:\n    try: time.sleep(1e9)\n    except BaseException: pass",
        "time",
        "Stopped: it ran longer",
    ),
    "a signal that is ignored": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + ON_AND_ON,
        "time",
        "Stopped: it ran longer",
    ),
    "blocked signals": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 60))\n" + ON_AND_ON,
        "time",
        "Stopped: it ran longer",
    ),
    "a thread that never ends": (
        "import threading, time\nprint('before')\n"
        "def spin():\n    while True: time.sleep(0.001)\n"
        "threading.Thread(target=spin).start()\n" + ON_AND_ON,
        "time",
        PRINTED_AND_GONE,
    ),
    "children that detach": (
        "print('before')" + DETACHED + ON_AND_ON,
        "time",
        PRINTED_AND_GONE,
    ),
    "a flood": ("while True: print('x' * 10**6)", "output", "it printed more than 50 MB"),
    "a flood that catches all": (
        "while True:\n    try:\n        while True: print('x' * 10**6)\n"
        "    except BaseException: pass",
        "output",
        "it printed more than 50 MB",
    ),
    "a flood of a process": ("import os; os.system('yes')", "output", "it printed more than"),
    "too much memory": ("x = bytearray(10**10)", "", "MemoryError"),
    "an exit": ("import os; print('last', flush=True); os._exit(3)", "exit code 3", "last\nThe w"),
    "a raised exit": ("raise SystemExit(1)", "", "SystemExit: 1"),
    "a kill of itself": ("import os; os.kill(os.getpid(), 9)", "signal 9", "(signal 9)"),
    "a kill of its guard": (
        "import os, time; os.kill(os.getppid(), 9); time.sleep(1000)",
        "died",
        "The worker ended",
    ),
    "a stop of its guard": (
        "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)\n" + ON_AND_ON,
        "time",
        "Its names are gone.",
    ),
    "many processes": (
        "import os, time\nfor _ in range(100):\n    if os.fork() == 0:\n        time.sleep(1000)\n"
        "time.sleep(1000)",
        "processes",
        "it started more than 20 processes",
    ),
    "a crash": ("import ctypes; ctypes.string_at(0)", "signal 11", "(signal 11)"),
}


ENDLESS = [name for name, (_, why, _) in CODE.items() if why == "time"]


@pytest.fixture(scope="module")
def endless() -> Iterator[dict[str, tuple[Ran, Ran]]]:
    """By name: what came of the code that never ends, and of the agent's next call.

    All run at the same time, in a pool of their own, as each takes its seconds. Only the code that
    never ends has a limit: what nine workers do before and after takes as long as it takes.
    """
    pool = Pool({"given": [1]}, limits=quick(), at_work=len(ENDLESS))

    async def all_at_once(code_of: Callable[[str], str]) -> list[Ran]:
        return await asyncio.gather(*(pool.running(code_of(name), name) for name in ENDLESS))

    try:
        for name in ENDLESS:
            pool.workers.give(name, ["given"])
        pool.wait(all_at_once(lambda _: "mine = 1"))
        pool.limit(quick(time_s=TIME_S))
        stopped = pool.wait(all_at_once(lambda name: CODE[name][0]))
        pool.limit(quick())
        after = pool.wait(all_at_once(lambda _: AFTER))
        # The fork server, each agent's guard and worker, and nothing that the code started.
        assert in_the_end(lambda: len(marked(pool.mark)) == 1 + 2 * len(ENDLESS))
        yield dict(zip(ENDLESS, zip(stopped, after, strict=True), strict=True))
    finally:
        pool.close()


AFTER = "given, globals().get('mine')"


def check(name: str, ran: Ran, after: Ran) -> None:
    _, why, part = CODE[name]
    assert ran.is_error
    assert ran.why == why
    assert part in ran.text
    assert ("A fresh worker has started" in after.text) == ran.ended
    assert ("Its names are gone." in ran.text) == ran.ended
    assert after.text.endswith("([1], None)" if ran.ended else "([1], 1)")


@pytest.mark.parametrize("name", ENDLESS)
def test_code_that_never_ends_is_stopped_and_the_agent_is_told(
    endless: dict[str, tuple[Ran, Ran]], name: str
) -> None:
    check(name, *endless[name])


@pytest.mark.parametrize("name", [name for name in CODE if name not in ENDLESS])
def test_hostile_code_is_stopped_and_the_agent_is_told(
    pool: Pool, agent: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None of it waits for an interrupt, but a guard may be slow to say how a worker ended.
    monkeypatch.setattr("agentnb.workers.worker.INTERRUPT_PATIENCE_S", LONG_S)
    others = set(marked(pool.mark))

    ran = pool.run(CODE[name][0], agent)

    check(name, ran, pool.run(AFTER, agent))
    # A guard and a worker, and nothing that the code started.
    assert in_the_end(lambda: len(set(marked(pool.mark)) - others) in (0, 2))


@pytest.fixture
def heeded(pool: Pool, agent: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Ran]:
    """Runs code that is interrupted, and has all the time to heed that."""

    def run(code: str) -> Ran:
        with monkeypatch.context() as now:
            now.setattr("agentnb.workers.worker.INTERRUPT_PATIENCE_S", LONG_S)
            now.setattr(pool.workers._seats[agent].worker, "_limits", quick(time_s=TIME_S))
            return pool.run(code, agent)

    return run


def test_code_that_heeds_the_interrupt_of_its_time_limit_keeps_its_names(
    pool: Pool, agent: str, heeded: Callable[[str], Ran]
) -> None:
    ran = heeded("while True: pass")

    assert (ran.why, ran.ended) == ("time", False)
    assert pool.run("mine", agent).text == "1"


def test_what_was_printed_is_told_also_if_processes_are_left_and_end_the_worker(
    heeded: Callable[[str], Ran],
) -> None:
    ran = heeded("print('before')" + DETACHED + ON_AND_ON)

    assert (ran.why, ran.ended) == ("time", True)
    assert ran.text.startswith("before\nStopped: it ran longer")


def test_flood_does_not_reach_the_persons_process(pool: Pool, agent: str) -> None:
    pool.run("print('x' * 1_000_000)", agent)
    before = resident()

    for _ in range(3):
        assert pool.run("while True: print('x' * 10**6)", agent).why == "output"

    assert resident() < before + 50_000_000


def test_child_of_code_may_outlive_its_call_but_not_its_agent(pool: Pool, agent: str) -> None:
    before = set(marked(pool.mark))

    assert not pool.run(DETACHED, agent).is_error
    assert in_the_end(lambda: len(set(marked(pool.mark)) - before) == 2)
    pool.end(agent)

    assert in_the_end(lambda: set(marked(pool.mark)) < before)


def test_processes_and_files_are_gone_also_if_their_guard_and_its_server_are_killed(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    pool = Pool(limits=quick())
    try:
        pool.run(DETACHED)
        code = (
            "guard = os.getppid()\n"
            "server = int(open(f'/proc/{guard}/stat').read().rpartition(')')[2].split()[1])\n"
            "os.kill(server, 9); os.kill(guard, 9); time.sleep(1000)"
        )

        assert pool.run(code).ended
        assert pool.run("1 + 1").text.endswith("2")
    finally:
        pool.close()
    assert marked(pool.mark) == []
    assert list(short_folder.iterdir()) == []


def test_close_does_not_wait_for_a_fork_server_that_has_started_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    source = f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(10**6)\n"
    (tmp_path / "library_that_hangs.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "library_that_hangs", ModuleType("library_that_hangs"))
    monkeypatch.setattr("agentnb.workers.given._HEAVY", ("library_that_hangs",))
    monkeypatch.setattr("agentnb.workers.server._PATIENCE_S", 10 * LONG_S)
    monkeypatch.setattr("agentnb.workers.worker._START_PATIENCE_S", 10 * LONG_S)
    pool = Pool(limits=quick())
    call = pool.runtime.submit(pool.running("1"))
    assert in_the_end(begun.exists)

    pool.close()

    assert call.result(LONG_S).is_error
    assert marked(pool.mark) == []


@pytest.mark.parametrize("code", ["while True: pass", DETACHED + "while True: pass"])
def test_cancelled_call_is_stopped_before_the_cancellation_ends(
    pool: Pool, agent: str, code: str, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code = code.replace("while", f"print('of the first')\nopen({str(begun)!r}, 'w').close()\nwhile")

    async def cancelled() -> bool:
        call = asyncio.create_task(pool.running(code, agent))
        assert await run_in_thread(lambda: in_the_end(begun.exists))
        call.cancel()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return call.cancelled()

    assert pool.wait(cancelled())
    after = pool.run("print('of the second')", agent)
    assert not after.is_error
    assert after.text.splitlines()[-1] == "of the second"
    assert "of the first" not in after.text
    assert in_the_end(lambda: not [pid for pid in marked(pool.mark) if "sleep" in name_of(pid)])


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's: where workers keep theirs."""
    with tempfile.TemporaryDirectory(prefix="w") as folder:
        yield Path(folder)


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
    except OSError:
        return ""


OWNER = """
import os, sys, time
os.setsid()
from agentnb.runtime import get_runtime
from agentnb.core.threads import run_in_thread
from agentnb.workers.ran import Ran
from tests.forks import Program
from tests.soak.workers import points
from tests.workers.pools import Pool, quick
pool = Pool(limits=quick(), runtime=get_runtime())
assert not pool.run({detached!r}).is_error
if {forks}:
    if os.fork() == 0:
        time.sleep(1000)
print(pool.mark, *[each for each in sorted(os.listdir({tmp!r}))], flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("forks", "end"),
    [
        (False, "os.kill(os.getpid(), 9)"),
        (True, "os.kill(os.getpid(), 9)"),
        (False, "sys.exit()"),
        (False, "pool.runtime.submit(pool.running('while True: pass'))"),
    ],
    ids=["kill", "kill, with a fork that lives on", "exit", "end of the script"],
)
def test_end_of_the_persons_process_ends_all(short_folder: Path, forks: bool, end: str) -> None:
    code = OWNER.format(detached=DETACHED, forks=forks, end=end, tmp=str(short_folder))
    with Program(code, environment={"TMPDIR": str(short_folder)}) as owner:
        try:
            mark, *files = owner.stdout.readline().split()
            assert files
            assert in_the_end(lambda: marked(mark) == [])
            assert in_the_end(lambda: list(short_folder.iterdir()) == [])
            owner.wait()
            if not forks:
                assert owner.errors == ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(owner.pid, signal.SIGKILL)


def test_nothing_is_left_whenever_it_is_cancelled_or_closed(
    short_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = dict(points(short_folder, 6, seed=7, patience_s=LONG_S))

    assert len(found) == 6
    assert [*found.values()] == [[]] * 6
    assert capfd.readouterr().err == ""
