"""From a model's name to the provider that answers to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

from agentnb.core.errors import UnknownModel
from agentnb.core.protocols import Provider

Settings = Mapping[str, str]
"""What a person says of a provider in the settings file: its arguments, by name."""


def _anthropic() -> Provider:
    from agentnb.providers.anthropic import AnthropicProvider, warm_up

    warm_up()
    return AnthropicProvider()


def _openai(*, base_url: str | None = None, api_key_env: str | None = None) -> Provider:
    from agentnb.providers.openai import OpenAIProvider, warm_up

    warm_up()
    return OpenAIProvider(base_url=base_url, api_key_env=api_key_env)


def _demo() -> Provider:
    from agentnb.providers.demo import DemoProvider

    return DemoProvider()


_FACTORIES: Mapping[str, Callable[..., Provider]] = {
    "anthropic": _anthropic,
    "demo": _demo,
    "openai": _openai,
}
_NEEDS_NO_MODEL = frozenset({"demo"})

KNOWN_PROVIDERS = tuple(sorted(_FACTORIES))


def split_model(model: str) -> tuple[str, str]:
    """Provider and model of `provider/model`; `provider:model` is read too.

    Only the provider part is checked: which models there are is the provider's to say.

    Raises:
        UnknownModel: There is no such provider, or the model's own name is missing.
    """
    text = model.strip()
    cuts = [text.index(mark) for mark in "/:" if mark in text]
    provider, name = (text[: min(cuts)], text[min(cuts) + 1 :]) if cuts else (text, "")
    if provider not in _FACTORIES or not (name or provider in _NEEDS_NO_MODEL):
        raise UnknownModel(model, known=KNOWN_PROVIDERS)
    return provider, name


class Closable(Protocol):
    """A provider that holds connections."""

    async def aclose(self) -> None:
        """Close them; a later call opens them anew."""
        ...


class Registry:
    """Makes providers when they are asked for; one that holds connections is made once."""

    def __init__(self) -> None:
        self._made: dict[object, Provider] = {}

    def resolve(
        self, model: str, settings: Mapping[str, Settings] | None = None
    ) -> tuple[Provider, str]:
        """The provider for a model, and the model's name in the form `provider/model`.

        Args:
            model: As a person writes it.
            settings: By provider, what it is made with where anything is said.

        Raises:
            UnknownModel: See `split_model`.
        """
        provider, name = split_model(model)
        own = (settings or {}).get(provider, {})
        key = provider, *sorted(own.items())
        made = self._made.get(key) or _FACTORIES[provider](**own)
        if hasattr(made, "aclose"):
            # The first one, should two threads have made one: nobody would close the other's.
            made = self._made.setdefault(key, made)
        return made, f"{provider}/{name}" if name else provider

    async def aclose(self) -> None:
        """Close what the providers hold open."""
        for provider in list(self._made.values()):
            await cast("Closable", provider).aclose()
