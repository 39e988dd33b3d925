"""The panel of a run: its parts, put together.

Each part follows the run by itself, so the panel adds nothing but their places. They wrap where
a cell is narrow, and take their colours from the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipywidgets import Box, DOMWidget, Layout, VBox
from ipywidgets.widgets.widget_string import HTMLStyle

from agentnb.views.panel.controls import BudgetBar, BudgetNumber, BudgetSlider, CancelButton
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.header import Header, Notices
from agentnb.views.panel.limits import ceiling
from agentnb.views.panel.question import BudgetQuestion
from agentnb.views.panel.tree_view import TreeView
from agentnb.views.panel.widgets import ClosableWidget, RunWidget
from agentnb.views.panel.wire import Frame


class _Top(RunWidget, Box):
    """Header, budget and controls, in two rows while the run goes on.

    When it has ended nothing can be set any more: slider and number go, since the bar tells the
    total, and what stays needs one row where the cell is wide. The button keeps its place: whoever
    has just pressed it would lose the place of the keyboard.
    """

    def __init__(
        self,
        publisher: FramePublisher,
        header: DOMWidget,
        bar: DOMWidget,
        *,
        cancel: DOMWidget | None = None,
        setters: Sequence[DOMWidget] = (),
    ) -> None:
        self._header, self._cancel, self._setters = header, cancel, setters
        layout = Layout(flex_flow="row wrap", align_items="center", overflow="visible")
        children = [header, *([cancel] if cancel else []), bar, *setters]
        with publisher.lock:
            # A box of ipywidgets would scroll in itself by default.
            super().__init__(children, layout=layout)
            self.publisher = publisher
            self.attach(publisher)

    def show(self, frame: Frame) -> None:
        """Make room when the run has ended."""
        is_over = frame.summary.done
        self._header.layout.flex = "3 1 28em" if is_over else "1 1 calc(100% - 9em)"
        if self._cancel is not None:
            self._cancel.layout.order = "1" if is_over else "0"  # behind the bar
        for setter in self._setters:
            setter.layout.display = "none" if is_over else ""


class RunPanel(ClosableWidget, VBox):
    """Watches a run and steers it; `close()` ends the panel, and never the run.

    A run that was loaded from a file has no controls: nothing of it can be changed.

    Raises:
        NotebookError: `AGENTNB_BUDGET_CEILING` holds no number of tokens.

    Args:
        publisher: The run's frames.
        tree: What shows the tree; made when it is left out.
        traits: Of `ipywidgets.VBox`.
    """

    def __init__(
        self, publisher: FramePublisher, tree: DOMWidget | None = None, **traits: Any
    ) -> None:
        if publisher.commands is not None:
            ceiling()  # what is wrong with it is said before there is half a panel
        with publisher.lock:  # its parts begin with the same frame
            parts = [*_parts(publisher), tree or TreeView(publisher, can_answer=True)]
        layout = Layout(width="100%", overflow="visible")
        super().__init__(parts, **{"layout": layout, **traits})
        self.add_class("agentnb-panel")


def _parts(publisher: FramePublisher) -> list[DOMWidget]:
    """All but the tree, from above.

    Each widget of a page comes as a message of its own, one after the other, and so does what it
    looks like: parts that look the same share it, for a panel that is there sooner.
    """
    page = HTMLStyle()
    bar_layout = Layout(flex="2 1 18em", min_width="0", margin="2px 12px 2px 2px")
    bar = BudgetBar(publisher, layout=bar_layout, style=page)
    header, notices = Header(publisher, page=page), Notices(publisher, style=page)
    if publisher.commands is None:
        return [_Top(publisher, header, bar), notices]
    slider = BudgetSlider(
        publisher,
        is_alone=False,
        readout=False,  # the number beside it tells it
        layout=Layout(flex="2 1 16em", width="auto", min_width="0"),
        style={"description_width": "initial"},
    )
    cancel = CancelButton(publisher, layout=Layout(width="auto", flex="0 0 auto"))
    return [
        _Top(publisher, header, bar, cancel=cancel, setters=[slider, BudgetNumber(publisher)]),
        BudgetQuestion(publisher),
        notices,
    ]
