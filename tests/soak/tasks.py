"""Kills processes in which agents give each other tasks: the store keeps all reported work, once.

A process opens a session, gives tasks to new and old agents, sends messages, and starts trees whose
agents also give tasks. It reports each task and message when the call that made it has returned. It
is killed after a number of reports, or kills itself inside a transaction, just before it or just
after it. The next process opens the session again, and is also killed or works until all is done.
Then the file is checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from agentnb import Session
from agentnb.core.errors import LlmError
from agentnb.core.types import ROOT_PATH, CompletionRequest, Role, ToolResultBlock, ToolUse
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.store import adoption, queue, task_runs, threads
from agentnb.store import tasks as stored_tasks
from agentnb.store.store import store_at
from agentnb.store.writer import Writer
from agentnb.tasks import ends
from agentnb.tasks.change import Change
from tests.forks import Program
from tests.support import DEADLINE_S, spawn, task_of

SESSION = "nb_20261123_killed"
LINES = 45
"""About the number of lines that a process reports."""
LATEST_S = 0.02
"""The longest delay, in seconds, between a line and the kill."""
LONGEST_NOTE = 500

PLACES: dict[str, tuple[Any, str, int]] = {
    "enqueue": (queue, "enqueue", 20),
    "tell": (queue, "tell", 8),
    "begin": (queue, "begin", 30),
    "begin_new": (queue, "begin_new", 3),
    "notices": (queue, "notices", 3),
    "end": (queue, "end", 20),
    "adopt": (adoption, "adopt", 2),
    "withdraw": (queue, "withdraw", 2),
    "take_over": (queue, "take_over", 20),
    "assign": (Change, "assign", 14),
    "set_status": (Change, "set_status", 8),
    "new_thread": (threads, "new_thread", 14),
    "add_metadata": (threads, "add_metadata", 12),
    "place_message": (threads, "place_message", 40),
    "add_task": (stored_tasks, "add_task", 14),
    "begin_work": (task_runs, "begin_work", 12),
    "end_work": (task_runs, "end_work", 10),
    "end_of_dead": (ends, "end_of_dead", 2),
}
"""Where a process kills itself: the function, and about how often a process calls it."""
MOMENTS = ("before", "after", "committed")
"""Before the call, after it, or when its transaction is on disk but not reported yet."""


@dataclass(frozen=True)
class Point:
    """When a process is killed."""

    place: str
    """`lines`, or one of `PLACES`."""
    count: int
    """The number of reported lines; or of the function's call, from 1."""
    moment: str = ""
    """One of `MOMENTS`; empty for `lines`."""
    delay_s: float = 0.0
    """Seconds from the line to the kill."""

    def __str__(self) -> str:
        if self.place == "lines":
            return f"{self.count} lines"
        return f"{self.moment} {self.place} {self.count}"


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """Kill one to three processes of a session per round; yield what was done and what broke."""
    dice = random.Random(seed)
    for place in range(count):
        killed = [_point(dice) for _ in range(dice.choice((1, 1, 2, 3)))]
        if killed[0].place == "end_of_dead":  # a dead process must exist
            killed.insert(0, Point("end", dice.randint(4, 20), "before"))
        yield one_round(folder / f"{place}.db", killed)


def _point(dice: random.Random) -> Point:
    place = dice.choice(["lines"] * 6 + list(PLACES))
    if place == "lines":
        return Point(place, dice.randrange(LINES), delay_s=dice.uniform(0, LATEST_S))
    return Point(place, dice.randint(1, PLACES[place][2]), dice.choice(MOMENTS))


def one_round(path: Path, killed: list[Point]) -> tuple[str, list[str]]:
    """Kill one process after the other, let the last one end, and check the file.

    Returns:
        What was done, and what broke.
    """
    _make(path)
    promised: list[str] = []
    done, faults = [], list[str]()
    for number, point in enumerate(killed):
        said, errors, code = _play(path, f"r{number}", point)
        promised += said
        done.append(f"{point}{'' if code == -signal.SIGKILL else ' (not reached)'}")
        if code not in (0, -signal.SIGKILL) or errors:
            faults.append(f"a process ended with {code}: {errors[-2000:]}")
    said, errors, code = _play(path, "", None)
    if code or errors:
        faults.append(f"the last process ended with {code}: {errors[-2000:]}")
    promised += said
    faults += faults_of(path, promised)
    return f"{len(promised):3} promises, killed at {', '.join(done)}", faults


