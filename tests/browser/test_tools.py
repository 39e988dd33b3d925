"""Tools and jobs in a real JupyterLab: shown while they run, and listed afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.desk import DARK, LIGHT, Desk
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.browser.test_everyone import findings
from tests.notebook.kernel import Door, a_door

PROJECT = """
from pathlib import Path
_ = Path("tools.yaml").write_text('''
tools:
  spawn:
    profiles:
      reviewer:
        system_prompt: You review.
''')
import agentnb
from agentnb.core.types import ToolUse

async def count(pages: int, context: agentnb.ToolContext) -> str:
    context.report(f"page 1 of {pages}")
    await hold()
    return f"{pages} pages counted"
"""
REPLIES = """{
    "root": [
        Reply(tool_uses=(
            ToolUse("a", "count", {"pages": 12}),
            ToolUse("b", "no_such_tool", {}),
            ToolUse("c", "spawn", {"task": "review", "profile": "reviewer"}),
        )),
        "Reviewed and counted.",
        "All of it.",
    ],
    "review": Reply("It is good.", pause=hold),
}"""
SETTINGS = "tools=[count], delegation='tools', config='tools.yaml'"


@pytest.fixture
def door() -> Iterator[Door]:
    with a_door() as door:
        yield door


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_tools_and_jobs_are_seen_while_they_run_and_listed_afterwards(
    desk: Desk, door: Door, theme: str
) -> None:
    setup = scripted(REPLIES, door=door, settings=SETTINGS)
    notebook = desk.notebook(PROJECT, setup, "%%spawn\nDo it.", "%spawn status")
    notebook.run(0, 1)
    desk.set_theme(theme)
    notebook.start(2)
    door.wait_for_knock()
    door.wait_for_knock()
    panel = Panel(notebook.output(2))
    panel.expect_statuses(root="running", _1="running")

    card = panel.node("root").locator(".agentnb-node-tool")
    expect(card).to_have_text("count: page 1 of 12")
    expect(panel.node("root").locator(".agentnb-node-tool-time")).to_have_text(re.compile(r" s$"))
    calls = panel.details.get_by_role("list").get_by_role("listitem")
    expect(calls).to_have_count(3)
    expect(calls.nth(0)).to_contain_text("at work")
    expect(calls.nth(1)).to_contain_text("There is no tool 'no_such_tool'")
    job = calls.nth(2).locator(".agentnb-tool-text").nth(1)
    expect(job).to_have_text(re.compile("^[0-9a-f]{6}$"))
    job_id = str(job.text_content())
    assert findings(notebook.page) == []

    panel.select("1")
    expect(panel.details.locator("[data-fact=job]")).to_have_text(f"Job{job_id}")
    expect(panel.details.locator("[data-fact=profile]")).to_have_text("Profilereviewer")
    expect(calls).to_have_count(0)
    panel.select("root")
    door.open()
    notebook.wait(2)

    panel.expect_statuses(root="completed", _1="completed")
    expect(card).to_have_text("3 calls, 1 error")
    expect(calls.nth(0)).to_contain_text("12 pages counted")
    expect(calls.nth(0)).to_contain_text('{"pages": 12}')
    expect(panel.details.get_by_text("3 tool calls, 1 error")).to_be_visible()
    assert findings(notebook.page) == []
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("3 tool calls, 1 error")
