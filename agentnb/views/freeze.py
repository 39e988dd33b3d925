"""What remains of a saved notebook when the live views are taken out of it.

A live view is nothing without the kernel that made it: opened tomorrow, it would show "model not
found". What tells the story (picture, outline, answer) stands in outputs of its own and stays.
Only what this package has marked as its own is taken, and everything else is left as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentnb.core.text import visible
from agentnb.errors import UnreadableNotebook
from agentnb.files import read_file, replace_file

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
LIVE_VIEW: dict[str, Any] = {"agentnb": {"view": "live"}}
"""The metadata of an output that is a live view of this package."""

_MOST_BYTES = 2**30

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def frozen(notebook: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """A notebook without live views.

    The saved state of widgets goes with the last view of a widget.

    Args:
        notebook: The document, format 4, as JSON reads it. It is not changed.

    Returns:
        The document, and how many views were taken out of it.
    """
    taken = 0
    cells = []
    for cell in notebook["cells"]:
        kept = [output for output in _outputs(cell) if not _is_live_view(output)]
        here = len(_outputs(cell)) - len(kept)
        cells.append({**cell, "outputs": kept} if here else cell)
        taken += here
    remaining = {**notebook, "cells": cells}
    metadata = notebook.get("metadata")
    if taken and isinstance(metadata, dict) and not _shows_widgets(cells):
        remaining["metadata"] = {k: value for k, value in metadata.items() if k != "widgets"}
    return remaining, taken


def freeze_file(path: Path) -> int:
    """Take the live views out of a saved notebook. Where there is none, it is not touched.

    Returns:
        How many there were.

    Raises:
        UnreadableNotebook: The file is not there, or is no notebook of format 4.
        OSError: It cannot be written. It is as it was.
    """
    document, taken = frozen(_read(path))
    if taken:
        replace_file(path, _as_text(document))
    return taken


def _outputs(cell: Any) -> list[Any]:
    outputs = cell.get("outputs") if isinstance(cell, dict) else None
    return outputs if isinstance(outputs, list) else []


def _is_live_view(output: Any) -> bool:
    if not _is_widget(output):
        return False
    metadata = output.get("metadata")
    mark = metadata.get("agentnb") if isinstance(metadata, dict) else None
    return bool(mark == LIVE_VIEW["agentnb"])


def _is_widget(output: Any) -> bool:
    data = output.get("data") if isinstance(output, dict) else None
    return isinstance(data, dict) and WIDGET_VIEW in data


def _shows_widgets(cells: list[Any]) -> bool:
    return any(_is_widget(output) for cell in cells for output in _outputs(cell))


def _read(path: Path) -> dict[str, Any]:
    source = str(path)
    try:
        document = json.loads(read_file(path, max_bytes=_MOST_BYTES).decode("utf-8-sig"))
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in {visible(str(Path.cwd()), 200)}"
        raise UnreadableNotebook(source, f"there is no such file{where}") from None
    except IsADirectoryError:
        raise UnreadableNotebook(source, "it is a folder") from None
    except (ValueError, RecursionError) as error:
        why = visible(str(error), 120)
        raise UnreadableNotebook(source, f"it is not JSON ({why})") from None
    except OSError as error:
        raise UnreadableNotebook(source, error.strerror or type(error).__name__) from error
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise UnreadableNotebook(source, "it is no notebook of format 4, which has `cells`")
    return document


def _as_text(document: dict[str, Any]) -> str:
    """As `nbformat` and so JupyterLab write it, but for the order of keys, which stays."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    # Half a character may stand in JSON as an escape, and cannot stand in UTF-8.
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
