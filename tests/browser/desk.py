"""A test's desk: JupyterLab in a page of a browser, and the notebooks that the test opens there.

The page, a kernel and its notebook are used by one test after the other, since each takes a while
to start; anything else that a test opened is closed after it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from playwright.sync_api import Browser, Page

from tests.browser.chromium import DEADLINE_MS, Watch
from tests.browser.notebook import Notebook
from tests.browser.server import LabServer
from tests.notebook import saved
from tests.notebook.kernel import NO_SESSION

SIZE = (1280, 1000)
# Afterwards the kernel is as good as new for a test that patches nothing.
_RESET = f"""
import agentnb, ipywidgets, os
for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
    os.environ.pop(name, None)
if (run := agentnb.get_session().newest_run) is not None:
    run.cancel()
{NO_SESSION}
ipywidgets.Widget.close_all()
get_ipython().extension_manager.unload_extension("agentnb")
get_ipython().run_line_magic("reset", "-f")
"""
# It may still be busy with the pages' requests, or for good if a test left it so.
_RUN_IF_IDLE = """async ([code, patienceMs]) => {
    const kernel = jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
    const tooLate = performance.now() + patienceMs;
    while (kernel?.status === "busy" && performance.now() < tooLate) {
        await new Promise(done => setTimeout(done, 50));
    }
    if (kernel?.status !== "idle") { return null; }
    const reply = await kernel.requestExecute({code}).done;
    return reply.content.status === "ok" ? kernel.id : null;
}"""
_PATIENCE_MS = 3_000
"""As long as a new kernel takes on a busy machine."""
# If the notebook in front has the kernel of this id, it becomes another one.
_MAKE_ANOTHER = """([kernel, made]) => {
    const widget = jupyterapp.shell.currentWidget;
    const own = widget?.sessionContext?.session?.kernel;
    if (!kernel || own?.id !== kernel || own.status !== "idle") { return null; }
    widget.content.mode = "command";
    widget.context.model.fromJSON(made);
    widget.context.model.dirty = false;
    return widget.context.path;
}"""
# Closes all but the notebook in front, which stays if it has the kernel of this id.
_CLOSE = """kernel => {
    // A question that a test left open would lie over the next one.
    for (const no of document.querySelectorAll(".jp-Dialog .jp-mod-reject")) { no.click(); }
    const front = jupyterapp.shell.currentWidget;
    for (const widget of [...jupyterapp.shell.widgets("main")]) {
        const isKept = kernel && widget === front
            && widget.sessionContext?.session?.kernel?.id === kernel;
        if (isKept) { continue; }
        if (widget.context) { widget.context.model.dirty = false; }
        widget.close();
    }
    jupyterapp.shell.collapseLeft();  // a page that was reloaded shows its files
}"""
# anywidget gives up a widget whose code does not run within two seconds.
_PATIENT = """
    const timeout = AbortSignal.timeout;
    AbortSignal.timeout = ms => timeout.call(AbortSignal, Math.max(ms, 240_000));
