"""What a person should be told of a run beyond its tree: what was stopped, what was not done."""

from __future__ import annotations

from collections.abc import Sequence

from agentnb.core.events import BudgetExhausted, BudgetResumed, Event, RunFinished
from agentnb.core.shown import listed
from agentnb.core.text import visible
from agentnb.core.tree import AgentState, TreeFold
from agentnb.core.types import ROOT_PATH, AgentStatus, path_key

_MOST_PATHS = 12
_WHY_RESUMED = {
    "stop": "Stopped at the budget's question: no new calls are made.",
    "timeout": "Nobody answered the budget's question in time: no new calls are made.",
    "lowered": "The total was set to what is used already.",
}


class Told:
    """Collects what happened to a run as a whole, and says it in lines."""

    def __init__(self) -> None:
        self.is_stale = False
        """Whether an agent ended in a way that may be worth a line."""
        self._answers: list[str] = []
        self._exhausted: BudgetExhausted | None = None
        self._end: RunFinished | None = None
        self._lines: tuple[str, ...] = ()

    def learn(self, event: Event) -> None:
        """Learn of an event of the run as a whole."""
        match event:
            case BudgetResumed(reason=reason) if reason.startswith("stop: "):
                self._answers.append(visible(f"Stopped: {reason.removeprefix('stop: ')}", 200))
            case BudgetResumed(reason=reason) if reason in _WHY_RESUMED:
                self._answers.append(_WHY_RESUMED[reason])
            case BudgetExhausted():
                self._exhausted = event
            case RunFinished():
                self._end = event
            case _:
                return
        self.is_stale = True

    def lines(self, tree: TreeFold) -> tuple[str, ...]:
        """One visible line for each thing to tell, oldest first."""
        if self.is_stale:
            self.is_stale = False
            self._lines = tuple(self._made(tree))
        return self._lines

    def _made(self, tree: TreeFold) -> list[str]:
        lines = [*self._answers]
        if self._exhausted is not None:
            lines.append(_of_exhausted(self._exhausted, tree))
        lines += _of_cancelled(tree)
        if self._end is not None:
            lines += self._of_end(self._end, tree)
        return lines

    def _of_end(self, end: RunFinished, tree: TreeFold) -> list[str]:
        if end.status is AgentStatus.FAILED:
            return [visible(f"The run failed: {end.error}", 300)]
        if end.status is not AgentStatus.EXHAUSTED or self._exhausted is not None:
            return []
        # Only the bringing together is missing: nothing was told of it before.
        root = next((agent for agent in tree.agents.values() if not agent.depth), None)
        why = root.error if root is not None and root.error else "the budget ended"
        done = [a.path for a in tree.agents.values() if a.status is AgentStatus.COMPLETED]
        return [visible(f"Not brought together: {why}. Done: {_listed(done) or 'nothing'}.", 300)]


def untold_notes(tree: TreeFold) -> dict[str, list[str]]:
    """Those of a tree's notes that neither the lines of a run that ended tell, nor its answer.

    The lines tell why a branch was cancelled and why the run failed, the answer of an exhausted
    run why it is not whole. Why a sub-agent failed may be cut on its card; any other note stands
    in the details alone, which have to be opened.
    """
    return {
        agent.path: lines
        for agent in tree.in_path_order()
        if (lines := [*([] if _is_told(agent) else agent.reasons), *agent.notes])
    }


def _is_told(agent: AgentState) -> bool:
    return agent.parent_id is None or agent.status is AgentStatus.CANCELLED


def _of_exhausted(event: BudgetExhausted, tree: TreeFold) -> str:
    done = _listed([tree.path_of(agent_id) for agent_id in event.completed_agents])
    undone = [tree.path_of(agent_id) for agent_id in event.incomplete_agents]
    left = _listed([path for path in undone if path != ROOT_PATH])
    what_was_done = f"Done by then: {done or 'nothing'}."
    if event.tokens_used >= event.budget_total:
        head = f"The budget is used up at {event.tokens_used:,} of {event.budget_total:,} tokens."
        return f"{head} {what_was_done} Not done: {left or 'the answer itself'}."
    # Others may go on, and a raised total does not give back what was cut before.
    head = f"At {event.tokens_used:,} of {event.budget_total:,} tokens the budget had no room for"
    return f"{head} {left or 'the answer itself'}. {what_was_done}"


def _of_cancelled(tree: TreeFold) -> list[str]:
    """One line for each branch that was stopped, by its topmost agent."""
    gone = {
        agent_id: agent
        for agent_id, agent in tree.agents.items()
        if agent.status is AgentStatus.CANCELLED
    }
    tops: dict[str, str] = {}
    below: dict[str, list[str]] = {}
    for agent in sorted(gone.values(), key=lambda agent: agent.key):  # a parent before its own
        if agent.parent_id in gone:
            top = tops[agent.agent_id] = tops[str(agent.parent_id)]
            below[top].append(agent.path)
        else:
            tops[agent.agent_id], below[agent.agent_id] = agent.agent_id, []
    return [_of_branch(gone[top], paths) for top, paths in below.items()]


def _of_branch(top: AgentState, below: Sequence[str]) -> str:
    whom, more = top.path, f" with {_listed(below)} below it" if below else ""
    if top.parent_id is None:
        whom, more = "the run", f" with {_listed(below)} that were at work" if below else ""
    return visible(f"Cancelled: {whom}{more} ({top.error or 'no reason given'}).", 300)


def _listed(paths: Sequence[str]) -> str:
    return listed(sorted(paths, key=path_key), most=_MOST_PATHS, none="")
