"""Kernels that start in a fraction of a second: forked from a process that has imported all.

Each is a process of its own with an IPython kernel, and dies as any other. For tests that kill
many of them; what a kernel does first, and how long that takes, is not to be seen here.
"""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.notebook.kernel import DEADLINE_S, Kernel

_IMPORTED = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "agentnb.config.document",
    "agentnb.config.schema",
    "agentnb.default_session",
    "agentnb.providers.aio_transport",
    "agentnb.providers.anthropic",
    "agentnb.providers.http_client",
    "agentnb.providers.openai",
    "agentnb.providers.scripted",
    "agentnb.store.store",
    "agentnb.tools.parameters",
    "anthropic.types",
    "genai_prices.data",
    "ipykernel.debugger",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "openai.types.chat",
    "psutil",
    "tests.soak.recover_run",
    "tornado.platform.asyncio",
    "yaml",
)


class Forked(Kernel):
    """A kernel whose process is a child of the one that was forked."""

    def __init__(self, manager: KernelManager, fork_server: ForkServer) -> None:
        # The manager's own client would ask it for a process, which it has none of.
        client = BlockingKernelClient(connection_file=manager.connection_file)
        client.load_connection_file()
        super().__init__(manager, client)
        self._server = fork_server
        self._id = fork_server.ask(f"fork {manager.connection_file}")

    def __enter__(self) -> Forked:
        self._client.start_channels()
        self._client.wait_for_ready(timeout=DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_channels()
        self.kill()
        self._manager.cleanup_resources()

    def kill(self) -> None:
        """See `Kernel.kill`. May be called again."""
        self._server.ask(f"kill {self._id}")

    def wait_until_dead(self) -> None:
        """Wait until the process has killed itself."""
        self._server.ask(f"wait {self._id}")


class ForkServer:
    """Starts kernels, each while the one before is used. Made by `fork_server`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._next = self._fork()

    def ask(self, what: str) -> str:
        """Ask the process for something, and return its answer."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(f"{what}\n")
        asked.flush()
        assert select.select([answered], [], [], DEADLINE_S)[0], f"{what!r} hangs"
        answer = answered.readline().strip()
        assert answer, f"{what!r}: the process that starts kernels has ended"
        return answer

    def started(self) -> Forked:
        """A new kernel, ended by its `with`."""
        found, self._next = self._next, self._fork()
        return found

    def _fork(self) -> Forked:
        manager = KernelManager(kernel_name="python3")
        manager.write_connection_file()
        return Forked(manager, self)

    def close(self) -> None:
        """End the kernel that nobody has used."""
        self._next.__exit__()


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """A process that starts kernels, ended afterwards."""
    # The debugger that a kernel has would warn on standard error that it misses our lines.
    environment = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        found = ForkServer(process)
        try:
            yield found
        finally:
            found.close()


# -- in that process ------------------------------------------------------------------------------


def _serve(orders: IO[str], answers: IO[str]) -> None:
    ended: set[int] = set()
    for order in orders:
        what, _, given = order.strip().partition(" ")
        if what == "fork":
            answer = os.fork()
            if not answer:
                _be_a_kernel(given)
        else:
            answer = int(given)
            if answer not in ended:
                if what == "kill":
                    os.kill(answer, 9)
                os.waitpid(answer, 0)
                ended.add(answer)
        answers.write(f"{answer}\n")
        answers.flush()


def _be_a_kernel(connection_file: str) -> None:
    from ipykernel.kernelapp import IPKernelApp

    silent = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(silent, each)
    os.environ["JPY_PARENT_PID"] = str(os.getppid())  # it ends with its parent
    IPKernelApp.launch_instance(["-f", connection_file])
    os._exit(0)


if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()  # else each kernel's first search for garbage would copy all of it
    _serve(sys.stdin, sys.stdout)
