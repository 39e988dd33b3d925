"""What goes wrong, layer by layer: the transport tries again, then the agent, then its parent
goes on without it. On a manual clock: no test waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from agentnb.core.context import AgentContext
from agentnb.core.errors import (
    AuthenticationFailed,
    CallTimedOut,
    ConnectionFailed,
    InternalError,
    InvalidRequest,
    LlmError,
    MissingKey,
    ModelNotFound,
    Overloaded,
    RateLimited,
    Refused,
    ServerFailed,
    StreamBroken,
)
from agentnb.core.events import (
    AgentCompleted,
    AgentFailed,
    AgentSpawned,
    AgentWaiting,
    ModelCallFinished,
    ModelCallStarted,
    RunFinished,
    SynthesisStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.protocols import ToolContext
from agentnb.core.types import (
    AgentConfig,
    AgentStatus,
    CompletionRequest,
    Stopped,
    StreamEvent,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    assistant_message,
)
from agentnb.providers.gate import ConcurrencyGate
from agentnb.providers.scripted import Reply, ScriptedProvider
from tests.core.clock import ManualClock
from tests.support import (
    NAMES,
    PATHS,
    Hold,
    by_agent,
    chain,
    make_tree,
    path_of,
    requests_of,
    run_tree,
    spawn,
)

DEPTHS = (0, 1, 3)
BROKEN = Reply("half an answer", error=StreamBroken("the line went dead"))
"""Fails after text was shown: the agent's to try again, not the transport's."""

# -- the transport ------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "error", [RateLimited, Overloaded, ServerFailed, ConnectionFailed, StreamBroken]
)
async def test_call_that_fails_before_its_first_text_is_made_up_to_four_times(
    error: type[LlmError], depth: int
) -> None:
    clock = ManualClock(sleeps_end=True)
    provider = chain(depth, [*[error("not now")] * 3, "in the end"])

    tree = await run_tree(provider, clock=clock, gate=ConcurrencyGate(clock=clock))

    assert tree.of(AgentCompleted, PATHS[depth])[0].text == "in the end"
    assert len(requests_of(provider, NAMES[depth])) == 4
    assert tree.of(AgentFailed) == [], "that is the transport's business, not the agent's"
    waits = [w for w in tree.of(AgentWaiting, PATHS[depth]) if "try again" in w.reason]
    assert [w.attempt for w in waits] == [2, 3, 4]
    for wait, longest in zip(waits, (0.5, 1.0, 2.0), strict=True):
        assert "not now" in wait.reason
        assert wait.wait_s is not None
        assert 0.75 * longest <= wait.wait_s <= 1.25 * longest
        assert wait.wait_s in clock.sleeps
    attempts = [e.attempt for e in tree.of(ModelCallStarted, PATHS[depth])]
    assert attempts == [1, 2, 3, 4]


async def test_four_transport_attempts_used_up_are_the_end_of_a_root() -> None:
    provider = ScriptedProvider([Overloaded("too much to do")] * 4)

    tree = await run_tree(provider, clock=ManualClock(sleeps_end=True))

    assert isinstance(tree.error, Overloaded)
    assert len(provider.requests) == 4
    (failed,) = tree.of(AgentFailed)
    assert (failed.will_retry, failed.attempt) == (False, 1)
    assert tree.result.status is AgentStatus.FAILED
    assert "too much to do" in tree.result.final_response


async def test_four_transport_attempts_used_up_end_a_child_and_its_siblings_go_on() -> None:
    provider = by_agent({"root": [spawn("A", "B"), "ok"], "A": [ServerFailed("down")] * 4})

    tree = await run_tree(provider, clock=ManualClock(sleeps_end=True))

    assert tree.statuses() == {"root": "completed", "1": "failed", "2": "completed"}
    assert "Error: down" in provider.requests[-1].last_user_text


async def test_retry_after_is_obeyed() -> None:
    clock = ManualClock(sleeps_end=True)
    provider = ScriptedProvider([RateLimited("slow down", retry_after_s=59), "ok"])

    tree = await run_tree(provider, clock=clock)

    (wait,) = tree.of(AgentWaiting)
    assert wait.wait_s == 59
    assert clock.sleeps == [59]


async def test_retry_after_of_more_than_a_minute_fails_and_names_the_time() -> None:
    clock = ManualClock(sleeps_end=True)
    provider = ScriptedProvider([RateLimited("slow down", retry_after_s=61)])

    tree = await run_tree(provider, clock=clock)

    assert isinstance(tree.error, RateLimited)
    assert "61 s" in str(tree.error)
    assert len(provider.requests) == 1
    assert clock.sleeps == []
    assert [f.will_retry for f in tree.of(AgentFailed)] == [False]


async def test_rate_limit_for_one_holds_back_new_calls_to_the_same_model() -> None:
    clock = ManualClock()
    slow_down = RateLimited("slow down", retry_after_s=30)
    provider = by_agent({"root": [spawn("A", "B"), "ok"], "A": [slow_down, "a"]})
    tree = make_tree(provider, clock=clock, gate=ConcurrencyGate(clock=clock))
    run = tree.start()

    waiting = await tree.saw(AgentWaiting, "2")
    assert waiting.wait_s == 30
    assert "rate limit" in waiting.reason
    assert requests_of(provider, "B") == []
    clock.advance(30)
    await run

    assert tree.result.status is AgentStatus.COMPLETED


async def test_error_after_the_first_text_is_not_the_transports_to_try_again() -> None:
    clock = ManualClock(sleeps_end=True)
    broken = Reply("shown", error=Overloaded("then it failed"))

    tree = await run_tree(ScriptedProvider([broken, "whole"]), clock=clock)

    assert clock.sleeps == []
    assert [e.attempt for e in tree.of(ModelCallStarted)] == [1, 1]
    (failed,) = tree.of(AgentFailed)
    assert (failed.will_retry, failed.attempt, failed.text) == (True, 1, "shown")


class _Endless:
    """Ends each stream without the end mark, until the last."""

    name = "endless"

    def __init__(self, *, text: str, endings: int) -> None:
        self.calls = 0
        self._text, self._endings = text, endings

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        self.calls += 1
        if self.calls <= self._endings:
            if self._text:
                yield TextDelta(self._text)
            return
        yield TextDelta("whole")
        yield Stopped("end_turn", assistant_message("whole"))


async def test_stream_that_ends_before_any_text_belongs_to_the_transport() -> None:
    provider = _Endless(text="", endings=3)

    tree = await run_tree(provider, clock=ManualClock(sleeps_end=True))

    assert tree.result.final_response == "whole"
    assert provider.calls == 4
    assert tree.of(AgentFailed) == []


async def test_stream_that_ends_in_mid_text_belongs_to_the_agent() -> None:
    provider = _Endless(text="half", endings=1)

    tree = await run_tree(provider, clock=ManualClock(sleeps_end=True))

    assert tree.result.final_response == "whole"
    assert [f.will_retry for f in tree.of(AgentFailed)] == [True]


# -- the agent ------------------------------------------------------------------------------------

PERMANENT = [
    InvalidRequest("400", status_code=400),
    AuthenticationFailed("401", status_code=401),
    AuthenticationFailed("403", status_code=403),
    ModelNotFound("404", status_code=404),
    InvalidRequest("413", status_code=413),
    MissingKey("no key"),
    LlmError("some 400", status_code=400),
]


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("error", PERMANENT, ids=str)
async def test_error_that_asking_again_cannot_help_ends_the_agent_at_once(
    error: LlmError, depth: int
) -> None:
    clock = ManualClock(sleeps_end=True)
    provider = chain(depth, [error])

    tree = await run_tree(provider, clock=clock)

    (failed,) = tree.of(AgentFailed)
    assert (path_of(failed.agent_id), failed.will_retry) == (PATHS[depth], False)
    assert len(requests_of(provider, NAMES[depth])) == 1
    assert clock.sleeps == []
    assert (tree.error is None) is (depth == 1)


@pytest.mark.parametrize("text", ["", "I would rather not."])
async def test_refusal_ends_the_agent_at_once(text: str) -> None:
    provider = ScriptedProvider([Reply(text, stop_reason="refusal")])

    tree = await run_tree(provider)

    assert isinstance(tree.error, Refused)
    assert text in str(tree.error)
    assert len(provider.requests) == 1
    assert [f.will_retry for f in tree.of(AgentFailed)] == [False]


@pytest.mark.parametrize("depth", DEPTHS)
async def test_failed_attempt_is_made_once_more_with_the_same_id(depth: int) -> None:
    provider = chain(depth, [BROKEN, "whole"])

    tree = await run_tree(provider, clock=ManualClock(sleeps_end=True))

    (failed,) = tree.of(AgentFailed)
    assert (path_of(failed.agent_id), failed.will_retry, failed.attempt) == (PATHS[depth], True, 1)
    assert failed.text == "half an answer"
    assert "line went dead" in failed.error
    assert tree.of(AgentCompleted, PATHS[depth])[0].text == "whole"
    first, second = requests_of(provider, NAMES[depth])
    assert first == second, "the failed turn leaves nothing in the conversation"
    assert len(tree.of(AgentSpawned, PATHS[depth])) == 1


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_child_that_fails_twice_is_failed_and_its_siblings_go_on(mode: str) -> None:
    provider = by_agent({"root": [spawn("A", "B", mode=mode), "ok"], "A": [BROKEN, BROKEN]})

    tree = await run_tree(provider)

    assert [(f.will_retry, f.attempt) for f in tree.of(AgentFailed, "1")] == [(True, 1), (False, 2)]
    assert tree.statuses() == {"root": "completed", "1": "failed", "2": "completed"}
    failed, completed = tree.result.sub_agent_results
    assert (failed.response, failed.error) == ("half an answer", "the line went dead")
    assert completed.response == "done: B"
    results = requests_of(provider, "root")[-1].last_user_text
    assert '<result task="A" status="failed">\n    half an answer\n' in results


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_failed_synthesis_is_made_again_and_finished_children_are_kept(
    depth: int, mode: str
) -> None:
    provider = chain(depth, [spawn("A", "B", mode=mode), BROKEN, "together"])

    tree = await run_tree(provider, cycle_threshold=1)

    path = PATHS[depth]
    assert tree.of(AgentCompleted, path)[0].text == "together"
    assert len(requests_of(provider, "A")) == len(requests_of(provider, "B")) == 1
    assert len(tree.node(path).children) == 2
    assert len(tree.of(SynthesisStarted, path)) == 1
    _, failed, again = requests_of(provider, NAMES[depth])
    assert failed == again
    calls = tree.of(ModelCallStarted, path)
    assert [c.is_synthesis for c in calls] == [False, True, True]
    # The next sighting is the second: the retry did not count the task again.
    description = tree.request.cycle_detector.check_and_register("A", 1)
    assert description is not None
    assert "came up 2 times" in description


async def test_failed_plan_is_made_again_and_its_tasks_are_counted_once() -> None:
    half = Reply(spawn("A"), error=StreamBroken("cut"))

    tree = await run_tree(by_agent({"root": [half, spawn("A"), "ok"]}), cycle_threshold=1)

    assert tree.statuses() == {"root": "completed", "1": "completed"}


async def test_bug_in_a_provider_is_a_failed_attempt_and_then_an_internal_error() -> None:
    def answer(request: CompletionRequest) -> str:
        raise ZeroDivisionError("a bug")

    provider = ScriptedProvider(answer)

    tree = await run_tree(provider)

    assert isinstance(tree.error, InternalError)
    assert "ZeroDivisionError" in str(tree.error)
    assert [f.will_retry for f in tree.of(AgentFailed)] == [True, False]
    assert len(provider.requests) == 2


async def test_providers_own_timeout_error_is_not_taken_for_the_turns_deadline() -> None:
    def answer(request: CompletionRequest) -> str:
        raise TimeoutError("some socket")

    tree = await run_tree(ScriptedProvider(answer))

    assert isinstance(tree.error, InternalError)
    assert "some socket" in str(tree.error)


async def test_turn_that_does_not_end_in_time_is_a_failed_attempt() -> None:
    clock, hold = ManualClock(sleeps_end=True), Hold()
    provider = ScriptedProvider([Reply("drip", pause=hold), "in time"])
    tree = make_tree(provider, clock=clock, call_timeout_s=50)
    run = tree.start()
    await hold.until_reached()

    clock.advance(51)
    await run

    (failed,) = tree.of(AgentFailed)
    assert "50 s" in failed.error
    assert failed.text == "drip"
    assert tree.result.final_response == "in time"


async def test_turn_that_never_ends_in_time_fails_with_an_error_that_names_the_setting() -> None:
    clock = ManualClock(sleeps_end=True)

    async def never(request: CompletionRequest) -> str:
        clock.advance(601)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    tree = await run_tree(ScriptedProvider(never), clock=clock)

    assert isinstance(tree.error, CallTimedOut)
    assert "call_timeout_s" in str(tree.error)


# -- the root -------------------------------------------------------------------------------------


async def test_root_that_fails_raises_with_all_that_was_reached() -> None:
    provider = by_agent({"root": [spawn("A", before="I split it."), BROKEN, BROKEN]})

    tree = await run_tree(provider)

    assert isinstance(tree.error, StreamBroken)
    result = tree.error.partial_result
    assert result is not None
    assert result.status is AgentStatus.FAILED
    assert result.pre_spawn_text == "I split it."
    assert [r.response for r in result.sub_agent_results] == ["done: A"]
    assert "done: A" in result.final_response
    assert "half an answer" in result.final_response
    (finished,) = tree.of(RunFinished)
    assert finished.status is AgentStatus.FAILED
    assert finished.error == "the line went dead"


async def test_usage_of_failed_calls_is_counted() -> None:
    tree = await run_tree(ScriptedProvider([BROKEN, "whole"]))

    failed, whole = tree.of(ModelCallFinished)
    assert failed.error is not None
    assert failed.stop_reason is None
    assert failed.usage.output_tokens > 0, "what was streamed was made, whatever was reported"
    assert whole.error is None
    total = failed.usage.total_tokens + whole.usage.total_tokens
    assert tree.result.total_tokens_used == total


# -- tools ----------------------------------------------------------------------------------------


class _Tool:
    def __init__(self, answer: str | Exception) -> None:
        self.spec = ToolSpec("look", "Looks.", {"type": "object"})
        self.calls: list[Mapping[str, Any]] = []
        self._answer = answer

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        self.calls.append(input)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


LOOK = Reply("I look.", tool_uses=(ToolUse("t1", "look", {"at": "it"}),))


@pytest.mark.parametrize("depth", DEPTHS)
async def test_agent_streams_a_turn_runs_its_tools_and_streams_again(depth: int) -> None:
    tool = _Tool("seen")
    provider = chain(depth, [LOOK, "I saw it."])

    tree = await run_tree(provider, tools=[tool])

    assert tool.calls == [{"at": "it"}]
    assert tree.of(AgentCompleted, PATHS[depth])[0].text == "I saw it."
    second = requests_of(provider, NAMES[depth])[1]
    assert second.messages[-1].content == (ToolResultBlock("t1", "seen"),)
    assert len(tree.of(ToolCallStarted)) == len(tree.of(ToolCallFinished)) == 1


async def test_raising_tool_is_an_error_result_for_the_model_and_no_failure() -> None:
    provider = ScriptedProvider([LOOK, "It is broken."])

    tree = await run_tree(provider, tools=[_Tool(ValueError("no eyes"))])

    (block,) = provider.requests[1].messages[-1].content
    assert block == ToolResultBlock("t1", "ValueError: no eyes", is_error=True)
    assert tree.of(AgentFailed) == []
    assert tree.result.final_response == "It is broken."


async def test_unknown_tool_is_an_error_result_that_names_the_known_ones() -> None:
    other = Reply(tool_uses=(ToolUse("t1", "listen", {}),))
    provider = ScriptedProvider([other, "ok"])

    await run_tree(provider, tools=[_Tool("seen")])

    (block,) = provider.requests[1].messages[-1].content
    assert isinstance(block, ToolResultBlock)
    assert block.is_error
    assert "'look'" in block.text


async def test_retry_keeps_finished_tool_results() -> None:
    tool = _Tool("seen")
    provider = ScriptedProvider([LOOK, BROKEN, "I saw it."])

    tree = await run_tree(provider, tools=[tool])

    assert len(tool.calls) == 1
    assert provider.requests[1] == provider.requests[2]
    assert tree.result.final_response == "I saw it."


async def test_tool_call_cut_by_max_tokens_is_never_run() -> None:
    tool = _Tool("seen")
    cut = Reply("words", tool_uses=LOOK.tool_uses, stop_reason="max_tokens")

    tree = await run_tree(ScriptedProvider([cut]), tools=[tool])

    assert tool.calls == []
    assert tree.result.final_response == "words"
    assert tree.result.cut


async def test_providers_names_of_models_reach_events_and_requests() -> None:
    provider = ScriptedProvider(["ok"])
    context = AgentContext(agent_config=AgentConfig(model="scripted/a/b", max_output_tokens=77))

    tree = await run_tree(provider, context=context)

    assert (provider.requests[0].model, provider.requests[0].max_tokens) == ("a/b", 77)
    assert tree.of(ModelCallStarted)[0].model == "scripted/a/b"
    assert tree.result.agent_tree.model == "scripted/a/b"
