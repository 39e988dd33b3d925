"""The transport below the SDK: what it carries, what it lets go, and what it leaves to another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from agentnb.core.errors import ConnectionFailed, LlmError
from agentnb.core.types import CompletionRequest, Stopped, TextDelta, user_message
from agentnb.providers.aio_transport import Body
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.body import LayeredBody, bytes_of
from agentnb.providers.http_client import ApiClient
from tests.faults.wire import CLOSE, OPEN, START, delta, ending
from tests.loopback import Act, LoopbackServer, Reply
from tests.loopback.said import encoded
from tests.notebook.forked import SDKS, ForkServer
from tests.support import DEADLINE_S, run_python

KEY = "sk-ant-api03-not-a-real-key"
HELLO = CompletionRequest("m", "", (user_message("Say hello"),))
HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
ASKED = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Say hello"}]}
SAID = b"".join(encoded(event) for event in (START, OPEN, delta("Hello."), CLOSE, *ending()))


@contextlib.asynccontextmanager
async def asking(url: str) -> AsyncIterator[httpx2.Response]:
    """A response that has begun; the client, and the response if it goes on, are closed."""
    async with ApiClient(connect_s=10.0, silence_s=60.0) as client:
        request = client.build_request(
            "POST", f"{url}/v1/messages", json={**ASKED, "stream": True}, headers=HEADERS
        )
        response = await client.send(request, stream=True)
        try:
            yield response
        finally:
            await bytes_of(response).aclose()


async def test_reply_is_read_where_its_bytes_arrive() -> None:
    with LoopbackServer({"": "Hello."}) as server:
        async with asking(server.url) as response:
            body = bytes_of(response)
            read = b"".join([chunk async for chunk in body])  # type: ignore[attr-defined]

    assert isinstance(body, Body), "the client above has the transport that it was given"
    assert read.endswith(encoded(("message_stop", {"type": "message_stop"})))
    assert body.has_ended


def shorten_silence(body: Body, silence_s: float) -> None:
    """Not before the reply has begun: how long that takes depends on the machine's load."""
    body._watch.cancel()
    body._silence_s = silence_s
    body._watch = body._loop.call_later(silence_s, body._check_silence)


async def test_server_is_not_silent_while_it_is_not_read() -> None:
    silence_s = 0.05
    with LoopbackServer({"": "Hello."}) as server:
        async with asking(server.url) as response:
            body = bytes_of(response)
            assert isinstance(body, Body)
            async with asyncio.timeout(DEADLINE_S):
                # Nobody tells of a reply that is there.
                while not body.has_ended:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            shorten_silence(body, silence_s)
            await asyncio.sleep(3 * silence_s)
            read = await body.read()

    assert b"message_stop" in read


async def test_server_that_stalls_is_silent_after_the_time_and_not_for_its_first_bytes() -> None:
    with LoopbackServer({"": Reply(events=(START, Act.STALL))}) as server:
        async with asking(server.url) as response:
            body = bytes_of(response)
            assert isinstance(body, Body)
            await asyncio.to_thread(server.wait_stalled, 1)
            shorten_silence(body, 0.05)
            assert b"message_start" in await body.read()
            with pytest.raises(httpx2.ReadTimeout):
                await body.read()


