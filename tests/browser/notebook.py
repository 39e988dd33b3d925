"""A notebook that is open in JupyterLab, as a test uses it: run, look, click, save, come back.

What a person sees is read from the page. JupyterLab's own commands stand in for its menus only.
"""

from __future__ import annotations

import re
from typing import Any

from nbformat import NotebookNode
from playwright.sync_api import Locator, Page, expect

from tests.browser.server import LabServer
from tests.notebook import saved

_KERNEL_IS_IDLE = """path => {
    const widget = jupyterapp.shell.currentWidget;
    return widget?.context?.path === path
        && widget.sessionContext.session?.kernel?.status === "idle";
}"""
# It may be at work, for a page that comes back to it. A cell that is run before asks which to take.
_KERNEL_IS_THERE = """path => {
    const widget = jupyterapp.shell.currentWidget;
    return widget?.context?.path === path
        && widget.sessionContext.session?.kernel?.connectionStatus === "connected";
}"""
_IS_SHOWN = """path => {
    const widget = jupyterapp?.shell.currentWidget;
    return widget?.context?.path === path && widget.context.isReady;
}"""
_DONE = re.compile(r"^\[[\d ]*\]:$")


class Notebook:
    """One notebook in one page of a browser. Cells are numbered from 0.

    Args:
        page: A page that shows JupyterLab.
        server: Who serves it.
        name: Its file, in the server's folder.
        is_open: Whether it is the notebook in front.
    """

    def __init__(self, page: Page, server: LabServer, name: str, *, is_open: bool = False) -> None:
        self.page = page
        self.name = name
        self._server = server
        self._frame: Locator
        if is_open:
            self._find_frame()

    # -- coming and going ---------------------------------------------------------------------

    def open(self, kernel: str | None = None) -> None:
        """Show it, and wait until its kernel is there: a new one, or the one of this id."""
        wish = {"kernel": {"id": kernel}} if kernel is not None else {}
        self._do("docmanager:open", {"path": self.name, **wish})
        self.page.wait_for_function(_IS_SHOWN, arg=self.name)
        self.page.wait_for_function(_KERNEL_IS_IDLE, arg=self.name)
        self._find_frame()

    def reload(self) -> None:
        """Reload the page: the kernel goes on, and what the page knew is gone.

        Also what JupyterLab keeps of its tabs: it would open those of tests before this one, each
        with a kernel or with a question which one to take.
        """
        self.page.goto(f"{self._server.url}/lab/tree/{self.name}?reset")
        self.page.wait_for_function("window.jupyterapp?.restored")
        self.page.wait_for_function(_IS_SHOWN, arg=self.name)
        self.page.wait_for_function(_KERNEL_IS_THERE, arg=self.name)
        self._find_frame()

    def close(self) -> None:
        """Close its tab, without saving. The kernel goes on."""
        self.page.evaluate(
            """path => {
                for (const widget of jupyterapp.shell.widgets("main")) {
                    if (widget.context?.path === path) {
                        widget.context.model.dirty = false;
                        widget.close();
                    }
                }
            }""",
            self.name,
        )
        expect(self._frame).to_have_count(0)

    def save(self) -> NotebookNode:
        """Save it; what is in the file then."""
        self.page.evaluate("() => jupyterapp.shell.currentWidget.context.save()")
        return self.saved

    @property
    def saved(self) -> NotebookNode:
        """What is in the file."""
        return saved.load(self._server.folder / self.name)

    # -- running ------------------------------------------------------------------------------

    def start(self, cell: int) -> None:
        """Run a cell, as its ▶ does, and wait for nothing."""
        self.page.evaluate(
            """cell => {
                const notebook = jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = cell;
                notebook.deselectAll();
                void jupyterapp.commands.execute("notebook:run-cell");
            }""",
            cell,
        )

    def run(self, *cells: int) -> None:
        """Run cells, each to its end."""
        for cell in cells:
            self.start(cell)
            self.wait(cell)

    def start_all(self) -> None:
        """Choose *Run All*, and wait for nothing."""
        self.page.evaluate('() => void jupyterapp.commands.execute("notebook:run-all-cells")')

    def start_all_below(self, cell: int) -> None:
        """Choose *Run Selected Cell and All Below*, and wait for nothing."""
        self.page.evaluate(
            """cell => {
                jupyterapp.shell.currentWidget.content.activeCellIndex = cell;
                void jupyterapp.commands.execute("notebook:run-all-below");
            }""",
            cell,
        )

    def wait(self, cell: int) -> None:
        """Wait until a cell has ended: well, with an error, or because it was not begun."""
        expect(self.cell(cell).locator(".jp-InputArea-prompt")).to_have_text(_DONE)

    def interrupt(self) -> None:
        """Press ■ in the toolbar."""
        self._frame.locator('[data-command="notebook:interrupt-kernel"]').first.click()

    def restart_kernel(self) -> None:
        """Give it a new kernel; what it showed stays."""
        self.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.page.wait_for_function(_KERNEL_IS_IDLE, arg=self.name)

    # -- looking ------------------------------------------------------------------------------

    @property
    def frame(self) -> Locator:
        """The notebook with its toolbar."""
        return self._frame

    def cell(self, cell: int) -> Locator:
        """A cell, with what it shows."""
        return self._frame.locator(f'.jp-Cell[data-windowed-list-index="{cell}"]')

    def output(self, cell: int) -> Locator:
        """All that a cell shows."""
        return self.cell(cell).locator(".jp-Cell-outputWrapper")

    def is_running(self, cell: int) -> bool:
        """Whether a cell has begun, or waits for its turn, and has not ended."""
        return "*" in self.cell(cell).locator(".jp-InputArea-prompt").inner_text()

    @property
    def is_trusted(self) -> bool:
        """Whether the page trusts all that its cells show."""
        trusted: bool = self.page.evaluate(
            "() => [...jupyterapp.shell.currentWidget.content.model.cells]"
            ".every(cell => cell.trusted)"
        )
        return trusted

    # -- for all of these ---------------------------------------------------------------------

    def _do(self, command: str, arguments: dict[str, Any]) -> None:
        self.page.evaluate(
            "([command, arguments]) => void jupyterapp.commands.execute(command, arguments)",
            [command, arguments],
        )

    def _find_frame(self) -> None:
        frame_id = self.page.evaluate("() => jupyterapp.shell.currentWidget.id")
        self._frame = self.page.locator(f'[id="{frame_id}"]')