def _make(path: Path) -> None:
    store = store_at(path)
    store.transactions().do(lambda db: threads.open_session(db, SESSION, now=time.time()))
    store.close()


def _play(path: Path, name: str, point: Point | None) -> tuple[list[str], str, int]:
    """Let a process work until it is killed or all work is done.

    Returns:
        What it reported, its error output and how it ended.
    """
    inside = point if point is not None and point.moment else None
    given = [] if inside is None else [inside.place, inside.count, inside.moment]
    code = "import sys; from tests.soak.tasks import main; main(*sys.argv[1:])"
    process = Program(code, path, name, *given)
    said: list[str] = []
    if point is not None and inside is None:
        while len(said) < point.count and (line := process.stdout.readline()):
            said.append(line.strip())
        time.sleep(point.delay_s)
        process.kill()
    end = process.end()
    # A line that the kill cut does not count.
    said += [line.strip() for line in end.stdout.splitlines(keepends=True) if line.endswith("\n")]
    return said, end.stderr, end.returncode


# -- what must hold -------------------------------------------------------------------------------


def faults_of(path: Path, promised: list[str]) -> list[str]:
    """Faults of the file when all work is done."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        faults = []
        for check in (
            _faults_of_file,
            _faults_of_rest,
            _faults_of_tasks,
            _faults_of_agents,
            _faults_of_talks,
            _faults_of_completions,
            _faults_of_numbers,
        ):
            faults += list(check(db))
        return [*_faults_of_promises(db, promised), *faults]


def _faults_of_file(db: sqlite3.Connection) -> Iterator[str]:
    found = [row[0] for row in db.execute("PRAGMA integrity_check")]
    if found != ["ok"]:
        yield f"the file is damaged: {found[:3]}"
    if lost := db.execute("PRAGMA foreign_key_check").fetchall():
        yield f"{len(lost)} rows point nowhere: {tuple(lost[0])}"


def _faults_of_rest(db: sqlite3.Connection) -> Iterator[str]:
    for what in (
        "queue",
        "messages WHERE place IS NULL",
        "threads WHERE process IS NOT NULL",
        "agent_metadata WHERE current_task IS NOT NULL",
    ):
        (left,) = db.execute(f"SELECT count(*) FROM {what}").fetchone()
        if left:
            yield f"{left} left: {what}"


def _faults_of_promises(db: sqlite3.Connection, promised: list[str]) -> Iterator[str]:
    tasks = {row["id"] for row in db.execute("SELECT id FROM tasks")}
    texts = Counter(
        _ORDER.findall(row["content"])[0][0]
        for row in db.execute("SELECT content FROM messages WHERE kind = 'message'")
        if _ORDER.search(row["content"]) and row["content"].startswith("Do ")
    )
    for line in promised:
        kind, _, name = line.partition(" ")
        if kind == "task" and name not in tasks:
            yield f"the task {name} is lost"
        if kind == "sent" and texts[name] != 1:
            yield f"the message {name} is there {texts[name]} times"
        if kind not in ("task", "sent"):
            yield f"a process said {line!r}"
    for name, count in texts.items():
        if count != 1:
            yield f"{name} was sent {count} times"


def _faults_of_tasks(db: sqlite3.Connection) -> Iterator[str]:
    """Yield statuses and notes that differ from what the agents' runs must have made."""
    for task in db.execute("SELECT * FROM tasks").fetchall():
        steps = _steps_of(task["prompt"])
        notes = db.execute(
            "SELECT text, author FROM task_notes WHERE task = ? ORDER BY id", (task["number"],)
        ).fetchall()
        answers = [note for note in notes if note["text"].startswith("answer to ")]
        status, who = task["status"], f"{task['id']} ({task['prompt']})"
        if any(note["text"].startswith("completed: ") for note in notes):
            wanted = "completed"
        elif task["assigned_to"] is None:
            wanted = "pending"
        elif "fail" in steps:
            wanted = "blocked"
        elif "complete" in steps:
            wanted = "completed"
        else:
            wanted = "in_progress"
        if status != wanted:
            yield f"{who} is {status}, not {wanted}"
        if status == "in_progress" and [note["text"] for note in answers] != [
            _answer(task["title"])[:LONGEST_NOTE]
        ]:
            yield f"{who} has {len(answers)} answers as notes"
        if status == "completed" and answers and "finish" not in steps:
            yield f"{who} is completed and has an answer as a note"
        if status == "blocked":
            reasons = [note["text"] for note in notes if note["author"] is None]
            if len(reasons) != 1 or _WHY not in reasons[0]:
                yield f"{who} is blocked with {reasons}"


