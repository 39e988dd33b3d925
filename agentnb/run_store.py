"""Where a session keeps its runs: in a store file, or in this process's memory alone.

Whatever goes wrong with the file, runs go on. Of a run that no file has, a short summary is kept
until fifty newer ones have ended, and the run itself as long as it is referenced.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentnb.core.errors import AgentnbError, AmbiguousRun, CannotRecover, NoSuchMemory, NoSuchRun
from agentnb.core.events import ModelCallFinished
from agentnb.core.money import TOKENS, amount_in
from agentnb.core.past import Past
from agentnb.core.text import LONGEST_IN_ERROR, LONGEST_LINE, literal, visible
from agentnb.core.types import Usage
from agentnb.core.undone import Undone
from agentnb.modes import LIVE, REPLAY
from agentnb.prices import NO_PRICES, Call, Price, cost_of
from agentnb.record import RunRecord, record_of
from agentnb.runtime import at_exit
from agentnb.store.place import AUTO, VARIABLE, make_named_folder, place_of

if TYPE_CHECKING:
    from agentnb.core.durable import MemoryEntry, MemoryList
    from agentnb.core.plan import ReusedAnswer
    from agentnb.core.protocols import Journal
    from agentnb.core.records import RunHead
    from agentnb.recovery import Recovering
    from agentnb.run import Run
    from agentnb.store.runs import PricedCall, RunInfo, RunList
    from agentnb.store.store import Store
    from agentnb.store.transactions import Transactions
    from agentnb.store.upkeep import Pruned

MOST_SUMMARIES = 50
"""Ended runs without a file of which a summary is kept: as many as `runs()` lists."""
TURN_OFF = f"store=None, or {VARIABLE}=none in the environment, turns it off"
_NOT_KEPT = "This run is in memory only."


class RunStore:
    """Keeps the runs of a session, lists them and loads them.

    The file is opened, and made, at the first run. With trouble, which `trouble` tells, runs go on
    in memory.

    Args:
        path: The file; `None` for memory only.
        origin: Where `path` comes from, in words.
        is_apart: Whether threads, tasks and memories begin empty, and end with the session.
    """

    def __init__(self, path: Path | None, origin: str, *, is_apart: bool = False) -> None:
        self.path = path
        self._is_apart = is_apart
        self.origin = origin
        self.where = "" if path is None else path_in_words(path)
        """The file, as a person would name it from here; empty without one."""
        self._store: Store | None = None
        self._transactions: dict[int, Transactions] = {}
        """By process: a fork cannot write to the file that its parent has open."""
        self.prices: Mapping[str, Price] = NO_PRICES
        """Of the settings file, as it was last read: for runs that are listed and loaded."""
        self._is_told = False
        self.pid = os.getpid()
        """The process that made it."""
        _all.add(self)

    @classmethod
    def of(
        cls, setting: str | os.PathLike[str] | None, project: Path | None, *, mode: str = LIVE
    ) -> RunStore:
        """Decide where runs are kept, and make the folder of a file that the person named.

        Args:
            setting: The setting `store`.
            project: The folder of the settings file; `None` if there is none.
            mode: How runs go: but for `live`, nothing that is kept is read, and a replay keeps
                nothing.
        """
        if mode == REPLAY:
            return cls(None, "a replay stores nothing", is_apart=True)
        try:
            here = Path.cwd()
        except OSError:  # the working directory is gone
            here = Path()
        try:
            path = place_of(setting, config_folder=project, environment=os.environ, cwd=here)
        except OSError as error:  # a name that is too long, for example
            why = error.strerror or type(error).__name__
            raise ValueError(f"`store` cannot be a file ({why}): name another path.") from None
        origin = "set in code"
        if setting == AUTO:
            is_named = os.environ.get(VARIABLE, "").strip() not in ("", AUTO)
            origin = VARIABLE if is_named else "the default"
        if path is not None:
            make_named_folder(path)
        return cls(path, origin, is_apart=mode != LIVE)

    def __repr__(self) -> str:
        return f"RunStore({literal(self.where)})"

    @property
    def is_shared(self) -> bool:
        """Whether threads, and what runs spend, are in a file that others may have open, too."""
        return self.path is not None and not self._is_apart

    # -- what a person is told ------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """Why nothing is written any more, as one sentence; `None` while all is well."""
        return None if self._store is None else self._store.trouble

    def tell_trouble(self) -> None:
        """Write the trouble to the error output, once.

        It is no Python warning: these come with a path and a line of ours, and `-W error` would
        end a run that can go on. Call it on the person's own thread: an output of another thread
        would land in some other cell.
        """
        trouble = self.trouble
        if trouble is not None and not self._is_told:
            self._is_told = True
            with suppress(Exception):  # a process may have no error output
                sys.stderr.write(visible(trouble, LONGEST_LINE) + "\n")

    @property
    def footer(self) -> str:
        """One line below a live panel; empty without a file."""
        if self.path is None:
            return ""
        if self.trouble is not None:
            return _NOT_KEPT
        return f"Kept in {self.where} ({TURN_OFF})."

    def status(self) -> str:
        """One line on the file, its size and its trouble; empty without a file."""
        if self.path is None:
            return ""
        size = ""
        with suppress(OSError):
            size = f", {_size_in_words(self._file().size_bytes())}"
        return self.trouble or f"Runs are kept in {self.where}{size} ({TURN_OFF})."

    # -- threads, tasks, memories ---------------------------------------------------------------

    def transactions(self) -> Transactions:
        """The database of threads, tasks and memories: in the file, else in memory.

        Always the same one in a process: once the file could not be opened, memory it is. The
        first call makes the file, or opens it, and waits for that; `trouble` then tells what is
        wrong with it. A file that fails later makes each transaction raise `StoreTrouble`.
        """
        found = self._transactions.get(os.getpid())
        # Of two threads that come here at once, both get what the first one has made.
        return found or self._transactions.setdefault(os.getpid(), self._open_transactions())

    def _open_transactions(self) -> Transactions:
        from agentnb.store.transactions import MemoryTransactions  # loads sqlite3

        if self.path is not None and not self._is_apart:
            store = self._file()
            store.open()
            if store.trouble is None:
                return store.transactions()
        return MemoryTransactions()

    def memories(self) -> MemoryList:
        """See `Session.memories`."""
        from agentnb.core.durable import MemoryList
        from agentnb.store.memories import list_memories

        # No file is made for reading alone.
        is_made = self.path is None or os.getpid() in self._transactions or self.path.exists()
        return self.transactions().do(list_memories) if is_made else MemoryList()

    def delete_memory(self, memory: int | MemoryEntry) -> None:
        """See `Session.delete_memory`."""
        from agentnb.store.memories import delete_memory

        number = getattr(memory, "id", memory)
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(
                "`memory` must be a memory's `id` or an item of `session.memories()`, not "
                f"{literal(memory)}."
            )
        if not self.transactions().do(partial(delete_memory, number=number)):
            raise NoSuchMemory(number)

    # -- one run --------------------------------------------------------------------------------

    def journal(self) -> Journal | None:
        """The journal of a run that begins now; `None` if there is no file."""
        if self.path is None:
            return None
        return self._file().journal()

    def recover(
        self, run: str | RunInfo, *, changed: str, budget: int | str | Decimal | None = None
    ) -> Recovering:
        """Claim a run whose process died, or whose budget was too small, and read what it did.

        Args:
            run: The run.
            changed: See `agentnb.core.past.Past`.
            budget: Its new total. Without it the run must not have ended.

        Raises:
            CannotRecover: It goes on, has ended or was cancelled.
            NoSuchRun, AmbiguousRun: See `load`.
            ValueError: `budget` is too small.
            StoreTrouble: The file cannot be read or written.
        """
        given = _id_of(run)
        if self.path is None:
            raise CannotRecover(given, "this session has no store; open one with its `store`")
        store = self._file()
        run_id = store.claim(given, may_be_exhausted=budget is not None)
        if not _kernel.begin_recovery(run_id):  # its own process may claim an exhausted run twice
            raise CannotRecover(given, "it is running in this process; wait until it has ended")
        try:
            return self.past_of(run_id, changed=changed, budget=budget, named=given)
        except BaseException:
            self.give_up(run_id)
            raise

    def past_of(
        self,
        run_id: str,
        *,
        changed: str,
        budget: int | str | Decimal | None = None,
        named: str = "",
    ) -> Recovering:
        """Read what a run did that this process has claimed.

        Args:
            run_id: The run.
            changed: See `agentnb.core.past.Past`.
            budget: Its new total; as it was when left out.
            named: The run as the person named it.

        Raises:
            CannotRecover, ValueError: See `recover`.
            StoreTrouble: The file cannot be read.
        """
        from agentnb.recovery import Recovering, undone_for
        from agentnb.store.held import HeldJournal

        journal = self._file().journal()
        kept = journal.load(run_id)
        total: int | None = None if budget is None else amount_in(budget, kept.head.unit)
        undone = Undone(kept) if total is None else undone_for(named or run_id, kept, total)
        has_ended = any(end.path is None for end in kept.ends)
        past = Past(undone.journal, changed=changed, new_total=total)
        return Recovering(past, HeldJournal(journal), threading.Event(), undone, has_ended)

    def give_up(self, run_id: str) -> None:
        """Leave a run that was claimed as it was."""
        _kernel.end_recovery(run_id)
        _kernel.forget(run_id)  # what was started of it here
        self._file().give_up(run_id)

    def began(self, head: RunHead, run: Run[Any]) -> None:
        """Note a run that has begun."""
        _kernel.add(_Going(self.path, head, weakref.ref(run)), run)

    def ended(self, run: Run[Any]) -> None:
        """Note a run that has ended. The summary goes if the file has the run."""
        _kernel.end(run, is_kept=self.path is not None and self.trouble is None)

    # -- all runs -------------------------------------------------------------------------------

    def runs(
        self,
        limit: int | None = 50,
        status: str | None = None,
        text: str | None = None,
        *,
        thread: str | None = None,
    ) -> RunList:
        """See `Session.runs`; with `thread` only those on the thread with this id."""
        from agentnb.store.runs import RunList, check_filters
        from agentnb.store.trouble import StoreTrouble

        if self.path is None:
            check_filters(limit, status, text)
            return RunList(_on(thread, _kernel.infos(status, text))[:limit])
        own = [] if self.trouble is None else _on(thread, _kernel.infos(status, text, self.path))
        try:
            listed = self._file().runs(limit, status, text, thread=thread, pricing=self._price)
        except StoreTrouble:
            if not own:
                raise
            listed = RunList()
        # The file may have the beginning of a run, whose end it could not take.
        known = {info.id for info in own}
        both = [*own, *(info for info in listed if info.id not in known)]
        return RunList(sorted(both, key=lambda info: info.started_at, reverse=True)[:limit])

    def row_answers(
        self, name: str, prompt: str, *, schema: Mapping[str, Any] | None, most: int
    ) -> list[dict[str, list[ReusedAnswer]]] | None:
        """The answers to the rows of earlier maps; `None` if no file keeps them.

        Args:
            name: The maps' name; empty for those without one.
            prompt: Their prompt, if they have no name.
            schema: Of the type of their answers; `None` for text.
            most: How many maps are looked at, the newest first.
        """
        from agentnb.store.trouble import StoreTrouble

        if self.path is None or self._is_apart:
            return None
        try:
            return self._file().row_answers(name, prompt, schema=schema, most=most)
        except StoreTrouble:  # the run reports it, and continues in memory
            return None

    def load(self, run: str | RunInfo) -> RunRecord:
        """See `Session.load`."""
        run_id = _id_of(run)
        if (alive := _kernel.alive(run_id)) is not None:
            return alive
        if self.path is None:
            return self._of_kernel(run_id)
        try:
            stored = self._file().load(run_id, pricing=self._price)
        except AgentnbError:
            if not _kernel.has(run_id, self.path):
                raise  # of a file that cannot be read the reason is what helps
            return self._of_kernel(run_id)
        return _kernel.alive(stored.head.run_id) or record_of(
            stored.head.run_id,
            stored.head.task,
            stored.rows,
            stored.whole_tool_calls,
            self.prices,
        )

    def _price(self, calls: Sequence[PricedCall]) -> float | None:
        return _price(calls, self.prices)

    def _of_kernel(self, beginning: str) -> RunRecord:
        """A run that no file has, if it is still referenced."""
        run_id = _kernel.find(beginning, self.path)
        found = _kernel.alive(run_id)
        if found is None:
            raise NoSuchRun(run_id, is_listed=True)
        return found

    def delete(self, run: str | RunInfo) -> None:
        """See `Session.delete_run`."""
        run_id = _id_of(run)
        if self.path is not None:
            try:
                self._file().delete(run_id)
                _kernel.forget_beginning(run_id)
                return
            except AgentnbError:
                if self.trouble is None or not _kernel.has(run_id, self.path):
                    raise
        found = _kernel.find(run_id, self.path)
        alive = _kernel.alive(found)
        if alive is not None and not alive.done:
            raise ValueError("The run has not ended: cancel it before you delete it.")
        _kernel.forget(found)

    def prune(self, older_than: str = "30d") -> Pruned:
        """See `Session.prune`."""
        if self.path is None:
            from agentnb.store.upkeep import Pruned, age_s

            before = datetime.now(UTC) - timedelta(seconds=age_s(older_than))
            return Pruned(_kernel.prune(before), 0)
        return self._file().prune(older_than)

    def _file(self) -> Store:
        """The file's store."""
        if self._store is None:
            from agentnb.store.store import store_at  # loads sqlite3: only when it is needed

            assert self.path is not None
            self._store = store_at(self.path)
        return self._store


