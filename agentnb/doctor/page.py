"""Checks, in a kernel, whether the page shows live views."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from agentnb.doctor.finding import Finding, fault, ok, warn
from agentnb.doctor.packages import Installation
from agentnb.errors import NotebookError
from agentnb.views.front_end import ALL, DISPLAY_VARIABLE, wanted_display
from agentnb.views.panel.limits import CEILING_VARIABLE, ceiling
from agentnb.views.panel.viewers import was_any_shown


def check_variables() -> Iterator[Finding]:
    """Whether the environment variables of the display have values that can be used."""
    for name, read in ((DISPLAY_VARIABLE, wanted_display), (CEILING_VARIABLE, ceiling)):
        try:
            read()
        except NotebookError as error:
            yield fault("display", str(error), f"set {name} again, or unset it")


def check_page(here: Installation, *, wanted: str, displayed: bool, shown: bool) -> Finding:
    """Whether a page shows live views, as far as that is known.

    Args:
        here: What is installed.
        wanted: What cells show: see `wanted_display`.
        displayed: Whether this kernel gave the page a live view that was not taken back.
        shown: Whether a page ever said that it shows one.
    """
    if wanted not in (ALL, "widget"):
        return ok("live views", f"turned off by {DISPLAY_VARIABLE}={wanted}")
    if shown:
        return ok("live views", "a page has shown one")
    if displayed:
        found = "no page has reported showing a live view of this kernel"
        if here.is_colab:
            code = "from google.colab import output; output.enable_custom_widget_manager()"
            return warn("live views", found, f"run `{code}`, then the cell again")
        return warn(
            "live views",
            found,
            f"`{here.pip} install jupyterlab_widgets anywidget` in the environment of JupyterLab, "
            "start it again, and load the page again",
        )
    return ok("live views", "none yet: run a `%%spawn` cell, then this again")


def read_page(here: Installation) -> Iterator[Finding]:
    """The state of this kernel's page; nothing if a variable is wrong (see that check)."""
    try:
        wanted = wanted_display()
    except NotebookError:
        return
    # Without an import: the module loads ipywidgets, and nothing was displayed without it.
    module = sys.modules.get("agentnb.views.panel.show")
    displayed = module is not None and bool(module.is_any_displayed())
    yield check_page(here, wanted=wanted, displayed=displayed, shown=was_any_shown())
