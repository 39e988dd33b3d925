"""The settings of a project that are in force, as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from agentnb.config.profile import NamedText, Profile
from agentnb.config.project_file import WatchedFile, read_project_file
from agentnb.core.errors import UnknownModel
from agentnb.core.shown import listed
from agentnb.core.text import literal
from agentnb.errors import ConfigError, ConfigMistake, UnknownPool, UnknownProfile

FILE_NAME = "agentnb.yaml"
DEFAULT_BOOTSTRAP = ("AGENTS.md", "ENVIRONMENT.md")


@dataclass(frozen=True, slots=True)
class OpenAIServer:
    """Where an OpenAI-compatible server is; what is `None` comes from the environment."""

    base_url: str | None = None
    api_key_env: str | None = None
    """The environment variable that holds its key."""


@dataclass(frozen=True)
class Config:
    """What `agentnb.yaml` says, its files read; without a file, that nothing is said."""

    folder: Path
    """The project folder: that of the file, else the working directory when it was made."""
    source: str = ""
    """The file as it was named; empty when there is none."""
    spawn_enabled: bool | None = None
    """`tools.spawn.enabled`; `None` when it is not said."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """By name, in the order of the file; without those in `broken`."""
    broken: Mapping[str, tuple[ConfigMistake, ...]] = field(default_factory=dict)
    """Profiles that cannot be used, and what is wrong with them."""
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`provider/model`, in the order in which they are asked."""
    default_pool: str | None = None
    openai: OpenAIServer = OpenAIServer()
    session: Mapping[str, Any] = field(default_factory=dict)
    """`session`: the settings that are said there, checked."""
    digest: str = field(default="", repr=False, compare=False)
    """SHA-256 of the file's text as it was read; empty where no file was."""
    watched: tuple[WatchedFile, ...] = field(default=(), repr=False, compare=False)
    """All files that were read for it, or would have been."""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Where each key stands, for what is found to be wrong later."""

    @property
    def file(self) -> Path:
        """Where the file is, or would be."""
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
            UnknownProfile: There is none of that name.
            ConfigError: There are mistakes in it.
            ValueError: It is no name.
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
        """The models that a name, or several, stand for; `pool:NAME` stands for a pool's.

        Raises:
            UnknownPool: There is none of that name.
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
        """`AGENTS.md` and `ENVIRONMENT.md` of the project folder, where they are there, as of now.

        Read when they are asked for: a project may hold an `AGENTS.md` for other tools, and
        nothing is wrong with it as long as no agent is given it.

        Raises:
            ConfigError: One is there and cannot be read.
        """
        return tuple(self._read_defaults())

    def _read_defaults(self) -> Iterator[NamedText]:
        for name in DEFAULT_BOOTSTRAP:
            if (self.folder / name).exists():
                try:
                    yield read_project_file(self.folder, name)
                except ValueError as error:
                    advice = "Or give each profile its own `bootstrap_files`."
                    raise ConfigError(
                        name, [ConfigMistake("", None, f"{error} {advice}")]
                    ) from error

    def bootstrap_of_run(self) -> Callable[[Profile | None], tuple[NamedText, ...]]:
        """Who tells the bootstrap files of a profile, or of an agent without one, in one run.

        The default ones are read when it is first asked for them, and only then: all agents of the
        run are given the same texts, and those of the next run what is written by then. It raises
        `ConfigError` as `default_bootstrap` does.
        """
        default = cache(lambda: self.default_bootstrap)

        def bootstrap_of(profile: Profile | None) -> tuple[NamedText, ...]:
            own = None if profile is None else profile.bootstrap
            return default() if own is None else own

        return bootstrap_of

    def has_changed(self) -> bool:
        """Whether the file, or one that its profiles name, says something else than it said."""
        return any(file.has_changed() for file in self.watched)

    def check_models(self, check: Callable[[str], object]) -> None:
        """Have whoever knows the providers look at the models of all pools.

        Args:
            check: Raises `UnknownModel` for a model that nobody answers to.

        Raises:
            ConfigError: There are such models; it names all of them.
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
