"""Makes a tool's arguments from its JSON schema and a task's words, for the demo model.

Pure and deterministic. It fills only required properties: from the schema (`const`, `examples`,
`default`, `enum`), else from the task's names and numbers, within the schema's bounds. A schema
that it cannot satisfy is an error, never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentnb.core.text import one_line

MOST_LEVELS = 8
"""Most levels to which a schema that refers to itself is followed."""
_MOST_ITEMS = 20
_LEVELS_OF_ITEMS = 3
"""Below this level optional lists stay empty: a node may hold a list of nodes."""
_MOST_IN_TEXT = 60
_MOST_IN_LONG_TEXT = 2000

_FORMATS = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_WHOLE_TASK = re.compile("query|question|prompt|task|text|message|content|note|topic|search", re.I)
_QUOTED = re.compile(r"[\"\u201c`]([^\"\u201d`\n]{1,60})[\"\u201d`]")
_NAME = re.compile(r"(?<![.!?:] )(?<!^)\b[^\W\d_a-z]\w+(?: [^\W\d_a-z]\w+)*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_WORD = re.compile(r"[^\W\d_]{4,}")
_COMMON = frozenset(
    "about also answer does each every find from have into just long look make many more most much "
    "please some than that their them then there these they this what when where which will with "
    "would your".split()
)


class CannotFill(ValueError):
    """The demo model cannot make up a value for a schema; the message is a clause."""


@dataclass(frozen=True)
class Words:
    """The values that a task's text offers."""

    whole: str
    names: Sequence[str]
    numbers: Sequence[float]

    @classmethod
    def of(cls, task: str) -> Words:
        """The values in a text."""
        folded = one_line(task, limit=_MOST_IN_LONG_TEXT)
        quoted = _QUOTED.findall(folded)
        names = [name for name in _NAME.findall(folded) if name[0].isupper()]
        words = [word for word in _WORD.findall(folded) if word.lower() not in _COMMON]
        numbers = [float(number) for number in _NUMBER.findall(folded)[:_MOST_ITEMS]]
        found = [one_line(each, limit=_MOST_IN_TEXT) for each in (*quoted, *names, *words[::-1])]
        whole = one_line(folded, limit=_MOST_IN_TEXT).removesuffix("…").strip()
        return cls(whole or "example", tuple(dict.fromkeys(found)), numbers)


