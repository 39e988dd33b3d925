"""Texts are in spans only if the library's own switch says so, and secrets never are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.util.genai.types import GenericPart

import agentnb
from agentnb import Reply, Session, ToolOutput, ToolUse
from agentnb.core.errors import InvalidRequest
from agentnb.core.types import MediaBlock, Message, OpaqueBlock, Role
from agentnb.telemetry.content import output_messages
from agentnb.testing import by_agent
from tests.telemetry.spans import AGENT, CHAT, RUN, TOOL, Seen, attributes

SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
KEY = "sk-a-key-of-this-test"
LONG = "long " * 2_000


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """With the switch on."""
    monkeypatch.setenv(SWITCH, "SPAN_ONLY")
    monkeypatch.setenv("WEATHER_API_KEY", KEY)
    found = Seen()
    found.end = agentnb.instrument(found.provider)
    yield found
    found.end()


@agentnb.tool
def weather(town: str) -> ToolOutput:
    """The weather.

    Args:
        town: Where.
    """
    return ToolOutput(LONG, (MediaBlock("image/png", "iVBORw0KGgo=", "sky.png"),))


def messages(span: Any, name: str) -> Any:
    return json.loads(attributes(span)[f"gen_ai.{name}"])


def test_messages_tools_and_answers_are_there_when_asked_for(seen: Seen) -> None:
    asks = Reply(
        "I look.", tool_uses=(ToolUse("1", "weather", {"town": f"Bern {KEY}"}),), thinking="Hm."
    )
    session = Session(
        provider=by_agent({"root": [asks, "Sunny."]}),
        tools=[weather],
        store=None,
        soul=f"Kind {KEY}",
    )

    session.run_sync("How is it?")

    first, second = seen.of(CHAT)
    assert messages(first, "input.messages") == [
        {"role": "user", "parts": [{"content": "How is it?", "type": "text"}], "name": None}
    ]
    assert "Kind [secret WEATHER_API_KEY]" in messages(first, "system_instructions")[0]["content"]
    assert messages(first, "tool.definitions")[0]["name"] == "weather"
    (answered,) = messages(first, "output.messages")
    assert [part["type"] for part in answered["parts"]][-2:] == ["text", "tool_call"]
    assert answered["parts"][-1]["arguments"] == {"town": "Bern [secret WEATHER_API_KEY]"}
    roles = [each["role"] for each in messages(second, "input.messages")]
    assert roles[:2] == ["user", "assistant"]
    (tool,) = seen.of(TOOL)
    assert messages(tool, "tool.call.arguments") == {"town": "Bern [secret WEATHER_API_KEY]"}
    assert attributes(tool)["gen_ai.tool.call.result"].startswith(LONG.strip())
    for whole in (seen.one(AGENT), seen.one(RUN)):
        assert messages(whole, "input.messages")[0]["parts"][0]["content"] == "How is it?"
    assert messages(seen.one(AGENT), "output.messages")[0]["parts"][0]["content"] == "Sunny."
    assert KEY not in seen.words()
    assert "iVBORw0KGgo" not in seen.words()
    assert "[image: sky.png" in seen.words()


def test_error_is_told_in_words_without_secrets(seen: Seen) -> None:
    session = Session(provider=by_agent({"root": InvalidRequest(f"Not {KEY}.")}), store=None)

    with pytest.raises(InvalidRequest):
        session.run_sync("ask")

    assert seen.one(CHAT).status.description == "Not [secret WEATHER_API_KEY]."
    assert KEY not in seen.words()


def test_part_that_is_kept_for_the_api_has_its_type_alone() -> None:
    kept = OpaqueBlock("p http://h", {"type": "search", "found": ["seven ships"]})
    nameless = OpaqueBlock("p http://h", {"found": ["seven ships"]})

    (message,) = output_messages(Message(Role.ASSISTANT, (kept, nameless)))

    assert message.parts == [GenericPart("search"), GenericPart("p http://h")]
