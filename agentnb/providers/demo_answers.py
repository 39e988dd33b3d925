"""Typed answers of the demo model: made-up values that fit any JSON schema.

Deterministic, and varied by the prompt, so that a table of answers looks real. Free texts begin
with `(demo)`. Unlike a tool's arguments, an answer also has its optional fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

from agentnb.providers.demo_arguments import MOST_LEVELS, CannotFill, Maker, Words

_MARK = "(demo) "
_MOST_ITEMS = 3
_FULL_LEVELS = 3
"""Below this level only what is required is filled: a node may hold a list of nodes."""
_PARTS = 16
_RANGE = 100


def answer_for(schema: Mapping[str, Any], prompt: str) -> Any:
    """Make an answer that fits a schema.

    Args:
        schema: The JSON schema.
        prompt: Text whose words are the values that the schema leaves open; another text gives
            other choices.

    Raises:
        CannotFill: No value can be made for a part of the schema.
    """
    try:
        return _AnswerMaker(schema, prompt).value(schema, "", 0)
    except CannotFill:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        raise CannotFill("its schema cannot be read") from None


class _AnswerMaker(Maker):
    def __init__(self, root: Mapping[str, Any], prompt: str) -> None:
        super().__init__(root, Words.of(prompt))
        self._prompt = prompt
        self._picks = 0

    def _pick(self, count: int) -> int:
        """A number below `count`, from the prompt and the number of earlier picks."""
        self._picks += 1
        return crc32(f"{self._picks}:{self._prompt}".encode("utf-8", "replace")) % max(count, 1)

    def value(self, schema: Any, name: str, level: int) -> Any:
        if level > MOST_LEVELS or not isinstance(schema, Mapping):
            return super().value(schema, name, level)
        said = dict(self._resolved(schema, name))
        for key in ("enum", "examples"):
            if options := said.get(key):
                return options[self._pick(len(options))]
        for key in ("anyOf", "oneOf"):
            if key in said:  # the first that fits is taken
                turn = self._pick(len(said[key]))
                said[key] = [*said[key][turn:], *said[key][:turn]]
        default = said.pop("default", None)
        try:
            return super().value(said, name, level)
        except CannotFill:
            if default is None:
                raise
            return default

    def _by_kind(self, schema: Mapping[str, Any], name: str, level: int) -> Any:
        if schema.get("type") == "boolean":
            return self._pick(2) == 0
        return super()._by_kind(schema, name, level)

    def _object(self, schema: Mapping[str, Any], level: int) -> dict[str, Any]:
        known, required = schema.get("properties", {}), schema.get("required", ())
        others = schema.get("additionalProperties")
        made = dict[str, Any]()
        for name in dict.fromkeys([*known, *required]):
            is_needed = name in required
            if level >= _FULL_LEVELS and not is_needed:
                continue
            try:
                made[name] = self.value(known.get(name, others or {}), name, level + 1)
            except CannotFill:
                if is_needed:
                    raise
        least = schema.get("minProperties", 0)
        if isinstance(others, Mapping) and not made and level < _FULL_LEVELS:
            least = max(least, 1)
        names = schema.get("propertyNames", {}).get("enum") or [f"key{n + 1}" for n in range(least)]
        for name in names[: max(0, least - len(made))]:
            made[name] = self.value(others if isinstance(others, Mapping) else {}, name, level + 1)
        return made

    def _array(self, schema: Mapping[str, Any], name: str, level: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        wanted = least
        if level < _FULL_LEVELS and "prefixItems" not in schema:
            wanted = max(least, min(1 + self._pick(_MOST_ITEMS), most))
        if schema.get("uniqueItems"):
            wanted = max(least, min(1, most))
        return super()._array({**schema, "minItems": wanted}, name, level)

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        self._taken["text"] = self._pick(len(self._words.names))
        text = super()._text(schema, name)
        is_free = "pattern" not in schema and "format" not in schema
        is_short = len(_MARK + text) <= schema.get("maxLength", math.inf)
        return _MARK + text if is_free and is_short else text

    def _number(self, schema: Mapping[str, Any], name: str, *, is_whole: bool) -> float:
        least = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
        most = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
        if not math.isfinite(least):
            least = most - _RANGE if math.isfinite(most) else 0
        most = min(most, least + _RANGE) if math.isinf(most) else most
        step = schema.get("multipleOf") or (1 if is_whole else 0)
        numbers = []
        for _ in range(3):
            number = least + (most - least) * (1 + self._pick(_PARTS - 1)) / _PARTS
            numbers.append(math.floor(number / step) * step if step else round(number, 2))
        before, self._words = self._words, replace(self._words, numbers=numbers)
        self._taken["number"] = 0
        try:
            return super()._number(schema, name, is_whole=is_whole)
        finally:
            self._words = before
