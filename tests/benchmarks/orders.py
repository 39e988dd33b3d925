"""The wait of a person at a panel: from a click or a key to its effect in the page.

Run by hand from the root of the checkout: `python -m tests.benchmarks.orders`. A real JupyterLab, a
real headless Chromium, a real kernel; 100 agents that each stream text ten times a second.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.chromium import a_chromium, a_playwright, find_chromium
from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.server import a_lab

AGENTS = 100
ROUNDS = 5
BUDGET = 10**8

SETUP = f"""
%load_ext agentnb
import asyncio, agentnb
from agentnb.core.types import (
    Message, Role, Stopped, TextBlock, TextDelta, ToolUseBlock, Usage,
)

@agentnb.tool(approval=True)
def send_mail(to: str) -> str:
    "Send a mail."
    return "Sent."

class Talking:
    "The root with sub-agents that talk for minutes; the first {ROUNDS} ask to send a mail before."
    name = "talking"

    async def stream(self, request):
        yield Usage(10, 0)
        text, uses = "", ()
        is_first = len(request.messages) == 1
        task = request.messages[0].text
        if "Talk" not in task:
            tasks = "".join(
                f'<agent task="Talk, {{n}}{{", and send a mail" if n < {ROUNDS} else ""}}"/>'
                for n in range({AGENTS})
            )
            text = f"<spawn_agents>{{tasks}}</spawn_agents>"
            yield TextDelta(text)
        elif "mail" in task and is_first:
            uses = (ToolUseBlock("1", "send_mail", {{"to": "ann@example.org"}}),)
        else:
            for n in range(6000):
                await asyncio.sleep(0.1)
                yield TextDelta(f"word {{n}} ")
        yield Usage(10, 10)
        blocks = (TextBlock(text), *uses) if text else uses
        message = Message(Role.ASSISTANT, blocks)
        yield Stopped("tool_use" if uses else "end_turn", message)

session = agentnb.configure(
    provider=Talking(), tools=[send_mail], budget={BUDGET}, max_output_tokens=1000,
    max_agents=1000, max_concurrency=1000,
)
"""

# An event has the time of the mouse or the key; the pixel is there after the next frame.
_WATCH = """{
    window.agentnbTook = null;
    let began = null;
    const isDone = () => %s;
    const begin = (event) => { began ??= event.timeStamp; };
    for (const kind of ["click", "keydown"]) {
        addEventListener(kind, begin, { capture: true, once: true });
    }
    const observer = new MutationObserver(() => {
        if (began === null || !isDone()) return;
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => {
            window.agentnbTook = performance.now() - began;
        }));
    });
    observer.observe(document.body, {
        attributes: true, childList: true, subtree: true, characterData: true,
    });
}"""
_IS_TOLD = 'document.querySelector(".agentnb-tell-line").textContent.startsWith("The agent reads")'


def took_ms(page: Page, effect: str, act: Callable[[], object]) -> float:
    """Milliseconds from an act to its effect, a condition in JavaScript."""
    assert not page.evaluate(effect), f"It is there before: {effect}"
    page.evaluate(_WATCH % effect)
    act()
    page.wait_for_function("() => window.agentnbTook !== null")
    took: float = page.evaluate("() => window.agentnbTook")
    page.wait_for_timeout(400)
    return took


def _says(selector: str, words: str) -> str:
    """The condition that the page's text at a selector contains these words."""
    place = f"document.querySelector({json.dumps(selector)})"
    return f"({place}?.textContent ?? '').includes({json.dumps(words)})"


def orders(panel: Panel, page: Page, turn: int) -> dict[str, float]:
    """Give each command once: milliseconds, by name. Does not touch the agents of other turns."""
    number, paused, ended = ROUNDS + 1 + 3 * turn, ROUNDS + 2 + 3 * turn, ROUNDS + 3 + 3 * turn
    total = BUDGET - 1000 * (turn + 1)
    status, button = ".agentnb-run-status", ".agentnb-details .agentnb-pause"
    agent, details = f'[data-agent-path="{ended}"]', panel.details
    question = panel.place.locator("[data-question]").first
    question_id = question.get_attribute("data-question")
    times = {
        "Pause run": took_ms(page, _says(status, "paused"), panel.button("Pause run").click),
        "Resume run": took_ms(page, _says(status, "running"), panel.button("Resume run").click),
    }
    panel.select(str(paused))
    for name, next_name in (("Pause agent", "Resume agent"), ("Resume agent", "Pause agent")):
        press = details.get_by_role("button", name=name).click
        times[name] = took_ms(page, _says(button, next_name), press)
    panel.select(str(number))
    details.get_by_role("textbox", name="Say something to this agent").fill("Slower, please.")
    times["Send"] = took_ms(page, _IS_TOLD, details.get_by_role("button", name="Send").click)
    times["Approve"] = took_ms(
        page,
        f"!document.querySelector('[data-question={json.dumps(question_id)}]')",
        question.get_by_role("button", name="Approve").click,
    )
    panel.number.fill(str(total))
    shown = _says(".agentnb-panel", f"of {total:,} tokens")
    times["Budget"] = took_ms(page, shown, lambda: panel.number.press("Enter"))
    panel.select(str(ended))
    times["Cancel agent"] = took_ms(
        page,
        f"document.querySelector({json.dumps(agent)})?.dataset.status === 'cancelled'",
        details.get_by_role("button", name="Cancel agent").click,
    )
    return times


def main() -> None:
    """Measure, and print a line for each command."""
    with a_playwright() as playwright:
        path = find_chromium(playwright)
        assert path is not None, "There is no Chromium on this machine."
        folder = Path(tempfile.mkdtemp())
        with a_chromium(playwright, path) as browser, a_lab(folder) as lab:
            desk = Desk(browser, lab)
            notebook = desk.notebook(SETUP, "%%spawn --bg\nShare it")
            notebook.run(0, 1)
            panel = Panel(notebook.output(1))
            notebook.cell(1).scroll_into_view_if_needed()
            at_work = AGENTS - ROUNDS + 1  # the root, too
            expect(panel.header).to_contain_text(f"{at_work} running, {ROUNDS} waiting")
            panel.button("Expand").click()
            desk.page.wait_for_timeout(2_000)
            rounds = [orders(panel, desk.page, turn) for turn in range(ROUNDS)]
            panel.button("Cancel run").click()
            desk.close()
    for name in rounds[0]:
        times = [each[name] for each in rounds]
        print(f"{name}: median {statistics.median(times):.0f} ms, at most {max(times):.0f} ms")


if __name__ == "__main__":
    main()
