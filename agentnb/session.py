"""`Session`: settings for runs; connects provider, gate, budget and orchestrator.

A session keeps references only to its newest run and to running ones.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import partial, wraps
from inspect import cleandoc, signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from agentnb.code_places import OFF
from agentnb.config import Config, config_of, reread
from agentnb.core.durable import AgentKind, one_of
from agentnb.core.errors import (
    NoSuchRun,
    NoSuchSession,
    NoSuchThread,
    OrchestratorError,
    RunChanged,
    UnknownAgent,
    show_as_line,
)
from agentnb.core.protocols import BudgetGate, Engine, Provider, Tool
from agentnb.core.secrets import note_variable
from agentnb.core.text import literal
from agentnb.core.types import OrchestratorResult, SpawnInstruction, path_of
from agentnb.errors import wrong_settings_as_line
from agentnb.given import gift_of
from agentnb.mapping.order import checked_flag, order_of
from agentnb.mapping.reuse import KernelAnswers
from agentnb.mapping.run import MapRun
from agentnb.maps import Maps
from agentnb.models import Models, Origin, registry
from agentnb.modes import LIVE, REPLAY, Mode
from agentnb.objects.handles import fill_given
from agentnb.prices import prices_of_file, rate_for
from agentnb.record import RunRecord
from agentnb.repeat import Repeat
from agentnb.run import Run, note_newest
from agentnb.run_options import (
    RunOptions,
    checked_mode,
    checked_name,
    checked_tags,
    checked_task,
    checked_tasks,
    checked_word,
    from_queue,
    options_of_recovery,
    to_queue,
    without_none,
)
from agentnb.run_parts import Current, RunMaker
from agentnb.run_store import RunStore
from agentnb.runtime import at_exit, get_runtime
from agentnb.settings import DEFAULT_BUDGET, DEFAULT_MODEL, Settings, arguments_text, nothing_named
from agentnb.store import threads
from agentnb.tasks.assignment import NewAgent, check_assignment
from agentnb.tasks.board import Board, Tasks
from agentnb.tasks.desk import Desk
from agentnb.tasks.lists import AgentList, ThreadList
from agentnb.tasks.order import Order, Standing, Work
from agentnb.tasks.session_pot import session_pot
from agentnb.tasks.thread import LAST, House, Thread, thread_of
from agentnb.tools.mcp.pool import Servers
from agentnb.tools.mcp.process import end_all
from agentnb.tools.toolset import Makers
from agentnb.typed import output_type

if TYPE_CHECKING:
    from agentnb.agent_view import AgentView
    from agentnb.core.durable import MemoryEntry, MemoryList
    from agentnb.core.events import SpawnPlanned
    from agentnb.core.questions import Question
    from agentnb.recovery import Recovering
    from agentnb.store.runs import RunInfo, RunList
    from agentnb.store.transactions import Transactions
    from agentnb.store.upkeep import Pruned
    from agentnb.views.boards.board_view import BoardView

P = ParamSpec("P")
R = TypeVar("R")

_SERVERS_PATIENCE_S = 5.0
"""How long `close` waits for MCP servers. They take at most 3 s unless the loop is blocked."""


def _keeps_given_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """Store the arguments passed to `init` in `self.given`, without its defaults.

    The difference matters: a settings file overrides a default, but not an equal value that code
    passes.
    """
    parameters = signature(init)

    @wraps(init)
    def wrapper(*args: P.args, **named: P.kwargs) -> None:
        try:
            given = parameters.bind(*args, **named).arguments
        except TypeError as error:  # too many, for example
            show_as_line(error)
            raise
        session: Session = given.pop("self")
        session.given = given
        init(*args, **named)

    return wrapper


def _names_arguments(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the error for an unknown keyword name the known ones, as `configure` does."""

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        known = [name for name in signature(method).parameters if name != "self"]

        @wraps(method)
        def wrapper(*args: P.args, **named: P.kwargs) -> R:
            if unknown := [name for name in named if name not in known]:
                error = TypeError(nothing_named(unknown, known, what=what))
                show_as_line(error)
                raise error
            return method(*args, **named)

        return wrapper

    return decorate


