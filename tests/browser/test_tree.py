"""The tree in the cell: shown at once, growing with each new agent, and open to inspection."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.notebook.kernel import a_door

DEEP = """{
    "root": [Reply(spawn("north", "south", before="I split it."), pause=hold), "Brought together."],
    "north": [Reply(spawn("east of north"), pause=hold), "North is done."],
    "east of north": [spawn("corner of the east"), "The east is done."],
    "corner of the east": Reply("Begun to tell of it, and now told to its end.", pause=hold),
    "south": "South is done.",
}"""

SENT = """
(request,) = requests_of(provider, "corner of the east")
print(request.system, "=====", *[message.text for message in request.messages], sep="\\n")
"""


def test_tree_is_there_with_its_root_and_grows_to_depth_three(desk: Desk) -> None:
    with a_door() as door:
        notebook = desk.notebook(scripted(DEEP, door=door), "%%spawn\nSurvey the land.")
        panel = Panel(notebook.output(1))
        notebook.run(0)

        notebook.start(1)
        door.wait_for_knock()
        panel.expect_statuses(root="running")
        expect(panel.nodes).to_have_count(1)
        expect(panel.node("root")).to_contain_text("Survey the land.")
        door.open()
        door.wait_for_knock()
        panel.expect_statuses(root="running", _1="running", _2="completed")
        assert panel.paths == ["root", "1", "2"]
        door.open()
        door.wait_for_knock()
        panel.expect_statuses(_1_1="running", _1_1_1="running")
        assert panel.paths == ["root", "1", "1.1", "1.1.1", "2"]
        assert notebook.is_running(1)
        door.open()
        notebook.wait(1)

    panel.expect_statuses(
        root="completed", _1="completed", _1_1="completed", _1_1_1="completed", _2="completed"
    )
    for path, task in [("1", "north"), ("1.1", "east of north"), ("2", "south")]:
        expect(panel.node(path)).to_contain_text(task)
        expect(panel.node(path)).to_contain_text("completed")
        expect(panel.node(path)).to_contain_text("tokens")
    expect(panel.status).to_contain_text("completed")
    expect(panel.header).to_contain_text("5 agents")


def test_details_of_a_clicked_agent_show_its_prompt_as_sent_and_its_text_as_it_streams(
    desk: Desk,
) -> None:
    with a_door() as door:
        notebook = desk.notebook(scripted(DEEP, door=door), "%%spawn\nSurvey the land.", SENT)
        panel = Panel(notebook.output(1))
        notebook.run(0)
        notebook.start(1)
        for _ in ("root", "north"):
            door.wait_for_knock()
            door.open()
        door.wait_for_knock()
        panel.select("1.1.1")

        expect(panel.details).to_contain_text("running")
        expect(panel.text).to_have_text("Begun to tell ")
        prompt = panel.open_prompt()
        expect(prompt).to_contain_text("corner of the east")
        door.open()
        expect(panel.text).to_have_text("Begun to tell of it, and now told to its end.")
        expect(panel.details).to_contain_text("completed")
        notebook.wait(1)
        notebook.run(2)

    sent = notebook.output(2).inner_text().split("=====")
    shown = [part.inner_text() for part in prompt.get_by_role("group").all()]
    assert [text.strip() for text in shown] == [text.strip() for text in sent]


def test_arrow_keys_walk_through_the_tree_and_details_follow(desk: Desk) -> None:
    replies = """{
        "root": [spawn("north", "south"), "Brought together."],
        "north": [spawn("east of north"), "North is done."],
    }"""
    notebook = desk.notebook(scripted(replies), "%%spawn\nSurvey the land.")
    panel = Panel(notebook.output(1))
    notebook.run(0, 1)
    panel.expect_statuses(root="completed", _1_1="completed")
    page = notebook.page

    panel.select("root")
    for key, path in [
        ("ArrowDown", "1"),
        ("ArrowRight", "1.1"),
        ("ArrowDown", "2"),
        ("Home", "root"),
        ("End", "2"),
        ("ArrowUp", "1.1"),
        ("ArrowLeft", "1"),
    ]:
        page.keyboard.press(key)
        expect(panel.node(path)).to_be_focused()
        expect(panel.details).to_have_attribute("data-agent-details", path)
    page.keyboard.press("ArrowLeft")

    expect(panel.node("1")).to_have_attribute("aria-expanded", "false")
    assert panel.paths == ["root", "1", "2"]
    expect(panel.node("1")).to_contain_text("1 hidden")
    page.keyboard.press("ArrowRight")
    expect(panel.node("1.1")).to_be_visible()


def test_retry_is_seen_in_tree_and_details_with_the_call_that_failed(desk: Desk) -> None:
    replies = """{
        "root": [spawn("shaky"), "Brought together."],
        "shaky": [
            Reply("It begins, and", error=StreamBroken("The line went dead.")),
            Reply("It goes well this time.", pause=hold),
        ],
    }"""
    with a_door() as door:
        notebook = desk.notebook(scripted(replies, door=door), "%%spawn\nTry it.")
        panel = Panel(notebook.output(1))
        notebook.run(0)
        notebook.start(1)
        door.wait_for_knock()
        panel.select("1")

        expect(panel.node("1")).to_contain_text("attempt 2")
        expect(panel.details).to_contain_text("tried again")
        expect(panel.text).to_contain_text("It goes well")
        panel.details.get_by_role("combobox").select_option(index=1)
        expect(panel.details).to_contain_text("The line went dead.")
        expect(panel.text).to_have_text("It begins, and")
        door.open()
        notebook.wait(1)

    expect(panel.text).to_have_text("It begins, and")


def test_three_hundred_agents_are_filtered_by_words_and_by_status(desk: Desk) -> None:
    replies = """{
        "root": [spawn(*[f"part {n}" for n in range(299)]), "Brought together."],
        "part 123": LlmError("It cannot be done.", status_code=400),
    }"""
    notebook = desk.notebook(scripted(replies), "%%spawn\nDo it all.")
    panel = Panel(notebook.output(1))
    notebook.run(0, 1)
    panel.expect_statuses(root="completed", _299="completed", _124="failed")
    expect(panel.nodes).to_have_count(300)

    panel.place.get_by_role("searchbox").fill("PART 12")
    expect(panel.place).to_contain_text("11 of 300 match")
    assert panel.paths == ["root", "13", *[str(n) for n in range(121, 131)]]
    panel.place.get_by_role("button", name="failed").click()
    expect(panel.place).to_contain_text("1 of 300 match")
    assert panel.paths == ["root", "124"]
    panel.place.get_by_role("button", name="Clear the filter").click()
    expect(panel.nodes).to_have_count(300)
