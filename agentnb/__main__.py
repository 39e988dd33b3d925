"""`python -m agentnb`: commands on a person's files, without a kernel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from agentnb.core.errors import AgentnbError
from agentnb.core.shown import counted, listed
from agentnb.core.text import LONGEST_LINE, literal, visible
from agentnb.errors import NotebookError
from agentnb.views.freeze import freeze_file

WRONG = 2
"""Exit code when a file could not be handled. The other files were."""
BROKEN = 1
"""Exit code of `doctor` when something does not work, of `check` and `diff` when something
differs."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        arguments: Its words; by default those of this process.

    Returns:
        The exit code.
    """
    parser = _parser()
    order = parser.parse_args(arguments)
    if order.verb is None:
        parser.print_help()
        return 0
    if order.verb == "doctor":
        return _doctor(as_json=order.json)
    # A file with an error does not stop the files after it.
    if order.verb == "trust":
        return max(map(_trust, order.files))
    if order.verb in ("record", "check"):
        mode = "replay" if order.verb == "check" else "auto" if order.auto else "record"
        return _lessons(order.files, mode, order.jobs)
    if order.verb == "cassette" and order.act == "diff":
        return _diff(order.old, order.new)
    if order.verb == "freeze":
        return max([_changed(_freeze, file) for file in order.files])
    return max([_changed(partial(_prune, order.notebook), file) for file in order.files])


def _doctor(*, as_json: bool) -> int:
    from agentnb.doctor import examine

    examined = examine()
    print(examined.json if as_json else examined.text)
    if not as_json:
        print("In a notebook, `%agentnb doctor` also says whether the page shows live views.")
    return BROKEN if examined.has_fault else 0


def _lessons(files: Sequence[str], mode: str, jobs: int) -> int:
    import asyncio

    from tqdm import tqdm

    from agentnb.testing import _lessons

    def tell(lesson: _lessons.Lesson) -> None:
        tqdm.write("\n".join(lesson.lines()))

    try:
        paths = _lessons.notebooks_in(files)
        with tqdm(desc=f"{counted(len(paths), 'notebook')}: cells", disable=None) as bar:
            run = _lessons.run_lessons(paths, mode, jobs=jobs, tell=tell, at_cell=bar.update)
            done = asyncio.run(run)
    except AgentnbError as error:
        print(error, file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        said = "Interrupted: the notebooks that had not ended are as they were"
        if mode != "replay":
            said += "; their cassettes have the calls that were answered"
        print(f"{said}.", file=sys.stderr)
        return INTERRUPTED
    print(_lessons.summary(done))
    return BROKEN if any(each.failed for each in done) else 0


def _diff(old: str, new: str) -> int:
    from agentnb.cassette import Cassette
    from agentnb.checking.recordings import recorded_differences

    try:
        differs = "\n\n".join(recorded_differences(Cassette.read(old), Cassette.read(new)))
    except AgentnbError as error:
        print(error, file=sys.stderr)
        return WRONG
    print(differs or "The recorded runs are the same.")
    return BROKEN if differs else 0


def _trust(file: str) -> int:
    # Imported here: `freeze` needs neither.
    from agentnb.config import load_config
    from agentnb.trust import trust

    try:
        print(visible(trust(load_config(file)), 2000))
    except (AgentnbError, ValueError) as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


def _changed(act: Callable[[str], str], file: str) -> int:
    """Change a file by `act`, and print what that says of it."""
    try:
        print(f"{visible(file, 200)}: {act(file)}")
    except AgentnbError as error:
        print(error, file=sys.stderr)
        return WRONG
    except OSError as error:
        why = error.strerror or type(error).__name__
        print(f"{literal(file)} cannot be written, and is unchanged: {why}.", file=sys.stderr)
        return WRONG
    return 0


def _freeze(file: str) -> str:
    size = Path(file).stat().st_size if Path(file).is_file() else 0
    if taken := freeze_file(Path(file)):
        return f"{counted(taken, 'live view')} removed"
    is_smaller = Path(file).stat().st_size < size
    return "the state of views that are gone removed" if is_smaller else "nothing to remove"


def _prune(notebooks: Sequence[str], file: str) -> str:
    from agentnb.cassette import Cassette, prune

    left_out = _not_asked(notebooks, file) if notebooks else ()
    gone = prune(file, left_out)
    said = f"{counted(len(gone), 'call')} removed" if gone else "no unused calls"
    if not notebooks and not gone:
        runs = listed([literal(label, 60) for label in Cassette.read(file).labels], most=10)
        said += f" in its runs ({runs}). `--notebook FILE` removes the runs that no cell asks for"
    return "\n".join([said, *(f"  {call}" for call in gone)])


def _not_asked(notebooks: Sequence[str], cassette: str) -> Sequence[str]:
    """The runs of a cassette that no cell asks for. Runs the notebooks, without a network."""
    import asyncio

    from agentnb.cassette import Cassette
    from agentnb.testing._lessons import others_with, run_lessons, unused_by_all

    paths, labels = [Path(each) for each in notebooks], Cassette.read(cassette).labels
    real = Path(cassette).resolve()
    if others := others_with(real, paths):
        raise NotebookError(
            f"Nothing was removed: {listed([literal(each) for each in others], most=10)} may ask "
            f"for runs of {literal(cassette)}, too. Give each by `--notebook`."
        )
    why = "only what is recorded counts here"
    run = run_lessons(paths, "replay", cassette=Path(cassette), only_read=why)
    done = asyncio.run(run)
    none_asks = not any(set(labels) - set(each.unused.get(real, labels)) for each in done)
    for ran in done:
        if ran.error or ran.not_recorded or ran.unkept or none_asks:
            raise NotebookError(
                f"Nothing was removed: {literal(str(ran.path))} did not run to its end, or asked "
                "for no run of the cassette. Run `python -m agentnb check` to see what is wrong."
                f"{ran.error and chr(10)}{ran.error}"
            )
    return unused_by_all(done, real)


def _jobs(word: str) -> int:
    if not (word.isdecimal() and int(word)):
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1, not {literal(word)}")
    return int(word)


class _Parser(argparse.ArgumentParser):
    """Escapes an error's quotes: a shell may complete file names that hold control characters."""

    def error(self, message: str) -> NoReturn:
        super().error(visible(message, LONGEST_LINE))


