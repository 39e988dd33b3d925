"""The rows of an input table: a data frame, or a list of strings, dicts, objects or paths."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agentnb.core.shown import listed
from agentnb.core.text import literal
from agentnb.mapping.cells import MISSING, cell_text, is_missing
from agentnb.mapping.documents import Document, DocumentReader, is_document, words_for

TEXT = "text"
"""The column of a list of strings, and of the text in a file."""
_OF_PATHS = (TEXT, "name", "path")
_KINDS = {"text": "a string", "dict": "a dict", "path": "a path", "object": "an object"}
_WANTED = "`rows` must be a data frame, or a list of strings, dicts, objects or paths, not "
_NO_DOCUMENT = frozenset({".bmp", ".tif", ".tiff", ".heic"})
"""Suffixes of images that no model accepts."""


class Table:
    """The input of a map.

    Args:
        length: Number of rows.
        columns: The names of the columns; none for a list without rows.
        read: Returns a column's values, `MISSING` for a row without it.
        frame: The input as a frame of narwhals; `None` for a list.
        index: The index of a pandas frame.
        documents: For each row the image or PDF that its agents get; empty if no row has one.
    """

    def __init__(
        self,
        length: int,
        columns: Sequence[str],
        read: Callable[[str], Sequence[Any]],
        *,
        frame: Any = None,
        index: Any = None,
        documents: Sequence[Document | None] = (),
    ) -> None:
        self.columns = tuple(columns)
        self.frame, self.index, self.documents = frame, index, tuple(documents)
        self._length, self._read = length, read
        self._known: dict[str, Sequence[Any]] = {}

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def column(self, name: str) -> Sequence[Any]:
        """The values of a column, read once; `MISSING` for a row without it.

        Raises:
            ValueError: A file cannot be read.
        """
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]


def read_rows(rows: object) -> Table:
    """Read the rows of a map; an iterator is read to its end.

    Raises:
        ValueError: It is not a table, or its rows are of several kinds.
    """
    if _may_be_frame(rows):
        table = _read_frame(rows)
        if table is not None:
            return table
    if isinstance(rows, str | bytes | Mapping | Set) or not isinstance(rows, Iterable):
        fix = ": give a list of dicts, one for each row" if isinstance(rows, Mapping) else ""
        raise ValueError(f"{_WANTED}{literal(rows)}{fix}.")
    listed = list(rows)
    match _kind_of_all(listed):
        case None:
            return Table(0, (), lambda _: [])
        case "text":
            return Table(len(listed), (TEXT,), lambda _: listed)
        case "dict":
            return _of_dicts(listed)
        case "path":
            return _of_paths([Path(path) for path in listed])
        case _:
            return _of_objects(listed)


def key_texts(table: Table, key: str | None) -> tuple[str, ...] | None:
    """The rows' keys, as strings; `None` without a key.

    Raises:
        ValueError: The column does not exist, or a value is missing or not unique.
    """
    if key is None:
        return None
    if not isinstance(key, str):
        raise ValueError(f"`key` must be the name of a column, not {literal(key)}.")
    if table.columns and key not in table:
        raise ValueError(f"`key`: {no_column(key, table.columns)}")
    found: dict[str, int] = {}
    if not len(table):
        return ()
    for at, value in enumerate(table.column(key)):
        if is_missing(value):
            raise ValueError(
                f"`rows[{at}]` has no {literal(key)}, which is the `key`: give it a value, or "
                "leave the row out."
            )
        text = cell_text(value)
        if text in found:
            raise ValueError(
                f"`rows[{at}]` and `rows[{found[text]}]` have the same `key`, {literal(text)}: "
                "name a column whose values differ, or leave `key` out."
            )
        found[text] = at
    return tuple(found)


def no_column(name: str, columns: Sequence[str]) -> str:
    """The error for a missing column: the existing ones, and the likely one."""
    folded = {column.casefold(): column for column in columns}
    near = get_close_matches(name.casefold(), folded, 1)
    fix = f"did you mean {literal(folded[near[0]])}?" if near else "name one that it has."
    has = listed(literal(column, 80) for column in columns)
    return f"The table has no column {literal(name)} (known: {has}): {fix}"


# -- lists ------------------------------------------------------------------------------------


def _kind_of_all(rows: Sequence[object]) -> str | None:
    """The kind of the rows, `None` without rows.

    Raises:
        ValueError: A row is of no known kind, or of another than the first.
    """
    first = None
    for at, row in enumerate(rows):
        kind = _kind_of(row)
        if kind is None:
            raise ValueError(
                f"`rows[{at}]` is {literal(row, 80)}; a row is a string, a dict, an object with "
                "fields, or a Path."
            )
        if first is not None and kind != first:
            raise ValueError(
                f"`rows[{at}]` is {_KINDS[kind]}, but `rows[0]` is {_KINDS[first]}: give rows of "
                "one kind."
            )
        first = kind
    return first


def _kind_of(row: object) -> str | None:
    if isinstance(row, str):
        return "text"
    if isinstance(row, Mapping):
        return "dict"
    if isinstance(row, os.PathLike):
        return "path"
    return "object" if _fields_of(row) else None


def _fields_of(row: Any) -> tuple[str, ...]:
    """The names of an object's fields; empty for a value without fields, such as a number."""
    kind = type(row)
    if hasattr(kind, "model_fields"):  # pydantic
        return (*kind.model_fields, *kind.model_computed_fields, *(row.model_extra or ()))
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return tuple(row._fields)
    if kind.__module__ == "builtins" or isinstance(row, type):
        return ()
    slots = getattr(kind, "__slots__", ())
    names = [*getattr(row, "__dict__", ()), *((slots,) if isinstance(slots, str) else slots)]
    return tuple(name for name in names if not name.startswith("_"))


