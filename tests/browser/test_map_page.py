"""The table of a map in a page without a kernel: 2,000 rows, accessible and inert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser import axe
from tests.browser.map_page import MapPage, a_map_page

OpenMap = Callable[..., MapPage]


@pytest.fixture
def open_map(tree_context: BrowserContext, tree_address: str) -> Iterator[OpenMap]:
    with ExitStack() as stack:

        def opened(query: str, *, width: int = 1400) -> MapPage:
            return stack.enter_context(a_map_page(tree_context, tree_address, query, width=width))

        yield opened


def findings(page: MapPage) -> list[str]:
    return axe.findings(page.page, ".agentnb-tree-view")


def test_two_thousand_rows_scroll_are_filtered_opened_and_walked(open_map: OpenMap) -> None:
    table = open_map("rows=2000&judges=3")
    press = table.page.keyboard.press

    # Failures come first; only visible rows are in the page, and the rest is in the row count.
    expect(table.grid).to_have_attribute("aria-rowcount", "2001")
    assert len(table.numbers()) < 40
    expect(table.rows.first).to_have_attribute("data-status", "failed")
    expect(table.chip("failed")).to_have_text("Failed only 500")

    table.chip("all").click()
    table.painted()
    assert table.numbers()[:3] == [1, 2, 3]
    table.scroll_to(30_000)
    assert len(table.numbers()) < 40
    number = table.numbers()[12]
    assert 1000 <= number <= 1010
    expect(table.row(number)).to_have_attribute("aria-rowindex", str(number + 1))
    assert table.page.locator("[role=row][tabindex='0']").count() == 1

    table.chip("failed").click()
    expect(table.grid).to_have_attribute("aria-rowcount", "501")
    expect(table.rows.first).to_have_attribute("data-row", "2")

    # Keys go to the end and back, and a row opens its agent.
    table.row(2).focus()
    press("End")
    expect(table.row(1499)).to_be_focused()
    press("Home")
    press("ArrowDown")
    expect(table.row(5)).to_be_focused()
    press("Enter")
    expect(table.details).to_have_attribute("data-agent-details", "13")
    expect(table.row(5)).to_have_attribute("aria-selected", "true")
    assert table.sent("details")[-1]["agent"] == "13"
    table.page.get_by_role("group", name="Judges").get_by_role("button", name="Judge 2").click()
    expect(table.details).to_have_attribute("data-agent-details", "14")
    expect(table.details).to_contain_text("Which complaint is in")
    table.page.keyboard.press("Escape")
    expect(table.details).to_be_hidden()
    expect(table.row(5)).to_be_focused()

    # A judge's cell opens that judge.
    table.row(8).locator("[data-judge='3']").click()
    expect(table.details).to_have_attribute("data-agent-details", "24")


def test_rows_follow_the_frames_and_what_is_read_stays_in_place(open_map: OpenMap) -> None:
    table = open_map("rows=200")
    first, second = table.numbers()[:2]
    running = table.page.evaluate(
        "page.agents.filter(({status}) => status === 'running').map(({path}) => path)"
    )
    table.scroll_to(1200)
    in_sight = table.scroller.evaluate(
        """box => {
            const top = box.getBoundingClientRect().top + 28;
            const rows = [...box.querySelectorAll("[data-row]")];
            const row = rows.find((one) => one.getBoundingClientRect().top >= top);
            return [row.dataset.row, row.getBoundingClientRect().top];
        }"""
    )
    ended = {"status": "failed", "error": "overloaded", "ended": 61.0, "doing": ""}
    table.change({"path": running[0], **ended}, {"path": running[1], **ended}, seq=2)

    top = table.row(in_sight[0]).evaluate("row => row.getBoundingClientRect().top")
    assert top == pytest.approx(in_sight[1], abs=1)  # there are two more rows above it
    table.scroll_to(0)
    assert table.numbers()[:2] == [first, second]

    # The open row has the controls of its agent.
    table.chip("all").click()
    table.row(1).focus()
    for key in ["PageDown"] * 15 + ["ArrowDown"] * 3:
        table.page.keyboard.press(key)
    assert running[2] == "154"
    expect(table.row(154)).to_be_focused()
    table.page.keyboard.press("Enter")
    table.page.get_by_role("button", name="Cancel agent").click()
    assert table.sent("cancel") == [{"type": "cancel", "agent": "154"}]

    # A missing frame is requested.
    table.change({"path": "154", "tokens": 99}, seq=9)
    assert len(table.sent("resend")) == 1


def test_text_of_tables_and_models_stays_text(open_map: OpenMap) -> None:
    table = open_map("rows=20&done")
    table.chip("all").click()
    table.row(1).click()
    expect(table.row(1)).to_contain_text("<img src=x onerror=")
    table.row(4).click()
    expect(table.details).to_contain_text("<b>bold</b>")

    assert table.page.locator("#view :is(img, b, a, script, iframe)").count() == 0
    assert all("127.0.0.1" in url or url.startswith("data:") for url in table.requests)


@pytest.mark.parametrize(("theme", "width"), [("", 420), ("&dark", 1400)])
def test_axe_finds_nothing_and_nothing_is_too_wide(
    open_map: OpenMap, theme: str, width: int
) -> None:
    for query in ("rows=300&judges=3", "rows=8&done"):
        table = open_map(query + theme, width=width)
        assert findings(table) == []
        table.rows.nth(1).click()
        expect(table.details).to_contain_text("Which complaint is in")
        assert findings(table) == []
        wide = table.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
    table.chip("failed").click()
    assert findings(table) == []


def test_closed_kernel_leaves_the_table_to_be_read(open_map: OpenMap) -> None:
    table = open_map("rows=60")
    table.second()
    expect(table.page.get_by_role("grid")).to_have_count(2)

    table.page.evaluate("page.model.close()")

    expect(table.page.get_by_text("The kernel is gone:").first).to_be_visible()
    table.chip("all").first.click()
    table.row(5).first.click()
    expect(table.details.first).to_be_visible()
    expect(table.page.get_by_role("button", name="Cancel agent").first).to_be_hidden()
