"""Whole runs on a local server: without a key, and with all features."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.events import ProviderFailover
from agentnb.core.protocols import ToolContext
from agentnb.core.types import MALFORMED_INPUT, AgentStatus, ToolSpec
from agentnb.providers.openai import OpenAIProvider
from agentnb.runtime import get_runtime
from agentnb.session import Session
from tests.loopback import LoopbackServer, Reply, ToolCall, system_of
from tests.loopback.completions import DONE, chunk
from tests.support import DEADLINE_S, check_record, events_of, make_tree, spawn


@pytest.fixture
def provider() -> Iterator[OpenAIProvider]:
    provider = OpenAIProvider()
    yield provider
    get_runtime().submit(provider.aclose()).result(DEADLINE_S)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def serving(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    return server


def tree_of_three(body: dict[str, Any]) -> Reply:
    if "<sub_agent_results>" in str(body["messages"][-1]):
        return Reply(text="All in all: nothing new.")
    if "<task>" in system_of(body):
        return Reply(text="I found nothing new.")
    return Reply(text=spawn("look here", "look there", before="I ask two."))


def test_tree_runs_without_a_key_and_a_child_is_sent_its_task_alone(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackServer(tree_of_three) as server:
        serving(server, monkeypatch)
        session = Session("openai/llama3.2", provider=provider, user="I am a person.")
        run = session.spawn("A secret task")
        result = run.result(DEADLINE_S)

        children = [r.body for r in server.requests if "<task>" in system_of(r.body)]

    assert result.status is AgentStatus.COMPLETED
    assert result.final_response == "All in all: nothing new."
    assert result.total_tokens_used > 0
    assert {body["model"] for body in (r.body for r in server.requests)} == {"llama3.2"}
    assert [[m["role"] for m in body["messages"]] for body in children] == [["system", "user"]] * 2
    assert not any("secret" in str(body) or "a person" in str(body) for body in children)
    check_record(run.events)


def test_server_and_the_name_of_its_key_come_from_the_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with LoopbackServer({"Say": "Hello."}) as server:
        (tmp_path / "agentnb.yaml").write_text(
            "llm:\n  pools:\n    own: [openai/llama3.2]\n  default_pool: own\n  providers:\n"
            f"    openai:\n      base_url: {server.url}/v1\n      api_key_env: MY_SERVERS_KEY\n"
        )
        monkeypatch.setenv("OPENAI_API_KEY", "another-key-of-the-environment")
        session = Session(config=tmp_path)
        monkeypatch.setenv("MY_SERVERS_KEY", "key-of-my-server")
        first = session.run_sync("Say something.")
        monkeypatch.setenv("MY_SERVERS_KEY", "a-newer-key")
        session.run_sync("Say something.")
        keys = [request.headers["authorization"] for request in server.requests]

    assert first.final_response == "Hello."
    assert keys == ["Bearer key-of-my-server", "Bearer a-newer-key"]


def test_next_model_of_a_chain_is_asked_when_the_server_does_not_have_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        if body["model"] == "not-pulled":
            return Reply(status=404, message='model "not-pulled" not found, try pulling it first')
        return Reply(text="Hello.")

    with LoopbackServer(script) as server:
        serving(server, monkeypatch)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        run = Session(model=["openai/not-pulled", "anthropic/m"]).spawn("Say hello")
        result = run.result(DEADLINE_S)

    (moved,) = events_of(run.events, ProviderFailover)
    assert (moved.from_provider, moved.to_provider) == ("openai/not-pulled", "anthropic/m")
    assert "try pulling it first" in moved.error
    assert [request.path for request in server.requests] == [
        "/v1/chat/completions",
        "/v1/messages",
    ]
    assert result.final_response == "Hello."


def test_no_more_calls_are_open_than_the_session_allows(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, beside = threading.Event(), []

    def script(body: dict[str, Any]) -> Reply:
        if "<task>" not in system_of(body):
            return Reply(text="All in all.")
        beside.append(server.streaming)
        return Reply(text="I found nothing new.", hold=hold)

    with LoopbackServer(script) as server:
        serving(server, monkeypatch)
        session = Session("openai/llama3.2", provider=provider, max_concurrency=2)
        run = session.spawn_all([f"part {n}" for n in range(6)])
        server.wait_streaming(2)
        hold.set()
        result = run.result(DEADLINE_S)

    assert result.status is AgentStatus.COMPLETED
    assert len(beside) == 6
    assert max(beside) <= 1


@dataclass
class Look:
    """A tool that records its calls."""

    spec: ToolSpec = field(
        default_factory=lambda: ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
    )
    seen: list[Mapping[str, Any]] = field(default_factory=list)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.seen.append(arguments)
        if "bad" in arguments:
            raise ValueError("nothing there")
        return f"seen {arguments['at']}"


async def test_tools_are_called_and_their_results_go_back_in_the_order_of_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As small servers answer: whole, without ids, and with `stop` at the end.
    pieces = [
        {"index": 0, "function": {"name": "look", "arguments": arguments}}
        for arguments in ('{"at":1}', '{"bad":true}')
    ]
    asks = Reply(events=(chunk({"tool_calls": pieces}), chunk({}, finish_reason="stop"), DONE))
    tool, provider = Look(), OpenAIProvider()
    with LoopbackServer({"the task": asks, "seen 1": "One was there."}) as server:
        serving(server, monkeypatch)
        tree = await make_tree(provider, tools=[tool]).run("the task")
        await provider.aclose()

    assert sorted(map(str, tool.seen)) == ["{'at': 1}", "{'bad': True}"]
    assert [t["function"]["name"] for t in server.requests[0].body["tools"]] == ["look"]
    said, first, second = server.requests[1].body["messages"][-3:]
    assert [call["id"] for call in said["tool_calls"]] == ["call_1", "call_2"]
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "seen 1"}
    assert (second["role"], second["tool_call_id"]) == ("tool", "call_2")
    assert second["content"].startswith("Error: ")
    assert "nothing there" in second["content"]
    assert tree.result.final_response == "One was there."


async def test_call_of_a_tool_that_is_cut_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Reply(
        text="I look.", tool_uses=[ToolCall("look", {"at": "x" * 99})], stop_reason="length"
    )
    tool, provider = Look(), OpenAIProvider()
    with LoopbackServer({"cut by length": asks}) as server:
        serving(server, monkeypatch)
        tree = await make_tree(provider, tools=[tool]).run("cut by length")
        await provider.aclose()

    assert tool.seen == []
    assert tree.result.final_response == "I look."


async def test_model_whose_arguments_are_no_json_object_is_told_so_and_calls_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(arguments: str) -> Reply:
        called = {"index": 0, "function": {"name": "look", "arguments": arguments}}
        end = chunk({}, finish_reason="tool_calls")
        return Reply(events=(chunk({"tool_calls": [called]}), end, DONE))

    def script(body: dict[str, Any]) -> Reply:
        told = str(body["messages"][-1]["content"])
        if "Call it again with arguments as one JSON object." in told:
            return look('{"at":1}')
        return Reply(text="One was there.") if told == "seen 1" else look('{"at": 1')

    tool, provider = Look(), OpenAIProvider()
    with LoopbackServer(script) as server:
        serving(server, monkeypatch)
        tree = await make_tree(provider, tools=[tool]).run("the task")
        await provider.aclose()

    assert tool.seen == [{"at": 1}]
    assert tree.result.final_response == "One was there."
    assert len(server.requests) == 3
    said, answer = server.requests[1].body["messages"][-2:]
    sent_back = said["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent_back) == {MALFORMED_INPUT: '{"at": 1'}
    assert answer["content"].startswith("Error: ")
    assert '{"at": 1\n' in answer["content"]
