"""One real, headless Chromium that can reach only this machine.

Playwright drives the machine's own Chromium, so that no second download is needed. Every other
address is unknown to it, and each attempt to reach one is recorded.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Playwright,
    Request,
    WebSocket,
    expect,
    sync_playwright,
)

DEADLINE_MS = 120_000.0
"""Only against hangs: a cold JupyterLab on a loaded machine takes more than a minute to start.
Playwright waits for what a test names, and continues when it is there."""

LetPass = Callable[[int], None]
"""The type of the fixture `let_pass`: moves the pages' clock on, by milliseconds."""
SILENCE_MS = 6_000
"""After so long without a word of its kernel, a view says so. It waits a second less."""

# The first is the same browser without windows, and needs a seventh less processor time.
_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
_FLAGS = (
    "--no-sandbox",  # root in a container has no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
_EMPTY = "about:blank"
_AT_HOME = re.compile(r"(https?|wss?)://127\.0\.0\.1(:\d+)?(/|$)|(data|blob|about):")
# Errors of JupyterLab itself that no test is about, by words of the message or of the stack.
_NOISE = re.compile(
    r"Comm not found for comm id"  # a page requests widgets of comms that have just closed
    r"|ResizeObserver loop"
    r"|Could not restore the debugger state"  # from a kernel that shuts down meanwhile
    r"|widget model not found"  # its output says so, too; `Notebook.reload` has the reason
    r"|_closePerCommTargetSubshell"  # it deletes a subshell over a connection that has just closed
)


def find_chromium(playwright: Playwright) -> str | None:
    """The path of a Chromium: the machine's, else one that Playwright has installed."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    own = playwright.chromium.executable_path
    return own if Path(own).is_file() else None


@contextmanager
def a_playwright() -> Iterator[Playwright]:
    """Playwright's driver. While it is open, this thread runs an event loop for it."""
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        yield playwright


@contextmanager
def a_chromium(playwright: Playwright, path: str) -> Iterator[Browser]:
    """A running browser, closed afterwards.

    Its first context keeps compiled code on disk, so that loading JupyterLab again costs less.
    """
    with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=path, args=list(_FLAGS)
        )
        browser = context.browser
        assert browser is not None, "this version of Playwright does not tell"
        try:
            yield browser
        finally:
            context.close()


@contextmanager
def lent_page(context: BrowserContext, *, width: int, height: int = 800) -> Iterator[Page]:
    """A page as good as new: the context's first page, used by one test after the other.

    Opening a page, in a browser with a window, costs three times as much as showing a small one.
    """
    kept = context.pages[0] if context.pages else None
    page = kept if kept is not None and kept.url == _EMPTY else context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.set_viewport_size({"width": width, "height": height})
    try:
        yield page
        if page is context.pages[0]:
            page.emulate_media(media="null", forced_colors="null", reduced_motion="null")
            page.goto(_EMPTY)
            page.mouse.move(0, 0)
    finally:
        if page.url != _EMPTY:  # left by a failed test, or one of several pages
            page.close()


Heard = Mapping[Any, Callable[..., None]]
"""The handlers of a page's events, by event name."""


@contextmanager
def hearing(page: Page, heard: Heard) -> Iterator[None]:
    """Call these handlers at a page's events, in a `with` block."""
    for event, handler in heard.items():
        page.on(event, handler)
    try:
        yield
    finally:
        for event, handler in heard.items():
            page.remove_listener(event, handler)


class Watch:
    """Records the unwanted acts of a browser context's pages, in order."""

    def __init__(self, context: BrowserContext) -> None:
        self.left_the_machine: list[str] = []
        """Requested addresses elsewhere. None of them was reached."""
        self.errors: list[str] = []
        """Errors on the console, and uncaught errors."""
        self.dialogs: list[str] = []
        """Texts of `alert`, `confirm` and `prompt`: the usual sign of a script that ran."""
        context.on("request", self._request)
        context.on("console", self._console)
        context.on("weberror", lambda error: self._error(error.error))
        context.on("dialog", self._dialog)
        context.on("page", self._page)

    def forget(self) -> None:
        """Clear the record."""
        for written in (self.left_the_machine, self.errors, self.dialogs):
            written.clear()

    def _page(self, page: Page) -> None:
        page.on("websocket", self._websocket)

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        self._address(request.url)

    def _websocket(self, socket: WebSocket) -> None:
        self._address(socket.url)

    def _address(self, url: str) -> None:
        if not _AT_HOME.match(url):
            self.left_the_machine.append(url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._error(f"{message.text} ({message.location.get('url', '')})")

    def _error(self, error: Error | str) -> None:
        # With its origin: the message alone does not tell which script failed.
        said = str(getattr(error, "stack", None) or error)
        if not _NOISE.search(said):
            self.errors.append(said)
