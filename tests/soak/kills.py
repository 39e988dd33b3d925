"""Kills real kernels at random points of a run: the store keeps all that was reported as finished.

The run has three levels, an async and a sync tool with long results, delegates by blocks and by
tools, and streams from a loopback server over the real provider. A subscriber in the kernel sends
each entry through a socket as soon as it gets it: what was sent outlives the process. The kernel is
killed when a number of entries or results was reported, when the file has grown by a number of
bytes, or when it has a number of characters of open calls. Then this process checks the file and
all that is made from it, and the next kernel lists the run.
"""

from __future__ import annotations

import html
import json
import os
import random
import re
import select
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentnb import ScriptedProvider, Session, load_run
from agentnb.core.codec import plain
from agentnb.core.events import Entry
from agentnb.core.records import FINISHED, ToolCallRecord
from agentnb.core.types import AgentStatus
from agentnb.record import RunRecord
from agentnb.store.reader import load
from tests import loopback
from tests.loopback.said import Reply, Step, system_of
from tests.notebook.forked import SDKS, ForkServer, fork_server
from tests.notebook.kernel import DEADLINE_S, Kernel
from tests.support import check_record, spawn

POINTS_PER_FILE = 4
"""Kernels that use one store, one after the other; each of them is killed."""
ENTRIES = 900
"""About the number of entries of the run, and of its results."""
RESULTS = 48
BYTES = 1_500_000
"""About the bytes by which file and log grow."""
KEPT_TEXT = 3_000
"""The most characters of open calls for which a point waits."""
BEAT_S = 0.02
"""Seconds between two pieces of a slow reply. Nothing depends on it."""
TEXT_IS_KEPT_S = 2.0
"""Text of an open call that is older than this is in the file: the store keeps it once a second."""

TOLD_AT_END = ("model_call_finished", "tool_call_finished", "run_finished")
ENDED = ("agent_completed", "agent_failed", "agent_cancelled", "agent_exhausted")


# -- what the model says --------------------------------------------------------------------------


class Beat:
    """Releases slow replies, piece by piece."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._beats: dict[int, threading.Event] = {}
        self._now = 0
        self._guard = threading.Lock()
        self._over = threading.Event()
        threading.Thread(target=self._run, name="beat", daemon=True).start()

    def after(self, count: int) -> threading.Event:
        """An event that is set `count` beats from now."""
        with self._guard:
            return self._beats.setdefault(self._now + count, threading.Event())

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            with self._guard:
                self._now += 1
                due = self._beats.pop(self._now, None)
            if due is not None:
                due.set()

    def stop(self) -> None:
        """Release everything."""
        self._over.set()
        for each in list(self._beats.values()):
            each.set()


def long(name: str, length: int) -> str:
    """A text in which each place differs from the others."""
    numbered = (f"{name}, sentence {place}. " for place in range(length // 12))
    return "".join(numbered)[:length].rstrip()


class Model:
    """Answers each call by its agent's task and the messages so far."""

    def __init__(self, beat: Beat) -> None:
        self._beat = beat
        self._number = 0

    def __call__(self, body: dict[str, Any]) -> Reply:
        found = re.search(r"<task>\n(.*)\n</task>\Z", system_of(body), re.DOTALL)
        task = html.unescape(found[1]) if found else "root"
        turns = sum(message["role"] == "assistant" for message in body["messages"])
        kind, _, number = task.partition(" ")
        if kind == "detail":
            return self._detail(body, task, turns, is_slow=number == "1.1")
        if kind == "part":
            return self._part(task, turns, by_tools=number != "3")
        if turns:
            return Reply(text=long("The answer", 400))
        return Reply(text=spawn("part 1", "part 2", "part 3", before=long("The plan", 300)))

    def _part(self, task: str, turns: int, *, by_tools: bool) -> Reply:
        details = [f"detail {task[-1]}.{number}" for number in (1, 2)]
        match turns:
            case 0:
                calls = [("look_up", {"what": long(task, 2_500)}), ("measure", {"what": task})]
                return Reply(text=long(f"{task} begins", 200), tool_uses=calls)
            case 1 if by_tools:
                calls = [("spawn", {"task": detail}) for detail in details]
                return Reply(text=long(f"{task} delegates", 100), tool_uses=calls)
            case 1:
                return Reply(text=spawn(*details, before=long(f"{task} delegates", 100)))
            case 2 if by_tools:
                return Reply(tool_uses=[("spawn_await", {"job_ids": "*"})])
        return Reply(text=long(f"{task} is done", 400))

    def _detail(self, body: dict[str, Any], task: str, turns: int, *, is_slow: bool) -> Reply:
        if turns == 0:
            return Reply(text=long(task, 60), tool_uses=[("measure", {"what": task})])
        return self._paced(body, Reply(text=long(f"{task} is done", 4_000 if is_slow else 800)))

    def _paced(self, body: dict[str, Any], reply: Reply) -> Reply:
        steps: list[Step] = []
        self._number += 1
        whole = loopback.messages.steps(reply, body, number=self._number)
        for place, step in enumerate(whole, 1):
            steps += [self._beat.after(place), step]
        return Reply(events=steps)


