"""`closed_network`: a block in which this process opens no connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

_INTERNET = (-1, socket.AF_INET, socket.AF_INET6)
"""Families; -1 is the default, which is IPv4."""


class NetworkClosed(RuntimeError):
    """Code opened a connection where none is allowed.

    Not an `OSError`, which a client may take for a temporary fault and retry.
    """

    def __init__(self, target: object, why: str) -> None:
        self.target = target
        aim = "" if target is None else f" to {target!r}"
        super().__init__(f"A connection{aim} was attempted, but the network is closed: {why}")


_for_good = ExitStack()
"""Closed networks that are never opened again."""


def close_network(why: str) -> None:
    """Close the network of this process for good: see `closed_network`."""
    _for_good.enter_context(closed_network(why))


@contextmanager
def closed_network(why: str) -> Iterator[None]:
    """Refuse new internet sockets, even to this machine, and name lookups.

    Event loops still work: a pair of sockets wakes them. Sockets that were open before, Unix
    sockets, and connections to a server that was listening before are left alone, as is everything
    outside `socket`, such as ZeroMQ.

    Args:
        why: The end of the error's message: why the network is closed, as a clause, and what to do.

    Raises:
        NetworkClosed: In the code that opens a socket meanwhile.
    """
    pairing = threading.local()
    real_init, real_pair = socket.socket.__init__, socket.socketpair
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex

    def init(
        self: socket.socket, family: int = -1, type: int = -1, proto: int = -1, fileno: Any = None
    ) -> None:
        if fileno is None and family in _INTERNET and not getattr(pairing, "on", False):
            raise NetworkClosed(None, why)
        real_init(self, family, type, proto, fileno)

    def connect(self: socket.socket, address: Any) -> None:
        check(self, address)
        real_connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        check(self, address)
        return real_connect_ex(self, address)

    def check(connecting: socket.socket, address: object) -> None:
        if connecting.family in _INTERNET and not getattr(pairing, "on", False):
            raise NetworkClosed(address, why)

    def getaddrinfo(host: object, *_: object, **__: object) -> Any:
        raise NetworkClosed(host, why)

    def socketpair(*args: Any, **kwargs: Any) -> Any:
        pairing.on = True  # where the system has no pairs, two sockets of this machine are joined
        try:
            return real_pair(*args, **kwargs)
        finally:
            pairing.on = False

    with (
        mock.patch.object(socket.socket, "__init__", init),
        mock.patch.object(socket.socket, "connect", connect),
        mock.patch.object(socket.socket, "connect_ex", connect_ex),
        mock.patch.object(socket, "getaddrinfo", getaddrinfo),
        mock.patch.object(socket, "socketpair", socketpair),
    ):
        yield
