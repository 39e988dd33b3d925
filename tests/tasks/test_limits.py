"""What an agent assigns to a new one counts as a sub-agent; what is refused leaves nothing."""

from __future__ import annotations

from agentnb import Session
from agentnb.core.events import CycleDetected, DepthLimitReached, SpawnIgnored
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from tests.support import DEADLINE_S, events_of, spawn, task_of
from tests.tasks.scripts import (
    BEGINS,
    NEW,
    ROOT,
    assigned,
    by_title,
    create,
    once,
    results,
    title_of,
    tools,
    worked_on,
)


def told(provider: ScriptedProvider, title: str) -> list[str]:
    """The results that an agent was given in its last request."""
    return results([request for request in provider.requests if title_of(request) == title][-1])


def what_is_there(session: Session) -> tuple[int, int, int]:
    """How many threads, agents and tasks."""
    return len(session.threads()), len(session.agents()), len(session.tasks.list())


def test_sub_agents_and_assignments_share_one_limit() -> None:
    def model(request: CompletionRequest) -> AnyReply:
        if request.messages[0].text.startswith(BEGINS) or "<task>" in request.system:
            return "done"
        turns: list[AnyReply] = [
            spawn("P", "Q"),
            tools(create("A"), create("B"), create("C", to=None)),
            tools(("task_update", {"id": "t2", "assigned_to": NEW})),
            spawn("R", before="What I have."),
            "end",
        ]
        return turns[len(request.messages) // 2]

    provider = ScriptedProvider(model)
    session = Session(provider=provider, tools=["tasks"], max_agents=3, store=None)

    run = session.spawn("x")
    run.result(DEADLINE_S)
    (a, c) = worked_on(session)

    made, refused, *_, changed = told(provider, ROOT)
    assert made.startswith("Created.\nt1")
    assert refused == changed == "No agent was made: the run has all of its 3 sub-agents."
    assert (assigned(a), a.title) == (f"{run.thread_id}.3", "A")
    assert (c.title, str(c.status), c.assigned_to) == ("C", "pending", None)
    assert len(events_of(run.events, SpawnIgnored, "root")) == 3
    assert what_is_there(session) == (3, 1, 2)
    assert session.thread(run.thread_id).children[0].id == a.assigned_to
    assert len(session.thread(run.thread_id).children) == 1


def test_agent_at_the_deepest_level_makes_none_and_is_told_so() -> None:
    plays = {ROOT: once(create("A")), "A": once(create("B")), "B": once(create("C"))}
    provider = by_title(plays)
    session = Session(provider=provider, tools=["tasks"], max_depth=2, store=None)

    session.spawn("x").result(DEADLINE_S)
    worked_on(session)

    (refused,) = told(provider, "B")
    assert "depth 3" in refused
    assert "(the deepest is 2)" in refused
    assert what_is_there(session) == (4, 2, 2)


def test_where_no_depth_is_allowed_no_agent_is_made() -> None:
    provider = by_title({ROOT: once(create("A"))})
    session = Session(provider=provider, tools=["tasks"], max_depth=0, store=None)

    run = session.spawn("x")
    run.result(DEADLINE_S)

    assert "(the deepest is 0)" in told(provider, ROOT)[0]
    assert what_is_there(session) == (2, 0, 0)
    assert len(events_of(run.events, DepthLimitReached)) == 1


def test_task_that_comes_back_in_another_run_is_a_cycle() -> None:
    """In the run of B stand the tasks that led to it, those of other runs included."""
    plays = {
        ROOT: once(create("A", "Do  this ")),
        "A": once(create("B", "Do that")),
        "B": once(create("C", "do this"), create("D", "Do that"), create("E", "Do more")),
    }
    provider = by_title(plays)
    session = Session(provider=provider, tools=["tasks"], max_depth=9, store=None)

    session.spawn("x").result(DEADLINE_S)
    worked_on(session)

    above, own, other = told(provider, "B")
    assert "the task of an agent above it" in above
    assert "the task of an agent above it" in own
    assert other.startswith("Created.")
    assert [task.title for task in session.tasks.list()] == ["A", "B", "E"]


def test_all_that_led_to_an_assignment_is_a_cycle_in_the_run_below() -> None:
    """The message of a person to the root, and the task of its sub-agent, which assigns."""
    writes = once(create("Check", "Check it."))

    def first(request: CompletionRequest) -> AnyReply:
        if task_of(request) == "Write the text":
            return writes(request)
        return "together" if len(request.messages) > 1 else spawn("Write the text")

    again = [create("A", "the  REPORT"), create("B", "write the text"), create("C", "Read it.")]
    plays = {ROOT: first, "Check": once(*again), "C": once(create("D", "The report"))}
    provider = by_title(plays)
    session = Session(provider=provider, tools=["tasks"], max_depth=9, store=None)

    session.spawn("The report").result(DEADLINE_S)
    worked_on(session)

    message, task, other = told(provider, "Check")
    assert "the task of an agent above it" in message
    assert "the task of an agent above it" in task
    assert other.startswith("Created.")
    assert "the task of an agent above it" in told(provider, "C")[0]
    assert [task.title for task in session.tasks.list()] == ["Check", "C"]


def test_same_task_is_assigned_as_often_as_the_threshold_allows() -> None:
    provider = by_title({ROOT: once(*[create(f"A{n}", "the same") for n in range(4)])})
    session = Session(provider=provider, tools=["tasks"], store=None)

    run = session.spawn("x")
    run.result(DEADLINE_S)

    *made, refused = told(provider, ROOT)
    assert [each.splitlines()[0] for each in made] == ["Created."] * 3
    assert "threshold of 3" in refused
    (cycle,) = events_of(run.events, CycleDetected)
    assert cycle.number == 0
    assert len(worked_on(session)) == 3
