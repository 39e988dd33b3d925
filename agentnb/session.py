"""The one place where concrete parts are wired together: provider, gate, budget, orchestrator.

A session is settings. It starts runs and holds on to nothing of them but the newest, and those
that still go on.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from agentnb.config import Config, config_of, reread
from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext, texts
from agentnb.core.errors import wrong_settings_as_line
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.profiles import Profile, root_instructions
from agentnb.core.protocols import BudgetGate, Gate, Provider, Tool
from agentnb.core.request import RequestContext
from agentnb.core.secrets import note_variable
from agentnb.core.text import literal
from agentnb.core.types import (
    AgentConfig,
    OrchestratorResult,
    SpawnInstruction,
    SpawnMode,
)
from agentnb.delegation import DEFAULT_DELEGATION, delegation_of, kind_of, tools_of_profile
from agentnb.models import DEFAULT_MODEL, Models, Origin, Unsaid, gate_of, registry
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.tools.registry import tools_of
from agentnb.views.panel.viewers import Viewers


@dataclass(frozen=True, slots=True)
class _InForce:
    """What the settings file says by now, and what that makes of what was said in code."""

    config: Config
    models: Models
    delegation: str


@dataclass(frozen=True, slots=True)
class _Order:
    """A run that is wanted, and what is to hold for it in place of the session's settings."""

    title: str
    """The task, or what stands for several."""
    model: str | Sequence[str] | None
    budget: int | None
    max_depth: int | None
    max_agents: int | None
    tools: Sequence[Any] | None
    profile: str | None = None
    plan: SpawnInstruction | None = None
    synthesis: bool = True


