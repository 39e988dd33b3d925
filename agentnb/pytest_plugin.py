"""The pytest plugin: a session and a cassette for each test, and notebooks that nbval compares.

pytest loads it by its entry point, whatever it tests. So it loads nothing of agentnb, and changes
nothing, until a test asks for one of its fixtures, or nbval runs a notebook.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agentnb.modes import Mode
    from agentnb.session import Session

_OPTION = "--agentnb-mode"
_MODES = ("live", "record", "auto", "replay")  # of `agentnb.modes`, which is not loaded for it
_UNUSED = "agentnb_unused"
_ANSWER_S = 30
_LONGEST_ID = 60
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_mode_of_test = pytest.StashKey["Mode"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--agentnb-mode`."""
    parser.getgroup("agentnb").addoption(
        _OPTION,
        choices=_MODES,
        help="mode of runs in tests with `agentnb_session` or `agentnb_cassette`, and in notebooks "
        "under nbval; overrides AGENTNB_MODE. By default recorded runs are replayed.",
    )


# -- fixtures ---------------------------------------------------------------------------------


@pytest.fixture
def agentnb_settings() -> dict[str, Any]:
    """What `agentnb_session` is made with, as `Session` takes it: override it with your own."""
    return {}


@pytest.fixture
def agentnb_cassette(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The test's own cassette, which every session uses that is made in the test.

    It is `cassettes/TEST_FILE/TEST_NAME.cassette.jsonl` beside the test's file. Runs are counted
    anew. In mode `replay` the network is closed; so it is in CI for a test without a cassette,
    unless a mode is said.
    """
    from agentnb import default_session
    from agentnb.modes import CASSETTE_VARIABLE, LIVE, MODE_VARIABLE, REPLAY
    from agentnb.repeat import asked_labels, counted_anew
    from agentnb.testing._network import closed_network

    path = cassette_of_test(request.node)
    mode = request.node.stash[_mode_of_test] = _mode(request, path)
    if mode.name not in (LIVE, REPLAY):
        path.parent.mkdir(parents=True, exist_ok=True)
    is_closed = mode.name == REPLAY or mode.trouble is not None
    with pytest.MonkeyPatch.context() as patch, counted_anew():
        # For the sessions of the code under test, too.
        patch.setenv(CASSETTE_VARIABLE, str(path))
        if mode.trouble is None:
            patch.setenv(MODE_VARIABLE, mode.name)
        patch.setattr(default_session, "_default", None)
        with closed_network(mode.trouble or _why_closed(mode)) if is_closed else nullcontext():
            yield path
        if (made := default_session.session_at_hand()) is not None:
            made.close()
        if mode.name == REPLAY:
            _note_unused(request.node, path, asked_labels().get(str(path.resolve()), ()))


@pytest.fixture
def agentnb_session(
    request: pytest.FixtureRequest, agentnb_cassette: Path, agentnb_settings: dict[str, Any]
) -> Iterator[Session]:
    """A session with the test's own cassette, which is closed after the test. It has no store."""
    from agentnb.session import Session

    mode = request.node.stash[_mode_of_test]
    ours = {"mode": mode.name, "cassette": agentnb_cassette, "store": None}
    with Session(**{**ours, **agentnb_settings}) as session:
        if "mode" not in agentnb_settings:
            session._repeat.mode = mode  # it says why
        yield session


def _why_closed(mode: Mode) -> str:
    return (
        f"this test is in mode `replay` ({mode.why}), where its cassette answers its runs. Answer "
        f"the rest with fakes, or run it with `{_OPTION}=live`."
    )


def _mode(request: pytest.FixtureRequest, path: Path) -> Mode:
    from agentnb.modes import CassetteFile, mode_of_test

    option = request.config.getoption(_OPTION)
    try:
        return mode_of_test(option, os.environ, CassetteFile(path, "the test's"), Path())
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def cassette_of_test(test: pytest.Item) -> Path:
    """The file of a test's cassette: one for each test, and for each of its parameters.

    The id of a parameter becomes a part of the name. If it has other characters than letters,
    digits, `_`, `.` and `-`, is long, or has capital letters, which some file systems take for
    small ones, a part of its hash follows.

    Args:
        test: A function or a method.
    """
    classes = [each.name for each in test.listchain() if isinstance(each, pytest.Class)]
    name = ".".join([*classes, getattr(test, "originalname", None) or test.name])
    parameters = getattr(test, "callspec", None)
    if parameters is not None:
        id_ = parameters.id
        plain = _NOT_IN_A_NAME.sub("-", id_)[:_LONGEST_ID].strip("-.")
        name += f"-{plain}"
        if plain != id_.lower():
            name += f"-{hashlib.sha256(id_.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"
    return test.path.parent / "cassettes" / test.path.stem / f"{name}.cassette.jsonl"


# -- notebooks under nbval --------------------------------------------------------------------


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have the texts of a notebook's cell compared here, too: nbval reports them less readably."""
    if _is_cell(item):
        cell: Any = item
        cell.compare_outputs = partial(_compare, cell, cell.compare_outputs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Start a notebook's kernel in the mode of the option."""
    mode = item.config.getoption(_OPTION)
    if mode is None or not _is_cell(item):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTNB_MODE", mode)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After a notebook's last cell, ask its kernel which recorded runs its cells asked for."""
    notebook: Any = item.parent
    if _is_cell(item) and (nextitem is None or nextitem.parent is not notebook):
        cassette = item.path.resolve().with_suffix(".cassette.jsonl")
        kernel = notebook.kernel  # `None` if none was started
        if cassette.is_file() and kernel is not None and kernel.is_alive():
            from agentnb.testing._lessons import QUESTION, answer

            asks = {"silent": True, "timeout": _ANSWER_S, **QUESTION}
            with suppress(TimeoutError):  # it is busy with a cell that failed
                # Without any its runs were live.
                told = answer(kernel.kc.execute_interactive("", **asks))
                if asked := told["asked"].get(str(cassette)):
                    _note_unused(item, cassette, asked)
    return (yield)


def _note_unused(item: pytest.Item, path: Path, asked: Sequence[str]) -> None:
    """Note recorded runs that were not asked for, in what a worker of xdist reports, too."""
    from agentnb.cassette import BadCassette, Cassette
    from agentnb.repeat import not_asked

    try:
        unused = not_asked(Cassette.read(path), asked)
    except BadCassette:
        return  # the test has told
    if unused:
        item.user_properties.append((_UNUSED, [path.name, *unused]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the recorded runs that no test, and no cell, asked for."""
    stats = terminalreporter.stats
    partly = [*stats.get("failed", ()), *stats.get("error", ()), *stats.get("deselected", ())]
    files = {each.nodeid.partition("::")[0] for each in partly}
    found = [
        each
        for report in stats.get("", ())
        if report.nodeid.partition("::")[0] not in files
        for name, each in getattr(report, "user_properties", ())
        if name == _UNUSED and report.when == "teardown"
    ]
    if not found:
        return
    number = sum(len(labels) for _, *labels in found)
    were = "recording was" if number == 1 else "recordings were"
    terminalreporter.section("agentnb")
    terminalreporter.write_line(f"{number:,} {were} not used:")
    for name, *labels in found:
        terminalreporter.write_line(f"  {name}: {', '.join(map(repr, labels))}")


def _is_cell(item: pytest.Item) -> bool:
    nbval = sys.modules.get("nbval.plugin")
    return nbval is not None and isinstance(item, getattr(nbval, "IPyNbCell", ()))


def _compare(
    cell: Any, by_nbval: Any, made: Sequence[Any], saved: Sequence[Any], *rest: Any, **more: Any
) -> bool:
    """Whether a cell's outputs are the saved ones: in place of nbval's `compare_outputs`."""
    from agentnb.testing._outputs import compared, differences

    made, saved = compared(made), compared(saved)
    found = differences(saved, made, clean=cell.sanitize)
    if found:
        cell.comparison_traceback = found  # nbval's report shows these lines
        return False
    return bool(by_nbval(made, saved, *rest, **more))
