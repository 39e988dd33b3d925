"""A notebook that is open in JupyterLab, as a test uses it: run, look, click, save, come back.

A test reads from the page what a person sees. JupyterLab's own commands replace only its menus.
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
# The kernel may be busy if a page comes back to it. Without one, running a cell asks which to use.
_KERNEL_IS_THERE = """path => {
    const widget = jupyterapp.shell.currentWidget;
    return widget?.context?.path === path
        && widget.sessionContext.session?.kernel?.connectionStatus === "connected";
}"""
_IS_SHOWN = """path => {
    const widget = jupyterapp?.shell.currentWidget;
    return widget?.context?.path === path && widget.context.isReady;
}"""
# In a page that is starved for two seconds while it restores, the widget manager may look for a
# model once too rarely: it is there, and its output says for good that it was not found.
_SHOW_AGAIN = """() => {
    const cells = jupyterapp.shell.currentWidget.content.widgets;
    const outputs = cells.flatMap(cell => cell.outputArea ?? []);
    const text = outputs.map(area => area.node.textContent).join("\\n");
    if (text.includes("Loading widget...")) { return false; }
    for (const {model, node} of outputs) {
        if (node.textContent.includes("model not found")) { model.fromJSON(model.toJSON()); }
    }
    return true;
}"""
_DONE = re.compile(r"^\[[\d ]*\]:$")


class Notebook:
    """One notebook in one page of a browser. Cells are numbered from 0.

    Args:
        page: A page that shows JupyterLab.
        server: The server of its file.
        name: The file, in the server's folder.
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
        """Show it, and wait for its kernel: a new one, or the one with this id."""
        wish = {"kernel": {"id": kernel}} if kernel is not None else {}
        self._do("docmanager:open", {"path": self.name, **wish})
        self.page.wait_for_function(_IS_SHOWN, arg=self.name)
        self.page.wait_for_function(_KERNEL_IS_IDLE, arg=self.name)
        self._find_frame()

    def reload(self, *, is_busy: bool = False) -> None:
        """Reload the page: the kernel continues, and the page's state is lost.

        A kernel that is busy shows no view until its cell has ended: then call `show_again`.

        This includes JupyterLab's record of its tabs: it would open those of earlier tests, each
        with a kernel or with a question which one to use.
        """
        self.page.goto(f"{self._server.url}/lab/tree/{self.name}?reset")
        self.page.wait_for_function("window.jupyterapp?.restored")
        self.page.wait_for_function(_IS_SHOWN, arg=self.name)
        self.page.wait_for_function(_KERNEL_IS_THERE, arg=self.name)
        if not is_busy:
            self.show_again()
        self._find_frame()

    def show_again(self) -> None:
        """Show the views that a page on a busy machine did not find when it was opened."""
        self.page.wait_for_function(_SHOW_AGAIN)

    def close(self) -> None:
        """Close its tab, without saving. The kernel continues."""
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
        """Save it; return the file's contents."""
        self.page.evaluate("() => jupyterapp.shell.currentWidget.context.save()")
        return self.saved

    @property
    def saved(self) -> NotebookNode:
        """The file's contents."""
        return saved.load(self._server.folder / self.name)

    # -- running ------------------------------------------------------------------------------

    def start(self, cell: int) -> None:
        """Run a cell, as ▶ does, without waiting."""
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
        """Choose *Run All*, without waiting."""
        self.page.evaluate('() => void jupyterapp.commands.execute("notebook:run-all-cells")')

    def start_all_below(self, cell: int) -> None:
        """Choose *Run Selected Cell and All Below*, without waiting."""
        self.page.evaluate(
            """cell => {
                jupyterapp.shell.currentWidget.content.activeCellIndex = cell;
                void jupyterapp.commands.execute("notebook:run-all-below");
            }""",
            cell,
        )

    def wait(self, cell: int) -> None:
        """Wait until a cell has ended: well, with an error, or without having begun."""
        expect(self.cell(cell).locator(".jp-InputArea-prompt")).to_have_text(_DONE)

    def interrupt(self) -> None:
        """Press ■ in the toolbar."""
        self._frame.locator('[data-command="notebook:interrupt-kernel"]').first.click()

    def shut_kernel_down(self) -> None:
        self._do("kernelmenu:shutdown", {})

    def restart_kernel(self) -> None:
        """Restart its kernel; its outputs stay."""
        self.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.page.wait_for_function(_KERNEL_IS_IDLE, arg=self.name)

    # -- looking ------------------------------------------------------------------------------

    @property
    def frame(self) -> Locator:
        """The notebook with its toolbar."""
        return self._frame

    def cell(self, cell: int) -> Locator:
        """A cell, with its outputs."""
        return self._frame.locator(f'.jp-Cell[data-windowed-list-index="{cell}"]')

    def output(self, cell: int) -> Locator:
        """All outputs of a cell."""
        return self.cell(cell).locator(".jp-Cell-outputWrapper")

    def is_running(self, cell: int) -> bool:
        """Whether a cell has begun, or is queued, and has not ended."""
        return "*" in self.cell(cell).locator(".jp-InputArea-prompt").inner_text()

    @property
    def is_trusted(self) -> bool:
        """Whether the page trusts all outputs."""
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