"""
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"


class Desk:
    """JupyterLab in a browser.

    Args:
        browser: The browser that shows it.
        server: The server of its files.
    """

    def __init__(self, browser: Browser, server: LabServer) -> None:
        self.server = server
        self._context = browser.contexts[0]  # the one that keeps compiled code
        self._context.set_default_timeout(DEADLINE_MS)
        self._context.add_init_script(_PATIENT)
        self.watch = Watch(self._context)
        self._page: Page | None = None
        self._others: list[Page] = []
        self._notebooks = 0
        self._kernel: str | None = None
        self._is_kernel_used = False
        self._is_untouched = True
        """Whether the test has opened nothing yet."""
        self._theme = LIGHT

    # -- for tests ------------------------------------------------------------------------------

    @property
    def page(self) -> Page:
        """The page that tests share."""
        if self._page is None or self._page.is_closed():
            self._page = self._load()
        return self._page

    def another_page(self, *, is_empty: bool = False) -> Page:
        """A second window on the same server, closed after the test.

        Args:
            is_empty: Whether the test loads it.
        """
        self._others.append(self._empty() if is_empty else self._load())
        return self._others[-1]

    def notebook(self, *cells: str | Sequence[str], own_kernel: bool = False) -> Notebook:
        """A new notebook with these code cells, opened.

        Args:
            cells: The code of each cell.
            own_kernel: Whether it gets a new kernel that no later test gets: it changes what stays.
        """
        made = saved.notebook(*[saved.code("".join(source)) for source in cells])
        made["metadata"]["kernelspec"] = KERNEL
        if self._is_untouched:
            self._is_untouched = False
            kernel = None if own_kernel else self._kernel
            known = self.page.evaluate(_MAKE_ANOTHER, [kernel, made])
            if known is not None:
                self._is_kernel_used = True
                return Notebook(self.page, self.server, known, is_open=True)
            self.page.evaluate(_CLOSE, None)
        self._notebooks += 1
        name = f"notebook{self._notebooks}.ipynb"
        saved.save(made, self.server.folder / name)
        if own_kernel:
            return self.open(name)
        self._is_kernel_used = True
        return self.open(name, kernel=self._kernel)

    def open(self, name: str, *, page: Page | None = None, kernel: str | None = None) -> Notebook:
        """A notebook of the server's folder, opened, with a new kernel or the one of an id."""
        self._is_untouched = False
        notebook = Notebook(page or self.page, self.server, name)
        notebook.open(kernel)
        return notebook

    def untrusted_copy(self, notebook: Notebook) -> Notebook:
        """The saved notebook as it comes by mail: another file, not signed here."""
        name = f"from-elsewhere-{notebook.name}"
        document = json.loads((self.server.folder / notebook.name).read_text(encoding="utf-8"))
        document["metadata"]["from"] = "elsewhere"  # a signature depends on the content
        (self.server.folder / name).write_text(json.dumps(document), encoding="utf-8")
        return self.open(name, page=notebook.page)

    def set_theme(self, theme: str) -> None:
        """Show the shared page in a theme, `LIGHT` or `DARK`, for this test."""
        self.page.evaluate(
            """theme => jupyterapp.commands.execute("apputils:change-theme", {theme})""", theme
        )
        self._theme = theme
        light = str(theme == LIGHT).lower()
        # Attached, not visible: JupyterLab's `<body>` has no height.
        self.page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached")
        # JupyterLab shows a splash meanwhile and removes it 0.2 s later. After two changes in that
        # time it does so twice, and the second time is an uncaught error of its own.
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    # -- between tests --------------------------------------------------------------------------

    def tidy(self) -> None:
        """Close what a test has opened; keep its kernel if the next test can use it."""
        for page in self._others:
            page.close()
        self._others.clear()
        was_used, self._is_kernel_used = self._is_kernel_used, False
        self._is_untouched = True
        if was_used:
            self._kernel = self._reset_kernel()
        self.server.end_kernels(but=self._kernel)
        if self._page is not None and not self._page.is_closed():
            self._page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
            if self._theme != LIGHT:
                self.set_theme(LIGHT)
            self._page.evaluate(_CLOSE, self._kernel if was_used else None)

    def close(self) -> None:
        """Close all pages."""
        self._context.close()

    def _reset_kernel(self) -> str | None:
        """The id of the one kernel that runs, as good as new, if it can be kept."""
        if self._page is None or self._page.is_closed() or len(self.server.kernels) != 1:
            return None
        kernel: str | None = self._page.evaluate(_RUN_IF_IDLE, [_RESET, _PATIENCE_MS])
        return kernel

    def _empty(self) -> Page:
        page = self._context.new_page()
        page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
        return page

    def _load(self) -> Page:
        page = self._empty()
        page.goto(f"{self.server.url}/lab?reset")
        page.wait_for_function("window.jupyterapp?.restored")
        page.evaluate("async () => { await jupyterapp.restored; jupyterapp.shell.collapseLeft(); }")
        return page
