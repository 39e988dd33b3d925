"""Measures the package: chains of imports, sizes of rooms, the way of a plain task.

`python -m tests.house` prints the table; `tests/test_house.py` holds its figures.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import grimp

import agentnb

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agentnb"
CORE = PACKAGE / "core"
AFTERNOON = (
    "orchestrator.py", "_run/execution.py", "_run/agent.py", "_run/conversation.py",
    "_run/jobs.py", "_run/admission.py", "_run/results.py", "limits.py", "budget.py",
    "_budget/meter.py", "_budget/lease.py", "bus.py", "events.py", "cancel.py", "tree.py",
)  # fmt: skip
"""What somebody reads in an afternoon to know how a run works."""


def figures() -> dict[str, int]:
    """All figures, by name."""
    files, functions = way_of_a_task()
    return {
        "longest chain of rooms in the core": len(longest_chain("agentnb.core", depth=3)),
        "longest chain of rooms in the house": len(longest_chain("agentnb", depth=2)),
        "code lines of the core": lines_in(CORE.rglob("*.py")),
        "code lines of the afternoon list": lines_in(CORE / each for each in AFTERNOON),
        "code lines of the package": lines_in(PACKAGE.rglob("*.py")),
        "modules beside the folders": len(list(PACKAGE.glob("*.py"))),
        "core files that name the past": names_the_past(),
        "files that a plain task passes": files,
        "functions that a plain task passes": functions,
        "parameters of the largest private constructor": largest_constructor(),
    }


# -- imports -----------------------------------------------------------------------------------


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("agentnb", exclude_type_checking_imports=True, cache_dir=None)


def longest_chain(package: str, *, depth: int) -> tuple[str, ...]:
    """The longest chain of imports among the rooms of a package.

    Args:
        package: Its full name.
        depth: How many parts of a module's name name its room.

    Returns:
        The rooms, each importing the next.
    """
    below: dict[str, set[str]] = {}
    for module in sorted(_graph().modules):
        if module.startswith(f"{package}."):
            room = _room(module, depth)
            imported = _graph().find_modules_directly_imported_by(module)
            rooms = {_room(each, depth) for each in imported if each.startswith(f"{package}.")}
            below.setdefault(room, set()).update(rooms - {room})
    chains: dict[str, tuple[str, ...]] = {}

    def chain(room: str) -> tuple[str, ...]:  # there is no circle: a contract refuses one
        if room not in chains:
            rests = [chain(each) for each in sorted(below.get(room, ()))]
            chains[room] = (room, *max(rests, key=len, default=()))
        return chains[room]

    return max((chain(room) for room in sorted(below)), key=len)


def _room(module: str, depth: int) -> str:
    return ".".join(module.split(".")[:depth])


# -- sizes -------------------------------------------------------------------------------------


_NO_CODE = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
     tokenize.ENDMARKER)
)  # fmt: skip


def lines_in(paths: Iterable[Path]) -> int:
    return sum(map(_lines_of, paths))


@cache
def _lines_of(path: Path) -> int:
    return code_lines(path.read_text(encoding="utf-8"), _parsed(path))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def code_lines(text: str, parsed: ast.Module | None = None) -> int:
    """Lines that hold code: no blank line, comment or docstring counts."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parsed or ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                held.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(held)


def names_the_past() -> int:
    """How many files of the core name the record that a run follows."""
    return sum(
        bool(re.search(r"\bpast\b", path.read_text(encoding="utf-8")))
        for path in CORE.rglob("*.py")
    )


def largest_constructor() -> int:
    """Most parameters, without `self`, of a constructor that no person calls."""
    return max(
        _parameters(part)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.ClassDef) and node.name not in agentnb.__all__
        for part in node.body
    )


def _parameters(node: ast.stmt) -> int:
    if not isinstance(node, ast.FunctionDef) or node.name != "__init__":
        return 0
    return len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1


# -- the way of a plain task ---------------------------------------------------------------------

_TASK = """
import asyncio, sys, threading
import agentnb
from agentnb import ScriptedProvider
from agentnb.runtime import get_runtime

passed, me, returned = set(), threading.get_ident(), threading.Event()
spawns = works = False

def note(frame, event, argument):
    # The caller's thread until `spawn` returns, the others until the provider is asked: which of
    # them is ahead is chance.
    if event == "call" and (spawns if threading.get_ident() == me else works):
        path = frame.f_code.co_filename
        if path.startswith(package):
            passed.add((path, frame.f_code.co_qualname))

package = agentnb.__file__.removesuffix("__init__.py")
threading.setprofile(note)
sys.setprofile(note)

def answer(request):
    global works
    works = False
    returned.wait(20)  # what follows the answer must not be met in `spawn`
    return "done"

session = agentnb.Session(provider=ScriptedProvider(answer), store=None, config=False)
returned.set()
session.spawn("warm up").result()
get_runtime().submit(asyncio.sleep(0)).result()  # what follows a result is done, too
returned.clear()
spawns = works = True
run = session.spawn("Say it.")
spawns = False
returned.set()
run.result()
print(len({path for path, _ in passed}), len(passed))
"""


def way_of_a_task() -> tuple[int, int]:
    """Files and functions of the package between `Session.spawn(task)` and the provider."""
    done = subprocess.run(
        [sys.executable, "-c", _TASK], capture_output=True, text=True, check=True, cwd=ROOT
    )
    files, functions = map(int, done.stdout.split())
    return files, functions


def table(found: Mapping[str, int]) -> str:
    return "\n".join(f"{number:7,}  {name}" for name, number in found.items())


if __name__ == "__main__":
    print(table(figures()))  # noqa: T201  # it is run by hand, for what it prints
