"""What a run is made of: its options and the session's settings become parts. Nothing starts here.

`RunMaker.make` reads what a run needs, checks it, and hands back `RunParts`: complete, and not
begun. Only `RunParts.execute` begins the run, when its turn on its thread has come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentnb.config import Config
from agentnb.config.profile import Profile, root_instructions
from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.cancel import Cancellation
from agentnb.core.context import AgentContext
from agentnb.core.durable import AgentKind, AgentMetadata
from agentnb.core.errors import AgentnbError, NoPrice, OrchestratorError
from agentnb.core.money import TOKENS, USD, Rate
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.past import Past
from agentnb.core.plan import Plan, Rows
from agentnb.core.protocols import (
    BudgetGate,
    Delegation,
    Engine,
    ModelChoice,
    OutputType,
    Provider,
    SupportsCommit,
    Tool,
    is_chain,
    supports_open,
)
from agentnb.core.records import PRICES, UNIT, RunHead
from agentnb.core.request import RequestContext
from agentnb.core.types import AgentConfig, OrchestratorResult
from agentnb.delegation import delegation_of, gated_by_file, gated_by_profile, tools_of_profile
from agentnb.given import GivenObjects
from agentnb.mapping.documents import check_taken
from agentnb.mapping.fitting import check_fits, expected
from agentnb.models import Models, gate_of, note_used
from agentnb.modes import REPLAY
from agentnb.prices import Price, begin_to_load, list_price, list_price_of, makes_cheaper, rate_for
from agentnb.repeat import Repeat, Take, Tally, note_recorded
from agentnb.run_options import (
    RunOptions,
    as_agent,
    as_plain,
    chain_as_plain,
    profiles_as_plain,
    with_output_of,
)
from agentnb.run_store import RunStore
from agentnb.settings import Settings, budget_amount, bytes_in
from agentnb.store import threads
from agentnb.store.memories import StoredMemories
from agentnb.store.queue import Begun
from agentnb.tasks.board import Board
from agentnb.tasks.desk import Desk
from agentnb.tasks.thread import history_of
from agentnb.tools.mcp.pool import MCP, RunServers, Servers
from agentnb.tools.mcp.server import server_of_file
from agentnb.tools.registry import MAKERS, tools_of
from agentnb.tools.tasks import task_tools
from agentnb.tools.toolset import TASKS, Makers
from agentnb.trust import check_limits, check_prices, check_servers
from agentnb.views.panel.viewers import Viewers
from agentnb.workers.worker import Limits


@dataclass(frozen=True, slots=True)
class Current:
    """The settings file as last read, and the settings and models that follow from it and code."""

    config: Config
    settings: Settings
    models: Models
    prices: Mapping[str, Price]
    """Those of the file."""


@dataclass(frozen=True, slots=True, eq=False)
class RunParts:
    """A run that has not begun, with all that it needs."""

    options: RunOptions
    """Those it was asked for, and those of its agent if that stays."""
    request: RequestContext
    bus: EventBus
    head: RunHead
    viewers: Viewers
    provider: Provider
    tools: Sequence[Tool]
    """With MCP servers that stand for their tools."""
    servers: RunServers
    context: AgentContext
    """The root's, without the conversation before it."""
    orchestrator: AgentOrchestrator
    journal: SupportsCommit | None
    """`None` if nothing is kept."""
    past: Past | None
    """What the run did before, or what is recorded of it; `None` if nothing answers."""
    budget_gate: BudgetGate | None
    plan: Plan | None
    """A person's own list of tasks, or table."""
    output: OutputType | None
    """The type of the root's answer."""
    prices: Mapping[str, Price]
    """Of the settings file."""
    tally: Tally | None
    """What it asks again in mode `auto`."""
    objects: GivenObjects | None
    """The objects that its agents refer to by name, and their workers."""

    async def execute(self, begun: Begun | None) -> OrchestratorResult:
        """Run the tree, now that its turn has come.

        Args:
            begun: What was said on its thread before, and the number of its first child. `None` for
                a run without its thread: it was cancelled before, or nothing can be kept. One that
                was to go on then leaves its record as it was.
        """
        options, going_on = self.options, self.options.recovering
        head, journal = self.head, self.journal
        if begun is None and going_on is not None:
            going_on = journal = None
        begun = begun or Begun((), 1)
        if options.recovering is None:  # it may have waited for long
            head = replace(head, started_at=time.time(), first_child=begun.first_child)
        tools, refusal = self.tools, None
        try:
            await self.servers.open(self.request.cancellation)
            try:
                tools = self.servers.tools(self.tools)
                self.request.gated = self.servers.gated(self.request.gated)
                if supports_open(engine := self.orchestrator.engine):
                    opening = engine.open(self.provider, tools)
                    await _unless_cancelled(opening, self.request.cancellation)
            except OrchestratorError as error:
                tools, refusal = (), error
            if options.recovering is None:
                head = replace(head, settings={**head.settings, **self.servers.as_plain()})
            execution = self.orchestrator.execute(
                self.provider,
                replace(self.context, conversation_history=history_of(begun.before)),
                options.title,
                self.request,
                self.bus,
                budget_gate=self.budget_gate,
                tools=tools,
                journal=journal,
                plan=self.plan,
                output=self.output,
                head=head,
                past=self.past,
                refusal=refusal,
            )
            return await (execution if self.objects is None else self.objects.around(execution))
        except OrchestratorError as error:
            note_recorded(error, self.past)
            raise
        finally:
            self.servers.release()


