"""A finished cell: the answer begins on the screen, and nothing is shown twice."""

from __future__ import annotations

from playwright.sync_api import Locator, ViewportSize, expect

from tests.browser.desk import Desk
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.scripts import scripted

SCREEN: ViewportSize = {"width": 1280, "height": 900}
SIX = scripted(
    """{
    "root": [spawn("count whales", "count seals", "count crabs"), "**All** is counted."] * 2,
    "count seals": [spawn("look at the ice", "look at the sea"), "Seals are counted."] * 2,
    **dict.fromkeys(["count whales", "count crabs"], ["Counted."] * 2),
    **dict.fromkeys(["look at the ice", "look at the sea"], ["Looked at."] * 2),
}""",
    settings="store='kept/one_screen.db'",
)  # the store's line below the panel takes room
ERROR = "The server of the south has been switched off since the spring, and has no heir."
ENDS = scripted(f"""{{
    "root": [
        "**Alone** it is told.",
        spawn("north", "south"), "**All** is told but for the south.",
        spawn("north"), LlmError("The model is overloaded.", status_code=400),
        spawn("north", "east"), "**All** is told but for the east.",
    ],
    "north": ["North is done."] * 3,
    "south": LlmError({ERROR!r}, status_code=400),
    "east": Reply("Begun and then stopped.", pause=stop),
}}""").replace(
    "provider = by_agent",
    """
async def stop():
    while session.newest_run.done:  # the one before: of this one nobody knows yet
        await asyncio.sleep(0)
    session.newest_run.cancel("2", reason="too slow")
provider = by_agent""",
)


def answer(place: Locator) -> Locator:
    return place.locator(".agentnb-answer")


def outline(place: Locator) -> Locator:
    return place.locator(".agentnb-outline")


def picture(place: Locator) -> Locator:
    return place.locator("img")


def expect_answer_begins_on_the_screen(notebook: Notebook, cell: int) -> None:
    """Expect the whole first line of the answer in the visible part of the notebook."""
    line = answer(notebook.output(cell)).locator("p").first
    expect(line).to_be_visible()
    expect(line).to_be_in_viewport(ratio=1)
    window = notebook.frame.locator(".jp-WindowedPanel-outer").bounding_box()
    shown = line.bounding_box()
    assert window is not None
    assert shown is not None
    assert window["y"] <= shown["y"]
    assert shown["y"] + shown["height"] <= window["y"] + window["height"]


def expect_tree_once_and_live(notebook: Notebook, cell: int) -> None:
    """Expect the tree only in the live view on the page, and also in the file."""
    shown = notebook.output(cell)
    expect(Panel(shown).tree).to_be_visible()
    expect(outline(shown)).to_be_hidden()
    expect(picture(shown)).to_be_hidden()
    expect(outline(shown)).to_contain_text("2.2 ✓ completed · look at the sea")


def expect_tree_without_a_live_view(notebook: Notebook, cell: int) -> None:
    shown = notebook.output(cell)
    expect(Panel(shown).tree).to_have_count(0)
    expect(outline(shown)).to_be_visible()
    expect(outline(shown)).to_contain_text("2.2 ✓ completed · look at the sea")
    expect(picture(shown)).to_be_visible()


def near_the_top(desk: Desk, script: str, *cells: str) -> Notebook:
    """A notebook as a person has it: the script of its model is in a separate file."""
    file = desk.server.folder / "model_of_this_test.py"
    file.write_text(script.replace("%load_ext agentnb\n", ""), encoding="utf-8")
    loaded = "%load_ext agentnb\nfrom model_of_this_test import session"
    return desk.notebook(loaded, *cells, own_kernel=True)


def test_answer_begins_on_the_screen_and_nothing_is_shown_twice(desk: Desk) -> None:
    desk.page.set_viewport_size(SCREEN)
    again = "session.newest_run.panel()"
    notebook = near_the_top(desk, SIX, "%%spawn\nCount everything.", "%agentnb freeze", again)
    notebook.run(0)
    for _ in range(2):
        notebook.run(1)
        Panel(notebook.output(1)).expect_statuses(root="completed", _2_2="completed")
        expect_answer_begins_on_the_screen(notebook, 1)
        expect_tree_once_and_live(notebook, 1)
    notebook.save()

    notebook.run(2)
    expect_tree_without_a_live_view(notebook, 1)
    notebook.run(3)
    Panel(notebook.output(3)).expect_statuses(root="completed")
    expect_tree_without_a_live_view(notebook, 1)  # a view in another cell does not hide it

    notebook.close()
    desk.server.end_kernels()
    copy = desk.untrusted_copy(notebook)
    assert not copy.is_trusted
    expect_answer_begins_on_the_screen(copy, 1)
    expect_tree_without_a_live_view(copy, 1)


def test_what_the_live_view_does_not_tell_stays_beside_it(desk: Desk) -> None:
    notebook = near_the_top(desk, ENDS, *["%%spawn\nSurvey the land."] * 4, "%agentnb freeze")
    notebook.run(0, 1, 2, 3, 4)

    for cell, static in (
        (1, "Alone it is told."),
        (2, f"All is told but for the south.\n\n2 ✗ failed\n  error: {ERROR}"),
        (3, "1 north (completed)\n\nNorth is done.\n\nThe model is overloaded."),
        (4, "All is told but for the east."),
    ):
        shown = notebook.output(cell)
        expect(Panel(shown).tree).to_be_visible()
        expect(picture(shown)).to_be_hidden()
        assert shown.locator(".agentnb-result").inner_text().strip() == static
    expect(Panel(notebook.output(3)).notices).to_contain_text("The model is overloaded.")
    expect(Panel(notebook.output(4)).notices).to_contain_text("Cancelled: 2 (too slow).")

    notebook.run(5)
    for cell, line in (
        (1, "root ✓ completed · Survey the land."),
        (2, f"└─ 2 ✗ failed · south\n      error: {ERROR}"),
        (3, "root ✗ failed · Survey the land.\n│  error: The model is overloaded."),
        (4, "└─ 2 ■ cancelled · east\n      too slow"),
    ):
        expect(picture(notebook.output(cell))).to_be_visible()
        assert line in outline(notebook.output(cell)).inner_text()
