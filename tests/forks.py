"""Processes that start in a fraction of a second, forked from one that has imported the package.

For tests that kill many. They do not show how long a fresh process takes, or what it imports.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Timer
from traceback import format_exc
from typing import Any, Final

from tests.main_module import run_as_main
from tests.support import DEADLINE_S

METHOD: Final = "forkserver"
_CONTEXT = multiprocessing.get_context(METHOD)
_CONTEXT.set_forkserver_preload(
    [
        "tests.exit_functions",
        "agentnb.cluster.host",
        "agentnb.store.store",
        "distributed",
        "tests.mcp.sdk",
        "tests.recover_scene",
        "tests.soak.map",
        "tests.tasks.dying",
        "tests.frozen",
    ]
)

Say = Callable[[Any], None]
"""Sends a value to the test, at once."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    """0, or the negative number of the signal that killed it."""
    said: list[Any]
    error: str
    """The traceback of its exception."""


def killed_when_it_says(main: Callable[..., None], *given: Any) -> Any:
    """Run `main(say, *given)` in a process of its own; kill it when it says something.

    Args:
        main: A function of a module. It must not return before it has said something.
        given: Its other arguments, which must be picklable.

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
        pipe.send((None, format_exc()))
        raise


class Program:
    """Like `python -c CODE ARGUMENTS` but for its imports: the same `__main__`, streams and end.

    Its `with` block kills it at the end.

    Args:
        code: The code of its `__main__`.
        arguments: The rest of `sys.argv`.
        environment: Variables that it has besides those of this process.
    """

    def __init__(
        self, code: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> None:
        (of_input, input_), (output, of_output) = os.pipe(), os.pipe()
        self.stdin = os.fdopen(input_, "w", encoding="utf-8")
        self.stdout = os.fdopen(output, encoding="utf-8")
        self._stderr = tempfile.TemporaryFile("a+b")  # an unread pipe would fill
        streams = (
            Connection(of_input, writable=False),
            Connection(of_output, readable=False),
            Connection(os.dup(self._stderr.fileno())),
        )
        self._process = _CONTEXT.Process(
            target=_be_a_program,
            args=(
                streams,
                str(Path.cwd()),
                {**os.environ, **(environment or {})},
                code,
                [str(each) for each in arguments],
            ),
        )
        self._process.start()
        for each in streams:
            each.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self._close()  # perhaps a second time, after `end`

    def end(self) -> subprocess.CompletedProcess[str]:
        """Close its input and wait for its end; return its remaining output."""
        self._close_input()
        against_a_hang = Timer(2 * DEADLINE_S, self.kill)
        against_a_hang.start()
        output = self.stdout.read()
        against_a_hang.cancel()
        done = subprocess.CompletedProcess((), self.wait(), output, self.errors)
        self._close()
        return done

    def say(self, line: str) -> None:
        """Send it a line of input."""
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    @property
    def is_alive(self) -> bool:
        """Whether it is still running."""
        return self._process.is_alive()

    def kill(self) -> None:
        """Kill it, if it is still running."""
        self._process.kill()

    def interrupt(self) -> None:
        """Send it the signal of Ctrl-C."""
        os.kill(self.pid, signal.SIGINT)

    def wait(self) -> int:
        """Wait for its end; return its exit code, as `subprocess.Popen` does."""
        self._process.join(DEADLINE_S)
        assert self._process.exitcode is not None, "the program does not end"
        return self._process.exitcode

    @property
    def errors(self) -> str:
        """Its error output."""
        self._stderr.seek(0)
        return self._stderr.read().decode()

    def _close_input(self) -> None:
        with suppress(OSError):  # if input was left unread
            self.stdin.close()

    def _close(self) -> None:
        self._close_input()
        self.stdout.close()
        self._stderr.close()


def run_program(
    code: str, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE ARGUMENTS`, as a `Program`, to its end."""
    return Program(code, *arguments, environment=environment).end()


def printed_by(code: str) -> str:
    """Run a `Program` that must succeed without error output or a warning; return its output."""
    warns = "import warnings; warnings.simplefilter('default')\n"
    done = run_program(warns + textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def _be_a_program(
    streams: tuple[Connection, ...],
    folder: str,
    environment: dict[str, str],
    code: str,
    arguments: list[str],
) -> None:
    from tests import exit_functions  # not above: only a process that is forked from records

    exit_functions.restore()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    run_as_main(code, arguments)