def _faults_of_agents(db: sqlite3.Connection) -> Iterator[str]:
    """Yield assigned tasks without thread, metadata or message, and agents without a task."""
    assigned = Counter(
        (row["thread_id"], _TITLE.findall(row["content"])[0])
        for row in db.execute("SELECT * FROM messages WHERE kind = 'task_assignment'")
    )
    for task in db.execute("SELECT * FROM tasks WHERE assigned_to IS NOT NULL").fetchall():
        count = assigned.pop((task["assigned_to"], task["title"]), 0)
        # A task that the person or its creator completed before it began is not assigned any more.
        if count != 1 and not (count == 0 and _is_done_by_another(db, task["number"])):
            notes = db.execute("SELECT text FROM task_notes WHERE task = ?", (task["number"],))
            yield f"{task['id']} was assigned {count} times, its notes: {[n for (n,) in notes]}"
        if not db.execute("SELECT 1 FROM threads WHERE id = ?", (task["assigned_to"],)).fetchone():
            yield f"the agent of {task['id']} has no thread"
    for thread_id, title in assigned:
        yield f"{title} is assigned to {thread_id}, and no task of that agent"
    for thread in db.execute("SELECT * FROM threads WHERE parent_id IS NOT NULL").fetchall():
        about = db.execute(
            "SELECT m.*, t.created_by, t.assigned_to, t.session_id FROM agent_metadata m "
            "LEFT JOIN tasks t ON t.number = m.created_for_task WHERE m.thread_id = ?",
            (thread["id"],),
        ).fetchone()
        if about is None:
            yield f"{thread['id']} has no metadata"
            continue
        wanted = thread["parent_id"]
        if about["parent_thread_id"] != wanted or thread["id"].rpartition(".")[0] != wanted:
            yield f"{thread['id']} is the child of {about['parent_thread_id']} and {wanted}"
        if about["kind"] == "ephemeral":
            continue
        if about["assigned_to"] != thread["id"]:
            yield f"{thread['id']} was made for a task of {about['assigned_to']}"
        if wanted != (about["created_by"] or about["session_id"]):
            yield f"{thread['id']} is the child of {wanted}, its task of {about['created_by']}"


def _is_done_by_another(db: sqlite3.Connection, task: int) -> bool:
    found = db.execute("SELECT text FROM task_notes WHERE task = ?", (task,))
    return any(text == _BY_PERSON or text.startswith(_BY_CREATOR) for (text,) in found)


