"""`prices` of agentnb.yaml: whose prices hold, what is wrong with them, and what needs trust."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Price, Session
from agentnb.config import load_config
from agentnb.core.errors import NoPrice
from agentnb.core.types import Usage
from agentnb.errors import ConfigError, UntrustedSettings
from agentnb.notebook.settings import settings_text
from agentnb.prices import list_price, makes_cheaper, prices_of_file
from agentnb.providers.scripted import Reply, ScriptedProvider

FILE = "prices:\n  scripted:\n    {input: 3, output: 15, cache_read: 0.30}\n"
REPLY = Reply("an answer", usage=Usage(1_000, 100))
COST = (1_000 * 3 + 100 * 15) / 1e6


@pytest.fixture(autouse=True)
def no_prices_of_code() -> Iterator[None]:
    agentnb.set_prices({})
    yield
    agentnb.set_prices({})


def session(**given: Any) -> Session:
    return Session(provider=ScriptedProvider([REPLY, REPLY]), **{"store": None, **given})


def test_run_costs_what_the_file_says_unless_code_says_otherwise(project: Path) -> None:
    (project / "agentnb.yaml").write_text(FILE)
    ours = session(budget="$4", store=project / "agentnb.db")

    run = ours.spawn("a task")
    run.result()

    assert run.cost.usd == pytest.approx(COST)
    assert run.budget.tokens_used == round(COST * 1e6)
    assert ours.runs()[0].cost_usd == pytest.approx(COST)
    assert ours.load(run.id).cost.usd == pytest.approx(COST)
    assert run.agent("root").cost.usd == pytest.approx(COST)
    agentnb.set_prices({"scripted": Price(0, 10)})
    assert run.cost.usd == pytest.approx(0.001)
    assert session(config=False).spawn("a task").result().record.cost.usd == pytest.approx(0.001)


def test_changed_price_holds_for_the_next_run(project: Path) -> None:
    (project / "agentnb.yaml").write_text(FILE)
    ours = session(budget="$4")
    first = ours.spawn("a task")
    first.result()
    (project / "agentnb.yaml").write_text(FILE.replace("input: 3", "input: 30"))
    second = ours.spawn("a task")
    second.result()

    assert first.cost.usd == pytest.approx(COST)
    assert second.cost.usd == pytest.approx(COST + 0.027)


def test_loaded_run_of_the_store_is_priced_by_the_file(project: Path) -> None:
    (project / "agentnb.yaml").write_text(FILE)
    store = project / "agentnb.db"
    run = session(store=store, config=False).spawn("a task")
    run.result()
    unpriced = run.cost.usd
    del run

    assert unpriced is None
    assert session(store=store).runs()[0].cost_usd == pytest.approx(COST)


def test_model_without_a_price_is_told_of_the_file(project: Path) -> None:
    (project / "agentnb.yaml").write_text("prices:\n  another: {input: 1, output: 1}\n")
    with pytest.raises(NoPrice, match=r"`prices` of agentnb\.yaml"):
        session(budget="$4").spawn("a task")


def test_prices_are_read_exactly_and_shown(project: Path) -> None:
    (project / "agentnb.yaml").write_text("prices:\n  x:y: {input: 0.1, output: 1_000}\n")
    found = load_config("agentnb.yaml").prices
    of_file = prices_of_file(found)

    assert str(list_price("x/y", 3, 1, of_file=of_file)) == "0.0010003"
    assert "  x:y  input 0.1, output 1000" in settings_text(session())


@pytest.mark.parametrize(
    ("prices", "where", "what"),
    [
        ("x/y: {input: 3}", "line 2, `prices.x/y.output`", "`output: 3`"),
        ("x/y: {input: $3, output: 1}", "line 2, `prices.x/y.input`", "not '$3'"),
        ("x/y: {input: -3, output: 1}", "line 2, `prices.x/y.input`", "at least 0"),
        ("x/y: {input: .nan, output: 1}", "line 2, `prices.x/y.input`", "such as `3`"),
        ("x/y: {input: .inf, output: 1}", "line 2, `prices.x/y.input`", "such as `3`"),
        ("x/y: {input: 1, output: true}", "line 2, `prices.x/y.output`", "`true` or `false`"),
        ("x/y: {input: 1, outptu: 1, output: 1}", "prices.x/y.outptu`", "Did you mean `output`"),
        ("x/y: 3", "line 2, `prices.x/y`", "must be a mapping"),
        ("pool:fast: {input: 1, output: 1}", "line 2, `prices.pool:fast`", "is a pool"),
        ("x/y: &a {input: 1, output: 1}\n  x:y: {input: 1, output: 1}", "`prices`", "two prices"),
    ],
)
def test_mistake_is_told_with_line_key_and_fix(
    project: Path, prices: str, where: str, what: str
) -> None:
    (project / "agentnb.yaml").write_text(f"prices:\n  {prices}\n")
    with pytest.raises(ConfigError) as raised:
        load_config("agentnb.yaml")
    assert where in str(raised.value)
    assert what in str(raised.value)


def test_lower_price_of_an_untrusted_file_is_refused_for_a_budget_of_money(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not a key")
    monkeypatch.delenv("AGENTNB_TRUST", raising=False)
    model = "anthropic/claude-sonnet-4-5"
    (project / "agentnb.yaml").write_text(f"prices:\n  {model}: {{input: 0.1, output: 15}}\n")

    with pytest.raises(UntrustedSettings, match=model):
        Session(model=model, budget="$4", store=None).spawn("a task")


@pytest.mark.parametrize(
    ("model", "prices", "cheaper"),
    [
        ("anthropic/claude-sonnet-4-5", (30, 150, 30, 30), False),
        ("anthropic/claude-sonnet-4-5", (30, 1, 30, 30), True),
        ("anthropic/of-tomorrow", (30, 150, 30, 30), True),
        ("scripted", (0, 0, 0, 0), False),
        ("mine/model", (0, 0, 0, 0), False),
    ],
)
def test_what_needs_trust(model: str, prices: tuple[int, ...], cheaper: bool) -> None:
    assert makes_cheaper(model, {model: Price(*prices)}) is cheaper
    agentnb.set_prices({model: Price(1, 1)})
    assert not makes_cheaper(model, {model: Price(*prices)})