def _of_dicts(rows: Sequence[Mapping[Any, Any]]) -> Table:
    keys = dict.fromkeys(key for row in rows for key in row)
    names = _checked_names([*keys])

    def read(name: str) -> list[Any]:
        key = names[name]
        return [row.get(key, MISSING) for row in rows]

    return Table(len(rows), tuple(names), read)


def _of_objects(rows: Sequence[object]) -> Table:
    columns = dict.fromkeys(name for row in rows for name in _fields_of(row))
    return Table(
        len(rows), tuple(columns), lambda name: [getattr(row, name, MISSING) for row in rows]
    )


def _of_paths(paths: Sequence[Path]) -> Table:
    reader, documents = DocumentReader(), list[Document | None]()
    for at, path in enumerate(paths):
        try:
            documents.append(attachment_of(path, reader))
        except ValueError as error:
            raise ValueError(f"`rows[{at}]`: {error}") from None
    has_texts = None in documents

    def read(name: str) -> list[str]:
        if name == TEXT:
            pairs = zip(paths, documents, strict=True)
            return [_text_of_file(at, *pair, has_texts) for at, pair in enumerate(pairs)]
        return [path.name if name == "name" else str(path) for path in paths]

    return Table(len(paths), _OF_PATHS, read, documents=documents if any(documents) else ())


def attachment_of(path: Path, reader: DocumentReader) -> Document | None:
    """The image or the PDF at a path; `None` for a text file.

    Raises:
        ValueError: It cannot be read, or no model accepts such an image.
    """
    if path.suffix.lower() in _NO_DOCUMENT:
        raise ValueError(
            f"{literal(str(path))} is not an image that models accept: save it as PNG."
        )
    return reader.read(path) if is_document(path) else None


def _text_of_file(at: int, path: Path, document: Document | None, has_texts: bool) -> str:
    if document is not None:
        try:
            return words_for(document, has_texts=has_texts)
        except ValueError as error:
            raise ValueError(f"`rows[{at}]`: {error}") from None
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        why = "it is not UTF-8 text: convert it first"
    except OSError as error:
        why = f"{error.strerror or error}: check the path"
    raise ValueError(f"`rows[{at}]`: {literal(str(path))} cannot be read: {why}.")


# -- frames -----------------------------------------------------------------------------------


def _may_be_frame(rows: object) -> bool:
    """Whether it looks like a frame or a series.

    Looks at the class only, since an attribute of the object may be costly.
    """
    kind = type(rows)
    return hasattr(kind, "columns") or hasattr(kind, "to_frame") or hasattr(kind, "collect_schema")


def _read_frame(rows: Any) -> Table | None:
    """Read a frame of any library that narwhals supports, or a series as its column `text`.

    Returns:
        `None` if it is neither.

    Raises:
        ValueError: The frame is lazy, or the names of its columns are not unique.
    """
    import narwhals as nw

    is_pandas_frame = hasattr(type(rows), "iloc") and hasattr(type(rows), "columns")
    # Before narwhals, whose error for duplicate names takes several lines.
    names = _checked_names([*rows.columns]) if is_pandas_frame else None
    found = nw.from_native(rows, pass_through=True, allow_series=True)
    if isinstance(found, nw.LazyFrame):
        raise ValueError("`rows` is a lazy frame: collect it first (`rows.collect()`).")
    if isinstance(found, nw.Series):
        texts = found.alias(TEXT)
        named = [found] if isinstance(found.name, str) and found.name not in ("", TEXT) else []
        found = texts.to_frame().with_columns(*named)
    if not isinstance(found, nw.DataFrame):
        return None
    frame: nw.DataFrame[Any] = found.clone()  # the person may change theirs while the map runs
    known = names or _checked_names(frame.columns)

    def read(name: str) -> list[Any]:
        return frame.get_column(known[name]).to_list()

    index = nw.maybe_get_index(frame)
    return Table(len(frame), tuple(known), read, frame=frame, index=index)


def _checked_names(names: Sequence[Any]) -> dict[str, Any]:
    """The names of columns as texts, each mapped to the original name.

    Raises:
        ValueError: A name is not unique, or has several levels.
    """
    if any(isinstance(name, tuple) for name in names):
        raise ValueError(
            "The table's columns have several levels: give each one name, as in `df.columns = "
            "['_'.join(map(str, name)) for name in df.columns]`."
        )
    known = {str(name): name for name in names}
    if len(known) < len(names):
        (twice, _), *_ = Counter(map(str, names)).most_common(1)
        raise ValueError(f"The table has several columns {literal(twice)}: rename them.")
    return known


def rows_of(table: Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of some columns, row by row."""
    return zip(*(table.column(name) for name in names), strict=True)