def _faults_of_talks(db: sqlite3.Connection) -> Iterator[str]:
    """Yield messages out of order, and completed runs without exactly one answer."""
    status = {row["run_id"]: row["status"] for row in db.execute("SELECT * FROM runs")}
    for (thread,) in db.execute("SELECT id FROM threads").fetchall():
        messages = db.execute(
            "SELECT * FROM messages WHERE thread_id = ? ORDER BY place", (thread,)
        ).fetchall()
        if [row["place"] for row in messages] != list(range(1, len(messages) + 1)):
            yield f"{thread} has the places {[row['place'] for row in messages]}"
        is_own = _is_ephemeral(db, thread)
        begun = [row for row in messages if row["kind"] in ("message", "task_assignment")]
        begun = [row for row in begun if row["role"] == "user"]
        if [row["id"] for row in begun] != sorted(row["id"] for row in begun):
            yield f"{thread} has another order"
        runs = Counter(row["run_id"] for row in begun)
        answers: dict[str, list[sqlite3.Row]] = {run: [] for run in runs}
        for row in messages:
            if row["role"] == "assistant":
                answers.setdefault(row["run_id"], []).append(row)
        for row in begun:
            if is_own:
                continue
            run, text = row["run_id"], row["content"]
            if runs[run] != 1:
                yield f"{runs[run]} messages of {thread} began the run {run}"
            name, steps = _ORDER.findall(text)[-1]
            said = [each["content"] for each in answers[run]]
            is_answered = said == [_answer(name)] and answers[run][0]["place"] > row["place"]
            if status.get(run) is None and "." not in thread and _is_first(row) and not said:
                continue  # a person's own run, which died with its process
            if "fail" in steps.split():
                if said != [_FAILED] or status.get(run) != "failed":
                    yield f"{name} of {thread} must fail: {said}, {status.get(run)}"
            elif not is_answered or status.get(run) != "completed":
                said = [each[:40] for each in said]
                yield f"{name} of {thread} is answered by {said}, its run is {status.get(run)}"
        for run, said in answers.items():
            if len(said) > 1:
                yield f"the run {run} of {thread} answers {len(said)} times"
        for row in messages:
            if row["kind"] == "task_completion" and not is_own and row["run_id"] is not None:
                run = row["run_id"]
                if status.get(run) == "completed" and run not in answers:
                    yield f"{thread} was told, and has not answered"

    for row in db.execute(
        "SELECT * FROM runs r WHERE status IN ('completed', 'failed') AND NOT EXISTS "
        "(SELECT 1 FROM messages WHERE thread_id = r.thread_id AND run_id = r.run_id)"
    ):
        yield f"the run {row['run_id']} of {row['thread_id']} came to its end, and was done again"


def _is_ephemeral(db: sqlite3.Connection, thread: str) -> bool:
    found = db.execute(
        "SELECT 1 FROM agent_metadata WHERE thread_id = ? AND kind = 'ephemeral'", (thread,)
    ).fetchone()
    return found is not None


def _is_first(row: sqlite3.Row) -> bool:
    return bool(row["place"] == 1)


def _faults_of_completions(db: sqlite3.Connection) -> Iterator[str]:
    """Yield completions that a creator did not get exactly once, its own completions apart."""
    wanted, told = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for task in db.execute("SELECT * FROM tasks WHERE status = 'completed'").fetchall():
        (author,) = db.execute(
            "SELECT author FROM task_notes WHERE task = ? AND text LIKE 'completed: %' "
            "ORDER BY id LIMIT 1",
            (task["number"],),
        ).fetchone() or ("nobody",)
        if task["created_by"] not in (None, author):
            wanted[task["created_by"], task["title"]] += 1
    for row in db.execute("SELECT * FROM messages WHERE kind = 'task_completion'"):
        told[row["thread_id"], _TITLE.findall(row["content"])[0]] += 1
    for (thread, title), count in (wanted - told).items():
        yield f"{thread} was not told of {title} ({count})"
    for (thread, title), count in (told - wanted).items():
        yield f"{thread} was told of {title} {count} times too often"


def _faults_of_numbers(db: sqlite3.Connection) -> Iterator[str]:
    """Yield numbers that were given twice, or will be given again."""
    made = {
        row["thread_id"]
        for row in db.execute("SELECT * FROM agent_metadata WHERE kind = 'persistent'")
    }
    spawned = Counter(
        f"{row['thread_id']}.{row['path']}"
        for row in db.execute(
            "SELECT r.thread_id, e.path FROM runs r JOIN events e ON e.run = r.id "
            "WHERE e.kind = 'agent_spawned'"
        )
        if row["path"] != ROOT_PATH
    )
    for agent, count in spawned.items():
        if count > 1 or agent in made:
            yield f"the id {agent} was given {count + (agent in made)} times"
    following = {row["id"]: row["next_child"] for row in db.execute("SELECT * FROM threads")}
    for agent in made | spawned.keys():
        parent, _, number = agent.rpartition(".")
        if parent in following and int(number) >= following[parent]:
            yield f"{agent} is there, and the next child of its parent is {following[parent]}"