# -- the kernel -----------------------------------------------------------------------------------

_SETTINGS = """
import os
os.environ["ANTHROPIC_BASE_URL"] = {url!r}
os.environ["ANTHROPIC_API_KEY"] = "not-a-key"
import agentnb
"""
_LIST = """
session = agentnb.configure(store={store!r})
listed = [(info.id, str(info.status)) for info in agentnb.runs(None)]
"""
_START = """
import asyncio, json, socket
from agentnb.core.codec import plain
from agentnb.runtime import get_runtime

@agentnb.tool
async def look_up(what: str) -> str:
    "Look something up."
    await asyncio.sleep(0)
    return "found: " + what * 2

@agentnb.tool
def measure(what: str) -> str:
    "Measure something."
    return "measured: " + what * 400

session = agentnb.configure(
    model="anthropic/m", store={store!r}, delegation="both", nested_spawn=True,
    tools=[look_up, measure], budget=10_000_000,
)
said = socket.create_connection(("127.0.0.1", {port}))

async def tell():
    # On the loop of the run, so that it is told at once. Nothing is buffered in this process.
    async for entry in run.stream():
        line = json.dumps([entry.run_id, entry.seq, entry.at_s, plain(entry.event)])
        said.sendall(line.encode() + b"\\n")

run = session.spawn("Plan.", name="the run", tags=["kills"])
telling = get_runtime().submit(tell())
"""