class RunMaker:
    """Makes the parts of a session's runs.

    Args:
        session_id: The session.
        desk: Its desk, which delivers messages to agents.
        board: Its tasks.
        tools: The session's own, as code names them.
        repeat: The session's mode and cassette.
        servers: The session's MCP servers.
    """

    def __init__(
        self,
        session_id: str,
        desk: Desk,
        board: Board,
        tools: Sequence[object],
        repeat: Repeat,
        servers: Servers,
    ) -> None:
        self._repeat = repeat
        self._servers = servers
        self._session_id = session_id
        self._news = desk.news
        self._board = board
        self.toolsets: Makers = {**MAKERS, TASKS: partial(task_tools, board)}
        """Names in lists of tools that stand for several."""
        self._own_tools = tools_of(tools, makers=self.toolsets)
        """As code gives them."""

    def tools(self, config: Config) -> tuple[Tool, ...]:
        """The tools of agents, unless a run names its own: with the MCP servers of a file."""
        names = {tool.spec.name for tool in self._own_tools}
        of_file = (server_of_file(each, config.folder) for each in config.mcp.values())
        return (*self._own_tools, *(each for each in of_file if each.name not in names))

    def make(
        self,
        options: RunOptions,
        now: Current,
        *,
        store: RunStore,
        given: Set[str],
        session_pot: RequestBudget | None = None,
    ) -> RunParts:
        """Make the parts of a run.

        Args:
            options: What it is started with.
            now: The session's settings and models.
            store: Where its runs are kept.
            given: The settings that code gives to the session.
            session_pot: The session's budget.

        Raises:
            AgentnbError, ValueError: See `Session.spawn`.
        """
        metadata = _metadata_of(options, store)
        if metadata is not None:
            options = as_agent(options, metadata)
        config, settings = now.config, replace(now.settings, **options.given)
        _check(options, settings, config, given)
        profile = None if options.profile is None else config.profile(options.profile)
        model = settings.model if "model" in options.given else None
        if profile is not None and model is None:
            model = profile.models or None
        options = with_output_of(profile, options)
        provider, label = now.models.resolve(model)
        self._repeat.check(provider)
        bootstrap_of = config.bootstrap_of_run()
        instructions = "" if profile is None else root_instructions(profile, bootstrap_of(profile))
        going_on = options.recovering
        if going_on is not None and profile is not None:
            instructions = going_on.head.settings["profile"]["instructions"]
        viewers, warning = Viewers(), settings.on_budget_warning
        named = self.tools(config)
        objects = self._objects_of(options, settings)
        of_objects = () if objects is None else objects.tools
        known = (*of_objects, *named)
        tools = self._tools_for(options.given, settings, profile, config, known, named)
        # Who gives objects, or lets agents run code, says so for this very run: no list of tools,
        # of the run or of its profile, takes that back.
        tools = tools_of((*tools, *(each for each in of_objects if each not in tools)))
        gated = self._gated(options, (*named, *tools), profile, config)
        is_replay = self._repeat.name == REPLAY
        servers = RunServers(self._servers, is_replay=is_replay)
        servers.want(tools)
        if metadata is not None:  # a persistent agent does its tasks itself
            tools, delegation = _with_task_tools(tools, self._board), Delegation(by_block=False)
        else:
            delegation = delegation_of(
                settings.delegation,
                nested=settings.nested_spawn,
                tools=tools,
                named=named,
                config=config,
                bootstrap_of=bootstrap_of,
                models=now.models,
                max_concurrency=settings.max_concurrency,
                makers=self.toolsets,
                servers=servers,
            )
        if not is_replay:
            check_servers(config, [each.name for each in servers.wanted if each.of_file])
        if isinstance(model, str):
            note_used(model)
        begin_to_load(label, now.prices)
        kept = as_plain(
            settings, model or now.models.model, tools, profile, instructions, options, gated
        )
        kept |= chain_as_plain(provider)
        below = _below(options, session_pot)
        rates = self._rates(options, settings, provider, label, now, below)
        judges = () if options.table is None else options.table.models
        asked = [now.models.resolve(name) for name in judges] or [(provider, label)]
        _check_fits(options, settings, rates, [_labels_of(*each)[0] for each in asked])
        kept |= _money_as_plain(settings, rates)
        if delegation.by_tools:
            kept |= profiles_as_plain(config.profiles.values(), bootstrap_of)
        plan = _plan_of(options, settings, now.models, (provider, label))
        engine = None if is_replay else _engine_of(settings.engine, config)
        # Now: whatever can go wrong before has not used up a label.
        take = self._take(options)
        request = self._request(
            settings,
            options,
            provider,
            viewers,
            store,
            take,
            gated,
            rates,
            now.prices,
            below,
            objects,
        )
        if objects is not None:
            objects.begin(request.thread_id)
        journal, past = _kept(options, store, take)
        if past is not None and (is_replay or going_on is not None):
            servers.take_from(past.journal.head.settings.get(MCP))
        return RunParts(
            options=options,
            request=request,
            bus=EventBus(request.run_id, clock=request.clock),
            head=self._head(options, settings, request, label, kept),
            viewers=viewers,
            provider=provider,
            tools=tools,
            servers=servers,
            context=_agent_context(settings, label, instructions),
            orchestrator=AgentOrchestrator(
                request.max_depth,
                engine=engine,
                sub_agent_memory=settings.sub_agent_memory,
                max_turns=settings.max_turns,
                delegation=delegation,
            ),
            journal=journal,
            past=past,
            budget_gate=None if isinstance(warning, str) else warning,
            plan=plan,
            output=_output_of_root(options, profile),
            prices=now.prices,
            tally=None if take is None else take.tally,
            objects=objects,
        )

    def _take(self, options: RunOptions) -> Take | None:
        if options.recovering is not None:
            return None
        return self._repeat.take(options.name, options.title, options.thread or "")

    def _tools_for(
        self,
        given: Mapping[str, object],
        settings: Settings,
        profile: Profile | None,
        config: Config,
        known: Sequence[Tool],
        of_session: Sequence[Tool],
    ) -> Sequence[Tool]:
        """The tools of a run: its own, else its profile's, else the session's.

        Args:
            given: What the run itself is given.
            settings: Its settings.
            profile: Of its root.
            config: The settings file.
            known: What may be named.
            of_session: The session's.
        """
        if "tools" in given:
            return tools_of(settings.tools, known, self.toolsets)
        if profile is None:
            return of_session
        of_profile = tools_of_profile(profile, known, config, self.toolsets)
        return of_session if of_profile is None else of_profile

    def _objects_of(self, options: RunOptions, settings: Settings) -> GivenObjects | None:
        """The objects of a run's agents, and what runs their code; `None` for neither."""
        if not options.gift:
            return None
        return GivenObjects(
            options.gift,
            limits=Limits(bytes_in(settings.code_memory), settings.code_time_s),
            at_work=settings.code_workers,
            hands_all=options.plan is not None,
            is_replay=self._repeat.name == REPLAY,
        )

    def _gated(
        self,
        options: RunOptions,
        known: Sequence[Tool],
        profile: Profile | None,
        config: Config,
    ) -> frozenset[str]:
        """The names of the tools that need approval in a run, whatever they themselves say."""
        gated = gated_by_file(known, config).union(options.gated)
        return gated if profile is None else gated | gated_by_profile(profile, known, config)

    def _request(
        self,
        settings: Settings,
        options: RunOptions,
        provider: Provider,
        viewers: Viewers,
        store: RunStore,
        take: Take | None,
        gated: Collection[str],
        rates: Mapping[str, Rate],
        of_file: Mapping[str, Price],
        below: RequestBudget | None,
        objects: GivenObjects | None,
    ) -> RequestContext:
        """The state that the agents of a run share."""
        order, warning = options.order, settings.on_budget_warning
        going_on = options.recovering
        # With more budget no run is below this one, and its record counts what was dropped.
        is_raised = going_on is not None and going_on.past.new_total is not None
        if options.standing is not None and not is_raised:
            budget = options.standing.budget
        else:
            total, unit = budget_amount(settings.budget)
            budget = RequestBudget(total, below=below, unit=unit)
        return RequestContext(
            budget,
            run_id=_run_id(options, take),
            thread_id=options.thread or ("" if take is None else take.thread_id),
            above=() if order is None else order.above,
            inbox=self._news,
            max_depth=settings.max_depth,
            max_agents=settings.max_agents,
            gate=gate_of(provider, settings.max_concurrency),
            call_timeout_s=settings.call_timeout_s,
            on_budget_warning=warning if isinstance(warning, str) else "ask",
            pause_timeout_s=settings.pause_timeout_s,
            max_time_s=settings.max_time_s,
            stop_after_failures=settings.stop_after_failures,
            is_attended=viewers.any,
            patience=viewers.patience,
            approve=settings.approve,
            gated=gated,
            on_plan=settings.on_plan,
            ask_above=settings.ask_above,
            price=partial(list_price, of_file=of_file),
            price_usage=partial(list_price_of, of_file=of_file),
            rates=_recorded_first(rates, take),
            memory=StoredMemories(store.transactions),
            recall=settings.recall,
            handles=objects,
        )

    def _rates(
        self,
        options: RunOptions,
        settings: Settings,
        provider: Provider,
        label: str,
        now: Current,
        below: RequestBudget | None,
    ) -> Mapping[str, Rate]:
        """What the tokens of all models of a run cost, by label; empty if no budget counts money.

        Raises:
            NoPrice: One that is sure to be asked has no price.
            UntrustedSettings: A price of the file lets it spend more, and the file is not trusted.
        """
        # For a recovered run: as they were at its start.
        known = {} if options.recovering is None else options.recovering.head.rates
        in_money = options.recovering is None and budget_amount(settings.budget)[1] == USD
        if known or not (in_money or (below is not None and USD in below.units)):
            return known
        models, of_file = now.models, now.prices
        judges = () if options.table is None else options.table.models
        asked = [models.resolve(name) for name in judges]
        own = _labels_of(provider, label)
        # The root of a map makes no call: only its judges are sure to be asked.
        needed = {each for found in asked for each in _labels_of(*found)} if asked else {*own}
        rates = {each: rate_for(each, of_file) for each in sorted(needed)}
        missing = [each for each, rate in rates.items() if rate is None]
        if missing and self._repeat.name != REPLAY:
            raise NoPrice.of(*missing)
        rates |= {each: rate_for(each, of_file) for each in own}
        # Those that a profile may ask: without a price only its own agents fail.
        for profile in now.config.profiles.values():
            if profile.models:
                with suppress(AgentnbError, ValueError):
                    found = models.resolve(profile.models)
                    rates |= {each: rate_for(each, of_file) for each in _labels_of(*found)}
        check_prices(now.config, [each for each in rates if makes_cheaper(each, of_file)])
        return {each: rate for each, rate in rates.items() if rate is not None}

    def _head(
        self,
        options: RunOptions,
        settings: Settings,
        request: RequestContext,
        label: str,
        kept: Mapping[str, object],
    ) -> RunHead:
        """What is kept of the run from its beginning on; of a recovered run that was kept."""
        if options.recovering is not None:
            return options.recovering.head
        return RunHead(
            request.run_id,
            request.thread_id,
            options.title,
            label,
            budget_amount(settings.budget)[0],
            settings.max_depth,
            time.time(),
            options.name,
            options.tags,
            self._session_id,
            kept,
        )


