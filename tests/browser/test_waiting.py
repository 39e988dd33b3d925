"""Never silent: tree and details say what a run waits for."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.notebook.kernel import a_door

BEFORE_THE_FIRST_TOKEN = """
async def answer(request):
    await hold()
    return "At last."

session = agentnb.configure(provider=ScriptedProvider(answer))
"""


def test_panel_says_that_it_waits_for_the_first_token(desk: Desk) -> None:
    with a_door() as door:
        notebook = desk.notebook(
            scripted("{}", door=door) + BEFORE_THE_FIRST_TOKEN, "%%spawn\nTell me."
        )
        notebook.run(0)
        notebook.start(1)
        door.wait_for_knock()
        panel = Panel(notebook.output(1))

        expect(panel.node("root")).to_contain_text("waiting for the first token")
        expect(panel.header).to_contain_text("waiting for the first token")
        expect(panel.details).to_contain_text("waiting for the first token")
        door.open()
        notebook.wait(1)

    expect(panel.node("root")).not_to_contain_text("first token")


def test_rate_limit_is_shown_with_its_seconds_which_count_down(desk: Desk) -> None:
    replies = """{
        "root": [spawn("limited"), "Brought together."],
        "limited": [RateLimited("Too many calls.", retry_after_s=59), "never asked for"],
    }"""
    notebook = desk.notebook(scripted(replies), "%%spawn\nTell me.")
    notebook.run(0)
    notebook.start(1)
    panel = Panel(notebook.output(1))
    panel.expect_statuses(_1="waiting")
    node = panel.node("1")

    expect(node).to_contain_text(re.compile(r"try again after: Too many calls.*\b\d+ s"))
    seconds = re.search(r"\b\d+ s", node.locator(".agentnb-node-doing").inner_text())
    assert seconds is not None
    expect(node).not_to_contain_text(seconds[0])
    expect(node).to_contain_text(re.compile(r"try again after: Too many calls.*\b\d+ s"))
    panel.button("Cancel run").click()
    notebook.wait(1)


def test_agent_without_text_is_shown_as_stalled_until_it_continues(desk: Desk) -> None:
    # So that the test does not take half a minute.
    sooner = "import agentnb.views.panel.fold as fold; fold.STALLED_AFTER_S = 0.5"
    replies = """{"root": Reply("Begun and then held, and ended.", pause=hold)}"""
    with a_door() as door:
        notebook = desk.notebook(
            scripted(replies, door=door), sooner, "%%spawn\nTell me.", own_kernel=True
        )
        notebook.run(0, 1)
        notebook.start(2)
        door.wait_for_knock()
        panel = Panel(notebook.output(2))

        expect(panel.node("root")).to_contain_text("no text for")
        expect(panel.details).to_contain_text("stalled")
        door.open()
        notebook.wait(2)

    expect(panel.node("root")).not_to_contain_text("no text for")
    panel.expect_statuses(root="completed")


def test_siblings_keep_their_order_and_their_places_whoever_ends_first(desk: Desk) -> None:
    replies = """{
        "root": [spawn(*[f"part {n}" for n in range(12)]), "Brought together."],
        "part 0": Reply("Begun and then held, and ended.", pause=hold),
        "part 5": [spawn("a part of it"), "done"],
    }"""
    with a_door() as door:
        notebook = desk.notebook(scripted(replies, door=door), "%%spawn\nTell me.")
        notebook.run(0)
        notebook.start(1)
        door.wait_for_knock()
        panel = Panel(notebook.output(1))
        panel.expect_statuses(_1="running", _12="completed", _6="completed", _6_1="completed")
        expected = ["root", *[str(n) for n in range(1, 7)], "6.1", *[str(n) for n in range(7, 13)]]
        assert panel.paths == expected
        before = [node.bounding_box() for node in panel.nodes.all()]
        door.open()
        notebook.wait(1)
        panel.expect_statuses(root="completed", _1="completed")

    assert panel.paths == expected
    tops = [box["y"] for box in before if box is not None]
    assert tops[1:] == sorted(tops[1:])
    origin, moved = before[0], panel.nodes.first.bounding_box()
    assert origin is not None
    assert moved is not None
    after = [node.bounding_box() for node in panel.nodes.all()]
    assert [(b["x"] - origin["x"], b["y"] - origin["y"]) for b in before if b] == [
        (a["x"] - moved["x"], a["y"] - moved["y"]) for a in after if a
    ]


def test_last_frame_arrives_also_when_the_run_is_over_in_an_instant(desk: Desk) -> None:
    notebook = desk.notebook(
        scripted("{'root': [spawn('a', 'b', 'c'), 'Together.'] * 9}"),
        *["%%spawn\nTell me."] * 5,
    )
    notebook.run(0)
    notebook.start_all_below(1)
    for cell in range(1, 6):
        notebook.wait(cell)

    for cell in range(1, 6):
        panel = Panel(notebook.output(cell))
        panel.expect_statuses(root="completed", _1="completed", _2="completed", _3="completed")
        expect(panel.status).to_contain_text("completed")
