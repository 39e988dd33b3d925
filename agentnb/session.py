"""`Session`: settings for runs, and the one place that wires provider, gate, budget, orchestrator.

A session keeps its newest run and those that are still running, and no others.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec

from agentnb.config import Config, config_of, reread
from agentnb.config.profile import Profile, root_instructions
from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.errors import show_as_line
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import BudgetGate, Provider, Tool
from agentnb.core.records import RunHead
from agentnb.core.request import RequestContext, new_thread_id
from agentnb.core.secrets import note_variable
from agentnb.core.text import literal
from agentnb.core.types import (
    AgentConfig,
    OrchestratorResult,
    SpawnInstruction,
    SpawnMode,
)
from agentnb.delegation import delegation_of, tools_of_profile
from agentnb.errors import wrong_settings_as_line
from agentnb.models import Models, Origin, gate_of, registry
from agentnb.record import RunRecord
from agentnb.run import Run
from agentnb.run_store import RunStore
from agentnb.runtime import get_runtime
from agentnb.settings import (
    DEFAULT_BUDGET,
    DEFAULT_MODEL,
    SETTINGS,
    Settings,
    arguments_text,
    one_line,
)
from agentnb.tools.registry import tools_of
from agentnb.trust import check_limits
from agentnb.views.panel.viewers import Viewers

if TYPE_CHECKING:
    from agentnb.store.runs import RunInfo, RunList
    from agentnb.store.upkeep import Pruned

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class _Current:
    """The settings file as last read, and the settings and models that follow from it and code."""

    config: Config
    settings: Settings
    models: Models


@dataclass(frozen=True, slots=True)
class _RunOptions:
    """A run to start."""

    title: str
    """The task, or a title for several."""
    given: Mapping[str, Any]
    """Settings of this run that replace the session's."""
    profile: str | None = None
    plan: SpawnInstruction | None = None
    synthesis: bool = True
    name: str = ""
    tags: tuple[str, ...] = ()


def _keeps_given_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """Store the arguments passed to `init` in `self._given`, without its defaults.

    The difference matters: a settings file overrides a default, but not an equal value that code
    passes.
    """
    parameters = signature(init)

    @wraps(init)
    def wrapper(*args: P.args, **named: P.kwargs) -> None:
        try:
            given = parameters.bind(*args, **named).arguments
        except TypeError as error:  # an unknown setting
            show_as_line(error)
            raise
        session: Session = given.pop("self")
        session._given = given
        init(*args, **named)

    return wrapper


