"""Tool calls in the tree and in the details, in a page without a kernel."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.chromium import LetPass
from tests.browser.tree_page import Open, TreePage
from tests.files_of import png

AT_WORK: dict[str, Any] = {
    "path": "root",
    "doing": "tool look_up and 2 more",
    "tool": {"name": "look_up and 2 more", "said": "", "since": 49.0},
    "tool_calls": 3,
    "tokens": 1200,
    "estimated": False,
}
AFTERWARDS: dict[str, Any] = {"path": "root", "doing": "", "tool": None}


def line(n: int, name: str = "look_up", status: str = "done", **fields: Any) -> dict[str, Any]:
    """A tool call as the kernel sends it."""
    told = {"n": n, "name": name, "status": status, "begun": 49.0, "duration_ms": 1200, "said": ""}
    told |= {"input": '{"city": "Bonn"}', "input_cut": None, "result": "", "result_cut": None}
    return told | fields


def calls_of(tree: TreePage) -> Locator:
    return tree.details.get_by_role("list").get_by_role("listitem")


def expect_time_that_goes_on(time: Locator, let_pass: LetPass) -> None:
    """Expect the growing time of a call that began at 49 s, 60 s after the run began."""
    expect(time).to_have_text(re.compile(r"^\d+ s$"))
    first = str(time.text_content())
    assert int(first.split()[0]) >= 11
    let_pass(2_000)
    expect(time).not_to_have_text(first)


# -- on a card --------------------------------------------------------------------------------


def test_open_call_is_a_mark_with_its_name_and_a_growing_time(
    open_tree: Open, let_pass: LetPass
) -> None:
    tree = open_tree("agents=3")
    card = tree.item("root")

    tree.frame(AT_WORK)

    expect(card).to_contain_text("look_up and 2 more")
    expect(card.locator("svg.agentnb-tool-mark")).to_be_visible()
    words = card.locator(".agentnb-node-tool-words")
    assert words.evaluate("words => words.scrollWidth <= words.clientWidth")  # nothing is cut off
    expect(card.locator(".agentnb-node-tokens")).to_be_hidden()
    expect_time_that_goes_on(card.locator(".agentnb-node-tool-time"), let_pass)
    expect(card).to_have_accessible_name(re.compile(r" look_up and 2 more$"))


def test_report_is_on_the_card_and_is_not_announced_repeatedly(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.frame(AT_WORK)
    card = tree.item("root")
    expect(card).to_contain_text("look_up and 2 more")
    name = re.compile(r" look_up and 2 more$")
    expect(card).to_have_accessible_name(name)

    tree.frame({"path": "root", "tool": {**AT_WORK["tool"], "said": "3 of 9"}}, seq=3)

    expect(card).to_contain_text("look_up and 2 more: 3 of 9")
    expect(card).to_have_accessible_name(name)


def test_afterwards_the_card_counts_calls_and_errors(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    card = tree.item("root")
    tree.frame(AT_WORK)
    expect(card).to_contain_text("look_up")

    tree.frame({**AFTERWARDS, "tool_errors": 1, "status": "completed", "ended": 60.0}, seq=3)

    expect(card).to_contain_text("3 calls, 1 error")
    expect(card).not_to_contain_text("look_up")
    expect(card.locator(".agentnb-node-tool-time")).to_have_text("")
    expect(card.locator(".agentnb-node-tokens")).to_be_visible()
    expect(card).to_have_accessible_name(re.compile(r" 3 calls, 1 error \S+ tok$"))


def test_words_of_many_calls_stay_on_the_card_and_give_way_last(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    many = {**AFTERWARDS, "tool_calls": 125, "tool_errors": 125, "tokens": 123_400}

    card = tree.item("root")
    foot = card.locator(".agentnb-node-foot")
    for seq, error in enumerate(["", "The model is overloaded, says the provider."], start=2):
        tree.frame({**many, "status": "failed", "ended": 60.0, "error": error}, seq=seq)
        tree.painted()
        assert foot.evaluate("foot => foot.scrollWidth <= foot.clientWidth")
        expect(card).to_contain_text("123k tok")
    words = foot.locator(".agentnb-node-tool-words")
    expect(words).to_have_text("125")
    assert words.evaluate("words => words.scrollWidth <= words.clientWidth")


def test_card_without_a_call_has_no_mark(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.frame({"path": "root", "tool": None, "tool_calls": 0, "tool_errors": 0})
    tree.painted()

    expect(tree.page.locator(".agentnb-tool-mark")).to_have_count(0)


def test_card_does_not_grow_or_move_with_its_calls(open_tree: Open) -> None:
    tree = open_tree("agents=12")
    boxes = [tree.item(path).bounding_box() for path in ("root", "1")]
    parts = (".agentnb-node-task", ".agentnb-node-foot")
    rows = [tree.item("root").locator(part).bounding_box() for part in parts]

    for seq, fields in enumerate([AT_WORK, {**AFTERWARDS, "tool_errors": 2}, AT_WORK], start=2):
        tree.frame(fields, seq=seq)
        tree.painted()
        assert [tree.item(path).bounding_box() for path in ("root", "1")] == boxes
        now = [tree.item("root").locator(part).bounding_box() for part in parts]
        assert [box and (box["y"], box["height"]) for box in now] == [
            box and (box["y"], box["height"]) for box in rows
        ]


def test_collapsed_branch_shows_the_agents_below_and_not_its_own_calls(open_tree: Open) -> None:
    tree = open_tree("agents=12")
    tree.frame(AT_WORK)
    card = tree.item("root")
    expect(card).to_contain_text("look_up")

    tree.page.get_by_role("button", name="Collapse root", exact=True).click()

    expect(card).to_contain_text("11 hidden: ")
    expect(card).not_to_contain_text("look_up")
    expect(card.locator("svg.agentnb-tool-mark")).to_be_hidden()
    expect(card.locator(".agentnb-node-tokens")).to_be_visible()


# -- in the details ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "word", "shape"),
    [
        ("open", "at work", "running"),
        ("done", "done", "completed"),
        ("error", "error", "failed"),
        ("cancelled", "cancelled", "cancelled"),
        ("interrupted", "interrupted", "interrupted"),
    ],
)
def test_details_show_the_state_of_a_call_by_word_and_shape(
    open_tree: Open, status: str, word: str, shape: str
) -> None:
    tree = open_tree("agents=3")

    tree.looked_at(tools=[line(1, status=status, duration_ms=None)])

    head = calls_of(tree).locator(".agentnb-tool-head")
    expect(head).to_contain_text(f"look_up{word}")
    expect(head.locator("svg")).to_have_attribute("data-status", shape)


def test_details_list_calls_with_arguments_result_and_time(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.looked_at(
        tools=[line(1, result="330,000\npeople"), line(2, "find", "error", result="KeyError: 'x'")]
    )

    expect(tree.details.get_by_text("2 tool calls, 1 error")).to_be_visible()
    expect(tree.page.get_by_role("group", name="Tool calls of agent root")).to_be_visible()
    first, second = calls_of(tree).all()
    expect(first).to_contain_text('{"city": "Bonn"}')
    expect(first).to_contain_text("330,000\npeople", use_inner_text=True)
    expect(first.locator(".agentnb-tool-time")).to_have_text("1.2 s")
    expect(second).to_contain_text("KeyError: 'x'")


def test_open_call_shows_its_report_and_a_growing_time(open_tree: Open, let_pass: LetPass) -> None:
    tree = open_tree("agents=3")

    tree.looked_at(tools=[line(1, status="open", said="3 of 9", duration_ms=None)])

    (call,) = calls_of(tree).all()
    expect(call).to_contain_text("3 of 9")
    expect_time_that_goes_on(call.locator(".agentnb-tool-time"), let_pass)
    tree.look_goes_on(tools=[line(1, result="found")])
    expect(call.locator(".agentnb-tool-time")).to_have_text("1.2 s")
    expect(call).not_to_contain_text("3 of 9")


def test_new_calls_are_added_and_others_keep_their_places(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.looked_at(tools=[line(1, "one", "open"), line(2, "two", "open")])

    tree.look_goes_on(tools=[line(2, "two"), line(3, "three", "open")])

    expect(calls_of(tree)).to_have_count(3)
    names = [call.locator("strong").text_content() for call in calls_of(tree).all()]
    states = [call.get_attribute("data-tool-state") for call in calls_of(tree).all()]
    assert (names, states) == (["one", "two", "three"], ["open", "done", "open"])


def test_long_text_is_shown_whole_on_request_and_stays_so_while_others_come(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=3")
    text = "the beginning " + "x" * 900 + " the end"
    tree.looked_at(tools=[line(1, result=text)])
    (call,) = calls_of(tree).all()
    expect(call).to_contain_text("the beginning")
    expect(call).not_to_contain_text("the end")

    button = call.get_by_role("button", name="Show all of it (922 characters): Result of call 1")
    button.click()
    expect(call).to_contain_text("the end")
    tree.look_goes_on(tools=[line(2)])
    expect(calls_of(tree)).to_have_count(2)
    expect(call).to_contain_text("the end")
    tree.looked_at(tools=[line(1, result=text), line(2), line(3)])  # all details again
    expect(calls_of(tree)).to_have_count(3)
    expect(call).to_contain_text("the end")
    call.get_by_role("button", name="Show less: Result of call 1").click()
    expect(call).not_to_contain_text("the end")


def test_code_keeps_its_lines_and_takes_the_whole_width(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    code = "if True:\n    print('a')\n" + "x = 1\n" * 10 + "x"
    tree.looked_at(tools=[line(1), line(2, "python", input=code, is_code=True, result="a\n1")])
    plain, call = calls_of(tree).all()

    label, text = (
        call.locator(".agentnb-tool-label").first,
        call.locator(".agentnb-tool-text").first,
    )
    expect(label).to_have_text("Code")
    expect(plain.locator(".agentnb-tool-label").first).to_have_text("Arguments")
    assert text.inner_text() == code  # with its last line, and the blanks before the second
    left, width = (text.evaluate(f"e => e.getBoundingClientRect().{of}") for of in ("x", "width"))
    assert left == label.evaluate("e => e.getBoundingClientRect().x")
    assert width > plain.locator(".agentnb-tool-text").first.evaluate("e => e.offsetWidth")

    long = "\n".join(f"line_{n}" for n in range(40))
    tree.look_goes_on(tools=[line(3, "python", input=long, is_code=True)])
    expect(calls_of(tree).nth(2)).not_to_contain_text("line_39")
    calls_of(tree).nth(2).get_by_role("button", name="Code of call 3, python").click()
    expect(calls_of(tree).nth(2)).to_contain_text("line_39")


def test_text_that_its_event_cut_says_how_long_it_was(open_tree: Open) -> None:
    tree = open_tree("agents=3")

    tree.looked_at(tools=[line(1, result="so far", result_cut=70_000)])

    expect(calls_of(tree)).to_contain_text("The beginning of 70,000 characters.")
    expect(calls_of(tree).get_by_text("The beginning of")).to_have_count(1)


def test_details_show_the_pictures_of_a_call_and_no_other_address(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    asked = list[str]()
    tree.page.on("request", lambda request: asked.append(request.url))
    wide = base64.b64encode(png(900, 30)).decode()
    alt = 'Picture 1 of call 1, <img src=x> "draw"'
    pictures = [
        {"src": f"data:image/png;base64,{wide}", "alt": alt},
        {"src": "https://example.org/a.png", "alt": "Picture 2"},
        {"src": "data:image/svg+xml;base64,PHN2Zz4=", "alt": "Picture 3"},
    ]

    tree.looked_at(tools=[line(1, result="drawn", pictures=pictures), line(2)])

    first, second = calls_of(tree).all()
    image = first.get_by_role("img", name=alt, exact=True)
    expect(image).to_be_visible()
    assert image.evaluate("one => one.decode().then(() => one.naturalWidth)") == 900
    assert image.evaluate("one => one.clientWidth <= one.parentElement.clientWidth")
    expect(first.locator("img")).to_have_count(1)
    expect(first).to_contain_text("Picture 2: not shown here")
    expect(first).to_contain_text("Picture 3: not shown here")
    expect(second.locator("img")).to_have_count(0)
    assert [url for url in asked if not url.startswith("data:image/png")] == []
    image.evaluate("one => { one.dataset.seen = 'yes' }")
    tree.look_goes_on(tools=[line(1, result="drawn", pictures=pictures), line(2, "two")])
    expect(second).to_contain_text("two")
    expect(image).to_have_attribute("data-seen", "yes")  # not loaded again


def test_list_follows_new_calls_and_stays_where_a_reader_scrolled_to(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.looked_at(tools=[line(n) for n in range(1, 31)])
    box = tree.page.get_by_role("group", name="Tool calls of agent root")
    at_end = "one => one.scrollTop + one.clientHeight >= one.scrollHeight - 1"
    assert box.evaluate(at_end)

    tree.look_goes_on(tools=[line(31)])
    assert box.evaluate(at_end)
    drawn = base64.b64encode(png(90, 300)).decode()
    pictures = [{"src": f"data:image/png;base64,{drawn}", "alt": "a picture"}]
    tree.look_goes_on(tools=[line(32, pictures=pictures)])
    # A picture takes up room only once it has loaded.
    tree.page.wait_for_function("document.querySelector('.agentnb-tool-picture').offsetHeight > 99")
    tree.page.wait_for_function(f"({at_end})(document.querySelector('.agentnb-tools-box'))")
    box.evaluate("one => { one.scrollTop = 30 }")
    tree.look_goes_on(tools=[line(33)])

    expect(calls_of(tree)).to_have_count(33)
    assert box.evaluate("one => one.scrollTop") == 30


def test_calls_of_one_agent_are_not_shown_with_another(open_tree: Open) -> None:
    tree = open_tree("agents=3")
    tree.looked_at(tools=[line(1)], job="0a1b2c", profile="reviewer")
    expect(calls_of(tree)).to_have_count(1)
    expect(tree.details.locator("[data-fact=job]")).to_have_text("Job0a1b2c")
    expect(tree.details.locator("[data-fact=profile]")).to_have_text("Profilereviewer")

    tree.item("1").click()

    expect(calls_of(tree)).to_have_count(0)
    expect(tree.details.get_by_text("tool call")).to_have_count(0)
    expect(tree.details.locator("[data-fact=job]")).to_be_hidden()
    expect(tree.details.locator("[data-fact=profile]")).to_be_hidden()
