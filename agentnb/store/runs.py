"""Lists the runs of a store, and finds one by the beginning of its id.

A run without an end is `running` while the process that writes it is alive, else `interrupted`.
Neither is stored: both are computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, overload

from agentnb.core.errors import AmbiguousRun, NoSuchRun
from agentnb.core.shown import Shown, counted
from agentnb.core.spawn import final_text
from agentnb.core.text import literal, quoted
from agentnb.core.types import ROOT_PATH, AgentStatus, Usage, path_of

if TYPE_CHECKING:
    from sqlite3 import Connection

PricedCall = tuple[str, str, Usage | None, datetime]
"""What pricing needs of a model call: its agent's path, its `provider/model`, its usage (`None`
while it is open), and when it was made."""
Pricing = Callable[[Sequence[PricedCall]], float | None]
"""Returns the price of calls in US dollars; `None` if one of them has no price."""
CostOf = Callable[[str], float | None]
"""Returns the cost of the run with this id in US dollars."""
IsAlive = Callable[[int], bool]
"""Returns whether the process with this number (`processes.id`) is alive."""

STATUSES = ("running", "completed", "failed", "cancelled", "exhausted", "interrupted")
"""The statuses of a run in a store."""

_COLUMNS = (
    "id, run_id, name, tags, task, status, model, agents, tokens_used, usage, started_at, "
    "duration_ms, thread_id, session_id, process"
)


@dataclass(frozen=True, slots=True, repr=False)
class RunInfo:
    """One run in a list."""

    id: str
    name: str
    tags: tuple[str, ...]
    task: str
    status: AgentStatus
    """Its status when the list was made. `interrupted`: the process ended before the run."""
    model: str
    """The root agent's model, as `provider/model`."""
    agents: int
    """Number of started agents; until the run ends, of those known so far."""
    tokens_used: int
    """Tokens spent from the budget; until the run ends, by its finished calls."""
    started_at: datetime
    """Its start, in UTC."""
    duration_ms: int | None
    """`None` while it runs; for an interrupted run, up to its last event."""
    thread_id: str
    session_id: str
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """The provider's counts for all finished calls, by `provider/model`."""
    cost_of: CostOf | None = field(default=None, compare=False)

    @property
    def cost_usd(self) -> float | None:
        """Estimated cost in US dollars, the same as the loaded run's.

        `None` if a call has no price or was open when the run was interrupted, if the run is no
        longer in the store, and for a copy or pickle. Computed on access, from the single calls:
        some prices depend on the length of a call's input.
        """
        return None if self.cost_of is None else self.cost_of(self.id)

    def to_record(self) -> dict[str, Any]:
        """Its fields as one flat dict."""
        return {
            "id": self.id,
            "name": self.name,
            "tags": [*self.tags],
            "task": self.task,
            "status": str(self.status),
            "model": self.model,
            "agents": self.agents,
            "tokens_used": self.tokens_used,
            "cost_usd": self.cost_usd,
            "started_at": self.started_at,
            "duration_ms": self.duration_ms,
            "thread_id": self.thread_id,
            "session_id": self.session_id,
        }

    def __reduce__(self) -> tuple[object, ...]:
        # Without the way to the store.
        return RunInfo, tuple(getattr(self, f.name) for f in fields(self) if f.name != "cost_of")

    def __repr__(self) -> str:
        # No id and no time, so that saved notebooks can be compared.
        what = quoted(self.name or self.task)
        tokens = counted(self.tokens_used, "token")
        return f"RunInfo({what}: {self.status}, {counted(self.agents, 'agent')}, {tokens})"


