"""A person in the loop, in a page without a kernel: answers, pauses and notes."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import SILENCE_MS, LetPass
from tests.browser.test_everyone import findings
from tests.browser.test_hostile import HOSTILE
from tests.browser.tree_page import Open, TreePage, new_agent

PATHS = ["1", "1.1", "1.2"]


def approval(number: int, **fields: Any) -> dict[str, Any]:
    """The open question of an approval, as the kernel sends it."""
    path = PATHS[number % len(PATHS)]
    row: dict[str, Any] = {
        "id": f"q{number}",
        "kind": "approval",
        "path": path,
        "fixed": "",
        "tasks": [],
    }
    row |= {"text": f"May agent {path} call delete_file?", "options": ["approve", "deny"]}
    row |= {"tool": "delete_file", "late": "denied at 3:20 min without an answer"}
    row |= {"code": "", "values": [["path", f"/data/{number}"]]}
    return row | {"arguments": json.dumps({"path": f"/data/{number}"}, indent=2), **fields}


PLAN = approval(
    2,
    kind="plan",
    text="Agent 1.2 plans 12 agents, at most 96,000 tokens, at most $0.80.",
    options=["go", "stop", "fewer"],
    tool="",
    values=[],
    arguments="",
    tasks=[f"Compare the readings of month {month}" for month in range(1, 13)],
)
SAMPLE = approval(3, kind="sample", options=["go", "stop"], tool="", values=[], arguments="")


def focused(page: Page) -> str:
    """Roughly the name that a screen reader gives the focused element."""
    words = page.evaluate(
        "() => document.activeElement.ariaLabel ?? document.activeElement.innerText"
    )
    return " ".join(str(words).split())


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def answers(tree: TreePage) -> list[tuple[Any, ...]]:
    fields = ("question", "answer", "arguments", "number", "reason")
    return [tuple(sent[name] for name in fields) for sent in tree.sent("answer")]


def test_queue_is_answered_with_the_keyboard_alone_and_the_focus_goes_on(open_tree: Open) -> None:
    tree = open_tree("agents=12")
    page = tree.page
    tree.item("1.1").click()
    tree.frame(questions=[approval(1), PLAN, SAMPLE])
    expect(page.get_by_role("heading", name="3 questions")).to_be_visible()
    expect(tree.item("1.1")).to_be_focused()  # a new question does not take the focus
    live = page.locator("[aria-live=assertive]")
    expect(live).to_have_text(re.compile("^3 new questions. The first: Agent 1.1 asks: May agent"))

    page.locator("summary").first.focus()
    press(page, "Tab")
    assert focused(page) == "Arguments of delete_file"
    press(page, "Tab")
    assert focused(page) == "Change the arguments"
    press(page, "Enter", "Tab")
    assert focused(page) == "Arguments of delete_file as JSON"
    press(page, "Control+a")
    page.keyboard.type('{"path": ')
    press(page, "Tab")
    assert focused(page) == "Approve with changes"
    press(page, "Enter")
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    assert (focused(page), answers(tree)) == ("Arguments of delete_file as JSON", [])
    press(page, "Control+a")
    page.keyboard.type('{"path": "/b"}')
    press(page, "Tab", "Enter")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert focused(page).startswith("1.1 asks to call delete_file")  # until it is answered

    tree.frame(seq=3, questions=[PLAN, SAMPLE])
    expect(page.locator('[data-question="q1"]')).to_have_count(0)
    assert focused(page).startswith("1.2 asks to start 12 agents")
    press(page, "Tab", "Tab", "Tab", "Tab", "Tab")
    assert focused(page) == "How many agents may start"
    page.keyboard.type("0")  # 110: more than the 12 agents
    press(page, "Shift+Tab", "Enter")
    assert (focused(page), len(answers(tree))) == ("How many agents may start", 1)
    press(page, "Control+a", "5", "Shift+Tab", "Enter")
    tree.frame(seq=4, questions=[SAMPLE])
    expect(page.get_by_role("heading", name="1 question")).to_be_visible()
    press(page, "Tab", "Enter")
    tree.frame(seq=5, questions=[])
    expect(page.get_by_role("heading", name="No more questions")).to_be_focused()
    tree.item("2").click()  # nothing moves before the button is released
    expect(tree.item("2")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("heading", name="No more questions")).to_be_hidden()

    assert answers(tree) == [
        ("q1", "approve", '{"path": "/b"}', None, None),
        ("q2", "fewer", None, 5, None),
        ("q3", "go", None, None, None),
    ]


def test_question_without_a_kernel_offers_no_change_and_says_what_was_sent(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=12")
    tree.frame(questions=[approval(1), approval(2)])
    sent, other = (tree.page.locator(f'[data-question="q{n}"]') for n in (1, 2))
    sent.get_by_role("button", name="Approve").click()
    expect(other.get_by_text("Change the arguments")).to_be_visible()

    tree.page.evaluate("page.model.close()")

    expect(sent).to_contain_text("Sent; no kernel has answered.")
    expect(other).not_to_contain_text("Sent")
    for each in sent, other:
        expect(each.get_by_text("Change the arguments")).to_be_hidden()
        expect(each.get_by_role("button", name="Approve")).to_be_hidden()


def test_code_that_asks_to_run_is_read_line_by_line_and_can_be_changed(open_tree: Open) -> None:
    tree = open_tree("agents=12")
    code = "import os\nfor n in range(3):\n    print(n, '<b>')"
    asks = approval(0, tool="python", code=code, values=[], arguments="")
    tree.frame(questions=[asks, {**asks, "id": "q9", "fixed": "It hides."}])
    first, second = (tree.page.locator(f'[data-question="{id}"]') for id in ("q0", "q9"))
    field = first.get_by_role("textbox", name="Code of python")

    expect(first).to_contain_text("Code that 1 asks to run: 3 lines")
    expect(field).to_have_value(code)
    assert field.evaluate("one => getComputedStyle(one).fontFamily").endswith("monospace")
    assert field.evaluate("one => one.scrollHeight <= one.clientHeight")  # all of it is visible
    approve = first.get_by_role("button", name="Approve")
    assert (
        field.evaluate(
            "(one, other) => one.compareDocumentPosition(other)", approve.element_handle()
        )
        == 4
    )
    expect(second).to_contain_text("It hides.")
    second.get_by_role("button", name="Approve").click()
    field.fill("print(1)\n")
    first.get_by_role("button", name="Approve with changes").click()

    assert answers(tree) == [
        ("q9", "approve", None, None, None),
        ("q0", "approve", '{"code":"print(1)\\n"}', None, None),
    ]


def test_question_without_a_kernel_takes_no_answer_and_promises_no_end(
    open_tree: Open, let_pass: LetPass
) -> None:
    asked = quote(json.dumps([approval(1, code="print(1)"), PLAN]))
    tree = open_tree(f"agents=12&alone&questions={asked}")
    question = tree.page.locator(".agentnb-question")
    offered = question.locator("input, .agentnb-answer, .agentnb-question-late")
    code = question.get_by_label("Code of delete_file")
    waits = [False] * offered.count()
    assert [each.is_visible() for each in offered.all()] == waits, "not while it waits, either"

    let_pass(SILENCE_MS)
    expect(tree.page.locator(".agentnb-notice")).to_contain_text("No kernel")

    expect(code).to_be_disabled()
    assert [each.is_visible() for each in offered.all()] == waits
    tree.tell({"type": "notices", "lines": []})
    expect(code).to_be_enabled()
    assert [each.is_visible() for each in offered.all()] == [True] * len(waits)
    assert len(waits) > 6


def test_twenty_questions_are_lines_that_open_and_the_list_keeps_what_is_typed(
    open_tree: Open,
) -> None:
    tree = open_tree("agents=12")
    tree.frame(new_agent("1.2"), questions=[approval(number) for number in range(1, 21)])
    items = tree.page.locator("[data-question]")
    expect(items).to_have_count(20)
    expect(tree.page.locator("[data-question][open]")).to_have_count(2)
    expect(tree.page.locator('[data-question="q20"] summary')).to_contain_text("/data/20")
    tree.page.locator('[data-question="q20"] summary').click()
    last = tree.page.locator('[data-question="q20"]')
    last.get_by_role("textbox", name="Reason").fill("not that one")

    # One is answered elsewhere: the others stay as they are, and the next ones open.
    tree.frame(seq=3, questions=[approval(number) for number in range(11, 21)])
    expect(items).to_have_count(10)
    last.get_by_role("button", name="Deny").click()
    expect(last.get_by_role("button", name="Deny")).to_be_disabled()
    tree.tell({"type": "failed", "command": "answer", "about": "q20"})
    expect(last.get_by_role("button", name="Deny")).to_be_enabled()
    last.get_by_role("button", name="Show agent 1.2").click()

    expect(tree.item("1.2")).to_be_focused()
    assert answers(tree) == [("q20", "deny", None, None, "not that one")]
    box = tree.page.locator(".agentnb-questions-list").bounding_box()
    assert box is not None
    assert box["height"] <= 460


@pytest.mark.parametrize("query", ["agents=12", "agents=12&dark"])
def test_questions_pauses_and_hostile_text_in_both_themes(open_tree: Open, query: str) -> None:
    for width in (1400, 420):
        tree = open_tree(query, width=width)
        evils = list(HOSTILE.values())[:-2]
        evil = approval(1, text=" ".join(evils), tool=evils[0], path="1.1")
        evil["arguments"] = json.dumps(evils, indent=2)
        evil["values"] = [[each, each] for each in evils]
        tree.frame(
            new_agent("1.1", status="waiting", asks=True),
            new_agent("1.2", paused="here"),
            new_agent("2", status="waiting", paused="above"),
            questions=[evil, {**PLAN, "tasks": evils}, SAMPLE],
        )
        tree.page.locator(".agentnb-question-head").nth(2).click()
        tree.item("1.2").click()
        tree.looked_at("1.2", notes=["received a note: " + evils[1]])
        for path, words in {"1.1": "asks", "1.2": "running, paused", "2": "paused"}.items():
            expect(tree.item(path)).to_have_accessible_name(re.compile(f"^{path} {words}"))
        shapes = [
            tree.item(path).locator("path").first.get_attribute("d") for path in ("1.1", "2", "3")
        ]
        assert len({*shapes}) == 3

        foreign = tree.page.locator(".agentnb-tree-view").locator("img, script, style, iframe, a")
        expect(foreign).to_have_count(0)
        expect(tree.page.locator(".agentnb-question-text").first).to_contain_text("<script>")
        expect(tree.page.locator(".agentnb-question-values").first).to_contain_text("<script>")
        assert not [one for one in tree.requests if "outside" in one]
        assert tree.page.evaluate("document.body.scrollWidth <= innerWidth")
        assert findings(tree.page) == []


def test_agent_is_paused_gets_a_note_and_is_resumed_in_its_details(open_tree: Open) -> None:
    tree = open_tree("agents=12")
    page = tree.page
    tree.frame(new_agent("1.2"), new_agent("1.1", status="completed", ended=61.0))
    tree.item("1.2").click()
    tree.looked_at("1.2", told=0)
    tree.details.get_by_role("button", name="Pause agent").click()
    tree.frame({"path": "1.2", "paused": "here"}, seq=3)
    tree.details.get_by_role("button", name="Resume agent").click()
    field = tree.details.get_by_role("textbox", name="Say something to this agent")
    field.fill("Look at the second file")
    field.press("Shift+Enter")
    page.keyboard.type("too.")
    field.press("Enter")

    expect(field).to_have_value("")
    expect(field).to_be_focused()
    expect(tree.details).to_contain_text("The agent reads this at its next turn")
    tree.look_goes_on(told=1, notes=["received a note: Look at the second file too."])
    expect(tree.details).to_contain_text("The agent has read this")
    field.fill("And then?")
    tree.details.get_by_role("button", name="Send").click()
    tree.tell({"type": "failed", "command": "tell", "about": "1.2"})
    expect(tree.details).to_contain_text("Not sent")
    expect(field).to_have_value("And then?")
    tree.item("1.1").click()
    expect(field).to_be_disabled()
    expect(tree.details).to_contain_text("This agent has ended")

    assert [sent["agent"] for kind in ("pause", "resume") for sent in tree.sent(kind)] == [
        "1.2",
        "1.2",
    ]
    assert [sent["text"] for sent in tree.sent("tell")] == [
        "Look at the second file\ntoo.",
        "And then?",
    ]
