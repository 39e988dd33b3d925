"""The cost of a run: an estimate that says so, and never 0 for an unknown price."""

from __future__ import annotations

import math
import pickle
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentnb
from agentnb import prices
from agentnb.core.bus import EventBus
from agentnb.core.events import AgentSpawned, ModelCallFinished
from agentnb.core.types import Usage
from agentnb.prices import Call, Cost, Price, Unpriced, cost_of, set_prices
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.record import RunRecord, _began, load_run
from agentnb.session import Session
from tests.support import DEADLINE_S, Hold, by_agent, run_python, spawn

SONNET = "anthropic/claude-sonnet-4-5"
MINE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
USAGE = Usage(
    input_tokens=1_000, output_tokens=200, cache_creation_tokens=4_000, cache_read_tokens=10_000
)
MINE_FOR_USAGE = (1_000 * 3.0 + 200 * 15.0 + 4_000 * 3.75 + 10_000 * 0.3) / 1e6
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def nobodys_own_prices() -> Iterator[None]:
    set_prices({})
    prices._by_genai_prices.cache_clear()
    yield
    set_prices({})
    prices._by_genai_prices.cache_clear()


def cost(*calls: tuple[str, Usage], at: datetime | None = NOW) -> Cost:
    """The cost of calls of the root."""
    return cost_of([Call("root", model, usage, at) for model, usage in calls], paths=["root"])


# -- a person's own prices ----------------------------------------------------------------------


def test_each_kind_of_token_is_priced_by_its_own_price() -> None:
    set_prices({"x/y": MINE})

    assert cost(("x/y", USAGE)).usd == MINE_FOR_USAGE == 0.024
    assert cost(("x/y", Usage(input_tokens=1_000_000))).usd == 3.0
    assert cost(("x/y", Usage(output_tokens=1_000_000))).usd == 15.0
    assert cost(("x/y", Usage(cache_read_tokens=1_000_000))).usd == 0.3
    assert cost(("x/y", Usage(cache_creation_tokens=1_000_000))).usd == 3.75


def test_price_of_the_cache_that_is_left_out_is_that_of_input() -> None:
    set_prices({"x/y": Price(2, 10)})

    assert cost(("x/y", USAGE)).usd == (15_000 * 2 + 200 * 10) / 1e6


def test_own_price_goes_before_the_known_one_and_is_taken_back() -> None:
    known = cost((SONNET, USAGE)).usd
    set_prices({SONNET: Price(1, 1), "x/y": MINE})
    assert cost((SONNET, USAGE)).usd == USAGE.total_tokens / 1e6 != known

    set_prices({"x/y": MINE})
    assert cost((SONNET, USAGE)).usd == known
    set_prices({})
    assert cost(("x/y", USAGE)).usd is None


def test_model_is_meant_by_either_spelling() -> None:
    set_prices({"x:y/z": MINE})
    assert cost(("x/y/z", USAGE)).usd == MINE_FOR_USAGE
    assert cost((SONNET.replace("/", ":"), USAGE)).usd == cost((SONNET, USAGE)).usd


def test_model_that_is_free_costs_nothing_and_is_priced() -> None:
    set_prices({"local/model": Price(0, 0)})

    assert cost(("local/model", USAGE)) == Cost(
        0.0, 0.0, (), {"root": Cost(0.0, 0.0)}, {"local/model": Cost(0.0, 0.0)}
    )


@pytest.mark.parametrize(
    "amount", [-1, math.nan, math.inf, True, "3", 1e300, Decimal("nan"), Decimal("-inf")]
)
def test_amount_that_is_no_price_is_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match="A price is a number of US dollars"):
        Price(input=1, output=amount)
    with pytest.raises(ValueError, match="A price is a number of US dollars"):
        Price(input=1, output=1, cache_read=amount)


@pytest.mark.parametrize("wrong", [{"x/y": 3.0}, {"": MINE}, {3: MINE}, {"x/y": None}])
def test_prices_that_are_none_are_refused_and_change_nothing(wrong: Any) -> None:
    set_prices({"x/y": MINE})

    with pytest.raises(ValueError, match="must be a Price for each"):
        set_prices({"x/y": Price(0, 0)} | wrong)

    assert cost(("x/y", USAGE)).usd == MINE_FOR_USAGE


