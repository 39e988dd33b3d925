"""Reads the same streams in different ways, one way in each process.

    python -m tests.benchmarks.http_clients VARIANT COUNT URL

Prints one line of JSON. Processor time is that of the whole process, all threads, from after the
imports and one small round of the same kind to the end of the last stream.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from tests.benchmarks.http_server import (
    DELTAS,
    FIRST_DELTA,
    HELD_AFTER,
    WORDS,
    many_files,
    state_of,
)

SYSTEM = "You are a sub-agent that does one focused part of a task. " * 25
"""About as long as agentnb's own prompt for a sub-agent."""
WHOLE = len(WORDS) * DELTAS
WARM_UP = 10


def body(number: int) -> dict[str, Any]:
    """The request for one stream."""
    said = [{"role": "user", "content": f"Say something of part {number}."}]
    return {"model": "m", "max_tokens": 8192, "system": SYSTEM, "messages": said}


async def _all(count: int, one: Callable[[int], Awaitable[int]]) -> None:
    lengths = await asyncio.gather(*(one(number) for number in range(count)))
    assert lengths == [WHOLE] * count, "a stream was not read whole"


class Helper:
    """The SDK's own `messages.stream`, over its default transport."""

    def __init__(self, url: str) -> None:
        import anthropic

        limits = anthropic.DefaultAsyncHttpxClient(
            limits=_limits(), timeout=anthropic.DEFAULT_TIMEOUT
        )
        self._sdk = anthropic.AsyncAnthropic(api_key="k", base_url=url, http_client=limits)
        self._loop = asyncio.new_event_loop()

    def read(self, count: int) -> None:
        self._loop.run_until_complete(_all(count, self._one))

    def close(self) -> None:
        self._loop.run_until_complete(self._sdk.close())

    async def _one(self, number: int) -> int:
        async with self._sdk.messages.stream(**body(number)) as stream:
            return sum([len(text) async for text in stream.text_stream])


class Raw:
    """The SDK's raw events over its aiohttp transport, with the JSON decoded here."""

    def __init__(self, url: str) -> None:
        import anthropic

        http = anthropic.DefaultAioHttpClient(limits=_limits(), timeout=anthropic.DEFAULT_TIMEOUT)
        self._sdk = anthropic.AsyncAnthropic(api_key="k", base_url=url, http_client=http)
        self._loop = asyncio.new_event_loop()

    def read(self, count: int) -> None:
        self._loop.run_until_complete(_all(count, self._one))

    def close(self) -> None:
        self._loop.run_until_complete(self._sdk.close())

    async def _one(self, number: int) -> int:
        import anthropic

        create = self._sdk.messages.with_raw_response.create
        response = (await create(**body(number), stream=True)).http_response
        pieces = []
        async for event in anthropic.AsyncStream.raw_events(response):
            data = json.loads(event.data)
            if data["type"] == "content_block_delta":
                pieces.append(data["delta"]["text"])
        await response.aclose()
        return len("".join(pieces))


class Provider:
    """agentnb's provider for the API, alone."""

    def __init__(self, url: str) -> None:
        from agentnb.providers.anthropic import AnthropicProvider

        os.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        self._provider: Any = AnthropicProvider()
        self._loop = asyncio.new_event_loop()

    def read(self, count: int) -> None:
        self._loop.run_until_complete(_all(count, self._one))

    async def _one(self, number: int) -> int:
        from agentnb.core.types import CompletionRequest, TextDelta, user_message

        said = (user_message(f"Say something of part {number}."),)
        pieces = []
        request = CompletionRequest("m", SYSTEM, said, max_tokens=8192)
        async for event in self._provider.stream(request):
            if isinstance(event, TextDelta):
                pieces.append(event.text)
        return len("".join(pieces))

    def close(self) -> None:
        self._loop.run_until_complete(self._provider.aclose())


class OpenAISdk:
    """OpenAI's SDK: its stream of a chat completion, over its default transport."""

    def __init__(self, url: str) -> None:
        import openai

        http = openai.DefaultAsyncHttpxClient(limits=_limits(), timeout=openai.DEFAULT_TIMEOUT)
        self._sdk = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", http_client=http)
        self._loop = asyncio.new_event_loop()

    def read(self, count: int) -> None:
        self._loop.run_until_complete(_all(count, self._one))

    def close(self) -> None:
        self._loop.run_until_complete(self._sdk.close())

    async def _one(self, number: int) -> int:
        said = body(number)
        messages = [{"role": "system", "content": said["system"]}, *said["messages"]]
        create: Any = self._sdk.chat.completions.create
        stream = await create(model="m", max_tokens=8192, messages=messages, stream=True)
        choices = [chunk.choices async for chunk in stream]
        return sum(len(choice.delta.content or "") for each in choices for choice in each)


