"""What a journal is handed, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentnb.core.errors import InternalError
from agentnb.core.events import AgentCompleted, Entry, ModelCallFinished, RunFinished, is_terminal
from tests.core.tool_bodies import Tool, order
from tests.support import by_agent, make_tree, run_tree, spawn


class Keeper:
    """Keeps what it is handed, and how much of it each commit has kept."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.kept: list[int] = []

    def published(self, entries: Sequence[Entry]) -> None:
        self.entries += entries

    async def commit(self) -> None:
        self.kept.append(len(self.entries))


async def test_journal_is_handed_the_whole_record_once_and_in_order() -> None:
    keeper = Keeper()
    tree = await run_tree(by_agent({"root": [spawn("A", "B"), "ok"]}), journal=keeper)

    assert keeper.entries == tree.entries
    assert isinstance(keeper.entries[-1].event, RunFinished)


async def test_what_stands_before_a_finished_or_terminal_event_is_kept_before_it_is_told() -> None:
    async def body(*_: object) -> str:
        return "seen"

    keeper = Keeper()
    provider = by_agent({"root": [order("look"), spawn("A"), "ok"]})
    tree = await run_tree(provider, journal=keeper, tools=[Tool(body)])

    told = [
        entry
        for entry in tree.entries
        if is_terminal(entry.event) or isinstance(entry.event, ModelCallFinished)
    ]
    assert any(isinstance(entry.event, AgentCompleted) for entry in told)
    for entry in told:
        # All that its own agent did before it was handed over by the last commit before it.
        own = [e.seq for e in tree.entries[: entry.seq] if _of(e) == _of(entry)]
        assert max(own) < max(kept for kept in keeper.kept if kept <= entry.seq)


def _of(entry: Entry) -> object:
    return getattr(entry.event, "agent_id", None)


async def test_journal_that_takes_nothing_fails_the_run_and_no_agent() -> None:
    class Full(Keeper):
        def published(self, entries: Sequence[Entry]) -> None:
            raise OSError("disk full")

    tree = make_tree(by_agent({"root": [spawn("A"), "ok"]}), journal=Full())
    await tree.run()

    assert tree.statuses() == {"root": "completed", "1": "completed"}
    assert isinstance(tree.error, InternalError)
    assert "OSError in the journal: disk full" in str(tree.error)


@pytest.mark.parametrize("delegates", [False, True])
async def test_journal_that_only_commits_needs_nothing_else(delegates: bool) -> None:
    class Bare:
        async def commit(self) -> None:
            return

    replies = {"root": [spawn("A"), "ok"] if delegates else "ok"}
    tree = await run_tree(by_agent(replies), journal=Bare())

    assert tree.error is None
