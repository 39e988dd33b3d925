"""How the agents of a run may delegate: by a spawn block, by tools, or by both.

Collects what the spawn tools need (profiles, pools, tools) and reports conflicts before a run
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from agentnb.config import Config
from agentnb.config.profile import NamedText, Profile, available_profiles_block
from agentnb.core.protocols import Delegation, ModelChoice, Tool
from agentnb.core.shown import listed
from agentnb.core.text import literal
from agentnb.errors import ConfigError, ConfigMistake
from agentnb.models import Models, gate_of
from agentnb.tools.mcp.pool import RunServers
from agentnb.tools.registry import MAKERS, meant_by
from agentnb.tools.spawn import NAMES, SpawnSettings, spawn_tools
from agentnb.tools.toolset import COMES_WITH, TOOLSETS, Makers, tool_of_server

BootstrapOf = Callable[[Profile | None], Sequence[NamedText]]


def delegation_of(
    kind: str,
    *,
    nested: bool,
    tools: Sequence[Tool],
    named: Sequence[Tool],
    config: Config,
    bootstrap_of: BootstrapOf,
    models: Models,
    max_concurrency: int,
    makers: Makers = MAKERS,
    servers: RunServers | None = None,
) -> Delegation:
    """Build the delegation of one run.

    Args:
        kind: `block`, `tools` or `both`.
        nested: Whether sub-agents get the spawn tools, too.
        tools: The run's other tools.
        named: The session's tools, which a profile may also name.
        config: Holds the profiles.
        bootstrap_of: Returns the bootstrap files of a profile, or of `None`, in this run.
        models: Resolves the pools.
        max_concurrency: Open calls per model.
        makers: The toolsets that a profile may also name.
        servers: The MCP servers of the run; none when left out.

    Raises:
        ValueError: A tool of the run has the name of a spawn tool.
        ConfigError: A default bootstrap file cannot be read.
    """
    if kind == "block":
        return Delegation()
    known = {tool.spec.name: tool for tool in (*named, *tools)}
    for name in NAMES:
        if name in known:
            raise ValueError(
                f"The tool {literal(name)} has the name of one that starts sub-agents: rename "
                "it by `agentnb.tool(function, name=...)`."
            )
    bootstrap_of(None)  # an unreadable file fails here, not when a model starts a sub-agent
    settings = _settings(
        config, known.values(), makers, bootstrap_of, models, max_concurrency, servers
    )
    return Delegation(
        by_block=kind == "both",
        spawn_tools=spawn_tools(settings),
        nested=nested,
        profiles=available_profiles_block(settings.profiles.values()),
    )


def _settings(
    config: Config,
    known: Collection[Tool],
    makers: Makers,
    bootstrap_of: BootstrapOf,
    models: Models,
    max_concurrency: int,
    servers: RunServers | None,
) -> SpawnSettings:
    """The spawn tools' view of the project.

    A broken profile does not fail the run: it is not offered, and a model that names it anyway
    gets the reason. A profile's models are resolved when it is first used.
    """
    # The file's name without its folder: a model sees it in errors, but not the person's paths.
    named = replace(config, source=Path(config.source).name)
    tools, broken = dict[str, Sequence[Tool] | None](), dict[str, str]()
    gated: dict[str, frozenset[str]] = {}
    for name in (*config.profiles, *config.broken):
        try:
            gated[name] = gated_by_profile(named.profile(name), known, named)
            tools[name] = tools_of_profile(named.profile(name), known, named, makers)
        except ConfigError as error:
            broken[name] = str(error)
            continue
        if servers is not None:
            servers.want(tools[name] or ())

    @cache
    def model_of(profile: Profile) -> ModelChoice | None:
        if not profile.models:
            return None
        provider, label = models.resolve(profile.models)
        return ModelChoice(provider, label, gate_of(provider, max_concurrency))

    return SpawnSettings(
        profiles={name: config.profiles[name] for name in tools},
        broken=broken,
        model_of=model_of,
        tools_of=lambda profile: _connected(tools[profile.name], servers),
        gated_of=lambda profile: _all_gated(gated[profile.name], servers),
        bootstrap_of=bootstrap_of,
    )


def _connected(tools: Sequence[Tool] | None, servers: RunServers | None) -> Sequence[Tool] | None:
    """A profile's tools, with those of MCP servers in place of their names."""
    return tools if tools is None or servers is None else servers.tools(tools)


