"""A cell's static output: the answer, an outline of the tree, the code that ran, pictures.

It needs no kernel, no JavaScript and no trust. The same run gives the same bytes in every replay,
so that a saved notebook can be compared with a fresh one. The answer comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from agentnb.code_cells import CodeCell
from agentnb.core.media import described
from agentnb.core.records import ToolCallRecord
from agentnb.core.shown import counted
from agentnb.core.text import visible, visible_text
from agentnb.core.types import ROOT_PATH, AgentNode, path_key
from agentnb.views.arguments import shown_code
from agentnb.views.figures import plot_tree
from agentnb.views.markdown import answer_html
from agentnb.views.outline import MOST_LINES, MOST_NOTES, outline, outline_parts, shortened

# JupyterLab wraps the lines of every `pre`, which breaks the branches of a tree. In an untrusted
# notebook it strips `style` elements, but keeps these properties in an attribute. No colours: the
# theme's are right for light and dark pages.
_OUTLINE_STYLE = (
    "font-family:monospace;white-space:pre;overflow-x:auto;line-height:1.2;margin:1em 0"
)
_CODE_STYLE = "font-family:monospace;white-space:pre-wrap;margin:0.3em 0 1em 1em"

ANSWER_LENGTH = 200_000
"""Most characters of an answer in a cell: eight times the default length of a model's reply."""

MOST_PICTURES = 4
"""Most pictures of tools in a cell."""

MOST_CODE = 100_000
"""Most characters of agents' code in a cell; the middle of long code is cut out before."""

_REPEATS = "agentnb-repeats-live-view"
"""The class of parts that `cell.css` hides after a live view of the same run."""


def static_bundle(
    root: AgentNode,
    answer: str,
    *,
    notes: Mapping[str, Sequence[str]] | None = None,
    quiet: bool = False,
    unreported: Mapping[str, Sequence[str]] | None = None,
    code: Iterable[CodeCell] = (),
) -> dict[str, str]:
    """The final output of a cell, as MIME types to text.

    Args:
        root: The tree at the end of the run.
        answer: The run's answer, in Markdown; untrusted. One longer than `ANSWER_LENGTH` is cut,
            with a line that says how much is left out.
        notes: Lines for the outline, by the path of an agent. A long tree is cut, with a count.
        quiet: Show only the answer.
        unreported: If the cell may also show the run live: the `notes` that the live view does not
            show. The rest of the outline is marked as repeating it. `None` marks nothing.
        code: The code that the agents ran; the HTML shows it on a click.
    """
    answer = beginning(answer, ANSWER_LENGTH)
    plain = [visible_text(answer)]
    html = [f'<div class="agentnb-answer">\n{answer_html(answer)}</div>']
    if not quiet:
        kept_unreported = {path: [*lines] for path, lines in (unreported or {}).items()}
        root, notes = shortened(
            root, notes or {}, lines=MOST_LINES, notes_each=MOST_NOTES, unreported=kept_unreported
        )
        tree = outline(root, notes=notes)
        plain.append(tree)
        html.append(
            outline_html(tree)
            if unreported is None
            else _outline_below_live_view(
                outline_parts(root, notes=notes, unreported=kept_unreported)
            )
        )
        html += _code_html(code, repeats=unreported is not None)
    return {
        "text/plain": "\n\n".join(plain),
        "text/html": "\n".join(['<div class="agentnb-result">', *html, "</div>"]),
    }


def beginning(text: str, length: int) -> str:
    """A text, or its beginning and the number of characters left out."""
    if len(text) <= length:
        return text
    return f"{text[:length]}…\n\n(… and {len(text) - length:,} more characters)"


def outline_html(tree: str) -> str:
    """An outline as HTML."""
    return _in_pre(escape(tree))


def _code_html(code: Iterable[CodeCell], *, repeats: bool) -> list[str]:
    """Agents' code as HTML that opens with a click; empty without code.

    It is ordered by path and by the calls of an agent, as in every replay.
    """
    cells = sorted(code, key=lambda cell: path_key(cell.path))
    if not cells:
        return []
    classes = f"agentnb-code {_REPEATS}" if repeats else "agentnb-code"
    title = f"Code of the agents: {counted(len(cells), 'cell')}"
    html = [f'<details class="{classes}"><summary>{title}</summary>']
    room = MOST_CODE
    for place, cell in enumerate(cells):
        shown = shown_code(cell)
        room -= len(shown)
        if room < 0:
            html.append(f"<div>… and {counted(len(cells) - place, 'further cell')}</div>")
            break
        end = ", ended in an error" if cell.is_error else ""
        html.append(f"<div>{escape(cell.path)}{end}:</div>")
        html.append(f'<pre style="{_CODE_STYLE}">{escape(shown)}</pre>')
    return [*html, "</details>"]


def _outline_below_live_view(parts: Sequence[tuple[str, bool]]) -> str:
    """An outline as HTML, from the parts of `outline_parts`."""
    if not any(adds for _, adds in parts):
        return _in_pre(escape("".join(text for text, _ in parts)), _REPEATS)
    return _in_pre(
        "".join(
            escape(text) if adds else f'<span class="{_REPEATS}">{escape(text)}</span>'
            for text, adds in parts
        )
    )


def _in_pre(lines: str, *more_classes: str) -> str:
    classes = " ".join(["agentnb-outline", *more_classes])
    return f'<pre class="{classes}" style="{_OUTLINE_STYLE}">{lines}</pre>'


def picture_bundle(root: AgentNode) -> tuple[dict[str, str], dict[str, Any]]:
    """The picture of an ended run's tree, as an output's data and metadata.

    Its plain text is the alternative text: paths and statuses on one line.
    """
    figure = plot_tree(root)
    data, about = figure.bundle()
    return {**data, "text/plain": figure.alt_text}, about


def tool_pictures(
    calls: Iterable[ToolCallRecord],
) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The last images that a run's tools returned: each as a caption and a picture.

    They are ordered by path and call, which are the same in every replay (times are not). The
    root's images come last.

    Args:
        calls: Tool calls of the run, in any order.

    Returns:
        Data and metadata of outputs, at most two for each of `MOST_PICTURES`.
    """
    in_order = sorted(
        calls, key=lambda call: (call.path == ROOT_PATH, path_key(call.path), call.number)
    )
    found = [
        (call, place, block)
        for call in in_order
        for place, block in enumerate(call.media, 1)
        if block.is_image
    ]
    outputs = list[tuple[dict[str, str], dict[str, Any]]]()
    for call, place, block in found[-MOST_PICTURES:]:
        caption = (
            f"{call.path}, {visible(call.name, 60)}: picture {place} of call {call.number} "
            f"({described(block)})"
        )
        html = f'<div class="agentnb-picture-caption">{escape(caption)}</div>'
        outputs.append(({"text/html": html, "text/plain": caption}, {}))
        outputs.append((
            {block.media_type: block.data, "text/plain": caption},
            {block.media_type: {"alt": caption}},
        ))  # fmt: skip
    return outputs
