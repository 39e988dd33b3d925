"""Whatever ends a run, an agent or a call, its span has ended and says how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

import agentnb
from agentnb import AgentContext, Price, Reply, Session, ToolUse
from agentnb.core.errors import InvalidRequest, Overloaded, StreamBroken
from agentnb.core.types import AgentConfig, Usage
from agentnb.testing import Hold, by_agent, spawn
from tests.core.clock import ManualClock
from tests.support import make_tree
from tests.telemetry.spans import AGENT, CHAT, RUN, TOOL, Seen, attributes, error_of


def session_of(script: dict[str, object], **settings: object) -> Session:
    return Session(provider=by_agent(script), store=None, **settings)  # type: ignore[arg-type]


def overloaded() -> Overloaded:
    error = Overloaded("Too much at once.")
    error.status_code = 529
    return error


async def test_each_attempt_of_the_transport_is_a_call(seen: Seen) -> None:
    clock = ManualClock(sleeps_end=True)
    await make_tree(by_agent({"root": [overloaded(), "ok"]}), clock=clock).run("root")

    first, second = seen.of(CHAT)
    assert error_of(first) == "Overloaded"
    assert attributes(first)["http.response.status_code"] == 529
    assert "agentnb.attempt" not in attributes(first)
    assert error_of(second) is None
    assert attributes(second)["agentnb.attempt"] == 2
    assert error_of(seen.one(AGENT)) is error_of(seen.one(RUN)) is None


def test_agent_that_is_tried_again_says_so(seen: Seen) -> None:
    session_of({"root": [Reply("half", error=StreamBroken("cut")), "ok"]}).run_sync("ask")

    assert [error_of(call) for call in seen.of(CHAT)] == ["StreamBroken", None]
    assert attributes(seen.one(AGENT))["agentnb.attempts"] == 2
    assert attributes(seen.one(AGENT))["agentnb.status"] == "completed"


def test_what_failed_has_the_error_of_its_call(seen: Seen) -> None:
    with pytest.raises(InvalidRequest):
        session_of({"root": [InvalidRequest("The prompt: secret words")]}).run_sync("ask")

    for operation in (CHAT, AGENT, RUN):
        assert error_of(seen.one(operation)) == "InvalidRequest"
    assert attributes(seen.one(RUN))["agentnb.status"] == "failed"
    assert "secret words" not in seen.words()


def test_failed_sub_agent_fails_no_one_else(seen: Seen) -> None:
    session_of({"root": [spawn("a", "b"), "ok"], "a": InvalidRequest("no")}).run_sync("ask")

    assert error_of(seen.agent("1")) == "InvalidRequest"
    assert (
        error_of(seen.agent("2")) is error_of(seen.agent("root")) is error_of(seen.one(RUN)) is None
    )


def test_cancelled_run_has_cancelled_spans(seen: Seen) -> None:
    hold = Hold()
    run = session_of({"root": [spawn("a")], "a": Reply("half", pause=hold)}).spawn("ask")
    hold.wait()

    run.cancel("1", reason="I do not like it")
    with suppress(agentnb.OrchestratorError):
        run.result()

    call = seen.below(seen.agent("1"))[0]
    assert error_of(call) == error_of(seen.agent("1")) == "cancelled"
    assert attributes(seen.agent("1"))["agentnb.stopped_by"] == "code"
    assert attributes(seen.agent("1"))["agentnb.status"] == "cancelled"
    assert "like" not in seen.words()


def test_cancel_of_the_whole_run_is_seen_at_the_run(seen: Seen) -> None:
    hold = Hold()
    run = session_of({"root": Reply("half", pause=hold)}).spawn("ask")
    hold.wait()

    run.cancel()
    with suppress(agentnb.RunCancelled):
        run.result()

    assert [error_of(each) for each in seen.all] == ["cancelled"] * 3
    assert attributes(seen.one(RUN))["agentnb.status"] == "cancelled"


def test_exhausted_run_says_what_stopped_it(seen: Seen) -> None:
    costly = Reply(spawn("a", "b"), usage=Usage(900, 5_000))
    run = session_of({"root": [costly, "ok"]}, budget=5_000, on_budget_warning="continue").spawn(
        "ask"
    )
    run.result()

    stopped = [each for each in seen.of(AGENT) if error_of(each) == "exhausted"]
    assert run.status == attributes(seen.one(RUN))["agentnb.status"] == "exhausted"
    assert error_of(seen.one(RUN)) == "exhausted"
    assert stopped
    assert all(attributes(each)["agentnb.stop_reason"] for each in stopped)
    assert attributes(seen.one(RUN))["agentnb.budget.used"] == run.budget.tokens_used


@agentnb.tool
def breaks(word: str) -> str:
    """Break.

    Args:
        word: Any.
    """
    raise ValueError(f"no {word}")


def test_failing_tool_and_one_that_is_not_there(seen: Seen) -> None:
    asks = Reply(
        tool_uses=(ToolUse("1", "breaks", {"word": "glass"}), ToolUse("2", "all my secrets", {}))
    )

    session_of({"root": [asks, "ok"]}, tools=[breaks]).run_sync("ask")

    assert [(each.name, error_of(each)) for each in seen.of(TOOL)] == [
        ("execute_tool breaks", "tool_error"),
        ("execute_tool unknown", "tool_error"),
    ]
    assert "secrets" not in seen.words()
    assert "glass" not in seen.words()


@pytest.fixture
def priced() -> Iterator[None]:
    agentnb.set_prices({"scripted": Price(3, 15)})
    yield
    agentnb.set_prices({})


@pytest.mark.usefixtures("priced")
def test_costs_of_the_calls_add_up_to_that_of_the_run(seen: Seen) -> None:
    reply = Reply("ok", usage=Usage(100_000, 2_000))
    run = session_of({"root": [spawn("a"), reply], "a": reply}).spawn("ask")
    run.result()

    each = [attributes(call)["agentnb.cost_usd"] for call in seen.of(CHAT)]
    assert sum(each) == pytest.approx(run.cost.usd)
    assert each[-1] == pytest.approx(0.33)


async def test_numbers_in_the_providers_own_fields_are_told(seen: Seen) -> None:
    extra = {"temperature": 0.5, "top_k": "many", "user": "me"}
    config = AgentConfig(model="lab/qwen/3", max_output_tokens=321, extra=extra)

    await make_tree(by_agent({}), context=AgentContext(agent_config=config)).run("ask")

    call = seen.one(CHAT)
    assert call.name == "chat qwen/3"
    assert attributes(call)["gen_ai.provider.name"] == "lab"
    assert attributes(call)["gen_ai.request.max_tokens"] == 321
    assert attributes(call)["gen_ai.request.temperature"] == 0.5
    assert "gen_ai.request.top_k" not in attributes(call)
