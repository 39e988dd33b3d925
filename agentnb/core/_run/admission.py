"""Which tasks may start: asks the limits, records their verdicts, and publishes refusals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from agentnb.core._run.agent import Agent, NumberedTask
from agentnb.core.events import CycleDetected, DepthLimitReached
from agentnb.core.limits import CYCLE, MAX_DEPTH, Refusal
from agentnb.core.request import RunState


class Admission:
    """Admits the tasks of one run's agents.

    Args:
        run: The run's state.
        agents: The run's agents by id, added as they start.
    """

    def __init__(self, run: RunState, agents: Mapping[str, Agent]) -> None:
        self._run = run
        self._bus = run.bus
        self._agents = agents

    def admit(
        self,
        agent: Agent,
        tasks: Sequence[NumberedTask],
        *,
        key: str | None = None,
        in_plan: bool = False,
    ) -> list[Refusal | None]:
        """Ask the limits about each task, and publish those that are refused.

        Args:
            agent: The agent that delegates.
            tasks: The tasks.
            key: Detects the repetition of a single task; by default the task's text.
            in_plan: Whether the tasks are from a person's own list.

        Returns:
            Per task: why it is refused, or `None`.
        """
        limits = self._run.limits
        recorded = self._as_recorded(agent, tasks)
        if recorded is not None:
            for each, refusal in () if in_plan else zip(tasks, recorded, strict=True):
                limits.admit_again(
                    key or each.task, refused_by=None if refusal is None else refusal.limit
                )
            refusals = recorded
        else:
            depth, lineage, above = agent.request.depth + 1, agent.lineage, agent.request.above
            refusals = [
                limits.admit(key or each.task, depth, lineage, above=above, in_plan=in_plan)
                for each in tasks
            ]
        self._keep(agent, tasks, refusals)
        ignored: dict[str, list[NumberedTask]] = {}
        for task, refusal in zip(tasks, refusals, strict=True):
            # A cycle has one event for each task. The other refusals are published together, one
            # event per reason.
            if refusal is not None and refusal.limit == CYCLE:
                self._bus.publish(
                    CycleDetected(
                        agent_id=agent.agent_id,
                        task_description=task.task,
                        cycle_description=refusal.reason,
                        number=task.number,
                    )
                )
            elif refusal is not None:
                ignored.setdefault(refusal.reason, []).append(task)
        for why, theirs in ignored.items():
            agent.ignore(why, theirs)
        return refusals

    def _as_recorded(
        self, agent: Agent, tasks: Sequence[NumberedTask]
    ) -> list[Refusal | None] | None:
        """The limits' recorded verdict, since siblings may now be counted in another order."""
        past = agent.services.past
        numbers = [task.number for task in tasks]
        found = past and past.verdict("admitted", lambda value: value.get("numbers") == numbers)
        if not found:
            return None
        known = {each["number"]: each for each in found["refused"]}
        return [
            Refusal(known[number]["limit"], known[number]["reason"], None)
            if number in known
            else None
            for number in numbers
        ]

    def _keep(
        self, agent: Agent, tasks: Sequence[NumberedTask], refusals: Sequence[Refusal | None]
    ) -> None:
        """Record which tasks were admitted: a later repetition must not depend on their order."""
        refused = [
            {"number": task.number, "limit": refusal.limit, "reason": refusal.reason}
            for task, refusal in zip(tasks, refusals, strict=True)
            if refusal is not None
        ]
        numbers = [task.number for task in tasks]
        agent.services.verdict("admitted", {"numbers": numbers, "refused": refused})

    def publish_too_deep(
        self, agent: Agent, tasks: Sequence[NumberedTask], refusal: Refusal
    ) -> None:
        """Publish that an agent at the deepest level starts none of these tasks."""
        self._keep(agent, tasks, [refusal] * len(tasks))
        self._bus.publish(
            DepthLimitReached(
                agent_id=agent.agent_id,
                attempted_depth=agent.request.depth + 1,
                max_depth=self._run.limits.max_depth,
                tasks=tuple(task for _, task in tasks),
                numbers=tuple(number for number, _ in tasks),
            )
        )

    # -- tasks for other threads: `agentnb.core.request.AdmitsAssignments` -----------------------

    def lineage_of(self, agent_id: str) -> Sequence[str]:
        """See `agentnb.core.request.AdmitsAssignments`."""
        return self._agents[agent_id].lineage

    def gated_for(self, agent_id: str) -> Collection[str]:
        """See `agentnb.core.request.RequestContext.gated_for`."""
        return self._agents[agent_id].request.gated

    def admit_assignment(self, agent_id: str, task: str) -> Refusal | None:
        """See `agentnb.core.request.RequestContext.admit_assignment`."""
        agent = self._agents[agent_id]
        level = agent_id.count(".") + 1
        refusal = self._run.limits.admit(task, level, agent.lineage, above=agent.request.above)
        refused = [] if refusal is None else [{"limit": refusal.limit, "reason": refusal.reason}]
        agent.services.verdict("admitted", {"assigned": task, "refused": refused})
        if refusal is None:
            return None
        if refusal.limit == CYCLE:
            self._bus.publish(
                CycleDetected(
                    agent_id=agent_id,
                    task_description=task,
                    cycle_description=refusal.reason,
                    number=0,
                )
            )
        elif refusal.limit == MAX_DEPTH:
            self._bus.publish(
                DepthLimitReached(
                    agent_id=agent_id,
                    attempted_depth=level,
                    max_depth=self._run.limits.max_depth,
                )
            )
        else:
            agent.ignore(refusal.reason)
        return refusal
