"""Kept runs in a real JupyterLab: their place, and what a dead kernel leaves."""

from __future__ import annotations

import os
import re
import signal

from playwright.sync_api import expect

from tests.browser.desk import DARK, LIGHT, Desk
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.browser.test_everyone import findings
from tests.notebook.kernel import a_door

HELD = """{
    "root": [spawn("held", "quick"), "Together."],
    "held": Reply("Begun and then held, and ended.", pause=hold),
}"""
KEPT = """
import sqlite3, time
kept = sqlite3.connect("kept/killed.db")
while not kept.execute("select count(*) from orders where kind = 'pause'").fetchone()[0]:
    time.sleep(0.01)
kept.close()"""
LEFT = '{"root": ["Together."], "held": ["It ended."]}'
REPLIES = '{"root": [spawn("quick"), "Together."]}'


def test_footer_says_where_the_run_is_kept_and_nothing_that_is_saved_does(desk: Desk) -> None:
    notebook = desk.notebook(
        scripted(REPLIES, settings="store='kept/runs.db'"), "%%spawn\nDo it.", own_kernel=True
    )
    notebook.run(0, 1)

    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="completed", _1="completed")
    expect(panel.footer).to_have_text(
        "Kept in kept/runs.db (store=None, or AGENTNB_STORE=none in the environment, turns it off)."
    )
    for theme in (LIGHT, DARK):
        desk.set_theme(theme)
        assert findings(desk.page) == []
    assert (desk.server.folder / "kept" / "runs.db").is_file()
    outputs = notebook.save().cells[1].outputs
    assert len(outputs) == 3
    assert "runs.db" not in str(outputs)


def test_run_whose_kernel_was_killed_shows_what_was_kept_and_what_is_reused(desk: Desk) -> None:
    settings = "store='kept/killed.db'"
    store = f"agentnb.configure({settings})"
    with a_door() as door:
        notebook = desk.notebook(
            scripted(HELD, door=door, settings=settings),
            "%%spawn --bg --name mine -o run\nDo it.",
            f"run.pause()\n{KEPT}\nimport os; print('this is', os.getpid())",
            f"import agentnb\nsession = {store}\nagentnb.runs()",
            "session.load(agentnb.runs()[0]).panel()",
            scripted(LEFT, settings=settings)
            + "\nagentnb.set_prices({'scripted': agentnb.Price(3, 15)})",
            "%spawn recover",
            "session.newest_run.receipt",
            own_kernel=True,
        )
        notebook.run(0, 1)
        door.wait_for_knock()
        Panel(notebook.output(1)).expect_statuses(root="running", _1="running", _2="completed")
        notebook.run(2)
        os.kill(int(notebook.output(2).inner_text().split()[-1]), signal.SIGKILL)
        died = desk.page.locator(".jp-Dialog")
        expect(died).to_contain_text("appears to have died")
        died.locator(".jp-mod-accept").click()
        notebook.run(3, 4)

    expect(notebook.output(3)).to_contain_text("mine")
    expect(notebook.output(3)).to_contain_text("interrupted")
    panel = Panel(notebook.output(4))
    panel.expect_statuses(root="interrupted", _1="interrupted", _2="completed")
    panel.select("2")
    expect(panel.text).to_have_text("done: quick")
    expect(panel.scrubber).to_be_visible()
    expect(panel.place.get_by_text("reused", exact=True)).to_have_count(0)

    notebook.run(5, 6)
    panel = Panel(notebook.output(6))
    expect(panel.node("1")).to_contain_text("paused")  # its state when the kernel died
    panel.button("Resume run").click()
    panel.expect_statuses(root="completed", _1="completed", _2="completed")
    notebook.run(7)
    told = re.compile(r"Recovered: 2 calls reused \([\d,]+ tokens, \$0\.0\d+ saved\); 1 was open")
    expect(panel.notices).to_contain_text(told)
    for path, is_reused in {"root": False, "1": False, "2": True}.items():
        expect(panel.node(path).get_by_text("reused", exact=True)).to_be_visible(visible=is_reused)
    panel.select("2")
    expect(panel.details).to_contain_text("Reusedit had finished before the run was recovered")
    panel.select("root")
    expect(panel.details).to_contain_text("Reused1 of 2 calls")
    expect(notebook.output(7)).to_contain_text(told)
    expect(notebook.output(7).locator("th")).to_have_text(
        ["calls reused", "tool calls reused", "tokens", "saved"]
    )
    for theme in (LIGHT, DARK):
        desk.set_theme(theme)
        assert findings(desk.page) == []
