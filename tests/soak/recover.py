"""Kills real kernels at random points of a run, and recovers it in the next kernel.

The run is that of `tests.soak.recover_run`. A kernel dies when a call has reached the server, or
half of its reply has come; when the file has grown by some bytes; or when a tool has given some
orders. In some points the kernel that recovers the run is also killed: while it replays the record,
as soon as `recover` has returned, or at one of its new calls; and a third one recovers the run. A
kernel that is to be killed never gets the run's last reply: each kill is in the middle of the run.

Answer, tree and record must be those of an unbroken run. No finished call may reach the server
again; those that do were open, and the receipt names them.
"""

from __future__ import annotations

import http.client
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from agentnb import ScriptedProvider, Session
from agentnb.core._past.whole import LOST
from agentnb.core.records import FINISHED, RunJournal
from agentnb.record import RunRecord
from agentnb.store.reader import load
from agentnb.testing import equal_records
from tests.loopback import LoopbackServer, Reply
from tests.loopback.said import Act
from tests.notebook.forked import SDKS, Forked, ForkServer, fork_server
from tests.notebook.kernel import DEADLINE_S
from tests.soak.recover_run import LAST, Call, call_in, call_of, orders_in, reply_to, store_in

POLL_S = 0.0005

_BEGIN = """
import pathlib
from tests.soak import recover_run
run = recover_run.begin(pathlib.Path({folder!r}), {url!r})
"""
_RECOVER = """
import pathlib
from tests.soak import recover_run
run = recover_run.recover(pathlib.Path({folder!r}), {url!r}, {run_id!r}, dies_after={dies_after})
"""
_END = """
result = await run
shown = [(row["path"], row["status"], row["answer"]) for row in run.to_records()]
"""
_RECEIPT = """(
    run.receipt.reused.calls, run.receipt.reused.tool_calls, run.receipt.uncertain,
    run.receipt.changed,
)"""

_END_OF_RUN = (
    "the run: only in the first record: run_finished",
    "the run: only in the second record: run_finished",
)


@dataclass(frozen=True)
class Kill:
    """When a kernel is killed.

    The first kernel: at the `call` of this number, `midway` in its reply, when the file has this
    many `bytes`, or when this many `orders` were given. The second one: when this many things were
    replayed (`replay`), when `recover` has returned (`recovered`), or at a new call.
    """

    kind: str
    value: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.value:,}" if self.value else self.kind


class Server:
    """One server for all kernels, since errors name its port; each kernel has its own model."""

    def __init__(self) -> None:
        self._server = LoopbackServer(lambda body: self._answer(body))
        self._answer: Callable[[dict[str, Any]], Reply]
        self._stalled_before = 0

    def __enter__(self) -> Server:
        self._server.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)

    @property
    def url(self) -> str:
        return self._server.url

    def begin(self, answer: Callable[[dict[str, Any]], Reply]) -> None:
        """Serve the next kernel with this model."""
        self._answer, self._stalled_before = answer, self._server.stalled

    @property
    def is_stalled(self) -> bool:
        """Whether a reply to the kernel has stalled."""
        return self._server.stalled > self._stalled_before

    def wait_stalled(self) -> None:
        """Wait until a reply to the kernel has stalled."""
        self._server.wait_stalled(self._stalled_before + 1)

    def drain(self) -> None:
        """Wait until all calls of a dead kernel are read and its connections are closed."""
        # Connections are accepted in order: once this one is answered, none before it is left.
        with closing(http.client.HTTPConnection(self.url.removeprefix("http://"))) as last:
            last.request("GET", "/")
            last.getresponse().read()
        self._server.wait_disconnected()


class Model:
    """Answers the calls of one kernel, and stalls where the kernel is to die.

    Args:
        finished: How often each call had finished before.
        kill: When the kernel is to die; `None` for never.
    """

    def __init__(self, finished: Counter[Call], kill: Kill | None) -> None:
        self.asked: list[Call] = []
        self._tries = finished.copy()
        self._kill = kill

    def __call__(self, body: dict[str, Any]) -> Reply:
        call = call_in(body)
        self.asked.append(call)
        self._tries[call] += 1
        reply = reply_to(call, body, self._tries[call])
        if self._kill is None:
            return reply
        is_point = self._kill.kind in ("call", "midway") and self._kill.value == len(self.asked)
        if is_point or call == LAST:
            return _stalled(reply, midway=self._kill.kind != "call")
        return reply


def _stalled(reply: Reply, *, midway: bool) -> Reply:
    if reply.events is None or not midway:  # an error is sent at once
        return Reply(before=[Act.STALL])
    half = len(reply.events) // 2
    return Reply(events=[*reply.events[:half], Act.STALL])


@dataclass
class Whole:
    """The unbroken run, and the numbers from which kills are drawn."""

    calls: Counter[Call]
    orders: Counter[str]
    record: RunRecord
    shown: list[Any]
    first_bytes: int
    """Bytes of the file at the first call."""
    bytes: int


