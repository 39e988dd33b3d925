"""How the agents of a run may delegate: by a spawn block, by tools, or by both.

What the tools need to know of profiles and pools is put together here, and what does not fit is
said before a run begins.
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
from agentnb.tools.registry import meant_by
from agentnb.tools.spawn import NAMES, SpawnSettings, spawn_tools
from agentnb.tools.workspace import NAME as WORKSPACE

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
) -> Delegation:
    """How the agents of one run delegate.

    Args:
        kind: `block`, `tools` or `both`.
        nested: Whether sub-agents get the spawn tools, too.
        tools: What the agents of the run may call besides.
        named: What a profile may name, too: the tools of the session.
        config: Has the profiles.
        bootstrap_of: The bootstrap files of a profile, or of none, in this run.
        models: Who answers for the pools.
        max_concurrency: Of each model.

    Raises:
        ValueError: A tool of the run has the name of a spawn tool.
        ConfigError: A file that every sub-agent would be given cannot be read.
    """
    if kind == "block":
        return Delegation()
    known = {tool.spec.name: tool for tool in (*named, *tools)}
    for name in NAMES:
        if name in known:
            raise ValueError(
                f"The tool {literal(name)} has the name of one that starts sub-agents: give it "
                "another, by `agentnb.tool(function, name=...)`."
            )
    bootstrap_of(None)  # read now, and not when a model asks for a sub-agent
    settings = _settings(config, known.values(), bootstrap_of, models, max_concurrency)
    return Delegation(
        by_block=kind == "both",
        spawn_tools=spawn_tools(settings),
        nested=nested,
        profiles=available_profiles_block(settings.profiles.values()),
    )


def _settings(
    config: Config,
    known: Collection[Tool],
    bootstrap_of: BootstrapOf,
    models: Models,
    max_concurrency: int,
) -> SpawnSettings:
    """What the spawn tools of one run know of the project.

    A profile that cannot be used is no concern of a run that does without it: it is not offered,
    and a model that asks for it all the same is told why. Its models are looked up only then.
    """
    # By its name alone: a model is told of it, and not where it lies on a person's machine.
    as_told = replace(config, source=Path(config.source).name)
    tools, broken = dict[str, Sequence[Tool] | None](), dict[str, str]()
    for name in (*config.profiles, *config.broken):
        try:
            tools[name] = tools_of_profile(as_told.profile(name), known, as_told)
        except ConfigError as error:
            broken[name] = str(error)

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
        tools_of=lambda profile: tools[profile.name],
        bootstrap_of=bootstrap_of,
    )


def tools_of_profile(
    profile: Profile, known: Iterable[Tool], config: Config
) -> tuple[Tool, ...] | None:
    """The tools that a profile names, each once; `None` when it leaves that to its parent.

    Args:
        profile: One of the settings file's.
        known: What may be named, besides `workspace`.
        config: Says where the profile stands.

    Raises:
        ConfigError: It names a tool that is not known. Those that start sub-agents never are.
    """
    if profile.tools is None:
        return None
    by_name = {tool.spec.name: tool for tool in known}
    found, mistakes = dict[str, Tool](), list[ConfigMistake]()
    for at, name in enumerate(profile.tools):
        meant = meant_by(name, by_name)
        found.update((tool.spec.name, tool) for tool in meant)
        if not meant:
            mistakes.append(_mistake(config, profile, at, _no_tool(name, by_name)))
    if mistakes:
        raise ConfigError(config.source, mistakes)
    return tuple(found.values())


def _mistake(config: Config, profile: Profile, at: int, what: str) -> ConfigMistake:
    key = f"tools.spawn.profiles.{profile.name}.tools[{at}]"
    return ConfigMistake(key, config.lines.get(key), what)


_NOT_NAMED = "{} is not named here: `Session(nested_spawn=True)` gives it to sub-agents."


def _no_tool(name: str, known: Iterable[str]) -> str:
    if name in NAMES:
        return _NOT_NAMED.format(literal(name))
    names = map(literal, dict.fromkeys([*known, WORKSPACE]))
    return (
        f"This run has no tool {literal(name)} (known: {listed(names)}). Give it to the session, "
        "`Session(tools=[...])`, or to the cell, `%%spawn --tools`, or take it out here."
    )