def _verb(verbs: Any, name: str, about: str) -> argparse.ArgumentParser:
    """A command; the first sentence on it is for the list."""
    made: argparse.ArgumentParser = verbs.add_parser(
        name, help=about[0].lower() + about[1:].partition(".")[0], description=about
    )
    return made


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m agentnb", description="Trees of language-model agents, in a notebook."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", title="commands")
    freeze = _verb(
        verbs,
        "freeze",
        "Remove the live views from saved notebooks. Reopened, they would say 'model not found'. "
        "Pictures, outlines and answers stay.",
    )
    freeze.add_argument("files", nargs="+", metavar="FILE", help="a notebook (.ipynb)")
    trust = _verb(
        verbs,
        "trust",
        "Trust a settings file until it changes. It may then name servers on other machines, which "
        "get conversations and keys, start MCP servers, and let a run spend more. Prints what that "
        "allows.",
    )
    trust.add_argument("files", nargs="+", metavar="FILE", help="an agentnb.yaml, or its folder")
    doctor = _verb(
        verbs,
        "doctor",
        "Check the set-up, and say how to fix each fault. Looks at versions, extras, kernel, front "
        "ends, keys (by name), agentnb.yaml, trust and store. Changes nothing and uses no network. "
        "Exits with 1 if something does not work.",
    )
    doctor.add_argument("--json", action="store_true", help="for machines: one JSON object")
    cassette = _verb(verbs, "cassette", "Compare and clean up recorded runs.")
    tidy = cassette.add_subparsers(dest="act", metavar="COMMAND", required=True)
    prune = _verb(
        tidy,
        "prune",
        "Remove the calls that the newest `auto` run of a notebook did not use. Lists them. Use it "
        "while nothing is recording.",
    )
    prune.add_argument("files", nargs="+", metavar="FILE", help="NAME.cassette.jsonl")
    prune.add_argument(
        "--notebook",
        action="append",
        default=[],
        metavar="FILE",
        help="also remove the runs that no cell of this notebook asks for, or of these, if it is "
        "given several times; they are run to find them, in mode `replay`, which asks no model",
    )
    diff = _verb(
        tidy,
        "diff",
        "Compare the runs of two cassettes. Says of each agent which words, tokens and costs "
        "differ. Exits with 1 if something does.",
    )
    diff.add_argument("old", metavar="OLD", help="NAME.cassette.jsonl as it was before")
    diff.add_argument("new", metavar="NEW", help="as it is after")
    record = _verb(
        verbs,
        "record",
        "Run notebooks in fresh kernels, and record what the models answer. It is kept in "
        "NAME.cassette.jsonl beside each; the outputs are saved without live views. Asking models "
        "costs money: it says how much.",
    )
    record.add_argument("--auto", action="store_true", help="ask only what is not recorded yet")
    check = _verb(
        verbs,
        "check",
        "Run notebooks from their recordings, and compare the outputs with the saved ones. Each "
        "has a fresh kernel and is answered by the NAME.cassette.jsonl beside it. Asks no model "
        "and changes nothing, unless a notebook's own code sets another mode. Exits with 1 if "
        "something differs.",
    )
    for verb in (record, check):
        verb.add_argument(
            "files", nargs="+", metavar="FILE", help="a notebook, or a folder with some"
        )
        verb.add_argument("--jobs", type=_jobs, default=2, help="how many run at once (2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
