"""Removes live views from a saved notebook.

A live view is useless without its kernel: a reopened notebook would show "model not found". The
picture, outline and answer are in other outputs and stay. Only outputs that this package marked
are removed; everything else stays unchanged.
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
"""Metadata that marks an output as a live view of this package."""

_MOST_BYTES = 2**30

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def frozen(notebook: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a notebook without live views.

    The saved state of widgets is removed too if no view of a widget is left.

    Args:
        notebook: The parsed document, format 4. It is not changed.

    Returns:
        The new document, and the number of removed views.
    """
    total = 0
    cells = []
    for cell in notebook["cells"]:
        kept = [output for output in _outputs(cell) if not _is_live_view(output)]
        removed = len(_outputs(cell)) - len(kept)
        cells.append({**cell, "outputs": kept} if removed else cell)
        total += removed
    remaining = {**notebook, "cells": cells}
    metadata = notebook.get("metadata")
    if total and isinstance(metadata, dict) and not _shows_widgets(cells):
        remaining["metadata"] = {k: value for k, value in metadata.items() if k != "widgets"}
    return remaining, total


def freeze_file(path: Path) -> int:
    """Remove the live views from a saved notebook. A file without any is not written.

    Returns:
        The number of removed views.

    Raises:
        UnreadableNotebook: The file does not exist, or is not a notebook of format 4.
        OSError: The file cannot be written, and is unchanged.
    """
    document, total = frozen(_read(path))
    if total:
        replace_file(path, _as_text(document))
    return total


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
        raise UnreadableNotebook(source, "it is not a notebook of format 4, which has `cells`")
    return document


def _as_text(document: dict[str, Any]) -> str:
    """Format as `nbformat` and JupyterLab do, but keep the order of keys."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    # JSON allows a lone surrogate as an escape; UTF-8 does not.
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
