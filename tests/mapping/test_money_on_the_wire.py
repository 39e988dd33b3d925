"""200 streams at once in a budget of money, and a server that lies about what they used."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from agentnb import Price, Session, set_prices
from agentnb.core.events import ModelCallFinished
from agentnb.core.types import AgentStatus
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
LIES: Mapping[str, Callable[[int], Any]] = {
    "too much": lambda tokens: 3 * tokens,
    "too little": lambda tokens: tokens // 10,
    "null": lambda tokens: None,
    "missing": lambda tokens: ...,
}
COUNTS = ("input_tokens", "output_tokens", "prompt_tokens", "completion_tokens")


@pytest.fixture(autouse=True)
def priced() -> Iterator[None]:
    set_prices({"anthropic/m": PRICE, "openai/m": PRICE})
    yield
    set_prices({})


def told(step: Any, lie: Callable[[int], Any]) -> Any:
    """A step of a stream with other counts."""
    if not isinstance(step, tuple) or not isinstance(step[1], dict):
        return step
    name, event = step[0], copy.deepcopy(step[1])
    for holder in (event, event.get("message") or {}):
        if not isinstance(usage := holder.get("usage"), dict):
            continue
        for kind in COUNTS:
            if kind in usage:
                usage[kind] = lie(usage[kind])
        if ... in usage.values():
            del holder["usage"]
    return name, event


@pytest.mark.parametrize(
    ("dialect", "lie"), [*(("openai", lie) for lie in LIES), ("anthropic", "null")]
)
def test_budget_is_passed_by_the_errors_of_the_estimates_at_most(
    lie: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    inputs: list[int] = []
    """Tokens by the bytes of the requests: at least what was estimated."""
    steps = messages.steps if dialect == "anthropic" else completions.steps

    def script(body: dict[str, Any]) -> Said:
        inputs.append(len(json.dumps(body)) // 4)
        tokens = 2_000 if "long" in str(body["messages"]) else 300
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
    # The errors are in tokens, of which those of output are the dearest; a call is rounded once.
    # Where no input was counted, its estimate hides as much of the output's error.
    hidden = [0 if each.usage.input_tokens else max(inputs) for each in ended]
    errors = sum(
        rate.of_output(max(0, each.estimate_error + more)) + 1
        for each, more in zip(ended, hidden, strict=True)
    )
    assert used <= TOTAL + errors
