"""Which settings files a person trusts, and what an untrusted one would send where.

A settings file lies beside a notebook, and both may come from a stranger. Its servers and key
variables count at once only for this machine's own addresses, its `session` only as long as no run
may spend more by it, and no program that it names is started. The rest counts once the person
trusts the file: by its path and content, kept in their own configuration folder. Naming a file in
code is not trust: the code may come from the stranger, too.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from agentnb.config import Config
from agentnb.config.config import FILE_NAME, LOCAL
from agentnb.core.secrets import without_user
from agentnb.core.text import literal, one_line, visible
from agentnb.errors import TrustNotKept, UntrustedSettings
from agentnb.files import read_file, replace_file
from agentnb.modes import REPLAY
from agentnb.providers.openai_address import base_url_in_force
from agentnb.settings import SETTINGS

VARIABLE = "AGENTNB_TRUST"
"""Environment variable: `1` trusts every file."""
_MOST_BYTES = 100_000

# Matches everything up to the path. Forms that parsers read differently (a backslash, a user, a
# number in another base) do not count as this machine.
_LOOPBACK = re.compile(
    r"https?://(?P<host>localhost|[0-9]+(?:\.[0-9]+){3}|\[::1\])(?::[0-9]{1,5})?(?:/.*)?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Sending:
    """What would be sent because of a settings file, and where."""

    base_url: str
    """The effective one: the file's, the environment's, or OpenAI's own."""
    variables: tuple[str, ...]
    """Environment variables whose values are sent as a key or as headers."""

    @property
    def what(self) -> str:
        """What would be sent, as the subject of a sentence."""
        values = " and ".join(f"`{one_line(name, limit=100)}`" for name in self.variables)
        return f"every conversation with an `openai/...` model, and the value of {values}"

    @property
    def where(self) -> str:
        """The server, safe to show in an error."""
        return one_line(without_user(self.base_url), limit=300)

    @property
    def stays_here(self) -> bool:
        """Whether the server is on this machine, in a plain form."""
        return is_loopback(self.base_url)


def is_loopback(base_url: str) -> bool:
    """Whether an address is unambiguously `localhost`, `127.x.x.x` or `[::1]`."""
    match = _LOOPBACK.fullmatch(base_url)
    if match is None:
        return False
    host = match["host"].lower()
    if host in ("localhost", "[::1]"):
        return True
    try:
        return ipaddress.IPv4Address(host).is_loopback  # refuses octal numbers
    except ValueError:
        return False


def sending_of(config: Config) -> Sending | None:
    """What a settings file would send where; `None` if it names no server and no key variable."""
    server = config.openai
    if not config.digest or not (server.base_url or server.api_key_env):
        return None
    variables = [server.api_key_env or "OPENAI_API_KEY"]
    if os.environ.get("OPENAI_CUSTOM_HEADERS"):
        variables.append("OPENAI_CUSTOM_HEADERS")
    return Sending(base_url_in_force(server.base_url, os.environ), tuple(variables))


def allowed_server(config: Config) -> dict[str, str]:
    """The settings of the OpenAI-compatible server, as arguments of its provider.

    Raises:
        UntrustedSettings: The file is not trusted and names a server on another machine.
    """
    server, sending = config.openai, sending_of(config)
    arguments = {"base_url": server.base_url, "api_key_env": server.api_key_env}
    if sending is not None and sending.stays_here:
        # Keep the address that was checked, in case the environment variable changes later.
        arguments["base_url"] = sending.base_url
    elif sending is not None and not is_trusted(config):
        raise UntrustedSettings(
            config.source, what=sending.what, where=sending.where, allow=_how_to_allow(config)
        )
    return {name: value for name, value in arguments.items() if value}


def costly_settings(config: Config, names: Collection[str] = tuple(SETTINGS)) -> str:
    """The settings of a file that let a run spend more, in words; empty if there are none.

    Args:
        config: The file's settings.
        names: The settings to check.
    """
    if not config.digest:
        return ""
    return " and ".join(
        f"`session.{name}: {literal(value, 40)}`"
        for name, value in config.session.items()
        if name in names and SETTINGS[name].needs_trust(value)
    )


def check_limits(config: Config, names: Collection[str]) -> None:
    """Refuse settings of an untrusted file that let a run spend more.

    Args:
        config: The file's settings.
        names: The settings that a run takes from it.

    Raises:
        UntrustedSettings: There is such a setting.
    """
    costly = costly_settings(config, names)
    if costly and not is_trusted(config):
        raise UntrustedSettings(config.source, what=costly, allow=_how_to_allow(config))


def asking_mode(config: Config) -> str:
    """What the mode of a file does that needs trust, as a clause; empty if it does nothing."""
    return "" if config.mode in (None, REPLAY) else f"models are asked (`mode: {config.mode}`)"


def check_mode(config: Config, mode: str) -> None:
    """Refuse a mode of an untrusted file by which models are asked, or a cassette is written.

    Args:
        config: The file's settings.
        mode: Of the runs, as the file says it or for the cassette that it names.

    Raises:
        UntrustedSettings: The mode is not `replay`.
    """
    if mode != REPLAY and not is_trusted(config):
        key, does = "cassette", f"runs would be recorded in {literal(config.cassette, 60)}"
        if config.mode == mode:
            key, does = "mode", f"models would be asked (`mode: {mode}`)"
        allow = _how_to_allow(config)
        raise UntrustedSettings(config.source, does=does, allow=allow, key=key)