def _all_gated(names: frozenset[str], servers: RunServers | None) -> frozenset[str]:
    return names if servers is None else servers.gated(names)


def tools_of_profile(
    profile: Profile, known: Iterable[Tool], config: Config, makers: Makers = MAKERS
) -> tuple[Tool, ...] | None:
    """The tools that a profile names, each once; `None` if it names none and inherits its parent's.

    Args:
        profile: A profile of the settings file.
        known: Tools that may be named.
        config: Holds the profile's lines in the file.
        makers: The toolsets that may be named.

    Raises:
        ConfigError: The profile names an unknown tool. The spawn tools count as unknown.
    """
    if profile.tools is None:
        return None
    by_name = {tool.spec.name: tool for tool in known}
    found, mistakes = dict[str, Tool](), list[ConfigMistake]()
    for at, name in enumerate(profile.tools):
        meant = meant_by(name, by_name, makers)
        found.update((tool.spec.name, tool) for tool in meant)
        if not meant:
            key = f"tools.spawn.profiles.{profile.name}.tools[{at}]"
            mistakes.append(_mistake(config, key, _no_tool(name, [*by_name, *makers])))
    if mistakes:
        raise ConfigError(config.source, mistakes)
    return tuple(found.values())


def gated_by_file(known: Iterable[Tool], config: Config) -> frozenset[str]:
    """The names of the tools that need approval in every run, by `tools.approval`.

    Args:
        known: The tools of the session and of the run.
        config: The settings.

    Raises:
        ConfigError: A name fits no tool: with a typo it would let a tool through.
    """
    return _gated(config.approval, "tools.approval", known, config)


def gated_by_profile(profile: Profile, known: Iterable[Tool], config: Config) -> frozenset[str]:
    """The names of the tools that need approval from a profile's agents and all below them.

    Args:
        profile: A profile of the settings file.
        known: The tools of the session and of the run.
        config: Holds the profile's lines in the file.

    Raises:
        ConfigError: A name fits no tool.
    """
    key = f"tools.spawn.profiles.{profile.name}.approval"
    return _gated(profile.approval, key, known, config)


def _gated(names: Sequence[str], key: str, known: Iterable[Tool], config: Config) -> frozenset[str]:
    known = tuple(known)
    ours = {*NAMES, *COMES_WITH, *(name for members in TOOLSETS.values() for name in members)}
    alone = {name: (name,) for name in (*(tool.spec.name for tool in known), *sorted(ours))}
    meant = {**TOOLSETS, **alone}
    mistakes = [
        _mistake(config, f"{key}[{at}]", _nothing_to_approve(name, meant))
        for at, name in enumerate(names)
        if name not in meant and tool_of_server(name, known) is None
    ]
    if mistakes:
        raise ConfigError(config.source, mistakes)
    return frozenset(each for name in names for each in meant.get(name, (name,)))


def _nothing_to_approve(name: str, known: Iterable[str]) -> str:
    return (
        f"This run has no tool {literal(name)} (known: {listed(map(literal, known))}), and an "
        "unknown name would let a tool run without approval. Correct it, or remove it here."
    )


def _mistake(config: Config, key: str, what: str) -> ConfigMistake:
    return ConfigMistake(key, config.lines.get(key), what)


_NOT_NAMED = "{} is not named here: `Session(nested_spawn=True)` gives it to sub-agents."


def _no_tool(name: str, known: Iterable[str]) -> str:
    if name in NAMES:
        return _NOT_NAMED.format(literal(name))
    if name in COMES_WITH:
        return (
            f"This run has no tool {literal(name)}, which comes with {COMES_WITH[name]}. Start "
            "the run with it, or remove it here."
        )
    names = map(literal, dict.fromkeys(known))
    return (
        f"This run has no tool {literal(name)} (known: {listed(names)}). Give it to the session, "
        "`Session(tools=[...])`, or to the cell, `%%spawn --tools`, or remove it here."
    )
