"""A connection and a host in one process, with messages lost, repeated and delayed between."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, NoReturn

import cloudpickle
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentnb.cluster import host
from agentnb.cluster.connection import Call, Connection
from agentnb.cluster.host import Host
from agentnb.cluster.wire import (
    FORGET_S,
    MOST_UNREAD,
    SILENCE_S,
    ContextHere,
    Ended,
    ModelCall,
    Recipe,
    Report,
    Result,
    Stop,
    ToolCall,
)
from agentnb.core.errors import ForeignError, LlmError, ToolError, WorkerLost
from agentnb.core.protocols import ToolContext
from agentnb.core.types import CompletionRequest, Stopped, StreamEvent, TextDelta, ThinkingDelta
from agentnb.runtime import get_runtime
from tests.core.clock import ManualClock
from tests.support import DEADLINE_S

REQUEST = CompletionRequest("model", "", ())
_numbers = count(1)
_seen: dict[int, Any] = {}
"""What a provider or a tool, which is pickled on its way, shares with its test."""


# -- what workers make ----------------------------------------------------------------------------


class Saying:
    """Says what it is given; what is an error it raises, what is an event it waits for."""

    name = "saying"

    def __init__(self, items: int, begun: int, closed: int) -> None:
        self._items, self._begun, self._closed = _seen[items], _seen[begun], _seen[closed]

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        self._begun.append(request.system)
        try:
            for item in self._items:
                if isinstance(item, BaseException):
                    raise item
                if isinstance(item, threading.Event):
                    await until(item.is_set)
                    continue
                yield TextDelta(item) if isinstance(item, str) else item
        finally:
            self._closed.append(request.system)

    async def aclose(self) -> None:
        self._closed.append("provider")


def shared(value: Any) -> int:
    number = next(_numbers)
    _seen[number] = value
    return number


def recipe_of(function: Callable[..., Any]) -> Recipe:
    pickled = cloudpickle.dumps(function)
    return Recipe(sha256(pickled).hexdigest(), pickled)


class Wire:
    """The way to one worker.

    Args:
        fates: Of each message: `""`, `lose` (it never arrives), `lose answer`, `twice`, `late` (it
            arrives, and once more when the next one has) or `old answer` (that of a message before
            is the answer).
        clock: Of the connection and the host.
        is_kind: Whether it never loses a message three times, which is the loss of the worker.
    """

    def __init__(
        self,
        fates: Iterable[str] = (),
        clock: ManualClock | None = None,
        *,
        is_kind: bool = False,
    ) -> None:
        self.clock = clock or ManualClock(sleeps_end=True)
        self.connection = Connection("tcp://w", self.ask, asyncio.get_running_loop(), self.clock)
        self.begun: list[str] = []
        self.closed: list[str] = []
        self.asked = 0
        self.orders: list[Any] = []
        """All that were sent, and what was sent again once more."""
        self._fates = iter(fates)
        self._lost, self._is_kind = defaultdict[Any, int](int), is_kind
        self._answers: dict[Any, Any] = {}
        self._late: list[Callable[[], Any]] = []

    async def ask(self, function: Callable[..., Any], connection: str, *arguments: Any) -> Any:
        host._hosts.setdefault(connection, Host(self.clock))
        self.asked += 1
        if function is host.take:
            self.orders += pickle.loads(arguments[1])
        fate, late = next(self._fates, ""), self._late
        self._late = []
        self._lost[function] = self._lost[function] + 1 if fate.startswith("lose") else 0
        if self._is_kind and self._lost[function] > 2:
            fate, self._lost[function] = "", 0
        if fate == "lose":
            raise OSError("the request was lost")
        answer = await function(connection, *arguments)
        for again in late:
            await again()
        if fate == "twice":
            answer = await function(connection, *arguments)
        if fate == "late":
            self._late.append(partial(function, connection, *arguments))
        if fate == "lose answer":
            raise OSError("the answer was lost")
        old, self._answers[function] = self._answers.get(function, answer), answer
        return old if fate == "old answer" else answer

    def order(self, *items: Any, name: str = "", request: bytes | None = None) -> Call:
        """Order a call to a provider that says these."""
        return self.order_of(self.recipe_of(items), name, request)

    def recipe_of(self, items: Iterable[Any]) -> Recipe:
        """Of a provider that says these."""
        made = partial(Saying, shared(items), shared(self.begun), shared(self.closed))
        return recipe_of(made)

    def order_of(self, recipe: Recipe, name: str = "", request: bytes | None = None) -> Call:
        asked = request or pickle.dumps(CompletionRequest("model", name, ()))
        return self.connection.begin(ModelCall(next(_numbers), recipe.digest, asked), recipe)

    def order_tool(self, function: Callable[..., Any], *arguments: Any) -> Call:
        recipe, about = recipe_of(function), {"agent_id": "a", "path": "root", "run_id": "r"}
        packed = cloudpickle.dumps((arguments, {}))
        return self.connection.begin(ToolCall(next(_numbers), recipe.digest, packed, about), recipe)

    @property
    def host(self) -> Host:
        return host._hosts[self.connection._id]


async def all_of(call: Call, said: list[Any] | None = None) -> list[Any]:
    """What a call says, to its end; it is added to `said` as it comes."""
    said = [] if said is None else said
    try:
        async with asyncio.timeout(DEADLINE_S):
            async for item in call:
                if isinstance(item, Ended):
                    return said
                said.append(item)
                if isinstance(item, Result):
                    return said
    finally:
        call.close()
    raise AssertionError("a call has an end")


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110  # of another thread
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _no_gathering(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(host, "GATHER_S", 0)
    yield
    host._hosts.clear()
    _seen.clear()


FATES = ("", "lose", "lose answer", "twice", "late", "old answer")


# -- once and in order ----------------------------------------------------------------------------


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from(FATES), max_size=30))
@example(["lose answer", "lose answer", ""] * 8)
@example(["", "old answer"] * 12)
@example(["lose", "", "lose answer", "late", "twice"] * 5)
def test_orders_and_entries_arrive_once_and_in_order_whatever_is_lost(fates: list[str]) -> None:
    def is_half(heard: list[Any]) -> bool:
        return len(heard) == 10

    async def talk() -> None:
        wire = Wire(fates, is_kind=True)
        names = [f"call {n}" for n in range(4)]
        calls = []
        for name in names:
            go = threading.Event()
            pieces = [f"{name}: {n} " for n in range(20)]
            calls.append((wire.order(*pieces[:10], go, *pieces[10:], name=name), pieces, go))
            await asyncio.sleep(0)
        heard: list[list[Any]] = [[] for _ in calls]
        said = [
            asyncio.create_task(all_of(call, own))
            for (call, _, _), own in zip(calls, heard, strict=True)
        ]
        for (_, _, go), own in zip(calls, heard, strict=True):
            await until(partial(is_half, own))  # it goes on while the others are held
            go.set()
        assert await asyncio.gather(*said) == [pieces for _, pieces, _ in calls]
        assert wire.begun == names
        await until(lambda: not wire.host._calls)

    asyncio.run(talk())


async def test_thinking_and_the_end_of_a_reply_come_as_they_are() -> None:
    events = [ThinkingDelta("hm"), Stopped("end_turn", REQUEST.messages)]  # type: ignore[arg-type]
    assert await all_of(Wire().order("a", *events)) == ["a", *events]


# -- stops ----------------------------------------------------------------------------------------


async def test_call_that_is_left_before_its_order_is_sent_never_begins(
    recwarn: pytest.WarningsRecorder,
) -> None:
    wire = Wire()
    wire.order("never", name="left").close()

    assert await all_of(wire.order("said", name="kept")) == ["said"]
    assert wire.begun == ["kept"]
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


async def test_call_that_is_left_is_stopped_on_the_worker_and_one_that_ended_is_not() -> None:
    wire = Wire()
    whole, cut = wire.order("all", name="whole"), wire.order("x", threading.Event(), name="cut")
    await all_of(whole)
    assert await anext(cut) == "x"
    cut.close()

    await until(lambda: "cut" in wire.closed)
    assert [each for each in wire.orders if isinstance(each, Stop)] == [Stop(cut.number)]
    await until(lambda: not wire.host._calls)


# -- the budget -----------------------------------------------------------------------------------


async def test_worker_reads_no_further_than_a_slice_until_that_is_metered() -> None:
    piece, said = "p" * 100, [0, 0]

    def pieces(which: int) -> Iterator[str]:
        for _ in range(100):
            said[which] += len(piece)
            yield piece

    wire = Wire()
    calls = [wire.order_of(wire.recipe_of(pieces(which))) for which in range(2)]
    await until(lambda: sum(said) >= MOST_UNREAD)
    asked = wire.asked
    await until(lambda: wire.asked > asked + 3 or len(wire.closed) == len(calls))
    assert sum(said) <= MOST_UNREAD + 2 * len(piece)

    # What was metered is read on; what nobody wants any more counts as metered.
    assert await anext(calls[0]) == piece
    for call in calls:
        call.close()
    assert await all_of(wire.order(*[piece] * 100)) == [piece] * 100


async def test_worker_does_not_read_on_before_it_has_the_order_to_stop() -> None:
    piece, may_stop, goes_on = "p" * 100, asyncio.Event(), threading.Event()
    said: list[str] = []
    wire = Wire()
    ask = wire.connection.ask

    async def ask_before_stop(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is host.take and Stop(call.number) in pickle.loads(arguments[-1]):
            await may_stop.wait()
        return await ask(function, *arguments)

    def pieces() -> Iterator[str]:
        while True:
            said.append(piece)
            yield piece

    wire.connection.ask = ask_before_stop
    other = wire.order(goes_on, "other")  # for it the session asks on
    call = wire.order_of(wire.recipe_of(pieces()))
    await until(lambda: len(said) * len(piece) >= MOST_UNREAD)
    assert await anext(call) == piece
    call.close()
    asked = wire.asked
    await until(lambda: wire.asked > asked + 3)
    assert len(said) * len(piece) <= MOST_UNREAD + 2 * len(piece)

    may_stop.set()
    await until(lambda: wire.closed)
    goes_on.set()
    assert await all_of(other) == ["other"]
    assert await all_of(wire.order(*[piece] * 100)) == [piece] * 100


async def test_entries_that_have_come_are_kept_no_longer() -> None:
    wire = Wire()
    for _ in range(3):
        await all_of(wire.order(*["piece"] * 100))
    assert len(wire.host._entries) <= 101  # of the last call, until there is another one


# -- silence --------------------------------------------------------------------------------------


@contextmanager
def silent(wire: Wire) -> Iterator[None]:
    """No message gets through meanwhile, and none is lost."""
    ends = asyncio.Event()
    ask = wire.connection.ask

    async def waits(function: Callable[..., Any], *arguments: Any) -> Any:
        await ends.wait()
        return await ask(function, *arguments)

    wire.connection.ask = waits
    try:
        yield
    finally:
        ends.set()
        wire.connection.ask = ask


async def test_session_that_is_silent_has_its_calls_stopped_and_told_so() -> None:
    clock = ManualClock()
    wire = Wire(clock=clock)

    def pass_time(seconds: float) -> None:
        get_runtime().call(lambda: clock.advance(seconds))

    call = wire.order("x", threading.Event(), name="it")
    assert await anext(call) == "x"
    with silent(wire):
        pass_time(SILENCE_S - 1)
        await wire.host.entries(0, 0, 0)  # a question
        pass_time(SILENCE_S - 1)
        assert wire.closed == []
        pass_time(SILENCE_S)
        await until(lambda: wire.closed == ["it"])
    with pytest.raises(WorkerLost, match="heard nothing"):
        await all_of(call)
    assert not wire.connection.lost
    assert await all_of(wire.order("back")) == ["back"]


async def test_worker_that_stood_still_itself_hears_what_came_meanwhile_first() -> None:
    wire = Wire(clock=(clock := ManualClock()))
    call = wire.order("x", threading.Event())
    assert await anext(call) == "x"
    with silent(wire):
        get_runtime().call(lambda: clock.advance(SILENCE_S))
        await wire.host.entries(0, 0, 0)
        get_runtime().call(lambda: clock.advance(SILENCE_S - 1))
        assert wire.closed == []
    call.close()


# -- a worker that is gone ------------------------------------------------------------------------


async def test_worker_that_cannot_be_reached_three_times_is_lost_with_all_its_calls() -> None:
    wire = Wire(["", "", "", *["lose"] * 9])
    calls = [wire.order("x", threading.Event()) for _ in range(2)]
    for call in calls:
        with pytest.raises(WorkerLost, match="request was lost"):
            await all_of(call)
    with pytest.raises(WorkerLost):
        await all_of(wire.order("later"))
    assert wire.asked <= 3 + 2 * 3  # orders and questions, three times each


async def test_worker_that_was_started_anew_is_another_one() -> None:
    wire = Wire()
    call = wire.order("x", threading.Event())
    assert await anext(call) == "x"
    host._hosts.clear()
    with pytest.raises(WorkerLost, match="restarted"):
        await all_of(call)


async def test_client_whose_loop_ends_loses_its_workers() -> None:
    began, ends = threading.Event(), asyncio.Event()
    made: list[Connection] = []

    async def never(*_: Any) -> NoReturn:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def client() -> None:
        made.append(Connection("tcp://w", never, asyncio.get_running_loop()))
        loop.call_soon_threadsafe(ends.set)
        await asyncio.to_thread(began.wait)

    loop = asyncio.get_running_loop()
    thread = threading.Thread(target=lambda: asyncio.run(client()))
    thread.start()
    await ends.wait()
    order = ModelCall(next(_numbers), "none", b"")
    call = made[0].begin(order)
    with pytest.raises(WorkerLost, match="closed"):
        await all_of(call)
    thread.join()
    with pytest.raises(WorkerLost, match="closed"):
        await all_of(made[0].begin(order))


async def test_client_that_is_closed_already_loses_the_first_call() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    connection = Connection("tcp://w", Wire().ask, loop)
    with pytest.raises(WorkerLost, match="closed"):
        await all_of(connection.begin(ModelCall(next(_numbers), "none", b"")))


# -- what cannot be sent --------------------------------------------------------------------------


class Closed:
    """Cannot be pickled."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("it stays here")


