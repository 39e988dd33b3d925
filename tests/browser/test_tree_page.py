"""The panel's tree in a page without a kernel: what a person can do, and what they see."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from agentnb.views.panel.controls import bar_markup
from agentnb.views.panel.module import STATIC
from tests.browser.axe import findings
from tests.browser.chromium import SILENCE_MS, LetPass
from tests.browser.tree_page import Open, new_agent


def test_every_agent_shows_path_status_task_tokens_and_time(open_tree: Open) -> None:
    tree = open_tree("agents=300")
    rows = tree.page.evaluate("page.rows")

    expect(tree.items).to_have_count(300)
    texts = tree.items.evaluate_all("all => all.map(one => one.textContent)")
    for row, text in zip(sorted_as_drawn(rows, tree.paths()), texts, strict=True):
        assert row["path"] in text
        assert row["status"] in text
        assert row["task"] in text
        assert (" tok" in text) is (row["tokens"] > 0)


def sorted_as_drawn(rows: list[dict[str, Any]], paths: list[str]) -> list[dict[str, Any]]:
    by_path = {row["path"]: row for row in rows}
    return [by_path[path] for path in paths]


def test_tree_tells_its_structure_to_those_who_do_not_see_it(open_tree: Open) -> None:
    tree = open_tree()

    expect(tree.page.get_by_role("tree", name="Agents of this run")).to_be_visible()
    second = tree.item("1.2")
    for name, value in {"level": "3", "posinset": "2", "selected": "false"}.items():
        expect(second).to_have_attribute(f"aria-{name}", value)
    expect(tree.item("1")).to_have_attribute("aria-expanded", "true")
    assert tree.item("1.1.1").get_attribute("aria-expanded") is None
    status = tree.item("1").get_attribute("data-status")
    expect(tree.item("1")).to_have_accessible_name(re.compile(f"^1 {status} "))


SEEN = """cards => {
    const ticking = [".agentnb-node-time", ".agentnb-node-tokens", ".agentnb-node-tool-time"];
    ticking.push(".agentnb-node-doing > span", ".agentnb-node-tool-words > span");
    const working = "[role=treeitem]:is([data-status=running], [data-status=waiting])";
    const style = document.createElement("style");
    style.textContent = `${working} :is(${ticking}) { display: none }`;
    document.head.append(style);
    const seen = cards.map((card) => [card.dataset.agentPath, card.innerText]);
    style.remove();
    return Object.fromEntries(seen);
}"""
"""The visible words of each card, by path: all of an ended agent, else those that do not change."""


def test_name_of_every_card_is_what_is_seen_on_it_in_every_state(open_tree: Open) -> None:
    tree = open_tree("agents=1")
    tool = {"name": "look_up", "said": "3 of 9", "since": 49.0}
    ended: dict[str, Any] = {"ended": 61.0, "tokens": 1234}
    tree.frame(
        new_agent("1", doing="1 working below", tokens=70, estimated=True),
        new_agent("1.1", status="waiting", doing="try again after: Too many calls", until=99.0),
        new_agent("2", tool=tool, tool_calls=1, tool_errors=0, tokens=512),
        new_agent("3", status="completed", **ended),
        new_agent("4", status="failed", attempt=2, error="The model is overloaded.", **ended),
        new_agent("5", status="cancelled", error="too slow", **ended),
        new_agent("6", status="exhausted", error="no room for it", **ended),
        new_agent("7", status="interrupted", tool_calls=3, tool_errors=1, **ended),
        new_agent("8", status="skipped", begun=None, ended=61.0, error="its turn did not come"),
    )
    expect(tree.items).to_have_count(10)
    expect(tree.item("1.1")).to_contain_text(re.compile(r"Too many calls, \d+ s"))
    expect(tree.item("2")).to_contain_text("look_up: 3 of 9")

    for change in ("", "Collapse 1", *["Zoom out"] * 5):
        if change:
            tree.page.get_by_role("button", name=change, exact=True).click()
        tree.painted()
        for path, words in tree.items.evaluate_all(SEEN).items():
            expect(tree.item(path)).to_have_accessible_name(" ".join(words.split()))
        for name in (
            *(["1.1 waiting Task of 1.1 try again after: Too many calls"] if not change else []),
            "2 running Task of 2 look_up",
            "8 skipped Task of 8 its turn did not come",
        ):
            expect(tree.item(name.split()[0])).to_have_accessible_name(name)
    expect(tree.item("1")).to_have_accessible_name("1 running Task of 1 1 hidden: 1 waiting")
    expect(tree.item("4")).to_have_accessible_name(re.compile("^4 failed, attempt 2 .*overloaded"))


def test_reused_agent_is_marked_by_a_word_in_place_of_its_time(open_tree: Open) -> None:
    tree = open_tree("agents=1")
    ended: dict[str, Any] = {"status": "completed", "ended": 60.0, "tokens": 1234}
    tree.frame(
        new_agent("1", reused=True, **ended),
        new_agent("2", reused=True, error="too slow", **{**ended, "status": "cancelled"}),
        new_agent("3", reused=False, **ended),
    )
    expect(tree.items).to_have_count(4)
    for media in ("none", "active"):
        tree.page.emulate_media(forced_colors=media)
        tree.page.get_by_role("button", name="Zoom to 100 %").click()
        for path, is_marked in (("1", True), ("2", True), ("3", False), ("root", False)):
            mark = tree.item(path).locator(".agentnb-node-reused")
            expect(mark).to_be_visible(visible=is_marked)
            expect(tree.item(path).locator(".agentnb-node-time")).to_be_visible(
                visible=not is_marked
            )
            status = tree.item(path).locator(".agentnb-node-status")
            assert status.evaluate("words => words.scrollWidth <= words.clientWidth")  # not cut off
        for _ in range(6):
            for path, words in tree.items.evaluate_all(SEEN).items():
                expect(tree.item(path)).to_have_accessible_name(" ".join(words.split()))
            expect(tree.item("1")).to_have_accessible_name(
                "1 completed reused Task of 1 1.2k tokens"
            )
            expect(tree.item("2")).to_have_accessible_name(re.compile("^2 cancelled reused "))
            tree.page.get_by_role("button", name="Zoom out").click()
            tree.painted()
    tree.item("1").click()
    tree.looked_at("1", reused="it had finished before the run was recovered")
    expect(tree.details).to_contain_text("Reusedit had finished before the run was recovered")
    expect(tree.details.locator("[data-fact=time]")).to_be_hidden()
    tree.item("3").click()
    tree.looked_at(
        "3",
        reused="2 of 3 calls",
        tokens={"input": 580, "output": 40, "cache_read": 420, "cache_write": 0},
    )
    expect(tree.details).to_contain_text("Reused2 of 3 calls")
    expect(tree.details).to_contain_text("420 read from the cache: 42 % of the input")
    expect(tree.details.locator("[data-fact=time]")).to_be_visible()


def test_arrow_keys_walk_fold_and_unfold(open_tree: Open) -> None:
    tree = open_tree()
    tree.item("root").click()
    press = tree.page.keyboard.press

    press("ArrowDown")
    expect(tree.item("1")).to_be_focused()
    expect(tree.item("1")).to_have_attribute("aria-selected", "true")
    expect(tree.details).to_have_attribute("data-agent-details", "1")
    press("ArrowLeft")
    expect(tree.item("1")).to_have_attribute("aria-expanded", "false")
    expect(tree.item("1.1")).to_have_count(0)
    expect(tree.item("1")).to_be_focused()
    expect(tree.item("1")).to_contain_text(" hidden: ")
    press("ArrowRight")
    press("ArrowRight")
    expect(tree.item("1.1")).to_be_focused()
    press("End")
    expect(tree.item(tree.paths()[-1])).to_be_focused()
    press("Home")
    expect(tree.item("root")).to_be_focused()
    assert tree.page.locator("[role=treeitem][tabindex='0']").count() == 1


def test_closed_branches_open_again_all_at_once(open_tree: Open) -> None:
    tree = open_tree()
    before = tree.paths()

    tree.item("1.1").click()
    tree.page.get_by_role("button", name="Collapse all branches").click()
    assert all("." not in path for path in tree.paths())
    # The selected agent is hidden, so its branch is selected.
    expect(tree.details).to_have_attribute("data-agent-details", "1")
    tree.page.get_by_role("button", name="Expand all branches").click()
    assert tree.paths() == before


def test_button_of_a_branch_closes_it_and_says_how_many_it_hides(open_tree: Open) -> None:
    tree = open_tree()
    below = sum(path.startswith("1.") for path in tree.paths())

    tree.page.get_by_role("button", name="Collapse 1", exact=True).click()

    expect(tree.item("1")).to_contain_text(f"{below} hidden: ")
    button = tree.page.get_by_role("button", name=f"Expand 1: +{below}", exact=True)
    expect(button).to_have_text(f"+{below}")


def test_collapsed_branch_shows_what_happens_inside(open_tree: Open) -> None:
    tree = open_tree()
    tree.page.get_by_role("button", name="Collapse 2", exact=True).click()
    below = [
        path for path in tree.page.evaluate("page.rows.map(row => row.path)") if path[:2] == "2."
    ]

    tree.frame(*({"path": path, "status": "failed"} for path in below))

    expect(tree.item("2")).to_contain_text(f"{len(below)} hidden: {len(below)} failed")


def test_filter_by_words_shows_matches_and_those_above_them(open_tree: Open) -> None:
    tree = open_tree()
    search = tree.page.get_by_role("searchbox")

    search.fill("1.1.2")

    expect(tree.items).to_have_count(4)
    assert tree.paths() == ["root", "1", "1.1", "1.1.2"]
    expect(tree.page.get_by_text("1 of 30 match")).to_be_visible()
    tree.page.get_by_role("button", name="Clear the filter").click()
    expect(tree.items).to_have_count(30)
    expect(search).to_be_focused()


def test_filter_by_status_follows_the_run(open_tree: Open) -> None:
    tree = open_tree("agents=30")
    failed = tree.page.evaluate("page.rows.filter(row => row.status === 'failed').length")
    chip = tree.page.get_by_role("button", name="failed")

    chip.click()
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(tree.page.get_by_text(f"{failed} of 30 match")).to_be_visible()
    tree.frame({"path": "1.1.1", "status": "failed", "error": "It broke."})

    expect(tree.page.get_by_text(f"{failed + 1} of 30 match")).to_be_visible()
    expect(tree.item("1.1.1")).to_contain_text("It broke.")


def test_filter_finds_agents_in_closed_branches_and_leaves_those_closed(open_tree: Open) -> None:
    tree = open_tree()
    tree.page.get_by_role("button", name="Collapse 1", exact=True).click()
    closed = tree.paths()

    tree.page.get_by_role("searchbox").fill("1.1.2")
    expect(tree.item("1.1.2")).to_be_visible()
    tree.page.get_by_role("searchbox").press("Escape")

    expect(tree.item("1.1.2")).to_have_count(0)
    assert tree.paths() == closed


def test_zoom_by_buttons_keys_and_wheel(open_tree: Open) -> None:
    tree = open_tree("agents=300")
    percent = tree.page.locator("[data-action=reset]")
    board = tree.page.locator(".agentnb-board")

    percent.click()
    expect(percent).to_have_text("100 %")
    tree.page.get_by_role("button", name="Zoom out").click()
    expect(percent).to_have_text("90 %")
    expect(percent).to_have_accessible_name("90 %: zoom to 100 %")
    tree.item("root").focus()
    tree.page.keyboard.press("+")
    expect(percent).to_have_text("100 %")
    board.hover()
    tree.page.keyboard.down("Control")
    tree.page.mouse.wheel(0, 60)
    tree.page.keyboard.up("Control")
    expect(percent).not_to_have_text("100 %")
    tree.item("root").focus()
    tree.page.keyboard.press("0")
    expect(percent).to_have_text("100 %")


FITS = "one => one.scrollHeight <= one.clientHeight && one.scrollWidth <= one.clientWidth"
FONT = "one => parseFloat(getComputedStyle(one).fontSize)"


@pytest.mark.parametrize(("agents", "width"), [(6, 1280), (6, 500), (30, 1280)])
def test_tree_fits_whole_by_itself(open_tree: Open, agents: int, width: int) -> None:
    tree = open_tree(f"agents={agents}", width=width)

    assert tree.page.locator(".agentnb-board").evaluate(FITS)
    assert tree.item("root").evaluate(FONT) >= 10


def test_fit_follows_growth_and_size_until_a_person_zooms_and_comes_back_when_asked(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=4")
    page, board = tree.page, tree.page.locator(".agentnb-board")
    fit = page.get_by_role("button", name="Fit the tree")
    percent, body = page.locator("[data-action=reset]"), page.locator(".agentnb-body")
    expect(percent).to_have_text("100 %")
    expect(fit).to_have_attribute("aria-pressed", "true")
    small = body.evaluate("one => one.offsetHeight")

    # Text changes no size, new agents do: first the pane grows, then the tree gets smaller.
    tree.frame({"path": "1", "task": "Many words. " * 50, "doing": "more words"})
    tree.frame(*(new_agent(f"1.{number}") for number in range(10, 22)), seq=3)
    expect(tree.item("1.21")).to_be_visible()
    tree.painted()
    assert board.evaluate(FITS)
    assert body.evaluate("one => one.offsetHeight") > small
    expect(percent).not_to_have_text("100 %")
    page.set_viewport_size({"width": 500, "height": 800})
    page.wait_for_function("document.querySelector('.agentnb-board').clientWidth < 500")
    tree.painted()
    assert board.evaluate("one => one.scrollWidth <= one.clientWidth")

    tree.item("root").focus()
    page.keyboard.press("0")
    expect(fit).to_have_attribute("aria-pressed", "false")
    tree.frame(*(new_agent(f"1.{number}") for number in range(30, 36)), seq=4)
    expect(tree.item("1.35")).to_have_count(1)
    page.set_viewport_size({"width": 1280, "height": 800})
    tree.painted()
    expect(percent).to_have_text("100 %")
    tree.item("root").focus()
    page.keyboard.press("f")
    expect(fit).to_have_attribute("aria-pressed", "true")
    assert board.evaluate(FITS)


def test_details_are_below_the_tree_in_a_narrow_cell(open_tree: Open) -> None:
    tree = open_tree("agents=6")
    page, board = tree.page, tree.page.locator(".agentnb-board")

    beside = [board.bounding_box(), tree.details.bounding_box()]
    page.locator("#view").evaluate(
        "one => { one.style.width = '500px' }"
    )  # the width of the cell, not of the window
    tree.painted()
    below = [board.bounding_box(), tree.details.bounding_box()]

    assert beside[1]["x"] > beside[0]["x"] + beside[0]["width"]  # type: ignore[index]
    assert below[1]["y"] >= below[0]["y"] + below[0]["height"]  # type: ignore[index]
    assert board.evaluate(FITS)


def test_pane_of_a_run_that_has_ended_is_as_high_as_its_tree(open_tree: Open) -> None:
    tree = open_tree("agents=6", width=1280)
    body = tree.page.locator(".agentnb-body")
    expect(tree.items).to_have_count(6)
    while_it_runs = body.evaluate("one => one.offsetHeight")
    rows = [row["path"] for row in tree.page.evaluate("page.rows")]

    tree.frame(*({"path": path, "status": "completed"} for path in rows), done=True)
    tree.painted()

    assert body.evaluate("one => one.offsetHeight") <= while_it_runs
    assert tree.page.locator(".agentnb-tree-view").evaluate("one => one.offsetHeight") <= 340


def test_free_space_can_be_dragged(open_tree: Open) -> None:
    tree = open_tree("agents=300")
    box = tree.page.locator(".agentnb-board").bounding_box()
    assert box is not None
    x, y = box["x"] + 60, box["y"] + box["height"] - 60

    tree.page.mouse.move(x, y)
    tree.page.mouse.down()
    tree.page.mouse.move(x, y - 200, steps=4)
    tree.page.mouse.up()

    assert tree.page.locator(".agentnb-board").evaluate("one => one.scrollTop") == 200


def test_growth_above_does_not_move_what_is_looked_at(open_tree: Open) -> None:
    tree = open_tree("agents=300")
    tree.page.locator("[data-action=reset]").click()
    tree.item("3.1").click()
    before = tree.item("3.1").bounding_box()

    tree.frame(*(new_agent(f"1.1.{number}") for number in range(50, 60)))
    expect(tree.item("1.1.59")).to_have_count(1)

    assert tree.item("3.1").bounding_box() == before


def test_new_agents_are_in_the_order_of_their_numbers(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.frame(new_agent("10"), new_agent("2"), new_agent("9"))

    expect(tree.item("10")).to_be_visible()
    paths = tree.paths()
    assert [path for path in paths if path in {"2", "9", "10"}] == ["2", "9", "10"]


def test_missing_frame_is_asked_for_and_nothing_wrong_is_shown(open_tree: Open) -> None:
    tree = open_tree()

    tree.frame({"path": "1", "task": "from a frame too late"}, seq=3)
    assert tree.sent("resend") == [{"type": "resend"}]
    tree.painted()
    expect(tree.item("1")).not_to_contain_text("too late")
    rows = tree.page.evaluate("page.rows.map(row => ({...row, task: 'whole again'}))")
    tree.frame(*rows, seq=4, base=None)

    expect(tree.item("1")).to_contain_text("whole again")


def test_waits_are_shown_with_the_seconds_that_are_left(open_tree: Open) -> None:
    tree = open_tree()

    tree.frame({"path": "1", "status": "waiting", "doing": "rate limit", "until": 100.0}, done=True)

    expect(tree.item("1")).to_contain_text("rate limit, 39 s left")


def test_times_go_on_by_themselves(open_tree: Open, let_pass: LetPass) -> None:
    tree = open_tree("agents=3")
    time = tree.item("root").locator(".agentnb-node-time")

    before = time.text_content()

    let_pass(2_000)
    expect(time).not_to_have_text(str(before))


def test_stalled_agent_is_marked_by_more_than_colour(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.frame({"path": "1", "stalled": True, "status": "running", "doing": "no text for 30 s"})

    expect(tree.item("1")).to_have_attribute("data-stalled", "true")
    expect(tree.item("1")).to_contain_text("no text for 30 s")
    assert tree.item("1").evaluate("one => getComputedStyle(one).borderTopStyle") == "dashed"


def test_cancel_button_is_there_while_the_agent_can_be_cancelled(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.frame({"path": "1", "status": "running", "ended": None})
    tree.item("1").click()
    cancel = tree.page.get_by_role("button", name="Cancel agent")

    cancel.click()
    assert tree.sent("cancel") == [{"type": "cancel", "agent": "1"}]
    expect(cancel).to_be_disabled()
    tree.tell({"type": "notices", "lines": ["There is no agent '1' to cancel."]})
    expect(cancel).to_be_enabled()
    expect(tree.page.get_by_text("There is no agent '1' to cancel.")).to_be_visible()
    tree.frame({"path": "1", "status": "cancelled", "ended": 61.0}, seq=3)
    expect(cancel).to_be_hidden()


def test_loaded_run_has_nothing_to_cancel(open_tree: Open) -> None:
    tree = open_tree("agents=3&loaded")

    expect(tree.page.get_by_role("button", name="Cancel agent")).to_be_hidden()


def test_text_goes_on_below_the_reader_who_scrolled_up_and_follows_the_one_at_the_end(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=3")
    box = tree.page.get_by_role("group", name="Text of call 2 of agent root")
    expect(box).to_contain_text("Line 12 of root")
    look = {"type": "details", "view": tree.sent("hello")[0]["view"], "reset": False}
    first = tree.page.evaluate("page.looks()") + 1

    tree.tell({**look, "n": first, "add": "\nmore" * 50})
    expect(box).to_contain_text("more")
    at_end = "one => one.scrollTop + one.clientHeight >= one.scrollHeight - 1"
    assert box.evaluate(at_end)
    box.evaluate("one => { one.scrollTop = 30 }")
    tree.tell({**look, "n": first + 1, "add": "\nthe last line"})

    expect(box).to_contain_text("the last line")
    assert box.evaluate("one => one.scrollTop") == 30


def test_missed_part_of_a_text_is_asked_for(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    box = tree.page.get_by_role("group", name="Text of call 2 of agent root")
    expect(box).to_contain_text("Line 12 of root")
    asked = len(tree.sent("details"))
    view = tree.sent("hello")[0]["view"]

    torn = [
        {"type": "details", "view": view, "n": n, "reset": False, "add": "torn"} for n in (90, 91)
    ]
    tree.page.evaluate("torn => torn.forEach(page.model.tell)", torn)

    assert len(tree.sent("details")) == asked + 1
    tree.painted()
    expect(box).not_to_contain_text("torn")


def test_megabyte_of_text_is_shown_from_its_end_and_whole_on_request(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    view = tree.sent("hello")[0]["view"]
    whole = {"type": "details", "view": view, "n": 0, "reset": True, "agent": "root", "at": None}
    text = "the beginning\n" + "x" * 500_000 + "\n" + "words and words\n" * 40_000 + "the end"

    tree.tell({**whole, "task": "T", "calls": [], "call": None, "text": text})

    box = tree.page.get_by_role("group", name="Text")
    expect(box).to_contain_text("the end")
    expect(box).not_to_contain_text("the beginning")
    tree.page.get_by_role("button", name="Show all of 1.1 MB").click()
    expect(box).to_contain_text("the beginning")


def test_run_that_has_not_begun_is_shown_when_it_does(open_tree: Open) -> None:
    tree = open_tree("agents=0")
    expect(tree.page.get_by_role("tree")).to_have_attribute("aria-busy", "true")

    tree.frame(new_agent("root", parent=None, depth=0, task="What shall we do?"))

    expect(tree.item("root")).to_be_visible()
    expect(tree.details).to_have_attribute("data-agent-details", "root")
    expect(tree.details).to_contain_text("What shall we do?")
    assert tree.page.get_by_role("tree").get_attribute("aria-busy") is None
    expect(tree.page.get_by_text("The kernel is gone:")).to_have_count(0)


def test_details_that_come_before_the_first_paint_stay(open_tree: Open) -> None:
    tree = open_tree("agents=3&early&done")
    view = tree.sent("hello")[0]["view"]
    look = {"type": "details", "view": view, "n": 0, "reset": True, "agent": "root", "at": None}
    look |= {"task": "T", "calls": [], "call": 1, "text": "It is done.", "tools": []}
    look |= {"prompt": {"system": "", "messages": [{"role": "user", "text": "Do it."}]}}

    tree.page.evaluate("look => { page.model.tell(page.frame()); page.model.tell(look); }", look)
    tree.painted()

    expect(tree.details).to_have_attribute("data-agent-details", "root")
    expect(tree.details.get_by_text("Prompt as sent")).to_be_visible()
    expect(tree.details).to_contain_text("It is done.")


def test_news_of_the_agent_before_do_not_show_at_the_next_one(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    expect(tree.details).to_contain_text("Line 12 of root")
    view, n = tree.sent("hello")[0]["view"], tree.page.evaluate("page.looks()")
    late = {"type": "details", "view": view, "n": n + 1, "reset": False, "cost": "of another"}
    whole = {**late, "n": 0, "reset": True, "agent": "root", "at": None}

    tree.page.evaluate(
        """late => {
            page.model.answer = () => {};
            document.querySelector("[data-agent-path='1']").click();
            late.forEach(page.model.tell);
        }""",
        [late, whole],
    )
    tree.painted()

    expect(tree.details).to_have_attribute("data-agent-details", "1")
    expect(tree.details).not_to_contain_text("of another")


def test_agent_that_had_not_begun_is_not_there_in_a_replay(open_tree: Open) -> None:
    tree = open_tree("agents=12&done")
    tree.item("1").click()

    tree.page.get_by_role("slider", name="Time of the replay").fill("0")

    expect(tree.item("1")).to_have_count(0)
    expect(tree.details).to_contain_text("not available yet")


def test_prompt_is_shown_as_it_was_sent(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.page.get_by_text("Prompt as sent").click()

    system = tree.page.get_by_role("group", name="Message of system")
    expect(system).to_have_text("<soul>\nCareful.\n</soul>\n<task>\nCompare.\n</task>")
    expect(tree.page.get_by_role("group", name="Message of user")).to_contain_text("Answer it")


def test_one_call_of_several_can_be_chosen_and_the_newest_followed_again(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    choice = tree.page.get_by_role("combobox", name="Call to the model")

    choice.select_option(label="Call 1 · done")
    expect(tree.page.get_by_text("Text of call 1")).to_be_visible()
    assert tree.sent("details")[-1]["call"] == 1
    choice.select_option(index=0)
    expect(tree.page.get_by_text("Text of call 2")).to_be_visible()
    assert tree.sent("details")[-1]["call"] is None


def test_replay_shows_the_tree_as_it_was_and_the_end_leaves_it(open_tree: Open) -> None:
    tree = open_tree("agents=30&done")
    slider = tree.page.get_by_role("slider", name="Time of the replay")
    expect(slider).to_be_visible()
    place = tree.item("1").bounding_box()

    slider.focus()
    tree.page.keyboard.press("Home")
    expect(tree.items).to_have_count(1)
    expect(tree.item("root")).to_have_attribute("data-status", "running")
    slider.fill("50")
    expect(tree.item("1")).to_have_attribute("data-status", "running")
    assert tree.item("1").bounding_box() == place
    slider.focus()
    tree.page.keyboard.press("End")

    expect(tree.items).to_have_count(30)
    expect(tree.item("root")).to_have_attribute("data-status", "completed")


def test_replay_plays_automatically_and_steps_from_change_to_change(open_tree: Open) -> None:
    tree = open_tree("agents=12&done")
    page = tree.page

    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(tree.items).not_to_have_count(30)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("slider", name="Time of the replay").fill("0")
    page.get_by_role("button", name="Next change").click()

    expect(page.get_by_text("2 s of 1 min")).to_be_visible()
    assert tree.sent("details")[-1]["at"] == 2


HOSTILE = (
    "<img src=x onerror=\"window.harmed='img'\"><script>window.harmed='script'</script>"
    "<style>*{display:none}</style><svg onload=\"window.harmed='svg'\">"
    '" onclick="window.harmed=\'quote\'" \u05d0\u05d1\u05d2 ' + "W" * 20_000
)


def hostile_call(n: int, status: str) -> dict[str, Any]:
    """A tool call with markup or a script in each text."""
    line = {"n": n, "status": status, "begun": 3, "duration_ms": None}
    return line | dict.fromkeys(("name", "said", "input", "result"), HOSTILE)


def test_text_of_a_model_is_text_everywhere(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    view = tree.sent("hello")[0]["view"]
    before = len(tree.requests)
    width = tree.page.evaluate("document.documentElement.scrollWidth")
    fields = {"task": HOSTILE, "error": HOSTILE, "doing": HOSTILE, "model": HOSTILE}

    tree.frame(
        {"path": "root", **fields}, new_agent(f"7{HOSTILE[:90]}", task=HOSTILE, status=HOSTILE)
    )
    call = {"n": 1, "status": HOSTILE, "error": HOSTILE, "model": HOSTILE, "stop_reason": HOSTILE}
    prompt = {"system": HOSTILE, "messages": [{"role": HOSTILE, "text": HOSTILE}]}
    look = {"type": "details", "view": view, "n": 0, "reset": True, "agent": "root", "at": None}
    look |= {**fields, "text": HOSTILE, "result": HOSTILE, "notes": [HOSTILE], "cost": HOSTILE}
    look |= {"job": HOSTILE, "profile": HOSTILE, "tools": [hostile_call(1, HOSTILE)]}
    look["tools"].append(hostile_call(2, "open"))
    open_tool = {"name": HOSTILE, "said": HOSTILE, "since": 3}
    tree.frame({"path": "1", "tool": open_tool, "tool_calls": 1, "doing": HOSTILE}, seq=3)
    tree.tell({**look, "calls": [call], "call": 1, "prompt": prompt})
    tree.tell({"type": "notices", "lines": [HOSTILE]})
    tree.page.get_by_text("Prompt as sent").click()
    expect(tree.item("1").locator(".agentnb-node-tool")).to_contain_text("<img src=x onerror")
    tree.page.get_by_role("searchbox").fill(HOSTILE[:60])
    tree.painted()

    for button in tree.page.get_by_role("button", name="Show all of it").all()[::-1]:
        button.click()
    tree.painted()

    expect(tree.item("root")).to_contain_text("<img src=x onerror")
    expect(tree.page.get_by_role("group", name="Tool calls")).to_contain_text("W" * 20_000)
    assert tree.page.evaluate("window.harmed") is None
    made = (
        ".agentnb-tree-view :is(img, script, style, iframe, object, [onclick], [onload], [onerror])"
    )
    assert tree.page.locator(made).count() == 0
    assert tree.requests[before:] == []
    assert tree.page.evaluate("document.documentElement.scrollWidth") == width


BUT_ITS_TIME = """card => {
    const still = card.cloneNode(true);
    still.querySelector(".agentnb-node-time").remove();
    return still.textContent;
}"""


def test_odd_messages_change_nothing_and_raise_nothing(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    text = tree.item("root").evaluate(BUT_ITS_TIME)
    odd: list[Any] = [None, 4, "frame", {}, {"type": "frame"}, {"type": "unheard-of"}]
    odd += [{"type": "details", "view": "another", "n": 1, "reset": True, "agent": "root"}]
    odd += [{"type": "replay", "view": tree.sent("hello")[0]["view"], "at": 3}]

    for message in odd:
        tree.tell(message)
    tree.frame({"path": "1", "status": "unheard-of", "tokens": None, "begun": None})

    expect(tree.item("1")).to_have_attribute("data-status", "unheard-of")
    assert tree.item("root").evaluate(BUT_ITS_TIME) == text


def test_lost_kernel_is_shown_and_gets_no_more_messages(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.page.evaluate("page.model.close()")

    expect(tree.page.get_by_text("The kernel is gone:")).to_be_visible()
    asked = len(tree.page.evaluate("page.model.sent"))
    tree.item("1").click()
    assert len(tree.page.evaluate("page.model.sent")) == asked


def test_tree_without_a_panel_says_since_when_its_kernel_is_lost(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.page.evaluate("document.querySelector('main').classList.remove('agentnb-panel')")

    tree.page.evaluate("page.model.close()")

    notice = tree.page.locator(".agentnb-notice")
    expect(notice).to_contain_text(re.compile(r"kernel is gone: .* not live: as of \d\d:\d\d"))


def test_page_without_a_kernel_says_so_stands_still_and_wakes_up_by_a_word(
    open_tree: Open, let_pass: LetPass
) -> None:
    tree = open_tree("agents=3&alone")
    text = tree.item("root").inner_text()
    notice = tree.page.locator(".agentnb-notice")
    view = tree.page.locator(".agentnb-tree-view")
    expect(view).not_to_have_class(re.compile("agentnb-is-live"))
    steering = [
        tree.page.get_by_role("button", name=f"{name} agent") for name in ("Cancel", "Pause")
    ]
    assert [each.count() for each in steering] == [0, 0], "while it waits for an answer"

    let_pass(SILENCE_MS)
    expect(notice).to_contain_text("No kernel answers", timeout=14_000)

    expect(notice).to_contain_text(re.compile(r"not live: as of \d\d:\d\d"))
    tree.item("1").click()
    expect(tree.details).to_contain_text("an agent's text is not saved in the page")
    expect(tree.details.locator(".agentnb-text")).to_be_hidden()
    for name in ("Cancel agent", "Pause agent", "Send"):
        expect(tree.page.get_by_role("button", name=name)).to_have_count(0)
    let_pass(3_000)
    assert tree.item("root").inner_text() == text, "no clock goes on"

    before = len(tree.sent("details"))
    tree.tell({"type": "notices", "lines": []})
    expect(notice).to_be_empty()
    expect(view).to_have_class(re.compile("agentnb-is-live"))
    assert len(tree.sent("details")) == before + 1, "now its text is asked for"


def test_ended_run_without_a_kernel_offers_no_replay(open_tree: Open, let_pass: LetPass) -> None:
    tree = open_tree("agents=3&alone&done")
    play = tree.page.get_by_role("button", name="Play")
    expect(tree.item("root")).to_be_visible()
    assert play.count() == 0, "not while it waits for an answer, either"

    let_pass(SILENCE_MS)
    expect(tree.page.locator(".agentnb-notice")).to_contain_text(
        "No kernel answers: this is the run as the page was saved.", timeout=14_000
    )
    expect(play).to_have_count(0)
    expect(tree.page.get_by_text("not live")).to_have_count(0)

    tree.tell({"type": "notices", "lines": []})
    expect(play).to_be_visible()


@pytest.mark.parametrize(
    ("query", "kind", "is_hidden"),
    [
        ("agents=3&done", "agentnb-open", True),
        ("agents=3&done", "", False),
        ("agents=3", "agentnb-open", False),
    ],
)
def test_words_that_say_running_do_not_contradict_a_view_that_knows_the_end(
    open_tree: Open, query: str, kind: str, is_hidden: bool
) -> None:
    tree = open_tree(query)
    tree.page.add_style_tag(path=STATIC / "cell.css")
    tree.page.evaluate(
        """kind => {
          const view = document.getElementById("view");
          view.className = "jp-OutputArea-child";
          const output = document.createElement("div");
          output.className = "jp-OutputArea-child";
          output.innerHTML = `<div class="agentnb-beside ${kind}">in words</div>`;
          view.after(output);
        }""",
        kind,
    )
    words = tree.page.get_by_text("in words")
    expect(words).to_be_hidden()  # as beside any view that is alive

    tree.page.evaluate("page.model.close()")

    expect(tree.page.locator(".agentnb-tree-view")).to_have_class(re.compile("stands-still"))
    assert words.is_hidden() == is_hidden


def test_kernel_that_goes_after_the_run_takes_the_replay_and_leaves_the_text(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=12&done")
    tree.item("1").click()
    text = tree.details.locator(".agentnb-text")
    expect(text).to_contain_text("Line 1")
    said = text.inner_text()
    tree.page.evaluate("page.model.answer = () => {}")
    tree.page.get_by_role("button", name="Play").click()
    tree.page.evaluate("page.model.close()")

    expect(tree.page.locator(".agentnb-notice")).to_contain_text("the replay with it")
    expect(tree.page.get_by_role("button", name="Play")).to_have_count(0)
    assert text.inner_text() == said
    expect(tree.details).not_to_contain_text("not saved")
    tree.item("root").click()
    expect(tree.details).to_contain_text("an agent's text is not saved in the page")
    expect(text).to_be_hidden()


def test_controls_beside_a_view_without_a_kernel_are_not_there(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.page.evaluate(
        """() => {
          const view = document.getElementById("view");
          view.className = "widget-box";
          for (const name of ["cancel-run", "pause-run", "budget-slider"]) {
            const control = document.createElement("button");
            control.className = `agentnb-control agentnb-${name}`;
            control.style.visibility = "hidden"; // as its model has it
            control.textContent = name;
            view.append(control);
          }
        }"""
    )
    controls = tree.page.locator("#view > button")
    assert controls.all_inner_texts() == ["cancel-run", "pause-run", "budget-slider"]
    for control in controls.all():
        expect(control).to_be_visible()

    tree.page.evaluate("page.model.close()")

    for control in controls.all():
        expect(control).to_be_hidden()


def test_view_in_another_box_takes_its_own_controls_away_and_no_others(open_tree: Open) -> None:
    """Two panels in one box: the first is closed, and the second lives on."""
    tree = open_tree("agents=3")
    seen = tree.page.evaluate(
        """async () => {
          const widget = (await import("/agentnb/views/static/panel.js")).default;
          const { fakeModel } = await import("/tests/js/page/fake_model.js");
          const { madeUpFrame } = await import("/tests/js/page/made_up.js");
          const box = document.createElement("div");
          box.className = "widget-box";
          document.body.append(box);
          const panels = [1, 2].map(() => {
            const model = fakeModel({ snapshot: madeUpFrame(3) });
            const element = document.createElement("div");
            element.className = "widget-box agentnb-panel";
            const button = document.createElement("button");
            button.className = "agentnb-control agentnb-cancel-run";
            button.style.visibility = "hidden"; // as its model has it
            element.append(button);
            box.append(element);
            const made = widget();
            made.initialize({ model: model.proxy() });
            const close = made.render({ model: model.proxy(), el: element });
            model.tell(madeUpFrame(3));
            return { model, button, close };
          });
          const painted = () =>
            new Promise((next) => setTimeout(() => requestAnimationFrame(next)));
          const isShown = ({ button }) => button.checkVisibility({ checkVisibilityCSS: true });
          const shown = () => panels.map(isShown);
          await painted();
          const all = [shown()];
          panels[0].model.close();
          await painted();
          all.push(shown());
          panels[0].close();
          await painted();
          all.push(shown()[1]);
          return all;
        }"""
    )
    assert seen == [[True, True], [False, True], True]


def test_time_since_which_a_view_is_not_live_stays(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.page.evaluate(
        """() => {
          const view = document.getElementById("view");
          view.className = "agentnb-panel";
          view.insertAdjacentHTML("afterbegin", '<p class="agentnb-run-status">running</p>');
        }"""
    )
    tree.page.clock.set_fixed_time("2026-11-29T12:00:00")
    tree.frame()  # the kernel's last word
    tree.page.set_viewport_size({"width": 900, "height": 700})
    tree.page.evaluate("page.model.close()")
    status = tree.page.locator(".agentnb-run-status")
    expect(status).to_have_text("running (not live: as of 12:00)")

    tree.page.clock.set_fixed_time("2026-11-29T15:00:00")
    tree.page.set_viewport_size({"width": 800, "height": 700})
    tree.painted()

    expect(status).to_have_text("running (not live: as of 12:00)")


def test_calls_of_an_agent_cannot_be_chosen_without_a_kernel(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.item("1").click()
    calls = tree.page.get_by_role("combobox", name="Call to the model")
    expect(calls).to_be_enabled()

    tree.page.evaluate("page.model.close()")

    expect(calls).to_be_disabled()


def test_page_of_slides_shows_no_heading_of_questions_that_nobody_asked(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.page.add_style_tag(content="section { display: block !important; }")  # as reveal.js does

    expect(tree.item("root")).to_be_visible()
    expect(tree.page.get_by_text("No more questions")).to_be_hidden()


IN_A_CELL = """() => {
  const outputs = ["agentnb-repeats-live-view", "agentnb-repeats-board"].map((name) => {
    const output = document.createElement("div");
    output.className = "jp-OutputArea-child";
    output.innerHTML = `<div class="${name}">the truth</div>`;
    return output;
  });
  const view = document.getElementById("view");
  view.className = "jp-OutputArea-child";
  view.after(...outputs);
}"""
"""Puts the view before outputs that repeat one, as JupyterLab and nbconvert do."""


def test_outline_is_hidden_only_while_a_kernel_answers_the_view(open_tree: Open) -> None:
    tree = open_tree("agents=3&alone")
    tree.page.evaluate(IN_A_CELL)
    tree.page.add_style_tag(path=STATIC / "cell.css")
    outline = tree.page.locator(".agentnb-repeats-live-view")
    expect(tree.item("root")).to_be_visible()
    assert outline.is_visible(), "while it waits for an answer"

    tree.tell({"type": "notices", "lines": []})
    expect(outline).to_be_hidden()

    tree.page.evaluate("page.model.close()")
    expect(outline).to_be_visible()


def test_closed_view_leaves_nothing_behind(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    before = tree.page.evaluate("page.model.listening()")

    tree.second()
    assert tree.page.evaluate("page.model.listening()") > before
    expect(tree.items).to_have_count(6)
    tree.page.evaluate("() => page.second()")

    expect(tree.items).to_have_count(3)
    assert tree.page.evaluate("page.model.listening()") == before
    second = tree.sent("hello")[1]["view"]
    assert tree.sent("bye") == [{"type": "bye", "view": second}]


def test_two_views_of_one_model_look_at_different_agents(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.second()
    expect(tree.items).to_have_count(6)

    tree.item("1").nth(1).click()

    expect(tree.details.nth(0)).to_have_attribute("data-agent-details", "root")
    expect(tree.details.nth(1)).to_have_attribute("data-agent-details", "1")
    expect(tree.details.nth(1)).to_contain_text("Line 1 of 1:")


def test_handle_of_a_slider_made_later_gets_its_name(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.page.evaluate(
        """() => {
            const handle = document.createElement("div");
            handle.className = "noUi-handle";
            handle.setAttribute("role", "slider");
            document.getElementById("slider").append(handle);
        }"""
    )

    expect(tree.page.get_by_role("slider", name="Budget in tokens")).to_have_count(1)


def test_handle_of_a_budget_in_dollars_has_its_value_in_dollars_at_every_position(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=3")
    tree.page.evaluate(
        """() => {
            const handle = document.createElement("div");
            handle.className = "noUi-handle";
            handle.setAttribute("role", "slider");
            window.goTo = (value) => {  // as noUiSlider does
                handle.setAttribute("aria-valuenow", value);
                handle.setAttribute("aria-valuetext", value);
            };
            goTo("4000000.0");
            const slider = document.getElementById("slider");
            slider.className = "agentnb-budget-slider agentnb-in-dollars";
            slider.append(handle);
        }"""
    )
    handle = tree.page.get_by_role("slider", name="Budget in dollars")

    expect(handle).to_have_attribute("aria-valuetext", "$4.00")
    tree.page.evaluate("goTo('50000.0')")
    expect(handle).to_have_attribute("aria-valuetext", "$0.05")


def test_end_of_agents_and_run_is_announced_to_a_screen_reader(
    open_tree: Open, let_pass: LetPass
) -> None:
    tree = open_tree("agents=3")
    tree.frame({"path": "1", "status": "running"})

    tree.frame({"path": "1", "status": "failed"}, seq=3)
    tree.frame({"path": "root", "status": "completed"}, seq=4, done=True, status="completed")

    let_pass(5_000)
    live = tree.page.locator(".agentnb-live[aria-live=polite]")
    expect(live).to_have_text("1 failed, root completed. The run has ended: completed.")


@pytest.mark.parametrize(("width", "is_seen"), [(1400, True), (360, False)])
def test_low_cards_have_the_task_beside_the_status_where_there_is_room(
    open_tree: Open, width: int, is_seen: bool
) -> None:
    tree = open_tree("agents=1", width=width)
    tree.frame(
        *[new_agent(str(n), task="count the birds", status="completed") for n in range(1, 31)]
    )
    card = tree.item("30")
    expect(tree.page.locator(".agentnb-stage")).to_have_attribute("data-lines", "1")

    box = card.locator(".agentnb-node-task").bounding_box()
    assert box is not None
    assert (box["width"] > 60) is is_seen
    status = card.locator(".agentnb-node-status")
    assert status.evaluate("one => one.scrollWidth <= one.clientWidth")
    expect(card).to_have_accessible_name("30 completed count the birds")


def test_forced_colours_tell_apart_what_is_selected_pressed_and_used(open_tree: Open) -> None:
    tree = open_tree("agents=6")
    tree.page.emulate_media(forced_colors="active")
    tree.item("1").click()
    tree.page.evaluate(
        """markup => { document.getElementById("slider").innerHTML = markup; }""",
        bar_markup(40_000, 50_000),
    )
    ground = "one => getComputedStyle(one).backgroundColor"
    line = "one => getComputedStyle(one).stroke"

    assert tree.item("1").evaluate(ground) != tree.item("2").evaluate(ground)
    fit, other = (tree.page.get_by_role("button", name=name) for name in ("Fit the", "Zoom in"))
    assert fit.evaluate(ground) != other.evaluate(ground)
    bar = tree.page.get_by_role("progressbar")
    assert bar.locator("div").evaluate(ground) != bar.evaluate(ground)
    text = tree.item("2").evaluate("one => getComputedStyle(one).color")
    assert tree.page.locator(".agentnb-lines-path").evaluate(line) == text
    tree.item("1").press("ArrowDown")
    focused = tree.page.locator("[role=treeitem]:focus")
    assert focused.evaluate("one => getComputedStyle(one).outlineWidth") == "3px"


def test_tree_can_be_read_in_a_dark_theme_of_vs_code_which_shows_widgets_on_white(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=6")
    tree.page.evaluate("delete document.body.dataset.jpThemeLight")
    tree.page.evaluate("document.body.className = 'vscode-dark'")
    tree.item("1").click()

    assert findings(tree.page, ".agentnb-tree-view") == []


@pytest.mark.parametrize("width", [480, 1400])
def test_page_is_never_wider_than_its_window(open_tree: Open, width: int) -> None:
    tree = open_tree("agents=300&done", width=width)

    assert tree.page.evaluate("document.documentElement.scrollWidth") <= width
