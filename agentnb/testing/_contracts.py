"""What a journal and a provider must do, as lists of checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from agentnb.core.protocols import Journal
from agentnb.testing import _keeping, _values
from agentnb.testing._answering import ANY, CHOSEN, Model, ProviderFactory, StreamPromise
from agentnb.testing._check import Check
from agentnb.testing._handed import Bench
from agentnb.testing._promises import Promise

JournalFactory = Callable[[], tuple[Journal, Callable[[], Journal]]]
"""Returns a new, empty journal, and a function `reopen`. `reopen()` returns a journal over the same
storage, as a new process finds it after the first one died without closing."""

__all__ = ["JournalFactory", "ProviderFactory", "journal_contract", "provider_contract"]


def journal_contract(factory: JournalFactory) -> list[Check]:
    """The promises of `agentnb.core.protocols.Journal`, for a journal with all its methods.

    The checks run in any order, without sleeps or network. Each creates its own journals and
    closes them. One sets an environment variable for its duration, to have a secret.

    Args:
        factory: See `JournalFactory`. Called once for each check, on the loop of the check.
    """
    return journal_checks({**_keeping.PROMISES, **_values.PROMISES}, factory)


def journal_checks(promises: Mapping[str, Promise], factory: JournalFactory) -> list[Check]:
    """Promises of a journal as checks."""
    return [Check(name, partial(_keeps, body, factory)) for name, body in promises.items()]


async def _keeps(promise: Promise, factory: JournalFactory) -> None:
    journal, reopen = factory()
    bench = Bench(journal, reopen)
    try:
        await promise(bench)
        bench.close()
    except Exception:
        bench.close_quietly()
        raise


def provider_contract(factory: ProviderFactory) -> list[Check]:
    """The promises of `agentnb.core.protocols.Provider`.

    The checks run in any order, without sleeps. Each creates its own providers and closes them.

    Args:
        factory: See `ProviderFactory`. If it takes no argument, the answers cannot be chosen: the
            checks then leave out tool calls, stop reasons and errors.
    """
    promises = {**ANY, **CHOSEN} if Model.chooses(factory) else ANY
    return [Check(name, partial(_answers, body, factory)) for name, body in promises.items()]


async def _answers(promise: StreamPromise, factory: ProviderFactory) -> None:
    model = Model(factory)
    try:
        await promise(model)
    finally:
        await model.close()
