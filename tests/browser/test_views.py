"""Several panels of one run, made early or late, shown in several places, and closed."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.notebook.kernel import a_door

HELD = """{
    "root": [spawn("held", "quick"), "Brought together."],
    "held": Reply("Begun and then held, and ended.", pause=hold),
}"""
RUN = "run = agentnb.get_session().newest_run\nrun.panel()"


def test_two_panels_of_a_run_stay_in_step_and_each_looks_where_its_reader_looks(
    desk: Desk,
) -> None:
    with a_door() as door:
        notebook = desk.notebook(scripted(HELD, door=door), "%%spawn --bg\nDo it.", RUN)
        notebook.run(0, 1, 2)
        door.wait_for_knock()
        first, second = Panel(notebook.output(1)), Panel(notebook.output(2))
        for panel in (first, second):
            panel.expect_statuses(root="running", _1="running", _2="completed")

        first.select("1")
        second.select("2")
        expect(first.details).to_have_attribute("data-agent-details", "1")
        expect(first.text).to_have_text("Begun and then ")
        first.number.fill("123456")
        first.number.press("Enter")
        expect(second.number).to_have_value("123456")
        expect(second.bar).to_have_attribute("aria-valuetext", re.compile("of 123,456 tokens"))
        door.open()

        for panel in (first, second):
            panel.expect_statuses(root="completed", _1="completed", _2="completed")
            expect(panel.status).to_contain_text("completed")
        assert first.header.inner_text() == second.header.inner_text()


def test_panel_that_is_made_after_the_end_shows_everything_and_steers_nothing(desk: Desk) -> None:
    notebook = desk.notebook(
        scripted("{'root': [spawn('a'), 'Together.']}"), "%%spawn --quiet\nDo it.", RUN
    )
    notebook.run(0, 1, 2)
    panel = Panel(notebook.output(2))

    expect(Panel(notebook.output(1)).tree).to_have_count(0)
    panel.expect_statuses(root="completed", _1="completed")
    panel.select("1")
    expect(panel.text).to_have_text("done: a")
    expect(panel.button("Cancel run")).to_be_disabled()
    for control in (panel.slider, panel.number):  # nothing can be set any more
        expect(control).to_be_hidden()
    expect(panel.bar).to_have_attribute("aria-valuetext", re.compile("of 500,000 tokens"))
    expect(panel.scrubber).to_be_visible()


def test_one_panel_is_shown_in_two_cells_and_closed_in_both(desk: Desk) -> None:
    with a_door() as door:
        notebook = desk.notebook(
            scripted(HELD, door=door),
            "run = agentnb.get_session().spawn('Do it.')\npanel = run.panel()\npanel",
            "display(panel)",
            "panel.close()",
            "await run\nprint(run.status)",
        )
        notebook.run(0, 1, 2)
        door.wait_for_knock()
        for cell in (1, 2):
            Panel(notebook.output(cell)).expect_statuses(root="running", _1="running")
        notebook.run(3)
        for cell in (1, 2):
            expect(Panel(notebook.output(cell)).tree).to_have_count(0)
        door.open()
        notebook.run(4)

    expect(notebook.output(4)).to_contain_text("completed")


def test_run_that_was_written_to_a_file_is_looked_at_without_controls(desk: Desk) -> None:
    notebook = desk.notebook(
        scripted("{'root': [spawn('a'), 'Together.']}"),
        "%%spawn --quiet\nDo it.",
        "agentnb.get_session().newest_run.to_json('run.json')\nagentnb.load_run('run.json').panel()",
    )
    notebook.run(0, 1, 2)
    panel = Panel(notebook.output(2))

    panel.expect_statuses(root="completed", _1="completed")
    panel.select("1")
    expect(panel.text).to_have_text("done: a")
    expect(panel.button("Cancel run")).to_have_count(0)
    expect(panel.slider).to_have_count(0)


def test_run_that_was_loaded_while_it_went_on_stands_still_and_says_so(desk: Desk) -> None:
    with a_door() as door:
        notebook = desk.notebook(
            scripted(HELD, door=door),
            "%%spawn --bg\nDo it.",
            "agentnb.get_session().newest_run.to_json('run.json')\n"
            "agentnb.load_run('run.json').panel()",
        )
        notebook.run(0, 1)
        door.wait_for_knock()
        notebook.run(2)
        panel = Panel(notebook.output(2))

        panel.expect_statuses(root="running", _1="running")
        said = notebook.output(2).get_by_text("The run had not ended when it was loaded")
        expect(said).to_be_visible()
        expect(said).to_contain_text(re.compile(r"loaded, .*\d\d:\d\d.*: load it again"))
        door.open()


def test_page_that_is_reloaded_in_mid_run_shows_the_run_again_and_still_steers_it(
    desk: Desk,
) -> None:
    with a_door() as door:
        notebook = desk.notebook(
            scripted(HELD, door=door), "%%spawn --bg\nDo it.", "await run", RUN
        )
        notebook.run(0, 1)
        door.wait_for_knock()
        Panel(notebook.output(1)).expect_statuses(_1="running")
        notebook.save()

        notebook.reload()
        panel = Panel(notebook.output(1))
        panel.expect_statuses(root="running", _1="running", _2="completed")
        panel.button("Cancel run").click()
        panel.expect_statuses(root="cancelled", _1="cancelled", _2="completed")


def test_page_that_is_reloaded_while_a_cell_awaits_the_run_shows_it_when_the_cell_has_ended(
    desk: Desk,
) -> None:
    soon = (
        "import os; os.environ.pop('PYTEST_CURRENT_TEST', None)\n"
        "from agentnb.notebook import display; display.WORDS_AFTER_S = 0"
    )
    with a_door() as door:
        notebook = desk.notebook(f"{scripted(HELD, door=door)}\n{soon}", "%%spawn\nDo it.")
        notebook.run(0)
        notebook.start(1)
        door.wait_for_knock()
        said = "the live view is back when the cell has ended"
        expect(notebook.output(1).get_by_text(said)).to_be_attached()
        notebook.save()

        notebook.reload(is_busy=True)
        words = notebook.output(1).get_by_text(said)
        expect(words).to_be_visible()
        door.open()

        notebook.show_again()
        Panel(notebook.output(1)).expect_statuses(root="completed", _1="completed")
        expect(words).to_be_hidden()


def test_panel_whose_kernel_was_restarted_stands_still_and_says_so(desk: Desk) -> None:
    with a_door() as door:
        notebook = desk.notebook(scripted(HELD, door=door), "%%spawn --bg\nDo it.")
        notebook.run(0, 1)
        door.wait_for_knock()
        panel = Panel(notebook.output(1))
        panel.expect_statuses(_1="running", _2="completed")
        # Its kernel has spoken to it: until then it has only what came with the widget.
        expect(panel.place.locator(".agentnb-is-live")).to_be_visible()

        notebook.restart_kernel()

        expect(panel.place).to_contain_text("The kernel is gone:")
        expect(panel.status).to_have_text(re.compile(r"running \(not live: as of \d\d:\d\d\)"))
        for name in ("Cancel run", "Pause run"):
            expect(panel.button(name)).to_be_hidden()
        expect(panel.number).to_be_hidden()
        expect(panel.slider).to_be_hidden()
        panel.select("1")
        expect(panel.button("Cancel agent")).to_be_hidden()
        panel.expect_statuses(_1="running", _2="completed")


def test_control_alone_is_hidden_when_its_kernel_is_restarted_and_a_new_one_works(
    desk: Desk,
) -> None:
    alone = "run = agentnb.get_session().newest_run\nrun.cancel_button()"
    with a_door() as door:
        model = scripted(HELD, door=door)
        notebook = desk.notebook(model, "%%spawn --bg --quiet\nDo it.", alone)
        button = notebook.output(2).get_by_role("button", name="Cancel run")
        notebook.run(0, 1)
        door.wait_for_knock()
        notebook.run(2)
        expect(button).to_be_enabled()

        notebook.restart_kernel()
        expect(button).to_be_hidden()

        notebook.run(0, 1)
        door.wait_for_knock()
        notebook.run(2)
        button.click()
        expect(button).to_be_disabled()


def test_control_alone_works_in_a_notebook_that_was_closed_and_opened_again(desk: Desk) -> None:
    """In the same page: what the closed notebook has left there must not hide it."""
    alone = "run = agentnb.get_session().newest_run\nrun.cancel_button()"
    with a_door() as door:
        model = scripted(HELD, door=door)
        notebook = desk.notebook(model, "%%spawn --bg --quiet\nDo it.", alone)
        notebook.run(0, 1)
        door.wait_for_knock()
        notebook.run(2)
        name = "Cancel run"
        expect(notebook.output(2).get_by_role("button", name=name)).to_be_visible()
        notebook.save()
        (kernel,) = desk.server.kernels

        notebook.close()
        notebook.open(kernel)

        button = notebook.output(2).get_by_role("button", name=name)
        button.click()
        expect(button).to_be_disabled()


def test_view_of_an_ended_run_whose_kernel_is_shut_down_hides_nothing(desk: Desk) -> None:
    notebook = desk.notebook("%load_ext agentnb", "%%spawn --model demo\nSay hello.")
    notebook.run(0, 1)
    outline = notebook.output(1).locator(".agentnb-repeats-live-view").first
    panel = Panel(notebook.output(1))
    expect(panel.button("Play")).to_be_visible()
    expect(outline).to_be_hidden()

    notebook.shut_kernel_down()

    expect(panel.button("Play")).to_be_hidden()
    expect(outline).to_be_visible()
    panel.expect_statuses(root="completed")


def test_runs_that_have_ended_leave_no_thread_behind(desk: Desk) -> None:
    count = """
