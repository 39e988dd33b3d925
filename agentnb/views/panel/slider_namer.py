"""A name for the handle of a slider that stands in a page without a tree.

ipywidgets gives the handle none: to a screen reader it would be "slider, 50000", of what nobody
knows, and its look is lost in forced colours. Nothing in Python can reach it, so a widget that is
never shown brings the few lines of JavaScript that do.
"""

from __future__ import annotations

import anywidget
import traitlets

from agentnb.views.panel.module import STATIC, joined_module
from agentnb.views.panel.widgets import ClosableWidget


class SliderNamer(ClosableWidget, anywidget.AnyWidget):
    """Names the budget sliders of the pages of this kernel, as long as it is open."""

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        css = (STATIC / "controls.css").read_text("utf-8")
        super().__init__(_esm=joined_module("slider_namer.js"), _css=css)
