"""How the agents of a run may delegate: what is said in code, and what the settings file says.

By a spawn block, by tools, or by both. What the tools need to know of profiles and pools is put
together here, and what does not fit is said before a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentnb.config import Config
from agentnb.core.errors import ConfigError, ConfigMistake
from agentnb.core.jobs import Delegation
from agentnb.core.profiles import available_profiles_block
from agentnb.core.protocols import ModelChoice, Tool
from agentnb.models import Models, Unsaid, gate_of
from agentnb.tools.spawn import NAMES, SpawnSettings, spawn_tools

KINDS = ("block", "tools", "both")
DEFAULT_DELEGATION = Unsaid("block")


def kind_of(said: str, config: Config) -> str:
    """`block`, `tools` or `both`: what was said in code, else what the settings file says.

    Raises:
        ValueError: It is none of them.
    """
    if said not in KINDS:
        raise ValueError(f"`delegation` must be 'block', 'tools' or 'both', not {said!r}.")
    if isinstance(said, Unsaid):
        return "both" if config.spawn_enabled else "block"
    return said


def delegation_of(
    kind: str,
    *,
    nested: bool,
    tools: Sequence[Tool],
    named: Sequence[Tool],
    config: Config,
    models: Models,
    max_concurrency: int,
) -> Delegation:
    """How the agents of one run delegate.

    Args:
        kind: See `kind_of`.
        nested: Whether sub-agents get the spawn tools, too.
        tools: What the agents of the run may call besides.
        named: What a profile may name, too: the tools of the session.
        config: Has the profiles.
        models: Who answers for the pools.
        max_concurrency: Of each model.

    Raises:
        ValueError: A tool of the run has the name of a spawn tool.
        ConfigError: A profile names a tool that the run does not have, or a file that every
            sub-agent would be given cannot be read.
    """
    if kind == "block":
        return Delegation()
    known = {tool.spec.name: tool for tool in (*named, *tools)}
    for name in NAMES:
        if name in known:
            raise ValueError(
                f"The tool {name!r} has the name of one that starts sub-agents: give it another, "
                "by `agentnb.tool(function, name=...)`."
            )
    config.bootstrap_of(None)
    choices = {}
    for profile in config.profiles.values():
        if profile.models:
            provider, label = models.resolve(profile.models)
            choices[profile.name] = ModelChoice(provider, label, gate_of(provider, max_concurrency))
    settings = SpawnSettings(
        profiles=config.profiles,
        models=choices,
        profile_tools=_tools_of_profiles(config, known),
        bootstrap_of=config.bootstrap_of,
    )
    return Delegation(
        by_block=kind == "both",
        spawn_tools=spawn_tools(settings),
        nested=nested,
        profiles=available_profiles_block(config.profiles.values()),
    )


def _tools_of_profiles(config: Config, known: Mapping[str, Tool]) -> dict[str, tuple[Tool, ...]]:
    """By profile, the tools that it names."""
    mistakes = []
    for profile in config.profiles.values():
        for at, name in enumerate(profile.tools or ()):
            if name not in known:
                key = f"tools.spawn.profiles.{profile.name}.tools[{at}]"
                mistakes.append(ConfigMistake(key, config.lines.get(key), _no_tool(name, known)))
    if mistakes:
        raise ConfigError(config.source, mistakes)
    return {
        profile.name: tuple(known[name] for name in profile.tools)
        for profile in config.profiles.values()
        if profile.tools is not None
    }


def _no_tool(name: str, known: Mapping[str, Tool]) -> str:
    if name in NAMES:
        return f"{name!r} is not named here: `Session(nested_spawn=True)` gives it to sub-agents."
    listed = ", ".join(repr(each) for each in known) or "none"
    return (
        f"This run has no tool {name!r} (known: {listed}). Give it to the session, "
        "`Session(tools=[...])`, or take it out here."
    )
