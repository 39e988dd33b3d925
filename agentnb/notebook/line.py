"""Parsing of a magic's line.

An error is one sentence that quotes the typed text and says what to type instead.
"""

from __future__ import annotations

import keyword
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum, auto
from textwrap import wrap
from typing import Any

from agentnb.core.text import literal
from agentnb.errors import NotebookError
from agentnb.settings import SETTINGS, Check, Wrong, must_be


class Words(Enum):
    """The kind of words that completion offers at a place."""

    MODELS = auto()
    PROFILES = auto()
    TOOLS = auto()
    """Separated by commas."""
    RUNS = auto()
    PATHS = auto()
    """Paths of a run's agents."""
    MODES = auto()
    FILES = auto()
    """Completed by IPython, not by us."""
    THREADS = auto()
    """`last`, names of persistent agents, and ids of the session's threads."""
    TASKS = auto()
    """Ids of the session's tasks."""
    STATUSES = auto()
    """Statuses of a task."""
    PRIORITIES = auto()
    ASSIGNEES = auto()
    """Agents that a task can be assigned to: new ones, and persistent ones."""
    AGENTS = auto()
    """Names of persistent agents."""
    QUESTIONS = auto()
    """Ids of a run's open questions."""
    TYPES = auto()
    """Types of answers: the notebook's own, then builtin ones."""
    OBJECTS = auto()
    """Names of the notebook's objects that may be given to agents, separated by commas."""
    CODE = auto()
    ANSWERS = auto()
    """The answers that these questions take."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a magic's line."""

    name: str
    """Key of its value in the result."""
    read: Callable[[str, str], object] | None
    """Parses the option's text (arguments: option, text); `None` for a switch."""
    value: str = ""
    """Placeholder of its value in the help."""
    about: Sequence[str] = ()
    """Its help, as lines."""
    words: Words | None = None
    """The kind of words that complete its value."""


@dataclass(frozen=True, slots=True)
class Verb:
    """The first word of a line magic, and its action."""

    act: Callable[..., Any]
    """Performs it, and returns what to show."""
    words: Words | None = None
    """The kind of words that complete its argument."""
    then: Words | None = None
    """The kind of words that complete its second argument."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Its own options, by how they are typed."""


def usage_of(magic: str, options: Mapping[str, Option]) -> str:
    """The synopsis of a magic with all its options, in lines of at most 80 characters."""
    lines = [f"    {magic}"]
    for typed, option in options.items():
        shown = f" [{typed} {option.value}]" if option.value else f" [{typed}]"
        if len(lines[-1]) + len(shown) > 80:
            lines.append(" " * (4 + len(magic)))
        lines[-1] += shown
    return "\n".join(lines)


def about_options(options: Mapping[str, Option]) -> str:
    """The help of all options, as an aligned table."""
    heads = [f"{typed} {option.value}".rstrip() for typed, option in options.items()]
    width = max(map(len, heads))
    rows = []
    for head, option in zip(heads, options.values(), strict=True):
        first, *others = option.about
        rows += [f"{head:<{width}}  {first}", *(f"{'':<{width}}  {line}" for line in others)]
    return "\n".join(rows)


def words_of(line: str) -> list[str]:
    """Split a line into words, as a shell does.

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
        words: The result of `words_of`.
        options: The options, by how they are typed.
        magic: The magic's name, for errors.

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
                    f"{literal(typed)} of `{magic}` takes no value: leave {literal(value)} out."
                )
            values[option.name] = True
            continue
        if not has_value:
            if not left or left[0] in options:
                raise NotebookError(f"{literal(typed)} of `{magic}` needs a value.")
            value = left.pop(0)
        values[option.name] = option.read(typed, value)
    return values, rest


def _unknown(typed: str, options: Mapping[str, Option], *, magic: str) -> str:
    close = get_close_matches(typed, options, n=1, cutoff=0.7)
    known = f"the options are {', '.join(options)}."
    hint = f"did you mean {literal(close[0])}?" if close else known
    return f"`{magic}` has no option {literal(typed)}: {hint}"


def does_not_take(surplus: Sequence[str], magic: str) -> str:
    """The error for words that a magic does not take."""
    return f"`{magic}` does not take {literal(' '.join(surplus))}: leave it out."


def value_of(check: Check) -> Callable[[str, str], Any]:
    """Returns a reader of values that a check accepts."""

    def read(option: str, text: str) -> Any:
        try:
            return check.read(text)
        except Wrong as wrong:
            raise NotebookError(must_be(literal(option), wrong, text)) from None

    return read


def options_of_settings(
    **special: tuple[Callable[[str, str], object], Words],
) -> dict[str, Option]:
    """The options for the settings that a single run may set, by how they are typed.

    Args:
        **special: Reader and completion of the settings that are not plain values, by name.
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
    """Read a text that is not blank."""
    if not value.strip():
        raise NotebookError(f"{literal(option)} needs a value, not {literal(value)}.")
    return value


def one_of(words: Iterable[str]) -> Callable[[str, str], str]:
    """Returns a reader of one of a few words."""
    known = [*words]

    def read(option: str, value: str) -> str:
        if value not in known:
            raise NotebookError(
                f"{literal(option)} must be one of {', '.join(known)}, not {literal(value)}."
            )
        return value

    return read


def several_names(option: str, value: str) -> tuple[str, ...]:
    """Read names separated by commas."""
    found = tuple(name.strip() for name in value.split(","))
    if not all(found):
        raise NotebookError(
            f"{literal(option)} takes names separated by commas, not {literal(value)}: leave no "
            "name blank."
        )
    return found


def variable_name(option: str, value: str) -> str:
    """Read the name of a variable."""
    if not value.isidentifier() or keyword.iskeyword(value):
        raise NotebookError(
            f"{literal(option)} takes the name of a variable, not {literal(value)}."
        )
    return value