def _below(options: RunOptions, session_pot: RequestBudget | None) -> RequestBudget | None:
    """The budget above a run's own: its assigner's, else the session's."""
    order = options.order
    return session_pot if order is None or order.below is None else order.below


def _labels_of(provider: Provider, label: str) -> tuple[str, ...]:
    """The models that a call may go to, as `provider/model`."""
    return tuple(link.model for link in provider.links) if is_chain(provider) else (label,)


def _recorded_first(rates: Mapping[str, Rate], take: Take | None) -> Mapping[str, Rate]:
    """Prices of a run: those of its recording before today's."""
    if take is None or take.past is None:
        return rates
    return {**rates, **take.past.journal.head.rates}


def _money_as_plain(settings: Settings, rates: Mapping[str, Rate]) -> dict[str, object]:
    """What is kept of a run in which a budget counts money."""
    unit = budget_amount(settings.budget)[1]
    plain: dict[str, object] = {} if unit == TOKENS else {UNIT: unit}
    if rates:
        plain[PRICES] = {model: rate.as_plain() for model, rate in rates.items()}
    return plain


def _output_of_root(options: RunOptions, profile: Profile | None) -> OutputType | None:
    """Of a person's own tasks the root only brings the results together: as its profile says."""
    if options.plan is None:
        return options.output
    return None if profile is None else profile.output


