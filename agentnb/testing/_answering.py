"""What a provider promises: its streams, its errors, and what a cancellation leaves behind."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agentnb.core.errors import InvalidRequest, LlmError, RateLimited, StreamBroken
from agentnb.core.protocols import Provider, closing, is_provider, supports_close, supports_ready
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    ToolUseBlock,
    Usage,
    user_message,
)
from agentnb.providers.scripted import Reply
from agentnb.testing._promises import holds, same

ProviderFactory = Callable[[Sequence[Reply]], Provider] | Callable[[], Provider]
"""Returns a new provider whose model answers the calls with these replies, in the order in which
the calls arrive. Use each reply's `text`, `tool_uses` (names and inputs), `stop_reason`, and
`error`: the API fails with it, after the text. `ScriptedProvider` itself is such a factory."""

StreamPromise = Callable[["Model"], Awaitable[None]]
_MOST_S = 60.0
"""Against hangs only."""

LOOK = ToolSpec(
    "look",
    "Looks somewhere.",
    {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
)


@dataclass
class Answer:
    """What came of one call."""

    events: list[StreamEvent] = field(default_factory=list)
    error: Exception | None = None

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def uses(self) -> list[ToolUse]:
        return [event for event in self.events if isinstance(event, ToolUse)]

    @property
    def usages(self) -> list[Usage]:
        return [event for event in self.events if isinstance(event, Usage)]

    @property
    def stopped(self) -> Stopped:
        """The end mark; it must be there."""
        if self.error is not None:
            raise self.error
        holds(self.events, "the stream had no events")
        last = self.events[-1]
        holds(isinstance(last, Stopped), f"the last event was {last!r}, and not `Stopped`")
        return cast("Stopped", last)


class Model:
    """The providers of one check, and the calls that are made of them."""

    def __init__(self, factory: ProviderFactory) -> None:
        self._factory = factory
        self._made: list[Provider] = []
        self.can_choose = self.chooses(factory)

    @staticmethod
    def chooses(factory: ProviderFactory) -> bool:
        """Whether a factory takes the replies."""
        try:
            inspect.signature(factory).bind([])
        except TypeError:
            return False
        return True

    def that_says(self, *replies: Reply) -> Provider:
        """A new provider with these replies, if they can be chosen."""
        make = cast("Callable[..., Provider]", self._factory)
        provider = make(list(replies)) if self.can_choose else make()
        self._made.append(provider)
        return provider

    async def close(self) -> None:
        for provider in self._made:
            if supports_close(provider):
                await provider.aclose()


def request(*messages: Message, **fields: Any) -> CompletionRequest:
    first = user_message("Say hello to the world in one short sentence.")
    return CompletionRequest("any", "You are brief.", (first, *messages), **fields)


async def call(provider: Provider, asked: CompletionRequest | None = None) -> Answer:
    """Make one call and read it to its end; a stream that ends in an error has it."""
    answer = Answer()
    async with asyncio.timeout(_MOST_S):
        if supports_ready(provider):
            await provider.ready()
        try:
            async with closing(provider.stream(asked or request())) as stream:
                async for event in stream:
                    answer.events.append(event)
        except Exception as error:
            answer.error = error
    return answer


class StreamPromises(dict[str, StreamPromise]):
    """Checks by the promises that they hold, in the order in which they are written down."""

    def promise(self, name: str) -> Callable[[StreamPromise], StreamPromise]:
        def add(body: StreamPromise) -> StreamPromise:
            self[name] = body
            return body

        return add


HELLO = Reply("Hello, world: this is a short reply of some words.")

# -- whatever the answer is -----------------------------------------------------------------------

ANY = StreamPromises()
promise = ANY.promise


@promise("a provider has a name and a stream")
async def _(model: Model) -> None:
    provider = model.that_says(HELLO)
    holds(is_provider(provider), "it needs a `name` (a text) and a method `stream`")
    holds(provider.name, "its `name` is empty")


@promise("a complete turn ends with one `Stopped`, after all other events")
async def _(model: Model) -> None:
    answer = await call(model.that_says(HELLO))
    kinds = (TextDelta, ThinkingDelta, ToolUse, Usage, Stopped)
    other = [event for event in answer.events if not isinstance(event, kinds)]
    holds(not other, f"no events of a stream: {other!r}")
    answer.stopped  # noqa: B018 - it must be there
    marks = sum(isinstance(event, Stopped) for event in answer.events)
    holds(marks == 1, f"{marks} events were `Stopped`")


@promise("the pieces of text are the text of the message that is sent back")
async def _(model: Model) -> None:
    answer = await call(model.that_says(HELLO))
    message = answer.stopped.message
    holds(message.role == Role.ASSISTANT, f"the message's role was {message.role}")
    same(message.text, answer.text, "the message's text")
    texts = [event.text for event in answer.events if isinstance(event, TextDelta)]
    holds(all(type(text) is str and text for text in texts), f"pieces of text: {texts!r}")


@promise("counts of tokens only grow: the newest replaces the ones before")
async def _(model: Model) -> None:
    usages = (await call(model.that_says(HELLO))).usages
    names = Usage.__dataclass_fields__
    for name in names:
        counts = [getattr(usage, name) for usage in usages]
        holds(counts == sorted(counts), f"`{name}` was {counts}")
        holds(all(type(n) is int and n >= 0 for n in counts), f"`{name}` was {counts}")
    if usages:  # a provider that counts nothing is estimated
        holds(usages[-1].output_tokens, "the newest count has no output")


@promise("a request is not changed by its call")
async def _(model: Model) -> None:
    asked = request(tools=(LOOK,), extra={})
    before = copy.deepcopy(asked)
    (await call(model.that_says(HELLO), asked)).stopped  # noqa: B018
    same(asked, before, "the request after its call")


@promise("calls that are made at the same time do not mix")
async def _(model: Model) -> None:
    texts = [f"This is reply {name}." for name in ("one", "two", "three", "four", "five")]
    provider = model.that_says(*map(Reply, texts))
    answers = await asyncio.gather(*(call(provider) for _ in texts))
    for answer in answers:
        same(answer.stopped.message.text, answer.text, "the text of one of five calls")
    if model.can_choose:
        same(sorted(answer.text for answer in answers), sorted(texts), "the texts of five calls")


@promise("a stream that is left early is closed, and the next call works")
async def _(model: Model) -> None:
    provider = model.that_says(HELLO, HELLO)
    if supports_ready(provider):
        await provider.ready()
    stream = left = provider.stream(request())
    async with asyncio.timeout(_MOST_S), closing(stream):
        await anext(stream)
    if supports_close(left):
        holds([event async for event in stream] == [], "a closed stream went on")
    (await call(provider)).stopped  # noqa: B018


@promise("a cancelled call ends by its cancellation, and the next call works")
async def _(model: Model) -> None:
    for where in ("before its reply", "within its reply"):
        # A script stops after its first piece. Elsewhere the call is somewhere on its way.
        stops = replace(HELLO, pause=asyncio.Event().wait)
        provider, has_begun = model.that_says(stops, HELLO), asyncio.Event()
        reading = asyncio.create_task(_read(provider, has_begun))
        if where == "within its reply":
            begun = asyncio.create_task(has_begun.wait())
            await asyncio.wait([reading, begun], timeout=_MOST_S, return_when="FIRST_COMPLETED")
            begun.cancel()
        else:
            await asyncio.sleep(0)
        if reading.cancel():
            await asyncio.wait([reading], timeout=_MOST_S)
            holds(reading.cancelled(), f"a call that was cancelled {where} went on, or raised")
        (await call(provider)).stopped  # noqa: B018


async def _read(provider: Provider, has_begun: asyncio.Event) -> None:
    if supports_ready(provider):
        await provider.ready()
    async with closing(provider.stream(request())) as stream:
        async for _ in stream:
            has_begun.set()


@promise("a provider that was closed can be closed again, and called again")
async def _(model: Model) -> None:
    provider = model.that_says(HELLO, HELLO)
    (await call(provider)).stopped  # noqa: B018
    if supports_close(provider):
        await provider.aclose()
        await provider.aclose()
    (await call(provider)).stopped  # noqa: B018


# -- for answers that are chosen ------------------------------------------------------------------

CHOSEN = StreamPromises()
promise = CHOSEN.promise


@promise("text arrives unchanged, in any script")
async def _(model: Model) -> None:
    text = "Two lines,\n\n  indented: naïve 猫 🙂 \u05d0 <b>&amp;</b> {json}\n"
    same((await call(model.that_says(Reply(text)))).text, text, "the text")


@promise("`Stopped` says why a turn ended")
async def _(model: Model) -> None:
    for reason in ("end_turn", "max_tokens", "refusal"):
        answer = await call(model.that_says(replace(HELLO, stop_reason=reason)))
        same(answer.stopped.reason, reason, "the stop reason")


@promise("a tool call comes whole, before the end, and is in the message")
async def _(model: Model) -> None:
    inputs = [{"where": "at sea", "deep": [1, 2.5, None, {"é": True}]}, {}]
    uses = tuple(ToolUse(f"use_{n}", "look", given) for n, given in enumerate(inputs))
    provider = model.that_says(Reply("I look.", tool_uses=uses))
    answer = await call(provider, request(tools=(LOOK,)))
    same([(use.name, use.input) for use in answer.uses], [("look", i) for i in inputs], "the calls")
    holds(len({use.id for use in answer.uses}) == len(inputs), "two calls had the same id")
    same(answer.stopped.reason, "tool_use", "the stop reason")
    in_message = [
        (block.id, block.name, block.input)
        for block in answer.stopped.message.content
        if isinstance(block, ToolUseBlock)
    ]
    same(in_message, [(u.id, u.name, u.input) for u in answer.uses], "the calls in the message")
    same(answer.text, "I look.", "the text before them")


@promise("a message and the results of its tools can be sent back")
async def _(model: Model) -> None:
    use = ToolUse("use_0", "look", {"where": "at sea"})
    provider = model.that_says(Reply("I look.", tool_uses=(use,)), Reply("Nothing there."))
    first = await call(provider, request(tools=(LOOK,)))
    results = [ToolResultBlock(each.id, "nothing", is_error=False) for each in first.uses]
    messages = (first.stopped.message, Message(Role.USER, tuple(results)))
    answer = await call(provider, request(*messages, tools=(LOOK,)))
    same(answer.stopped.message.text, "Nothing there.", "the second reply")


@promise("a temporary failure is an `LlmError` that is `retryable`")
async def _(model: Model) -> None:
    slow_down = RateLimited("Slow down.", status_code=429)
    error = await _error_of(model, Reply(error=slow_down))
    holds(error.retryable, f"{error!r} is not `retryable`")


@promise("a permanent failure is an `LlmError` that is not `retryable`")
async def _(model: Model) -> None:
    wrong = InvalidRequest("The request is wrong.", status_code=400)
    error = await _error_of(model, Reply(error=wrong))
    holds(not error.retryable, f"{error!r} is `retryable`")


async def _error_of(model: Model, reply: Reply) -> LlmError:
    provider = model.that_says(reply, HELLO)
    answer = await call(provider)
    holds(answer.error is not None, "the failed call raised nothing")
    holds(isinstance(answer.error, LlmError), f"{answer.error!r} is no `LlmError`")
    holds(not answer.text, f"the failed call had text: {answer.text!r}")
    (await call(provider)).stopped  # noqa: B018 - the provider goes on
    return cast("LlmError", answer.error)


@promise("a reply that breaks off has no end mark, and its text so far arrives")
async def _(model: Model) -> None:
    broken = StreamBroken("The reply broke off.")
    provider = model.that_says(replace(HELLO, error=broken), HELLO)
    answer = await call(provider)
    marks = [event for event in answer.events if isinstance(event, Stopped)]
    holds(not marks, f"a reply that broke off ended with {marks!r}")
    holds(not answer.uses, f"a reply that broke off called {answer.uses!r}")
    holds(answer.text and HELLO.text.startswith(answer.text), f"its text was {answer.text!r}")
    is_llm_error = answer.error is None or isinstance(answer.error, LlmError)
    holds(is_llm_error, f"{answer.error!r} is no `LlmError`")
    (await call(provider)).stopped  # noqa: B018
