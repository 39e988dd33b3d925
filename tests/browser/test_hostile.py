"""A model's text stays text: markup and scripts, in any place, are shown and do nothing.

The desk itself fails a test whose page requested anything outside, or opened a dialog.
"""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.scripts import scripted
from tests.views.textbook import ORDINARY

OUTSIDE = "http://outside.example"
HOSTILE = {
    "image": f'<img src="{OUTSIDE}/a.png" onerror="alert(1)">',
    "script": f'</script><script>alert(2); fetch("{OUTSIDE}/b")</script>',
    "svg": f'<svg onload="alert(3)"><image href="{OUTSIDE}/c.svg"/></svg>',
    "style": f'<style>* {{ display: none }} @import "{OUTSIDE}/d.css";</style>',
    "frame": f'<iframe srcdoc="<script>parent.alert(4)</script>" src="{OUTSIDE}/e"></iframe>',
    "markdown": f"![picture]({OUTSIDE}/f.png) [link](javascript:alert(5))",
    "attribute": f"\"' onmouseover='alert(6)' style='background:url({OUTSIDE}/g)'",
    "terminal": "\x1b[31mred\x1b[0m\x07",
    "direction": "safe \u202egnp.exe\u202c end",
    "surrogate": "half \ud83d of it",
    "template": "{{constructor.constructor('alert(7)')()}}",
}


def test_hostile_text_is_shown_wherever_a_model_can_put_it(desk: Desk) -> None:
    evils = list(HOSTILE.values())
    replies = f"""(lambda evils: {{
        "root": [
            spawn(*["calm: " + evil for evil in evils], *["broken: " + evil for evil in evils]),
            "The answer: " + " ".join(evils),
        ],
        **{{"calm: " + evil: "It says: " + evil for evil in evils}},
        **{{"broken: " + evil: LlmError("It broke: " + evil, status_code=400) for evil in evils}},
    }})({evils!r})"""
    notebook = desk.notebook(
        scripted(replies),
        f"run = agentnb.get_session().spawn({'The task: ' + ' '.join(evils)!r})\nrun.panel()",
        "await run",
    )
    notebook.run(0, 1, 2)
    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="completed", _1="completed")
    expect(panel.node("root")).to_contain_text(as_shown("image"))
    expect(panel.text).to_contain_text("The answer: ")
    for kind in HOSTILE:
        expect(panel.text).to_contain_text(as_shown(kind))

    for number, kind in enumerate(HOSTILE, start=1):
        shown = as_shown(kind)
        calm, broken = str(number), str(number + len(HOSTILE))
        expect(panel.node(calm)).to_contain_text(shown)
        expect(panel.node(broken)).to_contain_text(shown)
        expect(panel.node(broken)).to_have_attribute("data-status", "failed")
        panel.select(broken)
        expect(panel.details).to_contain_text("It broke: ")
        expect(panel.details.locator("[data-fact=error]")).to_contain_text(shown)
        panel.select(calm)
        expect(panel.text).to_contain_text(shown)
    panel.select("root")
    expect(panel.open_prompt()).to_contain_text(as_shown("frame"))
    foreign = panel.place.locator(".agentnb-tree-view").locator("img, script, style, iframe, a")
    expect(foreign).to_have_count(0)
    expect(panel.tree).to_be_visible()


HOSTILE_TOOLS = """
import agentnb
from agentnb.core.types import ToolUse

def find(q: str, context: agentnb.ToolContext) -> str:
    context.report("Report: " + q)
    return "Result: " + q

def fail(q: str) -> str:
    raise ValueError("Error: " + q)
"""


def test_hostile_names_arguments_and_results_of_tools_are_shown_as_text(desk: Desk) -> None:
    evils = list(HOSTILE.values())
    replies = f"""{{
        "root": [
            Reply(tool_uses=tuple(
                ToolUse(f"{{name}}{{number}}", name, {{"q": evil}})
                for number, evil in enumerate({evils!r})
                for name in ("find", "fail", evil)
            )),
            "Well.",
        ],
    }}"""
    setup = scripted(replies, settings="tools=[find, fail]")
    notebook = desk.notebook(
        HOSTILE_TOOLS,
        setup,
        "run = agentnb.get_session().spawn('Do it.')\nrun.panel()",
        "await run",
    )
    notebook.run(0, 1, 2, 3)
    panel = Panel(notebook.output(2))
    panel.expect_statuses(root="completed")

    expect(panel.node("root")).to_contain_text(f"{3 * len(evils)} calls, {2 * len(evils)} errors")
    calls = panel.details.get_by_role("list").get_by_role("listitem")
    expect(calls).to_have_count(3 * len(evils))
    for button in panel.details.get_by_role("button", name="Show all of it").all()[::-1]:
        button.click()
    for number, kind in enumerate(HOSTILE):
        shown = as_shown(kind)
        found, failed, unknown = (calls.nth(3 * number + place) for place in range(3))
        expect(found).to_contain_text("Result: ")
        expect(found.locator(".agentnb-tool-text").last).to_contain_text(shown)
        expect(failed).to_contain_text("ValueError: Error: ")
        expect(failed.locator(".agentnb-tool-text").last).to_contain_text(shown)
        expect(unknown.locator(".agentnb-tool-name")).to_contain_text(shown)
        expect(unknown).to_contain_text("There is no tool")
    foreign = panel.place.locator(".agentnb-tree-view").locator("img, script, style, iframe, a")
    expect(foreign).to_have_count(0)
    expect(panel.tree).to_be_visible()


