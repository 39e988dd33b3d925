"""Kernels that start in a fraction of a second: forked from a process that has imported all.

Each is a process of its own with an IPython kernel, and dies as any other. What a kernel imports
first, how long that takes, and how Python takes itself apart after all that ends with it is not to
be seen here: that is for `tests.notebook.kernel.started`.

Programs start as quickly: `ForkServer.printed_by`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Empty
from typing import IO, Any, NoReturn, cast
from unittest.mock import patch

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.client import KernelClient
from jupyter_client.manager import KernelManager
from jupyter_core.utils import run_sync

from tests.main_module import run_as_main
from tests.notebook.kernel import DEADLINE_S, Kernel
from tests.notebook.own_ports import of_tests
from tests.support import NO_WORD_OF_SLOWNESS

_IMPORTED = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "agentnb.bundles",
    "agentnb.config.document",
    "agentnb.config.schema",
    "agentnb.default_session",
    "agentnb.notebook",
    "agentnb.store.store",
    "agentnb.tools.parameters",
    "agentnb.views.figures.tree",
    "agentnb.views.panel.panel",
    "genai_prices.data",
    "ipykernel.debugger",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "matplotlib.backends.backend_agg",
    "matplotlib_inline.backend_inline",
    "psutil",
    "tests.notebook.patient",
    "tornado.platform.asyncio",
    "yaml",
)
_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
LAUNCHER = "jupyter_client.provisioning.local_provisioner.launch_kernel"
"""What starts the kernels of all managers: those of nbval and nbclient, too."""
SDKS = (
    "agentnb.providers.aio_transport",
    "agentnb.providers.anthropic",
    "agentnb.providers.http_client",
    "agentnb.providers.openai",
    "anthropic.types",
    "openai.types.chat",
)
"""What kernels need that make real calls. Importing them takes about a second."""


async def _ready(
    client: KernelClient,
    timeout: float = DEADLINE_S,  # noqa: ASYNC109  # as it is called
) -> None:
    """Wait until a kernel answers here on both channels; stands in for `wait_for_ready`.

    That one waits another 0.2 seconds with each kernel, for messages to leave unread.
    """
    too_late = time.monotonic() + timeout
    while time.monotonic() < too_late:
        asked = client.kernel_info()
        with suppress(Empty):
            while not _answers(await client._async_get_shell_msg(timeout=1), asked):
                pass
            # What is published before this end listens is lost: then it is asked again.
            while True:
                said = await client._async_get_iopub_msg(timeout=0.02)
                if _answers(said, asked) and said["content"].get("execution_state") == "idle":
                    return
        if not await client._async_is_alive():
            raise RuntimeError("the kernel died before it answered")
    raise RuntimeError(f"the kernel did not answer in {timeout:.0f} s")


def _answers(message: Mapping[str, Any], asked: str) -> bool:
    return bool(message["parent_header"].get("msg_id") == asked)


class _Client(BlockingKernelClient):
    """Asks the process whether it lives.

    The manager's own client would ask the manager, which has no process; a client without one asks
    whether the kernel has answered within a second, and a kernel that begins may not.
    """

    process: Process

    async def _async_is_alive(self) -> bool:
        return self.process.poll() is None


class Forked(Kernel):
    """A kernel whose process is a child of the one that was forked."""

    def __init__(self, manager: KernelManager, fork_server: ForkServer) -> None:
        client = _Client(connection_file=manager.connection_file)
        client.load_connection_file()
        super().__init__(manager, client)
        self._server = fork_server
        self._process = client.process = fork_server.fork(manager.connection_file)
        self._is_killed = False

    def __enter__(self) -> Forked:
        self._client.start_channels()
        self._client.wait_for_ready(timeout=DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_channels()
        self.kill()
        self._manager.cleanup_resources()

    def interrupt(self) -> None:
        """See `Kernel.interrupt`."""
        os.kill(self._process.pid, signal.SIGINT)

    def restart(self) -> None:
        """See `Kernel.restart`."""
        if not self._is_killed:  # else the next process would be asked to end
            self._client.shutdown(restart=True)
            self.wait_until_dead()
        self._process = self._server.fork(self._manager.connection_file)
        cast(_Client, self._client).process = self._process
        self._is_killed = False
        self._client.wait_for_ready(timeout=DEADLINE_S)

    def kill(self) -> None:
        """See `Kernel.kill`. May be called again."""
        self._process.kill()
        self._is_killed = True

    def wait_until_dead(self) -> None:
        """Wait until the process has killed itself."""
        self._process.wait()


class Process:
    """One of these processes, as `subprocess.Popen` has it."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int, server: ForkServer) -> None:
        self.pid = pid
        self._server = server

    def poll(self) -> int | None:
        """The exit code, or below 0 the signal that killed it; `None` if it lives."""
        return cast("int | None", self._server.ask("poll", self.pid))

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, at most as long as all orders may take: the exit code."""
        return cast("int", self._server.ask("wait", self.pid))

    def kill(self) -> None:
        """Kill it, and wait until it is gone. May be called again."""
        self._server.ask("kill", self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


class ForkServer:
    """Starts kernels. Made by `fork_server`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, about: Any) -> Any:
        """Ask the process for something, and return its answer."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(f"{json.dumps([what, about])}\n")
        asked.flush()
        assert select.select([answered], [], [], DEADLINE_S)[0], f"{what!r} hangs"
        answer = answered.readline().strip()
        assert answer, f"{what!r}: the process that starts kernels has ended"
        return json.loads(answer)

    def fork(self, connection_file: str) -> Process:
        """Start a kernel in this process's folder and environment."""
        return self.popen(["-m", "ipykernel_launcher", "-f", connection_file])

    def popen(
        self,
        arguments: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        output: Path | None = None,
        errors: Path | None = None,
    ) -> Process:
        """Start what `python ARGUMENTS` would: a kernel, IPython, or a program.

        Args:
            arguments: `-m`, the module, and its own; or `-c`, the code, and its own.
            cwd: By default this process's.
            env: By default this process's.
            output: A file for all that it prints, which is nowhere to be seen otherwise.
            errors: A file for its error output alone.
        """
        given = dict(os.environ if env is None else env)
        files = [str(output or os.devnull), str(errors or output or os.devnull)]
        return Process(self.ask("fork", [[*arguments], str(cwd or Path.cwd()), given, files]), self)

    def printed_by(self, code: str, *, debug: bool = True) -> str:
        """Run `python -c CODE`, which must succeed without error output; return its output.

        Like `tests.support.run_python`, but for the imports: what it proves of them is nothing.

        Args:
            code: The code.
            debug: Whether asyncio is in its debug mode. Warnings are shown in either case.
        """
        begin = f"import warnings; warnings.simplefilter('default')\n{NO_WORD_OF_SLOWNESS}"
        env = {**os.environ, "PYTHONASYNCIODEBUG": "1" if debug else ""}
        with tempfile.TemporaryDirectory() as folder:
            output, errors = Path(folder, "output"), Path(folder, "errors")
            arguments = ["-c", begin + textwrap.dedent(code)]
            status = self.popen(arguments, env=env, output=output, errors=errors).wait()
            said = errors.read_text(encoding="utf-8")
            assert (status, said) == (0, ""), said
            return output.read_text(encoding="utf-8")

    def launch(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Process:
        """Start a kernel for a manager; stands in for `LAUNCHER`."""
        return self.popen(command[1:], cwd=cwd, env=env)

    def preload(self, *names: str) -> None:
        """Import modules that kernels need which are started from now on."""
        self.ask("import", names)

    def started(self) -> Forked:
        """A new kernel, ended by its `with`."""
        ports = {f"{name}_port": of_tests.take() for name in _CHANNELS}
        manager = KernelManager(kernel_name="python3", **ports)
        manager.write_connection_file()
        return Forked(manager, self)


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """A process that starts kernels, ended afterwards. Tests share one: the fixture."""
    # The debugger that a kernel has would warn on standard error that it misses our lines.
    # Drawing is loaded before there is a kernel, and would not know that it is for one.
    environment = {
        **os.environ,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    with (
        patch.object(AsyncKernelClient, "wait_for_ready", _ready),
        patch.object(BlockingKernelClient, "wait_for_ready", run_sync(_ready)),
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
    ):
        yield ForkServer(process)


# -- in that process ------------------------------------------------------------------------------


def _serve(orders: IO[str], answers: IO[str]) -> None:
    ended: dict[int, int] = {}
    for order in orders:
        what, about = json.loads(order)
        answer: int | None
        if what == "fork":
            heard, told = os.pipe()
            answer = os.fork()
            if not answer:
                os.close(heard)
                _be(told, *about)
            os.close(told)
            with suppress(OSError):  # it may have ended
                os.setpgid(answer, answer)  # managers send signals to a kernel's whole group
            # Who connects before it listens would try again a tenth of a second later.
            os.read(heard, 1)
            os.close(heard)
        elif what == "import":
            answer = _import(about)
        else:
            if what == "kill" and about not in ended:
                os.kill(about, signal.SIGKILL)
            if about not in ended:
                pid, status = os.waitpid(about, os.WNOHANG if what == "poll" else 0)
                if pid:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(about)
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()


def _import(names: Iterable[str]) -> int:
    """Import modules, and return how many. Of packages that are not there, such as psutil, none."""
    found = [import_module(name) for name in names if find_spec(name.partition(".")[0])]
    gc.collect()
    gc.freeze()  # else each kernel's first search for garbage would copy all of it
    return len(found)


def _be(
    told: int,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    outputs: Sequence[str],
) -> None:
    """Be what `python ARGUMENTS` is, and end as it does; close `told` when it listens."""
    written = [os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for output in outputs]
    for each, opened in enumerate((os.open(os.devnull, os.O_RDONLY), *written)):
        os.dup2(opened, each)
        os.close(opened)  # a test may count open files
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "ipykernel_launcher" not in arguments:
        os.close(told)
    if arguments[0] == "-c":
        run_as_main(arguments[1], arguments[2:])
    os.environ["JPY_PARENT_PID"] = str(os.getppid())  # a kernel ends with its parent
    module, *rest = arguments[arguments.index("-m") + 1 :]
    if module == "IPython":
        from IPython import start_ipython

        start_ipython(argv=rest)
    else:
        assert module == "ipykernel_launcher", module
        from ipykernel.kernelapp import IPKernelApp

        app: Any = IPKernelApp.instance()
        app.initialize(rest)
        os.close(told)
        app.start()
        _end()
    sys.exit()


def _end() -> NoReturn:
    """End without taking all modules apart: whatever shared them until now would be copied."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    _import(_IMPORTED)
    _serve(sys.stdin, sys.stdout)