class Session:
    """Settings for runs, and the way to start them.

    Each run reads the settings file, and the files that it names, when it starts. A change holds
    for that run and later ones, not for runs that have begun.

    Raises:
        ValueError: A setting is out of its range. `UnknownModel`, `UnknownPool` and
            `ConfigError`, for mistakes in a settings file, are `ValueError`s, too.
    """

    _given: dict[str, Any]
    """The settings that code passes; normalised by `Settings` once `__init__` has run."""

    @wrong_settings_as_line()
    @_keeps_given_arguments
    def __init__(
        self,
        model: str | Sequence[str] = DEFAULT_MODEL,
        budget: int = DEFAULT_BUDGET,
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
        mode: str = "live",
        provider: Provider | None = None,
        max_concurrency: int = 32,
        max_agents: int = 1000,
        max_output_tokens: int = 8192,
        call_timeout_s: float = 600,
        memories: Sequence[str] = (),
        sub_agent_memory: str = "inherit",
        on_budget_warning: str | BudgetGate = "ask",
        pause_timeout_s: float = 600,
        max_turns: int = 50,
        max_time_s: float | None = None,
        stop_after_failures: int | None = None,
    ) -> None:
        settings = Settings(**self._given)
        self._given = {name: getattr(settings, name) for name in self._given}
        self.tools = tools_of(settings.tools)
        """The tools of agents, unless a run names its own."""
        self._current = self._current_of(config_of(config))
        self.id = new_thread_id()
        """The id of its thread, `nb_YYYYMMDD_xxxxxx`."""
        project = self.config.folder if self.config.source else None
        self.store = RunStore.of(settings.store, project)
        """Where its runs are kept."""
        self._newest: Run | None = None
        self._owned = threading.local()
        self._going_on: dict[str, Run] = {}
        self._by_id: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()

    def _current_of(self, config: Config) -> _Current:
        note_variable(config.openai.api_key_env)
        of_file = dict(config.session)
        if config.spawn_enabled is not None:
            of_file.setdefault("delegation", "both" if config.spawn_enabled else "block")
        settings = Settings(**{**of_file, **self._given})
        models = Models(self._given.get("model"), provider=settings.provider, config=config)
        return _Current(config, settings, models)

    def reread_settings(self) -> None:
        """Read the settings file again if it changed, as each run does when it starts.

        Raises:
            ConfigError: The file has mistakes now. The settings read before stay.
        """
        self._reread()

    def _reread(self) -> _Current:
        last = self._current
        config = reread(last.settings.config, last.config)
        if config is not last.config:
            self._current = self._current_of(config)
        return self._current

    @property
    def config(self) -> Config:
        """The settings file as it was last read."""
        return self._current.config

    @property
    def settings(self) -> Settings:
        """The settings of the next run, by the settings file as it was last read."""
        return self._current.settings

    @property
    def budget(self) -> int:
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

    def is_given(self, setting: str) -> bool:
        """Whether code sets a setting."""
        return setting in self._given

    @property
    def model_origin(self) -> Origin:
        """Where `model` comes from."""
        return self._current.models.origin

    def __repr__(self) -> str:
        model = literal(self.model)
        return f"Session(model={model}, budget={self.budget}, max_depth={self.max_depth})"

    # -- starting runs --------------------------------------------------------------------------

    @wrong_settings_as_line()
    def spawn(
        self,
        task: str,
        *,
        model: str | Sequence[str] | None = None,
        budget: int | None = None,
        max_depth: int | None = None,
        max_agents: int | None = None,
        tools: Sequence[Any] | None = None,
        profile: str | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
    ) -> Run:
        """Start a tree of agents on a task, and return at once.

        Args:
            task: The root agent's task.
            model: Overrides the session's for this run; so do the arguments below.
            budget: Tokens.
            max_depth: Depth of the deepest sub-agent.
            max_agents: Most sub-agents.
            tools: Tools of the agents; the session's own tools may be given by name.
            profile: Profile of the root agent. Its pool gives the models unless `model` is given,
                its tools hold unless `tools` is given, and its texts replace the built-in
                instructions.
            name: What the person calls the run, in lists of runs: a text of one line.
            tags: Words by which the person finds the run again.

        Raises:
            ValueError: The task is blank, a limit is out of its range, a tool is not a tool, or
                `name` or `tags` is not what it must be.
            UnknownModel: No provider has the model.
            UnknownProfile: The settings file has no such profile.
            ConfigError: The settings file has mistakes now; or the profile has, or it names a tool
                that the session does not have.
            UntrustedSettings: The settings file names a server on another machine, or lets the run
                spend more, and the person does not trust the file yet. Nothing was sent.
        """
        task = _checked_task(task)
        given = _without_none(
            model=model, budget=budget, max_depth=max_depth, max_agents=max_agents, tools=tools
        )
        name, tags = _checked_name(name), _checked_tags(tags)
        return self._start(_RunOptions(task, given, profile, name=name, tags=tags))

    @wrong_settings_as_line()
    def spawn_all(
        self,
        tasks: Sequence[str],
        mode: str = "parallel",
        synthesis: bool = True,
        *,
        model: str | Sequence[str] | None = None,
        budget: int | None = None,
        max_depth: int | None = None,
        max_agents: int | None = None,
        tools: Sequence[Any] | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
    ) -> Run:
        """Start one sub-agent per task, below a root that does not plan.

        The root makes one call, which brings the results together. Without `synthesis` it makes
        none, and the answer is the results in order. All tasks run, however many, also equal ones:
        a person means what they ask for.

        Args:
            tasks: Texts, in order; at least one.
            mode: `parallel`, or `sequential`: each sub-agent then gets the result before it.
            synthesis: Whether the root brings the results together.
            model: Overrides the session's for this run; so do the arguments below.
            budget: Tokens.
            max_depth: Depth of the deepest sub-agent, at least 1.
            max_agents: Most sub-agents that the tasks' agents may start.
            tools: Tools of the agents; the session's own tools may be given by name.
            name: What the person calls the run, in lists of runs: a text of one line.
            tags: Words by which the person finds the run again.

        Raises:
            ValueError: `tasks` is empty, a task is blank or not a text, the mode is unknown, a
                limit is out of its range, a tool is not a tool, or `name` or `tags` is not what
                it must be. No call was made.
            UnknownModel: No provider has the model.
        """
        plan = SpawnInstruction(_checked_mode(mode), _checked_tasks(tasks))
        given = _without_none(
            model=model, budget=budget, max_depth=max_depth, max_agents=max_agents, tools=tools
        )
        title = f"{len(plan.tasks)} tasks, {plan.mode}"
        name, tags = _checked_name(name), _checked_tags(tags)
        return self._start(
            _RunOptions(title, given, plan=plan, synthesis=synthesis, name=name, tags=tags)
        )

    def run_sync(self, task: str, **limits: Any) -> OrchestratorResult:
        """`spawn` and wait for the result. An interrupt cancels the run.

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

    @contextmanager
    def owning(self) -> Iterator[list[Run]]:
        """Collect the runs that this thread starts, for a caller that owns and awaits its run.

        An interrupt may arrive after the start and before the wait, when the caller has no
        reference to the run yet. It must still stop that run, and no other thread's.
        """
        owned: list[Run] = []
        self._owned.runs = owned
        try:
            yield owned
        finally:
            del self._owned.runs

    def _start(self, options: _RunOptions) -> Run:
        now = self._reread()
        config, models = now.config, now.models
        given, settings = options.given, replace(now.settings, **options.given)
        if options.plan is not None and settings.max_depth < 1:
            raise ValueError(
                "`spawn_all` starts sub-agents, so `max_depth` must be at least 1, not "
                f"{settings.max_depth}: give it to the session or to this call."
            )
        check_limits(config, config.session.keys() - self._given.keys() - given.keys())
        profile = None if options.profile is None else config.profile(options.profile)
        model = settings.model if "model" in given else None
        if profile is not None and model is None:
            model = profile.models or None
        provider, label = models.resolve(model)
        bootstrap_of = config.bootstrap_of_run()
        instructions = "" if profile is None else root_instructions(profile, bootstrap_of(profile))
        gate = gate_of(provider, settings.max_concurrency)
        warning = settings.on_budget_warning
        viewers = Viewers()
        request = RequestContext(
            RequestBudget(settings.budget),
            max_depth=settings.max_depth,
            max_agents=settings.max_agents,
            gate=gate,
            call_timeout_s=settings.call_timeout_s,
            on_budget_warning=warning if isinstance(warning, str) else "ask",
            pause_timeout_s=settings.pause_timeout_s,
            max_time_s=settings.max_time_s,
            stop_after_failures=settings.stop_after_failures,
            is_attended=viewers.any,
        )
        tools = self._tools_for(settings.tools if "tools" in given else None, profile, config)
        delegation = delegation_of(
            settings.delegation,
            nested=settings.nested_spawn,
            tools=tools,
            named=self.tools,
            config=config,
            bootstrap_of=bootstrap_of,
            models=models,
            max_concurrency=settings.max_concurrency,
        )
        if isinstance(model, str):
            _used[model] = None
        bus = EventBus(request.run_id, clock=request.clock)
        runtime = get_runtime()
        runtime.at_close(registry.aclose)
        head = RunHead(
            request.run_id,
            request.thread_id,
            options.title,
            label,
            settings.budget,
            settings.max_depth,
            time.time(),
            options.name,
            options.tags,
            self.id,
            _as_plain(settings, model or self.model, tools, profile, instructions, options),
        )
        journal = self.store.journal()
        if not runtime.is_current_thread:
            self.store.tell_trouble()
        try:
            run = Run(
                options.title,
                AgentOrchestrator(
                    request.max_depth,
                    sub_agent_memory=settings.sub_agent_memory,
                    max_turns=settings.max_turns,
                    delegation=delegation,
                ).execute(
                    provider,
                    _agent_context(settings, label, instructions),
                    options.title,
                    request,
                    bus,
                    budget_gate=None if isinstance(warning, str) else warning,
                    tools=tools,
                    journal=journal,
                    plan=options.plan,
                    synthesis=options.synthesis,
                    head=head,
                ),
                request=request,
                bus=bus,
                runtime=runtime,
                viewers=viewers,
                kept=self.store,
            )
            self.store.began(head, run)
            self._remember(run)
        except KeyboardInterrupt:  # the run may have begun, and the caller would not have it
            request.cancellation.cancel(None, "interrupted")
            raise
        return run

    def _tools_for(
        self, given: Sequence[Any] | None, profile: Profile | None, config: Config
    ) -> Sequence[Tool]:
        """The tools of a run: its own, else its profile's, else the session's."""
        if given is not None:
            return tools_of(given, self.tools)
        if profile is None:
            return self.tools
        of_profile = tools_of_profile(profile, self.tools, config)
        return self.tools if of_profile is None else of_profile

    # -- finding runs ---------------------------------------------------------------------------

    def _remember(self, run: Run) -> None:
        self._newest = run
        getattr(self._owned, "runs", []).append(run)
        self._by_id[run.id] = run
        going_on, run_id = self._going_on, run.id
        going_on[run_id] = run
        store = self.store

        def forget(_: object) -> None:
            # By its id: a future keeps its callbacks, and one with the run would keep the run.
            store.ended(going_on.pop(run_id))

        run._future.add_done_callback(forget)

    @property
    def newest_run(self) -> Run | None:
        """The newest run; `None` before the first."""
        return self._newest

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Ids of the runs that `find_run` finds, the newest first."""
        return tuple(reversed(list(self._by_id)))

    def find_run(self, run_id: str) -> Run | None:
        """A run by its id, as long as it is referenced; else `None`."""
        return self._by_id.get(run_id)

    @wrong_settings_as_line()
    def runs(
        self, limit: int | None = 50, status: str | None = None, text: str | None = None
    ) -> RunList:
        """The runs in the session's store, newest first, also those of other kernels.

        Without a store: those of this process that go on, and the 50 newest that have ended.

        Args:
            limit: Most runs; `None` for all.
            status: Only runs with this status, such as `interrupted`.
            text: Only runs with this text in their name, a tag or their task.

        Raises:
            ValueError: An argument is wrong.
        """
        return self.store.runs(limit, status, text)

    @wrong_settings_as_line()
    def load(self, run: str | RunInfo) -> RunRecord:
        """A run of the session's store, to look at as at a run from a file.

        A run of this process that is still referenced is returned itself, and can be steered.

        Args:
            run: Its id, the beginning of its id, or an item of `runs()`.

        Raises:
            NoSuchRun: No run has this id, or only a summary of it was kept.
            AmbiguousRun: Several runs have an id that begins so.
        """
        return self.store.load(run)

    @wrong_settings_as_line()
    def delete_run(self, run: str | RunInfo) -> None:
        """Delete a run from the session's store, with all that was kept of it.

        Args:
            run: Its id, the beginning of its id, or an item of `runs()`.

        Raises:
            NoSuchRun: No run has this id.
            AmbiguousRun: Several runs have an id that begins so.
            ValueError: The run is still going on.
        """
        self.store.delete(run)

    @wrong_settings_as_line()
    def prune(self, older_than: str = "30d") -> Pruned:
        """Delete the runs that began long ago from the session's store. Never one that goes on.

        Args:
            older_than: The age, such as `12h`, `30d` or `8w`.

        Returns:
            How many runs were deleted, and by how many bytes the file is smaller.

        Raises:
            ValueError: `older_than` is not an age.
        """
        return self.store.prune(older_than)


