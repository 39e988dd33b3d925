"""Notebooks made by hand for a test. nbformat has no types; here it gets the few that are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode, v4

_cell: Callable[..., NotebookNode] = v4.new_code_cell
_words: Callable[..., NotebookNode] = v4.new_markdown_cell
_output: Callable[..., NotebookNode] = v4.new_output
_notebook: Callable[..., NotebookNode] = v4.new_notebook
_read: Callable[..., NotebookNode] = nbformat.read
_write: Callable[..., None] = nbformat.write


def code(source: str, *outputs: NotebookNode, tags: Sequence[str] = ()) -> NotebookNode:
    """A code cell."""
    return _cell(source, outputs=list(outputs), metadata={"tags": list(tags)} if tags else {})


def words(text: str) -> NotebookNode:
    """A Markdown cell."""
    return _words(text)


def output(kind: str, data: dict[str, str] | None = None, **fields: Any) -> NotebookNode:
    """An output of a code cell."""
    return _output(kind, data, **fields)


def notebook(*cells: NotebookNode) -> NotebookNode:
    """A notebook that is not saved yet."""
    return _notebook(cells=list(cells))


def save(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook as a front end would."""
    _write(notebook, path)


def load(path: Path) -> NotebookNode:
    """Read a notebook of any version."""
    return _read(path, as_version=4)
