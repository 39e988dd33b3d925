from __future__ import annotations

import base64
import dataclasses
import os
import subprocess
import sys
from html import escape
from html.parser import HTMLParser

from agentnb.code_cells import CodeCell
from agentnb.core.records import ToolCallRecord
from agentnb.core.types import AgentNode, AgentStatus, MediaBlock
from agentnb.views.arguments import MOST_OF_CODE
from agentnb.views.markdown import answer_html
from agentnb.views.outline import outline
from agentnb.views.static import (
    ANSWER_LENGTH,
    MOST_CODE,
    MOST_PICTURES,
    static_bundle,
    tool_pictures,
)
from tests.files_of import gif, pdf, png

REPEATS = "agentnb-repeats-live-view"
# What JupyterLab 4.6 lets through in an untrusted notebook, as far as it is used here.
KEPT_WHEN_UNTRUSTED = {"white-space", "overflow-x", "line-height", "margin", "text-align"}


def tree(*, agent_id: str = "nb_20261101_k3x9aa", task: str = "Compare <b>") -> AgentNode:
    child = AgentNode(f"{agent_id}.1", agent_id, "1", "Read & note", 1, AgentStatus.FAILED)
    return AgentNode(
        agent_id, None, "root", task, 0, AgentStatus.COMPLETED, "demo/demo", 99, 1234, (child,)
    )