def _plan_of(
    options: RunOptions, settings: Settings, models: Models, own: tuple[Provider, str]
) -> Plan | None:
    """A person's own tasks, with the models of a table's judges.

    Args:
        options: What the run is started with.
        settings: Its settings.
        models: The session's.
        own: The run's provider, and its model as `provider/model`.

    Raises:
        ValueError: One of the models does not take the table's files.
    """
    if options.plan is None:
        return None
    rows, table = None, options.table
    if table is not None:
        found = [models.resolve(name) for name in table.models]
        check_taken(table.documents, found or [own])
        rows = Rows(
            table.system,
            is_shared=bool(table.shared),
            judges=table.judges,
            models=tuple(
                ModelChoice(provider, label, gate_of(provider, settings.max_concurrency))
                for provider, label in found
            ),
            attempts=1 + table.retry_failed,
            sample=table.sample,
            attachments=table.attachments,
            answers=options.answers,
            left_out=options.left_out,
        )
    return Plan(options.plan, options.synthesis, options.output, rows)


def _metadata_of(options: RunOptions, store: RunStore) -> AgentMetadata | None:
    """Of the agent that the run continues, if that stays."""
    if options.order is not None:
        metadata = options.order.metadata
    elif options.thread is not None:
        thread = options.thread
        transactions = store.transactions()
        row = transactions.do(lambda db: threads.thread_row(db, thread))
        metadata = None if row is None else row.metadata
    else:
        return None
    is_own = metadata is None or metadata.kind is AgentKind.EPHEMERAL
    return None if is_own else metadata


