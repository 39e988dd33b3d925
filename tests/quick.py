"""Run the tests of what changed: `python -m tests.quick [BASE]`, or `make quick`.

What changed is what differs from the commit BASE, by default the last one, new files included.
Folders of `tests/` mirror those of `agentnb/`. What drives a browser is left to the whole suite.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent

PAGES = ("tests/test_docs.py", "tests/test_doc_blocks.py")
BUILT = ("tests/test_supply.py", "tests/test_floors.py", "tests/test_built.py")
PACKAGE = ("tests/test_import.py", "tests/test_floors.py", "tests/test_house.py")
"""For any change in the package: what it imports, and how large it is."""
FEATURES = (
    "notebooks/quickstart.ipynb",
    "tests/cassette/test_recording.py",
    "tests/mapping/test_result.py",
    "tests/store/test_runs.py",
    "tests/tasks/test_tools.py",
    "tests/test_approval.py",
    "tests/test_conversation.py",
    "tests/test_delegation_by_tools.py",
    "tests/test_money_runs.py",
    "tests/test_openai_runs.py",
    "tests/test_recover_budget.py",
    "tests/test_session.py",
    "tests/test_tell.py",
    "tests/test_typed.py",
    "tests/views/panel/test_saved_views.py",
)
"""For a change in the core: each feature from outside."""
_NONE_LEFT = 5
"""What pytest ends with if it has left all tests out."""


def needed_for(changed: Iterable[str], tests: Mapping[str, str]) -> list[str]:
    """What pytest has to run for some changed files: files, and folders of them.

    Args:
        changed: Paths below the root, with `/`.
        tests: The text of each Python file below `tests/`, by its path.
    """
    wanted = {each for path in changed for each in _needed_for(PurePosixPath(path), tests)}
    wanted = {each for each in wanted if not each.startswith("tests/browser/")}
    return sorted(each for each in wanted if wanted.isdisjoint(_above(each)))


def _above(path: str) -> list[str]:
    return [str(folder) for folder in PurePosixPath(path).parents]


def _needed_for(path: PurePosixPath, tests: Mapping[str, str]) -> Iterator[str]:
    match path.parts, path.suffix:
        case ("agentnb", *_), ".py":
            yield from PACKAGE
            yield from _of_module(path, tests)
            if path.parts[1] == "core":
                yield from FEATURES
        case ("agentnb", *_), _:  # styles, scripts and other data
            yield from _of_module(path, tests)
            yield "tests/test_built.py"
        case ("tests", *_), ".py" if path.name.startswith("test_"):
            if str(path) in tests:
                yield str(path)
        case ("tests", *_), ".py" if path.name == "conftest.py":
            yield str(path.parent)
        case ("tests", *_), ".py":
            yield from _users(path, tests)
        case ("tests", folder, *_), _ if any(
            each.startswith(f"tests/{folder}/test_") for each in tests
        ):
            yield f"tests/{folder}"  # its data
        case ("notebooks", *_), ".ipynb":
            yield str(path)
        case (_, *_), ".md":
            yield from PAGES
        case ("pyproject.toml",), _:
            yield from BUILT


def _of_module(path: PurePosixPath, tests: Mapping[str, str]) -> Iterator[str]:
    """The folder that mirrors a module's, and a file of its name.

    Without either, the tests that import it; without any, those of all features.
    """
    folders = {folder for test in tests for folder in _above(test)}
    inside = path.parts[1:-1]
    mirrors = [
        each for n in range(len(inside), 0, -1) for each in ("/".join(inside[:n]), inside[n - 1])
    ]
    found = [f"tests/{each}" for each in mirrors if f"tests/{each}" in folders][:1]
    found += {f"tests/test_{path.stem}.py", f"tests/test_{path.parent.name}.py"} & tests.keys()
    yield from found or [each for each in _importers(path, tests) if _is_test(each)] or FEATURES


def _users(path: PurePosixPath, tests: Mapping[str, str]) -> Iterator[str]:
    """The tests that import a module of `tests/`, also by others of these modules."""
    seen, ahead = {str(path)}, [path]
    while ahead:
        new = set(_importers(ahead.pop(), tests)) - seen
        seen |= new
        ahead += [PurePosixPath(each) for each in new if not _is_test(each)]
    yield from filter(_is_test, seen)


def _importers(path: PurePosixPath, tests: Mapping[str, str]) -> Iterator[str]:
    name = re.escape(".".join(path.with_suffix("").parts))
    room, _, module = name.rpartition(r"\.")
    used = re.compile(rf"\b{name}\b|from {room} import [^\n]*\b{module}\b")
    yield from (test for test, text in tests.items() if used.search(text))


def _is_test(path: str) -> bool:
    return PurePosixPath(path).name.startswith("test_")


def changed_since(base: str) -> list[str]:
    """What differs from a commit and is still there, new files included.

    Raises:
        ValueError: There is no such commit.
    """
    found: list[str] = []
    for asked in (
        ["diff", "--name-only", base, "--"],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        done = subprocess.run(["git", *asked], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip())
        found += done.stdout.splitlines()
    return [path for path in found if (ROOT / path).is_file()]


def main() -> None:
    """Run them; the exit code is pytest's, and 2 without a commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description="Tests of a change.")
    parser.add_argument("base", nargs="?", default="HEAD", help="the commit before the change")
    base = parser.parse_args().base
    try:
        changed = changed_since(base)
    except ValueError as error:
        print(f"{error}\nName a commit: `make quick BASE=HEAD~1`.")
        sys.exit(2)
    files = (ROOT / "tests").rglob("*.py")
    tests = {str(file.relative_to(ROOT).as_posix()): file.read_text("utf-8") for file in files}
    wanted = needed_for(changed, tests)
    runs = []
    if any(path.endswith(".js") for path in changed) and (node := shutil.which("node")):
        runs.append([node, "--test", *map(str, (ROOT / "tests" / "js").glob("*.test.js"))])
    if wanted:
        marks = ["-q", "-m", "not browser and not live"]
        runs.append([sys.executable, "-m", "pytest", *marks, *wanted])
    shown = " ".join(wanted) if runs else "none has a test here (make quick BASE=HEAD~1?)"
    print(f"{len(changed)} files changed since {base}: {shown}", flush=True)
    codes = [subprocess.run(each, cwd=ROOT).returncode for each in runs]
    sys.exit(max((0 if code == _NONE_LEFT else code for code in codes), default=0))


if __name__ == "__main__":
    main()