# -- what the model says --------------------------------------------------------------------------

_ORDER = re.compile(r"Do (\S+)\. Steps: ([a-z ]*)\.")
_TITLE = re.compile(r'^Title: "(.*)"$', re.MULTILINE)
_BY_PERSON = "completed: by the person"
_BY_CREATOR = "completed: above "
_WHY = "out of order"
_FAILED = f"*{_WHY}*"
_TOLD = "A task that you created is completed."


def order(name: str, steps: str) -> str:
    """The prompt that tells an agent its steps."""
    return f"Do {name}. Steps: {steps}."


def _steps_of(prompt: str) -> list[str]:
    found = _ORDER.search(prompt)
    return found[2].split() if found else []


def _answer(name: str) -> str:
    return f"answer to {name}: " + "word " * 120 + "end"


class Model:
    """Does the steps of an order, one with each call. The same request gets the same reply.

    Args:
        report: Called with each task that an agent knows it has made.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def __call__(self, request: CompletionRequest) -> AnyReply:
        text = _begun_by(request)
        orders = list(_ORDER.finditer(text))
        if not orders or orders[-1].start() < text.rfind(_TOLD):
            return self._slowly(Reply("heard"), text)
        name, steps = orders[-1][1], orders[-1][2].split()
        results = [
            block.text
            for message in request.messages
            for block in message.content
            if isinstance(block, ToolResultBlock)
        ]
        for result in results[-1:]:
            for task in re.findall(r"^Created\.\n(t\d+) ", result):
                self._report(f"task {task}")
        is_back = any("<sub_agent_result" in message.text for message in request.messages)
        step = steps[len(results)] if len(results) < len(steps) and not is_back else ""
        return self._slowly(self._step(step, name, results, len(results)), name + step)

    def _step(self, step: str, name: str, results: list[str], place: int) -> AnyReply:
        match step:
            case "list":
                return _call("task_list", status="in_progress")
            case "create" | "hand":
                inner = "list note complete" if step == "create" else "create list complete"
                title = f"{name}/{place}"
                prompt = order(title, inner)
                to = "new:scripted/m"
                return _call("task_create", title=title, prompt=prompt, assigned_to=to)
            case "note":
                return _call("task_note", id=_own(name, results), text=f"a note on {name}")
            case "finish":
                child = next(iter(re.findall(r"^Created\.\n(t\d+) ", "\n".join(results))), "t0")
                return _call("task_complete", id=child, note=f"{_BY_CREATOR}{name}")
            case "complete":
                return _call("task_complete", id=_own(name, results), note=f"completed: {name}")
            case "fail":
                return LlmError(_WHY)
            case "spawn":
                parts = [order(f"{name}.{part}", "create") for part in (1, 2)]
                return Reply(spawn(*parts))
        return Reply(_answer(name))

    def _slowly(self, reply: AnyReply, salt: str) -> AnyReply:
        """Pause before the reply, so that others can work; the same time for the same words."""
        if not isinstance(reply, Reply):
            return reply
        number = hashlib.sha256(salt.encode()).digest()[0]

        async def pause() -> None:
            if number % 3 == 0:
                await asyncio.sleep(number / 20_000)
            else:
                for _ in range(number % 16):
                    await asyncio.sleep(0)

        return Reply(reply.text, reply.tool_uses, pause=pause)


def _begun_by(request: CompletionRequest) -> str:
    """The text that began the run, with the text before it in the same message."""
    own = task_of(request)
    if own != "root":
        return own
    texts = [
        message.text
        for message in request.messages
        if message.role is Role.USER
        and "<sub_agent_result" not in message.text
        and not any(isinstance(block, ToolResultBlock) for block in message.content)
    ]
    return texts[-1]


def _call(tool: str, **input: str) -> Reply:
    return Reply(tool_uses=(ToolUse("a", tool, input),))


def _own(name: str, results: list[str]) -> str:
    """The id of the task in progress, from the list of tasks."""
    found = re.findall(rf'^(t\d+) .*\(you\): "{re.escape(name)}"$', "\n".join(results), re.M)
    return str(found[0]) if found else "t0"


# -- in the processes -----------------------------------------------------------------------------


class _Suicide:
    """Kills this process at a call of a function."""

    def __init__(self, place: str, count: int, moment: str) -> None:
        owner, name, _ = PLACES[place]
        self._left, self._moment = count, moment
        self._is_due = False
        function, commit = getattr(owner, name), Writer._commit

        @wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and moment == "before":
                _die()
            value = function(*args, **named)
            if self._left == 0 and moment == "after":
                _die()
            self._is_due = self._left <= 0
            return value

        def committed(writer: Writer, db: sqlite3.Connection) -> None:
            commit(writer, db)
            if self._is_due:
                _die()

        for module in [module for module in sys.modules.values() if module is not None]:
            if getattr(module, "__name__", "").startswith("agentnb"):
                if module.__dict__.get(name) is function:
                    setattr(module, name, called)
        setattr(owner, name, called)
        if moment == "committed":
            setattr(Writer, "_commit", committed)  # noqa: B010 - it is another function


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _programme(session: Session, name: str) -> None:
    """Act as the person: give tasks to new and old agents, send messages, start trees."""
    runs = []

    def task(title: str, steps: str, to: str | None = "new:scripted/m") -> Any:
        made = session.tasks.create(title, order(title, steps), assigned_to=to)
        _say(f"task {made.id}")
        return made

    def send(thread: str, title: str, steps: str = "") -> None:
        session.thread(thread).send(order(title, steps))
        _say(f"sent {title}")

    runs.append(session.spawn(order(f"{name}.s1", "create spawn")))
    first = task(f"{name}.t1", "list create note complete")
    task(f"{name}.t2", "")
    agents = [first.assigned_to]
    send(agents[0], f"{name}.m1")
    third = task(f"{name}.t3", "create finish list complete")
    agents.append(third.assigned_to)
    task(f"{name}.t4", "fail")
    send(agents[1], f"{name}.m2", "create")
    loose = task(f"{name}.t5", "list complete", to=None)
    send(agents[0], f"{name}.m3", "fail")
    session.tasks.update(loose.id, assigned_to=agents[1])
    runs.append(session.spawn(order(f"{name}.s2", "hand hand")))
    send(agents[1], f"{name}.m4")
    task(f"{name}.t6", "list note complete", to=agents[0])
    given = task(f"{name}.t7", "hand list complete")
    send(given.assigned_to, f"{name}.m5", "create")
    for place, agent in enumerate(session.agents("persistent")):
        if place % 3 == 0:
            send(agent.thread_id, f"{name}.m6.{place}")
    early = task(f"{name}.t8", "list complete", to=agents[0])
    session.tasks.complete(early.id, note=_BY_PERSON)
    for run in runs:
        run.result(DEADLINE_S)


def _is_at_rest(db: sqlite3.Connection) -> bool:
    (left,) = db.execute(
        "SELECT (SELECT count(*) FROM queue) + "
        "(SELECT count(*) FROM threads WHERE process IS NOT NULL)"
    ).fetchone()
    return not left


def main(path: str, name: str, *suicide: str) -> None:
    """Be one of the processes."""
    if suicide:
        _Suicide(suicide[0], int(suicide[1]), suicide[2])
    provider = ScriptedProvider(Model(_say))
    session = Session(
        provider=provider,
        store=path,
        id=SESSION,
        config=False,
        tools=["tasks"],
        max_depth=8,
        budget=10_000_000,
    )
    if name:
        _programme(session, name)
    transactions = session.store.transactions()
    deadline_s = time.monotonic() + DEADLINE_S / 2
    while not transactions.do(_is_at_rest):
        if time.monotonic() > deadline_s:
            left = transactions.do(
                lambda db: db.execute(
                    "SELECT q.*, t.process, t.run_id FROM queue q "
                    "JOIN threads t ON t.id = q.thread_id"
                ).fetchall()
            )
            raise SystemExit(f"no rest: {left}")
        time.sleep(0.005)
    session.close()