# -- known prices -------------------------------------------------------------------------------


def test_known_model_is_priced_kind_by_kind_as_its_data_say() -> None:
    # From the data, so that new prices change nothing here.
    import genai_prices
    from genai_prices.data_snapshot import get_snapshot

    _, model = get_snapshot().find_provider_model("claude-opus-4-6", None, "anthropic", None)
    price = model.get_prices(NOW)
    assert isinstance(price.input_mtok, Decimal), genai_prices.__version__
    per_million = [
        (price.input_mtok, USAGE.input_tokens),
        (price.output_mtok, USAGE.output_tokens),
        (price.cache_write_mtok, USAGE.cache_creation_tokens),
        (price.cache_read_mtok, USAGE.cache_read_tokens),
    ]
    assert all(isinstance(amount, Decimal) and amount > 0 for amount, _ in per_million)

    by_hand = sum(float(str(amount)) * tokens for amount, tokens in per_million) / 1e6

    assert cost(("anthropic/claude-opus-4-6", USAGE)).usd == pytest.approx(by_hand, rel=1e-12)


def test_known_models_cost_what_such_models_cost() -> None:
    for model in (SONNET, "anthropic/claude-sonnet-5-5", "openai/gpt-4o"):
        usd = cost((model, Usage(input_tokens=1_000_000, output_tokens=1_000_000))).usd
        assert usd is not None
        assert 1 < usd < 200, model
    read, fresh = (cost((SONNET, u)).usd for u in (Usage(cache_read_tokens=9), Usage(9)))
    assert read is not None
    assert fresh is not None
    assert 0 < read < fresh / 2


def test_call_is_priced_by_its_own_size_and_not_by_the_runs() -> None:
    # This model costs more for each token of a request above 200,000 tokens.
    small, large = Usage(input_tokens=150_000), Usage(input_tokens=300_000)
    two, one = cost((SONNET, small), (SONNET, small)).usd, cost((SONNET, large)).usd

    assert two is not None
    assert one is not None
    assert two < one


@given(st.builds(Usage, *[st.integers(0, 10**7)] * 4))
def test_no_usage_is_refused_and_more_tokens_never_cost_less(usage: Usage) -> None:
    usd = cost((SONNET, usage)).usd
    more = cost((SONNET, usage + Usage(1, 1, 1, 1))).usd

    assert usd is not None
    assert more is not None
    assert usd < more


def test_call_has_the_price_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import genai_prices

    asked: list[datetime | None] = []
    calc = genai_prices.calc_price

    def noting(*args: Any, genai_request_timestamp: datetime | None, **kwargs: Any) -> Any:
        asked.append(genai_request_timestamp)
        return calc(*args, genai_request_timestamp=genai_request_timestamp, **kwargs)

    monkeypatch.setattr(genai_prices, "calc_price", noting)
    began = datetime(2026, 6, 1, 10, 20, 50, tzinfo=UTC)
    start_of_id = f"{round(began.timestamp() * 1000):012x}"
    for run_id, at in [
        (start_of_id + "7abc8abc0123456789ab", datetime(2026, 6, 1, 10, 22, tzinfo=UTC)),
        (start_of_id + "4abc8abc0123456789ab", None),
        ("f" * 12 + "7abc8abc0123456789ab", None),
        ("no id of ours", None),
    ]:
        prices._by_genai_prices.cache_clear()
        record(run_id, "root", at_s=75.0).cost  # noqa: B018 - asking is what counts
        assert asked.pop() == at
        assert asked == []


def test_model_that_has_no_price_is_looked_for_once_and_not_for_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from genai_prices.data_snapshot import DataSnapshot

    asked: list[str] = []
    look_for = DataSnapshot.find_provider_model

    def counting(self: Any, name: str, *how: Any) -> Any:
        asked.append(name)
        return look_for(self, name, *how)

    monkeypatch.setattr(DataSnapshot, "find_provider_model", counting)
    usages = [Usage(tokens, 1) for tokens in range(1, 50)]

    found = cost(*((f"openai/none-of-theirs-{NOW:%Y}", usage) for usage in usages))

    assert found.usd is None
    assert asked == [f"none-of-theirs-{NOW:%Y}"]