def check_prices(config: Config, models: Sequence[str]) -> None:
    """Refuse prices of an untrusted file by which a budget of money would last for more calls.

    Args:
        config: The file's settings.
        models: Those with such a price.

    Raises:
        UntrustedSettings: There is one.
    """
    if models and not is_trusted(config):
        what = f"`prices.{visible(models[0], 80)}` (lower than is known)"
        raise UntrustedSettings(config.source, what=what, allow=_how_to_allow(config))


def foreign_servers(config: Config, names: Collection[str] | None = None) -> str:
    """The MCP servers of a file that need trust, in words; empty if there are none.

    That is what starts a program, and what is on another machine.

    Args:
        config: The file's settings.
        names: The servers to check; all when left out.
    """
    if not config.digest:
        return ""
    shown = []
    for entry in config.mcp.values():
        if names is not None and entry.name not in names:
            continue
        if entry.command:
            line = literal(shlex.join((entry.command, *entry.args)), 160)
            shown.append(f"{line} would be started (`tools.mcp.{entry.name}`)")
        elif not is_loopback(entry.url):
            where = one_line(without_user(entry.url), limit=160)
            shown.append(f"what agents ask of it would go to {where} (`tools.mcp.{entry.name}`)")
    return "; ".join(shown)


def check_servers(config: Config, names: Collection[str]) -> None:
    """Refuse the MCP servers of an untrusted file.

    Args:
        config: The file's settings.
        names: Those that a run needs.

    Raises:
        UntrustedSettings: One of them needs trust.
    """
    does = foreign_servers(config, names)
    if does and not is_trusted(config):
        allow = _how_to_allow(config)
        raise UntrustedSettings(config.source, does=does, allow=allow, key="tools.mcp")


def foreign_engines(config: Config, names: Collection[str] | None = None) -> str:
    """The engines of a file that need trust, in words; empty if there are none.

    Args:
        config: The file's settings.
        names: The engines to check; all when left out.
    """
    if not config.digest:
        return ""
    return "; ".join(
        f"conversations and the code of tools would go to {one_line(entry.dask, limit=160)} "
        f"(`engines.{entry.name}`)"
        for entry in config.engines.values()
        if entry.dask != LOCAL and (names is None or entry.name in names)
    )


def check_engine(config: Config, name: str) -> None:
    """Refuse an untrusted file's engine that is not a local cluster.

    Raises:
        UntrustedSettings: It needs trust.
    """
    does = foreign_engines(config, [name])
    if does and not is_trusted(config):
        allow = _how_to_allow(config)
        raise UntrustedSettings(config.source, does=does, allow=allow, key=f"engines.{name}")


def _how_to_allow(config: Config) -> str:
    file = "" if config.source == FILE_NAME else f" {shlex.quote(config.source)}"
    return (
        f"allow it by `%agentnb trust{file}`, or in a terminal by `python -m agentnb trust "
        f"{shlex.quote(config.source)}` (`{VARIABLE}=1` in the environment allows every file)"
    )


# -- stored trust ---------------------------------------------------------------------------------


def is_trusted(config: Config) -> bool:
    """Whether the person trusts the settings file, with the content that was read."""
    if os.environ.get(VARIABLE) == "1":
        return True
    try:
        kept = read_file(_mark_of(config), max_bytes=_MOST_BYTES, only_own=True)
    except (OSError, ValueError):
        return False
    return kept == _mark(config).encode()


def trust(config: Config) -> str:
    """Trust a settings file until its content changes.

    Returns:
        What that allows, in a sentence or two.

    Raises:
        TrustNotKept: The trust cannot be saved.
    """
    name, sending, costly = Path(config.source).name, sending_of(config), costly_settings(config)
    allowed = []
    if sending is not None and not sending.stays_here:
        allowed.append(f"{sending.what} may go to {sending.where}")
    if costly:
        allowed.append(f"a run may spend more ({costly})")
    if does := foreign_servers(config):
        allowed.append(f"MCP servers may be used ({does})")
    if does := foreign_engines(config):
        allowed.append(f"engines may be used ({does})")
    if does := asking_mode(config):
        allowed.append(does)
    if config.cassette:
        allowed.append(f"runs may be recorded in {literal(config.cassette, 60)}")
    if config.prices:
        allowed.append("budgets in dollars may use its `prices`")
    if not allowed:
        return f"{name} names only servers on this machine, which need no trust. Nothing was saved."
    try:
        file = _mark_of(config)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, _mark(config), mode=0o600)
    except OSError as error:
        raise TrustNotKept(config.source, error.strerror or type(error).__name__) from error
    if not is_trusted(config):
        raise TrustNotKept(config.source, "files written there belong to another user")
    return f"{name} is trusted: {'; '.join(allowed)}. A changed file needs trust again."


def trust_folder() -> Path:
    """The folder of the files that record trust, whether it exists or not.

    Raises:
        OSError: The person has no configuration folder.
    """
    return _own_folder() / "agentnb" / "trusted"


def _mark_of(config: Config) -> Path:
    """Path of the file that records the trust in a settings file.

    Raises:
        OSError: The person has no configuration folder.
    """
    return trust_folder() / sha256(os.fsencode(config.file)).hexdigest()


def _mark(config: Config) -> str:
    """Content of that file: the hash of the settings as read, and their path."""
    return f"{config.digest}  {json.dumps(str(config.file))}\n"


def _own_folder() -> Path:
    """The person's configuration folder. A relative path does not count."""
    home = Path("~")
    with suppress(RuntimeError):  # there is none
        home = home.expanduser()
    usual = home / ".config"
    if sys.platform == "darwin":
        usual = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        usual = Path(os.environ.get("APPDATA", ""))
    named = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    folder = named if named.is_absolute() else usual
    if not folder.is_absolute():
        raise OSError(errno.ENOENT, "There is no home folder")
    return folder
