"""The panel as a test sees it: by its documented hooks, roles, names and texts."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect


class Panel:
    """One live panel, or one tree view alone.

    Args:
        place: A cell's output, or a part of one.
    """

    def __init__(self, place: Locator) -> None:
        self.place = place

    # -- the run ------------------------------------------------------------------------------

    @property
    def status(self) -> Locator:
        """The run's own status, in the header."""
        return self.place.locator(".agentnb-run-status")

    @property
    def header(self) -> Locator:
        return self.place.locator(".agentnb-header")

    @property
    def bar(self) -> Locator:
        """The bar of the used budget."""
        return self.place.get_by_role("progressbar", name="Budget used")

    @property
    def slider(self) -> Locator:
        """The handle of the budget's slider."""
        return self.place.get_by_role("slider", name="Budget in tokens")

    @property
    def number(self) -> Locator:
        """The budget as a number."""
        return self.place.get_by_role("textbox", name="Total tokens")

    @property
    def dollars(self) -> Locator:
        """The budget of a run in dollars."""
        return self.place.get_by_role("textbox", name="Total dollars")

    @property
    def question(self) -> Locator:
        """The run's question at 80 % of the budget."""
        return self.place.get_by_role("alert")

    @property
    def notices(self) -> Locator:
        """The notices of the run."""
        return self.place.locator(".agentnb-notices")

    @property
    def footer(self) -> Locator:
        """The line with the run's store."""
        return self.place.locator(".agentnb-footer")

    def button(self, name: str) -> Locator:
        """The button with this text."""
        return self.place.locator("button", has_text=re.compile(rf"^\s*{re.escape(name)}\s*$"))

    def focus(self, control: Locator) -> None:
        """Focus a control once it is offered: a hidden one takes no focus, and says nothing."""
        expect(control).to_be_visible()
        control.focus()

    # -- the tree -----------------------------------------------------------------------------

    @property
    def tree(self) -> Locator:
        return self.place.get_by_role("tree")

    @property
    def nodes(self) -> Locator:
        """Every agent that is not in a collapsed branch."""
        return self.place.locator("[role=tree] [role=treeitem]")

    def node(self, path: str) -> Locator:
        return self.place.locator(f'[role=tree] [role=treeitem][data-agent-path="{path}"]')

    @property
    def paths(self) -> list[str]:
        """The paths of the shown agents, in the order of the page."""
        return [node.get_attribute("data-agent-path") or "" for node in self.nodes.all()]

    def expect_statuses(self, **statuses: str) -> None:
        """Wait until each agent has its status: `root="running"`, `_1_2="failed"` for 1.2."""
        for name, status in statuses.items():
            path = name.lstrip("_").replace("_", ".")
            expect(self.node(path)).to_have_attribute("data-status", status)

    def select(self, path: str) -> None:
        """Click an agent, and wait until its details are there."""
        self.node(path).click()
        expect(self.node(path)).to_have_attribute("aria-selected", "true")
        expect(self.details).to_have_attribute("data-agent-details", path)

    # -- the details --------------------------------------------------------------------------

    @property
    def details(self) -> Locator:
        return self.place.locator("[data-agent-details]")

    @property
    def text(self) -> Locator:
        """The selected agent's text so far."""
        return self.details.get_by_role("group", name=re.compile("^(Text|Reply)"))

    def open_prompt(self) -> Locator:
        """Open the prompt of the shown call; return its messages."""
        self.details.get_by_text(re.compile("^Prompt as sent")).click()
        return self.details.locator(".agentnb-prompt-body")

    @property
    def scrubber(self) -> Locator:
        return self.place.get_by_role("slider", name="Time of the replay")
