"""The session that the magics use, and the functions of `agentnb` that use it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from agentnb.config import Config, config_of
from agentnb.errors import wrong_settings_as_line
from agentnb.session import Session
from agentnb.settings import SETTINGS, nothing_named

if TYPE_CHECKING:
    from agentnb.store.runs import RunInfo, RunList
    from agentnb.store.upkeep import Pruned

_default: Session | None = None
_default_lock = threading.Lock()


def session_at_hand() -> Session | None:
    """The session that the magics use; `None` if there is none yet."""
    return _default


def config_at_hand() -> Config:
    """The settings file for the next run of the magics. Creates no session.

    Raises:
        ConfigError: The settings file has mistakes.
    """
    if _default is None:
        return config_of(None)
    _default.reread_settings()
    return _default.config


def get_session() -> Session:
    """The session that the magics use. Created with the defaults on the first call."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Session()
        return _default


@wrong_settings_as_line()
def configure(**settings: Any) -> Session:
    """Create a new session for the magics, with the old one's settings and these.

    Takes the arguments of `Session`. Setting one of `model` and `provider` drops the other. Looks
    for the settings file and reads it again. Started runs are not affected.

    Raises:
        ValueError: A setting does not exist, or as for `Session`.
    """
    global _default
    if unknown := [name for name in settings if name not in SETTINGS]:
        raise ValueError(nothing_named(unknown, SETTINGS))
    # Do not create a session here: a broken settings file must not stop a person from naming
    # another one.
    given = dict(_default.given) if _default is not None else {}
    for one, other in (("model", "provider"), ("provider", "model")):
        if one in settings:
            given.pop(other, None)
    given.pop("id", None)
    if _default is not None and isinstance(given.get("config"), str | os.PathLike):
        # The same file as before, wherever the person has gone meanwhile.
        given["config"] = _default.config.file
    made = Session(**{**given, **settings})
    if _default is not None and settings.get("id") is None:
        made.go_on(_default, is_elsewhere="store" in settings)
    with _default_lock:
        _default = made
    return made


def runs(limit: int | None = 50, status: str | None = None, text: str | None = None) -> RunList:
    """The runs in the store of the session that the magics use. See `Session.runs`."""
    return get_session().runs(limit, status, text)


def prune(older_than: str = "30d") -> Pruned:
    """Delete old runs from the store of the session that the magics use. See `Session.prune`."""
    return get_session().prune(older_than)


def delete_run(run: str | RunInfo) -> None:
    """Delete a run from the store of the session that the magics use: see `Session.delete_run`."""
    get_session().delete_run(run)
