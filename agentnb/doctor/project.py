"""Checks what a person set: keys, `agentnb.yaml`, trust in it, and the store."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from agentnb.config import Config
from agentnb.config.config import FILE_NAME
from agentnb.core.text import literal
from agentnb.doctor.finding import Finding, fault, ok, warn
from agentnb.errors import ConfigError, ConfigMistake
from agentnb.models import Models
from agentnb.store.place import VARIABLE
from agentnb.store.trouble import StoreTrouble

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")
"""The environment variables that the SDKs read a key from."""
_ELSEWHERE = f"set {VARIABLE} to a file in a folder that you may write to, or to `none`"
_LITTLE_BYTES = 50_000_000
"""Less room than this on the store's disk is soon used up."""


# -- keys -----------------------------------------------------------------------------------------


def check_keys(config: Config | None, present: Collection[str]) -> Iterator[Finding]:
    """Which keys are there, by name.

    Args:
        config: The settings file; `None` if it cannot be read.
        present: Environment variables that are set and not empty.
    """
    named = None if config is None else config.openai.api_key_env
    found = [name for name in dict.fromkeys((*KEYS, *filter(None, [named]))) if name in present]
    if named is not None and named not in present:
        yield fault(
            "keys",
            f"{FILE_NAME} names the key {named}, which is not set",
            f"set the environment variable {named}, and start the kernel again",
        )
    elif found:
        yield ok("keys", f"{', '.join(found)} (values are neither shown nor tested)")
    else:
        yield warn(
            "keys",
            "no key is set: only `demo`, and servers without a key, answer",
            "set ANTHROPIC_API_KEY or OPENAI_API_KEY before the kernel starts, or use "
            "`--model demo`",
        )


def keys_present() -> frozenset[str]:
    """Names of the environment variables that hold anything."""
    return frozenset(name for name, value in os.environ.items() if value.strip())


# -- the settings file ----------------------------------------------------------------------------


def check_settings(read: Config | ConfigError) -> Iterator[Finding]:
    """Whether the settings file can be used.

    Args:
        read: The file's settings, or its mistakes.
    """
    if isinstance(read, ConfigError):
        yield from _mistakes(read.source, read.mistakes)
        return
    for mistakes in read.broken.values():
        yield from _mistakes(read.source, mistakes)
    if not read.broken:
        found = f"no {FILE_NAME} here: all settings have their defaults"
        yield ok("settings", f"{read.source} can be used" if read.source else found)


def _mistakes(source: str, mistakes: Collection[ConfigMistake]) -> Iterator[Finding]:
    for each in mistakes:
        where = f", line {each.line}" if each.line else ""
        key = f"`{each.key}`: " if each.key else ""
        yield fault("settings", f"{key}{each.what}", f"edit {source or FILE_NAME}{where}")


def check_models(config: Config) -> Iterator[Finding]:
    """Whether each model of the file's pools has a provider, which every session needs.

    Args:
        config: The file's settings.
    """
    try:
        Models(None, provider=None, config=config, is_replay=True)
    except ConfigError as error:
        for each in error.mistakes:
            where = f", line {each.line}" if each.line else ""
            yield warn(
                "models",
                f"`{each.key}`: {each.what}",
                f"edit {error.source}{where}; or register the provider first, by "
                "`agentnb.register_provider`",
            )


def check_trust(config: Config, needs_it: str, *, is_trusted: bool) -> Iterator[Finding]:
    """Whether a settings file that needs trust has it.

    Args:
        config: The file's settings.
        needs_it: What trust would allow, in words; empty if there is nothing.
        is_trusted: Whether the person trusts the file.
    """
    if not config.source:
        return
    if not needs_it:
        yield ok("trust", f"{config.source} needs none")
    elif is_trusted:
        yield ok("trust", f"{config.source} is trusted")
    else:
        yield warn(
            "trust",
            f"{config.source} is not trusted: {needs_it}",
            f"if you want that: `%agentnb trust` in a notebook, or `python -m agentnb trust "
            f"{config.source}`",
        )


def needs_trust(config: Config) -> str:
    """What of a settings file counts only with trust, in words; empty if nothing does."""
    from agentnb import trust

    sending = trust.sending_of(config)
    kinds = trust.costly_settings, trust.foreign_servers, trust.foreign_engines, trust.asking_mode
    parts = [what(config) for what in kinds]
    if sending is not None and not sending.stays_here:
        parts.append(f"{sending.what} would go to {sending.where}")
    return "; ".join(filter(None, parts))


