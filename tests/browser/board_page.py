"""A board in a page of its own, without a kernel: `tests/js/page/board.html` in a real browser.

The page's `window.page` plays the kernel: see `tests/js/page/board.js`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import BrowserContext, Dialog, Error, Locator, Page, Request

from tests.browser.chromium import Heard, hearing, lent_page


class BoardPage:
    """One page with a board of made-up tasks or threads."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.heard: Heard = {
            "pageerror": self._error,
            "dialog": self._dialog,
            "request": self._request,
        }

    def _error(self, error: Error) -> None:
        self.errors.append(str(error))

    def _dialog(self, dialog: Dialog) -> None:
        self.errors.append(dialog.message)
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    @property
    def listbox(self) -> Locator:
        return self.page.get_by_role("listbox")

    @property
    def rows(self) -> Locator:
        """The rows that are in the page."""
        return self.listbox.get_by_role("option")

    @property
    def chosen(self) -> Locator:
        return self.listbox.locator("[aria-selected=true]")

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log")

    @property
    def view(self) -> str:
        return str(self.sent("hello")[0]["view"])

    def field(self, name: str) -> Locator:
        return self.page.get_by_role("textbox", name=name)

    def sent(self, kind: str) -> list[dict[str, Any]]:
        """The board's messages of one kind."""
        found = self.page.evaluate(
            "kind => page.model.sent.filter(({type}) => type === kind)", kind
        )
        return list(found)

    def tell(self, kind: str, **fields: Any) -> None:
        """Send a message to this view, as the kernel."""
        message = {"type": kind, "view": self.view, **fields}
        self.page.evaluate("message => page.model.tell(message)", message)

    def change(self, *rows: dict[str, Any], order: list[str] | None = None) -> float:
        """Change rows; return the milliseconds in which the page drew them."""
        took: float = self.page.evaluate(
            "([rows, order]) => page.step(rows, order)", [[*rows], order]
        )
        return took

    def row(self, row_id: str) -> dict[str, Any]:
        """A row of the page's kernel."""
        found: dict[str, Any] = self.page.evaluate(
            "wanted => page.rows.find(({id}) => id === wanted)", row_id
        )
        return found

    def painted(self) -> None:
        """Wait until the page has drawn all messages."""
        self.page.evaluate(
            "() => new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)))"
        )


@contextmanager
def a_board_page(
    context: BrowserContext, tree_address: str, query: str, *, width: int = 1200
) -> Iterator[BoardPage]:
    """A board, drawn, and closed afterwards; `board.js` explains `query`."""
    with lent_page(context, width=width) as page:
        board = BoardPage(page)
        with hearing(page, board.heard):
            page.goto(f"{tree_address.replace('index.html', 'board.html')}?{query}")
            board.listbox.wait_for()
            board.painted()
            yield board
            assert board.errors == []
