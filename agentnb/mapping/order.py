"""A person's order of a map: its arguments, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from agentnb.core.protocols import OutputType
from agentnb.core.text import literal
from agentnb.core.types import SpawnInstruction, SpawnMode
from agentnb.mapping.options import MapOptions
from agentnb.mapping.prompts import prompts_of
from agentnb.mapping.rows import Table, key_texts, read_rows
from agentnb.typed import AnyOutput, output_type

_MOST_JUDGES = 100
"""A bound for typing errors: too many prompts would fill the kernel's memory."""


@dataclass(frozen=True, slots=True, eq=False)
class MapOrder:
    """A map whose arguments have been checked."""

    table: Table
    prompt: str
    """As written, stripped of surrounding white space; the title of the run."""
    plan: SpawnInstruction
    """A task for each row and judge, the judges of a row side by side."""
    options: MapOptions
    output: AnyOutput | None
    """The type of each answer; `None` for text."""
    keys: tuple[str, ...] | None
    """The values of the `key` column as texts; `None` without a `key`."""
    given: Mapping[str, Any]
    """Settings of the run that replace the session's."""


def order_of(
    rows: object,
    prompt: str,
    output: object,
    *,
    key: str | None,
    shared: str,
    models: Sequence[str] | None,
    judges: int,
    tools: Sequence[Any],
    max_depth: int,
    sample: int | None,
    retry_failed: int,
) -> MapOrder:
    """Check the arguments of `Session.map`.

    Raises:
        ValueError: As for `Session.map`.
    """
    if not isinstance(shared, str):
        raise ValueError(f"`shared` must be a string, not {literal(shared)}.")
    chosen = _checked_models(models)
    options = MapOptions(
        shared,
        _checked_judges(judges, chosen),
        chosen,
        None if sample is None else _at_least("sample", sample, 1),
        _at_least("retry_failed", retry_failed, 0),
    )
    given = {"max_depth": 1 + _at_least("max_depth", max_depth, 0), "tools": _checked_tools(tools)}
    type_ = output_type(output)
    table = read_rows(rows)
    tasks = [task for task in prompts_of(prompt, table) for _ in range(options.judges)]
    return MapOrder(
        table,
        prompt.strip(),
        SpawnInstruction(SpawnMode.PARALLEL, tuple(tasks)),
        replace(options, documents=table.documents),
        type_,
        key_texts(table, key),
        given,
    )


def recovered_order(
    prompt: str, plan: SpawnInstruction, options: MapOptions, output: OutputType | None
) -> MapOrder:
    """The order of a recovered map, whose rows are the stored prompts.

    Args:
        prompt: As written.
        plan: The tasks.
        options: How the rows are run.
        output: The type of each answer.
    """
    table = read_rows(list(plan.tasks[:: options.judges]))
    return MapOrder(table, prompt, plan, options, output_type(output), None, {})


def checked_flag(name: str, value: object) -> None:
    """Check that a value is a `bool`: any non-blank text would count as true.

    Raises:
        ValueError: It is not.
    """
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, not {literal(value)}.")


def _at_least(name: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"`{name}` must be a whole number, at least {least}, not {literal(value)}."
        )
    return value


def _checked_models(models: object) -> tuple[str, ...]:
    if models is None:
        return ()
    if isinstance(models, str | Mapping | Set) or not isinstance(models, Iterable):
        raise ValueError(
            f"`models` must be a list of model names, one for each judge, not {literal(models)}."
        )
    names = tuple(models)
    if not names:
        raise ValueError("`models` is empty: name a model for each judge, or leave it out.")
    for at, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"`models[{at}]` must be the name of a model, not {literal(name)}.")
    return names


def _checked_judges(judges: object, models: Sequence[str]) -> int:
    number = _at_least("judges", judges, 1)
    if number > _MOST_JUDGES:
        raise ValueError(f"`judges` must be at most {_MOST_JUDGES}, not {number:,}.")
    if not models or number == 1:
        return len(models) or number
    if number % len(models):
        raise ValueError(
            f"`judges` is {number}, but `models` names {len(models)}: leave `judges` out for one "
            "judge of each model, or give a multiple."
        )
    return number


def _checked_tools(tools: object) -> list[Any]:
    if isinstance(tools, str | Mapping | Set) or not isinstance(tools, Iterable):
        raise ValueError(f"`tools` must be a list of tools, not {literal(tools)}.")
    return list(tools)