def check_trust_folder(folder: Path | None) -> Iterator[Finding]:
    """Whether trust can be kept.

    Args:
        folder: Where it is kept; `None` if the person has no configuration folder.
    """
    if folder is not None and can_be_written(folder):
        yield ok("trust folder", str(folder))
    else:
        yield warn(
            "trust folder",
            "there is no home folder"
            if folder is None
            else f"{literal(str(folder))} cannot be written",
            "set XDG_CONFIG_HOME to a folder that you may write to, or AGENTNB_TRUST=1 to trust "
            "every file",
        )


# -- the store ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreFile:
    """The store's file, as it was found. Looking changes nothing."""

    path: Path | None
    """`None` if runs are in memory only."""
    version: int | None = None
    """Of its schema; `None` if there is no file yet."""
    trouble: StoreTrouble | None = None
    """Why it, or any other, cannot be read."""
    can_be_written: bool = True
    free_bytes: int | None = None
    """Room on its disk, if that is known."""
    on_network: bool = False


def read_store(path: Path | None) -> StoreFile:
    """Look at a store's file, or at the place of one."""
    if path is None:
        return StoreFile(None)
    from agentnb.store.database import open_to_read, trouble_of
    from agentnb.store.place import is_network_home
    from agentnb.store.schema import NotOurs, migrate, version_of

    version, trouble = None, None
    try:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as trial:
            migrate(trial)  # an SQLite that lacks something says so here
        # An empty file is one that the first run fills.
        if path.exists() and (path.is_dir() or path.stat().st_size):
            with closing(open_to_read(path)) as db:
                version = version_of(db)
    except (sqlite3.Error, OSError, NotOurs, StoreTrouble) as error:
        trouble = trouble_of(path, error)
    above = nearest_there(path.parent)
    try:
        free = None if above is None else shutil.disk_usage(above).free
    except OSError:
        free = None
    is_writable = os.access(path, os.W_OK) if path.exists() else True
    return StoreFile(
        path,
        version=version,
        trouble=trouble,
        can_be_written=is_writable and can_be_written(path.parent),
        free_bytes=free,
        on_network=is_network_home(path),
    )


def check_store(store: StoreFile, *, newest: int) -> Iterator[Finding]:
    """Whether runs can be kept.

    Args:
        store: What was found.
        newest: The version of the schema that this code writes.
    """
    if store.path is None:
        yield ok("store", "none: runs are in memory only")
        return
    where = literal(str(store.path))
    if store.trouble is not None:
        yield fault("store", f"{where}: {store.trouble.what}", store.trouble.fix)
    elif not store.can_be_written:
        yield fault(
            "store",
            f"{where} cannot be written: runs would be in memory only",
            _ELSEWHERE,
        )
    elif store.free_bytes is not None and store.free_bytes < _LITTLE_BYTES:
        yield warn(
            "store",
            f"{where}: its disk has {store.free_bytes // 10**6} MB left",
            'make room, or delete old runs: `agentnb.prune("30d")`',
        )
    else:
        yield ok("store", f"{where}{_about(store, newest)}")


def no_file(error: OSError) -> Finding:
    """`AGENTNB_STORE` is no path of a file. A session cannot be made then."""
    return fault(
        "store",
        f"{VARIABLE} cannot be a file ({error.strerror or type(error).__name__})",
        _ELSEWHERE,
    )


def _about(store: StoreFile, newest: int) -> str:
    network = ", on a network" if store.on_network else ""
    if store.version is None:
        return f": created by the first run{network}"
    older = "" if store.version == newest else f", which the next run upgrades to {newest}"
    return f": opens, schema {store.version}{older}{network}"


def can_be_written(folder: Path) -> bool:
    """Whether a file can be made in a folder, or in one that can be made there.

    Makes one and removes it: what the system says of the rights is wrong for root, and on some file
    systems.
    """
    above = nearest_there(folder)
    if above is None or not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        return False
    try:
        with TemporaryFile(dir=above):
            return True
    except OSError:
        return False


def nearest_there(path: Path) -> Path | None:
    """A path, or the nearest one above it that exists."""
    for each in (path, *path.absolute().parents):
        try:
            if os.path.lexists(each):
                return each
        except ValueError:  # a zero byte
            return None
    return None
