"""The wait of a person at a browser: from an event to its pixel, from a click to the last close.

Run by hand from the root of the checkout: `python -m tests.benchmarks.panel_browser [--only …]`.
A real JupyterLab, a real headless Chromium, a real kernel; kernel, page and server use one
machine's clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser

from tests.benchmarks.http_server import server_process, state_of
from tests.browser.chromium import a_chromium, a_playwright, find_chromium
from tests.browser.desk import Desk
from tests.browser.server import a_lab
from tests.browser.tree_page import a_tree_page, files_over_http

ROUNDS = 5

SETUP = """
%load_ext agentnb
import asyncio, os, time, agentnb
from agentnb.core.types import Stopped, TextDelta, Usage, assistant_message

class Timed:
    "The root with sub-agents that each say, fifty times a second, what time it is."
    name = "timed"

    def __init__(self, agents, seconds):
        tasks = "".join(f'<agent task="Tell the time, {n}"/>' for n in range(agents))
        self.plan = f"<spawn_agents>{tasks}</spawn_agents>"
        self.count = seconds * 50

    async def stream(self, request):
        yield Usage(10, 0)
        said = []
        if "<task>" not in request.system:
            said = [self.plan] if len(request.messages) == 1 else ["All in all: late."]
            yield TextDelta(said[0])
        else:
            begun = time.monotonic()
            for n in range(self.count):
                await asyncio.sleep(max(0, begun + n / 50 - time.monotonic()))
                said.append(f"{time.time():.3f};")
                yield TextDelta(said[-1])
        yield Usage(10, 10)
        yield Stopped("end_turn", assistant_message("".join(said)))

