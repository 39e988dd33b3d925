"""The parent of one worker: starts it, watches it, and ends all that comes of it.

Every process that the worker's code starts, however it detaches itself, is below the guard or
falls to it. The guard ends them all when it is ordered to, when the worker ends, when a limit is
passed, and when the connection to the person's process closes: by an end, a kill or a crash. It
holds what the worker prints: the beginning and the end, and how much there was.

One JSON object a line, both ways. Orders: `interrupt`, `collect` (what was printed so far), `stop`.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from agentnb.workers.inside.descendants import below, end_all, has_children, reap, uses_more
from agentnb.workers.inside.head_and_tail import HeadAndTail
from agentnb.workers.inside.linux import IS_LINUX, adopt_orphans, allow_inspection, die_with_parent

_TICK_S = 0.25
_GRACE_S = 0.5
"""How long code may go on printing after it was interrupted for it."""
_LONGEST_CONFIG = 4_000_000


def guard(control: socket.socket, data: int | None) -> NoReturn:
    """Run one worker, then end this process. Called in a process that was forked for it."""
    status = 1
    folder = ""
    try:
        os.setsid()
        adopt_orphans()
        allow_inspection(False)
        config = _read_config(control)
        folder = config["folder"]
        _Guard(control, config, data).run()
        status = 0
    except BaseException as error:
        with suppress(OSError):
            _send(control, {"ended": "failed", "detail": repr(error)[:1000]})
    finally:
        try:
            end_all(lambda: below(os.getpid()))
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os._exit(status)  # whatever the code left in the folder: this process ends here


class _Guard:
    def __init__(self, control: socket.socket, config: dict[str, Any], data: int | None) -> None:
        self._control, self._config, self._data = control, config, data
        self._memory = config["memory"] + config["data_size"]
        self._printed = [HeadAndTail(config["most_printed"]) for _ in range(2)]
        self._is_flooded_since: float | None = None
        self._ended = ""
        self._detail = ""
        self._orders = b""

    def run(self) -> None:
        outs, readies = [os.pipe(), os.pipe()], os.pipe()
        self._pid = self._fork([out[1] for out in outs], readies[1])
        for file in (outs[0][1], outs[1][1], readies[1], self._data):
            if file is not None:
                os.close(file)
        self._watch = selectors.DefaultSelector()
        self._outs = {outs[0][0]: self._printed[0], outs[1][0]: self._printed[1]}
        for file in (*self._outs, readies[0]):
            os.set_blocking(file, False)
            self._watch.register(file, selectors.EVENT_READ)
        self._control.setblocking(False)
        self._watch.register(self._control, selectors.EVENT_READ)
        self._ready: int = readies[0]
        self._woken, wakes = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self._watch.register(self._woken, selectors.EVENT_READ)
        next_tick = 0.0
        while not self._ended:
            for key, _ in self._watch.select(_TICK_S):
                self._serve(key.fd)
            if (now := time.monotonic()) >= next_tick:
                next_tick = now + _TICK_S
                self._check(now)
        self._kill()
        for file, kept in self._outs.items():
            _drain(file, kept, most=kept.total + 1_000_000)
        self._control.setblocking(True)
        self._control.settimeout(1.0)
        with suppress(OSError):
            ended = {"ended": self._ended, "detail": self._detail, **self._collected()}
            _send(self._control, ended)

    def _fork(self, outs: list[int], ready: int) -> int:
        mine = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            self._control.close()
            if IS_LINUX:
                die_with_parent(signal.SIGKILL)
                if os.getppid() != mine:
                    os._exit(1)
                allow_inspection(True)
            else:
                os.setsid()
            nothing = os.open(os.devnull, os.O_RDONLY)
            for file, target in ((nothing, 0), (outs[0], 1), (outs[1], 2)):
                os.dup2(file, target)
            keep = {0, 1, 2, ready, self._data}
            for file in [int(each.name) for each in Path("/dev/fd").iterdir()]:
                if file not in keep:
                    with suppress(OSError):
                        os.close(file)
            # The data is mapped twice to tell what has changed of it.
            _limit(self._memory + self._config["data_size"])
            os.chdir(self._config["cwd"])
            from agentnb.workers.inside.kernel import serve

            serve(self._config, data=self._data, ready=ready)
        except BaseException as error:
            with suppress(OSError):
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(1)

    def _serve(self, file: int) -> None:
        if file in self._outs:
            self._read_output(file)
        elif file == self._woken:
            with suppress(BlockingIOError):
                os.read(file, 4096)
            self._see_to_the_dead()
        elif file == self._ready:
            with suppress(BlockingIOError):
                if os.read(file, 1):
                    _send(self._control, {"ready": self._pid, "guard": os.getpid()})
                else:
                    self._watch.unregister(file)
        else:
            self._obey()

    def _obey(self) -> None:
        try:
            got = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got:
            self._ended = "owner"
            return
        *orders, self._orders = (self._orders + got).split(b"\n")
        for order in orders:
            if order == b"interrupt":
                self._interrupt()
            elif order == b"collect":
                for file, kept in self._outs.items():
                    _drain(file, kept, most=kept.total + 1_000_000)
                below_it = len(below(os.getpid())) - 1 if IS_LINUX else 0
                _send(self._control, {"collected": self._collected(), "processes": below_it})
                self._is_flooded_since = None
                for kept in self._printed:
                    kept.clear()
            elif order == b"stop":
                self._ended = "stopped"

    def _interrupt(self) -> None:
        if not self._ended:  # once it was waited for, its id may be another's
            os.kill(self._pid, signal.SIGINT)

    def _collected(self) -> dict[str, Any]:
        texts = [[kept.text(), kept.total] for kept in self._printed]
        return {"out": texts[0], "err": texts[1], "flooded": self._is_flooded_since is not None}

    def _read_output(self, file: int) -> None:
        if not _drain(file, self._outs[file], most=self._outs[file].total + 4_000_000):
            self._watch.unregister(file)
        total = sum(kept.total for kept in self._printed)
        if total > self._config["most_output"] and self._is_flooded_since is None:
            self._is_flooded_since = time.monotonic()
            self._interrupt()

    def _check(self, now: float) -> None:
        """Ends the worker when it has passed a limit that no single process has."""
        if self._is_flooded_since is not None and now - self._is_flooded_since > _GRACE_S:
            self._ended = "output"
        if not IS_LINUX or self._ended:
            return
        if not has_children(self._pid) and not self._has_orphans():
            return
        children = [pid for pid in below(os.getpid()) if pid != self._pid]
        if len(children) > self._config["most_processes"]:
            self._ended, self._detail = "processes", str(len(children))
        elif children and uses_more([self._pid, *children], self._memory):
            self._ended = "memory"

    def _has_orphans(self) -> bool:
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        return not children.exists() or len(children.read_bytes().split()) > 1

    def _see_to_the_dead(self) -> None:
        status = reap().get(self._pid)
        if status is not None and not self._ended:
            self._ended = "died"
            code = os.waitstatus_to_exitcode(status)
            self._detail = f"signal {-code}" if code < 0 else f"exit code {code}"

    def _kill(self) -> None:
        if IS_LINUX:
            end_all(lambda: below(os.getpid()))
            return
        for _ in range(2):
            with suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _limit(memory: int) -> None:
    import resource

    data = size = 0
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            pages = [int(each) for each in file.read().split()]
        data, size = pages[5] * os.sysconf("SC_PAGE_SIZE"), pages[0] * os.sysconf("SC_PAGE_SIZE")
    _set_limit(resource.RLIMIT_CORE, 0)
    if IS_LINUX:
        # What the bare worker has does not count; nor do the stacks that its threads reserve.
        _set_limit(resource.RLIMIT_DATA, data + memory + (1 << 27))
        _set_limit(resource.RLIMIT_AS, size + memory + (1 << 30))
        _set_limit(resource.RLIMIT_FSIZE, memory)


def _set_limit(which: int, value: int) -> None:
    import resource

    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(which, (value, value))


def _drain(file: int, kept: HeadAndTail, *, most: int) -> bool:
    """Read what is there, up to a total; false at the end of the file."""
    while kept.total < most:
        try:
            got = os.read(file, 1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not got:
            return False
        kept.add(got)
    return True


def _read_config(control: socket.socket) -> dict[str, Any]:
    read = bytearray()
    while not read.endswith(b"\n"):
        got = control.recv(65536)
        if not got or len(read) > _LONGEST_CONFIG:
            raise EOFError("the connection closed")
        read += got
    config: dict[str, Any] = json.loads(read)
    return config


def _send(control: socket.socket, said: dict[str, Any]) -> None:
    control.setblocking(True)
    control.settimeout(1.0)
    try:
        control.sendall(json.dumps(said).encode() + b"\n")
    finally:
        control.setblocking(False)
