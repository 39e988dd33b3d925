"""A text for an agent at work is delivered at its next turn, once, and stays there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.errors import InternalError, LlmError, StreamBroken
from agentnb.core.events import AgentFailed, ModelCallStarted
from agentnb.core.keys import key_of
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import ToolContext
from agentnb.core.types import (
    CompletionRequest,
    Role,
    SpawnInstruction,
    SpawnMode,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
)
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.record import record_of
from agentnb.store.store import Store
from tests.support import by_agent, make_tree, requests_of, run_tree, spawn


class Inbox:
    """Holds texts by agent id, and counts how often it gave some."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.taken: list[str] = []

    def put(self, agent_id: str, *texts: str) -> None:
        self.texts.setdefault(agent_id, []).extend(texts)

    def has_news(self, agent_id: str) -> bool:
        return bool(self.texts.get(agent_id))

    async def take(self, agent_id: str) -> Sequence[str]:
        self.taken.append(agent_id)
        return self.texts.pop(agent_id)


class Knock:
    """A tool during whose call texts come for the agent that calls it."""

    spec = ToolSpec("knock", "Knocks.", {"type": "object"})

    def __init__(self, inbox: Inbox, *texts: str) -> None:
        self._inbox, self._texts = inbox, texts

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        self._inbox.put(context.agent_id, *(text.format(context.path) for text in self._texts))
        return "knocked"


def knock(name: str = "t1") -> Reply:
    return Reply("", (ToolUse(name, "knock", {}),))


def texts_of(request: CompletionRequest) -> list[str]:
    """All texts of the user's messages, but results of tools."""
    return [
        block.text
        for message in request.messages
        if message.role is Role.USER
        for block in message.content
        if isinstance(block, TextBlock)
    ]


async def test_text_that_came_during_a_tool_is_behind_its_result_in_the_next_request() -> None:
    inbox = Inbox()
    provider = ScriptedProvider([knock(), "Heard."])

    tree = await run_tree(provider, tools=[Knock(inbox, "one ({})", "two ({})", " ")], inbox=inbox)

    assert tree.result.final_response == "Heard."
    first, second = provider.requests
    assert texts_of(first) == ["the task"]
    assert [message.role for message in second.messages] == [Role.USER, Role.ASSISTANT, Role.USER]
    result, *news = second.messages[-1].content
    assert isinstance(result, ToolResultBlock)
    assert news == [TextBlock("one (root)"), TextBlock("two (root)")]
    assert inbox.taken == [tree.request.thread_id]


async def test_each_text_is_delivered_once_and_stays() -> None:
    inbox = Inbox()
    provider = ScriptedProvider([knock("t1"), knock("t2"), "Heard."])

    await run_tree(provider, tools=[Knock(inbox, "one ({})")], inbox=inbox)

    assert [texts_of(request)[1:] for request in provider.requests] == [
        [],
        ["one (root)"],
        ["one (root)", "one (root)"],
    ]


async def test_nothing_is_taken_before_the_first_reply_nor_after_the_last() -> None:
    inbox = Inbox()

    def answer(request: CompletionRequest) -> AnyReply:
        if len(asked) == 0:
            inbox.put(tree.request.thread_id, "too late")
        asked.append(request)
        return "At once."

    asked: list[CompletionRequest] = []
    tree = make_tree(ScriptedProvider(answer), inbox=inbox)
    inbox.put(tree.request.thread_id, "early")

    await tree.run()

    assert texts_of(asked[0]) == ["the task"]
    assert inbox.taken == []
    assert inbox.texts == {tree.request.thread_id: ["early", "too late"]}


async def test_last_turn_that_an_agent_may_take_takes_nothing() -> None:
    inbox = Inbox()

    tree = await run_tree(
        ScriptedProvider([knock()]),
        tools=[Knock(inbox, "one ({})")],
        inbox=inbox,
        orchestrator=AgentOrchestrator(max_turns=1),
    )

    assert tree.result.cut
    assert inbox.taken == []


async def test_sub_agents_have_their_own_texts() -> None:
    inbox = Inbox()
    work: list[AnyReply] = [knock(), "done"]
    provider = by_agent({"root": [spawn("A", "B"), "together"], "A": work, "B": work})

    await run_tree(provider, tools=[Knock(inbox, "for you ({})")], inbox=inbox)

    assert texts_of(requests_of(provider, "A")[1])[1:] == ["for you (1)"]
    assert texts_of(requests_of(provider, "B")[1])[1:] == ["for you (2)"]
    assert not any("for you" in text for text in texts_of(provider.requests[-1]))


async def test_text_that_came_while_sub_agents_worked_is_behind_their_results() -> None:
    inbox = Inbox()

    def child(request: CompletionRequest) -> AnyReply:
        inbox.put(tree.request.thread_id, "news")
        return "A is done."

    provider = by_agent({"root": [spawn("A"), "together"], "A": child})
    tree = make_tree(provider, inbox=inbox)

    await tree.run()

    results, news = provider.requests[-1].messages[-1].content
    assert isinstance(results, TextBlock)
    assert results.text.startswith("<sub_agent_results>")
    assert news == TextBlock("news")


