"""Kept runs in a real JupyterLab: where they are, and what is left of a kernel that died."""

from __future__ import annotations

import os
import signal

import pytest
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
REPLIES = '{"root": [spawn("quick"), "Together."]}'


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_footer_says_where_the_run_is_kept_and_nothing_that_is_saved_does(
    desk: Desk, theme: str
) -> None:
    notebook = desk.notebook(
        scripted(REPLIES, settings="store='kept/runs.db'"), "%%spawn\nDo it.", own_kernel=True
    )
    desk.set_theme(theme)
    notebook.run(0, 1)

    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="completed", _1="completed")
    expect(panel.footer).to_have_text(
        "Kept in kept/runs.db (store=None, or AGENTNB_STORE=none in the environment, turns it off)."
    )
    assert findings(desk.page) == []
    assert (desk.server.folder / "kept" / "runs.db").is_file()
    outputs = notebook.save().cells[1].outputs
    assert len(outputs) == 3
    assert "runs.db" not in str(outputs)


def test_panel_of_a_run_whose_kernel_was_killed_shows_what_was_kept(desk: Desk) -> None:
    store = "agentnb.configure(store='kept/killed.db')"
    with a_door() as door:
        notebook = desk.notebook(
            scripted(HELD, door=door, settings="store='kept/killed.db'"),
            "%%spawn --bg --name mine -o run\nDo it.",
            "import os; print('this is', os.getpid())",
            f"import agentnb\nsession = {store}\nagentnb.runs()",
            "session.load(agentnb.runs()[0]).panel()",
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
