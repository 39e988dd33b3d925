"""The pause of the garbage collector is shared by all threads, and none waits for another."""

from __future__ import annotations

import gc
import threading

from agentnb.core.collector import without_collector


def test_collector_goes_on_when_the_last_of_several_threads_is_done() -> None:
    assert gc.isenabled()
    is_inside, may_leave = threading.Event(), threading.Event()

    def work() -> None:
        with without_collector():
            is_inside.set()
            may_leave.wait(60)

    other = threading.Thread(target=work)
    with without_collector(), without_collector():
        other.start()
        assert is_inside.wait(60)
    assert not gc.isenabled()
    may_leave.set()
    other.join(60)
    assert gc.isenabled()
