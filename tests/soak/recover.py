"""Kills real kernels at random points of a run, and recovers it in the next kernel.

The run, its model and the points are those of `tests.soak.kills`. The next kernel recovers the run;
in every third point it is killed while it does, and a third one recovers it again. The answer and
the tree must be those of an unbroken run, and no call that had finished may reach the server again.
"""

from __future__ import annotations

import html
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from agentnb.core.records import FINISHED
from agentnb.store.reader import load
from tests import loopback
from tests.loopback.said import Reply, system_of
from tests.notebook.kernel import DEADLINE_S, Kernel, started
from tests.soak import kills

BEAT_S = 0.005

_RECOVER = (
    kills._START[: kills._START.index("said = ")]
    + """
run = session.recover({run_id!r})
"""
)
_END = """
result = await run
shown = [(row["path"], row["status"], row["answer"]) for row in run.to_records()]
receipt = [run.receipt.reused.calls, list(run.receipt.uncertain), list(run.receipt.changed)]
"""

Call = tuple[str, int]
"""An agent's task, and how often it had answered: each call of the run has its own."""


class Counted(kills.Model):
    """Notes which calls reached the server."""

    def __init__(self, beat: kills.Beat) -> None:
        super().__init__(beat)
        self.asked: list[Call] = []

    def __call__(self, body: dict[str, Any]) -> Reply:
        turns = sum(message["role"] == "assistant" for message in body["messages"])
        self.asked.append((_task_of(system_of(body)), turns))
        return super().__call__(body)


def _task_of(system: str) -> str:
    found = re.search(r"<task>\n(.*)\n</task>\Z", system, re.DOTALL)
    return html.unescape(found[1]) if found else "root"


def _finished(store: Path, run_id: str) -> Counter[Call]:
    """The calls that had ended when the process died."""
    calls = load(store, run_id).journal.calls
    return Counter(
        (_task_of(each.request.system), sum(m.role == "assistant" for m in each.request.messages))
        for each in calls
        if each.status == FINISHED
    )


def points(
    folder: Path, count: int, seed: int, *, beat_s: float = BEAT_S
) -> Iterator[tuple[str, list[str]]]:
    """Kill so many kernels; yield what was done and what broke, for each."""
    dice = random.Random(seed)
    beat = kills.Beat(beat_s)
    model = Counted(beat)
    try:
        with loopback.LoopbackServer(model) as server:
            whole: dict[str, Any] = {}
            for place, point in enumerate([None, *kills._points(count, dice)]):
                store = folder / f"{place}.db"
                model.asked.clear()
                if point is None:
                    whole = _unbroken(store, server.url)
                    whole["calls"] = Counter(model.asked)
                    continue
                is_twice = place % 3 == 0
                yield _one(store, server.url, model, point, whole, dice, is_twice=is_twice)
    finally:
        beat.stop()


def _unbroken(store: Path, url: str) -> dict[str, Any]:
    with started() as kernel:
        start = kills._START[: kills._START.index("said = ")].format(store=str(store))
        kernel.ok(kills._SETTINGS.format(url=url), start, 'run = session.spawn("Plan.")')
        kernel.ok(_END.replace("receipt =", "receipt = None #"))
        return {"output": kernel.value("result.output"), "shown": kernel.value("shown")}


def _one(
    store: Path,
    url: str,
    model: Counted,
    point: kills.Point,
    whole: Mapping[str, Any],
    dice: random.Random,
    *,
    is_twice: bool,
) -> tuple[str, list[str]]:
    with started() as kernel:
        kernel.ok(kills._SETTINGS.format(url=url))
        told, _ = kills._kill(kernel, point, store, url)
    at = f"{point.kind} {point.value:,}"
    if told.is_over or not _is_there(store, told.run_id):
        return f"{at:14} nothing to recover", []
    finished = _finished(store, told.run_id)
    model.asked.clear()
    with started() as kernel:
        _recover(kernel, url, store, told.run_id)
        if is_twice:
            most = dice.randrange(1, 1 + (whole["calls"] - finished).total())
            _wait_for(lambda: len(model.asked) >= most, kernel)
            kernel.kill()
        else:
            return _checked(at, kernel, store, told.run_id, finished, model, whole)
    if any(end.path is None for end in load(store, told.run_id).journal.ends):
        return f"{at:14} it ended before the second kill", []
    finished = _finished(store, told.run_id)
    model.asked.clear()
    with started() as kernel:
        _recover(kernel, url, store, told.run_id)
        return _checked(f"{at} twice", kernel, store, told.run_id, finished, model, whole)


def _is_there(store: Path, run_id: str) -> bool:
    try:
        return bool(run_id) and bool(load(store, run_id).journal.head.run_id)
    except LookupError:
        return False


def _recover(kernel: Kernel, url: str, store: Path, run_id: str) -> None:
    kernel.ok(kills._SETTINGS.format(url=url), _RECOVER.format(store=str(store), run_id=run_id))


def _wait_for(is_reached: Any, kernel: Kernel) -> None:
    for _ in range(round(DEADLINE_S / 0.01)):
        if is_reached() or kernel.value("run.done"):
            return
    raise AssertionError("the point was not reached")


def _checked(
    at: str,
    kernel: Kernel,
    store: Path,
    run_id: str,
    finished: Counter[Call],
    model: Counted,
    whole: Mapping[str, Any],
) -> tuple[str, list[str]]:
    faults = []
    kernel.ok(_END)
    if kernel.value("result.output") != whole["output"]:
        faults.append("the answer is another one")
    if (shown := kernel.value("shown")) != whole["shown"]:
        pairs = zip_longest(shown, whole["shown"])
        faults += [f"{one} in place of {two}" for one, two in pairs if one != two]
    asked = Counter(model.asked)
    if twice := asked & finished:
        faults.append(f"finished calls were made again: {sorted(twice)}")
    if asked + finished != whole["calls"]:
        faults.append(f"calls in all: {asked + finished}, and not {whole['calls']}")
    reused, uncertain, changed = kernel.value("receipt")
    if reused != finished.total() or changed:
        faults.append(f"the receipt says {reused} of {finished.total()} calls, changed {changed}")
    done = f"{at:14} {finished.total():3} calls kept, {asked.total():3} made, {len(uncertain)} open"
    return done, faults
