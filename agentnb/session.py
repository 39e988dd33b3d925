"""The one place where concrete parts are wired together: provider, gate, budget, orchestrator.

A session is settings. It starts runs and holds on to nothing of them but the newest, and those
that still go on.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

from agentnb.config import Config, config_of, reread
from agentnb.config.profile import Profile, root_instructions
from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.errors import show_as_line
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import BudgetGate, Provider, Tool
from agentnb.core.request import RequestContext
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
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.settings import DEFAULT_BUDGET, DEFAULT_MODEL, SETTINGS, Settings, arguments_text
from agentnb.tools.registry import tools_of
from agentnb.trust import check_limits
from agentnb.views.panel.viewers import Viewers

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class _InForce:
    """What the settings file says by now, and what that makes of what was said in code."""

    config: Config
    settings: Settings
    models: Models


@dataclass(frozen=True, slots=True)
class _Order:
    """A run that is wanted."""

    title: str
    """The task, or what stands for several."""
    said: Mapping[str, Any]
    """Settings that hold for it in place of the session's."""
    profile: str | None = None
    plan: SpawnInstruction | None = None
    synthesis: bool = True


def _keeps_what_is_said(init: Callable[P, None]) -> Callable[P, None]:
    """Have `init` find in `self._said` the arguments that it was given.

    A default is not the same as an equal value that a person says: a settings file goes before the
    one, and not before the other.
    """
    parameters = signature(init)

    @wraps(init)
    def listening(*args: P.args, **named: P.kwargs) -> None:
        try:
            said = parameters.bind(*args, **named).arguments
        except TypeError as error:  # there is no such setting
            show_as_line(error)
            raise
        session: Session = said.pop("self")
        session._said = said
        init(*args, **named)

    return listening


