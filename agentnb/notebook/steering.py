"""Verbs of `%spawn` that steer a running run; each says in one line what has changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentnb.core.errors import AgentnbError
from agentnb.core.shown import listed
from agentnb.core.types import ROOT_PATH, path_key, path_of
from agentnb.errors import NotebookError
from agentnb.notebook.line import does_not_take
from agentnb.run import Run

_RUN = re.compile(r"--run(?:=|\s+)(\S+)")
_TELL = re.compile(r"\s*(?:--run(?:=|\s+)\S+\s+)?tell(?!\S)")
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)


class Telling(NamedTuple):
    """The typed arguments of `%spawn tell`."""

    path: str
    words: str
    run_id: str | None


def telling_in(line: str) -> Telling | None:
    """Read a `%spawn tell`; `None` if the line has another verb.

    The words are not parsed as a shell would: an apostrophe does not open a quote. One pair of
    quotes around all of them is dropped. `--run ID` may come before the verb, before the path,
    before the words or at the end.

    Raises:
        NotebookError: The path or the words are missing.
    """
    found = _TELL.match(line)
    if found is None:
        return None
    run_ids = _RUN.findall(found[0])
    rest = line[found.end() :].strip()
    if not run_ids:
        rest, run_ids = _without_run(rest)
    path, _, words = rest.partition(" ")
    words = words.strip()
    if not run_ids:
        words, run_ids = _without_run(words)
    if (quoted := _QUOTED.fullmatch(words)) is not None:
        words = quoted[2]
    if not path or not words.strip():
        raise NotebookError(
            "`%spawn tell` needs an agent's path and words: "
            "`%spawn tell 2.1 Use primary sources only.`"
        )
    return Telling(path, words, run_ids[0] if run_ids else None)


def _without_run(text: str) -> tuple[str, list[str]]:
    """A text without `--run ID` at its beginning or its end, and that id."""
    for found in (_RUN.match(text), re.search(rf"(?:^|\s){_RUN.pattern}$", text)):
        if found is not None:
            return (text[: found.start()] + text[found.end() :]).strip(), [found[1]]
    return text, []


def tell(run: Run, telling: Telling) -> str:
    """Send a note to an agent. Returns what to show."""
    try:
        run.tell(telling.path, telling.words)
    except AgentnbError:
        raise
    except ValueError as error:  # the text is not a valid note
        raise NotebookError(str(error)) from None
    path = path_of(telling.path, run.thread_id)
    who = "The root" if path == ROOT_PATH else f"Agent {path}"
    return f"Sent. {who} reads it at its next turn."


def pause(run: Run, arguments: Sequence[str]) -> str:
    """Pause the run, or the agent whose path is given and all below it."""
    agent = _agent(arguments, "pause")
    before = run.paused
    run.pause(agent)
    if new := set(run.paused) - set(before):
        return f"Paused: {_paths(new)}. Open calls and tools finish."
    return "Already paused: nothing has changed."


def resume(run: Run, arguments: Sequence[str]) -> str:
    """End all pauses of the run, or those of the agent whose path is given and all below it."""
    agent = _agent(arguments, "resume")
    before = run.paused
    run.resume(agent)
    ended, left = set(before) - set(run.paused), run.paused
    said = f"Resumed: {_paths(ended)}." if ended else "Nothing was paused there."
    return f"{said} Still paused: {_paths(left)}." if left else said


def state_of(run: Run) -> str:
    """The status of a run, and where it is paused: `running, paused: 1, 2.1`."""
    if not run.paused:
        return str(run.status)
    at = "" if ROOT_PATH in run.paused else f": {_paths(run.paused)}"
    return f"{run.status}, paused{at}"


def _agent(arguments: Sequence[str], verb: str) -> str | None:
    if len(arguments) > 1:
        raise NotebookError(does_not_take(arguments[1:], f"%spawn {verb}"))
    return arguments[0] if arguments else None


def _paths(paths: Iterable[str]) -> str:
    return listed(sorted(paths, key=path_key))