Session.__doc__ = (Session.__doc__ or "").replace(
    "    Raises:", f"    Args:\n{arguments_text()}\n\n    Raises:"
)


def _without_none(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _agent_context(settings: Settings, label: str, instructions: str) -> AgentContext:
    return AgentContext(
        agent_config=AgentConfig(model=label, max_output_tokens=settings.max_output_tokens),
        soul_content=settings.soul,
        identity_content=settings.identity,
        user_content=settings.user,
        recalled_memories=tuple(settings.memories),
        system_prompt=instructions,
    )


def _as_plain(
    settings: Settings,
    model: str | Sequence[str],
    tools: Sequence[Tool],
    profile: Profile | None,
    instructions: str,
    options: _RunOptions,
) -> dict[str, Any]:
    """A run's settings as plain values, as they are kept: no provider, no function."""
    left_out = ("model", "tools", "config", "store", "provider")
    plain = {name: getattr(settings, name) for name in SETTINGS if name not in left_out}
    if callable(plain["on_budget_warning"]):
        del plain["on_budget_warning"]
    plain["memories"] = list(settings.memories)
    plain["model"] = model if isinstance(model, str) else list(model)
    plain["tools"] = [tool.spec.name for tool in tools]
    if profile is not None:
        plain["profile"] = {"name": profile.name, "instructions": instructions}
    if options.plan is not None:
        plan = {"mode": str(options.plan.mode), "tasks": list(options.plan.tasks)}
        plain["plan"] = plan | {"synthesis": options.synthesis}
    return plain


def _checked_task(task: str) -> str:
    if not isinstance(task, str) or not task.strip():
        raise ValueError(f"A task must be a text that is not blank, not {literal(task)}.")
    return task.strip()


def _checked_tasks(tasks: Sequence[str]) -> tuple[str, ...]:
    """Check a person's list. An error names the first wrong task by its index."""
    if isinstance(tasks, str):
        raise ValueError("`tasks` must be a list of texts; for one task use `spawn`.")
    # A mapping, a set and a data frame are iterable, but not ordered lists of texts.
    if isinstance(tasks, Mapping | Set) or hasattr(tasks, "columns"):
        kind = type(tasks).__name__
        raise ValueError(f"`tasks` must be a list of texts, not a {kind}: say which texts.")
    try:
        listed = list(tasks)
    except TypeError:
        raise ValueError(f"`tasks` must be a list of texts, not {literal(tasks)}.") from None
    if not listed:
        raise ValueError("`tasks` is empty: give at least one task.")
    for at, task in enumerate(listed):
        if not isinstance(task, str) or not task.strip():
            shown = literal(task, 80)
            raise ValueError(f"`tasks[{at}]` must be a text that is not blank, not {shown}.")
    return tuple(task.strip() for task in listed)


def _checked_name(name: str | None) -> str:
    if name is None:
        return ""
    if not one_line(name):
        raise ValueError(f"`name` must be a text of one line, not {literal(name)}.")
    return name.strip()


def _checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tags, str | Mapping | Set) or not isinstance(tags, Iterable):
        raise ValueError(f"`tags` must be a list of texts, not {literal(tags)}.")
    listed = list(tags)
    for at, tag in enumerate(listed):
        if not one_line(tag):
            raise ValueError(f"`tags[{at}]` must be a text of one line, not {literal(tag)}.")
    return tuple(dict.fromkeys(tag.strip() for tag in listed))