def test_line_of_a_megabyte_is_shown_and_the_page_keeps_working(desk: Desk) -> None:
    replies = """{
        "root": [spawn("long"), "Brought together."],
        "long": "x" * 1_000_000 + " and the end of it",
    }"""
    setup = scripted(replies, settings="max_output_tokens=1_000_000, budget=10_000_000")
    notebook = desk.notebook(setup, "%%spawn\n" + "y" * 1_000_000)
    notebook.run(0, 1)
    panel = Panel(notebook.output(1))
    panel.expect_statuses(root="completed", _1="completed")

    panel.select("1")
    expect(panel.text).to_contain_text("and the end of it")
    expect(panel.details).to_contain_text("Show all of")
    panel.select("root")
    expect(panel.text).to_have_text("Brought together.")
    box = panel.tree.bounding_box()
    assert box is not None
    assert box["width"] < 1280


def as_shown(kind: str) -> str:
    """The part of a hostile text by which a reader recognizes it."""
    return {
        "terminal": "\\x1b[31mred",
        "direction": "\\u202e",
        "surrogate": "half \ufffd of it",
        "markdown": "![picture](",
        "attribute": "onmouseover='alert(6)'",
    }.get(kind, HOSTILE[kind].split()[0])


OWN = r"$\sin \alpha \to \lvert x \rvert + \xrightarrow{f} \quad \text{own}$"
DEFINING = [
    r"$\DeclarePairedDelimiter{\sin}{<}{>}$",
    r"$$\DeclarePairedDelimiterX{\alpha}[1]{<}{>}{#1}$$",
    r"\(\DeclarePairedDelimiterXPP{\to}[1]{<}{>}{#1}{a}{b}\)",
    r"\[\Newextarrow{\xrightarrow}{5,5}{0x2190}\]",
    r"$\def\lvert{changed}$ $\newcommand{\quad}{changed}$ $\let\rvert\alpha$",
    r"\begin{equation}\label{own}\gdef\alpha{changed}\end{equation}",
]
CRASHING = [
    "$" + r"\frac{1}{" * 100 + "x" + "}" * 100 + "$",
    "$$" + r"\xrightarrow{" * 40 + "x" + "}" * 40 + "$$",
    r"\begin{matrix}" + "&" * 1_900 + r"\\" * 900 + r"\end{matrix}",
    "\n".join(f"$x_{{{n}}}$" for n in range(5_000)),
]


def test_formulas_of_an_answer_are_typeset_and_change_nothing_else_on_the_page(desk: Desk) -> None:
    own = f"from IPython.display import HTML\nHTML({f'<p>{OWN}</p>'!r})"
    replies = ["\n\n".join(ORDINARY), "\n\n".join([*DEFINING, *CRASHING])]
    setup = scripted(f"""{{"root": {replies!r}}}""", settings="max_output_tokens=100_000")
    ask = "%%spawn --quiet\nWhich formulas?"
    notebook = desk.notebook(own, setup, ask, ask, own)
    notebook.run(0, 1, 2, 3, 4)
    formulas = [notebook.output(cell).locator("mjx-container") for cell in range(5)]
    expect(formulas[0]).to_have_count(1)
    expect(formulas[4]).to_have_count(1)

    expect(formulas[2]).to_have_count(len(ORDINARY))
    expect(notebook.output(2).locator("mjx-merror")).to_have_count(0)
    expect(notebook.output(2).locator("[style*='color: red'], [mathcolor]")).to_have_count(0)
    expect(formulas[3]).to_have_count(500)
    said = notebook.output(3).text_content() or ""  # once: it is as long as a book
    for defining in DEFINING:
        for part in re.split(r"\s+(?=\$)", defining):
            assert part in said
    before, after = (formulas[cell].first.inner_html() for cell in (0, 4))
    assert before == after
    # A text that crashes a page would do so each time it is opened.
    notebook.save()
    notebook.reload()
    expect(notebook.output(4).locator("mjx-container")).to_have_count(1)
    expect(notebook.output(3).locator("mjx-container")).to_have_count(500)
    assert notebook.output(4).locator("mjx-container").first.inner_html() == before
