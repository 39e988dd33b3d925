"""What a person types behind a magic, read or refused in one sentence.

An error quotes what was typed and says what to type instead.
"""

from __future__ import annotations

import keyword
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, auto
from textwrap import wrap
from typing import Any

from agentnb.core.text import literal
from agentnb.errors import NotebookError
from agentnb.settings import SETTINGS, Check, Wrong, must_be


class Words(Enum):
    """What can stand in a place, for whoever completes it."""

    MODELS = auto()
    PROFILES = auto()
    TOOLS = auto()
    """With commas between them."""
    RUNS = auto()
    PATHS = auto()
    """Of the agents of a run."""
    MODES = auto()
    FILES = auto()
    """Nothing of ours completes them."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a magic's line."""

    name: str
    """Where its value goes."""
    read: Callable[[str, str], object] | None
    """From the option and the text behind it to the value; `None` for a switch."""
    value: str = ""
    """What stands for its value in the help."""
    about: Sequence[str] = ()
    """What the help says of it, in lines."""
    words: Words | None = None


@dataclass(frozen=True, slots=True)
class Verb:
    """A word that stands first behind a line magic, and what it does."""

    act: Callable[..., str]
    """What it prints."""
    words: Words | None = None
    """What can stand behind it."""


def usage_of(magic: str, options: Mapping[str, Option]) -> str:
    """How a magic is typed, with all its options; lines of at most 80 characters."""
    lines = [f"    {magic}"]
    for typed, option in options.items():
        shown = f" [{typed} {option.value}]" if option.value else f" [{typed}]"
        if len(lines[-1]) + len(shown) > 80:
            lines.append(" " * (4 + len(magic)))
        lines[-1] += shown
    return "\n".join(lines)


def about_options(options: Mapping[str, Option]) -> str:
    """What each option does, a row for each."""
    heads = [f"{typed} {option.value}".rstrip() for typed, option in options.items()]
    width = max(map(len, heads))
    rows = []
    for head, option in zip(heads, options.values(), strict=True):
        first, *others = option.about
        rows += [f"{head:<{width}}  {first}", *(f"{'':<{width}}  {line}" for line in others)]
    return "\n".join(rows)


def words_of(line: str) -> list[str]:
    """The words of a line; quotes hold words together.

    Raises:
        NotebookError: A quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError:
        raise NotebookError(
            f"A quote is not closed in {literal(line)}: close it, or leave it out."
        ) from None


def read_options(
    words: Sequence[str], options: Mapping[str, Option], *, magic: str
) -> tuple[dict[str, object], list[str]]:
    """Split a line's words into options and the rest.

    Args:
        words: As `words_of` gives them.
        options: What there is, by how it is typed.
        magic: For the errors.

    Returns:
        Values by `Option.name`, and the words that belong to no option.

    Raises:
        NotebookError: An option is unknown, given twice, or lacks its value.
    """
    values: dict[str, object] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        typed, has_value, value = word.partition("=")
        option = options.get(typed)
        if option is None:
            raise NotebookError(_unknown(typed, options, magic=magic))
        if option.name in values:
            raise NotebookError(f"{literal(typed)} is given twice to `{magic}`: leave one out.")
        if option.read is None:
            if has_value:
                raise NotebookError(
                    f"{literal(typed)} of `{magic}` takes no value, not {literal(value)}."
                )
            values[option.name] = True
            continue
        if not has_value:
            if not left or left[0] in options:
                raise NotebookError(f"{literal(typed)} of `{magic}` needs a value behind it.")
            value = left.pop(0)
        values[option.name] = option.read(typed, value)
    return values, rest


def _unknown(typed: str, options: Mapping[str, Option], *, magic: str) -> str:
    close = get_close_matches(typed, options, n=1, cutoff=0.7)
    hint = f"did you mean {literal(close[0])}?" if close else f"known are {', '.join(options)}."
    return f"`{magic}` has no option {literal(typed)}: {hint}"


def value_of(check: Check) -> Callable[[str, str], Any]:
    """A reader of what a check takes."""

    def read(option: str, text: str) -> Any:
        try:
            return check.read(text)
        except Wrong as wrong:
            raise NotebookError(must_be(literal(option), wrong, text)) from None

    return read


def options_of_settings(
    **special: tuple[Callable[[str, str], object], Words],
) -> dict[str, Option]:
    """The options for the settings that a run may have of its own, by how they are typed.

    Args:
        **special: By name, how a setting is read that is no plain value, and who completes it.
    """
    options = {}
    for name, setting in SETTINGS.items():
        if setting.option:
            read, words = special.get(name, (value_of(setting.check), None))
            about = setting.about.partition(". ")[0].removesuffix(".")
            options[f"--{name.replace('_', '-')}"] = Option(
                name, read, setting.option, wrap(about[0].lower() + about[1:], 64), words
            )
    return options


def text(option: str, value: str) -> str:
    """A reader of any text that is not blank."""
    if not value.strip():
        raise NotebookError(f"{literal(option)} needs a value, not {literal(value)}.")
    return value


def several_names(option: str, value: str) -> tuple[str, ...]:
    """A reader of names with commas between them."""
    found = tuple(name.strip() for name in value.split(","))
    if not all(found):
        raise NotebookError(
            f"{literal(option)} takes names with commas between them, not {literal(value)}."
        )
    return found


def variable_name(option: str, value: str) -> str:
    """A reader of names that a notebook can bind."""
    if not value.isidentifier() or keyword.iskeyword(value):
        raise NotebookError(
            f"{literal(option)} takes the name of a variable, not {literal(value)}."
        )
    return value