session = agentnb.configure(provider=Timed(30, 10), budget=10**8)
"""

_WATCH_TEXT = """() => {
    const seen = (window.agentnbSeen = []);
    const now = () => performance.timeOrigin + performance.now();
    const look = (added) => {
        const times = [...added.matchAll(/(\\d{10}\\.\\d{3});/g)].map((found) => 1000 * found[1]);
        // The pixel is there after the next frame.
        requestAnimationFrame(() => setTimeout(() => {
            for (const time of times) { seen.push(now() - time); }
        }));
    };
    new MutationObserver((changes) => {
        for (const change of changes) {
            for (const node of change.addedNodes) { look(node.textContent); }
            if (change.type === "characterData") {
                look(change.target.data.slice((change.oldValue ?? "").length));
            }
        }
    }).observe(document.querySelector("[data-agent-details]"), {
        childList: true, subtree: true, characterData: true, characterDataOldValue: true,
    });
}"""

_WATCH_FIRST = """() => {
    window.agentnbFirst = null;
    const began = performance.now();
    const before = document.querySelectorAll("[role=treeitem]").length;
    const observer = new MutationObserver(() => {
        if (document.querySelectorAll("[role=treeitem]").length > before) {
            observer.disconnect();
            requestAnimationFrame(() => setTimeout(() => {
                window.agentnbFirst = performance.now() - began;
            }));
        }
    });
    observer.observe(document.body, { childList: true, subtree: true });
    const notebook = jupyterapp.shell.currentWidget.content;
    void jupyterapp.commands.execute("notebook:run-cell");
}"""


def told(name: str, values_ms: Sequence[float]) -> None:
    """Print a median and a 95th percentile."""
    ordered = sorted(values_ms)
    late = ordered[int(len(ordered) * 0.95)]
    print(
        f"{name}: median {statistics.median(ordered):.0f} ms, 95 % within {late:.0f} ms "
        f"({len(ordered)})"
    )


def event_to_pixel(desk: Desk, *, busy: bool) -> None:
    """Thirty agents stream, and one is selected; if `busy`, a cell computes meanwhile."""
    compute = "end = time.time() + 8\nwhile time.time() < end: pass" if busy else "1"
    notebook = desk.notebook(SETUP, "%%spawn --bg\nWhat time is it?", compute)
    notebook.run(0, 1)
    notebook.output(1).locator('[role=treeitem][data-agent-path="1"]').click()
    desk.page.wait_for_function(
        "() => /\\d{10}\\.\\d{3};/.test(document.querySelector('[data-agent-details]').textContent)"
    )
    desk.page.evaluate(_WATCH_TEXT)
    notebook.start(2)
    desk.page.wait_for_timeout(7_000)
    told(
        f"event to pixel, {'beside a cell that computes' if busy else 'alone'}",
        desk.page.evaluate("() => window.agentnbSeen"),
    )
    desk.tidy()


def first_frame(desk: Desk) -> None:
    """The time from starting a cell to its first agent on the screen."""
    notebook = desk.notebook(SETUP, *["%%spawn --bg\nWhat time is it?"] * (ROUNDS + 1))
    notebook.run(0)
    desk.page.wait_for_timeout(3_000)  # until the page has loaded all in the background
    times = []
    for cell in range(1, ROUNDS + 2):
        notebook.cell(cell).scroll_into_view_if_needed()
        desk.page.evaluate(
            "cell => { jupyterapp.shell.currentWidget.content.activeCellIndex = cell; }", cell
        )
        desk.page.evaluate(_WATCH_FIRST)
        desk.page.wait_for_function("() => window.agentnbFirst !== null")
        times.append(desk.page.evaluate("() => window.agentnbFirst"))
    print(f"first frame: {times[0]:.0f} ms in a new page", end=", ")
    told("then", times[1:])
    desk.tidy()


def click_to_last_socket(desk: Desk, agents: int = 100) -> None:
    """The time from the click on *Cancel run* to the last connection's close at the server."""
    with server_process() as url:
        times = []
        for _ in range(ROUNDS):
            notebook = desk.notebook(
                SETUP,
                f"os.environ |= {{'ANTHROPIC_BASE_URL': '{url}/long', 'ANTHROPIC_API_KEY': 'k'}}\n"
                "session = agentnb.configure(model='anthropic/m', budget=10**9, "
                "max_concurrency=1000)",
                f"%%spawn\nShare it among {agents} agents",
            )
            notebook.run(0, 1)
            notebook.start(2)
            button = notebook.output(2).get_by_role("button", name="Cancel run")
            button.wait_for()
            while state_of(url)["open"] < agents:
                desk.page.wait_for_timeout(50)
            desk.page.wait_for_timeout(1_000)  # until all of them stream
            clicked = button.evaluate(
                "button => { const at = Date.now(); button.click(); return at; }"
            )
            while state_of(url)["open"]:
                desk.page.wait_for_timeout(20)
            closed = state_of(url)["last_closed_at_s"] + time.time() - time.monotonic()
            times.append(1000 * closed - clicked)
            desk.tidy()
        told(f"click on Cancel run to the last of {agents} connections", times)


def paint(browser: Browser) -> None:
    """The time of style, layout and paint of a frame in which one in twenty agents changed."""
    with files_over_http() as address:
        for agents in (300, 1000):
            query = f"agents={agents}"
            with browser.new_context() as context, a_tree_page(context, address, query) as tree:
                took = tree.page.evaluate(
                    "async () => { const took = [];"
                    "for (let n = 0; n < 120; n++) { took.push(await page.step()); }"
                    "return took.slice(20); }"
                )
            told(f"paint of a frame, {agents} agents", took)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="paint,pixel,first,cancel")
    wanted = parser.parse_args().only
    with a_playwright() as playwright:
        path = find_chromium(playwright)
        assert path is not None, "There is no Chromium on this machine."
        folder = Path(tempfile.mkdtemp())
        with a_chromium(playwright, path) as browser, a_lab(folder) as lab:
            if "paint" in wanted:
                paint(browser)
            desk = Desk(browser, lab)
            if "pixel" in wanted:
                event_to_pixel(desk, busy=False)
                event_to_pixel(desk, busy=True)
            if "first" in wanted:
                first_frame(desk)
            if "cancel" in wanted:
                click_to_last_socket(desk)
            desk.close()


if __name__ == "__main__":
    main()
