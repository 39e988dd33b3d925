"""Ports for kernels, which choose them long before they listen there.

The system hands out a port as soon as it is free: to a server of another test, and the kernel ends.
These lie below the ports that Linux hands out, and each process of the tests has its own.
"""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import suppress

FIND_PORT = "jupyter_client.connect.LocalPortCache.find_available_port"
"""What chooses the ports of all managers: those of nbval and nbclient, too."""
_OF_TESTS, _OF_LABS = 10_000, 20_000
_EACH = 500

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


class OwnPorts:
    """Hands out ports of one process.

    Args:
        is_lab: Whether it is the JupyterLab of a process of the tests, not that process itself.
    """

    def __init__(self, *, is_lab: bool = False) -> None:
        first = (_OF_LABS if is_lab else _OF_TESTS) + _EACH * _worker
        self._ports = itertools.cycle(range(first, first + _EACH))

    def take(self) -> int:
        """A port on which nobody listens."""
        for port in itertools.islice(self._ports, _EACH):
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                return port
        raise OSError(f"none of {_EACH} ports is free")

    def find_available_port(self, _: str) -> int:
        """Stands in for `FIND_PORT`."""
        return self.take()


of_tests = OwnPorts()
