"""Who answers in a session: from what a person names to providers, their gates and one label.

A name is `provider/model`, a pool (`pool:NAME`), or several of either: a chain. What is not said
is chosen here too, and where the choice came from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from weakref import WeakKeyDictionary

from agentnb.config import Config
from agentnb.core.context import texts
from agentnb.core.errors import MissingExtra
from agentnb.core.protocols import FallbackModel, Gate, Provider, links_of
from agentnb.errors import UntrustedSettings
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.gate import ConcurrencyGate, RoutedGate
from agentnb.providers.registry import Registry, split_model
from agentnb.settings import DEFAULT_MODEL
from agentnb.trust import allowed_server

registry = Registry()
"""For all sessions: their calls to one base URL with one key share one HTTP client."""

_SAID_IN_FILE = {"openai": allowed_server}
"""By provider, what the settings file says of it."""

_gates: WeakKeyDictionary[Provider, dict[int, ConcurrencyGate]] = WeakKeyDictionary()


def gate_of(provider: Provider, max_concurrency: int) -> Gate:
    """The gate before a provider, which all sessions with the same limit share."""
    if isinstance(provider, FallbackProvider):
        links = provider.links
        return RoutedGate({link.model: gate_of(link.provider, max_concurrency) for link in links})
    try:
        gates = _gates.setdefault(provider, {})
    except TypeError:  # somebody's own provider that cannot be a key: each run has its own gate
        return ConcurrencyGate(max_concurrency)
    made = gates.get(max_concurrency) or ConcurrencyGate(max_concurrency)
    return gates.setdefault(max_concurrency, made)  # of two threads the first one's counts


class Origin(StrEnum):
    """Who chose the model of a session."""

    CODE = "code"
    DEFAULT_POOL = "default_pool"
    """The settings file, by `llm.default_pool`."""
    DEFAULT = "default"


class Models:
    """The models of a session, and who answers to them.

    Args:
        said: The session's `model`; `None` when code names none.
        provider: The session's own, in place of the one that `said` names.
        config: What the settings file says.

    Raises:
        ConfigError: A pool of the file holds a model that nobody answers to.
        MissingExtra: See `resolve`.
        UnknownModel, UnknownPool: `said` names one.
        ValueError: `said` is empty, or no names.
    """

    def __init__(
        self, said: str | Sequence[str] | None, *, provider: Provider | None, config: Config
    ) -> None:
        self._provider = provider
        self._config = config
        config.check_models(self._check_known)
        self.model: str | tuple[str, ...] = DEFAULT_MODEL
        """One model, or a chain of them: pools are written out."""
        self.origin = Origin.DEFAULT
        if said is not None:
            self.model, self.origin = self._named(said), Origin.CODE
        elif provider is not None:
            self.model, self.origin = provider.name, Origin.CODE
        elif config.default_pool is not None:
            self.model = self._named(f"pool:{config.default_pool}")
            self.origin = Origin.DEFAULT_POOL
        if provider is None or not isinstance(self.model, str):
            # What is wrong with it is said now, not at the first run. Nothing is wrong with what
            # is not trusted yet: a person wants to look at it first.
            with suppress(UntrustedSettings):
                self.resolve(self.model)

    def resolve(self, model: str | Sequence[str] | None = None) -> tuple[Provider, str]:
        """Who answers, and the name of the (first) model as people read it.

        Args:
            model: `None` for the session's.

        Raises:
            MissingExtra: Its SDK is not installed; of a chain, that of no model.
            UntrustedSettings: The settings file says where it is asked, and is not trusted.
            UnknownModel, UnknownPool, ValueError: As for the class.
        """
        if model is None:
            if self._provider is not None and isinstance(self.model, str):
                return self._provider, self.model
            model = self.model
        names = self._named(model)
        if isinstance(names, str):
            return self._link(names)
        chain = FallbackProvider(self._links(names))
        return chain, chain.links[0].model

    def _links(self, names: Sequence[str]) -> list[FallbackModel]:
        """The models of a chain, but for those whose SDK is not installed."""
        links: list[FallbackModel] = []
        for name in names:
            with suppress(MissingExtra):
                links.append(FallbackModel(*self._link(name)))
        return links or [FallbackModel(*self._link(names[0]))]  # which says what to install

    def _named(self, model: str | Sequence[str]) -> str | tuple[str, ...]:
        """One model, or a chain of several; a chain of one is that one."""
        names = self._config.models_of(model if isinstance(model, str) else texts(model, "model"))
        if not names:
            raise ValueError("`model` is empty: name a model, or several of which one answers.")
        return names if len(names) > 1 else names[0]

    def _link(self, model: str) -> tuple[Provider, str]:
        own = self._own(model)
        if own is not None:
            return own, model
        said = _SAID_IN_FILE.get(split_model(model)[0])
        return registry.resolve(model, said and said(self._config))

    def _own(self, model: str) -> Provider | None:
        """The session's own provider, or the link of its chain, that answers to a model."""
        own = self._provider
        for link in () if own is None else links_of(own, model):
            if re.split("[/:]", model)[0] == link.provider.name:
                return link.provider
        return None

    def _check_known(self, model: str) -> None:
        """See to it that somebody answers to a model, without making a provider for it."""
        if self._own(model) is None:
            split_model(model)
