"""What a cell shows of a run that has ended: its tree and its answer, in one output.

The output is new and final, holds no ids and no times, and is the same in every replay, so
that a saved notebook reads well and can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from IPython.display import display

from agentnb.core.errors import NotebookError
from agentnb.core.types import OrchestratorResult
from agentnb.views.static import static_bundle

DISPLAY_VARIABLE = "AGENTNB_DISPLAY"
_PARTS = ("static", "text", "none")


def wanted_display() -> str:
    """`static` (rich and plain), `text` (plain only) or `none`, from `AGENTNB_DISPLAY`.

    Raises:
        NotebookError: The variable holds something else.
    """
    wanted = os.environ.get(DISPLAY_VARIABLE, "").strip().lower() or "static"
    if wanted not in _PARTS:
        raise NotebookError(
            f"The environment variable {DISPLAY_VARIABLE} is {wanted!r}: set it to one of "
            f"{', '.join(_PARTS)}, or remove it."
        )
    return wanted


def show_result(
    result: OrchestratorResult, *, notes: Mapping[str, Sequence[str]], quiet: bool = False
) -> None:
    """Display how a run ended, also when it ended early."""
    wanted = wanted_display()
    if wanted == "none":
        return
    bundle = static_bundle(result.agent_tree, result.final_response, notes=notes, quiet=quiet)
    if wanted == "text":
        bundle = {"text/plain": bundle["text/plain"]}
    display(bundle, raw=True)  # type: ignore[no-untyped-call]  # IPython has no types here


def has_something_to_show(result: OrchestratorResult) -> bool:
    """Whether a run that ended early had reached anything beyond its error."""
    return bool(result.sub_agent_results or result.total_tokens_used)