class Session:
    """Settings for runs, and the way to start them.

    A settings file, and the files that it names, are looked at whenever a run starts: what was
    changed since holds for that run, all of it, and not for those that go on.

    Raises:
        ValueError: A setting is out of its range. `UnknownModel`, `UnknownPool` and
            `ConfigError`, for a settings file that cannot be taken, are such errors, too.
    """

    _said: dict[str, Any]
    """The settings that code says: as they were given, then as they are kept."""

    @wrong_settings_as_line()
    @_keeps_what_is_said
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
        store: None = None,
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
        settings = Settings(**self._said)
        self._said = {name: getattr(settings, name) for name in self._said}
        self.tools = tools_of(settings.tools)
        """What agents may call, where a run does not say otherwise."""
        self._in_force = self._made_of(config_of(config))
        self._newest: Run | None = None
        self._owned = threading.local()
        self._going_on: dict[str, Run] = {}
        self._by_id: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()

    def _made_of(self, config: Config) -> _InForce:
        note_variable(config.openai.api_key_env)
        of_file = dict(config.session)
        if config.spawn_enabled is not None:
            of_file.setdefault("delegation", "both" if config.spawn_enabled else "block")
        settings = Settings(**{**of_file, **self._said})
        models = Models(self._said.get("model"), provider=settings.provider, config=config)
        return _InForce(config, settings, models)

    def reread_settings(self) -> None:
        """Look at the settings file again, as each run does when it starts.

        Raises:
            ConfigError: It cannot be taken as it is by now. What was read before stays.
        """
        self._look_again()

    def _look_again(self) -> _InForce:
        last = self._in_force
        config = reread(last.settings.config, last.config)
        if config is not last.config:
            self._in_force = self._made_of(config)
        return self._in_force

    @property
    def config(self) -> Config:
        """What the settings file said when it was last looked at: as the newest run began."""
        return self._in_force.config

    @property
    def settings(self) -> Settings:
        """What holds for the next run, as far as the settings file was looked at."""
        return self._in_force.settings

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
        """Who answers: one model, or a chain of them."""
        return self._in_force.models.model

    def is_said(self, setting: str) -> bool:
        """Whether code said a setting."""
        return setting in self._said

    @property
    def model_origin(self) -> Origin:
        """Who chose `model`."""
        return self._in_force.models.origin

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
    ) -> Run:
        """Start a tree of agents on a task, and return at once.

        Args:
            task: What the root agent is asked.
            model: In place of the session's, for this run; so are the rest.
            budget: Tokens.
            max_depth: Depth of the deepest sub-agent.
            max_agents: Most sub-agents.
            tools: What agents may call; the session's own tools by name, too.
            profile: What the root agent is configured by: the models of its pool, unless `model`
                says otherwise, its tools, unless `tools` does, and its texts as instructions, in
                place of the built-in ones.

        Raises:
            ValueError: The task is blank, a limit out of its range, or something is no tool.
            UnknownModel: No provider answers to the model.
            UnknownProfile: The settings file has no such profile.
            ConfigError: The settings file was changed and cannot be taken as it is by now; or the
                profile cannot: it has mistakes, or names a tool that the session does not have.
            UntrustedSettings: The settings file names another machine's server, or lets the run
                spend more, and the person does not trust the file yet. Nothing was sent.
        """
        task = _checked_task(task)
        said = _said(
            model=model, budget=budget, max_depth=max_depth, max_agents=max_agents, tools=tools
        )
        return self._start(_Order(task, said, profile))

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
    ) -> Run:
        """Start one sub-agent per task, below a root that plans nothing.

        The root's one call brings the results together; without `synthesis` there is none, and
        the answer is the results in order. All tasks are run, however many, also equal ones: a
        person means what they ask for.

        Args:
            tasks: Texts, in an order; at least one.
            mode: `parallel`, or `sequential`: each is then handed the result before it.
            synthesis: Whether the root brings the results together.
            model: In place of the session's, for this run; so are the rest.
            budget: Tokens.
            max_depth: Depth of the deepest sub-agent, at least 1.
            max_agents: Most sub-agents that those of the tasks may start.
            tools: What agents may call; the session's own tools by name, too.

        Raises:
            ValueError: A task is blank or no text, there is none, the mode is unknown, a limit is
                out of its range, or something is no tool. No call was made then.
            UnknownModel: No provider answers to the model.
        """
        plan = SpawnInstruction(_checked_mode(mode), _checked_tasks(tasks))
        said = _said(
            model=model, budget=budget, max_depth=max_depth, max_agents=max_agents, tools=tools
        )
        title = f"{len(plan.tasks)} tasks, {plan.mode}"
        return self._start(_Order(title, said, plan=plan, synthesis=synthesis))

    def run_sync(self, task: str, **limits: Any) -> OrchestratorResult:
        """`spawn` and wait, as the run's owner: an interrupt cancels the run.

        Takes what `spawn` takes. Works in a cell, a script and a thread.
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

    @contextmanager
    def owning(self) -> Iterator[list[Run]]:
        """Whoever waits as a run's owner learns here of the run that this thread starts.

        An interrupt may come between the start and the wait, where nobody holds the run yet. It is
        the first interrupt all the same: it must stop that run, and no other thread's.
        """
        owned: list[Run] = []
        self._owned.runs = owned
        try:
            yield owned
        finally:
            del self._owned.runs

    def _start(self, order: _Order) -> Run:
        now = self._look_again()
        config, models = now.config, now.models
        said, settings = order.said, replace(now.settings, **order.said)
        if order.plan is not None and settings.max_depth < 1:
            raise ValueError(
                "`spawn_all` starts sub-agents, so `max_depth` must be at least 1, not "
                f"{settings.max_depth}: give it to the session or to this call."
            )
        check_limits(config, config.session.keys() - self._said.keys() - said.keys())
        profile = None if order.profile is None else config.profile(order.profile)
        model = settings.model if "model" in said else None
        if profile is not None and model is None:
            model = profile.models or None
        provider, label = models.resolve(model)
        bootstrap_of = config.bootstrap_of_run()
        told = "" if profile is None else root_instructions(profile, bootstrap_of(profile))
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
        tools = self._tools_for(settings.tools if "tools" in said else None, profile, config)
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
        try:
            run = Run(
                order.title,
                AgentOrchestrator(
                    request.max_depth,
                    sub_agent_memory=settings.sub_agent_memory,
                    max_turns=settings.max_turns,
                    delegation=delegation,
                ).execute(
                    provider,
                    _context(settings, label, told),
                    order.title,
                    request,
                    bus,
                    budget_gate=None if isinstance(warning, str) else warning,
                    tools=tools,
                    plan=order.plan,
                    synthesis=order.synthesis,
                ),
                request=request,
                bus=bus,
                runtime=runtime,
                viewers=viewers,
            )
            self._remember(run)
        except KeyboardInterrupt:  # it may be going on already, and nobody would hold it
            request.cancellation.cancel(None, "interrupted")
            raise
        return run

    def _tools_for(
        self, said: Sequence[Any] | None, profile: Profile | None, config: Config
    ) -> Sequence[Tool]:
        """What the run's agents may call: as it was said for it, by its profile, else for all."""
        if said is not None:
            return tools_of(said, self.tools)
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
        # By its id: a future keeps its callbacks, so with the run in one it would hold itself.
        run._future.add_done_callback(lambda _: going_on.pop(run_id, None))

    @property
    def newest_run(self) -> Run | None:
        """The run that was started last."""
        return self._newest

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Those that `find_run` finds, the newest first."""
        return tuple(reversed(list(self._by_id)))

    def find_run(self, run_id: str) -> Run | None:
        """A run by its id, as long as anybody holds it."""
        return self._by_id.get(run_id)


Session.__doc__ = (Session.__doc__ or "").replace(
    "    Raises:", f"    Args:\n{arguments_text()}\n\n    Raises:"
)


def _said(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _context(settings: Settings, label: str, instructions: str) -> AgentContext:
    return AgentContext(
        agent_config=AgentConfig(model=label, max_output_tokens=settings.max_output_tokens),
        soul_content=settings.soul,
        identity_content=settings.identity,
        user_content=settings.user,
        recalled_memories=tuple(settings.memories),
        system_prompt=instructions,
    )


def _checked_task(task: str) -> str:
    if not isinstance(task, str) or not task.strip():
        raise ValueError(f"A task must be a text that is not blank, not {literal(task)}.")
    return task.strip()


def _checked_tasks(tasks: Sequence[str]) -> tuple[str, ...]:
    """A person's list. The first task that cannot be run is named with its place."""
    if isinstance(tasks, str):
        raise ValueError("`tasks` must be a list of texts; for one task use `spawn`.")
    # A mapping, a set and a data frame can be gone through, but not as a list of texts in an order.
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
    """The session that the magics use, if there is one by now."""
    return _default


