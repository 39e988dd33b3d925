"""What agentnb's own journals promise beyond the contract for everyone's journal."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentnb.core import events
from agentnb.core.codec import plain
from agentnb.core.errors import NoSuchRun
from agentnb.core.events import Entry
from agentnb.core.records import (
    FINISHED,
    CallRecord,
    ErrorRecord,
    Kept,
    RunHead,
    RunJournal,
    ToolCallRecord,
)
from agentnb.core.types import (
    ROOT_PATH,
    AgentStatus,
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    Role,
    SpawnMode,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    Usage,
    assistant_message,
    user_message,
)
from agentnb.testing import Check, JournalFactory, journal_contract
from agentnb.testing._contracts import journal_checks
from agentnb.testing._handed import Bench, Run
from agentnb.testing._promises import PARTS, Promises, holds, same, same_run
from agentnb.testing._values import a_secret, masks, with_secret

PROMISES = Promises()
promise = PROMISES.promise


_PATHS = ("10", "2", "1.2", ROOT_PATH, "1", "2.10", "2.9", "1.10")


class Deaf:
    """A journal that keeps nothing."""

    def begin(self, head: RunHead) -> None: ...

    def intend(self, record: CallRecord | ToolCallRecord) -> None: ...

    def keep(self, record: Kept) -> None: ...

    def published(self, entries: Sequence[Entry]) -> None: ...

    async def commit(self) -> None: ...

    def load(self, run_id: str) -> RunJournal:
        raise NoSuchRun(run_id)

    def close(self) -> None: ...


async def tell_everything(
    bench: Bench, text: Callable[[str], str] = str, *, thread_id: str = "thread"
) -> Run:
    """A run with an event of every kind and a record of every kind, committed as a run does.

    Args:
        bench: Gives the journal.
        text: Applied to each text that may come from a person, a model or a tool.
        thread_id: The root's id.
    """
    run = bench.begin(
        thread_id=thread_id,
        task=text("the task"),
        budget_total=20_000,
        max_depth=3,
        started_at=1_793_000_000.25,
        name=text("name"),
        tags=(text("a tag"), "b"),
        session_id="session",
        first_child=4,
        settings={"budget": 20_000, "profile": {"is": [text("strict"), None, True, 1.5]}},
    )
    run.spawn(ROOT_PATH, task_description=text("the task"), model="demo/any")
    root, one = run.id_of(ROOT_PATH), run.id_of("1")
    request = CompletionRequest(
        "any",
        text("system"),
        (user_message(text("the task")),),
        (ToolSpec("look", text("Looks."), {"type": "object", "title": text("title")}),),
        500,
        3,
        {"thinking": {"type": text("enabled")}},
    )
    run.publish(events.AgentWaiting(agent_id=root, reason=text("room"), wait_s=0.3, attempt=2))
    call = run.start_call(ROOT_PATH, request, attempt=2)
    run.say(ROOT_PATH, text("I look"), " closely", ".")
    blocks = (
        OpaqueBlock(text("api"), {text("kept"): [text("part"), None, 1]}),
        ThinkingBlock(
            text("hm"),
            signature=text("sign"),
            redacted_data=text("data"),
            extra={text("api"): {text("field"): None}},
        ),
        TextBlock(text("I look") + " closely.", {text("api"): {text("kept"): [text("cited")]}}),
        ToolUseBlock(
            text("use"),
            text("look"),
            {text("where"): text("there")},
            {text("api"): {text("kept"): text("with the call")}},
        ),
    )
    call = run.finish_call(
        call,
        message=Message(Role.ASSISTANT, blocks),
        stop_reason=text("tool_use"),
        usage=Usage(1, 2, 3, 4),
        estimate_error=-5,
    )
    await run.commit()
    tool = run.start_tool(
        ROOT_PATH,
        {text("where"): text("there")},
        tool_use_id=text("use"),
        name=text("look"),
    )
    report = text("half of it")
    run.publish(
        events.ToolCallReported(
            agent_id=root, tool_use_id=text("use"), name=text("look"), text=report
        )
    )
    picture = MediaBlock("image/png", "aGVsbG8=", text("plot") + ".png")
    run.finish_tool(tool, text("seen"), is_error=True, media=(picture, picture), unseen=(2,))
    await run.commit()
    run.verdict(
        ROOT_PATH,
        1,
        "admitted",
        {"numbers": [1], "refused": [{"number": 2, "limit": "depth", "reason": text("too deep")}]},
    )
    place: dict[str, Any] = {"path": ROOT_PATH, "number": 1}
    stop: dict[str, Any] = {
        "decision": "stop",
        "why": text("no"),
        "answer": text("stop"),
        "by": "gate",
    }
    planned: dict[str, Any] = {
        "numbers": [1],
        "digest": "1a",
        "tokens": 9_000,
        "cost_usd": 0.125,
        "question": "q1",
        "answer": "go",
        "by": "panel",
        "reason": text("it is cheap"),
        "value": None,
    }
    at = {"ended": 0, "place": 2}
    sampled: dict[str, Any] = {
        "numbers": [2],
        "about": {"sample_agents": 1, "tokens": 90, "cost_usd": None},
        "question": "q2",
        "answer": "stop",
        "by": "code",
        "reason": text("it is dear"),
        "value": None,
    }
    for number, (kind, value) in enumerate(
        [
            ("waited", {"call": 3}),
            ("waited", {"call": 3, "for": "paused"}),
            ("held", {"tool_call": 1, "told": True, "ended": None, "place": 0}),
            ("held", {"tool_call": 2, "told": True, "ended": 1, "place": 3, "wait": at}),
            ("clamped", {"call": 3, "max_tokens": 300, "limited_by": text("the budget")}),
            ("halted", {"call": 3, "why": text("no room"), "ended_by": text("the budget ended")}),
            ("exhausted", {"call": 4, "why": text("no room"), "ended_by": "the budget ended"}),
            ("skipped", {"numbers": [3, 4], "why": text("the budget ended before its turn")}),
            ("fitted", {"fits": True, "tool_limit": 400, "body_limit": None}),
            ("asked", place),
            ("warned", stop | place),
            ("told", {"call": 5, "texts": [text("a task is done"), "b"]}),
            ("told", {"call": 6, "texts": [], "notes": [{"text": text("go on"), "by": "code"}]}),
            ("planned", planned),
            ("sampled", sampled),
            ("reused", {"key": "7c", "run": "run_1", "text": text("an answer")}),
            (
                "approved",
                {
                    "tool_call": 1,
                    "digest": "5d",
                    "question": "q1",
                    "answer": "approve",
                    "by": "panel",
                    "reason": text("fine"),
                    "value": {text("where"): text("elsewhere")},
                    "ended": 0,
                    "place": 1,
                },
            ),
            ("recalled", [{"id": 7, "text": text("a fact")}]),
            ("lost", {"number": 2, "tokens": 5}),
        ],
        start=2,
    ):
        run.verdict(ROOT_PATH, number, kind, value)
    run.spawn("1", task_description=text("a part"), mode=SpawnMode.PARALLEL, profile=text("kind"))
    told: dict[str, Any] = {"tokens_used": 9, "budget_total": 10, "percentage": 90.0}
    tasks: dict[str, Any] = {"tasks": (text("x"),), "numbers": (2,)}
    open_agents: dict[str, Any] = {"completed_agents": (), "incomplete_agents": (root, one)}
    for event in (
        events.BudgetUpdate(**told),
        events.BudgetWarning(**told),
        events.BudgetPaused(**told, wait_s=float("inf")),
        events.BudgetChanged(budget_total=12, previous_total=10, tokens_used=9, by="panel"),
        events.BudgetResumed(reason=text("raised"), by="panel"),
        events.RunPaused(by="panel"),
        events.RunPaused(agent_id=one, by="code"),
        events.RunResumed(agent_id=one, by="code"),
        events.BudgetExhausted(**told, **open_agents),
        events.LimitReached(limit="max_time_s", value=0.7, **open_agents),
        events.SpawnPlanned(
            agent_id=root,
            mode=SpawnMode.PARALLEL,
            tasks=(text("a part"),),
            estimated_tokens=9_000,
            estimated_cost_usd=0.125,
            numbers=(1,),
        ),
        events.DepthLimitReached(agent_id=root, attempted_depth=4, max_depth=3, **tasks),
        events.CycleDetected(
            agent_id=root, task_description=text("x"), cycle_description=text("again"), number=3
        ),
        events.SpawnIgnored(agent_id=root, reason=text("no end"), tasks=(text("y"),), numbers=(4,)),
        events.AgentTold(agent_id=root, text=text("go on"), by="code"),
        events.MemoryCreated(agent_id=root, fact=text("a fact"), memory_id=7, created_at=0.5),
        events.ProviderFailover(
            agent_id=one, from_provider="demo/any", to_provider="demo/b", error=text("down")
        ),
        events.QuestionAsked(
            agent_id=one,
            question_id="q1",
            question="approval",
            text=text("May agent 1 call look?"),
            options=("approve", "deny"),
            wait_s=0.3,
        ),
        events.QuestionAnswered(
            agent_id=one, question_id="q1", answer="deny", by="panel", reason=text("not today")
        ),
        events.AgentFailed(agent_id=one, error=text("broke"), will_retry=True, attempt=1),
    ):
        run.publish(event)
    run.order("budget", "panel", 12)
    run.order("tell", "code", {"agent": ROOT_PATH, "text": text("go on")}, path=ROOT_PATH)
    answer = {"question": "q1", "answer": "deny", "value": None, "reason": text("not today")}
    run.order("answer", "panel", answer, path="1")
    run.order("cancel", "code", {"agent": "1", "reason": text("not needed")}, path="1")
    run.order("pause", "panel", {"agent": None})
    run.order("resume", "code", {"agent": "1"}, path="1", number=0)
    broken = run.start_call("1", replace(request, messages=(user_message(text("a part")),)))
    run.say("1", text("Half"))
    run.finish_call(
        broken,
        stop_reason=None,
        error=ErrorRecord(
            {
                "class": text("ServerFailed"),
                "message": text("it broke"),
                "retryable": True,
                "retry_after_s": 0.3,
                "status": 500,
            }
        ),
    )
    await run.commit()
    run.end(
        "1",
        AgentStatus.CANCELLED,
        by="code",
        text=text("Half"),
        error=text("not needed"),
        attempt=2,
    )
    await run.commit()
    run.spawn("2", "2.1", "3", task_description=text("a part"))
    for path, status in (
        ("2.1", AgentStatus.EXHAUSTED),
        ("2", AgentStatus.FAILED),
        ("3", AgentStatus.COMPLETED),
    ):
        run.call(path, text("An answer"))
        await run.commit()
        error = None if status is AgentStatus.COMPLETED else text("why")
        run.end(path, status, text=text("An answer"), error=error)
        await run.commit()
    run.publish(events.SynthesisStarted(agent_id=root, total=3))
    conversation = (
        *request.messages,
        call.message or assistant_message(""),
        Message(
            Role.USER,
            (
                ToolResultBlock(text("use"), text("seen"), True),
                MediaBlock("image/png", "aGVsbG8=", text("scan") + ".png"),
                TextBlock(text("Go on.")),
            ),
        ),
    )
    last = run.start_call(ROOT_PATH, replace(request, messages=conversation), is_synthesis=True)
    run.say(ROOT_PATH, text("All"), " of it")
    run.finish_call(last, not_closed=text("not closed in time"))
    await run.commit()
    run.end(ROOT_PATH, text=text("All") + " of it", cut=True)
    await run.commit()
    run.end(None, AgentStatus.COMPLETED, text=text("All") + " of it", error=text("an error"))
    await run.commit_all()
    return run


def all_checks(factory: JournalFactory) -> list[Check]:
    """The contract, and with it the checks of this module."""
    return [*journal_contract(factory), *journal_checks(PROMISES, factory)]


@promise("events and records of every kind come back equal")
async def _(bench: Bench) -> None:
    run = await tell_everything(bench)
    found = bench.after_death()
    same_run(found, run.committed)
    same([entry.seq for entry in found.entries], [*range(len(found.entries))], "the `seq`s")


@promise("a secret is masked in every text of every record and event")
async def _(bench: Bench) -> None:
    with a_secret():
        masks(bench, await tell_everything(bench, with_secret))


@promise("a run whose root is another thread's child keeps its ids and paths")
async def _(bench: Bench) -> None:
    run = await tell_everything(bench, thread_id="nb_1.2.1")
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


@promise("a run without a commit is there whole or not at all")
async def _(bench: Bench) -> None:
    run = bench.begun(task="Is it there?", name="half", tags=("a", "b"))
    run.start_call(ROOT_PATH)
    try:
        found = bench.after_death()
    except NoSuchRun:
        return
    same(found.head, run.head, "the head")
    rows = list(found.entries)
    same(rows, list(run.handed.entries)[: len(rows)], "the entries, as far as they are kept,")


@promise("the result of a tool call replaces its intent")
async def _(bench: Bench) -> None:
    run = bench.begun()
    tool = run.start_tool(ROOT_PATH)
    await run.commit()
    result = run.finish_tool(tool)
    await run.commit_all()
    same(bench.after_death().tool_calls, (result,), "the tool calls")


@promise("an intent and its result in one commit are one record")
async def _(bench: Bench) -> None:
    run = bench.begun()
    run.call(ROOT_PATH, "Yes")
    run.finish_tool(run.start_tool(ROOT_PATH))
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("a call without a result stays started")
async def _(bench: Bench) -> None:
    run = bench.begun()
    call = run.start_call(ROOT_PATH)
    await run.commit_all()
    same(bench.after_death().calls, (call,), "the calls")


@promise("a tool call without a result stays started")
async def _(bench: Bench) -> None:
    run = bench.begun()
    tool = run.start_tool(ROOT_PATH, {"to": "x"})
    await run.commit_all()
    same(bench.after_death().tool_calls, (tool,), "the tool calls")


@promise("a tool call that had no intent is kept with its result")
async def _(bench: Bench) -> None:
    run = bench.begun()
    tool = run.start_tool(ROOT_PATH, effects=False)
    await run.commit()
    same(bench.after_death().tool_calls, (), "the tool calls before the result")
    run.finish_tool(tool, "read")
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("a commit without news changes nothing")
async def _(bench: Bench) -> None:
    run = bench.begun()
    run.call(ROOT_PATH, "Yes")
    await run.commit_all()
    for _ in range(3):
        bench.journal.published([])
        await bench.journal.commit()
    same_run(bench.after_death(), run.committed)


@promise("entries that come between commits are kept by the next one")
async def _(bench: Bench) -> None:
    run = bench.begun()
    run.start_call(ROOT_PATH)
    for word in ("One", " by", " one"):
        run.say(ROOT_PATH, word)
        run.hand()
    await run.commit()
    same_run(bench.after_death(), run.committed)


@promise("entries may come as a plain list")
async def _(bench: Bench) -> None:
    run = bench.begun()
    run.start_call(ROOT_PATH)
    run.say(ROOT_PATH, "One", " by", " one")
    everything = Run(Deaf(), run.head)
    everything.spawn(ROOT_PATH)
    everything.start_call(ROOT_PATH)
    everything.say(ROOT_PATH, "One", " by", " one")
    everything.hand()
    bench.journal.published(list(everything.handed.entries))
    await bench.journal.commit()
    same(list(bench.after_death().entries), list(everything.handed.entries), "the entries")


@promise("calls come by path and then number: 10 after 9")
async def _(bench: Bench) -> None:
    run = bench.begun("1", "2", "10", "1.2", "1.10", "2.9", "2.10")
    for path in _PATHS:
        for _ in range(11 if path in ("1", "10") else 1):
            run.call(path, "Yes")
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("tool calls come by path and then number: 10 after 9")
async def _(bench: Bench) -> None:
    run = bench.begun("1", "2", "10", "1.2", "1.10", "2.9", "2.10")
    for path in _PATHS:
        begun = [run.start_tool(path) for _ in range(11 if path in ("1", "10") else 1)]
        for tool in reversed(begun):  # they run side by side: the last may end first
            run.finish_tool(tool)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("verdicts come by path and then number: 10 after 9")
async def _(bench: Bench) -> None:
    run = bench.begin()
    for path in _PATHS:
        for number in range(1, 12 if path in ("1", "10") else 2):
            run.verdict(path, number, "clamped", number)
    await run.commit_all()
    same(bench.after_death().verdicts, run.committed.verdicts, "the verdicts")


@promise("ends come in the order in which the agents ended, the run's last")
async def _(bench: Bench) -> None:
    run = bench.begun("1", "2", "10", "2.1")
    for path in ("2.1", "10", "2", "1", ROOT_PATH, None):
        run.end(path)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)


@promise("a run can be loaded while it goes on, and what was loaded does not grow")
async def _(bench: Bench) -> None:
    run = bench.begun()
    call = run.start_call(ROOT_PATH)
    await run.commit()
    before = run.committed
    loaded = bench.journal.load("run-1")
    same_run(loaded, before)
    run.say(ROOT_PATH, "Yes")
    run.finish_call(call)
    run.end(ROOT_PATH)
    await run.commit_all()
    same_run(loaded, before)
    same_run(bench.journal.load("run-1"), run.committed)


@promise("begin, intend, keep, published and close are plain functions and return nothing")
async def _(bench: Bench) -> None:
    run = bench.begin()
    call = run.start_call(ROOT_PATH)
    journal: Any = bench.journal
    results = [
        ("begin", journal.begin(replace(run.head, run_id="run-2"))),
        ("intend", journal.intend(call)),
        ("keep", journal.keep(replace(call, status=FINISHED))),
        ("published", journal.published([])),
    ]
    committed = journal.commit()
    holds(inspect.isawaitable(committed), "`commit` returns nothing to await")
    await committed
    results.append(("close", journal.close()))
    for name, result in results:
        same(result, None, f"the result of `{name}`")


@promise("load and close work on a thread without a loop")
async def _(bench: Bench) -> None:
    run = bench.begun()
    await run.commit()
    found: list[RunJournal | BaseException] = []

    def work() -> None:
        try:
            found.append(bench.after_death())
            bench.journal.close()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    holds(len(found) == 1 and isinstance(found[0], RunJournal), f"on a thread: {found}")
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


@promise("a long tool result is kept whole")
async def _(bench: Bench) -> None:
    run = bench.begun()
    tool = run.start_tool(ROOT_PATH, {"text": "given " * 5_000, "more": ["x" * 3_000] * 3})
    run.finish_tool(tool, "seen " * 60_000)
    await run.commit_all()
    same_run(bench.after_death(), run.committed)
