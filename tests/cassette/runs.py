"""Runs that are recorded into a cassette: live ones by a script, and such as are handed over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agentnb.cassette import CassetteJournal, TeeJournal
from agentnb.core.keys import key_of
from agentnb.core.records import (
    FINISHED,
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
    AgentStatus,
    CompletionRequest,
    Message,
    Usage,
    assistant_message,
    id_at,
    user_message,
)
from agentnb.testing._scripts import Answer
from agentnb.testing.memory_journal import MemoryJournal
from tests.support import Tree, by_agent, make_tree, spawn

K = TypeVar("K", bound=Kept)
THREAD = "nb_20261101_k3x9aa"


async def recorded(
    path: Path,
    replies: Mapping[str, Any] | None = None,
    *,
    label: str = "a run",
    mode: str = "record",
) -> tuple[RunJournal, Tree]:
    """Record a live run with two sub-agents. Returns what a journal in memory kept of it."""
    answers: dict[str, Answer | Sequence[Answer]] = {
        "root": [spawn("one", "two"), "both are done"],
        "one": "the first answer",
        "two": "the second answer",
        **(replies or {}),
    }
    memory = MemoryJournal()
    tree = make_tree(
        by_agent(answers), journal=TeeJournal(memory, CassetteJournal(path, label, mode))
    )
    await tree.run("root")
    assert tree.error is None
    return memory.load(tree.request.run_id), tree


@dataclass
class Handed:
    """A run that is handed to a journal record by record, as a run does."""

    path: Path
    label: str = "a run"
    mode: str = "record"
    thread_id: str = THREAD
    head: Mapping[str, Any] = field(default_factory=dict)
    at_s: float = 0.0

    def __post_init__(self) -> None:
        self.journal = CassetteJournal(self.path, self.label, self.mode)
        given = {"task": "the task", "model": "demo/any", **self.head}
        self.journal.begin(RunHead("run-1", self.thread_id, **given))
        self._talks: dict[str, tuple[Message, ...]] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, path: str, kind: str) -> int:
        made = self._numbers[path, kind] = self._numbers.get((path, kind), 0) + 1
        return made

    def now(self) -> float:
        self.at_s += 0.25
        return self.at_s

    def call(
        self, path: str, ask: str | Message, answer: str = "an answer", **fields: Any
    ) -> CallRecord:
        """The next call of an agent: it goes on from its last one."""
        new = user_message(ask) if isinstance(ask, str) else ask
        messages = (*self._talks.get(path, ()), new)
        given = {name: fields.pop(name) for name in ("system", "tools", "extra") if name in fields}
        request = CompletionRequest("any", given.pop("system", "be brief"), messages, **given)
        reply = fields.pop("message", assistant_message(answer))
        at_s, half = self.now(), len(answer) // 2
        values: dict[str, Any] = {
            "pieces": ((at_s + 0.1, answer[:half]), (at_s + 0.2, answer[half:])),
            "stop_reason": "end_turn",
            "usage": Usage(3, 4),
            "duration_ms": 200,
            **fields,
        }
        record = CallRecord(
            path=path,
            number=self.number(path, "call"),
            attempt=values.pop("attempt", 1),
            key=key_of("demo/any", request),
            request=request,
            message=reply,
            at_s=at_s,
            status=FINISHED,
            model="demo/any",
            **values,
        )
        self._talks[path] = (*messages, reply) if reply is not None else messages
        return self.keep(record)

    def tool(self, path: str, given: Mapping[str, Any], result: str = "seen") -> ToolCallRecord:
        number = self.number(path, "tool")
        return self.keep(
            ToolCallRecord(
                id_at(path, self.thread_id), f"use-{number}", "look", given, result, False, path,
                number, True, self.now(), 5, FINISHED, number,
            )
        )  # fmt: skip

    def verdict(self, path: str, kind: str, value: Any) -> VerdictRecord:
        return self.keep(VerdictRecord(path, self.number(path, "verdict"), kind, value))

    def order(self, kind: str, value: Any, path: str = "root", number: int = 1) -> OrderRecord:
        return self.keep(OrderRecord(kind, "panel", path, number, self.now(), value))

    def end(self, path: str | None, status: str = "completed", **fields: Any) -> EndRecord:
        given = {"text": "done", "tokens_used": 7, "duration_ms": 11, **fields}
        return self.keep(EndRecord(path, AgentStatus(status), at_s=self.now(), **given))

    def keep(self, record: K) -> K:
        self.journal.keep(record)
        return record

    async def commit(self) -> None:
        await self.journal.commit()

    async def finish(self, status: str = "completed") -> None:
        """The root ends, and the run."""
        self.end("root", status)
        self.end(None, status)
        await self.commit()
        self.journal.close()


def content(path: Path) -> str:
    """The whole file, with its own ends of lines."""
    return path.read_bytes().decode("utf-8")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content(path).split("\n") if line]


def changed(before: str, after: str) -> list[dict[str, Any]]:
    """The lines of a file that were not there before, and those that are there no more."""
    old, new = before.split("\n"), after.split("\n")
    return [
        json.loads(line)
        for line in [*(x for x in new if x not in old), *(x for x in old if x not in new)]
    ]


def places(lines: Sequence[Mapping[str, Any]]) -> set[tuple[str, str | None, int | None]]:
    return {(line["kind"], line.get("path"), line.get("number")) for line in lines}