def config_at_hand() -> Config:
    """The settings that the next run of the magics has, without making a session for them.

    Raises:
        ConfigError: The settings file cannot be taken as it is by now.
    """
    if _default is None:
        return config_of(None)
    _default.reread_settings()
    return _default.config


def used_models() -> tuple[str, ...]:
    """The models that runs of this process were given, the newest last."""
    return tuple(_used)


def get_session() -> Session:
    """The session that the magics use, made with the defaults when there is none."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


@wrong_settings_as_line()
def configure(**settings: Any) -> Session:
    """Make a new session for the magics: the old one's settings, and these.

    Takes what `Session` takes. Of `model` and `provider`, the one that is set replaces the
    other. The settings file is looked for and read anew. Runs that go on are not touched.
    """
    global _default
    unknown = ", ".join(literal(name) for name in settings if name not in SETTINGS)
    if unknown:
        raise ValueError(f"There is no setting {unknown}. Known are: {', '.join(SETTINGS)}.")
    # Without making one: a settings file that is wrong must not keep a person from naming another.
    said = dict(_default._said) if _default is not None else {}
    for one, other in (("model", "provider"), ("provider", "model")):
        if one in settings:
            said.pop(other, None)
    made = Session(**{**said, **settings})
    with _default_lock:
        _default = made
    return made