def _explode() -> NoReturn:
    raise ImportError("not on this side")


class Unreadable:
    """Can be pickled, and not be read."""

    def __reduce__(self) -> Any:
        return _explode, ()


async def test_event_that_cannot_be_sent_or_read_fails_its_own_call_only() -> None:
    wire = Wire()
    go = threading.Event()
    other = wire.order("a", go, "b")
    with pytest.raises(TypeError, match="it stays here"):
        await all_of(wire.order("x", Closed()))
    with pytest.raises(ForeignError, match="not on this side"):
        await all_of(wire.order("x", Unreadable(), threading.Event(), name="unread"))
    await until(lambda: "unread" in wire.closed)  # and it is stopped there
    go.set()
    assert await all_of(other) == ["a", "b"]


async def test_request_that_cannot_be_read_fails_its_own_call_only() -> None:
    wire = Wire()
    with pytest.raises(ImportError, match="not on this side"):
        await all_of(wire.order("x", request=pickle.dumps(Unreadable())))
    assert await all_of(wire.order("y")) == ["y"]


class Odd(LlmError):
    """Has a field that cannot be sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True, retry_after_s=3.0)
        self.field = Closed()


class OddToolError(ToolError):
    field = None


async def test_error_that_cannot_be_sent_keeps_its_words_and_what_a_retry_needs() -> None:
    with pytest.raises(LlmError, match="too many") as caught:
        await all_of(Wire().order(Odd("too many")))
    assert caught.value.retryable
    assert caught.value.retry_after_s == 3.0

    odd = OddToolError("look: a, b")
    odd.field = Unreadable()  # type: ignore[assignment]

    with pytest.raises(ToolError, match="look: a, b"):
        await all_of(Wire().order_tool(partial(_raise, shared(odd))))
    with pytest.raises(ForeignError, match="Own: wrong"):
        await all_of(Wire().order(_own_class()("wrong")))


def _raise(number: int) -> NoReturn:
    raise _seen[number]


def _own_class() -> type[Exception]:
    class Own(Exception):
        """Of a function: nobody can import it."""

    return Own


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_ends_a_process_or_a_task_is_an_error_of_its_call(error: BaseException) -> None:
    wire = Wire()
    with pytest.raises(type(error)):
        await all_of(wire.order("x", error))
    assert await all_of(wire.order("y")) == ["y"]
    with pytest.raises(RuntimeError, match=type(error).__name__):
        await all_of(wire.order_tool(partial(_raise, shared(error))))


# -- recipes --------------------------------------------------------------------------------------


async def test_recipe_is_sent_once_and_again_if_the_worker_let_go_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire()

    def sent() -> int:
        return sum(isinstance(each, Recipe) for each in wire.orders)

    one, other = wire.recipe_of(["1"]), wire.recipe_of(["2"])
    for _ in range(3):
        assert await all_of(wire.order_of(one)) == ["1"]
    assert sent() == 1
    assert len(wire.host._made) == 1

    monkeypatch.setattr(host, "MOST_RECIPES", 1)
    assert await all_of(wire.order_of(other)) == ["2"]
    assert sent() == 2
    assert await all_of(wire.order_of(one)) == ["1"]
    assert sent() == 3
    assert len(wire.host._recipes) == 1


# -- tools ----------------------------------------------------------------------------------------


def _reports(context: ToolContext) -> str:
    for number in range(1_000):
        context.report(f"{number} done")
    return "result"


async def test_newest_report_of_a_tool_comes_before_its_result_and_not_all_of_them() -> None:
    said = await all_of(Wire().order_tool(partial(_reports), ContextHere()))

    *reports, result = said
    assert result == Result("result")
    assert reports[-1] == Report("999 done")
    assert len(reports) < 100


# -- idle sessions --------------------------------------------------------------------------------


async def test_worker_forgets_a_session_that_is_idle_and_that_may_come_back() -> None:
    wire, other = Wire(clock=(clock := ManualClock())), Wire(clock=clock)
    assert await all_of(wire.order("a")) == ["a"]
    await until(lambda: not wire.host._calls)
    await until(lambda: wire.connection._reading is not None and wire.connection._reading.done())
    idle = wire.connection._id
    clock.advance(FORGET_S + 1)

    await host.take(other.connection._id, 0, b"")
    assert idle not in host._hosts
    await until(lambda: wire.closed[-1] == "provider")
    assert await all_of(wire.order("b")) == ["b"]
    assert wire.connection._id != idle


async def test_worker_that_forgets_a_session_closes_all_of_its_providers() -> None:
    class Fails(Saying):
        async def aclose(self) -> None:
            raise OSError("closed already")

    closed: list[str] = []
    left = Host()
    left._made = {
        "fails": Fails(*map(shared, ([], [], []))),
        "closes": Saying(*map(shared, ([], [], closed))),
    }

    await left.close()

    assert closed == ["provider"]


async def test_cancel_that_comes_with_what_is_waited_for_is_not_lost() -> None:
    news = asyncio.Event()
    waiting = asyncio.create_task(host.set_within(news, DEADLINE_S))
    await until(lambda: news._waiters)
    news.set()
    waiting.cancel()
    await asyncio.wait({waiting})

    assert waiting.cancelled()
    await host.set_within(news, DEADLINE_S)
    news.clear()
    await host.set_within(news, 0)
