"""`python -m agentnb`: commands on a person's files, without a kernel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from agentnb.core.errors import AgentnbError
from agentnb.core.shown import counted
from agentnb.core.text import LONGEST_LINE, literal, visible
from agentnb.views.freeze import freeze_file

WRONG = 2
"""Exit code when a file could not be handled. The other files were."""
BROKEN = 1
"""Exit code of `doctor` when something does not work."""


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
    act = _freeze if order.verb == "freeze" else _prune
    return max([_changed(act, file) for file in order.files])


def _doctor(*, as_json: bool) -> int:
    from agentnb.doctor import examine

    examined = examine()
    print(examined.json if as_json else examined.text)
    if not as_json:
        print("In a notebook, `%agentnb doctor` also says whether the page shows live views.")
    return BROKEN if examined.has_fault else 0


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


def _prune(file: str) -> str:
    from agentnb.cassette import prune

    gone = prune(file)
    said = f"{counted(len(gone), 'call')} removed" if gone else "no unused calls"
    return "\n".join([said, *(f"  {call}" for call in gone)])


class _Parser(argparse.ArgumentParser):
    """Escapes an error's quotes: a shell may complete file names that hold control characters."""

    def error(self, message: str) -> NoReturn:
        super().error(visible(message, LONGEST_LINE))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m agentnb", description="Trees of language-model agents, in a notebook."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", title="commands")
    words = "remove the live views from saved notebooks"
    freeze = verbs.add_parser(
        "freeze",
        help=words,
        description="Remove agentnb's live views from saved notebooks, so that they do not show "
        "'model not found' when reopened. Pictures, outlines and answers stay.",
    )
    freeze.add_argument("files", nargs="+", metavar="FILE", help="a notebook (.ipynb)")
    words = "trust a settings file that names servers on other machines"
    trust = verbs.add_parser(
        "trust",
        help=words,
        description="Trust a settings file until it changes: it may then name servers on other "
        "machines, which get conversations and keys, start MCP servers, and let a run spend more. "
        "Prints what that allows.",
    )
    trust.add_argument("files", nargs="+", metavar="FILE", help="an agentnb.yaml, or its folder")
    words = "check the set-up, and say how to fix it"
    doctor = verbs.add_parser(
        "doctor",
        help=words,
        description="Look at versions, extras, kernel, front ends, keys (by name), agentnb.yaml, "
        "trust and store, and say how to fix each fault. Changes nothing and uses no network. "
        "Exits with 1 if something does not work.",
    )
    doctor.add_argument("--json", action="store_true", help="for machines: one JSON object")
    words = "clean up recorded runs"
    cassette = verbs.add_parser("cassette", help=words, description="Clean up recorded runs.")
    tidy = cassette.add_subparsers(dest="act", metavar="COMMAND", required=True)
    words = "remove unused calls"
    prune = tidy.add_parser(
        "prune",
        help=words,
        description="Remove from each cassette the calls that the newest `auto` run of its "
        "notebook did not use, and list them. Use it while nothing is recording.",
    )
    prune.add_argument("files", nargs="+", metavar="FILE", help="NAME.cassette.jsonl")

    return parser


if __name__ == "__main__":
    sys.exit(main())
