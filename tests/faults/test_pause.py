"""A turn that the API pauses is gone on with, over the wire and at every place of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core.types import AgentStatus
from agentnb.providers.anthropic import AnthropicProvider
from tests.loopback import LoopbackServer, Reply
from tests.support import make_tree, spawn

SAID = {
    "root": spawn("inner", before="I ask somebody."),
    "inner": spawn("leaf", before="I ask somebody, too."),
    "leaf": "This is what I found.",
    "inner synthesis": "It was found.",
    "synthesis": "All was found.",
}


def place_of(body: Mapping[str, Any]) -> str:
    """Where in the tree a request comes from."""
    agent = next((name for name in ("leaf", "inner") if f"\n{name}\n" in str(body["system"])), None)
    asked = "".join(
        block["text"] for block in body["messages"][-1]["content"] if block["type"] == "text"
    )
    is_synthesis = any("<sub_agent_results>" in str(message) for message in body["messages"])
    assert asked
    if is_synthesis:
        return "synthesis" if agent is None else f"{agent} synthesis"
    return agent or "root"


@pytest.mark.parametrize("place", SAID)
async def test_paused_turn_is_sent_back_and_its_answer_is_whole(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = len(SAID[place]) // 2

    def script(body: dict[str, Any]) -> Reply:
        said = SAID[place_of(body)]
        if place_of(body) != place:
            return Reply(text=said)
        if body["messages"][-1]["role"] == "assistant":
            assert body["messages"][-1]["content"][0]["text"] == said[:half]
            return Reply(text=said[half:])
        return Reply(text=said[:half], stop_reason="pause_turn")

    with LoopbackServer(script) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        provider = AnthropicProvider()
        tree = await make_tree(provider).run()
        await provider.aclose()

        assert len(server.requests) == len(SAID) + 1

    assert tree.result.status is AgentStatus.COMPLETED
    assert tree.result.final_response == SAID["synthesis"]
    assert tree.result.pre_spawn_text == "I ask somebody."
    assert [memory.response_text for memory in tree.result.memory_contexts] == [
        "All was found.",
        "It was found.",
        "This is what I found.",
    ]
