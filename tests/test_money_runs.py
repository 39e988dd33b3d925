"""Runs of a session with a budget in dollars: what a person sets, what is refused and shown."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Price, Session
from agentnb.core.errors import NoPrice
from agentnb.core.events import RunStarted
from agentnb.core.types import AgentStatus
from agentnb.providers.scripted import ScriptedProvider

PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)


@pytest.fixture
def priced() -> Iterator[None]:
    agentnb.set_prices({"scripted": PRICE})
    yield
    agentnb.set_prices({})


def session(*replies: str, **given: Any) -> Session:
    given = {"store": None, "budget": "$4"} | given
    return Session(provider=ScriptedProvider(list(replies)), **given)


@pytest.mark.parametrize("given", ["$4", " $4.00 ", "4 USD", Decimal(4)])
def test_money_is_given_as_text_or_decimal(given: str | Decimal) -> None:
    assert session(budget=given).budget == "$4"


@pytest.mark.parametrize(
    ("given", "why"), [("€3", "not in dollars"), (4.0, "write dollars as text"), ("$0", "above 0")]
)
def test_wrong_budget_is_refused_with_why(given: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        session(budget=given)


def test_model_without_a_price_is_refused_with_the_fix_before_any_call() -> None:
    ours = session("never read")
    before = len(ours.runs(None))
    with pytest.raises(NoPrice, match=r'set_prices\(\{"scripted": agentnb.Price'):
        ours.spawn("a task")
    with pytest.raises(NoPrice, match="demo"):
        Session(model="demo", budget="$4", store=None).spawn("a task")
    assert len(ours.runs(None)) == before


def test_table_with_judges_needs_no_price_of_the_sessions_own_model() -> None:
    judges = ["scripted/strict", "scripted/mild"]
    agentnb.set_prices(dict.fromkeys(judges, PRICE))
    try:
        run = session("yes", "no").map(["a"], "{{text}}?", models=judges)
        assert run.result().status is AgentStatus.COMPLETED
        assert run.cost.usd is not None
        with pytest.raises(NoPrice, match="scripted/dear"):
            session("never read").map(["a"], "{{text}}?", models=[*judges, "scripted/dear"])
    finally:
        agentnb.set_prices({})


@pytest.mark.usefixtures("priced")
def test_run_counts_the_money_that_its_calls_cost() -> None:
    run = session("an answer").spawn("a task")
    result = run.result()

    assert result.status is AgentStatus.COMPLETED
    started = run.events[0].event
    assert isinstance(started, RunStarted)
    assert (started.budget_total, started.unit) == (4_000_000, "usd")
    assert run.cost.usd is not None
    assert run.budget.tokens_used / 1e6 == pytest.approx(run.cost.usd, abs=1e-6)
    assert "of $4.00" in repr(run.budget)


@pytest.mark.usefixtures("priced")
def test_total_is_set_in_the_unit_of_the_run_alone() -> None:
    run = session("an answer").spawn("a task")
    run.result()
    run.set_budget("$6")
    assert run.budget.total == 6_000_000
    with pytest.raises(ValueError, match="counts dollars"):
        run.set_budget(5_000)
    of_tokens = session("an answer", budget=50_000).spawn("a task")
    of_tokens.result()
    with pytest.raises(ValueError, match="counts tokens"):
        of_tokens.set_budget("$6")


@pytest.mark.usefixtures("priced")
def test_prices_of_a_run_are_kept_with_it(tmp_path: Path) -> None:
    cassette = tmp_path / "a.cassette.jsonl"
    ours: dict[str, Any] = {"budget": "$4", "store": None}
    with Session(
        provider=ScriptedProvider(["an answer"]), mode="record", cassette=cassette, **ours
    ) as recorded:
        before = recorded.spawn("a task")
        before.result()
    agentnb.set_prices({})  # a replay needs no present price
    with Session(
        provider=ScriptedProvider([]), mode="replay", cassette=cassette, **ours
    ) as replayed:
        run = replayed.spawn("a task")
        assert run.result().final_response == "an answer"
    assert run.budget.tokens_used == before.budget.tokens_used > 0
