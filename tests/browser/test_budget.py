"""The budget in the panel: shown as it is spent, changed during the run, and asked for at 80 %."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.notebook.kernel import Door, a_door

TOTAL = "run = agentnb.get_session().newest_run; print(run.budget.total, run.status)"
HELD = """{
    "root": [Reply(spawn("held"), usage=Usage(9_000, 1_000)), "Brought together."],
    "held": Reply("Begun and then held, and ended.", pause=hold, usage=Usage(500, 500)),
}"""
# The agent that plans takes the run over 80 %, and two calls wait. Before, the root waits until the
# panel is visible: a run asks only if a person can answer.
COSTLY = """{
    "root": [Reply(spawn("plan it", before="I split it."), pause=hold), "Brought together."],
    "plan it": [Reply(spawn("one", "two"), usage=Usage(80_000, 5_000)), "The plan is done."],
}"""


def started(desk: Desk, replies: str, *, door: Door | None = None, budget: int) -> Notebook:
    notebook = desk.notebook(
        scripted(replies, door=door, settings=f"budget={budget}"), "%%spawn\nDo it.", TOTAL
    )
    notebook.run(0)
    notebook.start(1)
    return notebook


def test_slider_and_number_change_the_running_request_and_each_other(desk: Desk) -> None:
    with a_door() as door:
        notebook = started(desk, HELD, door=door, budget=50_000)
        panel = Panel(notebook.output(1))
        door.wait_for_knock()
        expect(panel.bar).to_have_attribute("aria-valuetext", re.compile("of 50,000 tokens"))

        panel.number.fill("70000")
        panel.number.press("Enter")
        expect(panel.bar).to_have_attribute("aria-valuetext", re.compile("of 70,000 tokens"))
        expect(panel.slider).to_have_attribute("aria-valuenow", "70000.0")
        panel.focus(panel.slider)
        panel.slider.press("ArrowRight")
        expect(panel.number).not_to_have_value("70000")
        raised = int(panel.number.input_value())
        assert raised > 70_000
        expect(panel.bar).to_have_attribute("aria-valuetext", re.compile(f"of {raised:,} tokens"))
        assert notebook.is_running(1)
        door.open()
        notebook.wait(1)
        notebook.run(2)

    expect(notebook.output(2)).to_contain_text(f"{raised} completed")


def test_bar_moves_as_tokens_are_spent(desk: Desk) -> None:
    with a_door() as door:
        notebook = started(desk, HELD, door=door, budget=50_000)
        panel = Panel(notebook.output(1))
        door.wait_for_knock()
        expect(panel.bar).to_have_attribute("aria-valuenow", re.compile("^2[0-4]$"))
        before = int(panel.bar.get_attribute("aria-valuenow") or 0)
        door.open()
        notebook.wait(1)

    expect(panel.bar).not_to_have_attribute("aria-valuenow", str(before))
    assert int(panel.bar.get_attribute("aria-valuenow") or 0) > before


def test_budget_below_the_used_part_is_refused_and_the_run_continues(desk: Desk) -> None:
    with a_door() as door:
        notebook = started(desk, HELD, door=door, budget=50_000)
        panel = Panel(notebook.output(1))
        door.wait_for_knock()
        panel.number.fill("5")
        panel.number.press("Enter")
        expect(panel.number).not_to_have_value("5")
        expect(panel.number).to_have_value("50000")
        expect(notebook.output(1)).to_contain_text("are already used")
        door.open()
        notebook.wait(1)


def test_number_takes_any_total_and_the_slider_grows_with_it(desk: Desk) -> None:
    with a_door() as door:
        notebook = started(desk, HELD, door=door, budget=50_000)
        panel = Panel(notebook.output(1))
        door.wait_for_knock()
        end = float(panel.slider.get_attribute("aria-valuemax") or 0)

        panel.number.fill("12345678")
        panel.number.press("Enter")
        expect(panel.bar).to_have_attribute("aria-valuetext", re.compile("of 12,345,678 tokens"))
        expect(panel.number).to_have_value("12345678")
        expect(panel.slider).not_to_have_attribute("aria-valuemax", str(end))

        assert end < 12_345_678 <= float(panel.slider.get_attribute("aria-valuemax") or 0)
        door.open()
        notebook.wait(1)


def test_end_key_goes_to_the_end_that_the_slider_has_now(desk: Desk) -> None:
    with a_door() as door:
        notebook = started(desk, HELD, door=door, budget=50_000)
        panel = Panel(notebook.output(1))
        door.wait_for_knock()
        first_end = int(float(panel.slider.get_attribute("aria-valuemax") or 0))
        panel.number.fill("12345678")
        panel.number.press("Enter")
        expect(panel.slider).not_to_have_attribute("aria-valuemax", f"{first_end}.0")
        end = int(float(panel.slider.get_attribute("aria-valuemax") or 0))

        panel.focus(panel.slider)
        panel.slider.press("End")

        expect(panel.bar).to_have_attribute("aria-valuetext", re.compile(f"of {end:,} tokens"))
        expect(panel.number).to_have_value(str(end))
        assert end > 12_345_678
        door.open()
        notebook.wait(1)


def test_both_end_at_the_ceiling_that_a_teacher_set(desk: Desk) -> None:
    with a_door() as door:
        setup = scripted(HELD, door=door, settings="budget=50_000")
        notebook = desk.notebook(
            setup,
            "os.environ['AGENTNB_BUDGET_CEILING'] = '60_000'",
            "%%spawn\nDo it.",
            TOTAL,
            own_kernel=True,
        )
        notebook.run(0, 1)
        notebook.start(2)
        panel = Panel(notebook.output(2))
        door.wait_for_knock()

        expect(panel.slider).to_have_attribute("aria-valuemax", "60000.0")
        panel.number.fill("90000")
        panel.number.press("Enter")
        expect(panel.bar).to_have_attribute("aria-valuetext", re.compile("of 60,000 tokens"))
        expect(panel.number).to_have_value("60000")
        panel.focus(panel.slider)
        panel.slider.press("End")
        door.open()
        notebook.wait(2)
        notebook.run(3)

    expect(notebook.output(3)).to_contain_text("60000 completed")


# -- the question at 80 % -----------------------------------------------------------------------


def asked(desk: Desk) -> tuple[Notebook, Panel]:
    """A run that asks whether to continue, with two agents that wait to begin."""
    with a_door() as door:
        notebook = started(desk, COSTLY, door=door, budget=100_000)
        panel = Panel(notebook.output(1))
        door.wait_for_knock()
        # The details answer a request of the page: by then the kernel knows that a person is there.
        expect(panel.text).to_contain_text("I split")
    expect(panel.question).to_contain_text("80 % of the budget is used")
    expect(panel.question).to_contain_text("85,")
    panel.expect_statuses(_1_1="waiting", _1_2="waiting")
    assert notebook.is_running(1)
    return notebook, panel


def test_continue_lets_the_waiting_agents_begin(desk: Desk) -> None:
    notebook, panel = asked(desk)

    panel.button("Continue").click()
    expect(panel.button("Continue")).to_be_hidden()
    notebook.wait(1)

    panel.expect_statuses(root="completed", _1="completed", _1_1="completed", _1_2="completed")
    expect(notebook.output(1)).to_contain_text("Brought together.")


def test_stop_leaves_the_waiting_agents_exhausted_and_says_what_was_not_done(desk: Desk) -> None:
    notebook, panel = asked(desk)

    panel.button("Stop").click()
    expect(panel.button("Stop")).to_be_hidden()
    notebook.wait(1)

    panel.expect_statuses(_1_1="exhausted", _1_2="exhausted")
    expect(panel.notices).to_contain_text("1.1, 1.2")


@pytest.mark.parametrize("control", ["slider", "number"])
def test_raising_the_budget_is_an_answer_too(desk: Desk, control: str) -> None:
    notebook, panel = asked(desk)

    if control == "slider":
        panel.focus(panel.slider)
        panel.slider.press("End")
    else:
        panel.number.fill("300000")
        panel.number.press("Enter")
    expect(panel.button("Continue")).to_be_hidden()
    notebook.wait(1)

    panel.expect_statuses(root="completed", _1="completed", _1_1="completed", _1_2="completed")


def test_used_up_budget_says_what_was_done_and_what_was_not(desk: Desk) -> None:
    replies = """{
        "root": [Reply(spawn("first", "second", mode="sequential"), usage=Usage(100, 100))],
        "first": Reply("First is done.", usage=Usage(20_000, 5_000)),
    }"""
    setup = scripted(replies, settings="budget=20_000, on_budget_warning='continue'")
    notebook = desk.notebook(setup, "%%spawn\nDo it.")
    notebook.run(0, 1)
    panel = Panel(notebook.output(1))

    expect(panel.notices).to_contain_text("Done by then: 1. Not done: 2")
    expect(panel.bar).to_have_attribute("aria-valuetext", re.compile("used up"))
