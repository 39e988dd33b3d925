"""The findings of axe in a page."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

SERIOUS = ("serious", "critical")
# axe is loaded once for each page, and reports only what is used: both cost more than the search.
_RUN = """async ([context, options]) => {
    const {violations} = await axe.run(context, options);
    return violations;
}"""
_OPTIONS = {
    "resultTypes": ["violations"],
    "preload": False,  # needed only by rules on media and on the device's orientation
    # An experimental rule, for speech input: it is off by default.
    "rules": {"label-content-name-mismatch": {"enabled": True}},
}


def findings(page: Page, context: str) -> list[str]:
    """The serious findings of axe in a part of a page, one line each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    return [
        f"{found['id']} ({found['impact']}): {node['html'][:200]}"
        for found in page.evaluate(_RUN, [context, _OPTIONS])
        if found["impact"] in SERIOUS
        for node in found["nodes"]
    ]
