"""The prompt of each row: `{{column}}` is replaced by the row's cell in that column."""

from __future__ import annotations

import re

from agentnb.core.text import literal
from agentnb.mapping.cells import MISSING, cell_text
from agentnb.mapping.rows import TEXT, Table, no_column, rows_of

_COLUMN = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


def prompts_of(prompt: str, table: Table) -> tuple[str, ...]:
    """Fill a prompt once for each row.

    Any column name may stand in the braces, also between white space. A cell is data: a
    `{{column}}` in its text is not replaced. A missing cell (`None`, NaN, NaT) is an empty text;
    numbers print as in Python; lists, dicts and objects as JSON.

    Raises:
        ValueError: The prompt is blank, names no column although there are rows other than
            documents, or names one that the table or a row does not have; or a row's prompt would
            be blank.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"`prompt` must be a non-blank string, not {literal(prompt)}.")
    words = _COLUMN.split(prompt.strip())
    texts, named = words[::2], [_found(name, table) for name in words[1::2]]
    if not named and table.columns and not all(table.documents or [None]):
        fix = TEXT if TEXT in table else table.columns[0]
        raise ValueError(
            "The prompt names no column, so it would ask the same for each row: write "
            f"`{{{{{fix}}}}}` where the row's {literal(fix)} belongs."
        )
    columns = list(dict.fromkeys(named))
    if not len(table):
        return ()
    if not columns:
        return (texts[0],) * len(table)
    filled = []
    for at, cells in enumerate(rows_of(table, columns)):
        by_name = {name: _cell(at, name, cell) for name, cell in zip(columns, cells, strict=True)}
        between = (
            part
            for name, text in zip(named, texts[1:], strict=True)
            for part in (by_name[name], text)
        )
        filled.append("".join((texts[0], *between)))
        if not filled[-1].strip():
            raise ValueError(
                f"`rows[{at}]` has nothing in {literal(columns[0])}, so its prompt would be blank: "
                "leave the row out, or put words around the column."
            )
    return tuple(filled)


def _found(name: str, table: Table) -> str:
    """The table's column of this name.

    Raises:
        ValueError: There is none.
    """
    if name in table or (not len(table) and not table.columns):
        return name
    if not table.columns:
        raise ValueError(
            f"The rows have no {literal(name)}, since they are empty: give at least one, or leave "
            "the name out of the prompt."
        )
    for column in table.columns:
        if column.strip() == name:
            return column
    raise ValueError(no_column(name, table.columns))


def _cell(at: int, name: str, value: object) -> str:
    if value is MISSING:
        raise ValueError(
            f"`rows[{at}]` has no {literal(name)}, which the prompt names: give it a value, or "
            "leave the row out."
        )
    try:
        return cell_text(value)
    except ValueError as error:
        raise ValueError(f"`rows[{at}]`: {literal(name)} {error}.") from None
