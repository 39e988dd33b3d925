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
    Message,
    OpaqueBlock,
    Role,
    TextBlock,
    ThinkingBlock,
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


async def short_story(bench: Bench, text: Callable[[str], str] = str) -> Run:
    """A run with a record of every kind, committed as a run does.

    Args:
        bench: Gives the journal.
        text: Applied to each text that may come from a person, a model or a tool.
    """
    run = bench.begun("1", task=text("the task"), name=text("name"), tags=(text("a tag"),))
    messages = (user_message(text("the task")),)
    call = run.start_call(ROOT_PATH, CompletionRequest("any", text("system"), messages))
    run.say(ROOT_PATH, text("I look"), " closely")
    kept = {text("api"): {text("field"): [text("part"), None, 1]}}
    blocks = (
        OpaqueBlock(text("api"), {text("kept"): text("part")}),
        ThinkingBlock(text("hm"), text("sign"), text("data"), kept),
        TextBlock(text("I look") + " closely", kept),
        ToolUseBlock(text("use"), text("look"), {text("where"): text("there")}, kept),
    )
    message = Message(Role.ASSISTANT, blocks)
    run.finish_call(call, message=message, stop_reason=text("tool_use"))
    tool = run.start_tool(ROOT_PATH, {text("where"): text("there")}, name=text("look"))
    run.finish_tool(tool, text("seen"), is_error=True)
    run.order("tell", "code", {"agent": ROOT_PATH, "text": text("go on")})
    run.verdict(ROOT_PATH, 1, "warned", {"why": text("no"), "numbers": [1, None, 0.5]})
    run.end("1", AgentStatus.FAILED, text=text("half"), error=text("broke"))
    run.end(ROOT_PATH, text=text("the answer"))
    run.end(None, text=text("the answer"))
    await run.commit_all()
    return run
