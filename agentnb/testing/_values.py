"""What a journal promises of the values that it returns: equal, whole, and without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentnb.core import events
from agentnb.core.codec import plain
from agentnb.core.records import (
    ErrorRecord,
    RunHead,
)
from agentnb.core.types import (
    ROOT_PATH,
    AgentStatus,
    CompletionRequest,
    MediaBlock,
    Message,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    Usage,
    assistant_message,
    user_message,
)
from agentnb.testing._handed import Bench, tell_everything
from agentnb.testing._promises import PARTS, Promises, holds, same, same_run, short, texts

PROMISES = Promises()
promise = PROMISES.promise

# -- what comes back -------------------------------------------------------------------------------


@promise("events and records of every kind come back equal")
async def _(bench: Bench) -> None:
    run = await tell_everything(bench)
    found = bench.after_death()
    same_run(found, run.committed)
    same([entry.seq for entry in found.entries], [*range(len(found.entries))], "the `seq`s")


@promise("a run whose root is another thread's child keeps its ids and paths")
async def _(bench: Bench) -> None:
    run = await tell_everything(bench, thread_id="nb_1.2.1")
    same_run(bench.after_death(), run.committed)


@promise("a reply comes back in the pieces in which it arrived")
async def _(bench: Bench) -> None:
    run = bench.begun("1", "2")
    one, two = run.start_call("1"), run.start_call("2")
    for number in range(20):
        run.say("1", f"{number} ", "\n")
        run.say("2", "." * number or "first")
    run.finish_call(one)
    await run.commit()
    run.say("2", "the end")
    run.finish_call(two)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)
    run.call("1", "a ", "second ", "reply")
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("the text of an open call is there up to the last commit")
async def _(bench: Bench) -> None:
    run = bench.begun("1")
    call = run.start_call(ROOT_PATH)
    run.say(ROOT_PATH, "So ", "far, ", "so good")
    run.call("1", "Done")
    await run.commit()
    found = bench.after_death()
    same(list(found.entries), list(run.committed.entries), "the entries")
    same(found.calls[0].status, call.status, "the call's status")
    run.say(ROOT_PATH, " until ", "the end")
    run.finish_call(call)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("a reply that was cut keeps its pieces and its text")
async def _(bench: Bench) -> None:
    run = bench.begun()
    error = ErrorRecord(
        {
            "class": "StreamBroken",
            "message": "it was cut on the way",
            "retryable": True,
            "retry_after_s": None,
            "status": None,
        }
    )
    cut = run.start_call(ROOT_PATH)
    run.say(ROOT_PATH, "Half", " a", " sent")
    run.finish_call(cut, stop_reason=None, error=error)
    nothing = run.start_call(ROOT_PATH, attempt=2)
    run.finish_call(nothing, stop_reason=None, error=error, message=None, usage=Usage())
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("each attempt at a call is a record of its own")
async def _(bench: Bench) -> None:
    run = bench.begun()
    for attempt in (1, 2, 3):
        run.finish_call(run.start_call(ROOT_PATH, attempt=attempt))
    await run.commit_all()
    calls = bench.after_death().calls
    same([(call.number, call.attempt) for call in calls], [(1, 1), (2, 2), (3, 3)], "the calls")


@promise("the key of a call is not changed")
async def _(bench: Bench) -> None:
    run = bench.begun()
    call = run.start_call(ROOT_PATH)
    await run.commit()
    same(bench.after_death().calls[0].key, call.key, "the key of the open call")
    run.finish_call(call)
    await run.commit()
    same(bench.after_death().calls[0].key, call.key, "the key of the finished call")


@promise("a request whose messages repeat comes back whole")
async def _(bench: Bench) -> None:
    run = bench.begun("1")
    again = user_message("Again.")
    messages: tuple[Message, ...] = (again, again)
    for number in range(5):
        request = CompletionRequest("any", "system", messages)
        call = run.start_call(ROOT_PATH, request)
        run.say(ROOT_PATH, "Again.")
        # Sent back as it came, or in other words, or not at all.
        call = run.finish_call(call, message=assistant_message("Again." if number % 2 else "No"))
        messages = (*messages, call.message or again, again) if number < 3 else (again,)
        await run.commit()
    run.finish_call(run.start_call("1", CompletionRequest("any", "system", (again,) * 3)))
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("blocks of every kind come back in a message, and in their order")
async def _(bench: Bench) -> None:
    run = bench.begun()
    blocks = (
        TextBlock("said"),
        TextBlock(""),
        ThinkingBlock("hm", "signature"),
        ThinkingBlock("", "", "withheld"),
        ThinkingBlock("", "", ""),
        ToolUseBlock("use", "look", {"a": [1, {"b": None}], "c": 1.5}),
        ToolUseBlock("use-2", "look", {}),
        TextBlock("said"),
    )
    message = Message(Role.ASSISTANT, blocks)
    call = run.start_call(ROOT_PATH)
    run.say(ROOT_PATH, "said", "said")
    run.finish_call(call, message=message)
    answer = Message(
        Role.USER, (ToolResultBlock("use", "seen", True), ToolResultBlock("use-2", ""))
    )
    files = (
        MediaBlock("image/png", "aGVsbG8=", "hello.png"),
        MediaBlock("application/pdf", "JVBERi0xLjc="),
        MediaBlock("image/png", "aGVsbG8=", "again.png"),
        MediaBlock("image/gif", "no base64", "x.gif"),
        TextBlock("What do you see?"),
    )
    conversation = (
        user_message(""),
        message,
        answer,
        Message(Role.ASSISTANT, ()),
        Message(Role.USER, files),
    )
    run.finish_call(run.start_call(ROOT_PATH, CompletionRequest("any", "", conversation)))
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("a long tool result is kept whole")
async def _(bench: Bench) -> None:
    run = bench.begun()
    tool = run.start_tool(ROOT_PATH, {"text": "given " * 5_000, "more": ["x" * 3_000] * 3})
    run.finish_tool(tool, "seen " * 60_000)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("the files in a tool result are kept whole, in their order and with their names")
async def _(bench: Bench) -> None:
    run = bench.begun("1")
    files = (
        MediaBlock("image/png", "aGVsbG8=", "hello.png"),
        MediaBlock("application/pdf", "JVBERi0xLjc="),
        MediaBlock("image/png", "aGVsbG8=", "again.png"),
        MediaBlock("image/gif", "no base64", "x.gif"),
    )
    for path in (ROOT_PATH, "1"):
        run.finish_tool(run.start_tool(path), media=files, unseen=(2, 4))
        run.finish_tool(run.start_tool(path, effects=False), media=files[:1])
        run.finish_tool(run.start_tool(path))
    question = Message(Role.USER, files[:1])
    run.finish_call(run.start_call(ROOT_PATH, CompletionRequest("any", "", (question,))))
    await run.commit_all()
    found = bench.after_death()
    same_run(found, run.committed)
    same(found.tool_calls[0].media, files, "the files of a tool call")


@promise("long texts are kept whole")
async def _(bench: Bench) -> None:
    run = bench.begun(task="task " * 50_000)
    request = CompletionRequest("any", "system " * 50_000, (user_message("long " * 100_000),))
    call = run.start_call(ROOT_PATH, request)
    run.say(ROOT_PATH, *(["word "] * 5_000), "w" * 300_000)
    run.finish_call(call)
    await run.commit()
    run.end(ROOT_PATH, text="an answer " * 50_000)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


_ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "before\x00after",
    "\x01\x1b[31m\x7f\x85",
    "a\r\nb\rc\n\n",
    "\u2028\u2029\ufeff\u200b\u202e",
    "\ud800",
    "half \udc80 a character",
    "\ud83d",
    "\ude00",
    "\uffff\ufffe\U0010ffff",
    "\N{GRINNING FACE} \u05d0\u0627\u65e5 e\u0301 \u00e9",
    "'; DROP TABLE runs; --",
    '{"kind": "x"} "quoted" \\u0041 \\',
    "%s %(x)s {0} ? :a $1",
    "[secret NAME]",
    "null",
    "NaN",
    "0x1f",
)


@promise("any text comes back character by character")
async def _(bench: Bench) -> None:
    run = bench.begun("1", task="\x00task \ud800", name="\udfff", tags=_ODD_TEXTS)
    for text in _ODD_TEXTS:
        request = CompletionRequest("any", text, (user_message(text), assistant_message(text)))
        call = run.start_call(ROOT_PATH, request)
        run.say(ROOT_PATH, *filter(None, (text, "!", text)))
        run.finish_call(call)
        tool = run.start_tool(ROOT_PATH, {text: text, "list": [text]}, name=text, tool_use_id=text)
        run.finish_tool(tool, text)
        run.order("answer", "panel", text)
    halves = run.start_call(ROOT_PATH)  # a character may arrive in two pieces
    run.say(ROOT_PATH, "\ud83d", "\ude00")
    run.finish_call(halves, message=assistant_message("a smile"))
    run.end("1", AgentStatus.FAILED, text="\x00", error="\ud800")
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("an error of a call comes back with all its fields")
async def _(bench: Bench) -> None:
    run = bench.begun()
    for retryable, retry_after_s, status in (
        (True, 7.25, 429),
        (False, None, None),
        (True, 0.0, 0),
    ):
        error: ErrorRecord = {
            "class": "RateLimited",
            "message": "too many",
            "retryable": retryable,
            "retry_after_s": retry_after_s,
            "status": status,
        }
        run.finish_call(run.start_call(ROOT_PATH), stop_reason=None, message=None, error=error)
    # The reply is whole, and something went wrong after it.
    run.call(ROOT_PATH, "Whole", error=error)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("counts beyond 64 bits come back exactly")
async def _(bench: Bench) -> None:
    most = 10**24
    run = bench.begun(budget_total=most, max_depth=2**63)
    run.call(ROOT_PATH, "Yes", usage=Usage(most, 2**63, 2**64, most - 1), estimate_error=-most)
    run.finish_tool(run.start_tool(ROOT_PATH, {"n": 2**100, "m": -(2**63)}))
    run.order("budget", "panel", most)
    run.verdict(ROOT_PATH, 1, "clamped", 2**63)
    run.publish(events.BudgetUpdate(tokens_used=most, budget_total=most, percentage=100.0))
    run.end(ROOT_PATH, tokens_used=most)
    run.end(None, tokens_used=most)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("times and other numbers come back exactly")
async def _(bench: Bench) -> None:
    run = bench.begun(started_at=1_793_000_000.123456)
    odd = {"a": 0.1 + 0.2, "b": 1e-300, "c": 1e300, "d": -0.0, "e": 5e-324, "f": 1.0, "g": 1}
    run.finish_tool(run.start_tool(ROOT_PATH, odd))
    run.publish(
        events.LimitReached(
            limit="max_time_s", value=1 / 3, completed_agents=(), incomplete_agents=()
        )
    )
    await run.commit_all()
    found = bench.after_death()
    same_run(found, run.committed)
    # `==` does not tell 1 from 1.0, or 0.0 from -0.0.
    same(repr(found.tool_calls), repr(run.committed.tool_calls), "the tool calls")
    same(repr(list(found.entries)), repr(list(run.committed.entries)), "the entries")


@promise("true and false come back as such, and what is absent stays absent")
async def _(bench: Bench) -> None:
    run = bench.begun("1", "2")
    for yes in (True, False):
        call = run.start_call(ROOT_PATH, is_synthesis=yes)
        stop_reason = "" if yes else None
        message = Message(Role.ASSISTANT, ()) if yes else None
        run.finish_call(call, stop_reason=stop_reason, message=message, duration_ms=0)
        tool = run.start_tool(ROOT_PATH, {"yes": yes, "one": 1, "none": None})
        run.finish_tool(tool, "", is_error=yes, duration_ms=0)
        tool = run.start_tool(ROOT_PATH, effects=yes)
        run.finish_tool(tool, "seen")
    run.start_tool(ROOT_PATH)
    run.start_call(ROOT_PATH)
    run.order("answer", "panel", None)
    run.verdict(ROOT_PATH, 1, "warned", True)
    run.end("1", text="", cut=True, error=None)
    run.end("2", AgentStatus.EXHAUSTED, text="", cut=False, error="")
    await run.commit_all()
    found = bench.after_death()
    same_run(found, run.committed)
    for part in PARTS:  # `==` does not tell True from 1
        these, those = (list(getattr(each, part)) for each in (found, run.committed))
        same(repr(these), repr(those), f"`{part}`")


@promise("values that JSON does not have come back as text")
async def _(bench: Bench) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no words")

    itself: list[Any] = []
    itself.append(itself)
    deep: Any = "deep"
    for _ in range(300):
        deep = [deep]
    odd: dict[Any, Any] = {
        "set": {1},
        "bytes": b"\xff",
        "tuple": (1, 2),
        "object": Odd(),
        "nan": float("nan"),
        "infinity": float("-inf"),
        "long": 10**1000,
        "deep": deep,
        "itself": [itself],
        3: {None: "keys"},
    }
    run = bench.begun(settings=odd)
    blocks = (ToolUseBlock("use", "look", odd),)
    message = Message(Role.ASSISTANT, blocks)
    request = CompletionRequest("any", "", (message,), (ToolSpec("look", "", odd),), extra=odd)
    call = run.start_call(ROOT_PATH, request)
    run.finish_call(call, message=message)
    run.finish_tool(run.start_tool(ROOT_PATH, odd))
    run.order("answer", "gate", odd)
    run.verdict(ROOT_PATH, 1, "warned", odd)
    await run.commit_all()
    found, wanted = bench.after_death(), plain(odd)
    del wanted["deep"]  # how much of it stays a list is the journal's own affair
    sent = found.calls[0].request
    (given,) = sent.messages[0].content
    (got,) = (found.calls[0].message or Message(Role.USER, ())).content
    for each, where in (
        (found.head.settings, "the settings"),
        (sent.extra, "the extra fields of a request"),
        (sent.tools[0].input_schema, "the schema of a tool"),
        (getattr(given, "input", None), "a message of a request"),
        (getattr(got, "input", None), "a reply"),
        (found.tool_calls[0].input, "the input of a tool call"),
        (found.orders[0].value, "the value of an order"),
        (found.verdicts[0].value, "the value of a verdict"),
    ):
        got_deep = each.pop("deep", None) if isinstance(each, dict) else None
        holds(got_deep is not None, f"{where} lacks what is nested too deep")
        same(each, wanted, where)
    same(len(found.entries), len(run.committed.entries), "number of `entries`")


# -- secrets ---------------------------------------------------------------------------------------

_SECRET = 'sk-"7f3a\\c9-contract-of-journals-51'
_NAME = "AGENTNB_CONTRACT_KEY"
_MARK = f"[secret {_NAME}]"


@contextmanager
def _a_secret() -> Iterator[None]:
    before = os.environ.get(_NAME)
    os.environ[_NAME] = _SECRET
    try:
        yield
    finally:
        del os.environ[_NAME]
        if before is not None:
            os.environ[_NAME] = before


@promise("a secret is masked in every text of every record and event")
async def _(bench: Bench) -> None:
    with _a_secret():
        run = await tell_everything(bench, lambda text: f"{text} {_SECRET}")
        found = bench.after_death()
    holds(_SECRET not in repr(found.head), "a secret in the head")
    for part in ("head", *PARTS):
        this, other = getattr(found, part), getattr(run.committed, part)
        pairs = zip(texts(_listed(this)), texts(_listed(other)), strict=True)
        for one, handed in pairs:
            holds(_SECRET not in one, f"a secret in `{part}`: {short(one)}")
            same(_SECRET in handed, _MARK in one, f"whether `{part}` has a mark in {short(one)}")
            if _SECRET not in handed:
                same(one, handed, f"a text of `{part}` without a secret")


def _listed(value: Any) -> Any:
    return value if isinstance(value, RunHead) else list(value)


@promise("a secret that arrives in several pieces is masked")
async def _(bench: Bench) -> None:
    pieces = ("The key is ", _SECRET[:9], _SECRET[9:20], f"{_SECRET[20:]}, ", "they ", "say")
    with _a_secret():
        run = bench.begun()
        call = run.start_call(ROOT_PATH)
        run.say(ROOT_PATH, *pieces)
        await run.commit()
        opened = bench.after_death()
        run.finish_call(call)
        await run.commit_all()
        found = bench.after_death()
    for each, kept in (("open", opened), ("finished", found)):
        deltas = [
            entry.event.text
            for entry in kept.entries
            if isinstance(entry.event, events.AgentTextDelta)
        ]
        same("".join(deltas), f"The key is {_MARK}, they say", f"the text of the {each} call")
        same(len(deltas), len(pieces), f"number of pieces of the {each} call")
    same(found.calls[0].text, f"The key is {_MARK}, they say", "the text of the call's record")
    same(len(found.calls[0].pieces), len(pieces), "number of pieces of the call's record")
