"""A map in JupyterLab: its rows fill, one is opened, the run is cancelled, all can be read."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from tests.browser.desk import Desk
from tests.browser.panel import Panel

BEGIN = """
%load_ext agentnb
import asyncio
import agentnb
from agentnb import Reply, ScriptedProvider

async def hold():
    await asyncio.Event().wait()

def answer(request):
    prompt = request.messages[0].text
    return Reply("Half an answer.", pause=hold) if "held" in prompt else "It is late."

session = agentnb.Session(provider=ScriptedProvider(answer), store=None)
rows = [f"parcel {number}" for number in range(37)]
rows[20:20] = ["held one", "held two", "held three"]
"""


def test_rows_fill_one_is_opened_and_the_run_is_cancelled(desk: Desk) -> None:
    notebook = desk.notebook(BEGIN, 'run = session.map(rows, "What is in {{text}}?")\nrun', "run")
    notebook.run(0, 1)
    output = notebook.output(1)
    panel = Panel(output)

    def row(number: int) -> Locator:
        return output.locator(f'[role=row][data-row="{number}"]')

    expect(output.locator(".agentnb-map-progress")).to_contain_text("37 of 40 rows done")
    expect(output.get_by_role("treeitem")).to_have_count(0)
    expect(row(1)).to_contain_text("completed")
    expect(row(1)).to_contain_text("It is late.")

    output.locator("[data-order='all']").click()
    output.get_by_role("grid").evaluate("grid => grid.parentElement.scrollTop = 500")
    row(22).click()
    expect(output.locator("[data-agent-details='22']")).to_contain_text("What is in held two?")
    panel.button("Cancel agent").click()
    expect(row(22)).to_have_attribute("data-status", "cancelled")

    panel.button("Cancel run").click()
    expect(panel.status).to_contain_text("cancelled")
    expect(output.locator(".agentnb-map-progress")).to_contain_text("3 stopped")
    output.locator("[data-order='failed']").click()
    expect(output.get_by_role("grid")).to_have_attribute("aria-rowcount", "4")

    # A second view of the same value, after the end.
    notebook.run(2)
    expect(notebook.output(2).locator("[data-order='failed']")).to_have_text("Failed only 3")
    outputs = notebook.save().cells[1].outputs
    view, words = [{*one.data} for one in outputs]
    assert view == {"application/vnd.jupyter.widget-view+json"}
    assert words == {"text/plain", "text/html"}

    # When the page is opened again, the kernel sends it all once more.
    notebook.reload()
    again = notebook.output(1)
    expect(again.locator("[data-order='failed']")).to_have_text("Failed only 3")
    again.locator('[role=row][data-row="21"]').click()
    expect(again.locator("[data-agent-details='21']")).to_contain_text("What is in held one?")


PRICED = """
%load_ext agentnb
import agentnb
from agentnb import Price, Reply, ScriptedProvider
from agentnb.core.types import Usage

agentnb.set_prices({"scripted": Price(3, 15, cache_read=0.3)})
usages = [Usage(20_000, 2_000), Usage(5_000, 2_000, 0, 15_000)]

def answer(request):
    return Reply("It is late.", usage=usages[0] if "parcel 0" in str(request) else usages[1])

session = agentnb.Session(provider=ScriptedProvider(answer), store=None)
rows = [f"parcel {number}" for number in range(12)]
"""
SAMPLED = """
run = session.map(rows, "What is in {{text}}?", sample=2, budget="$4")
run
"""
SAID = "print(run.result().in_words, run.budget); agentnb.set_prices({})"


def test_sample_is_answered_in_the_panel_and_a_budget_in_dollars_is_changed_there(
    desk: Desk,
) -> None:
    notebook = desk.notebook(PRICED, SAMPLED, SAID)
    notebook.run(0, 1)
    output = notebook.output(1)
    panel = Panel(output)
    progress = output.locator(".agentnb-map-progress")
    expect(panel.button("Go")).to_be_visible()
    expect(progress).to_contain_text("2 of 12 rows done")
    expect(panel.header).to_contain_text("of $4.00")
    expect(panel.header).to_contain_text("38 % of input from cache (15,000 tokens)")

    panel.dollars.fill("6.5")
    panel.dollars.press("Enter")
    expect(panel.bar).to_have_attribute("aria-valuetext", re.compile(r"^\$0\.\d+ of \$6\.50 "))
    expect(output).to_contain_text("6.5 is $6.50.")
    handle = output.get_by_role("slider", name="Budget in dollars")
    expect(handle).to_have_attribute("aria-valuetext", "$6.50")
    handle.focus()
    handle.press("ArrowRight")
    expect(panel.dollars).not_to_have_value("$6.50")
    raised = panel.dollars.input_value()
    expect(handle).to_have_attribute("aria-valuetext", raised)

    panel.button("Go").click()
    expect(progress).to_contain_text("12 of 12 rows done")
    expect(panel.status).to_contain_text("completed")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("12 rows: 12 completed")
    expect(notebook.output(2)).to_contain_text(f"of {raised})")
