"""`remember` and `recall`, as a model calls them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from agentnb.core.durable import MemoryEntry
from agentnb.core.errors import ToolError
from agentnb.core.protocols import has_effects
from agentnb.tools.memory import MOST_IN_FACT, MOST_IN_QUERY, MOST_RECALLED, memory_tools
from tests.tools.calling import Context, called

REMEMBER, RECALL = memory_tools()


class Memory:
    def __init__(self, *facts: str) -> None:
        self.facts = list(facts)
        self.asked: list[tuple[str, int]] = []

    async def remember(self, fact: str) -> MemoryEntry:
        self.facts.append(fact)
        return MemoryEntry(fact, "nb", "r", datetime.now(UTC))

    async def recall(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        self.asked.append((query, limit))
        return [MemoryEntry(fact, "nb", "r", datetime.now(UTC)) for fact in self.facts]


def test_fact_is_kept_and_found() -> None:
    memory = Memory()

    assert called(REMEMBER, {"fact": " Tea, please.\n"}, Context(memory=memory)) == "Remembered."
    assert called(RECALL, {"query": "tea"}, Context(memory=memory)) == "- Tea, please."
    assert memory.facts == ["Tea, please."]
    assert memory.asked == [("tea", MOST_RECALLED)]


def test_no_fact_looks_like_two() -> None:
    memory = Memory("one\n- two", "three")

    assert called(RECALL, {"query": "x"}, Context(memory=memory)) == "- one\n  - two\n- three"


def test_nothing_that_was_found_is_said_in_words() -> None:
    assert called(RECALL, {"query": "x"}, Context(memory=Memory())).startswith("Nothing")


def test_only_what_remembers_has_effects() -> None:
    assert [(tool.spec.name, has_effects(tool)) for tool in memory_tools()] == [
        ("remember", True),
        ("recall", False),
    ]


@pytest.mark.parametrize(
    ("input", "words"),
    [
        ({"fact": " \n"}, "blank: say in a sentence"),
        ({"fact": "x" * (MOST_IN_FACT + 1)}, "2,001 characters, .* shorten it, or remember"),
        ({"query": " "}, "blank: give a few words"),
        ({"query": "x" * (MOST_IN_QUERY + 1)}, "10,001 characters: give a few words"),
    ],
)
def test_wrong_argument_is_an_error_that_says_what_to_do(input: Any, words: str) -> None:
    memory = Memory()
    with pytest.raises(ToolError, match=words):
        called(REMEMBER if "fact" in input else RECALL, input, Context(memory=memory))
    assert (memory.facts, memory.asked) == ([], [])


@pytest.mark.parametrize(("tool", "input"), [(REMEMBER, {"fact": "f"}), (RECALL, {"query": "q"})])
def test_run_that_keeps_nothing_says_how_one_would(tool: Any, input: Any) -> None:
    with pytest.raises(ToolError, match="`RequestContext\\(memory=…\\)`"):
        called(tool, input, Context())
