"""What stays in a cell when nothing is alive: the answer, an outline of the tree, a picture.

It is seen without a kernel, without JavaScript and without trust, and the same run gives the
same bytes in every replay, so that a saved notebook can be compared with a fresh one. The answer
comes first: it is what the person asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from agentnb.core.text import visible_text
from agentnb.core.types import AgentNode
from agentnb.views.figures import plot_tree
from agentnb.views.markdown import answer_html
from agentnb.views.outline import MOST_LINES, MOST_NOTES, outline, outline_parts, shortened

# JupyterLab wraps the lines of every `pre`, which breaks the branches of a tree, and strips a
# `style` element from an untrusted notebook, but not these properties from an attribute. No
# colours: those of the theme are right in the light and in the dark one.
_OUTLINE_STYLE = (
    "font-family:monospace;white-space:pre;overflow-x:auto;line-height:1.2;margin:1em 0"
)

ANSWER_LENGTH = 200_000
"""Characters of an answer in a cell: eight times what a model writes in one reply by default."""

_REPEATS = "agentnb-repeats-live-view"
"""The class of what `cell.css` hides, while a live view of the same run stands before it."""


def static_bundle(
    root: AgentNode,
    answer: str,
    *,
    notes: Mapping[str, Sequence[str]] | None = None,
    quiet: bool = False,
    untold: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str]:
    """The final output of a cell, as MIME types to text.

    Args:
        root: The tree as it ended.
        answer: What the run answered, in Markdown; data, whatever it holds. Of one that is longer
            than `ANSWER_LENGTH` the beginning is shown, and how much more there is.
        notes: Further lines for the outline, by the path of an agent. What nobody would read of a
            long tree ends with its count.
        quiet: Show the answer alone.
        untold: For a cell that may show the run live, too: those of `notes` that a live view does
            not tell. All else of the outline is marked as what repeats it. `None`: nothing is.
    """
    answer = beginning(answer, ANSWER_LENGTH)
    plain = [visible_text(answer)]
    html = [f'<div class="agentnb-answer">\n{answer_html(answer)}</div>']
    if not quiet:
        kept_untold = {path: [*lines] for path, lines in (untold or {}).items()}
        root, notes = shortened(
            root, notes or {}, lines=MOST_LINES, notes_each=MOST_NOTES, untold=kept_untold
        )
        tree = outline(root, notes=notes)
        plain.append(tree)
        html.append(
            outline_html(tree)
            if untold is None
            else _outline_below_live_view(outline_parts(root, notes=notes, untold=kept_untold))
        )
    return {
        "text/plain": "\n\n".join(plain),
        "text/html": "\n".join(['<div class="agentnb-result">', *html, "</div>"]),
    }


def beginning(text: str, length: int) -> str:
    """A text, or its beginning and how much more of it there is."""
    if len(text) <= length:
        return text
    return f"{text[:length]}…\n\n(… and {len(text) - length:,} more characters)"


def outline_html(tree: str) -> str:
    """An outline as HTML, with its lines as they are."""
    return _in_pre(escape(tree))


def _outline_below_live_view(parts: Sequence[tuple[str, bool]]) -> str:
    """An outline as HTML, from its text in parts, each with whether it adds to a live view."""
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
    """The picture of a tree as it ended, as data and metadata of an output of its own.

    Its plain text is the alternative text: paths and statuses on one line.
    """
    figure = plot_tree(root)
    data, about = figure.bundle()
    return {**data, "text/plain": figure.alt_text}, about
