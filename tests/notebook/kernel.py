"""A real kernel, driven from outside like a front end: a test sees what a person sees.

A `Door` holds a run: the script's pause knocks there and waits until the test opens it, so
that the test knows how far a run is without sleeping. Deadlines only guard against hangs.
only.
"""

from __future__ import annotations

import re
import socket
import time
from ast import literal_eval
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.notebook.own_ports import FIND_PORT, of_tests

DEADLINE_S = 240.0
_KINDS = {"view": "application/vnd.jupyter.widget-view+json", "picture": "image/png"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_UNSTABLE = re.compile(
    r"nb_\d{8}_\w+|\b[0-9a-f]{32}\b|0x[0-9a-f]{6,}|\b\d+(\.\d+)? ?m?s\b|\d\d:\d\d"
)


@dataclass
class Shown:
    """The outputs of one executed cell."""

    status: str = ""
    """`ok`, `error` or `aborted`; empty while there is no reply."""
    stdout: str = ""
    stderr: str = ""
    displays: list[dict[str, Any]] = field(default_factory=list)
    """The data of each `display_data`, but for views and pictures: MIME types to content."""
    views: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """Data and metadata of each `display_data` that is a live view."""
    pictures: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """Data and metadata of each `display_data` that is a picture."""
    order: list[str] = field(default_factory=list)
    """`view`, `picture` or `display`, in the order in which they came."""
    result: str = ""
    """The cell's value, as plain text."""
    result_data: dict[str, Any] = field(default_factory=dict)
    result_metadata: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    """The traceback without colours, as the front end shows it."""
    error_name: str = ""
    updates: int = 0
    """Displays that were changed or taken back afterwards."""
    help: str = ""
    """What a question mark shows in the pager."""
    updated: dict[str, str] = field(default_factory=dict)
    """What replaced an output last."""
    idle: bool = False

    @property
    def text(self) -> str:
        """All text of the outputs, to check for what must not be in it."""
        parts = [str(value) for data in self.displays for value in data.values()]
        parts += [data["text/plain"] for data, _ in self.pictures]
        return "\n".join([self.stdout, self.stderr, self.error, self.result, *parts])

    @property
    def unstable(self) -> list[str]:
        """Ids, times and addresses in the outputs, which would differ in the next replay."""
        return [found[0] for found in _UNSTABLE.finditer(self.text)]


# A run may stream before the cell that started it has come to wait for it, and an interrupt in
# between would hit something else: so it knocks only when the main thread waits.
_HOLD = """
async def hold():
    import asyncio, sys, threading
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name not in (
        "wait",
        "select",
    ):
        await asyncio.sleep(0.001)  # it must get the interpreter's lock
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    try:
        await reader.read()
    finally:
        writer.close()
"""


NO_SESSION = "import agentnb.default_session; agentnb.default_session._default = None"
"""Code after which the magics begin anew: `configure` would keep the settings of the one before."""


class Kernel:
    """One kernel, its cells, and what they show."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager = manager
        self._client = client
        self._shown: dict[str, Shown] = {}
        self._poller = zmq.Poller()
        for channel in (client.shell_channel, client.iopub_channel):
            self._poller.register(channel.socket, zmq.POLLIN)

    def run(self, *cells: str) -> Shown:
        """Execute cells one after the other; return the last one's outputs."""
        shown = Shown()
        for cell in cells:
            shown = self.collect(self.send(cell))
        return shown

    def ok(self, *cells: str) -> Shown:
        """Execute cells, each of which must succeed."""
        shown = Shown()
        for cell in cells:
            shown = self.run(cell)
            assert shown.status == "ok", shown
        return shown

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the kernel; numbers, texts, lists, dicts."""
        return literal_eval(self.ok(expression).result)

    def send(self, cell: str) -> str:
        """Queue a cell, as Run All does, and return its id."""
        message_id: str = self._client.execute(cell, allow_stdin=False, stop_on_error=True)
        self._shown[message_id] = Shown()
        return message_id

    def run_all(self, *cells: str) -> list[Shown]:
        """Queue all cells at once; return the outputs of each."""
        sent = [self.send(cell) for cell in cells]
        return [self.collect(message_id) for message_id in sent]

    def collect(self, message_id: str, *, deadline_s: float = DEADLINE_S) -> Shown:
        """Wait for a cell's reply and all its outputs."""
        shown = self._shown[message_id]
        deadline = time.monotonic() + deadline_s
        while not (shown.status and (shown.idle or shown.status == "aborted")):
            assert time.monotonic() < deadline, f"The kernel hangs; so far it showed {shown}."
            self._take_what_came()
        return shown

    def is_complete(self, cell: str) -> str:
        """Whether a console may send a cell: `complete`, `incomplete` or `invalid`."""
        message_id = self._client.is_complete(cell)
        while True:
            reply = self._client.get_shell_msg(timeout=DEADLINE_S)
            if reply["parent_header"].get("msg_id") == message_id:
                return str(reply["content"]["status"])

    def completed(self, text: str) -> list[str]:
        """The completions at the `|` in a cell; each as the resulting text of the cell."""
        cursor = text.index("|")
        reply = self._client.complete(
            text.replace("|", "", 1), cursor, reply=True, timeout=DEADLINE_S
        )["content"]
        start = reply["cursor_start"]
        assert (reply["status"], reply["cursor_end"]) == ("ok", cursor)
        return [f"{text[:start]}{match}".splitlines()[-1] for match in reply["matches"]]

    def interrupt(self) -> None:
        """Press ■."""
        self._manager.interrupt_kernel()

    def restart(self) -> None:
        """Press ↻: the kernel loses its state."""
        self._manager.restart_kernel()
        self._client.wait_for_ready(timeout=DEADLINE_S)

    def kill(self) -> None:
        """Kill the process, as a lack of memory does: nothing of it runs any more."""
        process = self._manager.provisioner.process  # type: ignore[union-attr]  # a local one
        process.kill()
        process.wait(DEADLINE_S)

    def wait_until_dead(self) -> None:
        """Wait for the end of a process that kills itself."""
        self._manager.provisioner.process.wait(DEADLINE_S)  # type: ignore[union-attr]

    def shut_down(self) -> int:
        """Shut the kernel down, as closing the notebook does; its exit code, below 0 if killed."""
        process = self._manager.provisioner.process  # type: ignore[union-attr]  # a local one
        self._manager.shutdown_kernel()
        return int(process.wait(DEADLINE_S))

    def left(self) -> Iterator[dict[str, Any]]:
        """The messages of a kernel that has ended which nobody has read."""
        while self._client.iopub_channel.socket.poll(1000):
            yield self._client.iopub_channel.get_msg(timeout=0)

    def _take_what_came(self) -> None:
        came = [socket for socket, _ in self._poller.poll(1000)]
        for channel in (self._client.shell_channel, self._client.iopub_channel):
            if channel.socket in came:
                message = channel.get_msg(timeout=0)
                shown = self._shown.get(message["parent_header"].get("msg_id", ""))
                if shown is not None:
                    _note(shown, message["msg_type"], message["content"])


def _note(shown: Shown, kind: str, content: Mapping[str, Any]) -> None:
    match kind:
        case "execute_reply":
            shown.status = content["status"]
            shown.help = "".join(page["data"]["text/plain"] for page in content.get("payload", ()))
        case "status":
            shown.idle = content["execution_state"] == "idle"
        case "stream":
            setattr(shown, content["name"], getattr(shown, content["name"]) + content["text"])
        case "display_data":
            kind_shown = next((k for k, t in _KINDS.items() if t in content["data"]), "display")
            shown.order.append(kind_shown)
            if kind_shown == "display":
                shown.displays.append(content["data"])
            else:
                special = shown.pictures if kind_shown == "picture" else shown.views
                special.append((content["data"], content["metadata"]))
        case "execute_result":
            shown.result = content["data"]["text/plain"]
            shown.result_data, shown.result_metadata = content["data"], content["metadata"]
        case "error":
            shown.error = _COLOURS.sub("", "\n".join(content["traceback"]))
            shown.error_name = content["ename"]
        case "update_display_data" | "clear_output":
            shown.updates += 1
            shown.updated = content.get("data", {})


@contextmanager
def started() -> Iterator[Kernel]:
    """A kernel of this environment, ended afterwards."""
    # It kills a kernel that takes longer: on a busy machine, one that is about to end by itself.
    manager = KernelManager(kernel_name="python3", shutdown_wait_time=2 * DEADLINE_S)
    with patch(FIND_PORT, of_tests.find_available_port):
        manager.start_kernel()
    try:
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=DEADLINE_S)
            yield Kernel(manager, client)
        finally:
            client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