async def test_request_of_many_megabytes_is_sent_whole_and_without_a_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "é" * 2**20
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with LoopbackServer({"": "Hello."}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        async with contextlib.aclosing(AnthropicProvider()) as provider:
            request = CompletionRequest("m", "", (user_message(long),))
            _ = [event async for event in provider.stream(request)]

    assert server.requests[0].body["messages"][0]["content"][0]["text"] == long


async def test_password_in_the_base_url_is_sent_as_a_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with LoopbackServer({"": "Hello."}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.replace("//", "//user:word@"))
        async with contextlib.aclosing(AnthropicProvider()) as provider:
            with contextlib.suppress(LlmError):  # it is no key of the API
                _ = [event async for event in provider.stream(HELLO)]

    assert server.requests[0].headers["authorization"] == "Basic dXNlcjp3b3Jk"


async def test_name_that_nobody_looks_up_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    async with ApiClient(connect_s=0.01, silence_s=60.0) as client:
        with pytest.raises(httpx2.ConnectTimeout):
            await client.post("http://api.example.invalid", content=b"{}")


# -- a server that does not read -------------------------------------------------------------------

LONG = b" " * 2**24
"""More than the systems of both sides take from us before the server reads it."""


class Deaf:
    """Accepts, reads one byte of a request, and may say something; knows the client's sockets."""

    def __init__(self, says: bytes = b"") -> None:
        self._says = says
        self._of_client: list[asyncio.Transport] = []
        self._has_ended = asyncio.Event()
        self.was_called = asyncio.Event()
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deaf]:
        loop = asyncio.get_running_loop()
        connect = loop.create_connection

        async def noting(*args: Any, **kwargs: Any) -> Any:
            transport, protocol = await connect(*args, **kwargs)
            self._of_client.append(transport)
            return transport, protocol

        monkeypatch.setattr(loop, "create_connection", noting)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            answering = asyncio.create_task(self._answer(listening))
            try:
                yield self
            finally:
                self._has_ended.set()
                await answering

    async def _answer(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        calling, _ = await loop.sock_accept(listening)
        with calling:
            await loop.sock_recv(calling, 1)
            await loop.sock_sendall(calling, self._says)
            self.was_called.set()
            await self._has_ended.wait()

    async def wait_hung_up(self) -> None:
        """Return when the client has no socket any more: it cannot have sent its request."""
        async with asyncio.timeout(DEADLINE_S):
            # Nobody tells of a socket that is closed.
            while any(_is_open(each) for each in self._of_client):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert len(self._of_client) == 1


def _is_open(transport: asyncio.Transport) -> bool:
    return bool(transport.get_extra_info("socket").fileno() != -1)


async def test_call_that_is_cancelled_while_it_is_sent_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        Deaf().serving(monkeypatch) as server,
        ApiClient(connect_s=10.0, silence_s=60.0) as client,
    ):
        call = asyncio.create_task(client.post(server.url, content=LONG))
        await server.was_called.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.wait_hung_up()


async def test_call_that_is_not_read_is_given_up_and_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        Deaf().serving(monkeypatch) as server,
        ApiClient(connect_s=10.0, silence_s=1.0) as client,
    ):
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(server.url, content=LONG)
        await server.wait_hung_up()


async def test_reply_that_is_left_while_its_request_is_sent_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nHe"
    async with (
        Deaf(begun).serving(monkeypatch) as server,
        ApiClient(connect_s=10.0, silence_s=60.0) as client,
    ):
        request = client.build_request("POST", server.url, content=LONG)
        body = bytes_of(await client.send(request, stream=True))
        assert await body.read() == b"He"
        await body.aclose()
        await server.wait_hung_up()


# -- through a proxy -------------------------------------------------------------------------------


