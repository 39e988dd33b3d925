"""The server: one thread, one loop, a script that answers, and a record of the requests.

A test never sleeps to wait for the server. Everything that happens here is recorded under one
condition variable, and the `wait_…` methods return when it has happened. They block: a test whose
client runs on its own loop calls them through `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.loopback import completions, http11, messages
from tests.loopback.said import Dialect, Refusal, Reply, parse_body
from tests.loopback.sender import Sender

DEADLINE_S = 60.0
"""Only against hangs: far more than anything here takes on a busy machine."""

Answer = Reply | str
"""A `str` is a `Reply` with that text."""
Script = Callable[[dict[str, Any]], Answer] | Mapping[str, Answer | Sequence[Answer]]
"""A function from the request's body to the reply; or rules, from a part of the last user message
to the reply, or to the replies one after the other. The first rule that matches applies."""


_DIALECTS = {each.path: each for each in (messages.DIALECT, completions.DIALECT)}


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived."""

    number: int
    """In order of arrival, from 0."""
    connection: int
    """The number of its connection, from 0; shared by all requests of that connection."""
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: dict[str, Any]
    """Parsed; empty if it was not JSON."""


class LoopbackServer:
    """A Messages API, and one of chat completions, on 127.0.0.1, for the time of a `with` block.

    Args:
        script: Makes the answers.
        keys: The API keys that it accepts; `None` for any.
        port: Where it listens; 0 for any free port.
    """

    def __init__(
        self, script: Script, *, keys: Collection[str] | None = None, port: int = 0
    ) -> None:
        self.requests: list[Received] = []
        self.closed: list[Received] = []
        """Requests whose client hung up before the end of the reply."""
        self.url = ""
        self._answer = script if callable(script) else _Rules(script)
        self._keys = None if keys is None else frozenset(keys)
        self._port = port
        self._changed = threading.Condition()
        self._streaming: list[Received] = []
        self._open: set[int] = set()
        self._stalls: list[asyncio.Event] = []
        self._connections_made = 0
        self._holds: dict[threading.Event, asyncio.Event] = {}
        self._handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._bugs: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="loopback-server", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    # -- for the test's thread --------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(DEADLINE_S):
            raise TimeoutError("the loopback server did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        for hold in self._holds:  # releases the threads that wait for them
            hold.set()
        if self._bugs and error is None:
            raise self._bugs[0]

    @property
    def open_connections(self) -> int:
        with self._changed:
            return len(self._open)

    @property
    def streaming(self) -> int:
        """The number of replies that have begun and not ended."""
        with self._changed:
            return len(self._streaming)

    @property
    def stalled(self) -> int:
        """The number of replies that have stalled or begun to drip, in all."""
        with self._changed:
            return len(self._stalls)

    def wait_requests(self, count: int) -> None:
        """Wait until `count` requests have arrived in all."""
        self._wait(lambda: len(self.requests) >= count, f"{count} requests")

    def wait_streaming(self, count: int) -> None:
        """Wait until `count` replies are open at the same time."""
        self._wait(lambda: len(self._streaming) >= count, f"{count} open streams")

    def wait_stalled(self, count: int) -> None:
        """Wait until `count` replies have stalled or begun to drip in all."""
        self._wait(lambda: len(self._stalls) >= count, f"{count} stalls")

    def let_go(self) -> None:
        """End all present stalls: each reply continues with its next step."""
        with self._changed:
            stalls = list(self._stalls)
        for go_on in stalls:
            self._loop.call_soon_threadsafe(go_on.set)

    def wait_closed(self, count: int = 1) -> None:
        """Wait until clients have hung up on `count` replies in all."""
        self._wait(lambda: len(self.closed) >= count, f"{count} replies hung up on")

    def wait_disconnected(self, connection: int | None = None) -> None:
        """Wait until this connection is closed; without a number, until none is open."""
        if connection is None:
            self._wait(lambda: not self._open, "no open connection")
        else:
            self._wait(lambda: connection not in self._open, f"the end of {connection}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, DEADLINE_S):
                raise TimeoutError(
                    f"waited {DEADLINE_S:g} s for {what}; there were {len(self.requests)} "
                    f"requests, {len(self._streaming)} open streams, {len(self.closed)} replies "
                    f"hung up on and {len(self._open)} open connections"
                )

    # -- connections, on the server's thread -------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        listening = await self._loop.create_server(
            self._new_protocol, "127.0.0.1", self._port, backlog=1024
        )
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._stop.wait()
        # Queued connections are accepted first and get a handler: asyncio leaks a connection if its
        # server is closed after the acceptance and before the transport is made.
        for _ in range(10):
            await asyncio.sleep(0)
        listening.close()
        handlers = dict(self._handlers)
        for handler, writer in handlers.items():
            handler.cancel()
            writer.transport.abort()  # a client that does not read must not delay this
        await asyncio.gather(*handlers, return_exceptions=True)
        for _ in range(10):  # the last callbacks of the transports
            await asyncio.sleep(0)

    def _new_protocol(self) -> asyncio.StreamReaderProtocol:
        reader = http11.Reader()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            handler = self._loop.create_task(self._serve_connection(reader, writer))
            self._handlers[handler] = writer
            handler.add_done_callback(self._handler_ended)

        return asyncio.StreamReaderProtocol(reader, connected, loop=self._loop)

    def _handler_ended(self, handler: asyncio.Task[None]) -> None:
        del self._handlers[handler]
        if not handler.cancelled() and (error := handler.exception()) is not None:
            self._bugs.append(error)

    async def _serve_connection(self, reader: http11.Reader, writer: asyncio.StreamWriter) -> None:
        with self._changed:
            connection, self._connections_made = self._connections_made, self._connections_made + 1
            self._open.add(connection)
            self._changed.notify_all()
        try:
            with contextlib.suppress(ConnectionError, http11.BadRequest):
                while (request := await http11.read_request(reader)) is not None:
                    if not await self._respond(request, connection, reader, writer):
                        break
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            with self._changed:
                self._open.discard(connection)
                self._changed.notify_all()

    async def _respond(
        self,
        request: http11.Request,
        connection: int,
        reader: http11.Reader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; return false if the connection cannot be used again."""
        received = self._record(request, connection)
        dialect = _DIALECTS.get(request.path, messages.DIALECT)
        reply = self._reply_to(request, received, dialect)
        sender = Sender(writer, dialect, stall=self._stalled, hold=self._released)
        with self._counted_as_streaming(received):
            sending = asyncio.create_task(sender.send(reply, received.body, number=received.number))
            hanging_up = asyncio.create_task(reader.hung_up.wait())
            both = {sending, hanging_up}
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                sent = sending.done()
                is_usable = sent and sending.result()
            except ConnectionError:
                sent = is_usable = False
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        if not sent:
            with self._changed:
                self.closed.append(received)
                self._changed.notify_all()
        return is_usable

    @contextlib.contextmanager
    def _counted_as_streaming(self, received: Received) -> Iterator[None]:
        with self._changed:
            self._streaming.append(received)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._streaming.remove(received)
                self._changed.notify_all()

    # -- what is asked and what is answered --------------------------------------------------

    def _record(self, request: http11.Request, connection: int) -> Received:
        try:
            body = parse_body(request.body)
        except Refusal:
            body = {}
        with self._changed:
            received = Received(
                len(self.requests), connection, request.method, request.path, request.headers, body
            )
            self.requests.append(received)
            self._changed.notify_all()
        return received

    def _reply_to(self, request: http11.Request, received: Received, dialect: Dialect) -> Reply:
        try:
            if (request.method, request.path) != ("POST", dialect.path):
                raise Refusal(404, f"Not found: {request.method} {request.path}")
            dialect.check_headers(request.headers, self._keys)
            body = parse_body(request.body)
            dialect.check_body(body)
            answer = self._answer(body)
        except Refusal as refusal:
            return Reply(status=refusal.status, message=refusal.message)
        except Exception as error:  # raised by the script: the test sees it in the client's error
            return Reply(status=400, message=f"the script raised {error!r}")
        return Reply(text=answer) if isinstance(answer, str) else answer

    # -- what a reply waits for -----------------------------------------------------------------

    async def _stalled(self) -> None:
        """Stall until the test lets go; a client that hangs up cancels this."""
        go_on = asyncio.Event()
        with self._changed:
            self._stalls.append(go_on)
            self._changed.notify_all()
        await go_on.wait()

    async def _released(self, hold: threading.Event) -> None:
        """Wait for a thread's event without blocking the loop, in a thread for each."""
        if hold not in self._holds:
            released = self._holds[hold] = asyncio.Event()

            def wait() -> None:
                hold.wait()
                with contextlib.suppress(RuntimeError):  # the loop is gone
                    self._loop.call_soon_threadsafe(released.set)

            threading.Thread(target=wait, name="loopback-hold", daemon=True).start()
        await self._holds[hold].wait()


class _Rules:
    """Answers by the contents of the last user message."""

    def __init__(self, rules: Mapping[str, Answer | Sequence[Answer]]) -> None:
        self._rules: dict[str, Iterator[Answer]] = {
            part: itertools.repeat(answer) if isinstance(answer, Reply | str) else iter(answer)
            for part, answer in rules.items()
        }

    def __call__(self, body: dict[str, Any]) -> Answer:
        asked = _last_user_text(body)
        for part, answers in self._rules.items():
            if part in asked:
                for answer in answers:
                    return answer
                raise Refusal(400, f"The script has no reply left for {part!r}")
        raise Refusal(400, f"The script has no rule for {asked[:200]!r}")


def _last_user_text(body: Mapping[str, Any]) -> str:
    """Text and tool results of the newest user message."""
    # In chat completions, each tool result is a separate message.
    by_speaker = itertools.groupby(body["messages"], lambda m: m["role"] in ("user", "tool"))
    newest = [list(messages) for is_users, messages in by_speaker if is_users][-1]
    return "\n".join(text for message in newest for text in _texts(message["content"]))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    for block in content or ():
        if block["type"] == "text":
            yield block["text"]
        elif block["type"] == "tool_result":
            yield from _texts(block.get("content"))