class Outline(HTMLParser):
    """Collects the text of the outline, and the names of all tags and style properties."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.adding = ""
        """What of the outline does not repeat a live view."""
        self.classes: list[str] = []
        self.tags: set[str] = set()
        self.properties: set[str] = set()
        self._inside = self._repeats = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if "class" in given:
            self.classes.append(str(given["class"]))
        style = given.get("style") or ""
        self.properties |= {part.split(":")[0] for part in style.split(";") if part}
        kinds = str(given.get("class")).split()
        self._inside = self._inside or "agentnb-outline" in kinds
        self._repeats = self._repeats or REPEATS in kinds

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "pre"
        self._repeats = self._inside and self._repeats and tag != "span"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.text += data
            self.adding += "" if self._repeats else data


def test_plain_text_is_the_answer_a_blank_line_and_the_outline() -> None:
    bundle = static_bundle(tree(), "**Yes.**\n\n\tNo.", notes={"1": ["error: none"]})

    assert bundle["text/plain"] == (
        "**Yes.**\n\n\tNo.\n"
        "\n"
        "root ✓ completed · Compare <b>\n"
        "└─ 1 ✗ failed · Read & note\n"
        "      error: none"
    )


def test_html_holds_the_rendered_answer_and_below_it_the_escaped_outline() -> None:
    notes = {"root": ["skipped: <i>all</i>"]}

    bundle = static_bundle(tree(), "**Yes.**", notes=notes)

    page = Outline(bundle["text/html"])
    assert page.text == outline(tree(), notes=notes)
    assert page.classes == ["agentnb-result", "agentnb-answer", "agentnb-outline"]
    assert page.tags == {"div", "pre", "p", "strong"}
    assert answer_html("**Yes.**") in bundle["text/html"]


def test_bundle_has_plain_text_and_html_and_nothing_else() -> None:
    assert set(static_bundle(tree(), "Yes.")) == {"text/plain", "text/html"}


def test_quiet_bundle_is_the_answer_alone() -> None:
    bundle = static_bundle(tree(), "**Yes.**", notes={"1": ["error: none"]}, quiet=True)

    assert bundle["text/plain"] == "**Yes.**"
    assert "agentnb-outline" not in bundle["text/html"]
    assert "Compare" not in bundle["text/html"]
    assert "<strong>Yes.</strong>" in bundle["text/html"]


def test_outline_of_a_cell_with_a_live_view_is_marked_as_what_repeats_it() -> None:
    bundle = static_bundle(tree(), "**Yes.**", unreported={})

    page = Outline(bundle["text/html"])
    assert page.classes == ["agentnb-result", "agentnb-answer", f"agentnb-outline {REPEATS}"]
    assert bundle["text/plain"] == static_bundle(tree(), "**Yes.**")["text/plain"]


def test_note_that_a_live_view_does_not_show_stays_with_the_agent_it_is_of() -> None:
    notes = {"root": ["3 tool calls"], "1": ["1 tool call", "error: <none>"]}

    bundle = static_bundle(tree(), "Yes.", notes=notes, unreported={"1": ["error: <none>"]})

    page = Outline(bundle["text/html"])
    assert page.text == outline(tree(), notes=notes)
    assert page.adding == "1 ✗ failed\n  error: <none>"
    assert set(page.classes[3:]) == {REPEATS}


def test_root_alone_still_has_its_line() -> None:
    root = AgentNode("id", None, "root", "Say hello", 0, AgentStatus.COMPLETED)

    bundle = static_bundle(root, "Hello.")

    assert bundle["text/plain"] == "Hello.\n\nroot ✓ completed · Say hello"
    assert Outline(bundle["text/html"]).text == "root ✓ completed · Say hello"


def test_control_characters_of_an_answer_are_shown_in_both_forms() -> None:
    bundle = static_bundle(tree(), "a\x1b[2Jb\ud800\n\tc")

    assert bundle["text/plain"].startswith("a\\x1b[2Jb\ufffd\n\tc\n\nroot ")
    for text in bundle.values():
        assert "\x1b" not in text
        assert text.encode().decode() == text


def test_answer_cannot_close_the_box_it_stands_in() -> None:
    bundle = static_bundle(tree(task="</pre><script>"), "</div></div><script>alert(1)</script>")

    page = Outline(bundle["text/html"])
    assert page.tags == {"div", "pre", "p"}
    assert "</pre><script>" in page.text


def test_only_styles_that_survive_without_trust_are_used() -> None:
    bundle = static_bundle(tree(), "|a|\n|-|\n|b|")

    page = Outline(bundle["text/html"])
    # JupyterLab drops the font, which its own `pre` has anyway; a page by nbconvert needs it.
    assert page.properties - {"font-family"} <= KEPT_WHEN_UNTRUSTED
    assert "white-space" in page.properties
    assert "color" not in bundle["text/html"]


def test_two_runs_of_the_same_shape_give_the_same_bytes_in_two_processes() -> None:
    code = (
        "from tests.views.test_static import static_bundle, tree\n"
        "import sys\n"
        "bundle = static_bundle(tree(agent_id=sys.argv[1]), '# A\\n[b](http://c.example) $d$')\n"
        "sys.stdout.buffer.write(repr(bundle).encode())"
    )

    def run(seed: str, agent_id: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, agent_id]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert run("1", "nb_20261101_aaaaaa") == run("2", "nb_20270202_zzzzzz") != b""


def test_answer_of_megabytes_shows_its_beginning_and_how_much_more_there_is() -> None:
    answer = "Some words that are said again.\n" * 70_000
    bundle = static_bundle(tree(), answer)

    more = f"(… and {len(answer) - ANSWER_LENGTH:,} more characters)"
    for shown in bundle.values():
        assert more in shown
        assert len(shown) < ANSWER_LENGTH * 1.1


def test_tree_of_more_agents_than_anybody_reads_ends_with_their_count() -> None:
    root = tree()
    children = tuple(dataclasses.replace(root.children[0], path=str(n)) for n in range(1, 20_001))
    many = dataclasses.replace(root, children=children)

    for shown in static_bundle(many, "Yes.").values():
        assert len(shown) < 300_000
        assert "not shown: 18,001 further agents: 18,001 failed" in shown
        assert "1999" in shown
        assert "2001" not in shown
    printed = str(many).splitlines()
    assert printed[1] == "│  not shown: 18,001 further agents: 18,001 failed"
    assert printed[-1] == "└─ 1999 ✗ failed · Read & note"


def test_whole_tree_of_a_run_with_as_many_agents_as_it_may_have_is_shown() -> None:
    root = tree()
    children = tuple(dataclasses.replace(root.children[0], path=str(n)) for n in range(1, 1_001))
    notes = {str(n): ["error: it broke"] for n in range(1, 1_000)}

    shown = static_bundle(dataclasses.replace(root, children=children), "Yes.", notes=notes)

    assert "└─ 1000 ✗ failed" in shown["text/plain"]
    assert "further" not in shown["text/plain"]


# -- agents' code ---------------------------------------------------------------------------------


def cell(source: str, path: str = "root", *, is_error: bool = False) -> CodeCell:
    return CodeCell(source, path=path, is_error=is_error)


def test_code_of_the_agents_is_in_the_html_whole_by_their_paths_and_not_in_a_quiet_cell() -> None:
    long = "\n".join(f"if x < {n}:\n    y = {n}" for n in range(500))
    code = [cell(long, "10"), cell("1 / 0", "2", is_error=True), cell("last", "10")]

    bundle = static_bundle(tree(), "Yes.", code=code)

    html = bundle["text/html"]
    assert "<summary>Code of the agents: 3 cells</summary>" in html
    places = [html.index(each) for each in ("2, ended in an error", "1 / 0", "10:", "last")]
    assert places == sorted(places)
    assert escape(long) in html
    assert bundle["text/plain"] == static_bundle(tree(), "Yes.")["text/plain"]
    assert "1 / 0" not in static_bundle(tree(), "Yes.", code=code, quiet=True)["text/html"]
    assert "agentnb-code" not in static_bundle(tree(), "Yes.")["text/html"]


def test_code_acts_nowhere_and_is_hidden_below_a_live_view_that_shows_it() -> None:
    html = static_bundle(tree(), "Yes.", unreported={}, code=[cell("</pre><script>\x1b[2J")])[
        "text/html"
    ]

    assert "<script>" not in html
    assert "&lt;/pre&gt;&lt;script&gt;\\x1b[2J" in html
    assert 'class="agentnb-code agentnb-repeats-live-view"' in html


def test_too_much_code_ends_with_a_count_of_the_cells_left_out() -> None:
    code = [cell("x" * MOST_OF_CODE)] * (MOST_CODE // MOST_OF_CODE + 2)

    html = static_bundle(tree(), "Yes.", code=code)["text/html"]

    assert html.count("<pre style") == MOST_CODE // MOST_OF_CODE
    assert "… and 2 further cells" in html


# -- what tools drew ------------------------------------------------------------------------------


def drew(path: str, number: int, *media: MediaBlock, name: str = "draw") -> ToolCallRecord:
    return ToolCallRecord("a", f"t{number}", name, {}, path=path, number=number, media=media)


def block(content: bytes, media_type: str = "image/png") -> MediaBlock:
    return MediaBlock(media_type, base64.b64encode(content).decode())


def test_last_pictures_of_tools_are_shown_in_the_order_of_paths_and_the_roots_last() -> None:
    calls = [
        drew("root", 1, block(png(2, 3)), block(gif(4, 5), "image/gif")),
        drew("10", 1, block(png(10, 10))),
        drew("2.1", 2, block(png(2, 1)), block(pdf(), "application/pdf")),
        drew("2", 1, block(png(2, 2))),
    ]

    outputs = tool_pictures(calls)

    assert outputs == tool_pictures(calls[::-1])  # they may end in any order
    captions, pictures = outputs[::2], outputs[1::2]
    assert [data["text/plain"] for data, _ in captions] == [
        "2.1, draw: picture 1 of call 2 (image/png, 2 x 1)",
        "10, draw: picture 1 of call 1 (image/png, 10 x 10)",
        "root, draw: picture 1 of call 1 (image/png, 2 x 3)",
        "root, draw: picture 2 of call 1 (image/gif, 4 x 5)",
    ]
    assert len(pictures) == MOST_PICTURES
    data, about = pictures[-1]
    assert set(data) == {"image/gif", "text/plain"}
    assert about == {"image/gif": {"alt": data["text/plain"]}}


def test_pictures_of_tools_have_nothing_that_acts() -> None:
    hostile = MediaBlock("text/html", base64.b64encode(b"<script>").decode())
    wrong = MediaBlock("image/png", base64.b64encode(b"<svg onload=alert(1)>").decode())

    outputs = tool_pictures([drew("root", 1, hostile, wrong, block(png()), name="<b>draw")])

    (caption, _), (picture, _) = outputs
    assert "root, &lt;b&gt;draw: picture 3 of call 1" in caption["text/html"]
    assert "<b>" not in caption["text/html"]
    assert set(picture) == {"image/png", "text/plain"}
