"""Finds the provider for a model's name.

Providers are registered by name: the built-in ones at the end of this module, others through
`agentnb.register_provider`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from agentnb.core.cancel import foreign
from agentnb.core.errors import InternalError, UnknownModel
from agentnb.core.protocols import Provider, is_provider, supports_close
from agentnb.core.text import literal
from agentnb.errors import wrong_settings_as_line

Factory = Callable[..., Provider]
Settings = Mapping[str, str]
"""A provider's settings in the settings file: its factory's arguments, by name."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RESERVED = ("new", "pool")
"""Prefixes with another meaning: `pool:NAME` is not a model."""


class _Registration(NamedTuple):
    factory: Factory
    needs_model: bool


_registered: dict[str, _Registration] = {}
"""By name, for the whole process."""


@wrong_settings_as_line()
def register_provider(
    name: str, factory: Factory, *, needs_model: bool = True, replace: bool = False
) -> None:
    """Register your own provider, for models named `name/...`.

    Example:
        >>> agentnb.register_provider("lab", LabProvider)
        >>> agentnb.Session(model="lab/model-x")

    Args:
        name: Letters, digits, `_` and `-`. Register it before a session names one of its models.
        factory: The provider's class, or a function that makes one. Called without arguments when
            a model is first named; the provider it returns serves all sessions from then on.
            Address, key and limits are in your own code. A provider has a `name` and
            `stream(request)`: see `agentnb.core.protocols.Provider`. For the name `openai` it is
            called with `base_url` and `api_key_env` if the settings file has them.
        needs_model: `False` if the name alone is a model, like `demo`.
        replace: Whether to replace a provider that already has this name.

    Raises:
        ValueError: The name is invalid or taken, or `factory` is not callable.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise ValueError(
            f"A provider cannot have the name {literal(name)}: use letters, digits, `_` and `-`, "
            "at "
            "most 64, and neither `pool` nor `new`."
        )
    if not callable(factory):
        raise ValueError(
            f"`factory` must be the provider's class, or a function that makes one, not "
            f"{literal(factory)}."
        )
    registration = _Registration(factory, needs_model)
    if replace:
        _registered[name] = registration
    elif _registered.setdefault(name, registration) is not registration:
        raise ValueError(
            f"There is a provider {literal(name)} already. Use another name, or replace it with "
            "`replace=True`."
        )


def known_providers() -> tuple[str, ...]:
    """The names of all providers, sorted."""
    return tuple(sorted(_registered))


def model_beginnings() -> list[str]:
    """The beginnings of all model names, sorted: `anthropic/`, or a whole name such as `demo`."""
    return [f"{name}/" if _registered[name].needs_model else name for name in known_providers()]


def split_model(model: str) -> tuple[str, str]:
    """Split `provider/model` or `provider:model`.

    Only the provider part is checked: the provider knows its models.

    Raises:
        UnknownModel: The provider does not exist, or the model's own name is missing.
    """
    provider, name = (*re.split("[/:]", model.strip(), maxsplit=1), "")[:2]
    registration = _registered.get(provider)
    if registration is None or not (name or not registration.needs_model):
        raise UnknownModel(model, known=known_providers())
    return provider, name


def label_of(provider: str, name: str) -> str:
    """A model's name in the form `provider/model`; of one without a name the provider's."""
    return f"{provider}/{name}" if name else provider


class Origin(NamedTuple):
    """How a provider was made."""

    name: str
    factory: Factory
    settings: tuple[tuple[str, str], ...]
    """Arguments of the factory, by name."""


class Registry:
    """Makes each provider once, when a model of it is first used."""

    def __init__(self) -> None:
        self._made: dict[Origin, Provider] = {}

    def resolve(self, model: str, settings: Settings | None = None) -> tuple[Provider, str]:
        """Return the provider for a model, and the model's name in the form `provider/model`.

        Args:
            model: The name as the user writes it.
            settings: Arguments for the provider's factory.

        Raises:
            UnknownModel: See `split_model`.
            ValueError: The factory did not return a provider.
        """
        provider, name = split_model(model)
        factory, settings = _registered[provider].factory, settings or {}
        key = Origin(provider, factory, tuple(sorted(settings.items())))
        if (made := self._made.get(key)) is None:
            # If two threads make one, the first wins: only providers in `_made` are closed.
            made = self._made.setdefault(key, _checked(factory(**settings), provider))
        return made, label_of(provider, name)

    def origin_of(self, provider: Provider) -> Origin | None:
        """How a provider was made; `None` for one that was not made here."""
        return next((key for key, made in self._made.items() if made is provider), None)

    async def aclose(self) -> None:
        """Close all providers."""
        await close_all(self._made.values())


async def close_all(providers: Iterable[Provider]) -> None:
    """Close providers. An error of one must not keep the others open, and is dropped."""
    for provider in list(providers):
        if supports_close(provider):
            with suppress(InternalError), foreign("the close of a provider"):
                await provider.aclose()


def _checked(made: object, name: str) -> Provider:
    if not is_provider(made):
        raise ValueError(
            f"The factory of the provider {literal(name)} returned {literal(made)}, which is not "
            "a provider: a provider has a `name` and `stream(request)`."
        )
    return made


# -- the built-in ones ----------------------------------------------------------------------------


def _anthropic() -> Provider:
    from agentnb.providers.anthropic import AnthropicProvider, preload

    preload()
    return AnthropicProvider()


def _demo() -> Provider:
    from agentnb.providers.demo import DemoProvider

    return DemoProvider()


def _openai(*, base_url: str | None = None, api_key_env: str | None = None) -> Provider:
    from agentnb.providers.openai import OpenAIProvider, preload

    preload()
    return OpenAIProvider(base_url=base_url, api_key_env=api_key_env)


register_provider("anthropic", _anthropic)
register_provider("demo", _demo, needs_model=False)
register_provider("openai", _openai)
