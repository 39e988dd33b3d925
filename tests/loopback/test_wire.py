"""What the loopback server can do to a reply in transit, seen from a bare socket."""

from __future__ import annotations

import json
import socket
import threading
import zlib
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.loopback import Act, Cut, Drip, LoopbackServer, Reply

PING = ("ping", {"type": "ping"})
ON_THE_WIRE = b'event: ping\ndata: {"type":"ping"}\n\n'


def asked(server: LoopbackServer) -> socket.socket:
    """A connection on which a request was made."""
    at = urlsplit(server.url)
    client = socket.create_connection((at.hostname, at.port), timeout=60)
    asked = [{"role": "user", "content": "Say hello"}]
    body = json.dumps({"model": "m", "max_tokens": 9, "stream": True, "messages": asked})
    head = "POST /v1/messages HTTP/1.1\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n"
    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    return client


def all_of(client: socket.socket) -> bytes:
    content = b""
    while piece := client.recv(65536):
        content += piece
    return content


def until(client: socket.socket, mark: bytes) -> bytes:
    content = b""
    while mark not in content:
        piece = client.recv(65536)
        assert piece, content
        content += piece
    return content


def answered(reply: Reply) -> bytes:
    """All bytes of a reply after which the server hangs up."""
    with LoopbackServer({"": reply}) as server, asked(server) as client:
        return all_of(client)


def body_of(response: bytes) -> bytes:
    return response.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (Reply(events=(Act.HANG_UP,)), b""),
        (Reply(events=(b"two", b"parts", Act.HANG_UP)), b"3\r\ntwo\r\n5\r\nparts\r\n"),
        (Reply(events=(b"one", Cut(b"half a ch"))), b"3\r\none\r\na\r\nhalf a ch"),
    ],
)
def test_reply_that_breaks_off_has_sent_exactly_what_came_before(reply: Reply, body: bytes) -> None:
    assert body_of(answered(reply)) == body


@pytest.mark.parametrize(
    ("steps", "content"),
    [
        ((Act.HANG_UP,), b""),
        ((b"SSH-2.0\r\n", Act.HANG_UP), b"SSH-2.0\r\n"),
    ],
)
def test_what_is_done_before_the_headers_takes_their_place(steps: Any, content: bytes) -> None:
    assert answered(Reply(before=steps)) == content


@pytest.mark.parametrize(
    "reply", [Reply(before=(Act.RESET,)), Reply(events=(PING, Act.STALL, Act.RESET))]
)
def test_reset_is_no_orderly_end(reply: Reply) -> None:
    with LoopbackServer({"": reply}) as server, asked(server) as client:
        if not reply.before:
            server.wait_stalled(1)
            assert ON_THE_WIRE in until(client, b"\n\n")
            server.let_go()
        with pytest.raises(ConnectionResetError):
            all_of(client)
        server.wait_disconnected()
        assert server.closed == []  # it was not the client that hung up


def test_stall_lasts_until_the_test_lets_go() -> None:
    reply = Reply(events=(PING, Act.STALL, b"more", Act.HANG_UP))
    with LoopbackServer({"": reply}) as server, asked(server) as client:
        server.wait_stalled(1)
        begun = until(client, b"\n\n\r\n")
        server.let_go()
        rest = all_of(client)

    assert body_of(begun).endswith(ON_THE_WIRE + b"\r\n")
    assert rest == b"4\r\nmore\r\n"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(before=(Act.STALL,)),
        Reply(events=(Act.STALL,)),
        Reply(before=(Drip(b"."),)),
        Reply(events=(Drip(b"."),)),
    ],
)
def test_stall_ends_when_the_client_hangs_up(reply: Reply) -> None:
    with LoopbackServer({"": reply}) as server:
        with asked(server):
            server.wait_stalled(1)
            assert server.closed == []
        server.wait_closed(1)
        server.wait_disconnected()

        assert [request.number for request in server.closed] == [0]


def test_drip_continues_until_the_test_lets_go() -> None:
    reply = Reply(before=(Drip(b"ab"), Act.HANG_UP))
    with LoopbackServer({"": reply}) as server, asked(server) as client:
        server.wait_stalled(1)
        many = until(client, b"ab" * 10)
        server.let_go()
        content = many + all_of(client)

    assert content == b"ab" * (len(content) // 2)


def test_compressed_stream_shows_each_event_as_soon_as_it_is_said() -> None:
    hold = threading.Event()
    reply = Reply(events=(PING, hold, PING, Act.HANG_UP), is_gzipped=True)
    with LoopbackServer({"": reply}) as server, asked(server) as client:
        head, _, rest = until(client, b"\r\n\r\n").partition(b"\r\n\r\n")
        while rest.count(b"\r\n") < 2:
            rest += client.recv(65536)
        size, _, content = rest.partition(b"\r\n")
        first = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(content[: int(size, 16)])
        hold.set()
        all_of(client)

    assert b"content-encoding: gzip" in head
    assert first == ON_THE_WIRE


def test_lines_have_the_line_end_of_the_script() -> None:
    content = answered(Reply(events=(PING, Act.HANG_UP), line_end="\r\n"))

    assert ON_THE_WIRE.replace(b"\n", b"\r\n") in body_of(content)


@pytest.mark.parametrize("status", [200, 500])
def test_body_of_the_script_is_sent_as_it_is(status: int) -> None:
    reply = Reply(status=status, body=b"\xff{", headers={"content-type": "x/y"})
    with LoopbackServer({"": reply}) as server, asked(server) as client:
        content = until(client, b"\xff{")

    assert content.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"content-type: x/y\r\n" in content
    assert b"content-length: 2\r\n" in content


def test_test_can_wait_for_the_connection_of_one_reply() -> None:
    with LoopbackServer({"": [Reply(events=(Act.HANG_UP,)), Reply(events=(Act.STALL,))]}) as server:
        with asked(server) as first:
            all_of(first)
            with asked(server):
                server.wait_stalled(1)
                server.wait_disconnected(0)
                assert server.open_connections == 1