def test_id_of_a_run_says_when_it_began() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    run = Session(provider=ScriptedProvider(["ok"])).spawn("a task")
    run.result(DEADLINE_S)

    began = _began(run.id)

    assert began is not None
    assert before <= began <= datetime.now(UTC)


def record(run_id: str, *paths: str, at_s: float = 0.0, model: str = SONNET) -> RunRecord:
    """A record of agents that made one call each."""

    class Then:
        def now(self) -> float:
            return next(times)

    times = iter([0.0, *[at_s] * 99])
    bus = EventBus(run_id, clock=Then())  # type: ignore[arg-type]
    for path in paths:
        agent_id, parent_id = ("nb", None) if path == "root" else (f"nb.{path}", "nb")
        depth = 0 if path == "root" else 1
        bus.publish(
            AgentSpawned(agent_id=agent_id, parent_id=parent_id, task_description="t", depth=depth)
        )
        bus.publish(ModelCallFinished(agent_id=agent_id, model=model, usage=USAGE, duration_ms=1))
    return RunRecord(run_id, "t", bus)


def test_cost_asks_the_network_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    threads = run_python("""
        import threading
        from agentnb.core.types import Usage
        from agentnb.prices import Call, cost_of
        assert cost_of([Call("root", "anthropic/claude-sonnet-4-5", Usage(1), None)], paths=[]).usd
        print(threading.active_count())
    """)

    assert cost((SONNET, USAGE)).usd
    assert threads == "1\n"


# -- unknown prices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    ["anthropic/no-such-model", "nobody/model", "scripted", "demo", "gpt-4o", "", "/", "a/"],
)
def test_unknown_model_has_no_amount_and_is_named(model: str) -> None:
    unknown = cost((model, USAGE))

    assert unknown.usd is None
    assert unknown.unpriced == (Unpriced(model, USAGE.total_tokens, "no price is known"),)
    assert unknown.by_agent["root"].usd is unknown.by_model[model].usd is None
    assert str(unknown) == f"unpriced: no price is known for {model} (15,200 tokens)"


def test_sum_with_an_unknown_part_says_so_and_is_no_number_to_add_up() -> None:
    set_prices({"x/y": MINE})

    mixed = cost(("x/y", USAGE), ("p/q", Usage(700)), ("p/q", Usage(500)))

    assert (mixed.usd, mixed.at_least_usd) == (None, MINE_FOR_USAGE)
    assert mixed.by_model["x/y"].usd == MINE_FOR_USAGE
    assert mixed.by_model["p/q"].usd is None
    assert str(mixed) == "at least $0.0240 (estimate; unpriced: 1,200 tokens of p/q)"


def test_no_tokens_cost_nothing_where_there_is_a_price_and_are_unpriced_else() -> None:
    assert cost((SONNET, Usage())).usd == 0.0
    assert cost(("nobody/model", Usage())).usd is None
    assert cost().usd == 0.0
    assert str(cost()) == "about $0.0000 (estimate)"


@pytest.mark.parametrize("broken", [ImportError("no such library"), RuntimeError("odd\ndata")])
def test_cost_is_unpriced_with_the_reason_when_the_price_list_fails(
    monkeypatch: pytest.MonkeyPatch, broken: Exception
) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise broken

    monkeypatch.setitem(sys.modules, "genai_prices", Broken())
    set_prices({"x/y": MINE})

    assert cost((SONNET, USAGE)).unpriced[0].reason == (
        f"genai-prices failed ({' '.join(str(broken).split())})"
    )
    assert cost(("x/y", USAGE)).usd == MINE_FOR_USAGE
    monkeypatch.undo()
    assert cost((SONNET, USAGE)).usd, "what failed once is asked again"


def test_price_without_an_amount_for_input_or_output_is_refused() -> None:
    nothing: Any = None
    for amounts in ((nothing, 1), (1, nothing)):
        with pytest.raises(ValueError, match="A price is a number of US dollars"):
            Price(*amounts)


@pytest.mark.parametrize("prices", [None, [], "anthropic/x"])
def test_prices_that_are_no_mapping_are_refused(prices: Any) -> None:
    with pytest.raises(ValueError, match="must map `provider/model` to a Price"):
        set_prices(prices)


