"""A run whose process dies at any moment, and the run that goes on from there."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, overload

from agentnb.core._call.services import WAITS_FOR_ROOM
from agentnb.core.events import (
    AgentSpawned,
    AgentWaiting,
    BudgetUpdate,
    RunPaused,
    RunResumed,
    ToolCallReported,
)
from agentnb.core.past import Past
from agentnb.core.protocols import Tool
from agentnb.core.records import FINISHED, RunJournal
from agentnb.core.secrets import known_secrets
from agentnb.providers.scripted import ScriptedProvider
from agentnb.testing.memory_journal import MemoryJournal, _as_read
from tests.core.clock import ManualClock
from tests.support import Tree, by_agent, make_tree, path_of

Script = Mapping[str, Any]
MakeTools = Callable[[], Sequence[Tool]]


class Moments(Sequence[RunJournal]):
    """What was committed at each moment. It is read when it is asked for: few of them ever are."""

    def __init__(self) -> None:
        self._kept: list[RunJournal] = []
        self._read: dict[int, RunJournal] = {}

    def note(self, kept: RunJournal) -> None:
        self._kept.append(kept)

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, at: int) -> RunJournal: ...
    @overload
    def __getitem__(self, at: slice) -> list[RunJournal]: ...
    def __getitem__(self, at: int | slice) -> RunJournal | list[RunJournal]:
        places = range(len(self._kept))[at]
        return (
            [self._at(each) for each in places] if isinstance(places, range) else self._at(places)
        )

    def _at(self, place: int) -> RunJournal:
        if place not in self._read:
            self._read[place] = _as_read(self._kept[place], known_secrets())
        return self._read[place]


class Mortal(MemoryJournal):
    """Notes what it has at each moment before a commit: the process may die there."""

    def __init__(self) -> None:
        super().__init__()
        self.moments = Moments()

    async def commit(self) -> None:
        if self._runs:
            self.moments.note(next(iter(self._runs.values())).snapshot())
        await super().commit()
        await asyncio.sleep(0)  # others go on meanwhile, and what they do is not kept


@dataclass
class Unbroken:
    """A run that came to its end, and what a process would have left that died on the way."""

    script: Script
    tree: Tree
    journal: Mortal
    tools: MakeTools
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def moments(self) -> Sequence[RunJournal]:
        return self.journal.moments

    async def recover(
        self, moment: RunJournal, *, found: list[Tree] | None = None, **changed: Any
    ) -> tuple[Tree, ScriptedProvider]:
        """Go on from a moment, with a model that says what it would have said next.

        Args:
            moment: When the process died.
            found: Takes the tree before it runs.
            changed: Arguments of `make_tree` that replace those of the run.
        """
        provider = by_agent(self._rest(moment))
        tree = make_tree(
            provider,
            tools=self.tools(),
            run_id=moment.head.run_id,
            thread_id=moment.head.thread_id,
            **{
                "past": Past(moment),
                "journal": Mortal(),
                **self.limits,
                "clock": ManualClock(sleeps_end=True),
                **changed,
            },
        )
        assert tree.past is not None
        tree.past.repeats_unknown = True
        if found is not None:
            found.append(tree)
        return await tree.run(), provider

    def _rest(self, moment: RunJournal) -> Script:
        """The replies that no finished call has used."""
        paths = {"root": "root"}
        for event in self.tree.of(AgentSpawned):
            if event.parent_id is not None:
                paths[event.task_description] = path_of(event.agent_id)
        used = Counter(call.path for call in moment.calls if call.status == FINISHED)
        return {
            name: replies[used[paths[name]] :]
            if isinstance(replies, list) and name in paths
            else replies
            for name, replies in self.script.items()
        }


async def unbroken(
    script: Script, tools: MakeTools = tuple, found: list[Tree] | None = None, **limits: Any
) -> Unbroken:
    """Run a script to its end; the tree is added to `found` before it runs."""
    journal = Mortal()
    tree = make_tree(
        by_agent(script),
        journal=journal,
        tools=tools(),
        **{"clock": ManualClock(sleeps_end=True), **limits},
    )
    if found is not None:
        found.append(tree)
    return Unbroken(script, await tree.run(), journal, tools, limits)


class NothingLost(Past):
    """A past whose open calls had spent nothing: the run has the room again that it had."""

    def lost(self) -> Iterator[tuple[str, int, int]]:
        return iter(())


def told(tree: Tree) -> dict[str, list[str]]:
    """The events of each agent in their order, and those of the run; without times and ids.

    Waits for room are left out, too: whether one came depends on how fast the others were.
    """
    by: dict[str, list[str]] = defaultdict(list)
    for event in tree.events:
        waits = isinstance(event, AgentWaiting) and event.reason == WAITS_FOR_ROOM
        if not waits and not isinstance(event, BudgetUpdate | ToolCallReported):
            is_of_run = isinstance(event, RunPaused | RunResumed)  # also of a branch
            agent = "" if is_of_run else getattr(event, "agent_id", "")
            by[agent.replace(tree.request.thread_id, "root")].append(_words(event, tree))
    return {agent: events if agent else sorted(events) for agent, events in by.items()}


_LEFT_OUT = {"recovered", "duration_ms", "estimate_error", "wait_s", "tokens_used", "percentage"}
_LEFT_OUT |= {"completed_agents", "incomplete_agents"}  # how far the others had come


def _words(event: Any, tree: Tree) -> str:
    values = {
        each.name: getattr(event, each.name) for each in fields(event) if each.name not in _LEFT_OUT
    }
    text = f"{event.kind} {values!r}".replace(tree.request.thread_id, "root")
    return re.sub(r"cache_prefix=\d+", "", text)


def finished(journal: RunJournal) -> Iterator[tuple[str, int]]:
    """The calls that had ended."""
    return ((call.path, call.number) for call in journal.calls if call.status == FINISHED)
