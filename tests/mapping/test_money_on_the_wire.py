"""200 streams at once in a budget of money, and a server that lies about what they used."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from agentnb import Price, Session, set_prices
from agentnb.core.budget import OUTPUT_SLICE, estimate_input_tokens
from agentnb.core.events import ModelCallFinished, ModelCallStarted
from agentnb.core.money import Rate
from agentnb.core.types import AgentStatus, CompletionRequest
from agentnb.prices import rate_for
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.openai import OpenAIProvider
from agentnb.runtime import get_runtime
from tests.loopback import LoopbackServer, completions, messages
from tests.loopback import Reply as Said
from tests.support import events_of

STREAMS = 200
PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
TOTAL = 1_600_000
"""Micro-dollars: all streams may begin, half of them are short, and the others use it up."""
INPUT, OUTPUT = ("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")
LIES: Mapping[str, Callable[[str, int], Any]] = {
    "too much": lambda kind, tokens: 3 * tokens,
    "too little": lambda kind, tokens: tokens // 10,
    "null": lambda kind, tokens: None,
    "missing": lambda kind, tokens: ...,
    "no input": lambda kind, tokens: 0 if kind in INPUT else tokens,
}
SHORT, LONG = 300, 2_000
"""Tokens of the answers."""


@pytest.fixture(autouse=True)
def priced() -> Iterator[None]:
    set_prices({"anthropic/m": PRICE, "openai/m": PRICE})
    yield
    set_prices({})


def told(step: Any, lie: Callable[[str, int], Any]) -> Any:
    """A step of a stream with other counts."""
    if not isinstance(step, tuple) or not isinstance(step[1], dict):
        return step
    name, event = step[0], copy.deepcopy(step[1])
    for holder in (event, event.get("message") or {}):
        if not isinstance(usage := holder.get("usage"), dict):
            continue
        for kind in (*INPUT, *OUTPUT):
            if kind in usage:
                usage[kind] = lie(kind, usage[kind])
        if ... in usage.values():
            del holder["usage"]
    return name, event


def held_output(call: ModelCallFinished, request: CompletionRequest) -> int:
    """Tokens of output that a call held at its end: its error has them, and its input's, in one."""
    foreseen = call.usage.budget_tokens - call.estimate_error
    return foreseen - estimate_input_tokens(request)


def passed_by(call: ModelCallFinished, request: CompletionRequest, rate: Rate) -> int:
    """Micro-dollars by which a call cost more than it held; a call is rounded once."""
    held = rate.of_input(estimate_input_tokens(request)) + rate.of_output(
        held_output(call, request)
    )
    return max(0, rate.of(call.usage) - held) + 1


@pytest.mark.parametrize(
    ("dialect", "lie"),
    [
        *(("openai", lie) for lie in LIES if lie != "no input"),
        ("anthropic", "null"),
        ("anthropic", "no input"),
    ],
)
def test_budget_is_passed_by_the_errors_of_the_estimates_at_most(
    lie: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    steps = messages.steps if dialect == "anthropic" else completions.steps

    def script(body: dict[str, Any]) -> Said:
        tokens = LONG if "long" in str(body["messages"]) else SHORT
        reply = Said(text="word" * tokens, chunk=400, hold=go)
        return Said(events=[told(step, LIES[lie]) for step in steps(reply, body, number=1)])

    with LoopbackServer(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        of_openai = OpenAIProvider(base_url=f"{server.url}/v1", api_key="k")
        provider: Any = AnthropicProvider() if dialect == "anthropic" else of_openai
        ours = Session(
            f"{dialect}/m", provider=provider, store=None, max_concurrency=STREAMS, budget="$1.60"
        )
        run = ours.map(
            [f"{'long' if n % 2 else 'short'} {n}" for n in range(STREAMS)],
            "{{text}}",
            retry_failed=0,
        )
        server.wait_streaming(STREAMS)
        go.set()
        out = run.result()
        for each in (provider, of_openai):
            get_runtime().submit(each.aclose()).result()

    rate = rate_for(f"{dialect}/m")
    assert rate is not None
    ended = events_of(run.events, ModelCallFinished)
    # By a count that is too low all of them fit.
    is_used_up = lie != "too little"
    assert (out.status is AgentStatus.EXHAUSTED) is is_used_up
    assert len(ended) == STREAMS
    assert run.budget.reserved == 0
    used = run.budget.tokens_used
    assert used == sum(rate.of(each.usage) for each in ended)
    asked = {each.agent_id: each.request for each in events_of(run.events, ModelCallStarted)}
    calls = [(each, asked[each.agent_id]) for each in ended]
    # What a call held is known by its error and its request: whole slices, or all that streamed.
    held = {held_output(*call) for call in calls}
    assert all(each in (SHORT, LONG) or each % OUTPUT_SLICE == 0 for each in held), held
    assert used <= TOTAL + sum(passed_by(*call, rate) for call in calls)
    if all(each.usage.input_tokens for each in ended):
        assert used <= TOTAL + sum(
            rate.of_output(max(0, each.estimate_error)) + 1 for each in ended
        )
    # Else not: an error of 44 in output and of -27 in input is one of 17 tokens.
