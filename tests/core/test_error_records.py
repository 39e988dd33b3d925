"""An error that was kept is raised again: retries, failover and all words are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentnb.core import errors
from agentnb.core.codec import plain
from agentnb.core.errors import (
    InternalError,
    LlmError,
    NoAnswer,
    RateLimited,
    Refused,
    ServerFailed,
)
from agentnb.core.events import AgentFailed, AgentWaiting, ModelCallFinished, ProviderFailover
from agentnb.core.protocols import FallbackModel
from agentnb.core.records import CANCELLED, ErrorRecord, error_of, error_record
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.scripted import Reply, ScriptedProvider, ScriptExhausted
from agentnb.testing.memory_journal import MemoryJournal
from tests.core.clock import ManualClock
from tests.support import Tree, run_tree


def of_llm(kind: type[LlmError] = LlmError) -> Iterator[type[LlmError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from of_llm(below)


class Full(RateLimited):
    """A person's own: counts as `RateLimited`."""


class Stubborn(LlmError):
    permanent = True


class Silent(LlmError):
    """Does not call the constructor above it."""

    def __init__(self) -> None:
        Exception.__init__(self)


class Bug(Exception):
    pass


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class BadDriver(InternalError):
    pass


ERRORS: list[BaseException] = [
    *(kind("it broke") for kind in of_llm()),
    *(kind("it broke", retryable=not kind.default_retryable) for kind in of_llm()),
    *(ServerFailed("by status", status_code=status) for status in (400, 404, 500)),
    RateLimited("soon", retry_after_s=1.5, status_code=429),
    RateLimited("late", retry_after_s=900),
    RateLimited("never", retry_after_s=float("inf")),
    LlmError("two\nlines, " + "and long " * 200),
    LlmError(""),
    Full("full", retry_after_s=2.0),
    Stubborn("no"),
    Silent(),
    ScriptExhausted("one too many"),
    InternalError("a bug of ours"),
    BadDriver("a bug below"),
    NoAnswer("it is late"),
    Bug("foreign"),
    Bug("two\nlines, " + "and long " * 200),
    Bug(),
    Odd(),
    TimeoutError("its own"),
    KeyError("key"),
    SystemExit(3),
    type("RateLimited", (Exception,), {})("a namesake"),
    type("InternalError", (Exception,), {})("of a database"),
]


def as_read(record: ErrorRecord) -> ErrorRecord:
    """As a store gives it back."""
    found: ErrorRecord = json.loads(json.dumps(plain(record)))
    return found


class Raises:
    """Answers with these errors, one after another, and then with a text."""

    name = "raises"

    def __init__(self, *raised: BaseException, after: str = "") -> None:
        self.raised, self._after = list(raised), after

    async def stream(self, request: Any) -> Any:
        if self._after:
            async for event in ScriptedProvider([Reply(self._after)]).stream(request):
                if type(event).__name__ != "Stopped":
                    yield event
        if self.raised:
            raise self.raised.pop(0)
        async for event in ScriptedProvider(["well"]).stream(request):
            yield event


async def told_of(*raised: BaseException, after: str = "", chained: bool = False) -> Tree:
    provider: Any = Raises(*raised, after=after)
    if chained:
        other = FallbackModel(ScriptedProvider(["b is well"]), "scripted/b")
        provider = FallbackProvider([FallbackModel(provider, "raises/a"), other])
    return await run_tree(provider, journal=MemoryJournal(), clock=ManualClock(sleeps_end=True))


def words_of(tree: Tree) -> list[Any]:
    """All that retries, failover and the end tell, but for delays that are random."""
    told: list[Any] = [
        (event.kind, event.error, event.will_retry) for event in tree.of(AgentFailed)
    ]
    told += [(e.reason, e.attempt, (e.wait_s or 0) > 60) for e in tree.of(AgentWaiting)]
    told += [(e.from_provider, e.to_provider, e.error) for e in tree.of(ProviderFailover)]
    told += [e.error for e in tree.of(ModelCallFinished)]
    return [*told, type(tree.error).__name__, str(tree.error), tree.result.final_response]


@pytest.mark.parametrize("case", ["alone", "chained", "shown"])
async def test_error_from_its_record_leads_to_the_same_run(case: str) -> None:
    given: dict[str, Any] = {
        "after": "said" if case == "shown" else "",
        "chained": case == "chained",
    }
    for error in ERRORS:
        live = await told_of(*[error] * 9, **given)
        assert isinstance(live.journal, MemoryJournal)
        kept = [call.error for call in live.journal.load(live.request.run_id).calls]
        again = [error_of(as_read(record)) for record in kept if record is not None]
        replayed = await told_of(*again, **given)

        assert words_of(replayed) == words_of(live), repr(error)
        assert kept[0] is not None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_record_of_the_error_from_a_record_is_that_record(error: BaseException) -> None:
    record = as_read(error_record(error))

    assert as_read(error_record(error_of(record))) == record


def test_own_class_counts_as_the_nearest_of_agentnb_and_keeps_its_name() -> None:
    found = error_of(as_read(error_record(Full("full", retry_after_s=2.0))))

    assert isinstance(found, RateLimited)
    assert (type(found).__name__, found.retry_after_s) == ("Full", 2.0)
    assert not isinstance(error_of(error_record(Bug("x"))), errors.AgentnbError)


def test_cancelled_call_is_a_cancel_again() -> None:
    assert type(error_of(as_read(CANCELLED))).__name__ == "CancelledError"
    assert isinstance(error_of(as_read(CANCELLED)), BaseException)
    assert not isinstance(error_of(as_read(CANCELLED)), Exception)


@pytest.mark.parametrize(
    ("name", "status", "kind", "permanent"),
    [
        ("Refused", None, Refused, True),
        ("ServerFailed", 500, ServerFailed, False),
        ("LlmError", 400, LlmError, True),
        ("InternalError", None, InternalError, None),
        ("Bug", None, Exception, None),
    ],
)
def test_record_from_before_bases_were_kept_is_told_by_its_class(
    name: str, status: int | None, kind: type[Exception], permanent: bool | None
) -> None:
    found = error_of(
        ErrorRecord(
            {
                "class": name,
                "message": "it broke",
                "retryable": False,
                "retry_after_s": None,
                "status": status,
            }
        )
    )

    assert isinstance(found, kind)
    assert (type(found).__name__, str(found)) == (name, "it broke")
    assert getattr(found, "permanent", None) is permanent
