"""Runs without a model: the records and rows that a run's recorder hands to a journal.

The clock moves by some microseconds with each event, as it does with a model that answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RowEntries,
    RunFinished,
    RunStarted,
)
from agentnb.core.protocols import Journal
from agentnb.core.records import CallRecord, EndRecord, RunHead
from agentnb.core.text import one_line
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    Message,
    Usage,
    assistant_message,
    id_at,
    user_message,
)

PREFACE = """You are one of several agents that work on a task together, each on a part of its own.
Read what you are given; answer in full sentences; say what you are not sure of, and why.
"""


class Steps:
    """A clock that moves a little with every look, as a monotonic one does.

    Args:
        step_ns: The least step, in nanoseconds; the greatest is four times as long.
    """

    def __init__(self, step_ns: int) -> None:
        self._ns = 12_345_678_901_234
        self._step_ns = step_ns

    def now(self) -> float:
        self._ns += self._step_ns + self._ns * 7919 % (3 * self._step_ns + 1)
        return self._ns / 1e9


@dataclass
class FakeRun:
    """One run, written step by step."""

    journal: Journal
    run_id: str = "run-1"
    thread_id: str = "nb_1"
    model: str = "demo/model"
    task: str = "the whole task"
    step_ns: int = 1_000
    rows: list[Row] = field(default_factory=list)
    calls: dict[str, list[CallRecord]] = field(default_factory=dict)
    ends: list[EndRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._clock = Steps(self.step_ns)
        self._began = self._clock.now()
        self._handed = 0
        self.head = RunHead(
            run_id=self.run_id,
            thread_id=self.thread_id,
            task=self.task,
            model=self.model,
            budget_total=10**24,
            max_depth=3,
            started_at=1_790_000_000.25,
            name="a name",
            tags=("one", "two"),
            session_id="session",
            settings={"budget": 10**24, "tools": ["a"]},
        )

    @property
    def now_s(self) -> float:
        return self._clock.now() - self._began

    def publish(self, event: Event) -> None:
        self.rows.append((self.now_s, event))

    def say(self, path: str, text: str) -> tuple[float, str]:
        """Publish a piece of a reply."""
        at_s = self.now_s
        self.rows.append((at_s, id_at(path, self.thread_id), text))
        return at_s, text

    def hand(self) -> None:
        """Hand over what was published."""
        self.journal.published(RowEntries(self.run_id, self._handed, self.rows[self._handed :]))
        self._handed = len(self.rows)

    async def commit(self) -> None:
        self.hand()
        await self.journal.commit()

    def begin(self) -> None:
        self.journal.begin(self.head)
        self.publish(
            RunStarted(
                task_description=self.task,
                model=self.model,
                budget_total=10**24,
                max_depth=3,
                thread_id=self.thread_id,
            )
        )

    def spawn(self, path: str, task: str, *, index: int = 0, total: int = 1) -> None:
        is_root = path == "root"
        self.publish(
            AgentSpawned(
                agent_id=id_at(path, self.thread_id),
                parent_id=None if is_root else self.thread_id,
                task_description=task,
                depth=0 if is_root else 1,
                index=index,
                total=total,
                model=self.model,
            )
        )

    async def start_call(
        self, path: str, system: str, messages: tuple[Message, ...], **more: Any
    ) -> CallRecord:
        """Intend a call, and publish its start."""
        number = len(self.calls.get(path, ())) + 1
        request = CompletionRequest("model", system, messages, cache_prefix=len(PREFACE))
        record = CallRecord(
            path, number, 1, f"{number:064x}", request, model=self.model, at_s=self.now_s
        )
        record = replace(record, **more)
        self.calls.setdefault(path, []).append(record)
        self.journal.intend(record)
        await self.commit()
        self.publish(
            ModelCallStarted(
                agent_id=id_at(path, self.thread_id),
                request=record.request,
                model=record.model,
                attempt=record.attempt,
                is_synthesis=record.is_synthesis,
            )
        )
        return record

    async def end_call(
        self, record: CallRecord, pieces: Sequence[tuple[float, str]], **more: Any
    ) -> CallRecord:
        """Keep a call's result, and publish its end."""
        pieces = tuple(pieces)
        record = replace(
            record,
            pieces=pieces,
            message=assistant_message("".join([text for _, text in pieces])),
            stop_reason="end_turn",
            usage=Usage(100, 250, 3, 4),
            duration_ms=12,
            status="finished",
        )
        record = replace(record, **more)
        self.calls[record.path][-1] = record
        self.journal.keep(record)
        await self.commit()
        self.publish(
            ModelCallFinished(
                agent_id=id_at(record.path, self.thread_id),
                model=record.model,
                usage=record.usage or Usage(),
                duration_ms=record.duration_ms or 0,
                stop_reason=record.stop_reason,
                error=None if record.error is None else record.error["message"],
                message=record.message,
                estimate_error=record.estimate_error,
            )
        )
        return record

    async def end_agent(self, path: str, text: str, *, typed: bool = False) -> EndRecord:
        """Keep an agent's end, and publish it."""
        record = EndRecord(path, AgentStatus.COMPLETED, text, None, False, 357, 13, at_s=self.now_s)
        self.ends.append(record)
        self.journal.keep(record)
        await self.commit()
        self.publish(
            AgentCompleted(
                agent_id=id_at(path, self.thread_id),
                result_summary=one_line(text),
                text=text,
                tokens_used=357,
                duration_ms=13,
                typed=typed,
            )
        )
        return record

    async def agent(
        self,
        path: str,
        *,
        deltas: Sequence[str],
        system: str = PREFACE * 8,
        index: int = 0,
        total: int = 1,
    ) -> None:
        """An agent of one call."""
        task = f"Look into part {path}"
        self.spawn(path, task, index=index, total=total)
        system = f"{system}<task>\n{task}\n</task>"
        record = await self.start_call(path, system, (user_message(f"Your task: {task}."),))
        pieces = [self.say(path, text) for text in deltas]
        record = await self.end_call(record, pieces)
        await self.end_agent(path, record.text)

    async def end(self, status: AgentStatus = AgentStatus.COMPLETED) -> None:
        """The run's end."""
        record = EndRecord(None, status, "the answer", None, False, 10**24, 99, at_s=self.now_s)
        self.ends.append(record)
        self.journal.keep(record)
        await self.commit()
        self.publish(RunFinished(status=status, tokens_used=10**24, duration_ms=99))
        await self.commit()

    def text_bytes(self) -> int:
        """Bytes of all prompts and replies: each system prompt, message and reply once."""
        texts: dict[str, None] = {}
        replies = 0
        for calls in self.calls.values():
            for call in calls:
                replies += len(call.text.encode())
                texts[call.request.system] = None
                said = [m.text for m in call.request.messages if m.role == "user"]
                texts.update(dict.fromkeys(said))
        return replies + sum(len(text.encode()) for text in texts)

    @property
    def lifecycle_events(self) -> int:
        return sum(len(row) == 2 for row in self.rows)


def words(count: int, *, size: int = 17) -> Iterator[str]:
    """Pieces of a reply: text that does not repeat itself."""
    for number in range(count):
        yield f"{number * 7919 % 100_003} of the words in it are new here "[:size]
