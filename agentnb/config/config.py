"""`Config`: the settings of a project as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from agentnb.config.profile import NamedText, Profile
from agentnb.config.project_file import WatchedFile, read_project_file
from agentnb.core.errors import UnknownModel
from agentnb.core.shown import listed
from agentnb.core.text import literal
from agentnb.errors import ConfigError, ConfigMistake, UnknownPool, UnknownProfile

LOCAL = "local"
"""In place of the address of an engine's scheduler."""
FILE_NAME = "agentnb.yaml"
DEFAULT_BOOTSTRAP = ("AGENTS.md", "ENVIRONMENT.md")


@dataclass(frozen=True, slots=True)
class OpenAIServer:
    """Address and key variable of an OpenAI-compatible server; `None` means the environment's."""

    base_url: str | None = None
    api_key_env: str | None = None
    """The environment variable that holds its key."""


@dataclass(frozen=True, slots=True)
class McpEntry:
    """One MCP server of the file, under `tools.mcp`."""

    name: str
    command: str = ""
    """The program; empty for a server that is reached by HTTP."""
    args: tuple[str, ...] = ()
    url: str = ""
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Environment variables of the program. `${NAME}` refers to a variable of this process."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Headers of requests, as in `env`."""
    approval: bool | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine of the file, under `engines`."""

    name: str
    dask: str
    """The address of a scheduler, or `local` for a cluster of this machine's processes."""
    workers: int | None = None
    """Of a local cluster; `None` for one for each core."""
    threads: int = 1
    """Of each worker of a local cluster."""
    local_tools: tuple[str, ...] = ()
    """Names of tools that stay in this process."""


@dataclass(frozen=True)
class Config:
    """The content of `agentnb.yaml` and the files it names; all defaults without a file."""

    folder: Path
    """The project folder: the file's, or the working directory when this value was made."""
    source: str = ""
    """The file as it was named; empty if there is none."""
    spawn_enabled: bool | None = None
    """`tools.spawn.enabled`; `None` if not set."""
    approval: tuple[str, ...] = ()
    """Names of tools that need approval in every run: `tools.approval`."""
    mcp: Mapping[str, McpEntry] = field(default_factory=dict)
    """MCP servers by name, in the order of the file: `tools.mcp`."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Usable profiles by name, in the order of the file."""
    broken: Mapping[str, tuple[ConfigMistake, ...]] = field(default_factory=dict)
    """Mistakes of the other profiles, by name."""
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Models (`provider/model`) of each pool, in the order in which they are tried."""
    default_pool: str | None = None
    openai: OpenAIServer = OpenAIServer()
    engines: Mapping[str, EngineEntry] = field(default_factory=dict)
    """By name, in the order of the file."""
    session: Mapping[str, Any] = field(default_factory=dict)
    """The settings under `session`, checked."""
    mode: str | None = None
    """Of runs, unless code, `%agentnb mode` or the environment says another."""
    cassette: str | None = None
    """Path of the cassette, from the project folder."""
    not_recorded: str = ""
    """What is said to a person of a call that is not recorded, in place of how to record it."""
    prices: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
    """US dollars per million tokens, by `provider/model` and kind of token."""
    digest: str = field(default="", repr=False, compare=False)
    """SHA-256 of the file's text as it was read; empty without a file."""
    watched: tuple[WatchedFile, ...] = field(default=(), repr=False, compare=False)
    """All files that were read, and those that were missing."""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Line of each key, for mistakes that are found later."""

    @property
    def file(self) -> Path:
        """Path of the file, whether it exists or not."""
        return self.folder / Path(self.source or FILE_NAME).name

    def __repr__(self) -> str:
        profiles, pools = (
            listed((literal(name, 64) for name in names), none="")
            for names in (self.profiles, self.pools)
        )
        return f"Config({self.source or 'no file'!r}, profiles=[{profiles}], pools=[{pools}])"

    def profile(self, name: str) -> Profile:
        """A profile by its name.

        Raises:
            UnknownProfile: The profile does not exist.
            ConfigError: The profile has mistakes.
            ValueError: `name` is not a string.
        """
        if not isinstance(name, str):
            raise ValueError(
                "`profile` must be the name of one profile (known: "
                f"{listed(literal(known, 64) for known in self.profiles)}), not {literal(name)}."
            )
        if name in self.broken:
            raise ConfigError(self._named, self.broken[name])
        if name not in self.profiles:
            raise UnknownProfile(name, known=tuple(self.profiles), source=self._named)
        return self.profiles[name]

    def models_of(self, model: str | Sequence[str]) -> tuple[str, ...]:
        """Expand one or several names to models; `pool:NAME` gives a pool's models.

        Raises:
            UnknownPool: The pool does not exist.
        """
        named = [model] if isinstance(model, str) else model
        return tuple(found for name in named for found in self._expanded(name))

    def _expanded(self, name: str) -> tuple[str, ...]:
        kind, mark, pool = name.strip().replace("/", ":", 1).partition(":")
        if kind != "pool" or not mark:
            return (name,)
        if pool not in self.pools:
            raise UnknownPool(pool, known=tuple(self.pools), source=self._named)
        return self.pools[pool]

    @property
    def default_bootstrap(self) -> tuple[NamedText, ...]:
        """`AGENTS.md` and `ENVIRONMENT.md` of the project folder, if they exist, as they are now.

        Read on access only: a project may have an `AGENTS.md` for other tools, which need not be
        valid as long as no agent gets it.

        Raises:
            ConfigError: A file exists and cannot be read.
        """
        return tuple(self._read_defaults())

    def _read_defaults(self) -> Iterator[NamedText]:
        for name in DEFAULT_BOOTSTRAP:
            if (self.folder / name).exists():
                try:
                    yield read_project_file(self.folder, name)
                except ValueError as error:
                    words = str(error).removesuffix(".")
                    what = f"{words}, or give each profile its own `bootstrap_files`."
                    raise ConfigError(name, [ConfigMistake("", None, what)]) from error

    def bootstrap_of_run(self) -> Callable[[Profile | None], tuple[NamedText, ...]]:
        """A function for one run, from a profile (or `None`) to its bootstrap files.

        It reads the default files once, when first needed: all agents of the run get the same
        texts, and the next run reads them again. It raises `ConfigError` as `default_bootstrap`
        does.
        """
        default = cache(lambda: self.default_bootstrap)

        def bootstrap_of(profile: Profile | None) -> tuple[NamedText, ...]:
            own = None if profile is None else profile.bootstrap
            return default() if own is None else own

        return bootstrap_of

    def has_changed(self) -> bool:
        """Whether the file, or a file that its profiles name, has changed since it was read."""
        return any(file.has_changed() for file in self.watched)

    def check_models(self, check: Callable[[str], object]) -> None:
        """Check the models of all pools.

        Args:
            check: Raises `UnknownModel` for a model without a provider.

        Raises:
            ConfigError: Names all models that `check` refuses.
        """
        mistakes = []
        for pool, models in self.pools.items():
            for at, model in enumerate(models):
                try:
                    check(model)
                except UnknownModel as error:
                    key = f"llm.pools.{pool}[{at}]"
                    mistakes.append(ConfigMistake(key, self.lines.get(key), str(error)))
        if mistakes:
            raise ConfigError(self._named, mistakes)

    @property
    def _named(self) -> str:
        return self.source or FILE_NAME
