"""Checks the set-up and says how to fix it: `python -m agentnb doctor`, `%agentnb doctor`.

Each module reads this machine in functions named `read_…`, and decides in functions named
`check_…`, which take what was read. Nothing is changed, no network is used, no key's value is
shown, and of the packages that are checked only Jupyter's finders of kernels and of folders are
imported. Whether a folder can be written is tried by a temporary file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentnb.config import Config
from agentnb.core.shown import listed
from agentnb.core.text import short_reason
from agentnb.default_session import config_at_hand, session_at_hand
from agentnb.doctor.finding import Finding, as_json, as_text, fault, has_fault
from agentnb.doctor.jupyter import check_front_ends, check_kernel, read_jupyter
from agentnb.doctor.packages import (
    Installation,
    check_agentnb,
    check_extras,
    check_packages,
    check_python,
    read_installation,
)
from agentnb.doctor.page import check_variables, read_page
from agentnb.doctor.project import (
    check_keys,
    check_models,
    check_settings,
    check_store,
    check_trust,
    check_trust_folder,
    keys_present,
    needs_trust,
    no_file,
    read_store,
)
from agentnb.doctor.runs import check_demo, check_mode, check_servers
from agentnb.errors import ConfigError
from agentnb.repeat import Repeat
from agentnb.settings import Settings
from agentnb.store.place import AUTO, place_of
from agentnb.tools.mcp.server import McpServer, server_of_file
from agentnb.trust import is_trusted, trust_folder
from agentnb.views.front_end import is_notebook

__all__ = ["Examination", "examine"]


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings of one examination."""

    findings: tuple[Finding, ...]
    versions: Mapping[str, str]
    """Of the packages that agentnb may use, as far as they are installed."""

    @property
    def has_fault(self) -> bool:
        """Whether anything does not work."""
        return has_fault(self.findings)

    @property
    def text(self) -> str:
        """The findings for a person."""
        return as_text(self.findings)

    @property
    def json(self) -> str:
        """The findings for a machine."""
        return as_json(self.findings, self.versions)


def examine() -> Examination:
    """Examine this process's set-up: its environment, working directory and user files."""
    in_kernel = is_notebook()
    version = getattr(sys.modules.get("agentnb"), "__version__", "")
    here = read_installation(version, in_kernel=in_kernel)
    found: list[Finding] = []

    def look(name: str, check: Callable[[], Iterable[Finding]]) -> None:
        """Add what a check finds; one that breaks on this machine is a finding itself."""
        try:
            found.extend(check())
        except Exception as error:
            why = f"{type(error).__name__}: {short_reason(error)}"
            found.append(fault(name, f"cannot be checked: {why}", "report this line as a bug"))

    look("python", lambda: check_python(here))
    look("agentnb", lambda: check_agentnb(here))
    look("packages", lambda: check_packages(here))
    read: Config | ConfigError | None = None
    try:
        read = config_at_hand()
    except ConfigError as error:
        read = error
    except ImportError:  # of what reads the file: `packages` has told
        pass
    config = read if isinstance(read, Config) else None
    look("extra", lambda: check_extras(here, {} if config is None else _extras_of(config)))
    look("kernel", lambda: _of_jupyter(here, in_kernel=in_kernel))
    look("keys", lambda: check_keys(config, keys_present()))
    if read is not None:
        look("settings", lambda: check_settings(read))
    if config is not None:
        look("models", lambda: check_models(config))
        look("trust", lambda: _of_trust(config))
    look("trust folder", _of_trust_folder)
    look("mode", lambda: check_mode(lambda: _repeat(config), in_kernel=in_kernel))
    look("demo", check_demo)
    look("server", lambda: check_servers(_servers(config)))
    look("store", lambda: _of_store(config))
    look("display", check_variables)
    if in_kernel:
        look("live views", lambda: read_page(here))
    return Examination(tuple(found), here.versions)


def _of_jupyter(here: Installation, *, in_kernel: bool) -> Iterable[Finding]:
    jupyter = read_jupyter()
    yield from check_kernel(jupyter, here)
    yield from check_front_ends(jupyter, here, in_kernel=in_kernel)


def _of_trust(config: Config) -> Iterable[Finding]:
    needed = needs_trust(config)
    return check_trust(config, needed, is_trusted=bool(needed) and is_trusted(config))


def _of_trust_folder() -> Iterable[Finding]:
    try:
        folder = trust_folder()
    except OSError:
        return check_trust_folder(None)
    return check_trust_folder(folder)


def _repeat(config: Config | None) -> Repeat:
    session = session_at_hand()
    settings = Settings() if session is None else session.settings
    return Repeat.of(settings, config or Config(Path()))


def _servers(config: Config | None) -> Iterable[McpServer]:
    session = session_at_hand()
    if session is not None:
        return [each for each in session.tools if isinstance(each, McpServer)]
    if config is None:
        return []
    return [server_of_file(each, config.folder) for each in config.mcp.values()]


def _of_store(config: Config | None) -> Iterable[Finding]:
    from agentnb.store.schema import VERSION

    session = session_at_hand()
    if session is not None:
        path = session.store.path
    else:
        folder = config.folder if config is not None and config.source else None
        try:
            path = place_of(AUTO, config_folder=folder, environment=os.environ, cwd=Path.cwd())
        except OSError as error:  # a name that is too long, for example
            return [no_file(error)]
    return check_store(read_store(path), newest=VERSION)


def _extras_of(config: Config) -> dict[str, str]:
    """What of a settings file needs which extra, in words."""
    wanted = {}
    if config.mcp:
        wanted["mcp"] = f"`tools.mcp` ({listed(config.mcp)})"
    if config.engines:
        wanted["dask"] = f"`engines` ({listed(config.engines)})"
    pools = [name for name, models in config.pools.items() if _names_openai(models)]
    if config.openai.base_url or config.openai.api_key_env:
        wanted["openai"] = "`llm.providers.openai`"
    elif pools:
        wanted["openai"] = f"`llm.pools` ({listed(pools)})"
    return wanted


def _names_openai(models: Iterable[str]) -> bool:
    return any(model.startswith(("openai/", "openai:")) for model in models)
