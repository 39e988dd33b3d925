"""The boards in a page without a kernel: accessible, inert, and smooth with many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser import axe
from tests.browser.board_page import BoardPage, a_board_page
from tests.browser.chromium import SILENCE_MS, LetPass
from tests.test_bundles import ACTING
from tests.views.test_markdown import HOSTILE

OpenBoard = Callable[..., BoardPage]
TOOL = {
    **{"n": 1, "name": "read_page", "status": "done", "begun": 1, "duration_ms": 12, "said": ""},
    **{"input": '{"page": 3}', "input_cut": None, "result": "The mains.", "result_cut": None},
}
LIVE: dict[str, Any] = {"over": False, "reset": False}


@pytest.fixture
def open_board(page_context: BrowserContext, tree_address: str) -> Iterator[OpenBoard]:
    with ExitStack() as stack:

        def opened(query: str, *, width: int = 1200) -> BoardPage:
            return stack.enter_context(a_board_page(page_context, tree_address, query, width=width))

        yield opened


def findings(board: BoardPage) -> list[str]:
    return axe.findings(board.page, ".agentnb-boards")


def stream(board: BoardPage, thread: str) -> None:
    """The agent of a thread is at work."""
    start = {**LIVE, "reset": True, "doing": "calling read_page", "text": "Half ", "tools": [TOOL]}
    board.tell("live", thread=thread, n=0, **start)
    board.tell("live", thread=thread, n=1, **LIVE, add="an answer")


@pytest.mark.parametrize(("theme", "width"), [("", 420), ("&dark", 1200)])
def test_axe_finds_nothing_in_any_state_and_nothing_is_too_wide(
    open_board: OpenBoard, theme: str, width: int
) -> None:
    threads = open_board(f"kind=threads&rows=20{theme}", width=width)
    expect(threads.log).to_contain_text("two of the three")
    stream(threads, threads.row("nb_20261123_abcdef.1")["id"])
    threads.page.get_by_text("3 tool calls, 1 error").click()
    expect(threads.log).to_contain_text("read_page")
    threads.field("Message to reviewer").fill("Hello")
    threads.field("Message to reviewer").press("Enter")
    threads.tell("done", order=1, error="The session was closed.")
    assert findings(threads) == []

    tasks = open_board(f"kind=tasks&rows=20{theme}", width=width)
    tasks.listbox.press("End")
    tasks.listbox.press("ArrowUp")
    tasks.page.get_by_text("Conversation with the agent").click()
    expect(tasks.log).to_contain_text("two of the three")
    assert findings(tasks) == []

    for board in (threads, tasks):
        board.page.evaluate("page.model.close()")
        assert findings(board) == []
        assert board.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


def test_keyboard_is_enough_to_find_read_and_write(open_board: OpenBoard) -> None:
    board = open_board("kind=threads&rows=500")
    press = board.page.keyboard.press
    expect(board.chosen).to_have_attribute("aria-posinset", "1")

    board.page.locator("body").press("Tab")
    expect(board.page.get_by_role("searchbox", name="Find an agent")).to_be_focused()
    press("Tab")
    press("Tab")
    expect(board.listbox).to_be_focused()
    for key, place in {"End": 500, "ArrowUp": 499, "Home": 1, "ArrowDown": 2}.items():
        press(key)
        expect(board.chosen).to_have_attribute("aria-posinset", str(place))
        expect(board.chosen).to_be_in_viewport()
        expect(board.chosen).to_have_attribute("aria-setsize", "500")
        active = str(board.listbox.get_attribute("aria-activedescendant"))
        expect(board.chosen).to_have_attribute("id", active)
    expect(
        board.page.get_by_role("group", name="Conversation with claude-sonnet-5-5")
    ).to_be_visible()
    assert board.sent("read")[-1]["thread"] == board.row("nb_20261123_abcdef.2")["id"]

    # An update changes neither the focus nor the choice nor the draft.
    board.change({**board.row("nb_20261123_abcdef.2"), "status": "working"})
    expect(board.listbox).to_be_focused()
    field = board.field("Message to claude-sonnet-5-5")
    press("Tab")
    expect(board.page.get_by_role("button", name="Read aloud")).to_be_focused()
    press("Enter")
    expect(board.log).to_have_attribute("aria-live", "polite")
    while not field.evaluate("field => field === document.activeElement"):
        press("Tab")
    board.page.keyboard.type("One")
    press("Shift+Enter")
    board.page.keyboard.type("two")
    board.change({**board.row("nb_20261123_abcdef.2"), "status": "idle"})
    press("Enter")
    expect(field).to_be_focused()
    expect(field).to_have_value("One\ntwo")  # until the kernel has it
    (sent,) = board.sent("send")
    assert (sent["text"], sent["thread"]) == ("One\ntwo", "nb_20261123_abcdef.2")
    press("Enter")
    assert len(board.sent("send")) == 1
    board.tell("done", order=sent["order"], error="There is no room for it.")
    expect(board.page.get_by_role("alert")).to_have_text("There is no room for it.")
    expect(field).to_have_value("One\ntwo")
    press("Enter")
    board.tell("done", order=sent["order"] + 1, error="")
    expect(field).to_have_value("")
    expect(field).to_be_focused()

    board.page.get_by_role("searchbox").fill("checker-495")
    expect(board.rows).to_have_count(0)
    board.page.get_by_role("searchbox").fill("checker-5")
    expect(board.page.get_by_text("1 of 500 threads")).to_be_visible()


def test_task_is_opened_noted_and_completed(open_board: OpenBoard) -> None:
    board = open_board("kind=tasks&rows=10")
    expect(board.chosen).to_contain_text("t1")
    board.listbox.press("End")
    opened = board.page.evaluate("page.rows.at(-1).id")
    expect(board.page.get_by_role("group", name="Task")).to_contain_text(f"{opened} Find out")

    board.page.get_by_role("combobox", name="Status", exact=True).last.select_option("blocked")
    board.page.get_by_role("button", name="Complete").click()
    board.field(f"Note on {opened}").fill("Enough.")
    board.field(f"Note on {opened}").press("Enter")

    assert [(each["id"], each["status"]) for each in board.sent("status")] == [
        (opened, "blocked"),
        (opened, "completed"),
    ]
    assert [(each["id"], each["text"]) for each in board.sent("note")] == [(opened, "Enough.")]
    board.tell("done", order=1, error="The session was closed.")
    expect(board.page.get_by_role("alert").first).to_have_text("The session was closed.")
    board.tell("done", order=3, error="")
    expect(board.field(f"Note on {opened}")).to_have_value("")
    board.field(f"Note on {opened}").fill("A draft")
    task = board.page.evaluate("page.madeUp.madeUpTask(page.rows.at(-1))")
    board.tell("task", id=opened, task={**task, "status": "completed", "title": "New title"})
    expect(board.page.get_by_role("group", name="Task")).to_contain_text("New title")
    expect(board.field(f"Note on {opened}")).to_have_value("A draft")


def test_live_text_streams_and_gives_way_to_the_message(open_board: OpenBoard) -> None:
    board = open_board("kind=threads&rows=3")
    thread = "nb_20261123_abcdef.1"
    expect(board.log).to_contain_text("Which of the two figures")
    live = board.page.locator(".agentnb-live-block")
    expect(live).to_be_hidden()

    stream(board, thread)
    expect(live).to_contain_text("Half an answer")
    expect(live).to_contain_text("calling read_page")
    expect(live).to_contain_text("1 tool call")
    board.tell("live", thread="another", n=2, **LIVE, add="NOT HERE")
    said = {"who": "agent", "author": "reviewer", "rich": [["p", {}, "Half an answer."]]}
    line = board.page.evaluate("said => page.madeUp.madeUpLine(9, said)", said)
    head = {"name": "reviewer", "status": "idle", "is_there": True, "above": 0, "thread": thread}
    board.tell("conversation", **head, n=1, order=[1, 2, 3, 9], lines=[line])
    board.tell("live", thread=thread, n=2, **{**LIVE, "over": True})

    expect(live).to_be_hidden()
    expect(board.log.locator(".agentnb-line").last).to_contain_text("Half an answer.")
    expect(board.page.locator("main")).not_to_contain_text("NOT HERE")
    # After a gap the page requests the conversation again.
    reads = len(board.sent("read"))
    board.tell("conversation", **head, n=7, order=[1], lines=[])
    expect(board.log).to_contain_text("Which of the two figures")
    assert len(board.sent("read")) == reads + 1


def test_older_messages_come_above_what_is_read(open_board: OpenBoard) -> None:
    board = open_board("kind=threads&rows=3")
    thread = "nb_20261123_abcdef.2"
    board.page.evaluate(
        """thread => page.lines.set(thread, Array.from({ length: 90 }, (_, at) =>
            page.madeUp.madeUpLine(at, { text: `message ${at}` })))""",
        thread,
    )
    board.listbox.press("ArrowDown")
    lines = board.log.locator(".agentnb-line")
    expect(lines).to_have_count(50)
    expect(lines.last).to_be_in_viewport()
    box = board.page.get_by_role("group", name="Conversation with claude-sonnet-5-5")
    box.evaluate("box => { box.scrollTop = 0; }")
    place = lines.first.bounding_box()

    board.page.get_by_role("button", name="Show more of 40 older messages").click()

    expect(lines).to_have_count(90)
    assert board.sent("read")[-1]["most"] == 150
    oldest_seen = lines.filter(has_text="message 40").bounding_box()
    assert place is not None
    assert oldest_seen is not None
    assert abs(oldest_seen["y"] - place["y"]) < 60  # the button was removed
    expect(box).to_be_focused()


def test_hostile_text_is_inert(open_board: OpenBoard) -> None:
    board = open_board("kind=threads&rows=3")
    thread = "nb_20261123_abcdef.1"
    evil = "".join([ACTING, *HOSTILE])
    rich = [
        ["script", {}, "alert(1)"],
        ["img", {"src": "http://evil.example/x.png", "onerror": "alert(1)"}],
        ["p", {"onclick": "alert(1)", "style": "position:fixed"}, evil],
        ["a", {"href": "javascript:alert(1)"}, "click"],
        ["iframe", {"src": "http://evil.example"}, "in it"],
    ]
    lines = [
        {"id": n, "who": "agent", "author": evil, "kind": evil, "text": evil, "rich": given}
        | {"run": "", "tools": "", "queued": False}
        for n, given in enumerate([None, rich], 10)
    ]
    head = {"name": evil, "status": evil, "is_there": True, "above": 0, "thread": thread}
    board.tell("conversation", **head, n=0, order=[10, 11], lines=lines)
    board.tell("live", thread=thread, n=0, **{**LIVE, "reset": True}, text=evil, doing=evil)
    words = dict.fromkeys(("name", "kind", "model", "task", "status"), evil)
    board.change({**board.row(thread), **words})
    board.tell("notice", line=evil)
    expect(board.log.locator(".agentnb-line")).to_have_count(2)
    board.painted()

    main = board.page.locator("main")
    assert main.locator("script, img, iframe, object, style").count() == 0
    for attribute in ("onclick", "onerror", "src"):
        assert main.locator(f"[{attribute}]").count() == 0
    assert main.locator("a[href]").count() == 0
    assert board.log.locator("[style]").count() == 0
    assert all(url.startswith("http://127.0.0.1") for url in board.requests)


def test_five_hundred_threads_are_few_elements_and_stay_where_they_are(
    open_board: OpenBoard,
) -> None:
    board = open_board("kind=threads&rows=500")
    expect(board.rows.first).to_be_visible()
    assert board.rows.count() < 30
    board.listbox.evaluate("list => { list.scrollTop = 46 * 200; }")
    expect(board.listbox.locator("[aria-posinset='201']")).to_be_visible()
    assert board.rows.count() < 30
    seen = board.listbox.locator("[aria-posinset='201']")
    name, place = seen.get_attribute("data-id"), seen.bounding_box()

    # A new thread on top does not move what the reader looks at.
    new = {**board.row("nb_20261123_abcdef.1"), "id": "nb_20261123_abcdef.501", "name": "new"}
    ids = board.page.evaluate("page.rows.map(({id}) => id)")
    board.change(new, order=[new["id"], *ids])
    same = board.listbox.locator(f"[data-id='{name}']")
    expect(same).to_have_attribute("aria-posinset", "202")
    assert same.bounding_box() == place
    expect(board.page.get_by_text("501 threads")).to_be_visible()
    board.listbox.evaluate("list => { list.scrollTop = 0; }")
    expect(board.rows.filter(has_text="new")).to_be_visible()


def test_table_is_hidden_only_while_a_kernel_answers_the_board(
    open_board: OpenBoard, let_pass: LetPass
) -> None:
    board = open_board("kind=threads&rows=5&alone")
    board.page.evaluate(
        """() => {
          const view = document.getElementById("view");
          view.className = "jp-OutputArea-child";
          const output = document.createElement("div");
          output.className = "jp-OutputArea-child";
          output.innerHTML = '<div class="agentnb-repeats-board">the truth</div>';
          view.after(output);
        }"""
    )
    table = board.page.locator(".agentnb-repeats-board")
    notice = board.page.locator(".agentnb-notice")
    assert table.is_visible(), "while it waits for an answer"
    assert board.page.get_by_role("textbox").last.is_disabled()
    let_pass(SILENCE_MS)
    expect(notice).to_contain_text("No kernel answers", timeout=14_000)
    assert table.is_visible()
    expect(board.page.locator("main")).not_to_contain_text("Loading")
    expect(board.page.get_by_role("textbox").last).to_be_disabled()

    board.page.evaluate("page.model.tell({ type: 'notice', line: 'late' })")
    expect(table).to_be_hidden()
    expect(board.page.get_by_role("textbox").last).to_be_enabled()


def test_rows_that_a_saved_page_does_not_hold_are_counted(open_board: OpenBoard) -> None:
    board = open_board("kind=tasks&rows=7&cut=5&alone")
    expect(board.page.get_by_text("Not in this page: 2 more rows.")).to_be_visible()
    expect(board.page.get_by_text("5 tasks")).to_be_visible()

    board = open_board("kind=tasks&rows=7&cut=5")
    expect(board.page.get_by_text("7 tasks")).to_be_visible()
    expect(board.page.get_by_text("Not in this page")).to_be_hidden()


def test_closed_kernel_is_said_once_and_nothing_can_be_written(open_board: OpenBoard) -> None:
    for kind, names in {"threads": ["Send"], "tasks": ["Complete", "Add note"]}.items():
        board = open_board(f"kind={kind}&rows=5")
        expect(board.page.locator("main")).to_contain_text("report")
        height = board.listbox.bounding_box()

        for _ in range(2):
            board.page.evaluate("page.model.close()")

        notice = board.page.locator(".agentnb-notice")
        expect(notice).to_have_text("The kernel is gone: this is the board's last known state.")
        for name in names:
            expect(board.page.get_by_role("button", name=name)).to_be_disabled()
        expect(board.page.get_by_role("textbox").last).to_be_disabled()
        assert board.listbox.bounding_box() == height
        board.listbox.press("End")  # the rows can still be scrolled
        expect(board.chosen).to_have_attribute("aria-posinset", "5")
        expect(board.page.locator("main")).to_contain_text("is not saved in the page")
        expect(board.page.locator("main")).not_to_contain_text("Loading")
