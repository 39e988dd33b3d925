"""A path is the part of an id after the root's; its number counts all tasks of the parent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.errors import OrchestratorError, UnknownAgent
from agentnb.core.events import AgentSpawned, CycleDetected, DepthLimitReached, SpawnIgnored
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import Delegation, Journal
from agentnb.core.request import RequestContext
from agentnb.core.types import SubAgentResult, ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.record import RunRecord, load_run
from agentnb.run import Run
from agentnb.run_store import RunStore
from agentnb.runtime import get_runtime
from agentnb.testing.memory_journal import MemoryJournal
from agentnb.tools.spawn import spawn_tools
from agentnb.views.figures.spans import times
from agentnb.views.outline import lines_below, outline
from agentnb.views.panel.fold import PanelFold
from tests.by_tools import order, start
from tests.support import DEADLINE_S, Hold, by_agent, check_record, run_tree, spawn

THREAD = "nb_20261101_k3x9aa"
OLD_RUN = Path(__file__).parent / "core" / "data" / "run_version_1.json"


def run_on(
    thread_id: str,
    provider: ScriptedProvider,
    *,
    by_tools: bool = False,
    first: int = 1,
    journal: Journal | None = None,
    **limits: Any,
) -> Run:
    """A run with the root `thread_id`, whose first child has the number `first`."""
    request = RequestContext(RequestBudget(1_000_000), thread_id=thread_id, **limits)
    request.numbers.start(thread_id, first)
    bus = EventBus(request.run_id)
    delegation = Delegation(spawn_tools=spawn_tools() if by_tools else ())
    execution = AgentOrchestrator(delegation=delegation).execute(
        provider, AgentContext(), "the task", request, bus, journal=journal
    )
    return Run("the task", execution, request=request, bus=bus, runtime=get_runtime())


def script() -> ScriptedProvider:
    """Jobs, a refused job, a block with a cycle in it, two levels, a failure."""
    return by_agent(
        {
            "root": [
                order(start("J"), start("the task")),
                spawn("A", "the task", "B", before="I split it."),
                "together",
            ],
            "A": [spawn("A1", "A2"), "A is done"],
            "B": Reply(stop_reason="refusal"),
        }
    )


def told_by_paths(run: RunRecord) -> dict[str, Any]:
    """All that a person sees of a run with paths in it, without ids and times."""
    assert run.tree is not None
    fold = PanelFold()
    fold.feed(run._bus.rows_since(0))
    rows = [fold.row(agent_id) for agent_id in fold.tree.agents]
    spawns = [e.event for e in run.events if isinstance(e.event, AgentSpawned)]
    return {
        "outline": outline(run.tree, notes=lines_below(run.tool_counts, run.notes)),
        "tree": str(run.tree),
        "notes": run.notes,
        "tool counts": run.tool_counts,
        "costs": list(run.cost.by_agent),
        "records": [(row["path"], row["task"], row["status"]) for row in run.to_records()],
        "graph": [path for _, path in run.graph.nodes(data="path")],
        "timeline": [agent.path for agent in times(run._bus.rows_since(0)).agents],
        "panel": [(row["path"], row["parent"], row["task"]) for row in rows],
        "notices": fold.summary(1.0, cost="", budget=None).notices,
        "jobs": [event.job_id for event in spawns],
    }


def test_run_of_a_childs_thread_tells_the_same_paths_as_one_of_a_top_level_thread(
    tmp_path: Path,
) -> None:
    def of(thread_id: str) -> Run:
        run = run_on(thread_id, script(), by_tools=True)
        run.result(DEADLINE_S)
        check_record(run.events)
        return run

    top, below = of(THREAD), of(f"{THREAD}.1")
    below.to_json(tmp_path / "run.json")
    loaded = load_run(tmp_path / "run.json")

    assert told_by_paths(below) == told_by_paths(loaded) == told_by_paths(top)
    assert [agent.path for agent in below.tree.walk()] == [  # type: ignore[union-attr]
        "root", "1", "3", "3.1", "3.2", "5",
    ]  # fmt: skip
    assert below.thread_id == loaded.thread_id == f"{THREAD}.1"
    assert below.tree is not None
    assert [agent.agent_id for agent in below.tree.walk()][1:3] == [
        f"{THREAD}.1.1",
        f"{THREAD}.1.3",
    ]
    assert told_by_paths(below)["jobs"].count("") == 5
    assert [
        (row["path"], row["task"]) for row in below.to_records() if row["agent_id"] is None
    ] == [
        ("2", "the task"),
        ("4", "the task"),
    ]
    assert below.agent("3.1").agent_id == f"{THREAD}.1.3.1"
    assert below.agent(f"{THREAD}.1.3").children == ("3.1", "3.2")
    incomplete = {task.path: str(task.status) for task in below.result().incomplete}
    assert incomplete == {"4": "skipped", "5": "failed"}
    assert incomplete == {task.path: str(task.status) for task in top.result().incomplete}


@pytest.mark.parametrize("first", [1, 5])
def test_run_of_a_childs_thread_is_kept_with_the_paths_that_it_told(
    tmp_path: Path, first: int
) -> None:
    store = RunStore.of(tmp_path / "runs.db", None)
    thread_id = f"{THREAD}.1.4"

    def run(journal: Journal | None) -> Run:
        made = run_on(thread_id, script(), by_tools=True, first=first, journal=journal)
        made.result(DEADLINE_S)
        check_record(made.events, {thread_id: first})
        return made

    in_memory = MemoryJournal()
    kept, remembered = run(store.journal()), run(in_memory)
    loaded = store.load(kept.id)

    assert told_by_paths(loaded) == told_by_paths(kept) == told_by_paths(remembered)
    one, three, five = first, first + 2, first + 4
    paths = ["root", f"{one}", f"{three}", f"{three}.1", f"{three}.2", f"{five}"]
    for each in (kept, loaded):
        assert [agent.path for agent in each.agents] == paths
        assert each.thread_id == thread_id
        assert each.agent(f"{three}.1").agent_id == f"{thread_id}.{three}.1"
        assert [call.path for call in each.agent("root").calls] == ["root"] * 3
    assert told_by_paths(kept)["outline"].splitlines()[0].startswith("root ")
    journal = in_memory.load(remembered.id)
    assert {call.path for call in journal.calls} == set(paths)
    assert {end.path for end in journal.ends} == {None, *paths}
    assert {call.path for call in journal.tool_calls} == {"root"}
    [admitted, *_] = [each for each in journal.verdicts if each.kind == "admitted"]
    assert (admitted.path, admitted.value["numbers"]) == ("root", [first])


def test_agent_of_a_run_of_a_childs_thread_is_stopped_by_its_path() -> None:
    hold = Hold()
    held: Sequence[Callable[..., Reply]] = [lambda _: Reply("half", pause=hold)]
    provider = by_agent({"root": [spawn("A", "B"), "together"], "A": held})
    run = run_on(f"{THREAD}.1", provider)
    hold.wait()

    with pytest.raises(UnknownAgent, match=r"known: 'root', '1', '2'"):
        run.cancel("1.1")
    receipt = run.cancel("1")

    assert receipt.agents == (f"{THREAD}.1.1",)
    assert run.result(DEADLINE_S).output == "together"
    fold = PanelFold()
    fold.feed(run._bus.rows_since(0))
    assert fold.summary(1.0, cost="", budget=None).notices == ("Cancelled: 1 (cancelled by hand).",)


def test_run_of_a_childs_thread_that_is_stopped_has_the_paths_of_its_results_in_its_answer() -> (
    None
):
    hold = Hold()
    provider = by_agent({"root": [spawn("A", "B", mode="sequential")], "B": Reply(pause=hold)})
    run = run_on(f"{THREAD}.1", provider)
    hold.wait()
    assert run.cancel().agents == (f"{THREAD}.1", f"{THREAD}.1.2")

    with pytest.raises(OrchestratorError) as error:
        run.result(DEADLINE_S)

    assert error.value.partial_result is not None
    assert "**1 A** (completed)" in error.value.partial_result.output


def paths_of(results: Sequence[SubAgentResult]) -> list[tuple[str, str]]:
    return [(result.path, result.task) for result in results]


async def test_skipped_task_keeps_its_number_and_no_agent_has_it() -> None:
    tree = await run_tree(by_agent({"root": [spawn("a", "the task", "c"), "together"]}))

    assert tree.statuses() == {"root": "completed", "1": "completed", "3": "completed"}
    assert paths_of(tree.result.sub_agent_results) == [("1", "a"), ("2", "the task"), ("3", "c")]
    assert tree.of(CycleDetected)[0].number == 2


async def test_numbers_go_on_over_all_that_an_agent_asks_for_whatever_becomes_of_it() -> None:
    beside_a_tool = Reply(spawn("x", "y"), tool_uses=(ToolUse("t", "spawn", {"task": "job"}),))
    provider = by_agent(
        {
            "root": [
                beside_a_tool,
                order(("spawn", {}), start("the task")),  # one is not valid, one is a cycle
                spawn("a", "b", "c"),
                spawn("after the end"),
                "together",
            ],
            "a": [spawn("too deep"), "by itself"],
        }
    )
    tree = await run_tree(
        provider,
        max_agents=3,
        max_depth=1,
        orchestrator=AgentOrchestrator(delegation=Delegation(spawn_tools=spawn_tools())),
    )

    # The block is before the tool call in the reply, and is reported before the tool runs.
    assert {node.path: node.task for node in tree.result.agent_tree.walk()} == {
        "root": "the task", "3": "job", "5": "a", "6": "b",
    }  # fmt: skip
    assert [(event.tasks, event.numbers) for event in tree.of(SpawnIgnored)] == [
        (("x", "y"), (1, 2)),
        (("c",), (7,)),
        (("after the end",), (8,)),
    ]
    (cycle,) = tree.of(CycleDetected)
    assert (cycle.number, cycle.task_description) == (4, "the task")
    (too_deep,) = tree.of(DepthLimitReached)
    assert (too_deep.tasks, too_deep.numbers) == (("too deep",), (1,))


def test_record_of_before_numbers_were_told_has_the_paths_that_it_had() -> None:
    run = load_run(OLD_RUN)

    assert run.tree is not None
    assert str(run.tree) == "root ✓ completed · root\n├─ 1 ✓ completed · A\n└─ 2 ✗ failed · B"
    assert run.thread_id == run.tree.agent_id
    assert list(run.cost.by_agent) == ["root", "1", "2"]
    assert told_by_paths(run)["timeline"] == ["root", "1", "2"]
    assert told_by_paths(run)["records"] == [
        ("root", "root", "completed"),
        ("1", "A", "completed"),
        ("2", "B", "failed"),
        ("3", "root", "skipped"),
    ]
    assert [agent.path for agent in run.agents] == ["root", "1", "2"]
