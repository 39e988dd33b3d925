"""What stays in a cell when nothing is alive: a picture, an outline of the tree, the answer.

It is seen without a kernel, without JavaScript and without trust, and the same run gives the
same bytes in every replay, so that a saved notebook can be compared with a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from agentnb.core.types import AgentNode
from agentnb.views.figures import plot_tree
from agentnb.views.markdown import answer_html
from agentnb.views.outline import outline
from agentnb.views.text import visible_text

# JupyterLab wraps the lines of every `pre`, which breaks the branches of a tree, and strips a
# `style` element from an untrusted notebook, but not these properties from an attribute. No
# colours: those of the theme are right in the light and in the dark one.
_OUTLINE_STYLE = (
    "font-family:monospace;white-space:pre;overflow-x:auto;line-height:1.2;margin:0 0 1em 0"
)


def static_bundle(
    root: AgentNode,
    answer: str,
    *,
    notes: Mapping[str, Sequence[str]] | None = None,
    quiet: bool = False,
) -> dict[str, str]:
    """The final output of a cell, as MIME types to text.

    Args:
        root: The tree as it ended.
        answer: What the run answered, in Markdown; data, whatever it holds.
        notes: Further lines for the outline, by the path of an agent.
        quiet: Show the answer alone.
    """
    plain = [visible_text(answer)]
    html = [f'<div class="agentnb-answer">\n{answer_html(answer)}</div>']
    if not quiet:
        tree = outline(root, notes=notes)
        plain.insert(0, tree)
        html.insert(0, outline_html(tree))
    return {
        "text/plain": "\n\n".join(plain),
        "text/html": "\n".join(['<div class="agentnb-result">', *html, "</div>"]),
    }


def outline_html(tree: str) -> str:
    """An outline as HTML, with its lines as they are."""
    return f'<pre class="agentnb-outline" style="{_OUTLINE_STYLE}">{escape(tree)}</pre>'


def picture_bundle(root: AgentNode) -> tuple[dict[str, str], dict[str, Any]]:
    """The picture of a tree as it ended, as data and metadata of an output of its own.

    Its plain text is the alternative text: paths and statuses on one line.
    """
    figure = plot_tree(root)
    data, about = figure.bundle()
    return {**data, "text/plain": figure.alt_text}, about