# -- as it is read ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usd", "line"),
    [
        (1234.5, "about $1,234.50 (estimate)"),
        (0.0123, "about $0.0123 (estimate)"),
        (0.00012, "about $0.000120 (estimate)"),
        (0.00000001, "about $0.000001 (estimate)"),
    ],
)
def test_cost_is_one_line_that_says_it_is_an_estimate(usd: float, line: str) -> None:
    assert str(Cost(usd, usd)) == line
    assert repr(Cost(usd, usd)) == f"Cost({line!r})"


def test_cost_is_a_plain_value() -> None:
    one = cost((SONNET, USAGE), ("p/q", USAGE))

    assert pickle.loads(pickle.dumps(one)) == one == cost((SONNET, USAGE), ("p/q", USAGE))


# -- of a run -----------------------------------------------------------------------------------


def two_models() -> ScriptedProvider:
    return by_agent(
        {
            "root": [
                Reply(spawn("A", "B"), usage=Usage(100, 10)),
                Reply("together", usage=Usage(1_000, 20)),
            ],
            "A": Reply("a", usage=Usage(50, 5, 7, 11)),
            "B": Reply("b", usage=Usage(60, 6)),
        }
    )


def test_cost_of_a_run_is_that_of_its_agents_by_path_live_and_loaded(tmp_path: Path) -> None:
    agentnb.set_prices({"scripted": Price(input=10, output=100, cache_read=1, cache_write=20)})
    run = Session(provider=two_models()).spawn("root")
    run.result(DEADLINE_S)
    run.to_json(tmp_path / "run.json")

    for either in (run, load_run(tmp_path / "run.json")):
        assert {path: part.usd for path, part in either.cost.by_agent.items()} == {
            "root": (1_100 * 10 + 30 * 100) / 1e6,
            "1": (50 * 10 + 5 * 100 + 7 * 20 + 11 * 1) / 1e6,
            "2": (60 * 10 + 6 * 100) / 1e6,
        }
        assert list(either.cost.by_agent) == [r["path"] for r in either.to_records()]
        total = either.cost.usd
        assert total == pytest.approx(sum(c.usd or 0 for c in either.cost.by_agent.values()))
        assert either.cost.by_model["scripted"].usd == total


def test_run_of_a_model_without_a_price_is_unpriced() -> None:
    run = Session(provider=two_models()).spawn("root")
    run.result(DEADLINE_S)

    assert run.cost.usd is None
    assert {part.usd for part in run.cost.by_agent.values()} == {None}
    assert str(run.cost) == "unpriced: no price is known for scripted (1,269 tokens)"


def test_cost_of_an_open_run_is_not_a_number_to_add_up() -> None:
    set_prices({"scripted": Price(10, 100)})
    hold = Hold()
    first = Reply(spawn("A"), usage=Usage(100, 10))
    provider = by_agent({"root": [first, "ok"], "A": Reply("a b", pause=hold)})
    run = Session(provider=provider).spawn("root")
    hold.wait()

    goes_on = run.cost
    assert {path: part.usd for path, part in goes_on.by_agent.items()} == {"root": 0.002, "1": None}
    assert (goes_on.usd, goes_on.at_least_usd) == (None, 0.002)
    assert str(goes_on) == ("at least $0.0020 (estimate; unpriced: open calls of scripted)")
    hold.release()
    run.result(DEADLINE_S)
    assert (run.cost.usd or 0) > 0.002


def test_agents_are_in_path_order_also_where_a_number_has_two_digits() -> None:
    paths = ["root", *map(str, range(1, 12))]

    assert list(record("r", "root", "11", "10", *paths[1:10]).cost.by_agent) == paths


def test_cost_is_loaded_only_when_it_is_asked_for() -> None:
    printed = run_python("""
        import sys
        import agentnb
        from agentnb.providers.scripted import ScriptedProvider
        run = agentnb.Session(provider=ScriptedProvider(["ok"])).spawn("a task")
        run.result(30)
        run.to_records(), run.to_json(), run.tree, repr(run)
        agentnb.set_prices({"scripted": agentnb.Price(1, 1)})
        assert run.cost.usd
        print("genai_prices" in sys.modules)
        agentnb.set_prices({})
        run.cost  # of no provider: still nothing to look up
        print("genai_prices" in sys.modules)
    """)

    assert printed.split() == ["False", "False"]
