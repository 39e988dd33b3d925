"""A server that sends bytes made beforehand, so that clients pay only for their own work.

It has the Messages API and, under `/v1/chat/completions`, chat completions.

It runs in a process of its own, so that its processor time is not measured, and speaks just enough
HTTP to hold thousands of open streams. It writes every event separately, in its own chunk, as the
API does. The base URL chooses how:

    /quick    all at once
    /paced    0.2 s to the first event, then one every 20 ms
    /long     the same with ten times as many events
    /held     some of the events, and then nothing
    /called   all at once; chat completions as the argument of a call of the tool `final_answer`

A chat completion without `stream` comes whole.

Its state is the number of open connections, and the times of the last close and the last request,
by the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

DELTAS = 50
FIRST_S, EVERY_S = 0.2, 0.02
HELD_AFTER = 10
"""Events of a held stream that are sent."""
FIRST_DELTA = 2
"""Events of a reply before its first text."""
WORDS = ", a few words of it"
FINAL = "final_answer"
USAGE = {"prompt_tokens": 400, "completion_tokens": 250, "total_tokens": 650}
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\nrequest-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n"
)
PLAN_MARK, RESULTS_MARK = b"Share it among ", b"<sub_agent_results>"


def _event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    content = f"event: {kind}\ndata: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(content), content)


def events_of(pieces: list[str]) -> list[bytes]:
    """A whole reply with this text, as HTTP chunks."""
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 400, "output_tokens": 1},
    }
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        HEAD + _event("message_start", message=message),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(
            _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
            for piece in pieces
        ),
        _event("content_block_stop", index=0),
        _event("message_delta", delta=end, usage={"output_tokens": 5 * len(pieces)}),
        # The end of the body comes with the last event, as from a server that has sent all.
        _event("message_stop") + b"0\r\n\r\n",
    ]


def _chunk(delta: dict[str, Any] | None, reason: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    data = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": [] if delta is None else [choice],
        "usage": None,
        **fields,
    }
    content = f"data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(content), content)


def chunks_of(pieces: list[str]) -> list[bytes]:
    """The same as a chat completion."""
    return _completion_of([{"content": piece} for piece in pieces], "stop")


def call_chunks_of(pieces: list[str]) -> list[bytes]:
    """The same as the argument of a tool call."""
    first, last = '{"answer": "', '"}'
    called = {"index": 0, "id": "call_1", "type": "function"}
    deltas = [
        {**called, "function": {"name": FINAL, "arguments": first}},
        *({"index": 0, "function": {"arguments": piece}} for piece in [*pieces, last]),
    ]
    return _completion_of([{"tool_calls": [delta]} for delta in deltas], "tool_calls")


def _completion_of(deltas: list[dict[str, Any]], reason: str) -> list[bytes]:
    done = b"data: [DONE]\n\n"
    return [
        HEAD + _chunk({"role": "assistant", "content": ""}),
        *map(_chunk, deltas),
        _chunk({}, reason),
        _chunk(None, usage=USAGE),
        b"%x\r\n%b\r\n" % (len(done), done) + b"0\r\n\r\n",
    ]


def whole_of(text: str, *, called: bool) -> bytes:
    """A chat completion without a stream; if `called`, as the argument of a tool call."""
    function = {"name": FINAL, "arguments": json.dumps({"answer": text})}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    said = {"content": None, "tool_calls": calls} if called else {"content": text}
    data = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **said},
                "logprobs": None,
                "finish_reason": "tool_calls" if called else "stop",
            }
        ],
        "usage": USAGE,
    }
    content = json.dumps(data).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(content) + content


def plan_of(count: int) -> list[str]:
    """A reply that requests `count` sub-agents, in pieces."""
    agents = "".join(f'<agent task="Say something of part {n}." />' for n in range(count))
    text = f'I ask {count}.\n\n<spawn_agents mode="parallel">{agents}</spawn_agents>'
    return [text[at : at + 400] for at in range(0, len(text), 400)]


ANSWER = events_of([WORDS] * DELTAS)
COMPLETION = chunks_of([WORDS] * DELTAS)
CALL = call_chunks_of([WORDS] * DELTAS)
LONG_ANSWER = events_of([WORDS] * (10 * DELTAS))
SYNTHESIS = events_of(["All in all: "] * 3)


class _State:
    opened = 0
    last_closed_at_s = 0.0
    last_request_at_s = 0.0


class Connection(asyncio.Protocol):
    """One client's connection."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._unread = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        _State.opened += 1

    def connection_lost(self, exc: Exception | None) -> None:
        _State.opened -= 1
        _State.last_closed_at_s = time.monotonic()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        head, mark, rest = bytes(self._unread).partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if mark and len(rest) >= size:
            self._unread.clear()
            self._answer(head.split(b" ", 2)[1], rest)

    def _answer(self, path: bytes, body: bytes) -> None:
        if path.endswith(b"/state"):
            state = {
                "open": _State.opened - 1,  # without the connection of this request
                "last_closed_at_s": _State.last_closed_at_s,
                "last_request_at_s": _State.last_request_at_s,
            }
            content = json.dumps(state).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
            )
            return
        _State.last_request_at_s = time.monotonic()
        pace = path.split(b"/")[1]
        events = LONG_ANSWER if pace == b"long" else ANSWER
        if path.endswith(b"/chat/completions"):
            is_called = pace == b"called"
            if not json.loads(body).get("stream"):
                self.transport.write(whole_of(WORDS * DELTAS, called=is_called))
                return
            events = CALL if is_called else COMPLETION
        elif RESULTS_MARK in body:
            events, pace = SYNTHESIS, b"quick"
        elif PLAN_MARK in body and b"<sub_agent_instructions>" not in body:
            count = int(body.partition(PLAN_MARK)[2].split(b" ")[0])
            events, pace = events_of(plan_of(count)), b"quick"
        match pace:
            case b"quick" | b"called":
                self._write(events)
            case b"held":
                self._write(events[:HELD_AFTER])
            case _:
                self.transport.write(HEAD)
                begin = asyncio.get_running_loop().time() + FIRST_S
                self._write_paced([events[0].removeprefix(HEAD), *events[1:]], 0, begin)

    def _write(self, events: list[bytes]) -> None:
        for event in events:
            self.transport.write(event)

    def _write_paced(self, events: list[bytes], position: int, at_s: float) -> None:
        if position and not self.transport.is_closing():
            self.transport.write(events[position - 1])
        if position < len(events):
            # By absolute times, so that a late event does not delay the later ones.
            asyncio.get_running_loop().call_at(
                at_s, self._write_paced, events, position + 1, at_s + EVERY_S
            )


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the parent process closes the pipe


def many_files() -> None:
    """Allow this process thousands of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))


@contextlib.contextmanager
def server_process() -> Iterator[str]:
    """The server, and its address."""
    command = [sys.executable, "-m", "tests.benchmarks.http_server"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.communicate()


def state_of(url: str) -> dict[str, float]:
    """The server's state."""
    with urllib.request.urlopen(f"{url}/state", data=b"{}") as answer:
        state: dict[str, float] = json.load(answer)
        return state


if __name__ == "__main__":
    many_files()
    asyncio.run(_serve())