def arguments_for(schema: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Make arguments that fit a tool's schema.

    Args:
        schema: A JSON schema; an empty one takes no arguments.
        task: Text whose words are the values that the schema leaves open.

    Raises:
        CannotFill: No value can be made for a part of the schema.
    """
    maker = Maker(schema, Words.of(task))
    try:
        made = maker.value(schema or {"type": "object"}, "", 0)
    except CannotFill:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        raise CannotFill("its schema cannot be read") from None
    if not isinstance(made, dict):
        raise CannotFill("its arguments are no object")
    return made


class Maker:
    """Makes values that fit the parts of a schema."""

    def __init__(self, root: Mapping[str, Any], words: Words) -> None:
        self._root = root
        self._words = words
        self._taken = {"text": 0, "number": 0}

    def value(self, schema: Any, name: str, level: int) -> Any:
        """A value for a part of the schema, called `name`, at a level of nesting."""
        if level > MOST_LEVELS:
            raise CannotFill(f"{_called(name)} goes deeper than {MOST_LEVELS} levels")
        if schema is True or schema == {}:
            return self._text({}, name)
        if not isinstance(schema, Mapping):
            raise CannotFill(f"{_called(name)} takes no value at all")
        schema = self._resolved(schema, name)
        if "const" in schema:
            return schema["const"]
        if examples := schema.get("examples"):
            return examples[0] if isinstance(examples, list) else examples
        if schema.get("default") is not None:
            return schema["default"]
        if options := schema.get("enum"):
            return options[0]
        for key in ("anyOf", "oneOf"):
            if key in schema:
                rest = {each: said for each, said in schema.items() if each != key}
                return self._first_that_fits([{**rest, **one} for one in schema[key]], name, level)
        if "not" in schema or "if" in schema:
            raise CannotFill(f"{_called(name)} is described by what it must not be")
        return self._by_kind(schema, name, level)

    def _by_kind(self, schema: Mapping[str, Any], name: str, level: int) -> Any:
        kinds = schema.get("type") or _kind_that_is_meant(schema)
        if isinstance(kinds, list):
            wanted = [kind for kind in kinds if kind != "null"] or ["null"]
            return self._first_that_fits([{**schema, "type": kind} for kind in wanted], name, level)
        match kinds:
            case "object":
                return self._object(schema, level)
            case "array":
                return self._array(schema, name, level)
            case "string":
                return self._text(schema, name)
            case "integer" | "number":
                return self._number(schema, name, is_whole=kinds == "integer")
            case "boolean":
                return True
            case "null":
                return None
        raise CannotFill(f"{_called(name)} has the unknown type {one_line(repr(kinds), limit=40)}")

    def _resolved(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """The schema with `$ref` and `allOf` replaced by what they stand for."""
        for _ in range(MOST_LEVELS):
            if "$ref" in schema:
                rest = {key: said for key, said in schema.items() if key != "$ref"}
                schema = {**self._referred(str(schema["$ref"]), name), **rest}
            elif "allOf" in schema:
                schema = _merged(schema, [self._resolved(part, name) for part in schema["allOf"]])
            else:
                return schema
        raise CannotFill(f"{_called(name)} refers to itself")

    def _referred(self, reference: str, name: str) -> Mapping[str, Any]:
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, Mapping) else None
        if not reference.startswith("#") or not isinstance(found, Mapping):
            raise CannotFill(f"{_called(name)} refers to {one_line(reference, limit=80)!r}")
        return found

    def _first_that_fits(self, schemas: Sequence[Any], name: str, level: int) -> Any:
        why = CannotFill(f"{_called(name)} has nothing to choose from")
        for schema in sorted(schemas, key=lambda each: each.get("type") == "null"):
            try:
                return self.value(schema, name, level + 1)
            except CannotFill as error:
                why = error
        raise why

    def _object(self, schema: Mapping[str, Any], level: int) -> dict[str, Any]:
        known = schema.get("properties", {})
        open_ones = schema.get("additionalProperties", True)
        names = list(schema.get("required", ()))
        made = {n: self.value(known.get(n, open_ones), n, level + 1) for n in names}
        for at in range(schema.get("minProperties", 0) - len(made)):
            made[f"key{at + 1}"] = self.value(open_ones, f"key{at + 1}", level + 1)
        return made

    def _array(self, schema: Mapping[str, Any], name: str, level: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        firsts = schema.get("prefixItems", [])
        if least > _MOST_ITEMS:
            raise CannotFill(f"{_called(name)} needs {least} items")
        if least > most:
            raise CannotFill(_no_value_between(name, least, most))
        usual = min(1, most) if level < _LEVELS_OF_ITEMS else 0
        items = [*firsts, *[schema.get("items", True)] * (max(least, usual) - len(firsts))]
        made = [self.value(item, name, level + 1) for item in items]
        if schema.get("uniqueItems") and any(one in made[:at] for at, one in enumerate(made)):
            item = self._resolved(schema.get("items", {}), name)
            made = list(item.get("enum", ()))[: len(made)]
            if len(made) < least:
                raise CannotFill(f"{_called(name)} needs {least} different items")
        return made

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        if least > min(most, _MOST_IN_LONG_TEXT):
            raise CannotFill(_no_value_between(name, least, most))
        if (kind := schema.get("format")) in _FORMATS:
            return _FORMATS[kind]
        candidates = list(self._candidates(name))
        fitted = (_fitted(text, least, most) for text in candidates)
        pattern = schema.get("pattern")
        if pattern is None:
            return next(fitted)
        for text in (*fitted, *(f"{number:g}" for number in self._words.numbers), "a", "1", ""):
            if least <= len(text) <= most and _matches(pattern, text, name):
                return text
        raise CannotFill(f"{_called(name)} has to match {one_line(str(pattern), limit=80)!r}")

    def _candidates(self, name: str) -> Iterator[str]:
        """Candidate texts, likeliest first; two texts of one call get different ones."""
        words = self._words
        if _WHOLE_TASK.search(name) or not words.names:
            yield words.whole
        at = self._taken["text"]
        self._taken["text"] += 1
        for step in range(len(words.names)):
            yield words.names[(at + step) % len(words.names)]
        yield words.whole

    def _number(self, schema: Mapping[str, Any], name: str, *, is_whole: bool) -> float:
        step = schema.get("multipleOf") or (1 if is_whole else 0)
        least, is_open_below = _bound(schema, "minimum", "exclusiveMinimum", -math.inf, max)
        most, is_open_above = _bound(schema, "maximum", "exclusiveMaximum", math.inf, min)

        def fits(number: float) -> bool:
            return (
                (least < number or (least == number and not is_open_below))
                and (number < most or (most == number and not is_open_above))
                and (not step or math.isclose(number / step, round(number / step), abs_tol=1e-9))
            )

        at = self._taken["number"]
        self._taken["number"] += 1
        middle = [(least + most) / 2] if math.isfinite(least) and math.isfinite(most) else []
        ends = [end for end in (least, most) if math.isfinite(end)]
        near = [_rounded(end, step, turn) for end in (*middle, *ends) for turn in (0, 1, -1)]
        # Halves, for bounds with no whole number between them.
        near += [end + turn for end in ends for turn in (0.5, -0.5)]
        for number in (*self._words.numbers[at:], 1, step, *near, *middle):
            if fits(number):
                return int(number) if is_whole or float(number).is_integer() else number
        raise CannotFill(_no_value_between(name, least, most))


def _called(name: str) -> str:
    return f"`{one_line(name, limit=60)}`" if name else "it"


def _no_value_between(name: str, least: float, most: float) -> str:
    return f"{_called(name)} has no value between {least:g} and {most:g} that is made up here"


def _kind_that_is_meant(schema: Mapping[str, Any]) -> str:
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _merged(schema: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge schemas into one that a value must fit as a whole."""
    made: dict[str, Any] = {key: said for key, said in schema.items() if key != "allOf"}
    for part in parts:
        for key, said in part.items():
            if key == "properties":
                made[key] = {**said, **made.get(key, {})}
            elif key == "required":
                made[key] = list(dict.fromkeys([*made.get(key, ()), *said]))
            else:
                made.setdefault(key, said)
    return made


def _bound(
    schema: Mapping[str, Any], closed: str, open_: str, none: float, tighter: Any
) -> tuple[float, bool]:
    """The tighter of two bounds, and whether it is exclusive."""
    by_closed, by_open = schema.get(closed, none), schema.get(open_, none)
    bound = tighter(by_closed, by_open)
    return bound, open_ in schema and bound == by_open


def _rounded(number: float, step: float, turn: int) -> float:
    return (math.floor(number / step) + turn) * step if step else number + turn


def _fitted(text: str, least: float, most: float) -> str:
    while len(text) < least:
        text = f"{text} {text}" if text else "x"
    return text if len(text) <= most else text[: int(most)]


def _matches(pattern: object, text: str, name: str) -> bool:
    try:
        if isinstance(pattern, str):
            return re.search(pattern, text) is not None
    except (re.error, FutureWarning):  # the warning is an error where a person has set that
        pass
    raise CannotFill(f"{_called(name)} has to match a pattern that cannot be read")
