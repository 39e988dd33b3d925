"""After the run: the replay, and what a saved notebook shows without a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect

from agentnb.__main__ import main
from tests.browser.desk import Desk
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.notebook.kernel import a_door

SCRIPT = scripted("""{
    "root": [spawn("north", "south", mode="sequential"), "**All** is told."] * 2,
    "north": [spawn("east of north"), "North is done."],
    "south": LlmError("There is no south.", status_code=400),
}""")
# The time, in thousandths of the run, at which its second agent to end was held.
MIDDLE = """
from agentnb.core.events import AgentCompleted
events = session.newest_run.events
before, after, *_ = [e.at_s for e in events if isinstance(e.event, AgentCompleted)]
print(round(1000 * (before + after) / 2 / events[-1].at_s))
"""
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def told(desk: Desk, *more: str, own_kernel: bool = False) -> Notebook:
    """A notebook whose second cell has run a tree."""
    notebook = desk.notebook(SCRIPT, "%%spawn\nSurvey the land.", *more, own_kernel=own_kernel)
    notebook.run(0, 1)
    Panel(notebook.output(1)).expect_statuses(root="completed", _2="failed")
    return notebook


def views_in(notebook: Notebook) -> int:
    """The number of live views in the file."""
    outputs = [output for cell in notebook.saved["cells"] for output in cell["outputs"]]
    return sum(WIDGET_VIEW in output.get("data", {}) for output in outputs)


def python(*arguments: str, **environment: str) -> None:
    """Run a command of this environment, which must succeed."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_scrubber_goes_back_to_what_the_tree_was_and_forth_to_the_end(desk: Desk) -> None:
    replies = """{
        "root": [
            # The replay's times are rounded to a hundredth: what begins sooner is there at once.
            Reply(spawn("north", "south", mode="sequential"), pause=lambda: asyncio.sleep(0.1)),
            "All is told.",
        ],
        "north": [spawn("east of north"), Reply("Begun and then held, and ended.", pause=hold)],
    }"""
    with a_door() as door:
        notebook = desk.notebook(scripted(replies, door=door), "%%spawn\nSurvey the land.", MIDDLE)
        panel = Panel(notebook.output(1))
        notebook.run(0)
        notebook.start(1)
        door.wait_for_knock()
        panel.expect_statuses(root="running", _1="running", _1_1="completed")
        door.open()
        notebook.wait(1)
    notebook.run(2)
    panel.expect_statuses(root="completed", _2="completed")

    expect(panel.scrubber).to_be_visible()  # the run ends after its root
    panel.scrubber.focus()
    panel.scrubber.press("Home")
    expect(panel.node("1")).to_have_count(0)
    panel.scrubber.fill(notebook.output(2).inner_text().strip())
    panel.expect_statuses(root="running", _1="running", _1_1="completed")
    expect(panel.node("2")).to_have_count(0)
    panel.scrubber.press("End")

    panel.expect_statuses(root="completed", _1="completed", _1_1="completed", _2="completed")


def test_saved_notebook_that_comes_by_mail_shows_picture_outline_and_answer(desk: Desk) -> None:
    notebook = told(desk)
    notebook.save()
    assert views_in(notebook) == 1
    notebook.close()
    desk.server.end_kernels()

    copy = desk.untrusted_copy(notebook)

    assert not copy.is_trusted
    shown = copy.output(1)
    picture = shown.locator("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("img => img.complete && img.naturalWidth > 100")
    expect(shown).to_contain_text("east of north")
    expect(shown).to_contain_text("There is no south.")
    expect(shown.locator("strong", has_text="All")).to_be_visible()
    expect(Panel(shown).tree).to_have_count(0)


def test_web_page_of_the_saved_notebook_shows_the_same_without_a_script(
    desk: Desk, chromium: Browser
) -> None:
    notebook = told(desk)
    notebook.save()
    file = desk.server.folder / notebook.name
    python("-m", "jupyter", "nbconvert", "--to", "html", str(file))

    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(file.with_suffix(".html").as_uri())
        expect(page.locator("img[src^='data:image/png']")).to_be_visible()
        expect(page.get_by_text("There is no south.").first).to_be_visible()
        expect(page.locator("strong", has_text="All")).to_be_visible()
    finally:
        context.close()


def test_freeze_magic_takes_the_live_views_away_and_leaves_the_rest(desk: Desk) -> None:
    again = "agentnb.get_session().newest_run.panel()"
    notebook = told(desk, again, "%agentnb freeze", own_kernel=True)  # it counts all views
    notebook.run(2)
    Panel(notebook.output(2)).expect_statuses(root="completed")

    notebook.run(3)

    expect(notebook.output(3)).to_contain_text("2 live views are removed")
    expect(notebook.frame.get_by_role("tree")).to_have_count(0)
    expect(notebook.output(1)).to_contain_text("There is no south.")
    expect(notebook.output(1).locator("img")).to_be_visible()
    notebook.save()
    assert views_in(notebook) == 0


def test_frozen_file_shows_no_trace_of_a_live_view(desk: Desk) -> None:
    notebook = told(desk)
    notebook.save()
    notebook.close()
    desk.server.end_kernels()
    before = notebook.saved

    assert main(["freeze", str(desk.server.folder / notebook.name)]) == 0

    after = notebook.saved
    assert views_in(notebook) == 0
    assert after["cells"][1]["outputs"] == before["cells"][1]["outputs"][1:]
    again = desk.open(notebook.name)
    expect(again.output(1).locator("img")).to_be_visible()
    expect(again.output(1)).not_to_contain_text("model not found")
    assert again.output(1).locator(".jupyter-widgets-view, .jp-mod-error").count() == 0


def test_notebook_saved_with_live_views_is_the_same_when_it_is_run_without(
    desk: Desk, tmp_path: Path
) -> None:
    notebook = told(desk)
    notebook.save()
    file = str(desk.server.folder / notebook.name)
    compare = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "nbval.plugin", "-c", os.devnull]
    compare += ["--rootdir", str(tmp_path), "--nbval", "--nbval-current-env", file]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take a second to load

    python(*compare, **alone, AGENTNB_DISPLAY="static")
    python(*compare, **alone)
