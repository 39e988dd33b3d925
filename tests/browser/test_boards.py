"""The boards of threads and tasks in JupyterLab."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.desk import Desk

SETUP = """
%load_ext agentnb
import agentnb
def model(request):
    said = request.messages[-1].text
    return "I have **read** it." if said.startswith("[TASK") else f"You said: {said}"
session = agentnb.configure(provider=agentnb.ScriptedProvider(model), store=None)
task = session.tasks.create("Check", "Is it so?", assigned_to="new:scripted/reviewer")
"""
ANSWERED = """
import time
while session.thread(task.assigned_to).status != "completed":
    time.sleep(0.01)
"""


def test_both_boards_in_a_notebook_follow_code_and_each_other(desk: Desk) -> None:
    cells = [SETUP, ANSWERED, "session.threads_panel()", "session.tasks.panel()"]
    notebook = desk.notebook(*cells, "session.tasks.create('Later', 'x');", "%agentnb freeze")
    notebook.run(0, 1, 2, 3)
    threads, tasks = notebook.output(2), notebook.output(3)
    log = threads.get_by_role("log")
    expect(log.locator("strong", has_text="read")).to_be_visible()
    expect(threads.locator(".agentnb-repeats-board")).to_be_hidden()

    field = threads.get_by_role("textbox", name="Message to reviewer")
    field.fill("Really?")
    field.press("Enter")
    expect(log).to_contain_text("You said: Really?")
    expect(field).to_have_value("")
    tasks.get_by_role("button", name="Complete").click()
    expect(tasks.locator(".agentnb-row").filter(has_text="completed")).to_be_visible()
    notebook.run(4)
    expect(tasks.locator(".agentnb-row")).to_have_count(2)

    notebook.run(5)
    expect(notebook.page.locator(".agentnb-boards")).to_have_count(0)
    expect(threads.locator("table")).to_be_visible()
    expect(threads).to_contain_text("reviewer")
    saved = notebook.save()
    for cell in saved.cells[2:4]:
        assert [sorted(output["data"]) for output in cell.outputs if output["data"]] == [
            ["text/html", "text/plain"]
        ]
