"""The tree in a page of its own, without a kernel: `tests/js/page` over HTTP, in a real browser.

The page's `window.page` plays the kernel: `page.model.tell(message)` sends a message to the tree,
and `page.model.sent` has the tree's messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Error, Locator, Page, Request

from tests.browser.chromium import Heard, hearing, lent_page

_ROOT = Path(__file__).parents[2]


class _Silent(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # a page of forty files needs six connections, not forty

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a test's output is for the test."""


@contextmanager
def files_over_http() -> Iterator[str]:
    """The address of the page, while this clone's files are served to this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=_ROOT)) as server:
        thread = threading.Thread(target=server.serve_forever, name="files", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/tests/js/page/index.html"
        finally:
            server.shutdown()
            thread.join()


Open = Callable[..., "TreePage"]
"""The type of the fixture `open_tree`: opens a page by its query."""


class TreePage:
    """One page with a tree of made-up agents."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.heard: Heard = {"pageerror": self._error, "request": self._request}

    def _error(self, error: Error) -> None:
        self.errors.append(str(error))

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    @property
    def items(self) -> Locator:
        return self.page.get_by_role("treeitem")

    @property
    def details(self) -> Locator:
        return self.page.locator("[data-agent-details]")

    def item(self, path: str) -> Locator:
        """The card of the agent with this path."""
        return self.page.locator(f'[role=treeitem][data-agent-path="{path}"]')

    def paths(self) -> list[str]:
        """Paths of the agents in the page, in its order."""
        return [
            str(path)
            for path in self.items.evaluate_all("all => all.map(one => one.dataset.agentPath)")
        ]

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message, as the kernel."""
        self.page.evaluate("message => page.model.tell(message)", message)

    def frame(self, *agents: dict[str, Any], seq: int = 2, **fields: Any) -> None:
        """Send changed agents in a frame that follows the one before, unless `base` is given."""
        frame = {"type": "frame", "seq": seq, "base": seq - 1, "at": 61.0, "done": False}
        self.tell({**frame, "status": "running", "agents": list(agents), **fields})

    def sent(self, kind: str) -> list[dict[str, Any]]:
        """The tree's messages of one kind."""
        found = self.page.evaluate(
            "kind => page.model.sent.filter(({type}) => type === kind)", kind
        )
        return list(found)

    def second(self) -> None:
        """Render a second view of the same model."""
        made = "page.render({ model: page.model.proxy(), el: document.body })"
        self.page.evaluate(f"() => {{ page.second = {made}; }}")

    def looked_at(self, agent: str = "root", **fields: Any) -> None:
        """Send all details of an agent, as the answer to the newest request."""
        self.page.evaluate("page.model.answer = () => {}")
        self._look = {"type": "details", "view": self.sent("hello")[0]["view"], "at": None}
        known: dict[str, Any] = {"task": "T", "calls": [], "call": None, "text": ""}
        self._n = 0
        self.tell({**self._look, "agent": agent, "reset": True, "n": 0, **known, **fields})

    def look_goes_on(self, **fields: Any) -> None:
        """Send an addition to the details of that agent."""
        self._n += 1
        self.tell({**self._look, "reset": False, "n": self._n, **fields})

    def painted(self) -> None:
        """Wait until the page has drawn all messages."""
        self.page.evaluate(
            "() => new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)))"
        )


@contextmanager
def a_tree_page(
    context: BrowserContext, address: str, query: str, *, width: int = 1400
) -> Iterator[TreePage]:
    """A tree, drawn, and closed afterwards; `page.js` explains `query`."""
    with lent_page(context, width=width) as page:
        tree = TreePage(page)
        with hearing(page, tree.heard):
            page.goto(f"{address}?{query}")
            page.get_by_role("tree").wait_for()
            tree.painted()
            yield tree
            assert tree.errors == []


def new_agent(path: str, **fields: Any) -> dict[str, Any]:
    """The row of an agent that has just begun."""
    parent = path.rpartition(".")[0] or "root"
    row: dict[str, Any] = {"path": path, "parent": parent, "depth": path.count(".") + 1}
    row |= {"task": f"Task of {path}", "model": "demo", "status": "running", "tokens": 0}
    row |= {"estimated": False, "begun": 60.0, "ended": None, "doing": "", "until": None}
    return row | {"stalled": False, "attempt": 1, "error": None, "notes": 0, **fields}
