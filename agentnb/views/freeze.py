"""Removes live views from a saved notebook.

A live view is useless without its kernel: a reopened notebook would show "model not found". The
picture, outline and answer are in other outputs and stay. Only outputs that this package marked
are removed; everything else stays unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentnb.core.text import visible
from agentnb.errors import UnreadableNotebook
from agentnb.files import read_file, replace_file

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
LIVE_VIEW: dict[str, Any] = {"agentnb": {"view": "live"}}
"""Metadata that marks an output as a live view of this package."""
IN_WORDS: dict[str, Any] = {"agentnb": {"view": "in words"}}
"""Marks the words beside one. They may say how a run stood, so no comparison looks at them."""

_WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
_MODEL = "IPY_MODEL_"
"""Begins a reference to another model in a model's state."""

_MOST_BYTES = 2**30

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def frozen(notebook: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a notebook without live views.

    Their saved state is removed, too, and that of views which are gone already; all state of
    widgets if no view of a widget is left.

    Args:
        notebook: The parsed document, format 4. It is not changed.

    Returns:
        The new document, and the number of removed views.
    """
    gone: list[Any] = []
    cells = []
    for cell in notebook["cells"]:
        outputs = _outputs(cell)
        kept = [each for each in outputs if not (_is_live_view(each) or _is_taken_back(each))]
        gone += filter(_is_live_view, outputs)
        cells.append({**cell, "outputs": kept} if len(kept) < len(outputs) else cell)
    remaining = {**notebook, "cells": cells}
    metadata = notebook.get("metadata")
    if not isinstance(metadata, dict):
        return remaining, len(gone)
    shown = [output for cell in cells for output in _outputs(cell) if _is_widget(output)]
    if gone and not shown:
        remaining["metadata"] = {k: value for k, value in metadata.items() if k != "widgets"}
    elif (state := _state_in(metadata)) is not None:
        left = _without(state, _model_ids(gone), _model_ids(shown))
        if len(left) < len(state):
            widgets = metadata["widgets"]
            saved = {**widgets[_WIDGET_STATE], "state": left}
            remaining["metadata"] = {**metadata, "widgets": {**widgets, _WIDGET_STATE: saved}}
    return remaining, len(gone)


def freeze_file(path: Path) -> int:
    """Remove the live views from a saved notebook. A file without a trace of any is not written.

    Returns:
        The number of removed views.

    Raises:
        UnreadableNotebook: The file does not exist, or is not a notebook of format 4.
        OSError: The file cannot be written, and is unchanged.
    """
    read = read_document(path)
    document, total = frozen(read)
    if document != read:
        replace_file(path.resolve(), _as_text(document))  # a link would be replaced
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


def _is_taken_back(output: Any) -> bool:
    """Whether it is what is left of the words beside a view whose run has ended since."""
    is_empty = isinstance(output, dict) and output.get("data") == {}
    return is_empty and output.get("metadata") == IN_WORDS


def _is_widget(output: Any) -> bool:
    data = output.get("data") if isinstance(output, dict) else None
    return isinstance(data, dict) and WIDGET_VIEW in data


def _state_in(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The saved state of all widgets, by model; `None` if there is none, or of another form."""
    found: Any = metadata
    for name in ("widgets", _WIDGET_STATE, "state"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _model_ids(outputs: Iterable[Any]) -> set[str]:
    views = (output["data"][WIDGET_VIEW] for output in outputs)
    return {str(view.get("model_id")) for view in views if isinstance(view, dict)}


def _without(state: Mapping[str, Any], gone: set[str], shown: set[str]) -> dict[str, Any]:
    """The state without the models of our views, and without parts that only they have.

    Args:
        state: By model.
        gone: The models of the views that were removed.
        shown: The models of the views that stay.
    """
    ours = {name for name, model in state.items() if _is_ours(model)}
    removed = _with_parts(state, (gone | ours) - shown)
    kept = _with_parts(state, set(state) - removed)
    return {name: model for name, model in state.items() if name in kept}


def _is_ours(model: Any) -> bool:
    values = model.get("state") if isinstance(model, dict) else None
    if not isinstance(values, dict):
        return False
    classes = values.get("_dom_classes")
    names = [values.get("_anywidget_id"), *(classes if isinstance(classes, list) else ())]
    return any(str(name).startswith(("agentnb.", "agentnb-")) for name in names)


def _with_parts(state: Mapping[str, Any], models: set[str]) -> set[str]:
    """The models, and all that they refer to, directly or not."""
    found: set[str] = set()
    open_ones = [name for name in models if name in state]
    while open_ones:
        name = open_ones.pop()
        if name not in found:
            found.add(name)
            open_ones += [each for each in _references(state[name]) if each in state]
    return found


def _references(value: Any) -> Iterator[str]:
    values = [value]
    while values:
        each = values.pop()
        if isinstance(each, str) and each.startswith(_MODEL):
            yield each.removeprefix(_MODEL)
        elif isinstance(each, dict | list):
            values += each.values() if isinstance(each, dict) else each


def read_document(path: Path) -> dict[str, Any]:
    """A saved notebook, as it stands in its file.

    Raises:
        UnreadableNotebook: The file does not exist, or is not a notebook of format 4.
    """
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
