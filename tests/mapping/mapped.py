"""Sessions for tests of maps: a script answers each row by its prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agentnb import ScriptedProvider, Session
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import Reply


def session_of(answer: Callable[[str], str | Reply] | str = "ok", **settings: Any) -> Session:
    """A session without a store, whose model answers a prompt by a function, or always alike."""

    def reply(request: CompletionRequest) -> str | Reply:
        return answer if isinstance(answer, str) else answer(request.messages[0].text)

    return Session(provider=ScriptedProvider(reply), store=None, **settings)


def by_word(replies: Mapping[str, str]) -> Callable[[str], str]:
    """Answers a prompt by the first of some words that it has."""
    return lambda prompt: next(reply for word, reply in replies.items() if word in prompt)


class Letters:
    """The prompts of a map that answers nothing: what the rows became."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return "ok"


def prompts_sent(rows: Any, prompt: str, **arguments: Any) -> list[str]:
    """What the model was asked for each row."""
    letters = Letters()
    session_of(letters).map(rows, prompt, **arguments).result()
    return sorted(letters.prompts)


def refusal_of(rows: Any, prompt: str = "{{text}}?", **arguments: Any) -> str:
    """The words by which a map is refused, before any call."""
    letters = Letters()
    with pytest.raises(ValueError) as refused:  # noqa: PT011, its words are for the caller
        session_of(letters).map(rows, prompt, **arguments)
    assert letters.prompts == []
    assert "\n" not in str(refused.value)
    return str(refused.value)