@dataclass
class Past:
    """What is known of a run before its next kernel continues it."""

    run_id: str = ""
    finished: Counter[Call] = field(default_factory=Counter)
    tools: int = 0
    """Tool calls that have finished."""
    open: Counter[Call] = field(default_factory=Counter)
    uncertain: list[str] = field(default_factory=list)
    """Open calls and tools, in the words of a receipt."""
    open_orders: set[str] = field(default_factory=set)
    """Paths of the agents with an open call of a tool with effects."""


def _past(journal: RunJournal) -> Past:
    calls = [
        (each, call_of(each.request.system, [m.role for m in each.request.messages]))
        for each in journal.calls
    ]
    open_tools = [each for each in journal.tool_calls if each.status != FINISHED]
    return Past(
        journal.head.run_id,
        Counter(call for each, call in calls if each.status == FINISHED),
        sum(each.status == FINISHED for each in journal.tool_calls),
        Counter(call for each, call in calls if each.status != FINISHED),
        [
            *(
                f"call {each.number} of agent {each.path} ({each.model})"
                for each, _ in calls
                if each.status != FINISHED
            ),
            *(
                f"tool {each.name!r} of agent {each.path} (call {each.number})"
                for each in open_tools
            ),
        ],
        {each.path for each in open_tools if each.name == "order"},
    )


def _size(store: Path) -> int:
    """Bytes of the file and its log."""
    size = 0
    for suffix in ("", "-wal"):
        try:
            size += os.stat(f"{store}{suffix}").st_size  # noqa: PTH116
        except FileNotFoundError:
            pass
    return size


def _record(folder: Path, run_id: str = "") -> RunRecord:
    session = Session(provider=ScriptedProvider([]), config=False, store=store_in(folder))
    return session.load(run_id or session.runs(None)[0].id)


# -- point by point -------------------------------------------------------------------------------


class Point:
    """One run, its kernels, and its faults.

    Args:
        folder: An empty one.
        server: The server of all runs.
        whole: The unbroken run.
        dice: Decide when a second kernel dies.
    """

    def __init__(self, folder: Path, server: Server, whole: Whole, dice: random.Random) -> None:
        self.folder = folder
        self._server = server
        self._whole = whole
        self._dice = dice
        self._past = Past()
        self._asked: Counter[Call] = Counter()
        self._opened: Counter[Call] = Counter()
        self._open_orders: set[str] = set()
        self.faults: list[str] = []

    def begin(self, kernel: Forked, kill: Kill) -> None:
        """Begin the run, and kill the kernel."""
        model = Model(Counter(), kill)
        self._server.begin(model)
        kernel.send(_BEGIN.format(folder=str(self.folder), url=self._server.url))
        self._wait_for(kill, model)
        kernel.kill()
        self._note_death(model)

    def _wait_for(self, kill: Kill, model: Model) -> None:
        store, orders = store_in(self.folder), orders_in(self.folder)
        until_s = time.monotonic() + DEADLINE_S
        while not self._server.is_stalled:
            assert time.monotonic() < until_s, f"{kill} was not reached"
            match kill.kind:
                case "bytes" if model.asked and _size(store) >= kill.value:
                    return
                case "orders" if orders.exists() and len(_lines(orders)) >= kill.value:
                    return
            time.sleep(POLL_S)

    def second_kill(self, place: int) -> Kill:
        """When the second kernel dies."""
        left = (self._whole.calls - self._past.finished).total()
        kinds = ["call", "replay", "midway", "recovered"] if self._past.finished else ["call"]
        kind = kinds[place % len(kinds)]
        most = {"call": left, "midway": left, "replay": self._past.finished.total()}.get(kind)
        return Kill(kind, 0 if most is None else self._dice.randrange(1, 1 + most))

    def recover_and_die(self, kernel: Forked, kill: Kill) -> None:
        """Recover the run in a kernel, and kill that kernel."""
        model = Model(self._past.finished, kill)
        self._server.begin(model)
        if kill.kind == "replay":
            kernel.send(self._recovers(dies_after=kill.value))
            kernel.wait_until_dead()
        else:
            kernel.ok(self._recovers())
            if kill.kind != "recovered":
                self._server.wait_stalled()
            kernel.kill()
        self._note_death(model)

    def recover(self, kernel: Forked) -> str:
        """Recover the run and check the result; return in words what was done."""
        model, past = Model(self._past.finished, None), self._past
        self._server.begin(model)
        kernel.ok(self._recovers(), _END)
        shown = kernel.value("shown")
        calls, tools, uncertain, changed = kernel.value(_RECEIPT)
        kernel.kill()
        self._check_calls(model)
        if (made := Counter(model.asked) + past.finished) != self._whole.calls:
            self.faults.append(f"calls in all: {made}, and not {self._whole.calls}")
        if (calls, tools, changed) != (past.finished.total(), past.tools, ()):
            kept = f"{past.finished.total()} calls and {past.tools} of tools"
            self.faults.append(f"the receipt: {calls} and {tools} of {kept}; changed {changed}")
        if sorted(uncertain) != sorted(past.uncertain):
            self.faults.append(f"uncertain: {uncertain}, and not {past.uncertain}")
        if shown != self._whole.shown:
            pairs = zip_longest(shown, self._whole.shown)
            self.faults += [f"{one} in place of {two}" for one, two in pairs if one != two]
        self._check_record()
        return (
            f"{past.finished.total():3} calls kept, {len(model.asked):3} made, "
            f"{len(uncertain)} open"
        )

    def _recovers(self, dies_after: int | None = None) -> str:
        return _RECOVER.format(
            folder=str(self.folder),
            url=self._server.url,
            run_id=self._past.run_id,
            dies_after=dies_after,
        )

    def _note_death(self, model: Model) -> None:
        """Read what the killed process left."""
        self._check_calls(model)
        before, run_id = self._past, self._past.run_id or _record(self.folder).id
        self._past = past = _past(load(store_in(self.folder), run_id).journal)
        self._opened += past.open
        self._open_orders |= past.open_orders
        if lost := before.finished - past.finished:
            self.faults.append(f"finished calls are not kept any more: {lost}")
        unknown = Counter(model.asked) - (past.finished - before.finished) - past.open
        if unknown:
            self.faults.append(f"calls reached the server and are not in the file: {unknown}")

    def _check_calls(self, model: Model) -> None:
        self._server.drain()
        asked = Counter(model.asked)
        self._asked += asked
        if again := asked + self._past.finished - self._whole.calls:
            self.faults.append(f"finished calls were made again: {again}")
        if more := self._asked - self._whole.calls - self._opened:
            self.faults.append(f"calls were made again that were not open: {more}")

    def _check_record(self) -> None:
        record, whole = _record(self.folder, self._past.run_id), self._whole.record
        told = equal_records(record, whole)
        # An agent with an open call of a tool with effects was told so, and did something else.
        others = tuple(f"agent {path}," for path in self._open_orders)
        self.faults += [line for line in told if not line.startswith((*others, *_END_OF_RUN))]
        # What open calls may have spent also counts.
        lost = sum(
            each.value["tokens"]
            for each in load(store_in(self.folder), record.id).journal.verdicts
            if each.kind == LOST
        )
        spent, known = (each.budget.tokens_used for each in (record, whole))
        if not others and (record.status, spent) != (whole.status, known + lost):
            self.faults.append(f"{record.status} with {spent}, and not {known} and {lost} tokens")
        orders = Counter(_lines(orders_in(self.folder)))
        if twice := orders - self._whole.orders:
            self.faults.append(f"ordered twice: {twice}")
        if (self._whole.orders - orders).total() > len(others):
            self.faults.append(f"not ordered: {self._whole.orders - orders}")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _unbroken(folder: Path, server: Server, kernel: Forked) -> Whole:
    folder.mkdir()
    model, sizes = Model(Counter(), None), [0]

    def answer(body: dict[str, Any]) -> Reply:
        sizes[0] = sizes[0] or _size(store_in(folder))
        return model(body)

    server.begin(answer)
    kernel.ok(_BEGIN.format(folder=str(folder), url=server.url), _END)
    shown = kernel.value("shown")
    kernel.kill()
    server.drain()
    size, calls = _size(store_in(folder)), Counter(model.asked)
    orders = Counter(_lines(orders_in(folder)))
    return Whole(calls, orders, _record(folder), shown, sizes[0], size)


