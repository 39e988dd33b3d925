"""A chain of models: the next one is asked when one does not answer, while nothing was shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentnb.core.budget import estimate_input_tokens
from agentnb.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    Refused,
    StreamBroken,
)
from agentnb.core.events import (
    AgentCompleted,
    AgentFailed,
    AgentWaiting,
    ModelCallFinished,
    ModelCallStarted,
    ProviderFailover,
)
from agentnb.core.protocols import FallbackModel
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentStatus, CompletionRequest, ToolSpec, ToolUse, Usage
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from tests.by_tools import order, run_of, start, wait
from tests.core.clock import ManualClock
from tests.support import PATHS, Hold, Tree, by_agent, chain, make_tree, run_tree, spawn, task_of


def chain_of(*providers: ScriptedProvider) -> FallbackProvider:
    """Models `scripted/a`, `scripted/b` and so on, each with a script of its own."""
    return FallbackProvider(
        [FallbackModel(p, f"scripted/{name}") for p, name in zip(providers, "abc", strict=False)]
    )


def always(reply: AnyReply) -> ScriptedProvider:
    return ScriptedProvider(lambda _: reply)


async def run_chain(*providers: ScriptedProvider, **limits: Any) -> Tree:
    return await run_tree(chain_of(*providers), **{"clock": ManualClock(sleeps_end=True), **limits})


# -- moving on ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (Overloaded("the first model has too much to do"), 4),
        (ConnectionFailed("the first model is not there"), 4),
        (StreamBroken("the first model hung up"), 4),
        (RateLimited("too many calls", retry_after_s=3600), 1),
        (ModelNotFound("no such model", status_code=404), 1),
        (AuthenticationFailed("no such key", status_code=401), 1),
        (InvalidRequest("too long for this model", status_code=413), 1),
        (LlmError("something else"), 1),
    ],
)
async def test_next_model_answers_when_the_attempts_at_the_first_are_used_up(
    error: LlmError, calls: int
) -> None:
    first, second = always(error), always("hello")

    tree = await run_chain(first, second)

    assert tree.result.status is AgentStatus.COMPLETED
    assert tree.result.final_response == "hello"
    assert len(first.requests) == calls
    assert [request.model for request in second.requests] == ["b"]
    [moved] = tree.of(ProviderFailover)
    assert (moved.from_provider, moved.to_provider) == ("scripted/a", "scripted/b")
    assert str(error) in moved.error
    assert tree.of(AgentFailed) == []


@pytest.mark.parametrize("depth", range(4))
async def test_any_agent_moves_on_and_the_event_names_it(depth: int) -> None:
    first = chain(depth, ModelNotFound("no such model", status_code=404))

    tree = await run_chain(first, always("the second model's answer"))

    assert tree.result.status is AgentStatus.COMPLETED
    assert [moved.agent_id for moved in tree.of(ProviderFailover)] == [tree.id_of(PATHS[depth])]
    assert tree.of(AgentCompleted, PATHS[depth])[0].text == "the second model's answer"
    assert tree.node(PATHS[depth]).model == "scripted/b"


async def test_chain_of_three_is_walked_to_its_end() -> None:
    down = Overloaded("busy")

    tree = await run_chain(always(down), always(down), always("at last"))

    assert tree.result.final_response == "at last"
    assert [moved.to_provider for moved in tree.of(ProviderFailover)] == [
        "scripted/b",
        "scripted/c",
    ]


async def test_calls_and_usage_are_told_of_the_model_that_was_asked() -> None:
    first = always(ModelNotFound("no such model", status_code=404))
    second = always(Reply("hello", usage=Usage(70, 7)))

    tree = await run_chain(first, second)

    started = [(call.model, call.request.model) for call in tree.of(ModelCallStarted)]
    assert started == [("scripted/a", "a"), ("scripted/b", "b")]
    assert [call.model for call in tree.of(ModelCallFinished)] == ["scripted/a", "scripted/b"]
    assert tree.result.usage.by_model["scripted/b"] == Usage(70, 7)
    assert tree.request.budget.tokens_used == 77


async def test_agent_that_moved_on_stays_there_and_its_siblings_begin_at_the_first() -> None:
    def first(request: CompletionRequest) -> AnyReply:
        return Overloaded("busy") if task_of(request) == "root" else "from a"

    second = by_agent({"root": [spawn("A"), "together"]})

    tree = await run_chain(ScriptedProvider(first), second)

    assert tree.result.final_response == "together"
    assert [call.model for call in tree.of(ModelCallStarted, "root")] == [
        *["scripted/a"] * 4,
        "scripted/b",
        "scripted/b",
    ]
    assert tree.of(AgentCompleted, "1")[0].text == "from a"


class LookingTool:
    spec = ToolSpec("look", "Looks.", {"type": "object"})

    async def call(self, input: Mapping[str, Any]) -> str:
        return "seen"


async def test_next_turn_after_a_tool_is_asked_of_the_model_that_ordered_it() -> None:
    first = always(ModelNotFound("no such model", status_code=404))
    look = Reply("I look.", tool_uses=(ToolUse("t1", "look", {}),))
    second = ScriptedProvider([look, "I saw it."])

    tree = await run_chain(first, second, tools=[LookingTool()])

    assert tree.result.final_response == "I saw it."
    assert (len(first.requests), len(second.requests)) == (1, 2)


class CountingProvider(ScriptedProvider):
    """Knows beforehand how large a request is."""

    def count_tokens(self, request: CompletionRequest) -> int:
        return 7_777


async def test_each_models_provider_says_how_large_a_request_is() -> None:
    hold = Hold()
    second = CountingProvider([Reply("hello there, you", pause=hold)])
    tree = make_tree(chain_of(always(ModelNotFound("gone", status_code=404)), second))
    run = tree.start()
    await hold.until_reached()

    budget = tree.request.budget
    assert budget.tokens_used + budget.reserved == 7_777 + 256
    hold.release()
    await run


async def test_synthesis_is_cut_by_the_count_of_the_model_that_is_asked() -> None:
    class Thrice(ScriptedProvider):
        def count_tokens(self, request: CompletionRequest) -> int:
            return 3 * estimate_input_tokens(request)

    long = Reply("word " * 3_000, usage=Usage(10, 3_750))
    script = by_agent({"root": [spawn("A", "B"), "brought together"], "A": long, "B": long})
    second = Thrice(script._script)

    tree = await run_chain(always(ModelNotFound("gone", status_code=404)), second, budget=20_000)

    assert tree.result.final_response == "brought together"
    assert 'truncated="true"' in second.requests[-1].last_user_text


# -- staying ------------------------------------------------------------------------------------


async def test_reply_that_was_shown_in_part_is_the_agents_to_try_again_at_the_same_model() -> None:
    first = ScriptedProvider([Reply("half an", error=StreamBroken("cut")), "a whole answer"])
    second = always("never asked")

    tree = await run_chain(first, second)

    assert tree.result.final_response == "a whole answer"
    assert [failed.will_retry for failed in tree.of(AgentFailed)] == [True]
    assert tree.of(ProviderFailover) == []
    assert second.requests == []


async def test_thinking_is_not_shown_so_the_next_model_may_be_asked() -> None:
    first = always(Reply(thinking="hm", error=LlmError("lost")))

    tree = await run_chain(first, always("hello"))

    assert tree.result.final_response == "hello"


async def test_reply_that_was_paused_is_gone_on_with_by_the_same_model_or_not_at_all() -> None:
    paused = Reply("The first half by a,", stop_reason="pause_turn")
    first = ScriptedProvider([paused, LlmError("lost"), " and the second."])
    second = always("never asked")

    tree = await run_chain(first, second)

    assert tree.result.final_response == "The first half by a, and the second."
    assert second.requests == []


@pytest.mark.parametrize("text", ["", "Half an answer"])
@pytest.mark.parametrize("depth", range(4))
async def test_next_model_answers_when_one_declines_whatever_it_had_written(
    depth: int, text: str
) -> None:
    first = chain(depth, Reply(text, stop_reason="refusal"))

    tree = await run_chain(first, always("the second model's answer"))

    assert tree.result.status is AgentStatus.COMPLETED
    (moved,) = tree.of(ProviderFailover)
    assert moved.agent_id == tree.id_of(PATHS[depth])
    assert "declined to answer" in moved.error
    assert tree.of(AgentCompleted, PATHS[depth])[0].text == "the second model's answer"
    assert tree.of(AgentFailed) == []


async def test_all_models_that_declined_are_named() -> None:
    declines = always(Reply(stop_reason="refusal"))

    tree = await run_chain(declines, declines)

    assert isinstance(tree.error, Refused)
    assert str(tree.error).count("declined to answer") == 2


async def test_paused_reply_is_not_gone_on_with_by_another_model_after_a_refusal() -> None:
    paused = Reply("The first half by a,", stop_reason="pause_turn")
    second = always("never asked")

    tree = await run_chain(ScriptedProvider([paused, Reply(stop_reason="refusal")]), second)

    assert isinstance(tree.error, Refused)
    assert second.requests == []


def test_answer_from_reserve_is_asked_of_the_model_that_had_no_room() -> None:
    dear = Reply(stop_reason="refusal", usage=Usage(input_tokens=16_000))
    scripts: dict[str, Any] = {
        "root": [order(start("A")), order(wait()), dear, "not asked"],
        "A": "an answer",
    }
    models = chain_of(by_agent(scripts), always("the second model's answer"))

    run, result = run_of(models, budget=20_000, on_budget_warning="continue")

    asked = [each.event.model for each in run.events if isinstance(each.event, ModelCallStarted)]
    assert asked == [*["scripted/a"] * 4, "scripted/b"]
    assert result.status is AgentStatus.EXHAUSTED
    assert result.final_response == "the second model's answer"


async def test_bug_in_a_provider_is_no_reason_to_move_on() -> None:
    def bug(request: CompletionRequest) -> AnyReply:
        raise ZeroDivisionError("oops")

    second = always("never asked")

    tree = await run_chain(ScriptedProvider(bug), second)

    assert "ZeroDivisionError" in str(tree.error)
    assert second.requests == []


# -- the end of the chain -----------------------------------------------------------------------


async def test_note_of_a_move_is_one_short_line() -> None:
    long = ModelNotFound("There is no such model. " * 20, status_code=404)

    tree = await run_chain(always(long), always("hello"))

    (note,) = TreeFold(tree.entries).notes()["root"]
    assert note.startswith("switched to scripted/b: There is no such model.")
    assert len(note) == 80


async def test_chain_of_which_nobody_answers_fails_and_names_every_model() -> None:
    first = always(ModelNotFound("There is no model a.", status_code=404))
    second = always(AuthenticationFailed("The key is wrong.", status_code=401))

    tree = await run_chain(first, second)

    assert isinstance(tree.error, AuthenticationFailed)
    assert str(tree.error) == ("After scripted/a ('There is no model a.'): The key is wrong.")
    assert (len(first.requests), len(second.requests)) == (1, 1)


# -- gate, budget, cancel -----------------------------------------------------------------------


@dataclass
class RecordingGate:
    """Lets everything through, and knows who asked."""

    slots: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def acquire(self, model: str, *, on_wait: Any) -> Any:
        self.slots.append(model)
        yield

    def throttle(self, model: str, seconds: float) -> None:
        self.held_back.append(model)


async def test_every_call_passes_the_gate_of_its_own_model() -> None:
    gate = RecordingGate()

    await run_chain(always(RateLimited("slow down")), always("hello"), gate=gate)

    assert gate.slots == [*["scripted/a"] * 4, "scripted/b"]
    assert gate.held_back == ["scripted/a"] * 3


async def test_agent_is_cancelled_while_the_second_model_speaks() -> None:
    hold = Hold()
    second = always(Reply("so far so good", pause=hold))
    tree = make_tree(chain_of(always(ModelNotFound("gone", status_code=404)), second))
    running = tree.start()
    await hold.until_reached()

    tree.cancel("root")
    await running

    assert tree.result.status is AgentStatus.CANCELLED
    assert tree.result.final_response.startswith("so far so")


async def test_budget_that_ends_before_the_second_model_is_asked_is_exhaustion_and_no_error() -> (
    None
):
    clock = ManualClock()
    tree = make_tree(
        chain_of(always(Overloaded("busy")), always("never asked")), clock=clock, budget=10_000
    )
    running = tree.start()
    await tree.saw(AgentWaiting)

    tree.request.budget.set_total(0)
    await running

    assert tree.result.status is AgentStatus.EXHAUSTED
    assert tree.error is None