def _checked_mode(mode: str) -> SpawnMode:
    try:
        return SpawnMode(mode)
    except ValueError:
        raise ValueError(
            f"`mode` must be 'parallel' or 'sequential', not {literal(mode)}."
        ) from None


_used: dict[str, None] = {}
_default: Session | None = None
_default_lock = threading.Lock()


def session_at_hand() -> Session | None:
    """The session that the magics use; `None` if there is none yet."""
    return _default


def config_at_hand() -> Config:
    """The settings file for the next run of the magics. Creates no session.

    Raises:
        ConfigError: The settings file has mistakes.
    """
    if _default is None:
        return config_of(None)
    _default.reread_settings()
    return _default.config


def used_models() -> tuple[str, ...]:
    """The models that runs of this process have used, the newest last."""
    return tuple(_used)


def get_session() -> Session:
    """The session that the magics use; created with the defaults if there is none."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


@wrong_settings_as_line()
def configure(**settings: Any) -> Session:
    """Make a new session for the magics, with the old one's settings and these.

    Takes the arguments of `Session`. Setting one of `model` and `provider` drops the other. The
    settings file is looked for and read again. Runs that have begun are not affected.

    Raises:
        ValueError: There is no such setting, or as for `Session`.
    """
    global _default
    unknown = ", ".join(literal(name) for name in settings if name not in SETTINGS)
    if unknown:
        raise ValueError(f"There is no setting {unknown}. Known are: {', '.join(SETTINGS)}.")
    # Do not create a session here: a broken settings file must not stop a person from naming
    # another one.
    given = dict(_default._given) if _default is not None else {}
    for one, other in (("model", "provider"), ("provider", "model")):
        if one in settings:
            given.pop(other, None)
    made = Session(**{**given, **settings})
    if _default is not None:  # the same person goes on in the same notebook
        made.id = _default.id
        if "store" not in settings:
            made.store = _default.store
    with _default_lock:
        _default = made
    return made


def runs(limit: int | None = 50, status: str | None = None, text: str | None = None) -> RunList:
    """The runs in the store of the session that the magics use. See `Session.runs`."""
    return get_session().runs(limit, status, text)


def prune(older_than: str = "30d") -> Pruned:
    """Delete old runs from the store of the session that the magics use. See `Session.prune`."""
    return get_session().prune(older_than)


def delete_run(run: str | RunInfo) -> None:
    """Delete a run from the store of the session that the magics use: see `Session.delete_run`."""
    get_session().delete_run(run)
