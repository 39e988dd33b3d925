"""A backend of matplotlib whose `show` does nothing: a call's open figures are taken at its end."""

from __future__ import annotations

from typing import Any

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg


class FigureManager(FigureManagerBase):
    """Shows nothing."""

    @classmethod
    def pyplot_show(cls, *args: Any, **kwargs: Any) -> None:
        """See `FigureManagerBase`."""

    def show(self) -> None:
        """See `FigureManagerBase`."""


class FigureCanvas(FigureCanvasAgg):
    """Draws into memory."""

    manager_class = FigureManager
