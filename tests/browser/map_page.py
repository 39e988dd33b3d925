"""A map in a page of its own, without a kernel: `tests/js/page/map.html` in a real browser.

The page's `window.page` plays the kernel: see `tests/js/page/map.js`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import BrowserContext, Dialog, Locator, Page

from tests.browser.chromium import hearing, lent_page
from tests.browser.tree_page import TreePage


class MapPage(TreePage):
    """One page with a table of made-up rows."""

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self.heard = {**self.heard, "dialog": self._dialog}

    def _dialog(self, dialog: Dialog) -> None:
        self.errors.append(dialog.message)
        dialog.dismiss()

    @property
    def grid(self) -> Locator:
        return self.page.get_by_role("grid", name="Rows of this map")

    @property
    def rows(self) -> Locator:
        """The rows that are in the page."""
        return self.page.locator("[role=row][data-row]")

    @property
    def scroller(self) -> Locator:
        return self.page.locator(".agentnb-map-scroller")

    def row(self, number: int) -> Locator:
        return self.page.locator(f'[role=row][data-row="{number}"]')

    def chip(self, order: str) -> Locator:
        return self.page.locator(f'[data-order="{order}"]')

    def numbers(self) -> list[int]:
        """Numbers of the rows in the page, in its order."""
        return [int(n) for n in self.rows.evaluate_all("all => all.map(one => one.dataset.row)")]

    def scroll_to(self, top: int) -> float:
        """Scroll the table; return the milliseconds in which the page drew it."""
        took: float = self.scroller.evaluate(
            "(box, top) => page.timed(() => { box.scrollTop = top })", top
        )
        self.painted()
        return took

    def change(self, *agents: dict[str, Any], seq: int) -> float:
        """Send changed agents; return the milliseconds in which the page drew them."""
        frame = {"type": "frame", "seq": seq, "base": seq - 1, "at": 61.0, "done": False}
        message = {**frame, "status": "running", "agents": list(agents)}
        took: float = self.page.evaluate(
            "message => page.timed(() => page.model.tell(message))", message
        )
        self.painted()
        return took


@contextmanager
def a_map_page(
    context: BrowserContext, tree_address: str, query: str, *, width: int = 1400
) -> Iterator[MapPage]:
    """A table, drawn, and closed afterwards; `map.js` explains `query`."""
    with lent_page(context, width=width) as page:
        opened = MapPage(page)
        with hearing(page, opened.heard):
            page.goto(f"{tree_address.replace('index.html', 'map.html')}?{query}")
            opened.rows.first.wait_for()
            opened.painted()
            yield opened
            assert opened.errors == []
