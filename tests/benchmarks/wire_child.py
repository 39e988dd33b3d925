"""Measures one checkout: see `tests.benchmarks.wire`."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, sys.argv[1])

from agentnb.core import codec, types
from agentnb.providers import anthropic_wire, openai_wire

TRIES = 400
REQUEST = types.CompletionRequest("m", "Be kind.", (types.user_message("Say hello"),))
WORD = "word "


def chunk(delta: dict[str, Any], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})


def chat(*deltas: dict[str, Any]) -> list[str]:
    return [*map(chunk, deltas), chunk({}, "stop"), "[DONE]"]


def messages(*texts: str) -> list[str]:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    for text in texts:
        delta = {"type": "text_delta", "text": text}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    return [json.dumps(event) for event in events]


def reading(wire: Any, datas: list[str]) -> Callable[[], object]:
    """Reads a reply as `ReplyStream` does."""
    try:
        from agentnb.providers.servers import Server
        from agentnb.providers.thinking_in_text import ThinkingFilter
    except ImportError:  # an older checkout

        def read() -> object:
            reader = wire.ReplyReader(REQUEST)
            events: list[Any] = []
            for data in datas:
                events.extend(reader.read(wire.event_in(data)))
            events.extend(reader.finish())
            return reader.stopped()

        return read
    server = Server("openai http://127.0.0.1:1/v1")

    def read_through() -> object:
        reader, split = wire.ReplyReader(REQUEST, server), ThinkingFilter(REQUEST, server)
        events: list[Any] = []
        for data in datas:
            found = reader.read(wire.event_in(data))
            events.extend(found if split.is_done else split.told_apart(found))
        events.extend(split.told_apart([*reader.finish()]))
        stopped = reader.stopped()
        events.extend(split.end(stopped.reason))
        return split.stopped(stopped)

    return read_through


def encoding() -> Callable[[], object]:
    use = types.ToolUseBlock("id", "look", {"at": [1, 2, {"x": "y"}]})
    said = types.Message(types.Role.ASSISTANT, (types.TextBlock(WORD * 20), use))
    result = types.Message(types.Role.USER, (types.ToolResultBlock("id", WORD * 20),))
    conversation = (said, result) * 20
    return lambda: codec.plain(conversation)


def least(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    found = []
    for _ in range(TRIES):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    gc.enable()
    return min(found)


def main() -> None:
    details = [{"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": WORD}]}] * 200
    thought = [{"content": "<think>"}, *[{"content": WORD}] * 100, {"content": "</think>\n"}]
    works = {
        "chat, text": reading(openai_wire, chat(*[{"content": WORD}] * 200)),
        "chat, thinking between tags": reading(
            openai_wire, chat(*thought, *[{"content": WORD}] * 100)
        ),
        "chat, reasoning": reading(
            openai_wire, chat(*[{"reasoning_content": WORD}] * 200, {"content": "x"})
        ),
        "chat, reasoning_details": reading(openai_wire, chat(*details, {"content": "x"})),
        "messages, text": reading(anthropic_wire, messages(*[WORD] * 200)),
        "codec": encoding(),
    }
    print(json.dumps({name: least(work) for name, work in works.items()}))


main()
