"""What a journal promises of the values that it returns: equal, whole, and without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentnb.core import events
from agentnb.core.records import RunHead
from agentnb.core.types import (
    ROOT_PATH,
    AgentStatus,
    CompletionRequest,
    assistant_message,
    user_message,
)
from agentnb.testing._handed import Bench, Run, short_story
from agentnb.testing._promises import PARTS, Promises, holds, same, same_run, short, texts

PROMISES = Promises()
promise = PROMISES.promise

# -- what comes back -------------------------------------------------------------------------------


@promise("records of every kind come back equal")
async def _(bench: Bench) -> None:
    run = await short_story(bench)
    found = bench.after_death()
    same_run(found, run.committed)
    same([entry.seq for entry in found.entries], [*range(len(found.entries))], "the `seq`s")


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


# -- secrets ---------------------------------------------------------------------------------------

_SECRET = 'sk-"7f3a\\c9-contract-of-journals-51'
_NAME = "AGENTNB_CONTRACT_KEY"
_MARK = f"[secret {_NAME}]"


@contextmanager
def a_secret() -> Iterator[None]:
    before = os.environ.get(_NAME)
    os.environ[_NAME] = _SECRET
    try:
        yield
    finally:
        del os.environ[_NAME]
        if before is not None:
            os.environ[_NAME] = before


@promise("a secret is masked in every text of a record")
async def _(bench: Bench) -> None:
    with a_secret():
        masks(bench, await short_story(bench, with_secret))


def with_secret(text: str) -> str:
    return f"{text} {_SECRET}"


def masks(bench: Bench, run: Run) -> None:
    """Check that nothing that was kept of a run has the secret, and all else has its mark."""
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
    with a_secret():
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
