"""What a real network does besides: nobody there, silence, a restart, a redirect elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from agentnb.core.errors import ConnectionFailed
from agentnb.core.events import AgentWaiting, ModelCallStarted
from tests.core.clock import ManualClock
from tests.faults.stage import opened
from tests.faults.wire import WIRES, ApiProvider, Wire
from tests.loopback import Act, LoopbackServer, Reply
from tests.support import Tree, make_tree

SILENCE_S = 0.2
"""Only met where a server says nothing at all: a slow machine must not make it."""


both = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


@pytest.fixture
async def provider(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiProvider]:
    async with opened(wire, monkeypatch) as provider:
        yield provider


async def run(provider: ApiProvider, clock: ManualClock | None = None) -> Tree:
    return await make_tree(provider, clock=clock or ManualClock(sleeps_end=True)).run()


@both
async def test_server_that_is_down_is_called_four_times_and_named(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackServer({}) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)

    tree = await run(provider)

    assert [call.attempt for call in tree.of(ModelCallStarted)] == [1, 2, 3, 4]
    assert type(tree.error) is ConnectionFailed
    assert str(tree.error) == (
        f"{urlsplit(server.url).netloc} could not be reached: Connection refused. "
        f"{wire.unreachable}"
    )


@both
async def test_name_that_nobody_knows_is_told_in_words(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setenv(wire.url_variable, "https://api.example.invalid")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    tree = await run(provider)

    assert len(tree.of(AgentWaiting)) == 3
    assert type(tree.error) is ConnectionFailed
    assert str(tree.error) == (
        f"api.example.invalid could not be reached: Name or service not known. {wire.unreachable}"
    )


@both
async def test_server_that_restarts_between_two_attempts_is_found_again(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as servers:
        down = servers.enter_context(LoopbackServer({"": Reply(status=529)}))
        monkeypatch.setenv(wire.url_variable, down.url + wire.url_path)

        class Restarting(ManualClock):
            """Restarts the server while the first attempt's failure is waited out."""

            async def sleep(self, seconds: float) -> None:
                if not self.sleeps:
                    await asyncio.to_thread(servers.close)
                elif len(self.sleeps) == 1:
                    port = urlsplit(down.url).port or 0
                    servers.enter_context(LoopbackServer({"": "Back again."}, port=port))
                await super().sleep(seconds)

        tree = await run(provider, Restarting(sleeps_end=True))

    reasons = [wait.reason for wait in tree.of(AgentWaiting)]
    assert tree.error is None
    assert tree.result.final_response == "Back again."
    assert len(reasons) == 2
    assert "answered 529 (overloaded_error)" in reasons[0]
    assert "could not be reached" in reasons[1]


@both
async def test_silence_before_an_answer_is_tried_four_times(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackServer({"": Reply(before=(Act.STALL,))}) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)

        async with opened(wire, monkeypatch, timeout_s=SILENCE_S) as provider:
            tree = await run(provider)

        await asyncio.to_thread(server.wait_requests, 4)  # it may not have read the last yet
        await asyncio.to_thread(server.wait_disconnected)
    assert len(server.requests) == 4
    assert type(tree.error) is ConnectionFailed
    assert str(tree.error) == (
        f"{urlsplit(server.url).netloc} did not answer: nothing came for {SILENCE_S:g} s. Try "
        "again in a while."
    )


@both
async def test_conversation_does_not_follow_a_redirect(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackServer({"": "Tell me more."}) as elsewhere:
        headers = {"location": f"{elsewhere.url}/v1/messages"}
        redirect = Reply(status=307, body=b"", headers=headers)
        with LoopbackServer({"": redirect}) as server:
            monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)

            tree = await run(provider)

    assert elsewhere.requests == []
    assert f"points to {elsewhere.url}/v1/messages" in str(tree.error)
