"""Runs that are recorded into a cassette and replayed from it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from agentnb import Run
from agentnb.repeat import counted_anew
from tests.support import DEADLINE_S
from tests.tasks.keeping import Keeping

new_kernel = counted_anew
"""A `with` block as in a kernel that has just begun."""


@contextmanager
def no_network() -> Iterator[None]:
    """Make each new connection an error, in a `with` block."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    with (
        mock.patch.object(socket.socket, "connect", refuse),
        mock.patch.object(socket.socket, "connect_ex", refuse),
        mock.patch.object(socket, "getaddrinfo", refuse),
    ):
        yield


def ended(run: Run) -> Run:
    """Wait for a run's end, of any kind; return the run."""
    run._future.exception(DEADLINE_S)
    return run


def session_in(mode: str, **settings: Any) -> Keeping:
    """A new kernel's session; its cassette is `x.cassette.jsonl` in the working directory."""
    return Keeping(mode=mode, cassette="x.cassette.jsonl", **{"config": False, **settings})
