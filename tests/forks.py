"""Processes that begin in a fraction of a second: forked from one that has imported the package.

For tests that kill many. How long a fresh process takes, and what it imports, is not seen here.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.support import DEADLINE_S

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.recover_scene", "tests.soak.map", "tests.tasks.dying"])

Say = Callable[[Any], None]
"""Tells the test something, at once."""


@dataclass(frozen=True)
class Ended:
    """How a process came to its end."""

    code: int
    """0, or the negative number of the signal that killed it."""
    said: list[Any]
    error: str
    """The traceback of what it raised."""


def killed_when_it_says(main: Callable[..., None], *given: Any) -> Any:
    """Run `main(say, *given)` in a process of its own; kill it as it says something.

    Args:
        main: A function of a module. It must not return before it has said something.
        given: Its other arguments, which can be pickled.

    Returns:
        What it said.
    """
    process, pipe = _started(main, given)
    with pipe:
        assert pipe.poll(DEADLINE_S), "the process says nothing"
        said, error = pipe.recv()
    process.kill()
    process.join(DEADLINE_S)
    process.close()
    assert not error, error
    return said


def run_to_its_end(main: Callable[..., None], *given: Any) -> Ended:
    """Run `main(say, *given)` in a process of its own until it returns, raises or dies."""
    process, pipe = _started(main, given)
    heard: list[tuple[Any, str]] = []
    with pipe, suppress(EOFError):
        while True:
            assert pipe.poll(DEADLINE_S), "the process says nothing more"
            heard.append(pipe.recv())
    process.join(DEADLINE_S)
    code = process.exitcode
    assert code is not None, "the process does not end"
    process.close()
    said = [what for what, error in heard if not error]
    return Ended(code, said, "".join(error for _, error in heard))


def _started(
    main: Callable[..., None], given: tuple[Any, ...]
) -> tuple[ForkServerProcess, Connection]:
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(
        target=_run, args=(theirs, str(Path.cwd()), dict(os.environ), main, given)
    )
    process.start()
    theirs.close()
    return process, ours


def _run(
    pipe: Connection,
    folder: str,
    environment: dict[str, str],
    main: Callable[..., None],
    given: tuple[Any, ...],
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    try:
        main(lambda said: pipe.send((said, "")), *given)
    except BaseException:
        pipe.send((None, traceback.format_exc()))
        raise
