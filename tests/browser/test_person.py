"""A person in the loop, in JupyterLab: questions are answered in a page, and the run goes on."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.scripts import scripted

STEERED = """
from agentnb.views.panel.panel import RunPanel
from tests.views.panel.asked_run import AskedRun
asked = AskedRun(is_awaited=False)
for path in ("1", "1.1", "2"):
    asked.run.spawned(path).called(path)
RunPanel(asked.publisher)
"""
ASK = """
asked.asks_to_call("1.1", path="/data/old.csv")
asked.asks("2", "sample", "Go on with the other 400?")
"""


def test_two_pages_answer_one_queue_and_a_page_out_of_sight_gives_notice(desk: Desk) -> None:
    notebook = desk.notebook(STEERED, ASK, "print(asked.given)", "asked.run.ended()")
    notebook.run(0)
    panel = Panel(notebook.output(0))
    panel.expect_statuses(root="running", _2="running")
    notebook.save()
    second = desk.open(notebook.name, page=desk.another_page())
    second.show_again()
    other = Panel(second.output(0))
    other.expect_statuses(root="running", _2="running")
    page, other_page = notebook.page, other.place.page
    page.bring_to_front()  # a hidden page is painted once a second, and clicks wait for that
    page.evaluate("document.querySelector('.agentnb-panel').style.visibility = 'hidden'")
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")

    notebook.run(1)
    expect(other.header).to_contain_text("2 questions")
    page.wait_for_function("document.title.startsWith('● 2 questions')")
    page.evaluate("document.title = 'set again'")  # as JupyterLab does when it saves its layout
    page.wait_for_function("document.title.startsWith('● 2 questions')")
    page.locator(".jp-Notification-Status").click()  # the toasts are off in tests
    center = page.locator(".jp-Notification-Center")
    expect(center).to_contain_text("A run in the background: 2 questions")
    center.get_by_title("Dismiss all notifications").click()
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.evaluate("document.querySelector('.agentnb-panel').style.visibility = ''")
    page.wait_for_function("!document.title.includes('●')")

    expect(panel.node("1.1")).to_contain_text("asks")
    other_page.bring_to_front()
    other.button("Approve").click()
    page.bring_to_front()
    expect(panel.button("Approve")).to_have_count(0)
    expect(panel.header).to_contain_text("1 question")
    panel.button("Pause run").click()
    for each in (panel, other):
        expect(each.status).to_contain_text("paused")
        expect(each.button("Resume run")).to_be_enabled()
    other_page.bring_to_front()
    other.button("Resume run").click()
    page.bring_to_front()
    expect(panel.status).to_contain_text("running")
    notebook.run(2)
    for order in ("('answer', 'q1', 'approve', None, None)", "('pause', None), ('resume', None)"):
        expect(notebook.output(2)).to_contain_text(order)
    expect(panel.notices).to_contain_text("Paused from 0:00 to 0:00 min.")
    notebook.run(3)
    expect(panel.button("Stop")).to_have_count(0)  # open questions end with the run


MAIL = """
sent = []

@agentnb.tool(approval=True)
async def send(to: str) -> str:
    '''Send it.'''
    sent.append(to)
    return f"sent to {to}"

session = agentnb.configure(provider=provider, tools=[send], on_plan="ask")
"""
SENDS = """{
    "root": [spawn("mail", "left out"), "All."],
    "mail": [Reply("", tool_uses=[ToolUse("u", "send", {"to": "everybody"})]), "Mailed."],
}"""


def test_cell_that_waits_is_answered_in_its_panel_and_the_tool_runs_as_approved(
    desk: Desk,
) -> None:
    setup = scripted(SENDS) + MAIL
    notebook = desk.notebook(
        "from agentnb import ToolUse\n" + setup, "%%spawn\nMail it.", "print(sent)"
    )
    notebook.run(0)
    notebook.start(1)
    panel = Panel(notebook.output(1))

    panel.button("Fewer").click()  # by default, one less than all
    field = notebook.output(1).get_by_label("Arguments of send as JSON")
    expect(panel.node("1")).to_contain_text("asks")
    assert notebook.is_running(1)
    name = notebook.output(1).locator(".agentnb-question-values dt")
    expect(name).to_have_text("to")
    is_one_line = "one => one.offsetHeight < 2 * parseFloat(getComputedStyle(one).fontSize)"
    assert name.evaluate(is_one_line)  # JupyterLab's own rules give it a narrow column
    notebook.output(1).get_by_text("Change the arguments").click()
    field.fill('{"to": "ann"}')
    panel.button("Approve with changes").click()
    notebook.wait(1)

    panel.expect_statuses(root="completed", _1="completed")
    expect(panel.node("2")).to_have_count(0)
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("['ann']")
