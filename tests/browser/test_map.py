"""A map in JupyterLab: its rows fill, one is opened, the run is cancelled, and all can be read."""

from __future__ import annotations

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

    # A second view, after the end, in the cell of the same value.
    notebook.run(2)
    expect(notebook.output(2).locator("[data-order='failed']")).to_have_text("Failed only 3")
    outputs = notebook.save().cells[1].outputs
    assert [{*one.data} for one in outputs] == [{"application/vnd.jupyter.widget-view+json"}]

    # The page is opened again: the kernel tells it all once more.
    notebook.reload()
    again = notebook.output(1)
    expect(again.locator("[data-order='failed']")).to_have_text("Failed only 3")
    again.locator('[role=row][data-row="21"]').click()
    expect(again.locator("[data-agent-details='21']")).to_contain_text("What is in held one?")
