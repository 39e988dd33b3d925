"""A connection that writes no secrets and no lone surrogates.

Values bound to a statement are sealed here, so functions that write texts need not do it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from agentnb.core.durable import AgentKind, MessageKind, Priority, TaskStatus
from agentnb.core.secrets import Secrets
from agentnb.core.text import sendable
from agentnb.core.types import Role

_KINDS: tuple[type[StrEnum], ...] = (AgentKind, MessageKind, Priority, Role, TaskStatus)
_WORDS = {str(word) for kind in _KINDS for word in kind}
"""Words of the schema, which are not masked, even if a secret has the same value."""


class SealingConnection(sqlite3.Connection):
    """Masks secrets and replaces lone surrogates in bound values, if `secrets` is set."""

    secrets: Secrets | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """See `sqlite3.Connection`."""
        if self.secrets is not None and parameters:
            parameters = _sealed(parameters, self.secrets)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """See `sqlite3.Connection`."""
        if self.secrets is not None:
            secrets = self.secrets
            parameters = [_sealed(each, secrets) for each in parameters]
        return super().executemany(sql, parameters)


def _sealed(parameters: Any, secrets: Secrets) -> Any:
    if isinstance(parameters, Mapping):
        return {name: _value(value, secrets) for name, value in parameters.items()}
    return [_value(value, secrets) for value in parameters]


def _value(value: Any, secrets: Secrets) -> Any:
    if isinstance(value, str) and value not in _WORDS:
        return sendable(secrets.mask(value))
    return value