@dataclass
class Told:
    """What the subscriber got before the kernel died."""

    run_id: str = ""
    entries: list[tuple[int, float, dict[str, Any]]] = field(default_factory=list)
    """`seq`, `at_s` and the event as plain values, in order."""
    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    """Characters of open calls that were in the file before the kill, by path and number."""
    _rest: bytes = b""

    def take(self, sent: bytes) -> None:
        """Read what arrived; a line that the kill cut does not count."""
        *lines, self._rest = (self._rest + sent).split(b"\n")
        for line in lines:
            self.run_id, *entry = json.loads(line)
            self.entries.append(tuple(entry))

    @property
    def is_over(self) -> bool:
        return bool(self.entries) and self.entries[-1][2]["kind"] == "run_finished"

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The events that report that something finished."""
        return [event for _, _, event in self.entries if event["kind"] in TOLD_AT_END + ENDED]


@dataclass(frozen=True)
class Point:
    """When to kill."""

    kind: str
    """`told`: reported entries; `results`; `bytes`: growth of the file; `kept`: characters of open
    calls."""
    value: int

    def is_reached(self, told: Told, store: Path, size: int) -> bool:
        match self.kind:
            case "told":
                return len(told.entries) >= self.value
            case "results":
                return len(told.finished) >= self.value
            case "bytes":
                return _size(store) - size >= self.value
        if told.run_id:
            told.seen = _kept(store, told.run_id)
        return sum(told.seen.values()) >= self.value


def _points(count: int, dice: random.Random) -> Iterator[Point]:
    for place in range(count):
        match place % 5:
            case 0:
                yield Point("told", dice.randrange(ENTRIES))
            case 1 | 3:
                yield Point("bytes", dice.randrange(BYTES))
            case 2:
                yield Point("results", dice.randrange(1, RESULTS))
            case _:
                yield Point("kept", dice.randrange(1, KEPT_TEXT))


def _size(store: Path) -> int:
    """Bytes of the file and its log."""
    size = 0
    for suffix in ("", "-wal"):
        try:
            size += os.stat(f"{store}{suffix}").st_size  # noqa: PTH116
        except FileNotFoundError:
            pass
    return size


def _read(store: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)


def _kept(store: Path, run_id: str) -> dict[tuple[str, int], int]:
    """Characters of each open call that are in the file, by path and number."""
    question = (
        "SELECT path, number, length(text) FROM model_calls WHERE status = 'started' "
        "AND text IS NOT NULL AND run = (SELECT id FROM runs WHERE run_id = ?)"
    )
    try:
        with closing(_read(store)) as db:
            return {(path, number): n for path, number, n in db.execute(question, (run_id,))}
    except sqlite3.OperationalError as error:
        if "no such table" in str(error) or "unable to open" in str(error):
            return {}  # the file is being made
        raise


def _kill(kernel: Kernel, point: Point, store: Path, url: str) -> tuple[Told, float]:
    """Start the run, kill the kernel at the point; return what was reported, and the time."""
    told, size = Told(), _size(store)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        cell = _START.format(store=str(store), port=server.getsockname()[1])
        kernel.send(cell)
        began_s = time.monotonic()
        connection, _ = server.accept()
    with connection:
        while not (told.is_over or point.is_reached(told, store, size)):
            assert time.monotonic() < began_s + DEADLINE_S, f"{point} was not reached"
            if select.select([connection], [], [], 0.001)[0]:
                told.take(connection.recv(2**16))
        kernel.kill()
        took_s = time.monotonic() - began_s
        while sent := connection.recv(2**16):  # what the kernel sent before it died
            told.take(sent)
    return told, took_s


# -- what must hold -------------------------------------------------------------------------------


def faults_of(store: Path, told: Told, folder: Path, *, text_is_kept_s: float) -> list[str]:
    """The faults of a store whose kernel was killed."""
    faults = []
    session = Session(provider=ScriptedProvider([]), config=False, store=store)
    status = {info.id: info.status for info in session.runs(None)}.get(told.run_id)
    if store.exists():
        with closing(_read(store)) as db:
            found = [row[0] for row in db.execute("PRAGMA integrity_check")]
            if found != ["ok"] or db.execute("PRAGMA foreign_key_check").fetchall():
                faults.append(f"the file is damaged: {found[:3]}")
    if status is None:
        return [*faults, "the run is not listed"] if told.finished else faults
    record = session.load(told.run_id)
    entries = list(record.events)
    kept = load(store, told.run_id).journal
    if status is not record.status:
        faults.append(f"listed as {status}, loaded as {record.status}")
    if told.is_over and status is not AgentStatus.COMPLETED:
        faults.append(f"told as completed, and it is {status}")
    if status not in (AgentStatus.COMPLETED, AgentStatus.INTERRUPTED):
        faults.append(f"it is {status}")
    faults += _faults_of_entries(entries, list(kept.entries), told)
    faults += _faults_of_tools(kept.tool_calls, told)
    faults += _faults_of_agents(record, told)
    faults += _faults_of_text(record, told, text_is_kept_s)
    faults += _faults_of_views(record, folder)
    return faults


def _faults_of_entries(
    entries: Sequence[Entry], kept: Sequence[Entry], told: Told
) -> Iterator[str]:
    try:
        check_record(entries)
    except AssertionError as error:
        yield f"the record is not whole: {error}"
    # What finished is in the store with all its fields, and in the same order for each agent.
    for name in sorted({event.get("agent_id", "") for event in told.finished}):
        theirs = [event for event in told.finished if event.get("agent_id", "") == name]
        loaded = (e for e in (plain(entry.event) for entry in entries) if _is_of(e, name))
        for event in theirs:
            if not any(each == event for each in loaded):
                yield f"told and not in the record: {_short(event)}"
    # Each kept entry equals the reported entry with its number.
    by_seq = {seq: (at_s, event) for seq, at_s, event in told.entries}
    for entry in kept:
        mine = entry.at_s, plain(entry.event)
        if by_seq.get(entry.seq, mine) != mine:
            yield f"entry {entry.seq} is {_short(mine[1])}, told was {by_seq[entry.seq]}"


def _is_of(event: Mapping[str, Any], agent_id: str) -> bool:
    return event.get("agent_id", "") == agent_id and event["kind"] in TOLD_AT_END + ENDED


def _short(event: Mapping[str, Any]) -> str:
    return str({name: str(value)[:60] for name, value in event.items()})


def _faults_of_tools(kept: Sequence[ToolCallRecord], told: Told) -> Iterator[str]:
    """Events of tool calls are cut; kept results are not."""
    results = {
        (call.agent_id, call.tool_use_id): call.result for call in kept if call.status == FINISHED
    }
    for event in told.finished:
        if event["kind"] == "tool_call_finished":
            whole = results.get((event["agent_id"], event["tool_use_id"]), "")
            length = event["result_length"] or len(event["result"])
            if len(whole) != length or not whole.startswith(event["result"]):
                yield f"{len(whole)} of {length} characters are kept of {_short(event)}"


def _faults_of_agents(record: RunRecord, told: Told) -> Iterator[str]:
    ended = {event["agent_id"] for event in told.finished if event["kind"] in ENDED}
    spawned = {
        event["agent_id"] for _, _, event in told.entries if event["kind"] == "agent_spawned"
    }
    nodes = {} if record.tree is None else {node.agent_id: node for node in record.tree.walk()}
    if ended - nodes.keys():
        yield f"agents that ended are missing: {sorted(ended - nodes.keys())}"
    for agent_id, node in nodes.items():
        known = {AgentStatus.COMPLETED} if agent_id in ended else set(AgentStatus)
        # An end that was kept before the kill need not have been reported.
        possible = known & {AgentStatus.COMPLETED, AgentStatus.INTERRUPTED}
        if node.status not in possible:
            yield f"{node.path} is {node.status}"
    if record.status is AgentStatus.COMPLETED and spawned - nodes.keys():
        yield "a completed run without some of its agents"


def _faults_of_text(record: RunRecord, told: Told, text_is_kept_s: float) -> Iterator[str]:
    known_until_s = told.entries[-1][1] - text_is_kept_s
    texts: dict[str, str] = {}
    old: Counter[str] = Counter()
    for _, at_s, event in told.entries:
        match event["kind"]:
            case "model_call_started":
                texts[event["agent_id"]], old[event["agent_id"]] = "", 0
            case "agent_text_delta":
                texts[event["agent_id"]] += event["text"]
                old[event["agent_id"]] += len(event["text"]) if at_s <= known_until_s else 0
            case "model_call_finished":
                texts.pop(event["agent_id"], None)
    for (path, number), seen in told.seen.items():
        if len(record.agent(path).calls[number - 1].text) < seen:
            yield f"{path}: {seen} characters of its call {number} were in the file"
    for agent_id, text in texts.items():
        if not old[agent_id]:
            continue
        calls = record.agent(agent_id).calls
        # Its end may have been kept and not reported; then the agent may even have continued.
        said = [call.text for call in calls if call.text and _begin_alike(call.text, text)]
        if not said:
            yield f"the open call of {agent_id} has no text of {old[agent_id]} characters"
        elif len(said[-1]) < old[agent_id]:
            yield f"{agent_id}: {len(said[-1])} of {old[agent_id]} characters are kept"


def _begin_alike(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _faults_of_views(record: RunRecord, folder: Path) -> Iterator[str]:
    try:
        rows = record.to_records()
        assert len(rows) == sum(1 for _ in record.tree.walk()) if record.tree else not rows
        assert [agent.path for agent in record.agents] == [row["path"] for row in rows]
        for agent in record.agents:
            assert bool(agent.messages) == bool(agent.calls)
        str(record.tree)
        for figure in (record.plot(), record.plot_timeline(), record.plot_tokens()):
            assert figure._repr_mimebundle_()
        view = record.tree_view()
        try:
            shown = view.get_state("snapshot")["snapshot"]["agents"]
            assert {row["path"]: row["status"] for row in shown} == {
                row["path"]: row["status"] for row in rows
            }
        finally:
            view.close()
        record.to_json(folder / "run.json")
        assert load_run(folder / "run.json").to_records() == rows
    except Exception as error:
        yield f"the loaded run cannot be shown: {error!r}"


# -- point by point -------------------------------------------------------------------------------


@contextmanager
def _server(beat_s: float) -> Iterator[str]:
    beat = Beat(beat_s)
    try:
        with loopback.LoopbackServer(Model(beat)) as server:
            yield server.url
    finally:
        beat.stop()


def points(
    folder: Path,
    count: int,
    seed: int,
    *,
    beat_s: float = BEAT_S,
    text_is_kept_s: float = TEXT_IS_KEPT_S,
    kernels: ForkServer | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Kill `count` kernels; yield what was done and what broke, for each.

    `kernels` starts them, or else a process of their own.
    """
    dice = random.Random(seed)
    last: tuple[Path, str] | None = None
    faults: list[str] = []
    done = ""
    with fork_server() if kernels is None else nullcontext(kernels) as starter:
        starter.preload(*SDKS)
        for place, point in enumerate([*_points(count, dice), None]):
            with _server(beat_s) as url, starter.started() as kernel:
                kernel.ok(_SETTINGS.format(url=url))
                if last is not None:
                    yield done, [*faults, *_faults_of_list(kernel, *last)]
                if point is None:
                    return
                store = folder / f"{place // POINTS_PER_FILE}.db"
                told, took_s = _kill(kernel, point, store, url)
            faults = faults_of(store, told, folder, text_is_kept_s=text_is_kept_s)
            last = store, told.run_id if told.finished else ""
            at = f"{point.kind} {point.value:,}"
            finished = "ended" if told.is_over else f"{len(told.finished)} finished"
            done = f"{at:14} {took_s:4.1f} s  {len(told.entries):5} entries told, {finished}"


def _faults_of_list(kernel: Kernel, store: Path, run_id: str) -> Iterator[str]:
    kernel.ok(_LIST.format(store=str(store)))
    listed = dict(kernel.value("listed"))
    if run_id and run_id not in listed:
        yield "the next kernel does not list the run"
    if set(listed.values()) - {"interrupted", "completed"}:
        yield f"the next kernel lists {listed}"
