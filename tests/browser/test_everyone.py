"""For everyone: a keyboard suffices, screen readers get all, and no theme hides anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser import axe
from tests.browser.desk import DARK, LIGHT, SIZE, Desk
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.notebook.kernel import Door, a_door

MIXED = """{
    "root": [spawn("held", "quick", "broken", before="I split it."), "Brought together."],
    "held": Reply("Begun and then held, and ended.", pause=hold),
    "broken": LlmError("It cannot be done.", status_code=400),
}"""
# Three runs of one session, which keeps to a rate limit: so the run that meets it is the last.
IN_TROUBLE = """{
    "root": [
        spawn("broken", before="I split it."), LlmError("The model has left.", status_code=400),
        Reply(spawn("plan it", before="I split it."), pause=hold), "Brought together.",
        spawn("limited"),
    ],
    "limited": RateLimited("Too many calls.", retry_after_s=59),
    "broken": LlmError("It cannot be done.", status_code=400),
    "plan it": [Reply(spawn("one", "two"), usage=Usage(80_000, 5_000)), "The plan is done."],
}"""


@pytest.fixture
def door() -> Iterator[Door]:
    with a_door() as door:
        yield door


def started(desk: Desk, door: Door) -> tuple[Notebook, Panel]:
    notebook = desk.notebook(scripted(MIXED, door=door), "%%spawn\nDo it.")
    notebook.run(0)
    notebook.start(1)
    door.wait_for_knock()
    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="running", _1="running", _2="completed", _3="failed")
    # Offered once the kernel has answered.
    for control in (panel.slider, panel.number):
        expect(control).to_be_visible()
    return notebook, panel


def findings(page: Page) -> list[str]:
    """The findings of axe in the panel, one line each."""
    # JupyterLab's body is 0 px high: axe would take everything in it as clipped, and skip its
    # contrast; so it would with what is scrolled out of view.
    page.set_viewport_size({"width": SIZE[0], "height": 3_000})
    style = page.add_style_tag(content="body { height: 100vh }")
    found = axe.findings(page, ".agentnb-panel")
    style.evaluate("style => style.remove()")
    return found


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_axe_has_no_serious_finding_while_it_runs_and_afterwards(
    desk: Desk, door: Door, theme: str
) -> None:
    notebook, panel = started(desk, door)
    desk.set_theme(theme)
    panel.select("1")

    assert findings(notebook.page) == []
    panel.number.fill("200.000")
    panel.number.press("Enter")
    expect(panel.place.get_by_role("alert")).to_contain_text("can be read as 200 or as 200,000")
    panel.place.get_by_role("button", name="Collapse root").click()
    panel.place.get_by_role("button", name="Zoom out").click()
    panel.place.get_by_role("button", name="failed").click()
    assert findings(notebook.page) == []
    panel.place.get_by_role("button", name="Clear the filter").click()
    panel.place.get_by_role("button", name="Expand root").click()
    panel.place.get_by_role("button", name="Fit the tree").click()
    door.open()
    notebook.wait(1)
    panel.expect_statuses(root="completed", _1="completed")
    panel.select("3")
    panel.open_prompt()
    expect(panel.scrubber).to_be_visible()
    assert findings(notebook.page) == []
    panel.scrubber.fill("0")
    expect(panel.place.locator(".agentnb-tree-view")).to_have_attribute("data-replay", "true")
    assert findings(notebook.page) == []


def test_axe_has_no_serious_finding_when_a_run_fails_asks_or_waits(desk: Desk, door: Door) -> None:
    setup = scripted(IN_TROUBLE, door=door, settings="budget=100_000")
    notebook = desk.notebook(setup, *["%%spawn\nDo it."] * 3)
    notebook.run(0)

    notebook.run(1)
    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="failed", _1="failed")
    expect(panel.notices).to_contain_text("The model has left.")
    panel.open_prompt()
    assert findings(notebook.page) == []

    notebook.start(2)
    panel = Panel(notebook.output(2))
    door.wait_for_knock()
    expect(panel.text).to_contain_text("I split")  # the page has answered: a person is there
    door.open()
    expect(panel.question).to_contain_text("80 % of the budget is used")
    assert findings(notebook.page) == []
    with_forced_colours(notebook.page, lambda: expect_question_is_seen(panel))
    panel.button("Continue").click()
    notebook.wait(2)
    panel.expect_statuses(root="completed", _1_2="completed")

    notebook.start(3)
    panel = Panel(notebook.output(3))
    panel.expect_statuses(_1="waiting")
    panel.select("1")
    expect(panel.details).to_contain_text("Too many calls")
    assert findings(notebook.page) == []
    panel.button("Cancel run").click()
    notebook.wait(3)
    panel.expect_statuses(root="cancelled", _1="cancelled")
    assert findings(notebook.page) == []


def with_forced_colours(page: Page, check: Callable[[], None]) -> None:
    """Check the page with forced colours, as some people set them."""
    page.emulate_media(forced_colors="active")
    try:
        assert findings(page) == []
        check()
    finally:
        page.emulate_media(forced_colors="null")


def expect_question_is_seen(panel: Panel) -> None:
    """Expect borders around its buttons, and a ring around the focused one."""
    panel.focus(panel.number)
    for name in ("Continue", "Stop"):
        button = panel.button(name)
        expect(button).to_have_css("border-top-style", "solid")
        expect(button).to_have_css("border-top-width", "1px")
        panel.place.page.keyboard.press("Tab")
        expect(button).to_be_focused()
        expect(button).to_have_css("outline-width", "3px")
        expect(button).to_have_css("outline-style", "solid")
    words = panel.question.evaluate("one => getComputedStyle(one).color")
    expect(panel.button("Stop")).to_have_css("border-top-color", words)


def test_slider_and_number_alone_have_names_and_the_number_answers_what_is_typed(
    desk: Desk,
) -> None:
    alone = (
        "run = agentnb.get_session().newest_run\ndisplay(run.budget_slider(), run.budget_number())"
    )
    with a_door() as door:
        notebook = desk.notebook(scripted(MIXED, door=door), "%%spawn --bg --quiet\nDo it.", alone)
        notebook.run(0, 1)
        door.wait_for_knock()
        notebook.run(2)
        controls = Panel(notebook.output(2))

        assert notebook.page.get_by_role("tree").count() == 0
        expect(controls.slider).to_have_accessible_name("Budget in tokens")
        controls.focus(controls.number)
        for typed, answer in {
            "1.5e5": "1.5e5 is 150,000 tokens.",
            "200.000": "can be read as 200 or as 200,000 tokens",
            "200,000": "200,000 is 200,000 tokens.",
        }.items():
            notebook.page.keyboard.press("Control+a")
            notebook.page.keyboard.type(typed)  # by key, so that the field drops wrong ones
            notebook.page.keyboard.press("Enter")
            expect(controls.place).to_contain_text(answer)
        expect(controls.number).to_have_value("200000")
        expect(controls.slider).to_have_attribute("aria-valuenow", "200000.0")
        door.open()


def test_finished_panel_of_six_agents_is_low_enough_for_the_answer_below_it(desk: Desk) -> None:
    replies = """{
        "root": [spawn("read", "compare", "write"), "Brought together."],
        "compare": [spawn("files", "tables"), "Compared."],
    }"""
    notebook = desk.notebook(scripted(replies), "%%spawn\nDo it.")
    notebook.page.set_viewport_size({"width": 1280, "height": 900})
    notebook.run(0, 1)
    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="completed", _2_1="completed", _2_2="completed")
    expect(panel.scrubber).to_be_visible()

    notebook.page.wait_for_function(
        "() => document.querySelector('.agentnb-panel').offsetHeight <= 380"
    )
    assert panel.place.locator(".agentnb-board").evaluate(
        "one => one.scrollHeight <= one.clientHeight && one.scrollWidth <= one.clientWidth"
    )


def test_axe_would_find_a_text_that_cannot_be_read(desk: Desk, door: Door) -> None:
    notebook, panel = started(desk, door)
    panel.details.evaluate(
        """details => {
            const faint = document.createElement("p");
            faint.textContent = "Hardly to be read";
            faint.style = "color: #bbb; background: #fff";
            details.prepend(faint);
        }"""
    )

    assert [line for line in findings(notebook.page) if line.startswith("color-contrast")]
    door.open()
    notebook.wait(1)


def test_tab_key_reaches_every_control_and_an_agent_is_cancelled_without_a_mouse(
    desk: Desk, door: Door
) -> None:
    notebook, panel = started(desk, door)
    keyboard = notebook.page.keyboard

    panel.focus(panel.button("Cancel run"))
    reached = [focused(notebook.page)]
    for _ in range(40):
        keyboard.press("Tab")
        reached.append(focused(notebook.page))
        if reached[-1] == "treeitem root":
            break
    for control in (
        "slider Budget in tokens",
        "textbox Total tokens",
        "searchbox",
        "treeitem root",
    ):
        assert [name for name in reached if name.startswith(control)], reached
    keyboard.press("ArrowDown")
    expect(panel.node("1")).to_be_focused()
    for _ in range(20):
        keyboard.press("Tab")
        if focused(notebook.page) == "button Cancel agent":
            break
    keyboard.press("Enter")

    panel.expect_statuses(_1="cancelled")
    notebook.wait(1)


def focused(page: Page) -> str:
    """Role and name of the focused element."""
    said: str = page.evaluate(
        """() => {
            const element = document.activeElement;
            const roles = {BUTTON: "button", SELECT: "combobox", SUMMARY: "summary"};
            const types = {text: "textbox", search: "searchbox", range: "slider"};
            const role = element.getAttribute("role") ?? roles[element.tagName]
                ?? types[element.type] ?? element.tagName;
            const path = element.dataset.agentPath;
            const name = path ?? element.getAttribute("aria-label")
                ?? element.labels?.[0]?.textContent ?? element.textContent;
            return `${role} ${name.trim()}`.trim();
        }"""
    )
    return said


@pytest.mark.parametrize("width", [520, 1280])
def test_nothing_hangs_over_the_edge_in_a_narrow_and_a_wide_window(
    desk: Desk, door: Door, width: int
) -> None:
    notebook, panel = started(desk, door)
    notebook.page.set_viewport_size({"width": width, "height": 1000})

    overhang = panel.place.locator(".agentnb-panel").evaluate(
        """panel => {
            const right = panel.getBoundingClientRect().right + 1;
            const scrolls = e => getComputedStyle(e).overflowX !== "visible";
            const isInside = e => e !== panel && (scrolls(e) || isInside(e.parentElement));
            return [...panel.querySelectorAll("*")]
                .filter(e => e.checkVisibility() && !isInside(e.parentElement))
                .filter(e => e.getBoundingClientRect().right > right)
                .map(e => e.outerHTML.slice(0, 120));
        }"""
    )

    assert overhang == []
    expect(panel.button("Cancel run")).to_be_in_viewport()
    door.open()
    notebook.wait(1)
