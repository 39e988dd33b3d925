"""For tests of parts of one's own, and of runs.

`journal_contract` lists what a journal must do, as checks for any test runner. With pytest and
pytest-asyncio:

    from agentnb.testing import journal_contract

    @pytest.mark.parametrize("check", journal_contract(factory), ids=str)
    async def test_my_journal(check):
        await check()

`equal_records` says in words what two runs tell otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentnb.core.protocols import Journal
from agentnb.testing import _keeping, _values
from agentnb.testing._equal import equal_records
from agentnb.testing._handed import Bench

JournalFactory = Callable[[], tuple[Journal, Callable[[], Journal]]]
"""Returns a new, empty journal, and a function `reopen`. `reopen()` returns a journal over the same
storage, as a new process finds it after the first one died without closing."""

__all__ = ["Check", "JournalFactory", "equal_records", "journal_contract"]


@dataclass(frozen=True, repr=False)
class Check:
    """One promise of a journal. `await check()` raises `AssertionError` if it is broken.

    What the journal itself raises is the cause of that error.
    """

    name: str
    """The promise, as a sentence. Also `str(check)`."""
    _body: Callable[[Bench], Awaitable[None]]
    _factory: JournalFactory

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Check({self.name!r})"

    async def __call__(self) -> None:
        """Check it on a new journal."""
        journal, reopen = self._factory()
        bench = Bench(journal, reopen)
        try:
            await self._body(bench)
            bench.close()
        except Exception as error:
            bench.close_quietly()
            raise AssertionError(f"{self.name}: {error!r}") from error


def journal_contract(factory: JournalFactory) -> list[Check]:
    """The promises of `agentnb.core.protocols.Journal`, for a journal with all of its methods.

    The checks need no order, no sleep and no network. Each makes journals of its own and closes
    them. One sets an environment variable for its duration, to have a secret.

    Args:
        factory: See `JournalFactory`. Called once for each check, on the loop of the check.
    """
    promises = {**_keeping.PROMISES, **_values.PROMISES}
    return [Check(name, body, factory) for name, body in promises.items()]