class Session:
    """Settings for runs, and the way to start them.

    A settings file, and the files that it names, are looked at whenever a run starts: what was
    changed since holds for that run, all of it, and not for those that go on.

    Args:
        model: `provider/model`, or `pool:NAME`; or several, a chain: when one does not answer, the
            next is asked. Without it: the `llm.default_pool` of the settings file, if that names
            one.
        budget: Tokens for each run, all agents together.
        max_depth: Depth of the deepest sub-agent; the root has 0.
        soul: Who the agents are, shared by all of them.
        identity: What they are here for, shared by all of them.
        user: What the root should know of the person. Sub-agents never see it.
        tools: What agents may call: functions (see `agentnb.tool`), anything with `spec` and
            `call` (`agentnb.core.protocols.Tool`), and `"workspace"`, the run's shared notes.
        delegation: How agents may start sub-agents: by a spawn `block` in a reply, by `tools`, or
            by `both`. Without it: what the settings file says by `tools.spawn.enabled`.
        nested_spawn: Whether sub-agents get the spawn tools, too, as far as `max_depth` allows.
        config: The settings file or its folder, or what `load_config` gave; `None` for the
            `agentnb.yaml` in the working directory, if there is one by the time that a run
            starts; `False` for none. What `load_config` gave stays as it is. A server on another
            machine that a file names counts when the person trusts the file, however it was named.
        store: `None`, memory only: all there is yet.
        mode: `live`: all there is yet.
        provider: Answers in place of the one that `model` names: a `ScriptedProvider`, say. A run
            that names a model of another provider is answered by that one.
        max_concurrency: Calls to one model that may be open at once.
        max_agents: Most sub-agents that the agents of a run may start. A list that a person
            gives to `spawn_all` is not cut by it.
        max_output_tokens: Output limit of one call.
        call_timeout_s: A turn that takes longer fails.
        memories: What the root remembers; handed to sub-agents by `sub_agent_memory`.
        sub_agent_memory: `inherit` or `fresh`.
        on_budget_warning: `ask`, `continue`, `stop`, or a callable, sync or async, that gets
            the `BudgetWarning` and returns one of the last two.
        pause_timeout_s: After so long without an answer a paused run stops.
        max_turns: Most turns of one agent, a call and the tools it asks for each. It then ends
            with what it has, marked as cut.

    Raises:
        ValueError: A setting is out of its range. `UnknownModel`, `UnknownPool` and
            `ConfigError`, for a settings file that cannot be taken, are such errors, too.
    """

    @wrong_settings_as_line()
    def __init__(
        self,
        model: str | Sequence[str] = DEFAULT_MODEL,
        budget: int = 500_000,
        max_depth: int = 3,
        soul: str = "",
        identity: str = "",
        user: str = "",
        tools: Sequence[Any] = (),
        *,
        delegation: str = DEFAULT_DELEGATION,
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
    ) -> None:
        self._settings: dict[str, Any] = {
            name: value for name, value in locals().items() if name != "self"
        }
        if store is not None:
            raise ValueError(f"`store` can only be None yet (memory only), not {literal(store)}.")
        if mode != "live":
            raise ValueError(f"`mode` can only be 'live' yet, not {literal(mode)}.")
        for name in ("call_timeout_s", "pause_timeout_s"):
            value = self._settings[name]
            if not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"`{name}` must be a number above 0, not {literal(value)}.")
        for name in ("max_output_tokens", "max_concurrency", "max_turns"):
            value = self._settings[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"`{name}` must be a whole number, at least 1, not {literal(value)}."
                )
        if provider is not None and not hasattr(provider, "stream"):
            raise ValueError(
                f"`provider` must be a provider, not {literal(provider)}: name a model by `model`."
            )
        for name in ("soul", "identity", "user"):
            if not isinstance(self._settings[name], str):
                raise ValueError(f"`{name}` must be a text, not {literal(self._settings[name])}.")
        if not isinstance(nested_spawn, bool):
            raise ValueError(f"`nested_spawn` must be True or False, not {literal(nested_spawn)}.")
        texts(memories, "memories")
        self.tools = tools_of(tools)
        """What agents may call, where a run does not say otherwise."""
        self._in_force = self._made_of(config_of(config))
        self.budget = budget
        self.max_depth = max_depth
        self._newest: Run | None = None
        self._owned = threading.local()
        self._going_on: dict[str, Run] = {}
        self._by_id: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
        # What is wrong with the settings is said here, not at the first run.
        self._request(None, Viewers(), budget=None, max_depth=None, max_agents=None)
        AgentOrchestrator(sub_agent_memory=sub_agent_memory)

    def _made_of(self, config: Config) -> _InForce:
        said, provider = self._settings["model"], self._settings["provider"]
        note_variable(config.openai.api_key_env)
        kind = kind_of(self._settings["delegation"], config)
        return _InForce(config, Models(said, provider=provider, config=config), kind)

    def reread_settings(self) -> None:
        """Look at the settings file again, as each run does when it starts.

        Raises:
            ConfigError: It cannot be taken as it is by now. What was read before stays.
        """
        self._look_again()

    def _look_again(self) -> _InForce:
        last = self._in_force
        config = reread(self._settings["config"], last.config)
        if config is not last.config:
            self._in_force = self._made_of(config)
        return self._in_force

    @property
    def config(self) -> Config:
        """What the settings file said when it was last looked at: as the newest run began."""
        return self._in_force.config

    @property
    def delegation(self) -> str:
        """`block`, `tools` or `both`."""
        return self._in_force.delegation

    @property
    def model(self) -> str | tuple[str, ...]:
        """Who answers: one model, or a chain of them."""
        return self._in_force.models.model

    @property
    def is_delegation_said(self) -> bool:
        """Whether `delegation` was said in code."""
        return not isinstance(self._settings["delegation"], Unsaid)

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
            UntrustedSettings: The settings file names another machine's server, and the person
                does not trust the file yet. Nothing was sent.
        """
        task = _checked_task(task)
        return self._start(_Order(task, model, budget, max_depth, max_agents, tools, profile))

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
        deepest = self.max_depth if max_depth is None else max_depth
        if isinstance(deepest, int) and deepest < 1:
            raise ValueError(
                "`spawn_all` starts sub-agents, so `max_depth` must be at least 1, not "
                f"{literal(deepest)}: give it to the session or to this call."
            )
        title = f"{len(plan.tasks)} tasks, {plan.mode}"
        order = _Order(title, model, budget, max_depth, max_agents, tools)
        return self._start(replace(order, plan=plan, synthesis=synthesis))

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
        profile = None if order.profile is None else config.profile(order.profile)
        model = order.model
        if profile is not None and model is None:
            model = profile.models or None
        provider, label = models.resolve(model)
        bootstrap_of = config.bootstrap_of_run()
        told = "" if profile is None else root_instructions(profile, bootstrap_of(profile))
        context = self._context(label, told)
        gate = gate_of(provider, self._settings["max_concurrency"])
        viewers = Viewers()
        request = self._request(
            gate,
            viewers,
            budget=order.budget,
            max_depth=order.max_depth,
            max_agents=order.max_agents,
        )
        tools = self._tools_for(order, profile, config)
        delegation = delegation_of(
            now.delegation,
            nested=self._settings["nested_spawn"],
            tools=tools,
            named=self.tools,
            config=config,
            bootstrap_of=bootstrap_of,
            models=models,
            max_concurrency=self._settings["max_concurrency"],
        )
        if isinstance(model, str):
            _used[model] = None
        bus = EventBus(request.run_id, clock=request.clock)
        warning = self._settings["on_budget_warning"]
        runtime = get_runtime()
        runtime.at_close(registry.aclose)
        try:
            run = Run(
                order.title,
                AgentOrchestrator(
                    request.max_depth,
                    sub_agent_memory=self._settings["sub_agent_memory"],
                    max_turns=self._settings["max_turns"],
                    delegation=delegation,
                ).execute(
                    provider,
                    context,
                    order.title,
                    request,
                    bus,
                    budget_gate=warning if callable(warning) else None,
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

    def _tools_for(self, order: _Order, profile: Profile | None, config: Config) -> Sequence[Tool]:
        """What the run's agents may call: as it was said for it, by its profile, else for all."""
        if order.tools is not None:
            return tools_of(order.tools, self.tools)
        if profile is None:
            return self.tools
        of_profile = tools_of_profile(profile, self.tools, config)
        return self.tools if of_profile is None else of_profile

    def _request(
        self,
        gate: Gate | None,
        viewers: Viewers,
        *,
        budget: int | None,
        max_depth: int | None,
        max_agents: int | None,
    ) -> RequestContext:
        settings = self._settings
        warning = settings["on_budget_warning"]
        return RequestContext(
            RequestBudget(self.budget if budget is None else budget),
            max_depth=self.max_depth if max_depth is None else max_depth,
            max_agents=settings["max_agents"] if max_agents is None else max_agents,
            gate=gate,
            call_timeout_s=settings["call_timeout_s"],
            on_budget_warning="ask" if callable(warning) else warning,
            pause_timeout_s=settings["pause_timeout_s"],
            is_attended=viewers.any,
        )

    def _context(self, label: str, instructions: str) -> AgentContext:
        settings = self._settings
        return AgentContext(
            agent_config=AgentConfig(model=label, max_output_tokens=settings["max_output_tokens"]),
            soul_content=settings["soul"],
            identity_content=settings["identity"],
            user_content=settings["user"],
            recalled_memories=tuple(settings["memories"]),
            system_prompt=instructions,
        )

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
    # Without making one: a settings file that is wrong must not keep a person from naming another.
    old = _default._settings if _default is not None else {}
    merged = {**old, **settings}
    if "model" in settings and "provider" not in settings:
        merged["provider"] = None
    if "provider" in settings and "model" not in settings:
        merged["model"] = DEFAULT_MODEL
    try:
        made = Session(**merged)
    except TypeError:
        names = tuple(signature(Session).parameters)
        unknown = ", ".join(literal(s) for s in settings if s not in names)
        known = ", ".join(names)
        raise ValueError(f"There is no setting {unknown}. Known are: {known}.") from None
    with _default_lock:
        _default = made
    return made