class RunList(list[RunInfo], Shown):
    """Runs, newest first. Its `repr` is one short line, like that of its slices."""

    @overload
    def __getitem__(self, place: SupportsIndex) -> RunInfo: ...
    @overload
    def __getitem__(self, place: slice) -> RunList: ...
    def __getitem__(self, place: SupportsIndex | slice) -> RunInfo | RunList:
        if isinstance(place, slice):
            return RunList(super().__getitem__(place))
        return super().__getitem__(place)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per run: `pandas.DataFrame(agentnb.runs().to_records())`."""
        return [run.to_record() for run in self]

    @property
    def headline(self) -> str:
        """`12 runs: 10 completed, 2 failed`."""
        return counted(len(self), "run", (run.status for run in self))

    def __repr__(self) -> str:
        return f"RunList({self.headline})"


def check_filters(limit: int | None, status: str | None, text: str | None) -> None:
    """Check the filters of a list.

    Raises:
        ValueError: `list_runs` does not accept one of them.
    """
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ValueError(f"`limit` must be a whole number above 0, or None, not {literal(limit)}.")
    if status is not None and status not in STATUSES:
        raise ValueError(f"`status` must be one of {', '.join(STATUSES)}, not {literal(status)}.")
    if text is not None and not isinstance(text, str):
        raise ValueError(
            f"`text` must be a part of a run's name, task or tags, not {literal(text)}."
        )


def list_runs(
    db: Connection,
    *,
    is_alive: IsAlive,
    limit: int | None = None,
    status: str | None = None,
    text: str | None = None,
    thread: str | None = None,
    cost_of: CostOf | None = None,
) -> RunList:
    """The runs of a store, newest first.

    Args:
        db: A connection that is not in a transaction.
        is_alive: Returns whether a process is alive.
        limit: The most runs to list; `None` for all.
        status: Only runs with this status: one of `STATUSES`.
        text: Only runs whose name, task or a tag contains this; case is ignored.
        thread: Only runs on the thread with this id.
        cost_of: Returns a run's cost; called when its `cost_usd` is read.
    """
    check_filters(limit, status, text)
    listed = RunList()
    for row in _rows(db, limit, status, text, thread):
        info = _info(db, row, is_alive, cost_of)
        if info is not None and status in (None, info.status):
            listed.append(info)
            if len(listed) == limit:
                break
    return listed


def check_id(run: str) -> None:
    """Check the id of a run, or the beginning of one.

    Raises:
        ValueError: `run` is not a text.
    """
    if not isinstance(run, str):
        raise ValueError(
            f"`run` must be the id of a run, or its beginning, as a string, not {literal(run)}."
        )


def find_run(db: Connection, run: str) -> int:
    """The number (`runs.id`) of the run whose id is, or begins with, `run`.

    Raises:
        NoSuchRun: No run of the store has such an id.
        AmbiguousRun: Several ids begin like this.
    """
    beginning = run.strip()
    found = db.execute("SELECT id FROM runs WHERE run_id = ?", (beginning,)).fetchone()
    if found is not None:
        return int(found[0])
    # An index has the ids in order.
    matches = db.execute(
        "SELECT id, run_id FROM runs WHERE run_id > ? AND run_id < ? ORDER BY id DESC",
        (beginning, beginning + "\U0010ffff"),
    ).fetchall()
    if not beginning or not matches:
        raise NoSuchRun(run)
    if len(matches) > 1:
        raise AmbiguousRun(run, known=[run_id for _, run_id in matches])
    return int(matches[0][0])


def info_of(
    db: Connection, number: int, *, is_alive: IsAlive, cost_of: CostOf | None = None
) -> RunInfo | None:
    """One run as in a list; `None` if the store has none with this number (`runs.id`)."""
    row = _row(db, number)
    return None if row is None else _info(db, row, is_alive, cost_of)


_Row = tuple[Any, ...]


def _rows(
    db: Connection, limit: int | None, status: str | None, text: str | None, thread: str | None
) -> Iterator[_Row]:
    """The rows of the newest runs that may match. Runs are ordered by `id`, so by their start."""
    is_open = status in ("running", "interrupted")
    condition = "TRUE" if status is None else "status IS NULL" if is_open else "status = :status"
    if thread is not None:
        condition += " AND thread_id = :thread"
    # Further conditions are checked later, and the limit counts only the runs that meet them.
    only = "LIMIT :limit" if limit is not None and not is_open and not text else ""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE {condition} ORDER BY id DESC {only}",
        {"status": status, "limit": limit, "thread": thread},
    ).fetchall()  # all at once: with an open cursor, later reads would not see others' writes
    part = (text or "").casefold()
    for row in rows:
        if not part or any(part in each.casefold() for each in _searched(row)):
            yield row


def _searched(row: _Row) -> Iterator[str]:
    name, tags, task = row[2:5]
    yield _text(name)
    yield _text(task)
    yield from json.loads(tags)


def _row(db: Connection, number: int) -> _Row | None:
    found: _Row | None = db.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (number,)
    ).fetchone()
    return found


def _info(db: Connection, row: _Row, is_alive: IsAlive, cost_of: CostOf | None) -> RunInfo | None:
    """The info in a row; `None` if its run was deleted meanwhile."""
    status, process = row[5], row[-1]
    if status is None:
        if process is not None and is_alive(process):
            status = AgentStatus.RUNNING
        else:
            # It may have ended since the row was read. Now that its process is gone, the row is
            # final.
            again = _row(db, row[0])
            if again is None:
                return None
            row = again
            status = row[5] or AgentStatus.INTERRUPTED
    number, run_id, name, tags, task, _, model, agents, tokens, usage, started_at, took, *ids = row
    thread_id, session_id, _ = ids
    by_model = {of: Usage(*map(int, counts)) for of, counts in json.loads(usage or "{}").items()}
    if row[5] is None:
        agents, tokens, by_model, lasted_s = _so_far(db, number)
        took = None if status is AgentStatus.RUNNING else round(lasted_s * 1000)
    return RunInfo(
        id=run_id,
        name=_text(name),
        tags=tuple(json.loads(tags)),
        task=_text(task),
        status=AgentStatus(status),
        model=_text(model),
        agents=int(agents or 0),
        tokens_used=int(tokens or 0),
        started_at=datetime.fromtimestamp(started_at, UTC),
        duration_ms=None if took is None else int(took),
        thread_id=thread_id,
        session_id=session_id,
        usage=by_model,
        cost_of=cost_of,
    )


def calls_of(db: Connection, run_id: str) -> list[PricedCall] | None:
    """The model calls of a run, for pricing; `None` if the store does not have the run."""
    if db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
        return None
    rows = db.execute(
        "SELECT path, model_calls.model, model_calls.usage, started_at + at_s, "
        "model_calls.status = 'started' "
        "FROM runs JOIN model_calls ON run = id WHERE run_id = ?",
        (run_id,),
    )
    return [
        (path, _text(model), None if is_open else _usage(counts), _minute(at))
        for path, model, counts, at, is_open in rows
    ]


def _text(value: str | bytes) -> str:
    """A text; one with a lone surrogate is stored as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _usage(counts: str | None) -> Usage:
    return Usage(*map(int, json.loads(counts or "[]")))


