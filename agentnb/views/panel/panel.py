"""The panel of a run, assembled from its parts.

Each part follows the run by itself; the panel only arranges them. They wrap in a narrow cell, and
take their colours from the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipywidgets import Box, DOMWidget, Layout, VBox

from agentnb.views.panel.beside import Beside
from agentnb.views.panel.controls import (
    BudgetBar,
    BudgetNumber,
    BudgetSlider,
    CancelButton,
    PauseButton,
)
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.header import Footer, Header, Notices
from agentnb.views.panel.limits import ceiling
from agentnb.views.panel.question import BudgetQuestion
from agentnb.views.panel.tree_view import TreeView
from agentnb.views.panel.widgets import ClosableWidget, RunWidget
from agentnb.views.panel.wire import Frame
from agentnb.views.table import Table


class _Top(RunWidget, Box):
    """Header, budget and controls, in two rows while the run is running.

    When the run has ended, slider and number are hidden, since the bar shows the total, and so is
    the button that pauses; the rest fits in one row of a wide cell. "Cancel run" stays: removing it
    would lose the keyboard focus of a user who has just pressed it.
    """

    def __init__(
        self,
        publisher: FramePublisher,
        header: DOMWidget,
        bar: DOMWidget,
        *,
        pause: DOMWidget | None = None,
        cancel: DOMWidget | None = None,
        setters: Sequence[DOMWidget] = (),
    ) -> None:
        self._header, self._cancel = header, cancel
        self._setters = [*([pause] if pause else []), *setters]
        layout = Layout(flex_flow="row wrap", align_items="center", overflow="visible")
        buttons = [button for button in (pause, cancel) if button is not None]
        children = [header, *buttons, bar, *setters]
        with publisher.lock:
            # By default a box of ipywidgets scrolls by itself.
            super().__init__(children, layout=layout)
            self.publisher = publisher
            self.attach(publisher)

    def show(self, frame: Frame) -> None:
        """Rearrange the parts when the run has ended."""
        is_over = frame.summary.done
        self._header.layout.flex = "3 1 28em" if is_over else "1 1 max(16em, 100% - 17em)"
        if self._cancel is not None:
            self._cancel.layout.order = "1" if is_over else "0"  # behind the bar
        for setter in self._setters:
            setter.layout.display = "none" if is_over else ""


class RunPanel(ClosableWidget, VBox):
    """Shows a run and steers it; `close()` closes the panel and leaves the run alone.

    A run that was loaded from a file has no controls.

    Args:
        publisher: The run's frames.
        body: The widgets that show the agents; by default a `TreeView`.
        traits: Of `ipywidgets.VBox`.

    Raises:
        NotebookError: `AGENTNB_BUDGET_CEILING` is not a number of tokens.
    """

    def __init__(self, publisher: FramePublisher, *body: DOMWidget, **traits: Any) -> None:
        if publisher.commands is not None:
            ceiling()  # raises before half a panel is made
        with publisher.lock:  # all parts begin with the same frame
            parts = [*_parts(publisher), *(body or [TreeView(publisher, can_answer=True)])]
            if publisher.kept is not None and publisher.kept.footer:
                parts.append(Footer(publisher))
        self._publisher = publisher
        layout = Layout(width="100%", overflow="visible")
        super().__init__(parts, **{"layout": layout, **traits})
        self.add_class("agentnb-panel")

    def _ipython_display_(self) -> None:
        super()._ipython_display_()
        Beside(self._publisher, self._table)

    def _table(self) -> Table | None:
        """What a page without the live view shows below a line on the run."""
        return None


def _parts(publisher: FramePublisher) -> list[DOMWidget]:
    """All parts above the tree, from the top."""
    bar_layout = Layout(flex="2 1 18em", min_width="0", margin="0 10px 0 0")
    bar = BudgetBar(publisher, layout=bar_layout)
    header, notices = Header(publisher), Notices(publisher)
    if publisher.commands is None:
        return [_Top(publisher, header, bar), notices]
    slider = BudgetSlider(
        publisher,
        is_alone=False,
        readout=False,  # the number beside it shows the total
        layout=Layout(flex="2 1 16em", width="auto", min_width="0"),
        style={"description_width": "initial"},
    )
    pause, cancel = (
        button(publisher, is_alone=False, layout=Layout(width="auto", flex="0 0 auto"))
        for button in (PauseButton, CancelButton)
    )
    setters = [slider, BudgetNumber(publisher, is_alone=False)]
    return [
        _Top(publisher, header, bar, pause=pause, cancel=cancel, setters=setters),
        BudgetQuestion(publisher),
        notices,
    ]