import threading
left = [t for t in threading.enumerate() if t.name == "agentnb-panel"]
for thread in left:
    thread.join(60)
print("left:", [t.name for t in left if t.is_alive()])
"""
    notebook = desk.notebook(
        scripted("{'root': [spawn('a'), 'Together.'] * 4}"), *["%%spawn\nDo it."] * 4, count
    )
    notebook.run(0)
    for cell in range(1, 5):
        notebook.run(cell)
        # One after the other: a page that must make all at once may take longer than the two
        # seconds that anywidget gives a widget to come up.
        expect(Panel(notebook.output(cell)).node("1")).to_be_attached()
    notebook.run(5)

    expect(notebook.output(5)).to_contain_text("left: []")
    Panel(notebook.output(4)).expect_statuses(root="completed", _1="completed")


def test_first_panel_of_a_kernel_shows_the_text_while_its_cell_blocks(desk: Desk) -> None:
    replies = """{"root": Reply("Begun and then held, and ended.", pause=hold)}"""
    with a_door() as door:
        notebook = desk.notebook(
            scripted(replies, door=door),
            "run = agentnb.get_session().spawn('Do it.')\ndisplay(run.panel())\nrun.result();",
            own_kernel=True,
        )
        notebook.run(0)
        notebook.start(1)
        door.wait_for_knock()
        panel = Panel(notebook.output(1))

        expect(panel.text).to_have_text("Begun and then ")
        assert notebook.is_running(1)
        door.open()
        notebook.wait(1)

    expect(panel.text).to_have_text("Begun and then held, and ended.")