def _run_id(options: RunOptions, take: Take | None) -> str:
    """The id that a run has already; empty for a new one."""
    if options.recovering is not None:
        return options.recovering.head.run_id
    return "" if take is None else take.run_id


def _kept(
    options: RunOptions, store: RunStore, take: Take | None
) -> tuple[SupportsCommit | None, Past | None]:
    """What keeps a run, and what answers it."""
    if (going_on := options.recovering) is not None:
        return going_on.journal, going_on.past
    journal = store.journal()
    if take is None:
        return journal, None
    if journal is None or take.journal is None:
        return journal or take.journal, take.past
    from agentnb.cassette.journal import TeeJournal

    return TeeJournal(journal, take.journal), take.past


def _check(options: RunOptions, settings: Settings, config: Config, given: Set[str]) -> None:
    if options.plan is not None and settings.max_depth < 1:
        raise ValueError(
            "`spawn_all` starts sub-agents, so `max_depth` must be at least 1, not "
            f"{settings.max_depth}: give it to the session or to this call."
        )
    check_limits(config, config.session.keys() - given - options.given.keys())


def _check_fits(
    options: RunOptions, settings: Settings, rates: Mapping[str, Rate], labels: Sequence[str]
) -> None:
    """Check a table without a budget of its own against the session's.

    Args:
        options: What the run is started with.
        settings: Its settings.
        rates: Prices, if a budget counts money.
        labels: The models of the judges.

    Raises:
        ValueError: See `agentnb.mapping.fitting.check_fits`.
    """
    table, plan = options.table, options.plan
    if table is None or plan is None or "budget" in options.given:
        return
    total, unit = budget_amount(settings.budget)
    of_judges = [] if unit == TOKENS else [rates[each] for each in labels if each in rates]
    if unit != TOKENS and len(of_judges) < len(labels):
        return  # a replay, which takes the prices of its recording
    known = 0 if options.answers is None else len(options.answers)
    check_fits(
        expected(
            plan.tasks,
            table.system,
            options.output,
            known=known,
            judges=table.judges,
            documents=table.documents,
        ),
        total,
        of_judges,
    )