def _on(thread: str | None, infos: list[RunInfo]) -> list[RunInfo]:
    return [info for info in infos if thread in (None, info.thread_id)]


_all: weakref.WeakSet[RunStore] = weakref.WeakSet()


def _tell_all_trouble() -> None:
    """For a script that starts no further run, which would tell it."""
    for store in list(_all):
        if store.pid == os.getpid():
            store.tell_trouble()


at_exit(_tell_all_trouble)  # after the last writes


# -- runs that no file has ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Going:
    """A run that has not ended, without the run itself."""

    path: Path | None
    """The file that it is written to."""
    head: RunHead
    run: weakref.ref[Run]

    @property
    def info(self) -> RunInfo | None:
        """`None` if the run went away."""
        run = self.run()
        return None if run is None else _info_of(self.head, run)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended."""

    path: Path | None
    info: RunInfo


class _KernelRuns:
    """The runs of this process. Safe from any thread."""

    def __init__(self) -> None:
        self._noted: dict[str, _Going | _Ended] = {}
        """By id, in the order in which they began."""
        self._alive: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
        self._recovering: set[str] = set()
        """Ids of the runs that are claimed or go on, of those that were recovered."""
        self._lock = threading.Lock()

    def begin_recovery(self, run_id: str) -> bool:
        """Note that a run is recovered here. Returns false if it is already."""
        with self._lock:
            alive = self._alive.get(run_id)
            is_new = run_id not in self._recovering or (alive is not None and alive.done)
            self._recovering.add(run_id)
            return is_new

    def end_recovery(self, run_id: str) -> None:
        """A run that was recovered has ended, or is left as it was."""
        with self._lock:
            self._recovering.discard(run_id)

    def add(self, noted: _Going, run: Run[Any]) -> None:
        with self._lock:
            self._alive[run.id] = run
            self._noted[run.id] = noted

    def end(self, run: Run[Any], *, is_kept: bool) -> None:
        with self._lock:
            if self._alive.get(run.id, run) is not run:
                return  # it continues as another one by now
            self._recovering.discard(run.id)
            noted = self._noted.pop(run.id, None)
            if is_kept or not isinstance(noted, _Going):
                return
            self._noted[run.id] = _Ended(noted.path, _info_of(noted.head, run))
            ended = [each for each in self._noted if isinstance(self._noted[each], _Ended)]
            for run_id in ended[:-MOST_SUMMARIES]:
                del self._noted[run_id]

    def alive(self, run_id: str) -> Run[Any] | None:
        """A run that is still referenced."""
        return self._alive.get(run_id)

    def infos(
        self, status: str | None = None, text: str | None = None, path: Path | None = None
    ) -> list[RunInfo]:
        """The noted runs, newest first; with `path` those that should be in that file."""
        with self._lock:
            noted = [each for each in self._noted.values() if path in (None, each.path)]
        infos = [info for each in noted if (info := each.info) and _fits(info, status, text)]
        return sorted(infos, key=lambda info: info.started_at, reverse=True)

    def has(self, beginning: str, path: Path | None) -> bool:
        """Whether a noted run, or several, begin so."""
        with suppress(NoSuchRun, AmbiguousRun):
            return bool(self.find(beginning, path))
        return False

    def find(self, beginning: str, path: Path | None) -> str:
        """The id of a noted run that begins so.

        Raises:
            NoSuchRun: There is none.
            AmbiguousRun: There are several.
        """
        with self._lock:
            noted = {each for each, run in self._noted.items() if path in (None, run.path)}
        found = [each for each in noted if each.startswith(beginning)]
        if beginning in noted:
            return beginning
        if not found:
            raise NoSuchRun(beginning)
        if len(found) > 1:
            raise AmbiguousRun(beginning, known=sorted(found, reverse=True))  # ids sort by time
        return found[0]

    def forget_beginning(self, beginning: str) -> None:
        """Forget the runs with such an id, also if they are still referenced."""
        for run_id in [each for each in self._alive.keys() if each.startswith(beginning)]:
            self.forget(run_id)

    def forget(self, run_id: str) -> None:
        with self._lock:
            self._noted.pop(run_id, None)
            self._alive.pop(run_id, None)

    def prune(self, before: datetime) -> int:
        """Forget the ended runs that began before a time."""
        with self._lock:
            old = [
                run_id
                for run_id, noted in self._noted.items()
                if isinstance(noted, _Ended) and noted.info.started_at < before
            ]
        for run_id in old:
            self.forget(run_id)
        return len(old)


_kernel = _KernelRuns()


def _forget_after_fork() -> None:
    global _kernel
    _kernel = _KernelRuns()  # another thread may have had the lock, and runs are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def _tokens_of(run: Run[Any]) -> int:
    """Tokens as a budget of tokens counts them."""
    if run.budget.unit == TOKENS:
        return run.budget.tokens_used
    finished = (e.event for e in run.events if isinstance(e.event, ModelCallFinished))
    return sum(event.usage.budget_tokens for event in finished)


def _info_of(head: RunHead, run: Run[Any]) -> RunInfo:
    """What is known of a run now."""
    from agentnb.store.runs import RunInfo

    end = run.reached
    usage = (run.usage if end is None else end.usage).by_model
    started_at = datetime.fromtimestamp(head.started_at, UTC)
    root = run.tree if end is None else end.agent_tree
    return RunInfo(
        id=head.run_id,
        name=head.name,
        tags=head.tags,
        task=head.task,
        status=run.status,
        model=head.model,
        agents=0 if root is None else sum(1 for _ in root.walk()),
        tokens_used=_tokens_of(run),
        started_at=started_at,
        duration_ms=None if end is None else end.agent_tree.duration_ms,
        thread_id=head.thread_id,
        session_id=head.session_id,
        usage=usage,
        cost_of=partial(_price_of_usage, usage, started_at, run.prices),
    )


def _price_of_usage(
    usage: Mapping[str, Usage], at: datetime, of_file: Mapping[str, Price], _: str
) -> float | None:
    return _price([("root", model, used, at) for model, used in usage.items()], of_file)


def _price(calls: Sequence[PricedCall], of_file: Mapping[str, Price] = NO_PRICES) -> float | None:
    """The price of calls in US dollars; `None` if one of them has none."""
    return cost_of([Call(*call) for call in calls], paths=(), of_file=of_file).usd


def _fits(info: RunInfo, status: str | None, text: str | None) -> bool:
    words = (info.name, info.task, *info.tags)
    return status in (None, info.status) and (
        text is None or any(text.casefold() in each.casefold() for each in words)
    )


# -- words ----------------------------------------------------------------------------------------


def _id_of(run: str | RunInfo) -> str:
    run_id = getattr(run, "id", run)
    if not isinstance(run_id, str) or not run_id.strip():
        raise ValueError(
            "`run` must be a run's id, the beginning of its id, or an item of `runs()`, not "
            f"{literal(run)}."
        )
    return run_id.strip()


def path_in_words(path: Path) -> str:
    """A path from here if it is below the working directory, else from the home folder."""
    for beginning, folder in (("", Path.cwd), ("~/", Path.home)):
        with suppress(OSError, RuntimeError, ValueError):
            return visible(beginning + path.relative_to(folder()).as_posix(), LONGEST_IN_ERROR)
    return visible(str(path), LONGEST_IN_ERROR)


def _size_in_words(size: int) -> str:
    for unit, each in (("GB", 10**9), ("MB", 10**6)):
        if size >= each:
            return f"{size / each:.1f} {unit}"
    return f"{-(-size // 1000)} kB"
