"""A run that is handed to a journal, in the order in which a run does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from agentnb.core import events
from agentnb.core.events import Event, Row, RowEntries
from agentnb.core.keys import key_of
from agentnb.core.protocols import Journal
from agentnb.core.reading import (
    agent_ended,
    model_call_finished,
    model_call_started,
    run_finished,
    tool_call_finished,
    tool_call_started,
)
from agentnb.core.records import (
    FINISHED,
    STARTED,
    CallRecord,
    EndRecord,
    ErrorRecord,
    Kept,
    OrderRecord,
    RunHead,
    RunJournal,
    ToolCallRecord,
    VerdictRecord,
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
    id_at,
    user_message,
)


class Bench:
    """One journal under test, and what was opened over its storage."""

    def __init__(self, journal: Journal, reopen: Callable[[], Journal]) -> None:
        self.journal = journal
        self._reopen = reopen
        self._opened: list[Journal] = []

    def begin(self, run_id: str = "run-1", thread_id: str = "thread", **head: Any) -> Run:
        given = {"task": "the task", "model": "demo/any", **head}
        return Run(self.journal, RunHead(run_id=run_id, thread_id=thread_id, **given))

    def begun(self, *paths: str, **head: Any) -> Run:
        """A run whose root has begun, and the agents with these paths; `head` as of `begin`."""
        run = self.begin(**head)
        run.spawn(ROOT_PATH, *paths)
        return run

    def reopened(self) -> Journal:
        journal = self._reopen()
        self._opened.append(journal)
        return journal

    def after_death(self, run_id: str = "run-1") -> RunJournal:
        """What a new process loads."""
        return self.reopened().load(run_id)

    def close(self) -> None:
        for journal in {id(each): each for each in (*self._opened, self.journal)}.values():
            journal.close()

    def close_quietly(self) -> None:
        """Close everything after a failure, which must not be replaced by another one."""
        with suppress(Exception):
            self.close()


class Run:
    """Hands one run to a journal, in the order in which a run does, and remembers what it handed.

    A result is kept, then committed, and its event is published only then: `commit` does all that.
    """

    def __init__(self, journal: Journal, head: RunHead) -> None:
        self._journal = journal
        self.head = head
        self._rows: list[Row] = []
        self._handed = 0
        self._after_commit: list[Event] = []
        self._tenths = count(1)
        self._calls: dict[tuple[str, int], CallRecord] = {}
        self._tool_calls: dict[tuple[str, int], ToolCallRecord] = {}
        self._orders: list[OrderRecord] = []
        self._verdicts: dict[tuple[str, int], VerdictRecord] = {}
        self._ends: list[EndRecord] = []
        journal.begin(head)
        self.publish(
            events.RunStarted(
                task_description=head.task,
                model=head.model,
                budget_total=head.budget_total,
                max_depth=head.max_depth,
                thread_id=head.thread_id,
            )
        )
        self.committed = self.handed
        """What the journal must have: all that came before the last commit."""

    def time(self) -> float:
        """The next moment: a number that is not exact in decimal digits."""
        return next(self._tenths) * 0.1

    def id_of(self, path: str) -> str:
        return id_at(path, self.head.thread_id)

    # -- what happens --------------------------------------------------------------------------

    def publish(self, event: Event) -> None:
        at_s = self.time()
        if isinstance(event, events.AgentTextDelta):
            self._rows.append((at_s, event.agent_id, event.text))
        else:
            self._rows.append((at_s, event))

    def spawn(self, *paths: str, **fields: Any) -> None:
        for path in paths:
            agent_id = self.id_of(path)
            parent_id = None if path == ROOT_PATH else agent_id.rpartition(".")[0]
            given = {"task_description": f"task of {path}", **fields}
            depth = 0 if path == ROOT_PATH else path.count(".") + 1
            self.publish(
                events.AgentSpawned(agent_id=agent_id, parent_id=parent_id, depth=depth, **given)
            )

    def start_call(
        self, path: str, request: CompletionRequest | None = None, **fields: Any
    ) -> CallRecord:
        request = request or CompletionRequest("any", "system", (user_message(f"go on, {path}"),))
        number = 1 + sum(key[0] == path for key in self._calls)
        record = CallRecord(
            path=path,
            number=number,
            attempt=fields.pop("attempt", 1),
            key=key_of("demo/any", request),
            request=request,
            at_s=self.time(),
            model="demo/any",
            **fields,
        )
        return self.intend_call(record)

    def intend_call(self, record: CallRecord) -> CallRecord:
        self._calls[record.path, record.number] = record
        self._journal.intend(record)
        self.publish(model_call_started(record, self.id_of(record.path)))
        return record

    def say(self, path: str, *pieces: str) -> None:
        """The reply of an agent's open call goes on."""
        for text in pieces:
            self.publish(events.AgentTextDelta(agent_id=self.id_of(path), text=text))

    def finish_call(self, record: CallRecord, **fields: Any) -> CallRecord:
        """Keep the result; its event follows the next commit."""
        agent_id, pieces = self.id_of(record.path), list[tuple[float, str]]()
        for row in self._rows:
            if len(row) == 3 and row[1] == agent_id:
                pieces.append((row[0], row[2]))
            elif isinstance(row[1], events.ModelCallStarted) and row[1].agent_id == agent_id:
                pieces.clear()
        given: dict[str, Any] = {
            "message": assistant_message("".join([text for _, text in pieces])),
            "stop_reason": "end_turn",
            "usage": Usage(3, 4),
            "duration_ms": 17,
            **fields,
        }
        record = replace(record, pieces=tuple(pieces), status=FINISHED, **given)
        self._calls[record.path, record.number] = record
        self._keep(record, model_call_finished(record, agent_id))
        return record

    def call(self, path: str, *pieces: str, **fields: Any) -> CallRecord:
        record = self.start_call(path)
        self.say(path, *pieces)
        return self.finish_call(record, **fields)

    def start_tool(
        self, path: str, input: Mapping[str, Any] | None = None, **fields: Any
    ) -> ToolCallRecord:
        number = 1 + sum(key[0] == path for key in self._tool_calls)
        given = {"tool_use_id": f"use-{number}", "name": "look", "effects": True, **fields}
        record = ToolCallRecord(
            agent_id=self.id_of(path),
            input={} if input is None else input,
            path=path,
            number=number,
            at_s=self.time(),
            status=STARTED,
            **given,
        )
        self._tool_calls[path, number] = record
        if record.effects:
            self._journal.intend(record)
        self.publish(tool_call_started(record))
        return record

    def finish_tool(
        self, record: ToolCallRecord, result: str = "seen", **fields: Any
    ) -> ToolCallRecord:
        ended = 1 + sum(
            key[0] == record.path and call.status == FINISHED
            for key, call in self._tool_calls.items()
        )
        given = {"duration_ms": 3, "ended": ended, **fields}
        record = replace(record, result=result, status=FINISHED, **given)
        self._tool_calls[record.path, record.number] = record
        self._keep(record, tool_call_finished(record))
        return record

    def order(self, kind: str, by: str, value: Any, path: str = ROOT_PATH, number: int = 1) -> None:
        record = OrderRecord(kind, by, path, number, self.time(), value)
        self.order_again(record)

    def order_again(self, record: OrderRecord) -> None:
        self._orders.append(record)
        self._keep(record)

    def verdict(self, path: str, number: int, kind: str, value: Any) -> None:
        record = VerdictRecord(path, number, kind, value)
        self._verdicts[path, number] = record
        self._keep(record)

    def end(
        self,
        path: str | None,
        status: AgentStatus = AgentStatus.COMPLETED,
        **fields: Any,
    ) -> None:
        """Keep an agent's end, or the run's; its event follows the next commit."""
        given = {"text": "done", "tokens_used": 7, "duration_ms": 11, **fields}
        record = EndRecord(path=path, status=status, at_s=self.time(), **given)
        self._ends.append(record)
        if path is None:
            self._keep(record, run_finished(record))
        else:
            self._keep(record, agent_ended(record, self.id_of(path)))

    def _keep(self, record: Kept, event: Event | None = None) -> None:
        self._journal.keep(record)
        if event is not None:
            self._after_commit.append(event)

    # -- what the journal gets -------------------------------------------------------------------

    def hand(self) -> None:
        """Hand over the entries published since the last call."""
        first, self._handed = self._handed, len(self._rows)
        self._journal.published(RowEntries(self.head.run_id, first, self._rows[first:]))

    async def commit(self) -> None:
        self.hand()
        asked = self.handed
        await self._journal.commit()
        self.committed = asked
        news, self._after_commit = self._after_commit, []
        for event in news:
            self.publish(event)

    async def commit_all(self) -> RunJournal:
        """Commit, and once more for the events that followed the first commit."""
        await self.commit()
        await self.commit()
        return self.committed

    @property
    def handed(self) -> RunJournal:
        """All that the journal was given so far."""
        return RunJournal(
            head=self.head,
            entries=RowEntries(self.head.run_id, 0, self._rows[: self._handed]),
            calls=tuple(sorted(self._calls.values(), key=_place)),
            tool_calls=tuple(
                call
                for call in sorted(self._tool_calls.values(), key=_place)
                if call.effects or call.status == FINISHED
            ),
            orders=tuple(self._orders),
            verdicts=tuple(sorted(self._verdicts.values(), key=_place)),
            ends=tuple(self._ends),
        )


def _place(record: CallRecord | ToolCallRecord | VerdictRecord) -> tuple[list[int], int]:
    """The root first, then by the numbers in the path, then by the record's own number."""
    numbers = [] if record.path == ROOT_PATH else [int(part) for part in record.path.split(".")]
    return numbers, record.number


def _same_text(text: str) -> str:
    return text


async def tell_everything(
    bench: Bench, text: Callable[[str], str] = _same_text, *, thread_id: str = "thread"
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