def _agent_context(settings: Settings, label: str, instructions: str) -> AgentContext:
    return AgentContext(
        agent_config=AgentConfig(model=label, max_output_tokens=settings.max_output_tokens),
        soul_content=settings.soul,
        identity_content=settings.identity,
        user_content=settings.user,
        recalled_memories=tuple(settings.memories),
        system_prompt=instructions,
    )


def _with_task_tools(tools: Sequence[Tool], board: Board) -> tuple[Tool, ...]:
    """The tools of an agent that stays: it can always read, note and complete its tasks."""
    return tuple({tool.spec.name: tool for tool in (*tools, *task_tools(board))}.values())


async def _unless_cancelled(work: Coroutine[Any, Any, None], cancellation: Cancellation) -> None:
    """Await something; end it early if the run is cancelled meanwhile."""
    doing = asyncio.ensure_future(work)
    cancelled = asyncio.ensure_future(cancellation.root_cancelled())
    try:
        await asyncio.wait((doing, cancelled), return_when=asyncio.FIRST_COMPLETED)
    finally:
        doing.cancel()
        cancelled.cancel()
        await asyncio.wait((doing, cancelled))
    if not doing.cancelled():
        doing.result()


def _engine_of(engine: Engine | str | None, config: Config) -> Engine | None:
    if not isinstance(engine, str):
        return engine
    from agentnb.cluster.of_file import engine_of_file  # only who uses a cluster has Dask

    return engine_of_file(engine, config)