def _kills(count: int, dice: random.Random, whole: Whole) -> Iterator[Kill]:
    calls = whole.calls.total()
    for place in range(count):
        match place % 5:
            case 0:
                yield Kill("call", dice.randrange(1, calls + 1))
            case 1 | 3:
                yield Kill("bytes", dice.randrange(whole.first_bytes, whole.bytes))
            case 2:
                yield Kill("midway", dice.randrange(1, calls + 1))
            case _:
                yield Kill("orders", dice.randrange(1, whole.orders.total() + 1))


def points(
    folder: Path,
    count: int,
    seed: int,
    *,
    twice: int | None = None,
    kernels: ForkServer | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Kill the kernels of `count` runs; yield what was done and what broke, for each.

    Args:
        folder: An empty one.
        count: The number of runs.
        seed: Decides when kernels die.
        twice: The number of runs, from the first, in which a second kernel dies; `None`: a quarter.
        kernels: Starts the kernels. By default a process of its own.
    """
    dice = random.Random(seed)
    twice = count // 4 if twice is None else twice
    starter = fork_server() if kernels is None else nullcontext(kernels)
    with Server() as server, starter as kernels:
        kernels.preload(*SDKS, "tests.soak.recover_run")
        with kernels.started() as kernel:
            whole = _unbroken(folder / "whole", server, kernel)
        for place, kill in enumerate(_kills(count, dice, whole)):
            point = Point(folder / str(place), server, whole, dice)
            point.folder.mkdir()
            with kernels.started() as kernel:
                point.begin(kernel, kill)
            at = str(kill)
            if place < twice:
                second = point.second_kill(place)
                at += f", then {second}"
                with kernels.started() as kernel:
                    point.recover_and_die(kernel, second)
            with kernels.started() as kernel:
                done = point.recover(kernel)
            yield f"{at:28} {done}", point.faults
