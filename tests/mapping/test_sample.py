"""What a sample says of the rest, on three jobs.

The jobs are made, not recorded from a model: texts, usage and answers are drawn with a fixed seed
from the shapes that such tables have. The model's count of tokens is not the estimate's: each job
has its own number of characters to a token.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agentnb import Price, Session, set_prices
from agentnb.core.types import CompletionRequest, Usage
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.runtime import get_runtime
from tests.loopback import LoopbackServer
from tests.loopback import Reply as Said
from tests.loopback.books import CacheBooks
from tests.support import until

WORDS = "the order came late and the box was open but the lamp works again now".split()


class Job(NamedTuple):
    """A table, and what its model does."""

    rows: list[str]
    signs_per_token: float
    """Of the input, as the model counts it."""
    output: Callable[[random.Random, int], int]
    """Tokens of an answer, from the tokens of its input."""
    sample: int


def texts(seed: int, count: int, mean: float, spread: float) -> list[str]:
    """Texts whose numbers of words are spread as those of people are: many short, few long."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=1 + round(draw.lognormvariate(math.log(mean), spread))))
        for _ in range(count)
    ]


JOBS = {
    "complaints, one word each": Job(texts(1, 300, 40, 0.6), 4.4, lambda draw, _: 4, 5),
    "reviews, a sentence each": Job(
        texts(2, 200, 120, 0.5), 3.6, lambda draw, _: round(draw.gauss(40, 8)), 10
    ),
    "reports, a summary each": Job(
        texts(3, 120, 700, 0.4), 3.1, lambda draw, size: 60 + size // 12, 10
    ),
}


@pytest.fixture(autouse=True)
def own_prices() -> Any:
    set_prices({"scripted/m": Price(3, 15)})
    yield
    set_prices({})


@pytest.mark.parametrize("name", JOBS)
async def test_estimate_lies_within_a_quarter_of_the_truth(name: str) -> None:
    job, draw = JOBS[name], random.Random(name)

    def script(request: CompletionRequest) -> Reply:
        size = len(request.system) + sum(len(each.text) for each in request.messages)
        tokens = round(size / job.signs_per_token)
        return Reply("word", usage=Usage(tokens, max(1, job.output(draw, tokens))))

    session = Session("scripted/m", provider=ScriptedProvider(script), store=None)
    run = session.map(job.rows, "What is in {{text}}?", sample=job.sample, budget=100_000_000)
    await until(lambda: run.questions)
    (question,) = run.questions
    done = run.usage
    assert done.input_tokens
    run.answer(question.id, "go")
    await run
    rest = run.usage.total_tokens - done.total_tokens
    assert abs(question.value["tokens"] - rest) <= rest / 4
    usd = run.cost.usd
    assert usd is not None
    usd -= question.value["sample_cost_usd"]
    assert abs(question.value["cost_usd"] - usd) <= usd / 4
    assert f"{question.value['tokens']:,}" in question.text


@pytest.mark.parametrize("sample", [0, -1, True, "5"])
def test_sample_that_is_no_number_of_rows_is_refused(sample: Any) -> None:
    session = Session(provider=ScriptedProvider({}), store=None)
    with pytest.raises(ValueError, match="`sample`"):
        session.map(["a"], "What is in {{text}}?", sample=sample)


def test_shared_prompt_is_written_once_and_read_by_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = CacheBooks(lambda body: Said(text="Yes."))
    shared = " ".join(f"Rule {number}: {number * 7919}." for number in range(900))
    assert len(shared) > 4 * 4_000
    with LoopbackServer(books) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        provider = AnthropicProvider()
        session = Session("anthropic/m", provider=provider, store=None)
        rows = [f"row {number}" for number in range(20)]
        run = session.map(rows, "What is in {{text}}?", shared=shared)
        run.result()
        get_runtime().submit(provider.aclose()).result()
    assert [written > 0 for written in books.written] == [True] + [False] * 19
    assert sum(read > 4_000 for read in books.read) >= 0.9 * 19
    cached = [record["cached_tokens"] for record in run.to_records()]
    assert sum(cached) == sum(books.read)
    bodies = [request.body["system"] for request in server.requests]
    assert len({re.sub(r"row \d+", "", str(system)) for system in bodies}) == 1