def _minute(at: float) -> datetime:
    # To the minute, so that equal calls within a minute are priced once.
    return datetime.fromtimestamp(at, UTC).replace(second=0, microsecond=0)


def _so_far(db: Connection, number: int) -> tuple[int, int, dict[str, Usage], float]:
    """For a run without an end: agents, tokens, usage by model, seconds to its last record."""
    (agents,) = db.execute(
        "SELECT count(*) FROM ("
        "SELECT path FROM model_calls WHERE run = :run "
        "UNION SELECT path FROM ends WHERE run = :run AND path IS NOT NULL "
        "UNION SELECT path FROM events WHERE run = :run AND kind = 'agent_spawned')",
        {"run": number},
    ).fetchone()
    (last,) = db.execute(
        "SELECT coalesce((SELECT at_s FROM events WHERE run = ? ORDER BY seq DESC LIMIT 1), 0)",
        (number,),
    ).fetchone()
    calls = db.execute(
        "SELECT model, usage, at_s, duration_ms FROM model_calls WHERE run = ?", (number,)
    )
    tokens, by_model = 0, dict[str, Usage]()
    for model, usage, at_s, took in calls:
        last = max(last, at_s + int(took or 0) / 1000)
        if usage is not None:
            counts = _usage(usage)
            tokens += counts.budget_tokens
            name = _text(model)
            by_model[name] = by_model.get(name, Usage()) + counts
    return agents, tokens, by_model, last


def finished_run(db: Connection, run_id: str) -> tuple[AgentStatus, str, str | None] | None:
    """How a run ended; `None` if it has not ended or does not exist.

    Returns:
        Its status, its final text as in `OrchestratorResult.final_response`, and why it ended
        early, `None` if it did not.
    """
    run = db.execute("SELECT id, status, error FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if run is None or run[1] is None:
        return None
    number, status, error = run
    end = _end_of(db, number, ROOT_PATH)
    why = None if error is None else _text(error)
    return AgentStatus(status), final_text("" if end is None else end.text, why), why


def answer_kept(db: Connection, run_id: str, agent_id: str) -> tuple[str, float] | None:
    """An agent's answer and its time, in seconds since 1970.

    `None` if it has not answered; for the root, if the run has not ended.
    """
    run = db.execute(
        "SELECT id, thread_id, started_at FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    if run is None:
        return None
    number, root_id, started_at = run
    path = path_of(agent_id, root_id)
    end = _end_of(db, number, path)
    if end is None:
        return None
    if path != ROOT_PATH:
        is_answer = end.status == AgentStatus.COMPLETED
        return (end.text, started_at + end.at_s) if is_answer else None
    finished = finished_run(db, run_id)
    return None if finished is None else (finished[1], started_at + end.at_s)


class _End(NamedTuple):
    """How an agent ended."""

    status: str
    text: str
    at_s: float


def _end_of(db: Connection, run: int, path: str) -> _End | None:
    """The end of an agent; the newest one if it has several."""
    row = db.execute(
        "SELECT e.status, e.at_s, e.text, c.text, e.first, e.length FROM ends e "
        "LEFT JOIN model_calls c ON c.run = e.run AND c.path = e.path AND c.number = e.number "
        "WHERE e.run = ? AND e.path = ? ORDER BY e.place DESC LIMIT 1",
        (run, path),
    ).fetchone()
    if row is None:
        return None
    status, at_s, own, of_call, first, length = row
    text = _text(own if own is not None else of_call or "")
    if own is None and first is not None:
        text = text[first : first + length]
    return _End(status, text, at_s)
