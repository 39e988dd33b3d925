"""A heavy import: made once, on another thread, and never in anybody's way."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from agentnb.providers import anthropic, registry
from agentnb.providers.lazy_import import LazyImport
from tests.notebook.kernel import started
from tests.support import DEADLINE_S, reported_by, run_python


class Load:
    """An import that stands until it is let go."""

    def __init__(self, *errors: Exception) -> None:
        self.threads: list[threading.Thread] = []
        self.go_on = threading.Event()
        self._errors = list(errors)

    def __call__(self) -> None:
        self.threads.append(threading.current_thread())
        self.go_on.wait(60)
        if self._errors:
            raise self._errors.pop(0)


async def test_all_who_wait_wait_for_one_import_on_a_thread_that_holds_up_no_exit() -> None:
    load = Load()
    late = LazyImport(load)
    begun = late.begin()
    waiting = [asyncio.create_task(late.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    load.go_on.set()
    await asyncio.gather(*waiting)

    assert begun.done()
    (thread,) = load.threads
    assert thread is not threading.main_thread()
    assert thread.daemon


async def test_one_who_is_cancelled_while_waiting_leaves_it_to_the_others() -> None:
    load = Load()
    late = LazyImport(load)
    gives_up, goes_on = (asyncio.create_task(late.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    load.go_on.set()

    await goes_on
    assert len(load.threads) == 1


async def test_error_of_an_import_is_raised_to_who_needs_it_and_the_next_one_tries_again() -> None:
    load = Load(ImportError("broken"), ImportError("still broken"))
    load.go_on.set()
    late = LazyImport(load)
    begun = late.begin()
    assert str(await asyncio.to_thread(begun.exception, 60)) == "broken"

    with pytest.raises(ImportError, match="still broken"):
        await late.wait()
    await late.wait()

    assert len(load.threads) == 3


async def test_import_whose_thread_cannot_start_is_begun_anew_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    load = Load()
    load.go_on.set()
    late = LazyImport(load)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="new thread"):
            await late.wait()

    async with asyncio.timeout(DEADLINE_S):
        await late.wait()
    assert len(load.threads) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_fork_in_the_middle_of_an_import_leaves_the_other_process_one_of_its_own() -> None:
    code = """
    import os, threading, warnings
    from agentnb.providers import lazy_import

    warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)

    lazy_import._FORK_PATIENCE_S = 0.0
    go_on = threading.Event()
    late = lazy_import.LazyImport(go_on.wait)
    late.begin()
    with late._lock:  # another thread may have it at that moment
        child = os.fork()
    if child == 0:
        go_on = threading.Event()
        go_on.set()
        late._load = go_on.wait
        late.begin().result(60)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    assert run_python(code) == "7\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_fork_waits_for_an_import_as_the_other_process_could_not_end_it() -> None:
    code = """
    import os, threading, warnings
    from agentnb.providers.lazy_import import LazyImport

    warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)

    go_on, made = threading.Event(), []

    def load():
        go_on.wait(60)
        made.append(True)

    LazyImport(load).begin()
    threading.Timer(0.2, go_on.set).start()
    if os.fork() == 0:
        os._exit(len(made))
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    assert run_python(code) == "1\n"


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_session_begins_the_import_where_there_is_a_key_and_not_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    imports = LazyImport(lambda: None)
    monkeypatch.setattr(imports, "begin", lambda: begun.append("begun"))
    monkeypatch.setattr(anthropic, "_sdk", imports)
    registry.Registry().resolve("anthropic/m")
    assert begun == []

    monkeypatch.setenv(name, "a-key")
    registry.Registry().resolve("demo")
    assert begun == []
    registry.Registry().resolve("anthropic/m")
    assert begun == ["begun"]


def test_extension_begins_the_import_where_there_is_a_key_and_not_else() -> None:
    begun = """
import sys, threading
names = [thread.name for thread in threading.enumerate()]
"anthropic" in sys.modules or "agentnb-import" in names
"""
    with started() as kernel:
        kernel.ok("%load_ext agentnb")
        assert kernel.value(begun) is False
        kernel.ok("import os; os.environ['ANTHROPIC_API_KEY'] = 'a-key'", "%reload_ext agentnb")
        assert kernel.value(begun) is True


@pytest.mark.parametrize("after_s", [0.0, 0.2])
def test_process_that_ends_within_the_import_neither_waits_nor_complains(
    after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    code = f"""
    import time
    from agentnb import Session

    Session("anthropic/m")
    time.sleep({after_s})
    """
    assert run_python(code) == ""


def test_importing_the_package_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    code = """
    import sys, threading
    import agentnb
    from agentnb import Session

    print("anthropic" in sys.modules, threading.active_count())
    """
    assert run_python(code) == "False 1\n"


async def test_import_that_fails_when_nobody_waits_for_it_any_more_is_not_reported() -> None:
    async def scene() -> None:
        load = Load(ImportError("broken"))
        late = LazyImport(load)
        waiting = asyncio.create_task(late.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        late.begin().add_done_callback(lambda _: loop.call_soon_threadsafe(over.set))
        load.go_on.set()
        await over.wait()
        await late.wait()  # another import, so that nothing keeps the first

    assert await reported_by(scene) == []
