"""What a part may have besides is found on it, and on whatever hands it on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agentnb.core.protocols import (
    is_chain,
    is_provider,
    supports_close,
    supports_enter_now,
    supports_ready,
    supports_timeout,
    supports_token_count,
)
from agentnb.providers.demo import DemoProvider
from agentnb.providers.scripted import ScriptedProvider

HOOKS: dict[str, Callable[[object], bool]] = {
    "aclose": supports_close,
    "count_tokens": supports_token_count,
    "enter_now": supports_enter_now,
    "links": is_chain,
    "ready": supports_ready,
    "timeout_s": supports_timeout,
}


class Wrapper:
    """Somebody's own, around a part: hands on what it does not have itself."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("name", HOOKS)
def test_hook_is_found_where_it_is_and_through_a_wrapper(name: str) -> None:
    supports = HOOKS[name]
    part = SimpleNamespace(**{name: [print]})

    assert supports(part)
    assert supports(Wrapper(part))
    assert not supports(SimpleNamespace())
    assert not supports(Wrapper(SimpleNamespace()))
    assert not supports(SimpleNamespace(**{name: None})), "how a subclass takes a hook away"
    assert not supports(None)


def test_provider_has_a_name_and_a_stream() -> None:
    provider = ScriptedProvider([])

    assert is_provider(provider)
    assert is_provider(Wrapper(provider))
    assert not is_provider(SimpleNamespace(name="n"))
    assert not is_provider(SimpleNamespace(stream=provider.stream))
    assert not is_provider(SimpleNamespace(name=None, stream=provider.stream))
    assert not is_provider(None)
    assert not is_provider(DemoProvider), "its class has both, but cannot answer"
