"""The recorded cancels of a run. Each is applied when its branch has repeated all recorded work.

The cause of a cancel (a person, a parent, a tool) would act at another moment in the repeated run.
So the recorded ends decide when it comes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentnb.core._past.answers import Answers, parent_of
from agentnb.core.types import ROOT_PATH, path_key

Due = Callable[[str, str, str], None]
"""Called with the path of the cancelled agent, the reason, and who ordered it."""


class Cancelled(NamedTuple):
    """A recorded cancel of an agent and all below it."""

    path: str
    reason: str
    by: str


class Cancels:
    """All recorded cancels of a run; each belongs to the topmost agent that it ended.

    Args:
        agents: By path: the records of each agent.
        at_and_below: Returns the agents of the branch at a path.
    """

    def __init__(
        self,
        agents: Mapping[str, Answers],
        at_and_below: Callable[[str], Iterator[Answers]],
    ) -> None:
        self._all: list[_Cancel] = []
        self._of: dict[str, list[_Cancel]] = defaultdict(list)
        """By path: the cancels of the agent and of its ancestors."""
        self._ends: dict[str, _Cancel] = {}
        """By path: the cancel that ended the agent."""
        tops = [path for path, each in agents.items() if _is_own_cancel(each, agents)]
        for path in sorted(tops, key=path_key):  # top-down: an inner branch keeps its own cancel
            branch = list(at_and_below(path))
            cancel = _Cancel(_cancel_of(agents[path]), branch)
            self._all.append(cancel)
            for each in branch:
                self._of[each.path].append(cancel)
                self._ends[each.path] = cancel

    def when_due(self, cancel: Due) -> None:
        """Call `cancel` for each branch that reaches its recorded cancel."""
        for each in self._all:
            each.when_due(cancel)

    def met(self, path: str, kind: str, number: int = 0) -> None:
        """Note that an agent reached a point that a cancel may wait for."""
        for cancel in self._of.get(path, ()):
            cancel.met(path, kind, number)

    def leave(self, path: str) -> None:
        """Stop waiting for an agent that differs from its record."""
        for cancel in self._of.get(path, ()):
            cancel.leave(path)

    def is_dropped(self, path: str) -> bool:
        """Whether the recorded cancel of an agent will not be applied."""
        cancel = self._ends.get(path)
        return cancel is not None and cancel.is_dropped

    def open(self) -> Iterator[Cancelled]:
        """The cancels that were not applied yet."""
        return (each.cancelled for each in self._all if each.is_open)


def _cancel_of(answers: Answers) -> Cancelled:
    """The recorded cancel of an agent."""
    if (end := answers.end) is not None:
        return Cancelled(answers.path, end.error or "", end.by)
    order = answers.cancel_order
    assert order is not None  # the process died between the order and the end
    return Cancelled(answers.path, order.value["reason"], order.by)


def _is_own_cancel(answers: Answers, agents: Mapping[str, Answers]) -> bool:
    """Whether an agent was cancelled by a cancel of its own, not by its parent's."""
    if not answers.was_cancelled:
        return False
    parent = None if answers.path == ROOT_PATH else agents.get(parent_of(answers.path))
    if parent is None or not parent.was_cancelled or answers.cancel_order is not None:
        return True
    return _cancel_of(answers)[1:] != _cancel_of(parent)[1:]


class _Cancel:
    """One recorded cancel.

    Args:
        cancelled: Which agent, why, and by whom.
        branch: The agent and all below it.
    """

    def __init__(self, cancelled: Cancelled, branch: Sequence[Answers]) -> None:
        self.cancelled = cancelled
        self.is_open = True
        self.is_dropped = False
        """Whether it will not be applied: its agent differs from the record, none below began."""
        self._due: Due | None = None
        self._below = {each.path for each in branch} - {cancelled.path}
        ended = {
            each.path
            for each in branch
            if each.was_cancelled
            and _cancel_of(each)[1:] == cancelled[1:]
            and (each.cancel_order is None or each.path == cancelled.path)
        }
        parents = {parent_of(path) for path in ended if path != ROOT_PATH}
        self._missing = {
            (each.path, *what)
            for each in branch
            for what in _before_its_cancel(each, parents, was_ended=each.path in ended)
        }

    def when_due(self, cancel: Due) -> None:
        """Call `cancel` when nothing is missing."""
        self._due = cancel
        self._check()

    def met(self, path: str, kind: str, number: int) -> None:
        """Note that an agent reached a point."""
        if (path, kind, number) in self._missing:
            self._missing.discard((path, kind, number))
            self._check()

    def leave(self, path: str) -> None:
        """Stop waiting for an agent. Drop the cancel if it is the top one, and none below began."""
        self._missing = {each for each in self._missing if each[0] != path}
        not_begun = {each for each, kind, _ in self._missing if kind == "begin"}
        if path == self.cancelled.path and self._below <= not_begun:
            self.is_open, self.is_dropped = False, True
        self._check()

    def _check(self) -> None:
        if not self._missing and self._due is not None and self.is_open:
            self.is_open = False
            # Not at once: the agent that came last has yet to begin the wait that the cancel ends.
            asyncio.get_running_loop().call_soon(self._due, *self.cancelled)


def _before_its_cancel(
    answers: Answers, parents: Container[str], *, was_ended: bool
) -> Iterator[tuple[str, int]]:
    """Kind and number of each point that an agent reached before a cancel ended its branch.

    Args:
        answers: The agent's records.
        parents: Paths of the parents of the agents that the cancel ended.
        was_ended: Whether the cancel ended the agent.
    """
    yield "begin", 0
    yield from (each for each in answers.untaken if each[0] != "end")
    if not was_ended:
        yield "end", 0
    elif answers.was_held_to_the_end or (
        answers.path not in parents and not answers.was_ended_in_an_act
    ):
        yield "arrive", 0
