"""Forks the workers of one run, so that they share the memory of what they all import.

It imports the kernel, and what the given names need, once; a worker then starts in a fraction of
the time, and twenty of them hold the libraries once. It has one thread, and stays so: a fork copies
no other. It ends when the person's process closes the connection or dies. If a guard is killed,
the guard's processes fall to it, and it ends them.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

from agentnb.workers.inside.descendants import below, end_all, reap
from agentnb.workers.inside.guard import guard
from agentnb.workers.inside.linux import adopt_orphans, allow_inspection


def main(preload: list[str]) -> None:
    """Serve until the connection, which is the standard input, closes."""
    server = socket.socket(fileno=0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    allow_inspection(False)
    for name in ("agentnb.workers.inside.kernel", *preload):
        with suppress(Exception):  # the worker will meet the same error, and say it
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would copy every page that it looks at
    guards: set[int] = set()
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([server.fileno(), woken], [], [])
        if woken in ready:
            _read_all(woken)
            _see_to_the_dead(guards)
        if server.fileno() not in ready:
            continue
        order, files, _, _ = socket.recv_fds(server, 1, 2)
        if not order:
            break
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(woken)
            os.close(wakes)
            # Nothing of this process's stack is run in the child: `guard` does not return.
            guard(socket.socket(fileno=files[0]), files[1] if len(files) > 1 else None)
        guards.add(pid)
        for file in files:
            os.close(file)
    # The guards end by themselves, as their own connections are closed. They have this long.
    until = time.monotonic() + 2
    while guards and time.monotonic() < until:
        select.select([woken], [], [], 0.05)
        _read_all(woken)
        guards -= reap().keys()
    end_all(lambda: below(os.getpid()))


def _read_all(woken: int) -> None:
    with suppress(BlockingIOError):
        os.read(woken, 4096)


def _see_to_the_dead(guards: set[int]) -> None:
    ended = reap().keys() & guards
    guards -= ended
    if ended:
        end_all(lambda: below(os.getpid(), spare=guards))


if __name__ == "__main__":
    main(sys.argv[1:])