class Session:
    """Settings for runs, and methods to start them.

    Each run reads the settings file, and the files that it names, when it starts. A change counts
    from the next run on.

    Raises:
        ValueError: A setting is out of range. `UnknownModel`, `UnknownPool` and `ConfigError`
            (mistakes in a settings file) are `ValueError`s, too.
    """

    given: dict[str, Any]
    """The settings that code passes; normalised by `Settings` once `__init__` has run."""

    @wrong_settings_as_line()
    @_names_arguments("setting")
    @_keeps_given_arguments
    def __init__(
        self,
        model: str | Sequence[str] = DEFAULT_MODEL,
        budget: int | str | Decimal = DEFAULT_BUDGET,
        max_depth: int = 3,
        soul: str = "",
        identity: str = "",
        user: str = "",
        tools: Sequence[Any] = (),
        *,
        delegation: str = "block",
        nested_spawn: bool = False,
        config: str | os.PathLike[str] | Config | bool | None = None,
        store: str | os.PathLike[str] | None = "auto",
        id: str | None = None,
        mode: str | None = None,
        cassette: str | os.PathLike[str] | None = None,
        replay_speed: float = 0,
        provider: Provider | None = None,
        engine: Engine | str | None = None,
        max_concurrency: int = 32,
        max_agents: int = 1000,
        session_budget: int | str | Decimal | None = None,
        max_output_tokens: int = 8192,
        call_timeout_s: float = 600,
        recall: int = 0,
        memories: Sequence[str] = (),
        sub_agent_memory: str = "inherit",
        on_budget_warning: str | BudgetGate = "ask",
        pause_timeout_s: float = 600,
        on_plan: str | Callable[[SpawnPlanned], object] = "go",
        ask_above: tuple[float, float] | None = None,
        approve: Callable[[Question], object] | None = None,
        max_turns: int = 50,
        max_time_s: float | None = None,
        stop_after_failures: int | None = None,
        code_memory: str = "2GB",
        code_time_s: float = 60,
        code_workers: int = 4,
    ) -> None:
        settings = Settings(**self.given)
        self.given = {name: getattr(settings, name) for name in self.given}
        read = config_of(config)
        self._repeat = Repeat.of(settings, read)
        self._current = self._current_of(read)
        project = self.config.folder if self.config.source else None
        self.store = RunStore.of(settings.store, project, mode=self._repeat.name)
        """Where its runs are kept."""
        self.store.prices = self._current.prices
        self.id = self._repeat.session_id() if settings.id is None else self._found(settings.id)
        """The id of its thread, `nb_YYYYMMDD_xxxxxx`."""
        self._live_id = self.id if self._repeat.name == LIVE else ""
        """The id of the person's session in mode `live`; empty if there was none."""
        self._servers = Servers()
        self._move_in(settings.tools)
        self._newest: Run[Any] | None = None
        self._others: weakref.WeakSet[Session] = weakref.WeakSet()
        self._owned = threading.local()
        self._going_on: dict[str, Run[Any]] = {}
        self._by_id: weakref.WeakValueDictionary[str, Run[Any]] = weakref.WeakValueDictionary()
        self._answers = KernelAnswers()
        if settings.id is not None:
            self._desk.adopt()

    def _found(self, session_id: str) -> str:
        """The id of a session of the store, also for `last`."""
        transactions = self._transactions()
        found = transactions.do(threads.last_session) if session_id == LAST else session_id
        if found is None or not transactions.do(lambda db: threads.has_session(db, found)):
            raise NoSuchSession(session_id, mode=self._repeat.name_but_live)
        return found

    def go_on(self, before: Session, *, is_elsewhere: bool) -> None:
        """Continue an older session with other settings: usually with its id and its store."""
        goes_on = self._repeat.goes_on(before._repeat)
        # A replay has a computed id, so it stays out of the store.
        self._live_id = before._live_id or self._live_id
        if self._repeat.name == LIVE:
            self.id = self._live_id
        elif goes_on:
            self.id = before.id
        is_elsewhere = is_elsewhere or not goes_on
        self._servers = before._servers
        if not is_elsewhere:
            self.store, self._answers = before.store, before._answers
            self.store.prices = self._current.prices
        self._move_in(self.settings.tools)
        if not is_elsewhere:
            self._desk.go_on(before._desk)

    def _move_in(self, tools: Sequence[Any]) -> None:
        """Make what belongs to its id and store."""
        self._desk = Desk(self.id, self.store, self)
        self._limit()
        self._board = Board(self._desk)
        self._maker = RunMaker(self.id, self._desk, self._board, tools, self._repeat, self._servers)

    @property
    def tools(self) -> Sequence[Tool]:
        """The agents' tools, unless a run names its own."""
        return self._maker.tools(self.config)

    @property
    def toolsets(self) -> Makers:
        """Names in lists of tools that stand for several tools."""
        return self._maker.toolsets

    def _transactions(self) -> Transactions:
        return self.store.transactions()

    def _current_of(self, config: Config) -> Current:
        note_variable(config.openai.api_key_env)
        of_file = dict(config.session)
        if config.spawn_enabled is not None:
            of_file.setdefault("delegation", "both" if config.spawn_enabled else "block")
        settings = Settings(**{**of_file, **self.given})
        models = Models(
            self.given.get("model"),
            provider=settings.provider,
            config=config,
            is_replay=self._repeat.name == REPLAY,
        )
        return Current(config, settings, models, prices_of_file(config.prices))

    def reread_settings(self) -> None:
        """Read the settings file again if it changed, as each run does when it starts.

        Raises:
            ConfigError: The file now has mistakes. The previous settings stay.
        """
        self._reread()

    def _reread(self) -> Current:
        last = self._current
        config = reread(last.settings.config, last.config)
        if config is not last.config:
            self._current = self._current_of(config)
            self.store.prices = self._current.prices
        self._limit()
        return self._current

    def _limit(self) -> None:
        """Let the session's budget hold, as it is set now."""
        kept = self.store.path if self.store.is_shared else self.store
        prices = self._current.prices
        self._desk.limit(
            session_pot(kept, self.id, self.settings.session_budget),
            lambda model: rate_for(model, prices),
        )

    @property
    def spent(self) -> str:
        """How much of the session's budget is spent, as text; empty without one."""
        return self._desk.share()

    @property
    def config(self) -> Config:
        """The settings file as last read."""
        return self._current.config

    @property
    def settings(self) -> Settings:
        """The settings of the next run, by the settings file as last read."""
        return self._current.settings

    @property
    def budget(self) -> int | str | Decimal:
        """Tokens for each run."""
        return self.settings.budget

    @property
    def max_depth(self) -> int:
        """Depth of the deepest sub-agent."""
        return self.settings.max_depth

    @property
    def delegation(self) -> str:
        """`block`, `tools` or `both`."""
        return self.settings.delegation

    @property
    def model(self) -> str | tuple[str, ...]:
        """One model, or a chain of them."""
        return self._current.models.model

    @property
    def mode(self) -> Mode:
        """The mode of its runs, where it was set, and the cassette: decided at creation."""
        return self._repeat.mode

    @property
    def read_only(self) -> str | None:
        """What follows if its cassette may only be read, as a sentence; `None` if it is written."""
        return self._repeat.read_only()

    def about_mode(self) -> list[str]:
        """Lines about its cassette, and about its runs in mode `auto`."""
        return self._repeat.about()

    def is_given(self, setting: str) -> bool:
        """Whether code sets this setting."""
        return setting in self.given

    @property
    def model_origin(self) -> Origin:
        """Where `model` was set."""
        return self._current.models.origin

    def __repr__(self) -> str:
        model = literal(self.model)
        return f"Session(model={model}, budget={self.budget}, max_depth={self.max_depth})"

    # -- starting runs --------------------------------------------------------------------------

    @wrong_settings_as_line()
    @_names_arguments("argument")
    def spawn(
        self,
        task: str,
        *,
        model: str | Sequence[str] | None = None,
        budget: int | str | Decimal | None = None,
        max_depth: int | None = None,
        max_agents: int | None = None,
        tools: Sequence[Any] | None = None,
        engine: Engine | str | None = None,
        profile: str | None = None,
        thread: str | None = None,
        output: Any = None,
        give: Mapping[str, object] | None = None,
        code: str = OFF,
        name: str | None = None,
        tags: Sequence[str] = (),
    ) -> Run:
        """Start a tree of agents on a task. Returns immediately.

        Args:
            task: The root agent's task.
            model: Overrides the session's for this run, as do the arguments below.
            budget: Tokens, or dollars as in `"$4"`.
            max_depth: Depth of the deepest sub-agent.
            max_agents: Most sub-agents of the run.
            tools: Tools of the agents; the session's own may be given by name.
            engine: Where calls and tools run: see `Session`.
            profile: Profile of the root agent. Its pool gives the models unless `model` is given,
                its tools apply unless `tools` is given, and its texts replace the built-in
                instructions.
            thread: The id of the thread to continue, with its conversation; `last` for the one
                that the person spoke to last. By default a new thread. While other runs work
                there, the run is `pending`.
            output: The type of the answer, which is then in `result.data`: a pydantic model, a
                dataclass, a `TypedDict`, a `Literal`, an `Enum`, `int`, `float`, `bool` or
                `list[...]` of them. By default text.
            give: Objects by name, such as `{"df": df}`: the root gets a description of each, and
                reads more with the tool `inspect`. `{{df}}` in the task becomes its name, or its
                value if that is a short string, number, dict or list.
            code: `worker` gives agents the tool `python`, which runs code on copies of the objects
                in a separate process; needs the extra `code`. `kernel` runs it in this process, on
                all your names: each call needs approval, and nothing undoes it. It runs while the
                main thread waits for the run (`await run`, `run.result()`, `%%spawn`), in a kernel
                also between cells.
            name: The run's name in lists of runs: a string of one line.
            tags: Words to find the run by.

        Raises:
            SessionClosed: The session was closed.
            NoSuchThread: The session has no such thread.
            ValueError: The task is blank, a limit is out of range, a tool is not a tool, or `name`
                or `tags` is invalid.
            UnknownModel: No provider has the model.
            UnknownProfile: The settings file has no such profile.
            ConfigError: The settings file or the profile has mistakes, or the profile names a tool
                that the session does not have.
            UntrustedSettings: The settings file names a server on another machine, or lets the run
                spend more, and the person has not trusted the file. Nothing was sent.
        """
        gift = gift_of(give, code)
        task = fill_given(checked_task(task), gift.objects or {})
        given = without_none(
            model=model,
            budget=budget,
            max_depth=max_depth,
            max_agents=max_agents,
            tools=tools,
            engine=engine,
        )
        name, tags = checked_name(name), checked_tags(tags)
        on = None if thread is None else self.thread(thread).id
        return self._start(
            RunOptions(
                task,
                given,
                profile,
                name=name,
                tags=tags,
                thread=on,
                output=output_type(output),
                gift=gift,
            )
        )

    @wrong_settings_as_line()
    @_names_arguments("argument")
    def spawn_all(
        self,
        tasks: Sequence[str],
        mode: str = "parallel",
        synthesis: bool = True,
        *,
        model: str | Sequence[str] | None = None,
        budget: int | str | Decimal | None = None,
        max_depth: int | None = None,
        max_agents: int | None = None,
        tools: Sequence[Any] | None = None,
        engine: Engine | str | None = None,
        profile: str | None = None,
        thread: str | None = None,
        output: Any = None,
        give: Mapping[str, object] | None = None,
        code: str = OFF,
        name: str | None = None,
        tags: Sequence[str] = (),
    ) -> Run:
        """Start one sub-agent per task, below a root that does not plan.

        The root makes one call, which combines the results. Without `synthesis` it makes none, and
        the answer is the results in order. All tasks run, however many, even equal ones.

        Args:
            tasks: Strings, in order; at least one.
            mode: `parallel`, or `sequential`: each sub-agent then gets the previous result.
            synthesis: Whether the root combines the results.
            model: Overrides the session's for this run, as do the arguments below.
            budget: Tokens, or dollars as in `"$4"`.
            max_depth: Depth of the deepest sub-agent, at least 1.
            max_agents: Most sub-agents that the tasks' agents may start.
            tools: Tools of the agents; the session's own may be given by name.
            engine: Where calls and tools run: see `Session`.
            profile: Profile of the root agent, as for `spawn`.
            thread: The id of the thread to continue, as for `spawn`.
            output: The type of each task's answer, as for `spawn`.
            give: Objects by name, as for `spawn`; each task's agent has all of them.
            code: `worker` or `kernel` for the tool `python`, as for `spawn`.
            name: The run's name in lists of runs: a string of one line.
            tags: Words to find the run by.

        Raises:
            SessionClosed, NoSuchThread, UnknownProfile: As for `spawn`.
            ValueError: `tasks` is empty, a task is blank or not a string, the mode is unknown, a
                limit is out of range, a tool is not a tool, or `name` or `tags` is invalid. No
                call was made.
            UnknownModel: No provider has the model.
        """
        gift = gift_of(give, code)
        filled = [fill_given(task, gift.objects or {}) for task in checked_tasks(tasks)]
        plan = SpawnInstruction(checked_mode(mode), tuple(filled))
        given = without_none(
            model=model,
            budget=budget,
            max_depth=max_depth,
            max_agents=max_agents,
            tools=tools,
            engine=engine,
        )
        title = f"{len(plan.tasks)} tasks, {plan.mode}"
        return self._start(
            RunOptions(
                title,
                given,
                profile,
                plan=plan,
                synthesis=synthesis,
                name=checked_name(name),
                tags=checked_tags(tags),
                thread=None if thread is None else self.thread(thread).id,
                output=output_type(output),
                gift=gift,
            )
        )

    @wrong_settings_as_line()
    @_names_arguments("argument")
    def map(
        self,
        rows: Any,
        prompt: str,
        output: Any = None,
        *,
        key: str | None = None,
        shared: str = "",
        models: Sequence[str] | None = None,
        judges: int = 1,
        tools: Sequence[Any] = (),
        max_depth: int = 0,
        sample: int | None = None,
        budget: int | str | Decimal | None = None,
        retry_failed: int = 1,
        name: str | None = None,
        reuse: bool = True,
        progress: bool | None = None,
    ) -> MapRun:
        """Ask one question for each row of a table. Returns immediately.

        Each row has its own agent, which gets only `shared` and its prompt.

        Args:
            rows: A data frame (pandas, polars, or another that narwhals supports) or a series, or
                a list of strings (`{{text}}`), dicts, objects (their fields) or `Path`s of text
                files (`{{text}}`, `{{name}}`, `{{path}}`).
            prompt: The question; `{{column}}` is the row's value there, as a string; a missing
                value is an empty string.
            output: The type of each answer, as for `spawn`.
            key: The column whose values identify rows.
            shared: Text at the start of each row's prompt.
            models: A model for each judge.
            judges: Agents for each row, for comparison; by default as many as `models`.
            tools: Tools of the agents; by default none.
            max_depth: Levels of sub-agents below a row.
            sample: Number of rows, evenly spaced in the table, that run before a person is asked
                about the rest.
            budget: Tokens, or dollars as in `"$4"`.
            retry_failed: How often to retry a failed row.
            name: The run's name in lists of runs: a string of one line.
            reuse: Whether to take completed rows, at no cost, from an earlier map of the same name
                (or, without a name, of the same prompt).
            progress: Progress as a line on stderr. By default in a script whose stderr is a
                terminal; `True` shows it anywhere, `False` nowhere.

        Raises:
            SessionClosed: As for `spawn`.
            ValueError: `rows` is not a table, or its rows are of several kinds; a file cannot be
                read; the prompt names a missing column, or none; a value of `key` is missing or
                not unique; the rows do not fit the session's budget, and no `budget` is given; or
                another argument is invalid. No call was made.
            UnknownModel: No provider has the model.
        """
        checked_flag("reuse", reuse)
        if progress is not None:
            checked_flag("progress", progress)
        order = order_of(
            rows,
            prompt,
            output,
            key=key,
            shared=shared,
            models=models,
            judges=judges,
            tools=tools,
            max_depth=max_depth,
            sample=sample,
            retry_failed=retry_failed,
        )
        label, given = checked_name(name), without_none(budget=budget)
        return self._maps.map(order, label, given, reuse=reuse, progress=progress)

    @property
    def _maps(self) -> Maps:
        return Maps(self._start, self.store, self._answers, reads_before=self._repeat.name == LIVE)

    def recover(
        self,
        run: str | RunInfo,
        *,
        unknown: str = "tell",
        changed: str = "refuse",
        budget: int | str | Decimal | None = None,
    ) -> Run[Any]:
        """Resume a run whose process died, or that was exhausted, from its record.

        Finished calls and tools are not repeated: their records answer. Open ones are repeated,
        except a tool with effects, whose outcome is unknown. Ids, tree and answer are those of an
        uninterrupted run. Blocks until the record is known to fit, which takes no call; and before
        that, while another process works in the budget above its own.

        It continues in its own session and thread, whichever session recovers it. The run of a
        message resumes by itself when its session is opened.

        Args:
            run: Its id, the beginning of its id, or an item of `runs()`.
            unknown: For an open tool with effects: `tell` the model that its outcome is unknown,
                or `repeat` it.
            changed: For agents whose prompt, tools or model changed since: `refuse` them, `keep`
                the recorded ones, or `redo` from there.
            budget: The total that applies once new work starts. Also lets an exhausted run
                continue: finished agents are kept, the rest is done, and what was spent before
                counts.

        Returns:
            The run, with a `receipt`.

        Raises:
            CannotRecover: It runs elsewhere, has ended, was cancelled, its thread continued, or
                its message starts a new run.
            ValueError: `budget` is not more than the run had; the message has the minimum.
            NoSuchRun, AmbiguousRun: No run, or more than one, matches.
            RunChanged: With `changed="refuse"`: agents no longer fit the record. Nothing was asked
                or changed.
            RunCancelled: It was cancelled twice before any new call; it stays as it was.
            SessionClosed: The session was closed.
        """
        checked_word("unknown", unknown, ("tell", "repeat"))
        checked_word("changed", changed, ("refuse", "keep", "redo"))
        self._desk.check_open()
        recovering = self.store.recover(run, changed=changed, budget=budget)
        recovering.past.repeats_unknown = unknown == "repeat"
        head = recovering.head
        own = self._with_id(head.session_id)
        own._reread()
        try:
            order, standing = own._desk.take_up(head.run_id, head.thread_id)
            try:
                options = own._recovery(recovering, standing, order)
            except BaseException:  # a file of its rows is not what it was
                own._desk.leave(head.run_id)
                raise
        except BaseException:
            self.store.give_up(head.run_id)
            raise
        try:
            found = own._maps.recovered(options, recovering)
        except BaseException:
            own._desk.leave(head.run_id)
            raise
        if own is not self:
            self._by_id[found.id] = found
        if get_runtime().is_current_thread:
            self._newest = found
            return found
        try:
            recovering.is_settled.wait()
        except KeyboardInterrupt:
            found.stop_soon("interrupted", at_once=True)
            recovering.is_settled.wait()
            self._settled(found, recovering, own)
            raise
        self._settled(found, recovering, own)
        if recovering.past.is_refused:
            raise RunChanged(head.run_id, recovering.past.misfits)
        if recovering.is_undone:
            found.result()  # raises: it was cancelled
        return found

    def _settled(self, run: Run[Any], recovering: Recovering, own: Session) -> None:
        """A recovery has come to new work, or to nothing: then the run is interrupted as before."""
        if recovering.is_undone:
            with suppress(OrchestratorError):
                run.result()
            for each in (self, own):
                each._by_id.pop(run.id, None)
            self.store.give_up(run.id)
        elif own is self:
            self._newest = run
        else:
            self._remember(run, is_newest=True)

    def _with_id(self, session_id: str) -> Session:
        """This session, or another one with its settings: a run goes on in its own session."""
        if session_id in ("", self.id):
            return self
        other = Session(**{**self.given, "id": None})
        other.id, other.store, other._servers = session_id, self.store, self._servers
        other._move_in(self.settings.tools)
        self._others.add(other)
        return other

    def _recovery(
        self, recovering: Recovering, standing: Standing, order: Order | None
    ) -> RunOptions:
        settings, model = self.settings, self.model
        return options_of_recovery(recovering, standing, order, settings=settings, model=model)

    def run_sync(self, task: str, **limits: Any) -> OrchestratorResult:
        """Call `spawn` and wait for the result. An interrupt cancels the run.

        Takes the arguments of `spawn`. Works in a cell, a script and a thread.

        Raises:
            RuntimeError: Called on the runtime thread, which would wait for itself.
            AgentnbError, ValueError: As `spawn` and `Run.result` raise.
        """
        if get_runtime().is_current_thread:
            raise RuntimeError("On the runtime's own thread a run can only be awaited: `spawn` it.")
        with self.owning() as owned:
            try:
                return self.spawn(task, **limits).result_or_cancel()
            except KeyboardInterrupt:
                if not owned or owned[0].done or not owned[0].stop_soon("interrupted"):
                    raise
                return owned[0].result()
            finally:
                self.store.tell_trouble()
                self._repeat.tell_notes()

    def tell_trouble(self) -> None:
        """Write to the error output what a person should know of the store and the cassette."""
        self.store.tell_trouble()
        self._repeat.tell_notes()

    @contextmanager
    def owning(self, *, expects_view: bool = False) -> Iterator[list[Run]]:
        """Collect the runs that this thread starts, for a caller that owns and awaits its run.

        An interrupt may arrive between start and wait, when the caller has no reference to the run
        yet. It must still stop that run, and no other thread's. Since the caller waits, only a
        view of the run can bring an answer to its questions.

        Args:
            expects_view: Whether the caller is about to show one.
        """
        owned: list[Run] = []
        self._owned.runs, self._owned.expects_view = owned, expects_view
        try:
            yield owned
        finally:
            del self._owned.runs

    def start_order(self, order: Order) -> Run:
        """Start the run of a queued message. For the session's desk."""
        options = from_queue(order)
        if order.recovering is not None and order.standing is not None:
            options = self._recovery(order.recovering, order.standing, order)
        return self._start(options)

    def _start(
        self, options: RunOptions, *, is_by_hand: bool = False, make: type[Run[Any]] | None = None
    ) -> Run[Any]:
        """Start a run. It waits for its turn on its thread, and then begins."""
        self._desk.check_open()
        given = self.given.keys()
        now = self._reread()
        if options.order is None:
            self._repeat.check_current()
            if options.recovering is None:
                self._desk.check_budget()
        parts = self._maker.make(
            options, now, store=self.store, given=given, session_pot=self._desk.session_budget
        )
        options, request, going_on = parts.options, parts.request, parts.options.recovering
        if hasattr(self._owned, "runs"):
            parts.viewers.only_views_answer(expects_view=self._owned.expects_view)
        runtime = get_runtime()
        runtime.at_close(registry.aclose)
        at_exit(end_all)
        if not runtime.is_current_thread:
            self.store.tell_trouble()
            self._repeat.tell_notes()
        order = options.order
        queued = None if order is None else order.queued

        def settled(recovering: Recovering) -> None:
            """It is known what was reused; or the run has ended before."""
            if options.standing is not None and not recovering.past.is_refused:
                request.cancellation.add_below(options.standing.below)
            recovering.is_settled.set()

        # What waits for its turn keeps the session: its end may start what comes next.
        async def in_turn(session: Session = self) -> OrchestratorResult:
            try:
                return await session._desk.in_turn(work, request, parts.execute)
            finally:
                if going_on is not None:
                    settled(going_on)

        if going_on is not None:
            going_on.past.when_settled(partial(settled, going_on))
        try:
            if queued is None and options.thread is not None and going_on is None:
                queued = self._desk.enqueue(options.thread, options.message, to_queue(options))
            work = Work(request.thread_id, options.message, order, queued, going_on, is_by_hand)
            run = (make or Run)(
                options.title,
                in_turn(),
                request=request,
                bus=parts.bus,
                runtime=runtime,
                viewers=parts.viewers,
                kept=self.store,
                among=self._by_id,
                mode=self.mode.name,
                tally=parts.tally,
                of_file=parts.prices,
                given=parts.objects,
            )
            run.recovering = going_on
            self.store.began(parts.head, run)
            self._remember(run, is_newest=order is None and going_on is None)
        except BaseException:
            # The run may have begun, and the caller would not have it; or its message is queued,
            # and would block its thread.
            request.cancellation.cancel(None, "interrupted")
            if queued is not None and order is None:
                self._desk.withdraw(queued)
            raise
        return run

    def check_current(self) -> None:
        """Check that `%agentnb mode` has named no other mode since. For the session's desk.

        Raises:
            ModeChanged: It has.
        """
        self._repeat.check_current()

    def check_new(self, new: NewAgent) -> None:
        """Check the names of an agent before its creation. For the session's desk.

        Raises:
            BadAssignment: The provider or profile does not exist.
            AgentnbError: The provider or the profile cannot be used.
        """
        now = self._reread()
        check_assignment(
            new, providers=now.models.provider_names, profiles=tuple(now.config.profiles)
        )
        now.models.resolve(new.label)

    # -- threads and tasks ----------------------------------------------------------------------

    def threads(self) -> ThreadList:
        """The session's threads, newest first: those of its runs and of persistent agents."""
        rows = self._transactions().do(lambda db: threads.list_threads(db, self.id))
        return ThreadList([Thread(row, self._house) for row in rows])

    @wrong_settings_as_line()
    def thread(self, id: str) -> Thread:
        """A thread of the session, to read or to send a message to.

        Args:
            id: Its id, which is its agent's; also the id of a sub-agent of a stored run. `last`
                for the thread that the person spoke to last.

        Raises:
            NoSuchThread: The session has no such thread.
        """
        for run in [*self._going_on.values()]:
            if not run.done and (id == run.thread_id or (id == LAST and run is self._newest)):
                id = self._desk.open_thread(run.thread_id, run.task) or id
        try:
            return thread_of(id, self._house)
        except NoSuchThread as error:
            raise NoSuchThread(error.thread, mode=self._repeat.name_but_live) from None

    def agents(self, kind: str | None = None) -> AgentList:
        """The session's agents, in order of creation.

        Args:
            kind: `persistent` or `ephemeral`; by default both.

        Raises:
            ValueError: `kind` is neither.
        """
        wanted = None if kind is None else one_of(AgentKind, kind, "`kind`")
        return AgentList(
            self._transactions().do(lambda db: threads.list_agents(db, self.id, wanted))
        )

    @property
    def tasks(self) -> Tasks:
        """The session's tasks: create, list, assign, change and complete them."""
        return Tasks(self._desk, self._board, house=self._house)

    def threads_panel(self, *, height: int = 0) -> BoardView:
        """Live board of the session's threads: their agents, and the selected conversation.

        A working agent's text streams in, and a field sends it a message. As a cell's value it
        also shows a table of the threads, which stays in a saved notebook.

        Args:
            height: Height in pixels; 0 for a height that fits most cells.
        """
        from agentnb.tasks.boards import threads_panel  # loads the views only when needed

        return threads_panel(self._house, self.tasks, listed=self.threads, height=height)

    @property
    def _house(self) -> House:
        return House(
            self.id,
            self._transactions,
            lambda thread, text, **settings: self.spawn(text, thread=thread, **settings),
            self._runs_of,
            self._own_agent,
            self.find_run,
            self.store.load,
        )

    def _runs_of(self, thread_id: str) -> RunList:
        return self.store.runs(None, thread=thread_id)

    def _own_agent(self, agent_id: str) -> AgentView | None:
        """A run's own agent by its id, from the newest run that has it."""
        root = agent_id
        while "." in root:
            root = root.rpartition(".")[0]
            for info in self._runs_of(root):
                try:
                    return self.store.load(info).agent(path_of(agent_id, root))
                except (UnknownAgent, NoSuchRun):
                    continue
        return None

    # -- its end --------------------------------------------------------------------------------

    def close(self) -> None:
        """End the session: cancel its runs, and start nothing more.

        Messages not yet started stay queued until the session is opened again. A second call does
        nothing.
        """
        self._desk.close()
        for other in [*self._others]:
            other.close()
        for run in [*self._going_on.values()]:
            run.stop_soon("the session was closed")
        for run in [*self._going_on.values()]:
            with suppress(RuntimeError):  # it is of the process that this one was forked from
                run.cancel()
        self._close_servers()

    def _close_servers(self) -> None:
        """Close the MCP servers, and wait for that unless this is the loop that does it.

        A loop that is blocked closes them later, without this waiting for it.
        """
        if self._servers.is_empty:
            return
        runtime = get_runtime()
        # The loop is gone, and they with it; or it is blocked.
        with suppress(RuntimeError, TimeoutError):
            closing = runtime.submit(self._servers.aclose())
            if not runtime.is_current_thread:
                closing.result(_SERVERS_PATIENCE_S)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- finding runs ---------------------------------------------------------------------------

    def _remember(self, run: Run[Any], *, is_newest: bool) -> None:
        if is_newest:
            self._newest = run
            note_newest(run)
        getattr(self._owned, "runs", []).append(run)
        going_on, run_id = self._going_on, run.id
        going_on[run_id] = run
        store, found = self.store, weakref.ref(run)

        def forget(_: object) -> None:
            # Not the run itself: a future keeps its callbacks, and these would keep the run.
            ended = found()
            if ended is not None:
                if going_on.get(run_id) is ended:  # else it was recovered at once
                    del going_on[run_id]
                store.ended(ended)

        run._future.add_done_callback(forget)

    @property
    def newest_run(self) -> Run[Any] | None:
        """The newest run; `None` before the first."""
        return self._newest

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Ids of the runs that `find_run` finds, newest first."""
        return tuple(reversed(list(self._by_id)))

    def find_run(self, run_id: str) -> Run[Any] | None:
        """A run by its id while something references it; else `None`."""
        return self._by_id.get(run_id)

    @wrong_settings_as_line()
    def runs(
        self, limit: int | None = 50, status: str | None = None, text: str | None = None
    ) -> RunList:
        """The runs in the session's store, newest first, including other kernels'.

        Without a store: the running ones of this process, and the 50 newest that have ended.

        Args:
            limit: Most runs; `None` for all.
            status: Only runs with this status, such as `interrupted`.
            text: Only runs with this text in their name, a tag or their task.

        Raises:
            ValueError: An argument is invalid.
        """
        return self.store.runs(limit, status, text)

    @wrong_settings_as_line()
    def load(self, run: str | RunInfo) -> RunRecord:
        """Load a run from the session's store, as `load_run` does from a file.

        A run of this process that something still references is returned itself, and can be
        steered.

        Args:
            run: Its id, the beginning of its id, or an item of `runs()`.

        Raises:
            NoSuchRun: No run has this id, or only its summary was kept.
            AmbiguousRun: Several runs have an id with this beginning.
        """
        return self.store.load(run)

    @wrong_settings_as_line()
    def delete_run(self, run: str | RunInfo) -> None:
        """Delete a run from the session's store, with everything stored about it.

        Args:
            run: Its id, the beginning of its id, or an item of `runs()`.

        Raises:
            NoSuchRun: No run has this id.
            AmbiguousRun: Several runs have an id with this beginning.
            ValueError: The run has not ended.
        """
        self.store.delete(run)

    @wrong_settings_as_line()
    def memories(self) -> MemoryList:
        """All memories in the session's store, newest first.

        Raises:
            StoreTrouble: The store cannot be read.
        """
        return self.store.memories()

    @wrong_settings_as_line()
    def delete_memory(self, memory: int | MemoryEntry) -> None:
        """Delete a memory from the session's store: later runs do not recall it.

        The record of the run that stored it still has it, until that run is deleted.

        Args:
            memory: An item of `memories()`, or its `id`.

        Raises:
            NoSuchMemory: No memory of the store has this id.
            ValueError: It is neither.
        """
        self.store.delete_memory(memory)

    @wrong_settings_as_line()
    def prune(self, older_than: str = "30d") -> Pruned:
        """Delete old runs from the session's store. Never a running one.

        Args:
            older_than: Age since the run's start, such as `12h`, `30d` or `8w`.

        Returns:
            The number of deleted runs, and by how many bytes the file shrank.

        Raises:
            ValueError: `older_than` is not an age.
        """
        return self.store.prune(older_than)


# Before Python 3.13 a docstring still has the indentation of its source.
Session.__doc__ = cleandoc(Session.__doc__ or "").replace(
    "Raises:", f"Args:\n{arguments_text()}\n\nRaises:"
)
