"""Stopping from the panel, while the cell waits: the model's server sees the connections close."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.scripts import block, over_http, scripted
from tests.loopback.said import Reply
from tests.loopback.server import LoopbackServer

TASKS = ("count whales", "count seals", "count crabs")
ENDED = "print(agentnb.get_session().newest_run.done, agentnb.get_session().newest_run.status)"


@pytest.fixture
def going_on() -> threading.Event:
    """When it is set, the agents end."""
    return threading.Event()


@pytest.fixture
def server(going_on: threading.Event) -> Iterator[LoopbackServer]:
    """The root splits its task in three, each of which streams and is held in mid-text."""
    held = Reply(text="Counting one by one, and now counted.", hold=going_on)
    rules: dict[str, Reply | str] = {
        "<sub_agent_results>": "Brought together.",
        "Count everything": block(TASKS),
        **dict.fromkeys(TASKS, held),
    }
    with LoopbackServer(rules) as server:
        yield server


def started(desk: Desk, server: LoopbackServer, *cells: str) -> tuple[Notebook, Panel]:
    """A notebook whose second cell runs, with three agents at work."""
    notebook = desk.notebook(over_http(server), *cells)
    notebook.run(0)
    notebook.start(1)
    server.wait_streaming(3)
    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="running", _1="running", _2="running", _3="running")
    return notebook, panel


def expect_all_stopped(panel: Panel, server: LoopbackServer) -> None:
    server.wait_closed(3)
    panel.expect_statuses(root="cancelled", _1="cancelled", _2="cancelled", _3="cancelled")
    expect(panel.status).to_contain_text("cancelled")
    expect(panel.notices).to_contain_text("Cancelled: the run")
    expect(panel.button("Cancel run")).to_be_disabled()
    assert len(server.requests) == 4, "nothing was asked afterwards"


def test_cancel_run_stops_all_agents_while_the_cell_awaits(
    desk: Desk, server: LoopbackServer
) -> None:
    notebook, panel = started(desk, server, "%%spawn\nCount everything.", ENDED)

    assert notebook.is_running(1)
    panel.button("Cancel run").click()
    expect_all_stopped(panel, server)
    notebook.wait(1)

    expect(notebook.output(1)).to_contain_text("RunCancelled: The run was cancelled")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("True cancelled")


def test_cancel_run_stops_all_agents_of_a_cell_that_went_on(
    desk: Desk, server: LoopbackServer
) -> None:
    notebook, panel = started(desk, server, "%%spawn --bg\nCount everything.", ENDED)
    notebook.wait(1)

    panel.button("Cancel run").click()
    expect_all_stopped(panel, server)

    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("True cancelled")


def test_cancel_run_reaches_a_kernel_whose_cell_blocks(desk: Desk, server: LoopbackServer) -> None:
    cell = (
        "run = agentnb.get_session().spawn('Count everything.')\ndisplay(run.panel())\nrun.result()"
    )
    notebook, panel = started(desk, server, cell)

    assert notebook.is_running(1)
    panel.button("Cancel run").click()
    expect_all_stopped(panel, server)
    notebook.wait(1)

    expect(notebook.output(1)).to_contain_text("RunCancelled")


def test_cancel_agent_stops_that_agent_and_its_siblings_go_on(
    desk: Desk, server: LoopbackServer, going_on: threading.Event
) -> None:
    notebook, panel = started(desk, server, "%%spawn\nCount everything.")

    panel.select("2")
    panel.button("Cancel agent").click()
    server.wait_closed(1)
    panel.expect_statuses(root="running", _1="running", _2="cancelled", _3="running")
    expect(panel.notices).to_contain_text("Cancelled: 2")
    expect(panel.button("Cancel agent")).to_be_hidden()
    assert server.streaming == 2
    going_on.set()
    notebook.wait(1)

    panel.expect_statuses(root="completed", _1="completed", _2="cancelled", _3="completed")
    expect(notebook.output(1)).to_contain_text("Brought together.")
    assert len(server.closed) == 1


RUNAWAY = """
from agentnb.testing import tool_calls
rows = [1, 2]
endless = tool_calls(("python", {"code": "rows.append(3)\\nwhile True: pass"}))
provider = by_agent({
    "root": [spawn("Run away with {{rows}}."), "Without it."],
    "Run away with {{rows}}.": [endless],
})
session = agentnb.configure(provider=provider, store=None, code_memory="600MB")
"""


def test_cancel_agent_ends_endless_code_while_the_cell_waits(desk: Desk) -> None:
    cell = "%%spawn --give rows --code worker\nRun away."
    notebook = desk.notebook(scripted("{}"), RUNAWAY, cell, "print(rows)")
    notebook.run(0, 1)
    notebook.start(2)
    panel = Panel(notebook.output(2))
    panel.select("1")
    call = panel.details.locator("[data-tool-state]")
    expect(call).to_contain_text("it runs")
    expect(call.locator(".agentnb-tool-text").first).to_have_text(
        "rows.append(3)\nwhile True: pass", use_inner_text=True
    )

    panel.button("Cancel agent").click()
    notebook.wait(2)

    panel.expect_statuses(root="completed", _1="cancelled")
    expect(call).to_have_attribute("data-tool-state", "cancelled")
    expect(notebook.output(2)).to_contain_text("Without it.")
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("[1, 2]")


def test_interrupt_button_stops_the_run_of_the_cell_that_owns_it(
    desk: Desk, server: LoopbackServer
) -> None:
    notebook, panel = started(desk, server, "%%spawn\nCount everything.", ENDED)

    notebook.interrupt()
    expect_all_stopped(panel, server)
    notebook.wait(1)

    expect(notebook.output(1)).to_contain_text("RunCancelled: The run was cancelled (interrupted).")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("True cancelled")


def test_interrupt_of_a_cell_that_only_waits_does_not_stop_the_run(
    desk: Desk, server: LoopbackServer, going_on: threading.Event
) -> None:
    cell = "run = agentnb.get_session().spawn('Count everything.')\ndisplay(run.panel())\nawait run"
    notebook, panel = started(desk, server, cell)

    notebook.interrupt()
    notebook.wait(1)
    panel.expect_statuses(root="running", _1="running", _2="running", _3="running")
    assert server.closed == []
    going_on.set()

    panel.expect_statuses(root="completed", _1="completed", _2="completed", _3="completed")


def test_controls_of_a_persons_own_dashboard_work_alone(desk: Desk, server: LoopbackServer) -> None:
    cell = """
import ipywidgets
run = agentnb.get_session().spawn("Count everything.")
place = ipywidgets.VBox([run.budget_slider(), run.cancel_button(), run.tree_view()])
display(place)
await run
"""
    notebook, panel = started(desk, server, cell)

    handle = panel.slider  # the tree beside it gives it its name
    panel.focus(handle)
    handle.press("PageUp")
    panel.button("Cancel run").click()
    server.wait_closed(3)
    panel.expect_statuses(root="cancelled", _1="cancelled", _2="cancelled", _3="cancelled")
    notebook.wait(1)

    expect(notebook.output(1)).to_contain_text("RunCancelled")
