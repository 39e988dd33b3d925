"""JupyterLab and a browser for the tests of this folder, started once for all of them.

They end with the last test of the folder: Playwright's event loop runs on pytest's own thread as
long as it is there, and no asynchronous test could run beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.chromium import a_chromium, a_playwright, find_chromium
from tests.browser.desk import Desk
from tests.browser.server import LabServer, a_lab
from tests.browser.tree_page import Open, TreePage, a_tree_page, files_over_http

_HERE = Path(__file__).parent
_NO_BROWSER = (
    "There is no Chromium on this machine. Install the package `chromium` (Debian, Ubuntu: "
    "`apt-get install chromium`), or run `python -m playwright install chromium`."
)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker("browser")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """A real browser. Where there is none, the test is skipped; in CI it fails."""
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
    """Where the trees without a kernel are opened: a context for each page would be a window more.

    They store nothing, and keys, mouse and media are a page's own.
    """
    with chromium.new_context() as context:
        yield context


@pytest.fixture
def open_tree(tree_context: BrowserContext, tree_address: str) -> Iterator[Open]:
    """Opens the tree in a page of its own; closed after the test."""
    with ExitStack() as stack:

        def opened(query: str = "agents=30", *, width: int = 1400) -> TreePage:
            return stack.enter_context(a_tree_page(tree_context, tree_address, query, width=width))

        yield opened


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """A real JupyterLab."""
    with a_lab(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="package")
def shared_desk(chromium: Browser, lab: LabServer) -> Iterator[Desk]:
    """What `desk` lends to one test after the other."""
    desk = Desk(chromium, lab)
    try:
        yield desk
    finally:
        desk.close()


@pytest.fixture
def desk(shared_desk: Desk) -> Iterator[Desk]:
    """JupyterLab in the browser. No page may leave the machine, or stumble over its own script."""
    shared_desk.watch.forget()
    try:
        yield shared_desk
        watch = shared_desk.watch
        assert (watch.left_the_machine, watch.dialogs, watch.errors) == ([], [], [])
    finally:
        shared_desk.tidy()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how long the tests of this folder took: they are the slow ones."""
    reports = [
        report
        for outcome in ("passed", "failed", "error", "skipped", "")
        for report in terminalreporter.getreports(outcome)
        if report.nodeid.startswith("tests/browser/")
    ]
    if any(report.when == "call" for report in reports):
        took_s = sum(report.duration for report in reports)
        terminalreporter.write_line(f"The tests in a browser took {took_s:.0f} s.")
