"""The worker itself: an ipykernel that answers two requests of our own on its shell channel.

`agentnb_run` runs a cell as any kernel does, and answers with the value as text, the error in a few
lines, the names that were bound, and the figures. `agentnb_harvest` writes the names that are left
into a file. What is printed goes through the process's own descriptors, to the guard; nothing goes
out on the channel that other front ends listen to, so that no flood reaches the person's process.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import random
import signal
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.displayhook import DisplayHook
from traitlets import Type
from traitlets.config import Config

from agentnb.workers.inside.binding import Given, names_bound
from agentnb.workers.inside.displayed import Displayed
from agentnb.workers.inside.leaving import leave
from agentnb.workers.inside.short_errors import short_error
from agentnb.workers.inside.value_text import encodable, text_of

# The debugger, which no worker needs, is two thirds of a kernel's start.
_had_debugger = "debugpy" in sys.modules
sys.modules.setdefault("debugpy", None)  # type: ignore[arg-type]
# What a kernel imports as it starts, so that only the fork server does.
for _name in (
    "ipykernel.debugger",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "tornado.platform.asyncio",
):
    importlib.import_module(_name)
if not _had_debugger:
    del sys.modules["debugpy"]


class _Hook(DisplayHook):
    """Takes the value of a cell, and shows nothing."""

    def write_output_prompt(self) -> None:
        pass

    def compute_format_data(self, result: Any) -> tuple[dict[str, str], dict[str, str]]:
        return {}, {}

    def set_parent(self, parent: Any) -> None:
        pass


class _Shell(ZMQInteractiveShell):
    displayhook_class = Type(_Hook)  # type: ignore[assignment]
    display_pub_class = Type(Displayed)  # type: ignore[assignment]

    def init_environment(self) -> None:
        """Ask for no colours, since a model reads what is printed."""

    def ask_exit(self) -> None:
        """`exit()` in a cell ends nothing: the guard ends the worker."""

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        self._last_traceback: list[str] = []  # the error itself is taken from the cell's result

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        self._last_traceback = []

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        self._last_traceback = []


class _Kernel(IPythonKernel):
    shell_class = Type(_Shell)
    msg_types = [*IPythonKernel.msg_types, "agentnb_run", "agentnb_harvest"]  # noqa: RUF012

    given: Given
    shell: Any
    session: Any

    def prepare(self, config: dict[str, Any], data: int | None) -> None:
        """Bind the given names, and see which names are there before any code ran."""
        self._folder = Path(config["folder"])
        self._most_written = config["memory"]
        self.given = Given(config["given"], data)
        shell = self.shell
        shell.push(self.given.objects)
        shell.events.register("post_run_cell", self._keep_result)
        formatter = shell.display_formatter.formatters["image/png"]
        formatter.enabled = True
        formatter.for_type_by_name("matplotlib.figure", "Figure", shell.display_pub.figures.drawn)
        self._at_first = dict(shell.user_ns)
        self._threads = threading.active_count()
        self._result: Any = None

    def _keep_result(self, result: Any) -> None:
        self._result = result

    async def agentnb_run(self, stream: Any, ident: Any, parent: Any) -> None:
        shell, shown = self.shell, self.shell.display_pub
        shown.texts, shown.left_out, self._result = [], 0, None
        shown.figures.clear()
        before = dict(shell.user_ns)
        error: BaseException | None = None
        try:
            await self.do_execute(parent["content"]["code"], False, allow_stdin=False)
        except BaseException as raised:
            error = raised
        result, self._result = self._result, None
        value, text = None, ""
        if result is not None:
            error = result.error_before_exec or result.error_in_exec or error
            value = result.result
        try:  # how a value draws and shows itself is code of the agent, too
            shown.figures.take(value)
            text = "" if value is None or error is not None else text_of(value)
        except BaseException as raised:
            error = raised
        reply = {
            "value": text,
            "displayed": shown.texts,
            "not_displayed": shown.left_out,
            "error": "" if error is None else short_error(error, shell),
            "is_interrupt": isinstance(error, KeyboardInterrupt | asyncio.CancelledError),
            "names": names_bound(before, shell.user_ns),
            "failed": self.given.failed,
            "threads": max(0, threading.active_count() - self._threads),
            "figures": shown.figures.sizes,
            "figures_left_out": shown.figures.left_out,
        }
        self.given.failed = {}
        del before, value, result, error
        for file in (sys.stdout, sys.stderr):
            with suppress(Exception):
                file.flush()
        pictures = shown.figures.pictures
        self.session.send(
            stream, "agentnb_reply", encodable(reply), parent, ident=ident, buffers=list(pictures)
        )
        shown.figures.clear()

    async def agentnb_harvest(self, stream: Any, ident: Any, parent: Any) -> None:
        names = {
            name: value
            for name, value in self.shell.user_ns.items()
            if not name.startswith("_") and _is_new(name, value, self._at_first)
        }
        names |= self.given.changed(self.shell.user_ns, in_doubt=parent["content"]["mentioned"])
        file = self._folder / "left"
        try:
            leave(names, file, most=self._most_written)
        except BaseException:
            file.unlink(missing_ok=True)
        self.session.send(stream, "agentnb_reply", {"file": file.name}, parent, ident=ident)


def serve(config: dict[str, Any], *, data: int | None, ready: int) -> NoReturn:
    """Run a worker in this process, which was forked for it, until it is killed."""
    folder = Path(config["folder"])
    random.seed()
    warnings.filterwarnings("ignore", message="To exit: use")  # there is nobody to read it
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else all workers would draw the same numbers
    # What was read from the parent's descriptors is not ours.
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123
    sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2)  # type: ignore[misc]
    sys.path[:] = config["path"]
    sys.argv = [""]
    settings = Config()
    settings.IPKernelApp.update(
        connection_file=str(folder / "connection.json"),
        transport="ipc",
        ip=str(folder / "k"),
        capture_fd_output=False,
        log_level=50,
    )
    settings.Session.key = config["key"].encode()
    settings.HistoryManager.enabled = False
    settings.InteractiveShell.cache_size = 0
    settings.InteractiveShell.colors = "nocolor"
    # Its own folder, so that a person's startup files and extensions stay out.
    (folder / "ipython").mkdir()
    settings.BaseIPythonApplication.ipython_dir = str(folder / "ipython")
    app: Any = IPKernelApp.instance(config=settings, kernel_class=_Kernel)
    app.outstream_class = None
    app.shell_port, app.iopub_port, app.stdin_port, app.hb_port, app.control_port = range(1, 6)
    app.initialize([])
    sys.displayhook = app.kernel.shell.displayhook
    app.kernel.prepare(config, data)
    # Any handler makes each signal wake the loop; without, an interrupt waits for the next message.
    loop = asyncio.get_event_loop_policy().get_event_loop()
    loop.add_signal_handler(signal.SIGURG, lambda: None)
    os.write(ready, b"r")
    os.close(ready)
    app.start()
    os._exit(0)


def _stream(file: int) -> Any:
    raw = os.fdopen(file, "wb", buffering=0, closefd=False)
    # Line by line, since a killed worker flushes nothing.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _is_new(name: str, value: Any, at_first: dict[str, Any]) -> bool:
    return not (name in at_first and at_first[name] is value)