class OpenAI(Provider):
    """agentnb's provider for chat completions, alone."""

    def __init__(self, url: str) -> None:
        from agentnb.providers.openai import OpenAIProvider

        self._provider = OpenAIProvider(base_url=f"{url}/v1")
        self._loop = asyncio.new_event_loop()


class Agentnb:
    """A `Session`: one root that delegates, the sub-agents in parallel, and the synthesis."""

    def __init__(self, url: str, **settings: Any) -> None:
        from agentnb import Session

        os.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        self._session = Session(
            model="anthropic/m",
            budget=10**9,
            max_concurrency=10_000,
            max_agents=10_000,
            **{"store": None, **settings},
        )
        self.run: Any = None

    def start(self, count: int) -> None:
        self.run = self._session.spawn(f"Share it among {count} agents")

    def read(self, count: int) -> None:
        self.start(count)
        result = self.run.result()
        lengths = [len(child.response) for child in result.sub_agent_results]
        assert lengths == [WHOLE] * count, "a stream was not read whole"

    def close(self) -> None:
        """Do nothing: the interpreter closes what is open."""


class Stored(Agentnb):
    """The same, with a store."""

    def __init__(self, url: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(url, store=f"{self._folder.name}/runs.db")

    def close(self) -> None:
        self._folder.cleanup()


class Recorded(Agentnb):
    """The same without a store, recorded into a cassette."""

    def __init__(self, url: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(url, mode="record", cassette=f"{self._folder.name}/x.cassette.jsonl")

    def close(self) -> None:
        self._folder.cleanup()


def _limits() -> Any:
    import httpx2

    return httpx2.Limits(max_connections=10_000, max_keepalive_connections=10_000)


def measure(variant: str, count: int, url: str) -> dict[str, float]:
    """Read `count` streams in one way: processor seconds, and the peak of memory in MiB."""
    kinds: dict[str, type[Helper | Raw | Provider | OpenAISdk | Agentnb]] = {
        "helper": Helper,
        "raw": Raw,
        "provider": Provider,
        "openai-sdk": OpenAISdk,
        "openai": OpenAI,
        "agentnb": Agentnb,
        "stored": Stored,
        "recorded": Recorded,
    }
    reader = kinds[variant](url)
    reader.read(WARM_UP)
    begun_s, begun_wall_s = time.process_time(), time.monotonic()
    reader.read(count)
    measures = {
        "cpu_s": time.process_time() - begun_s,
        "wall_s": time.monotonic() - begun_wall_s,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    reader.close()
    return measures


# -- cancel -----------------------------------------------------------------------------------


def _all_open(url: str, count: int) -> None:
    while state_of(url)["open"] < count:
        time.sleep(0.05)


def _closed_after_s(url: str, begun_s: float) -> float:
    while (state := state_of(url))["open"]:
        time.sleep(0.01)
    return state["last_closed_at_s"] - begun_s


def cancel(count: int, url: str) -> dict[str, float]:
    """Cancel a run with `count` open streams: seconds to the return, and to the last close."""
    from agentnb.core.events import AgentTextDelta

    reader = Agentnb(url)
    reader.start(count)
    _all_open(url, count)

    # All that the server sends before it holds a reply.
    said = len(WORDS) * (HELD_AFTER - FIRST_DELTA)

    def read() -> int:
        lengths: Counter[str] = Counter()
        for entry in reader.run.events:
            if isinstance(entry.event, AgentTextDelta):
                lengths[entry.event.agent_id] += len(entry.event.text)
        return sum(length == said for length in lengths.values())

    while read() < count:
        time.sleep(0.05)
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    receipt = reader.run.cancel()
    returned_s, cpu_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
    assert len(receipt.agents) == count + 1
    return {"returned_s": returned_s, "closed_s": _closed_after_s(url, begun_s), "cpu_s": cpu_s}


def close_sockets(count: int, url: str) -> dict[str, float]:
    """Close as many bare sockets: seconds to the return, and to the last close."""
    parts = urlsplit(url)
    content = json.dumps(body(0)).encode()
    head = f"POST {parts.path}/v1/messages HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n"
    opened = []
    for _ in range(count):
        opened.append(socket.create_connection((parts.hostname, parts.port)))
        opened[-1].sendall(head.encode() + content)
    _all_open(url, count)
    for each in opened:
        each.recv(100_000)
    begun_s = time.monotonic()
    for each in opened:
        each.close()
    returned_s = time.monotonic() - begun_s
    return {"returned_s": returned_s, "closed_s": _closed_after_s(url, begun_s)}


if __name__ == "__main__":
    many_files()
    variant, count, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    match variant:
        case "cancel":
            print(json.dumps(cancel(count, url)))
        case "sockets":
            print(json.dumps(close_sockets(count, url)))
        case _:
            print(json.dumps(measure(variant, count, url)))
