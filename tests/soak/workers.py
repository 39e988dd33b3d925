"""Pools of workers that end at a random moment: nothing is left of them.

Each point is a pool with two agents: one whose code never ends, and one that computes. The pool is
closed at a moment between the first call and the work of both; at every second point, after a
cancel of the call that never ends. Then none of its processes or files may be left, and no zombie.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from unittest import mock

from tests.workers.pools import LONG_S, Pool, marked, quick

PATIENCE_S = 3.0
"""Seconds in which a pool has to close."""
_WORK_BEGINS_S = 1.2
"""Seconds until both agents are at work, roughly."""


def points(
    folder: Path, count: int, seed: int, *, patience_s: float = PATIENCE_S
) -> Iterator[tuple[str, list[str]]]:
    """Yield what was done and what broke, for each point.

    Args:
        folder: An empty one, with a short path.
        count: The number of points, and of parts into which the time until both work is cut.
        seed: Decides the moments.
        patience_s: Seconds in which a point has to end.
    """
    by_chance = random.Random(seed)
    for number in range(count):
        moment_s = (number + by_chance.random()) / count * _WORK_BEGINS_S
        # No library is needed, and each takes a second to import.
        with (
            mock.patch("tempfile.tempdir", str(folder)),
            mock.patch("agentnb.workers.given._HEAVY", ()),
        ):
            is_cancelled = number % 2 == 1
            took_s, faults = _point(moment_s, is_cancelled=is_cancelled)
        if took_s > patience_s:
            faults.append(f"it took {took_s:.1f} s to end")
        if left := sorted(each.name for each in folder.iterdir()):
            faults.append(f"files were left: {left}")
        done = "cancel and close" if is_cancelled else "close"
        yield f"{done} after {moment_s:.3f} s: {took_s:.2f} s", faults


def _point(moment_s: float, *, is_cancelled: bool) -> tuple[float, list[str]]:
    before = _zombies()
    pool = Pool({"rows": list(range(10))}, limits=quick())
    pool.workers.give("a", ["rows"])
    call = pool.runtime.submit(pool.running("import time\nwhile True: time.sleep(0.001)"))
    other = pool.runtime.submit(pool.running("sum(rows)", "b"))
    time.sleep(moment_s)  # any moment: this is what the harness tries
    began_s, faults = time.monotonic(), []
    if is_cancelled:
        call.cancel()
        with suppress(CancelledError):
            faults.append(f"a cancelled call came to {call.result(LONG_S).text!r}")
    pool.close()
    took_s = time.monotonic() - began_s
    for each in (call, other):
        with suppress(CancelledError):
            if not each.result(LONG_S).text:
                faults.append("a call came to nothing")
    if left := marked(pool.mark):
        faults.append(f"{len(left)} processes were left")
    if new := set(_zombies()) - set(before):
        faults.append(f"nobody waited for {len(new)} processes")
    return took_s, faults


def _zombies() -> list[str]:
    """Children of this process that have ended and were not waited for."""
    mine = Path("/proc/self/task").glob("*/children")
    children = [pid for file in mine for pid in file.read_text(encoding="ascii").split()]
    return [pid for pid in children if ") Z " in _stat(pid)]


def _stat(pid: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return ""
