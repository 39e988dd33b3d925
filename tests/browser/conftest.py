"""JupyterLab and a browser for the tests of this folder, started once for all of them.

They end with the last test of the folder: until then, Playwright's event loop runs on pytest's own
thread, and no asynchronous test could run beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.chromium import LetPass, a_chromium, a_playwright, find_chromium
from tests.browser.desk import Desk
from tests.browser.server import LabServer, a_lab
from tests.browser.tree_page import Open, TreePage, a_tree_page, files_over_http

_HERE = Path(__file__).parent
_NO_BROWSER = (
    "There is no Chromium on this machine. Install one (Debian: `apt-get install "
    "chromium-headless-shell`; elsewhere the package `chromium`), or run `python -m playwright "
    "install chromium`."
)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker("browser")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """A real browser. Without one, the test is skipped; in CI it fails."""
    with a_playwright() as playwright:
        path = find_chromium(playwright)
        if path is None:
            if os.environ.get("CI"):
                pytest.fail(_NO_BROWSER)
            pytest.skip(_NO_BROWSER)
        with a_chromium(playwright, path) as browser:
            yield browser


@pytest.fixture(scope="package")
def tree_address() -> Iterator[str]:
    """The address of the tree without a kernel."""
    with files_over_http() as address:
        yield address


@pytest.fixture(scope="package")
def tree_context(chromium: Browser) -> Iterator[BrowserContext]:
    """The context of all trees without a kernel: a context for each page would be another window.

    The trees store nothing, and each page has its own keys, mouse and media.
    """
    with chromium.new_context() as context:
        yield context


@pytest.fixture(scope="package")
def _clocked_context(chromium: Browser) -> Iterator[BrowserContext]:
    with chromium.new_context() as context:
        context.clock.install()
        yield context


@pytest.fixture
def let_pass(_clocked_context: BrowserContext) -> LetPass:
    """Moves the clock of a test's pages without a kernel on, for what would be waited for."""
    return _clocked_context.clock.run_for


@pytest.fixture
def page_context(request: pytest.FixtureRequest, tree_context: BrowserContext) -> BrowserContext:
    """The context of a test's pages without a kernel."""
    if "let_pass" in request.fixturenames:
        return cast(BrowserContext, request.getfixturevalue("_clocked_context"))
    return tree_context


@pytest.fixture
def open_tree(page_context: BrowserContext, tree_address: str) -> Iterator[Open]:
    """Opens the tree in a page of its own, which is closed after the test."""
    with ExitStack() as stack:

        def opened(query: str = "agents=30", *, width: int = 1400) -> TreePage:
            return stack.enter_context(a_tree_page(page_context, tree_address, query, width=width))

        yield opened


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """A real JupyterLab."""
    with a_lab(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="package")
def shared_desk(chromium: Browser, lab: LabServer) -> Iterator[Desk]:
    """The desk that `desk` gives to one test after the other."""
    desk = Desk(chromium, lab)
    try:
        yield desk
    finally:
        desk.close()


@pytest.fixture
def desk(shared_desk: Desk) -> Iterator[Desk]:
    """JupyterLab in the browser. No page may request another machine, or have a script error."""
    shared_desk.watch.forget()
    try:
        yield shared_desk
        watch = shared_desk.watch
        assert (watch.left_the_machine, watch.dialogs, watch.errors) == ([], [], [])
    finally:
        shared_desk.tidy()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of this folder's tests, which are the slow ones."""
    reports = [
        report
        for outcome in ("passed", "failed", "error", "skipped", "")
        for report in terminalreporter.getreports(outcome)
        if report.nodeid.startswith("tests/browser/")
    ]
    if any(report.when == "call" for report in reports):
        took_s = sum(report.duration for report in reports)
        terminalreporter.write_line(f"The tests in a browser took {took_s:.0f} s.")
