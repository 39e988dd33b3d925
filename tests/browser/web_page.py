"""A notebook as the web page that nbconvert makes, with the scripts that such a page really loads.

They are those of npm (`npm run front-ends`), handed out in place of the addresses of unpkg,
jsDelivr and cdnjs. Nothing else can be reached.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from playwright.sync_api import BrowserContext, Locator, Page, Route

from tests.browser.chromium import DEADLINE_MS, SILENCE_MS

_FILES = Path(__file__).parents[2] / "node_modules/.front-ends"
_ADDRESS = "http://page.test/"
_SCRIPTS = {
    r"html-manager@[^/]*/dist/embed-amd\.js": (
        "jupyter-widgets-html-manager-*.tgz",
        "package/dist/embed-amd.js",
    ),
    r"/require\.js/.*/require(\.min)?\.js": ("requirejs-*.tgz", "package/require.js"),
    r"anywidget@[^/]*/dist/index(\.js)?": ("anywidget-*.tgz", "package/dist/index.js"),
}


@cache
def _script(archive: str, name: str) -> str:
    found = sorted(_FILES.glob(archive))
    if not found:
        what = "The scripts of web pages are missing: run `make node_modules`."
        if os.environ.get("CI"):
            pytest.fail(what)
        pytest.skip(what)
    with tarfile.open(found[-1]) as packed:
        member = packed.extractfile(name)
        assert member is not None
        return member.read().decode()


class WebPage:
    """One notebook as a web page. Cells are numbered from 0.

    Args:
        page: The browser's page. Its clock can be moved on.
        notebook: As it was saved.
        template: Of nbconvert.
        has_scripts: Whether the page can load its scripts.
        policy: Its Content-Security-Policy.
    """

    def __init__(
        self, page: Page, notebook: NotebookNode, *, template: str, has_scripts: bool, policy: str
    ) -> None:
        self.page = page
        self._has_scripts, self._policy = has_scripts, policy
        exporter: Any = HTMLExporter
        self._html, _ = exporter(template_name=template).from_notebook_node(notebook)

    def open(self) -> None:
        """Load it."""
        self.page.route("**/*", self._answer)
        self.page.clock.install()
        self.page.goto(_ADDRESS)

    def go_on(self, ms: int) -> None:
        """Let time pass."""
        self.page.clock.run_for(ms)

    def give_up(self) -> None:
        """Wait until the views are there, and let them wait for their kernel in vain."""
        self.page.locator(".agentnb-tree-view").last.wait_for(state="attached")
        self.go_on(SILENCE_MS)
        self.page.clock.resume()

    def output(self, cell: int) -> Locator:
        """All outputs of a cell."""
        return self.page.locator(".jp-Cell").nth(cell).locator(".jp-Cell-outputWrapper")

    def _answer(self, route: Route) -> None:
        asked = route.request.url
        if asked == _ADDRESS:
            headers = {"Content-Security-Policy": self._policy}
            route.fulfill(body=self._html, content_type="text/html", headers=headers)
            return
        for pattern, place in _SCRIPTS.items():
            if self._has_scripts and re.search(pattern, asked):
                route.fulfill(
                    body=_script(*place),
                    content_type="text/javascript",
                    headers={"Access-Control-Allow-Origin": "*"},
                )
                return
        if asked.startswith(("blob:", "data:")):
            route.continue_()
        else:
            route.abort()


@contextmanager
def a_web_page(
    context: BrowserContext,
    notebook: NotebookNode,
    *,
    template: str = "lab",
    has_scripts: bool = True,
    policy: str = "",
) -> Iterator[WebPage]:
    """A notebook as a web page, opened, and closed afterwards."""
    with context.new_page() as page:
        page.set_default_timeout(DEADLINE_MS)
        page.set_viewport_size({"width": 1100, "height": 1400})
        shown = WebPage(page, notebook, template=template, has_scripts=has_scripts, policy=policy)
        shown.open()
        yield shown
