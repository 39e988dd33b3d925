"""`pause_turn` is no end: the conversation goes back as it is, and the model goes on."""

from __future__ import annotations

import pytest

from agentnb.core.errors import StreamBroken
from agentnb.core.events import AgentFailed, ModelCallStarted
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentStatus, Role
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from tests.support import PATHS, Hold, by_agent, chain, make_tree, requests_of, run_tree, spawn

PAUSED = Reply("First this, ", stop_reason="pause_turn")


@pytest.mark.parametrize("depth", range(4))
async def test_paused_reply_is_sent_back_as_it_is_and_the_answer_is_all_of_it(depth: int) -> None:
    provider = chain(depth, [PAUSED, Reply("then that, ", stop_reason="pause_turn"), "and done."])

    tree = await run_tree(provider)

    answered = [m.response_text for m in tree.result.memory_contexts]
    assert "First this, then that, and done." in answered
    assert tree.statuses() == dict.fromkeys(PATHS[: depth + 1], "completed")
    calls = tree.of(ModelCallStarted, PATHS[depth])
    assert [[m.role for m in call.request.messages[1:]] for call in calls[:3]] == [
        [],
        [Role.ASSISTANT],
        [Role.ASSISTANT, Role.ASSISTANT],
    ]
    assert calls[1].request.messages[1].text == "First this, "


async def test_spawn_block_may_come_after_a_pause() -> None:
    plan: list[AnyReply] = [Reply("I plan. ", stop_reason="pause_turn"), spawn("A"), "together"]

    tree = await run_tree(by_agent({"root": plan}))

    assert tree.statuses() == {"root": "completed", "1": "completed"}
    assert tree.result.pre_spawn_text == "I plan."
    assert tree.result.final_response == "together"


async def test_failure_after_a_pause_goes_on_from_the_pause() -> None:
    broken = Reply("then half of ", error=StreamBroken("cut"))
    provider = ScriptedProvider([PAUSED, broken, "then that."])

    tree = await run_tree(provider)

    assert tree.result.final_response == "First this, then that."
    assert [failed.text for failed in tree.of(AgentFailed)] == ["First this, then half of "]
    assert len(provider.requests) == 3


async def test_cancel_after_a_pause_keeps_what_was_said_before_it() -> None:
    hold = Hold()
    tree = make_tree(ScriptedProvider([PAUSED, Reply("then that", pause=hold)]))
    running = tree.start()
    await hold.until_reached()

    tree.cancel("root")
    await running

    assert tree.result.final_response.startswith("First this, then that")


async def test_model_that_only_ever_pauses_is_cut_at_the_most_turns_of_an_agent() -> None:
    provider = by_agent({"root": Reply("on and ", stop_reason="pause_turn")})

    tree = await run_tree(provider, orchestrator=AgentOrchestrator(max_turns=5))

    assert len(requests_of(provider, "root")) == 5
    assert tree.result.status is AgentStatus.COMPLETED
    assert tree.result.cut
    assert tree.result.final_response.startswith(f"{('on and ' * 5).strip()}\n\n*The agent ended")


async def test_reply_that_adds_nothing_to_its_paused_beginning_is_no_empty_one() -> None:
    tree = await run_tree(ScriptedProvider([PAUSED, ""]))

    assert tree.result.final_response == "First this,"
    assert TreeFold(tree.entries).notes() == {}


async def test_pause_before_the_first_word_is_not_noted_as_an_empty_reply() -> None:
    pause = Reply("", thinking="I search.", stop_reason="pause_turn")

    tree = await run_tree(ScriptedProvider([pause, "Paris"]))

    assert tree.result.final_response == "Paris"
    assert TreeFold(tree.entries).notes() == {}


async def test_pause_before_the_first_word_is_an_end_as_there_is_nothing_to_go_on_with() -> None:
    provider = ScriptedProvider([Reply("", stop_reason="pause_turn"), "Paris"])

    tree = await run_tree(provider)

    assert tree.result.final_response == "Paris"
    asked_again = provider.requests[-1].messages
    assert [each.role for each in asked_again] == ["user"], "an empty reply cannot be sent back"
