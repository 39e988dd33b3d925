"""Figures of a run: its tree, its time, its tokens.

Importing this loads no matplotlib; drawing does. A figure is a `matplotlib.figure.Figure` made
without pyplot. See `agentnb.views.figures.figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentnb.core.events import Row
from agentnb.core.types import AgentNode

if TYPE_CHECKING:
    from agentnb.views.figures.figure import RunFigure

__all__ = ["plot_timeline", "plot_tokens", "plot_tree"]


def plot_tree(root: AgentNode | None, *, dark: bool = False) -> RunFigure:
    """The tree: path, status, task and tokens of each agent.

    Up to some 300 agents have labels. In larger trees leaves are bare marks and the deepest levels
    are merged.

    Args:
        root: The tree; `None` before the run has one: the figure then says so.
        dark: For a dark page.
    """
    from agentnb.views.figures.tree import tree_figure

    return tree_figure(root, dark=dark)


def plot_timeline(rows: Sequence[Row], *, dark: bool = False) -> RunFigure:
    """One bar for each agent over time, below the use of the budget.

    Args:
        rows: The rows of a record, from its beginning; the run may have ended, be running, or not
            have begun.
        dark: For a dark page.
    """
    from agentnb.views.figures.timeline import timeline_figure

    return timeline_figure(rows, dark=dark)


def plot_tokens(root: AgentNode | None, *, dark: bool = False) -> RunFigure:
    """One bar for each agent's own tokens, the largest first.

    Args:
        root: The tree; `None` before the run has one: the figure then says so.
        dark: For a dark page.
    """
    from agentnb.views.figures.tokens import tokens_figure

    return tokens_figure(root, dark=dark)