async def test_synthesis_whose_answer_would_not_fit_any_more_takes_nothing() -> None:
    inbox = Inbox()

    def child(request: CompletionRequest) -> AnyReply:
        inbox.put(tree.request.thread_id, "news " * 20_000)
        return "A is done. " * 200

    provider = by_agent({"root": [spawn("A"), "together"], "A": child})
    tree = make_tree(provider, inbox=inbox, budget=10_000, on_budget_warning="continue")

    await tree.run()

    assert tree.result.final_response == "together"
    assert inbox.taken == []


async def test_plan_whose_synthesis_is_the_first_call_takes_nothing() -> None:
    inbox = Inbox()
    provider = by_agent({"root": "together"})
    tree = make_tree(provider, inbox=inbox, plan=SpawnInstruction(SpawnMode.PARALLEL, ("A",)))
    inbox.put(tree.request.thread_id, "news")

    await tree.run()

    assert tree.result.final_response == "together"
    assert inbox.taken == []


async def test_paused_reply_goes_on_before_a_text_is_delivered() -> None:
    inbox = Inbox()

    def pausing(request: CompletionRequest) -> AnyReply:
        inbox.put(tree.request.thread_id, "news")
        return Reply("First this, ", stop_reason="pause_turn")

    def going_on(request: CompletionRequest) -> AnyReply:
        assert request.messages[-1].role is Role.ASSISTANT
        return Reply("then that.", (ToolUse("t1", "knock", {}),))

    provider = by_agent({"root": [pausing, going_on, "Heard."]})
    tree = make_tree(provider, inbox=inbox, tools=[Knock(inbox)])

    await tree.run()

    assert texts_of(provider.requests[-1])[1:] == ["news"]


@pytest.mark.parametrize(
    "failure",
    [
        Reply("half of ", error=StreamBroken("cut")),
        Reply("", error=LlmError("overloaded", retryable=True, retry_after_s=0.0)),
    ],
    ids=["attempt", "transport"],
)
async def test_what_was_taken_is_in_the_next_attempt_and_not_taken_twice(failure: Reply) -> None:
    inbox = Inbox()
    provider = ScriptedProvider([knock(), failure, "Heard."])

    tree = await run_tree(provider, tools=[Knock(inbox, "one ({})")], inbox=inbox)

    assert tree.result.final_response == "Heard."
    assert [texts_of(request)[1:] for request in provider.requests[1:]] == [["one (root)"]] * 2
    assert len(inbox.taken) == 1


async def test_text_that_comes_between_two_attempts_is_behind_the_first() -> None:
    inbox = Inbox()

    def failing(request: CompletionRequest) -> AnyReply:
        inbox.put(tree.request.thread_id, "two")
        return Reply("half of ", error=StreamBroken("cut"))

    provider = by_agent({"root": [knock(), failing, "Heard."]})
    tree = make_tree(provider, tools=[Knock(inbox, "one ({})")], inbox=inbox)

    await tree.run()

    assert texts_of(provider.requests[-1])[1:] == ["one (root)", "two"]


async def test_text_is_in_the_record_the_key_and_the_run_that_is_loaded(tmp_path: Path) -> None:
    inbox = Inbox()
    store = Store(tmp_path / "runs.db")
    provider = ScriptedProvider([knock(), Reply("Heard: ", (ToolUse("t2", "none", {}),)), "End."])
    tools = [Knock(inbox, "one ({})")]

    try:
        tree = await run_tree(provider, tools=tools, inbox=inbox, journal=store.journal())
        stored = store.load(tree.request.run_id)
    finally:
        store.close()

    assert stored.rows == tree.bus.rows_since(0)
    loaded = record_of(stored.head.run_id, stored.head.task, stored.rows, stored.whole_tool_calls)
    root = loaded.agent("root")
    assert [TextBlock("one (root)") in message.content for message in root.messages] == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    started = tree.of(ModelCallStarted)
    for call, event in zip(root.calls, started, strict=True):
        assert call.key == key_of(event.model, event.request)
        assert call.request.messages == event.request.messages


@pytest.mark.parametrize("broken", ["has_news", "take", "none", "numbers"])
async def test_inbox_that_fails_fails_its_agent_like_any_broken_part(broken: str) -> None:
    class Broken(Inbox):
        def has_news(self, agent_id: str) -> bool:
            if broken == "has_news":
                raise SystemExit("out")
            return super().has_news(agent_id)

        async def take(self, agent_id: str) -> Any:
            if broken == "take":
                raise RuntimeError("no post today")
            return None if broken == "none" else [1]

    inbox = Broken()
    provider = by_agent({"root": [spawn("A"), "together"], "A": [knock(), "never"]})

    tree = await run_tree(provider, tools=[Knock(inbox, "one ({})")], inbox=inbox)

    if broken == "has_news":  # asked for every agent
        assert isinstance(tree.error, InternalError)
        return
    assert tree.statuses() == {"root": "completed", "1": "failed"}
    assert "the inbox" in str(tree.result.sub_agent_results[0].error)
    assert [failed.will_retry for failed in tree.of(AgentFailed)] == [True, False]