class Door:
    """Holds scripted replies of a kernel, or another process, until the test lets them through."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(DEADLINE_S)
        self._waiting: list[socket.socket] = []

    @property
    def hold(self) -> str:
        """Code that defines `hold`, for `Reply(..., pause=hold)`."""
        return _HOLD.format(port=self._server.getsockname()[1])

    @property
    def port(self) -> int:
        """The port, for code that knocks without `hold`."""
        return int(self._server.getsockname()[1])

    def wait_for_knock(self) -> None:
        """Block until one more reply streams and waits here."""
        connection, _ = self._server.accept()
        connection.settimeout(DEADLINE_S)
        self._waiting.append(connection)

    def open(self) -> None:
        """Let all waiting replies through."""
        while self._waiting:
            self._waiting.pop().close()

    def wait_until_left(self) -> None:
        """Block until all waiting replies have gone away without being let through."""
        while self._waiting:
            with self._waiting.pop() as connection:
                assert connection.recv(1) == b""

    @property
    def is_quiet(self) -> bool:
        """Whether no reply knocks that the test did not wait for."""
        self._server.setblocking(False)
        try:
            self._server.accept()[0].close()
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            self._server.settimeout(DEADLINE_S)

    def close(self) -> None:
        """Let all waiting replies through, and refuse further ones."""
        self.open()
        self._server.close()


@contextmanager
def a_door() -> Iterator[Door]:
    """A door, closed afterwards."""
    door = Door()
    try:
        yield door
    finally:
        door.close()


STUBBORN = """
async def stubborn():
    # Goes back to the door whenever it is thrown out.
    global let_go
    let_go = False
    while not let_go:
        try:
            return await hold()
        except BaseException:
            pass
"""
"""For a kernel that has a door's `hold`: a pause that only `let_go = True` and the door end."""