class Proxy:
    """Answers in the place of every server, and holds its second half back until told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.left = asyncio.Event()
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Proxy]:
        listening = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening:
            yield self
            async with asyncio.timeout(DEADLINE_S):
                await self.left.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.asked.append(head.split("\r\n", 1)[0])
                size = int(head.lower().partition("content-length: ")[2].split("\r\n")[0])
                await reader.readexactly(size)
                begin, end = SAID[: len(SAID) // 2], SAID[len(SAID) // 2 :]
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"content-length: %d\r\n\r\n%b" % (len(SAID), begin)
                )
                hung_up = asyncio.ensure_future(reader.read(1))
                going_on = asyncio.ensure_future(self.go_on.wait())
                await asyncio.wait({hung_up, going_on}, return_when=asyncio.FIRST_COMPLETED)
                going_on.cancel()
                if hung_up.done():
                    break
                hung_up.cancel()
                await asyncio.gather(hung_up, return_exceptions=True)
                writer.write(end)
        writer.close()
        self.left.set()


async def test_calls_go_through_the_proxy_of_the_environment_and_share_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://api.example.invalid")
    async with Proxy().serving() as proxy:
        proxy.go_on.set()
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with contextlib.aclosing(AnthropicProvider()) as provider:
            calls = [[event async for event in provider.stream(HELLO)] for _ in range(2)]
            assert not proxy.left.is_set()

    assert proxy.asked == ["POST http://api.example.invalid/v1/messages HTTP/1.1"] * 2
    for events in calls:
        assert TextDelta("Hello.") in events
        assert isinstance(events[-1], Stopped)


async def test_call_through_a_proxy_that_is_left_early_hangs_up_and_leaves_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Proxy().serving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with asking("http://api.example.invalid") as response:
            body = bytes_of(response)
            assert isinstance(body, LayeredBody)
            assert await body.read()
            others = asyncio.all_tasks()
            await body.aclose()
            async with asyncio.timeout(DEADLINE_S):
                await proxy.left.wait()
            assert asyncio.all_tasks() <= others


async def test_host_that_needs_no_proxy_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackServer({"": "Hello."}) as server:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        async with asking(server.url) as response:
            assert isinstance(bytes_of(response), Body)

    assert len(server.requests) == 1


async def test_proxy_that_is_not_there_is_a_failed_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://api.example.invalid")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with contextlib.aclosing(AnthropicProvider()) as provider:
        with pytest.raises(ConnectionFailed, match=r"api\.example\.invalid could not be reached"):
            _ = [event async for event in provider.stream(HELLO)]


# -- processes of their own ------------------------------------------------------------------------

CALLING = """
import asyncio, gc, logging, os, sys, warnings
from agentnb.core.types import CompletionRequest, user_message
from agentnb.providers.anthropic import AnthropicProvider

logging.getLogger("anthropic").setLevel("ERROR")  # it tells where it found the key
# Sockets that are left to the process tell of themselves, whoever opened them.
warnings.simplefilter("ignore", ResourceWarning)

def said(provider):
    async def call():
        request = CompletionRequest("m", "", (user_message("Say hello"),))
        return [event async for event in provider.stream(request)][-1].message.text

    return asyncio.run(call())

"""


def test_calls_go_on_without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    missing = "import sys; sys.modules['aiohttp'] = None  # an import of it fails"
    with LoopbackServer({"": "Hello."}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        code = missing + CALLING + "print(said(AnthropicProvider()))"
        assert run_python(code) == "Hello.\n"


# -- what is dropped ------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_provider_that_was_not_closed_says_nothing_when_it_goes(
    monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    fork_server.preload(*SDKS)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    code = """
for is_deleted in (False, True):
    if os.fork() == 0:
        provider = AnthropicProvider()
        print(said(provider))
        if is_deleted:
            del provider
            gc.collect()
        break  # it ends as any other process does
    assert os.wait()[1] == 0
"""
    with LoopbackServer({"": "Hello."}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert fork_server.printed_by(CALLING + code) == "Hello.\n" * 2
        server.wait_disconnected()


async def test_reply_that_is_held_does_not_hold_up_the_end_of_the_client() -> None:
    with LoopbackServer({"": Reply(text="Hello.", chunk=3, hold=threading.Event())}) as server:
        client = ApiClient(connect_s=10.0, silence_s=60.0)
        request = client.build_request(
            "POST", f"{server.url}/v1/messages", json={**ASKED, "stream": True}, headers=HEADERS
        )
        body = bytes_of(await client.send(request, stream=True))
        await body.read()
        await client.aclose()
        await asyncio.to_thread(server.wait_closed)
        await body.aclose()
