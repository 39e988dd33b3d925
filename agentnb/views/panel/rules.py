"""Rules for what a page may send: each field of a command, and of a widget's state, has one.

Anyone with access to the page or the kernel can send anything. A rule is written at the field, as
an annotation of its type; messages that break one are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from agentnb.views.panel.limits import LARGEST


class MessageRefused(ValueError):
    """A message is invalid; the error quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for one field of a command."""

    is_valid: Callable[[object], bool]
    words: str


def whole(least: int, most: int = LARGEST) -> Rule:
    """A whole number, not a `bool`."""
    return Rule(
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least:,} to {most:,}",
    )


def text(longest: int, *, shortest: int = 1) -> Rule:
    """A text from `shortest` to `longest` characters long."""
    return Rule(
        lambda value: isinstance(value, str) and shortest <= len(value) <= longest,
        f"a string of {shortest:,} to {longest:,} characters",
    )


SECONDS = Rule(
    lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= LARGEST  # `nan` is not
    ),
    "a number of seconds from 0",
)

Rules = Mapping[str, Rule]


def rules_of(shape: type) -> Rules:
    """The rule of each field of a command or a state, except `type`."""
    hints = get_type_hints(shape, include_extras=True)
    return {name: _rule_of(hint) for name, hint in hints.items() if name != "type"}


def _rule_of(hint: Any) -> Rule:
    if get_origin(hint) is not Annotated:  # it may be `None`, too
        (inner,) = (part for part in get_args(hint) if part is not NoneType)
        rule = _rule_of(inner)
        return Rule(lambda value: value is None or rule.is_valid(value), f"{rule.words}, or null")
    (rule,) = hint.__metadata__
    return cast(Rule, rule)


def kind_of(shape: type) -> str:
    """The `type` of a message or command."""
    hint = get_type_hints(shape)["type"]  # without `Required`
    return cast(str, get_args(hint)[0])


def checked_as(content: object, commands: Mapping[str, Rules]) -> dict[str, Any]:
    """Validate a message as one of these commands; keeps only the fields of its kind.

    Raises:
        MessageRefused: It is not an object, its kind is unknown, or a value breaks its rule.
    """
    message = as_object(content)
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in commands:
        raise MessageRefused("there is no such kind of message")
    rules = commands[kind]
    values = checked({name: message.get(name) for name in rules}, rules)
    return {"type": kind, **values}


def checked_state(state: object, rules: Rules) -> dict[str, Any]:
    """Validate the values that a page may change; others are ignored.

    Raises:
        MessageRefused: It is not an object, or a value breaks its rule.
    """
    given = as_object(state)
    return checked({name: given[name] for name in rules if name in given}, rules)


def as_object(content: object) -> Mapping[str, Any]:
    """Return a message that is an object.

    Raises:
        MessageRefused: It is not an object.
    """
    if not isinstance(content, Mapping):
        raise MessageRefused("a message must be an object")
    return content


def checked(values: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Return values that keep to their rules.

    Raises:
        MessageRefused: One breaks its rule.
    """
    for name, value in values.items():
        if not rules[name].is_valid(value):
            raise MessageRefused(f"`{name}` must be {rules[name].words}")
    return values
