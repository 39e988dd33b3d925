"""A server that cuts an open reply when the next request comes is asked one call at a time."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

import agentnb
from agentnb.core.types import AgentStatus, CompletionRequest, user_message
from agentnb.providers.ends import checked
from agentnb.providers.limits import BadReply
from agentnb.providers.openai import OpenAIProvider
from agentnb.providers.servers import Server, any_takes_turns, server_of
from tests.loopback import LoopbackServer, Reply, Step
from tests.loopback.completions import DONE, chunk
from tests.support import DEADLINE_S

ROWS = [f"row {number}" for number in range(8)]
ALL = sys.maxsize
WRITES_S = 0.1
"""How long the server takes for a reply."""


@dataclass
class _Open:
    """A reply that is being written."""

    task: str
    is_cut: bool = False
    goes_on: threading.Event = field(default_factory=threading.Event)


class OneSlot:
    """Writes one reply at a time, as llama-cpp-python does: a new request ends the open one.

    Args:
        cuts: Whether it does; else it writes them all.
        says_why: Whether a whole reply ends with a reason.
    """

    def __init__(self, *, cuts: bool = True, says_why: bool = True) -> None:
        self._cuts, self._says_why = cuts, says_why
        self._lock = threading.Lock()
        self._newest = _Open("")
        self.cut: list[str] = []
        """The tasks whose replies were cut."""
        self.most_open = self._now_open = 0

    def answer(self, body: dict[str, Any]) -> Reply:
        it = _Open(body["messages"][-1]["content"])
        with self._lock:
            before, self._newest = self._newest, it
            if before.task and not before.goes_on.is_set():
                before.is_cut = self._cuts
                before.goes_on.set()
            self._now_open += 1
            self.most_open = max(self.most_open, self._now_open)
        if before.task:  # the first reply goes on only when a second request has come
            threading.Timer(WRITES_S, it.goes_on.set).start()
        return Reply(events=self._steps(it))  # type: ignore[arg-type]  # it is read once

    def _steps(self, it: _Open) -> Iterator[Step]:
        yield chunk({"content": "The answer "})
        yield it.goes_on
        with self._lock:
            self._now_open -= 1
            if it.is_cut:
                self.cut.append(it.task)
        if not it.is_cut:
            yield chunk({"content": f"to {it.task}"})
            if self._says_why:
                yield chunk({}, finish_reason="stop")
        yield DONE


def asked(server: OneSlot, monkeypatch: pytest.MonkeyPatch, at_once: int) -> Any:
    with LoopbackServer(server.answer) as http:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{http.url}/v1")
        with agentnb.Session("openai/m", store=None, max_concurrency=at_once) as session:
            out = session.map(ROWS, "{{text}}", retry_failed=1).result(DEADLINE_S)
        return out, len(http.requests)


def test_all_rows_get_their_answers_though_the_server_cuts_its_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = OneSlot()

    out, requests = asked(server, monkeypatch, 2)

    assert list(out.data) == [f"The answer to {row}" for row in ROWS]
    assert out.status is AgentStatus.COMPLETED
    assert len(server.cut) == 1, "that which was open when the second came"
    assert requests == len(ROWS) + len(server.cut)


def test_server_that_cuts_nothing_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = OneSlot(cuts=False)

    out, requests = asked(server, monkeypatch, 8)

    assert out.status is AgentStatus.COMPLETED
    assert requests == len(ROWS)
    assert server.most_open > 1


def ends(server: Server, reason: str | None, *, has_company: bool = True) -> None:
    with contextlib.suppress(BadReply):
        checked(reason, server, "m", has_company=has_company, has_answer=True)


def test_server_that_loses_a_reason_once_is_soon_asked_at_once_again() -> None:
    server, seen = Server(), list[int]()

    for reason, has_company in [(None, True), *[("stop", False)] * 8, *[("stop", True)] * 4]:
        ends(server, reason, has_company=has_company)
        seen.append(server.at_once)

    assert seen == [*[1] * 8, *[2] * 3, ALL, ALL]
    assert not any_takes_turns()


def test_server_that_cuts_is_tried_more_and_more_rarely() -> None:
    server, alone = Server(), list[int]()

    for _ in range(4):
        ends(server, None)
        ends(server, "stop")  # that which cut it
        count = 0
        while server.at_once == 1:
            ends(server, "stop", has_company=False)
            count += 1
        alone.append(count)

    assert alone == [8, 16, 32, 64]


async def test_call_waits_for_its_turn_before_its_time_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a provider awaits in `ready` does not count towards `call_timeout_s`."""
    server = OneSlot(cuts=False)
    with LoopbackServer(server.answer) as http:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{http.url}/v1")
        provider = OpenAIProvider()
        server_of("openai", f"{http.url}/v1/", is_vendors=False).cut_beside = 1
        request = CompletionRequest(model="m", system="", messages=(user_message("row 0"),))
        async with aclosing(provider.stream(request)) as first:
            await anext(first)
            second = asyncio.ensure_future(provider.ready())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not second.done()
        await asyncio.wait_for(second, DEADLINE_S)
        await provider.aclose()


def test_users_of_one_address_have_one_home_that_holds_no_password() -> None:
    first, second, other = (
        server_of("openai", f"http://{address}/v1/", is_vendors=False)
        for address in ("me:word@host", "you:secret@host", "me:word@other")
    )

    assert first is second is not other
    assert "word" not in first.home
    assert "me" not in first.home


def test_call_has_company_whichever_of_the_two_began_first() -> None:
    server = Server(open=1, begun=1)
    first = server.has_company()
    assert not first()

    server.open, server.begun = 2, 2
    second = server.has_company()
    assert first()
    server.open = 1
    assert second()


def test_server_that_never_gives_a_reason_is_understood_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = OneSlot(cuts=False, says_why=False)

    out, requests = asked(server, monkeypatch, 8)

    assert list(out.data) == [f"The answer to {row}" for row in ROWS]
    assert len(ROWS) <= requests <= 2 * len(ROWS)
