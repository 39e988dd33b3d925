"""Two real kernels are one session: cells of both speak to the same threads and make its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import NO_SESSION, Kernel, a_door
from tests.soak.kernels import one_round
from tests.soak.one_session import Round

SCRIPT = """
%load_ext agentnb
import agentnb, asyncio
from agentnb import Reply, ToolUse

heard = long = 0
hold = None

def model(request):
    global heard
    told = [message.text for message in request.messages if message.role == "user"]
    if "A task that you created is completed" in told[-1]:
        heard += 1
        return "I have heard it." + "x" * long
    if told[0] == "delegate" and "<sub_agent_results>" not in told[-1]:
        return '<spawn_agents><agent task="P"/><agent task="Q"/></spawn_agents>'
    if 'Title: "P' in told[0]:
        return Reply("y" * 8_000, pause=hold)
    if 'Title: "Assign"' in told[0] and len(told) == 1:
        part = {"title": "P", "prompt": "Do it.", "assigned_to": "new:scripted/worker"}
        return Reply(tool_uses=tuple(ToolUse(str(n), "task_create", part) for n in range(3)))
    if 'Title: "Create"' in told[0]:
        if len(told) > 1:
            return Reply("It is made.", pause=hold)
        given = {"title": "Part", "prompt": "Do it."}
        return Reply(tool_uses=(ToolUse("1", "task_create", given),))
    return "done"

async def at_rest():
    while session.store.transactions().do(lambda db: db.execute("SELECT 1 FROM queue").fetchone()):
        await asyncio.sleep(0.01)

provider = agentnb.ScriptedProvider(model)
session = agentnb.configure(provider=provider, budget=20_000, max_output_tokens=2_500, **settings)
"""
AT_REST = "await at_rest()"
OPENS = "settings = {{'store': {store!r}, 'id': {id!r}}}"


@pytest.fixture(scope="module")
def kernels(fork_server: ForkServer) -> Iterator[tuple[Kernel, Kernel]]:
    with fork_server.started() as one, fork_server.started() as two:
        yield one, two


@pytest.fixture
def both(kernels: tuple[Kernel, Kernel], tmp_path: Path) -> tuple[Kernel, Kernel]:
    """Two kernels that have the same session open, in a new store."""
    one, two = kernels
    store = str(tmp_path / "x.db")
    one.ok(NO_SESSION, OPENS.format(store=store, id=None), SCRIPT, "%%spawn --quiet\nHello")
    two.ok(NO_SESSION, OPENS.format(store=store, id=one.value("session.id")), SCRIPT)
    return one, two


def at_once(kernels: tuple[Kernel, Kernel], *cells: str) -> None:
    """Run the same cells in both kernels at the same time."""
    sent = [(kernel, kernel.send(cell)) for cell in cells for kernel in kernels]
    shown = [kernel.collect(cell) for kernel, cell in sent]
    assert [each for each in shown if each.status != "ok"] == []


def same(kernels: tuple[Kernel, Kernel], expression: str) -> object:
    """What both kernels say."""
    one, two = (kernel.value(expression) for kernel in kernels)
    assert one == two
    return one


def test_children_of_one_thread_are_numbered_on_whichever_kernel_speaks_to_it(
    both: tuple[Kernel, Kernel],
) -> None:
    one, two = both
    one.ok("%%spawn --quiet\ndelegate")
    thread = one.value("session.thread('last').id")
    cell = f"%%spawn --quiet --thread {thread}\ndelegate"

    two.ok("%%spawn --quiet --thread last\ndelegate")
    one.ok(cell)
    at_once(both, cell, cell, cell)

    runs = f"[session.load(info).agents for info in session.thread({thread!r}).runs]"
    paths = same(both, f"[[agent.path for agent in agents] for agents in {runs}]")
    made = [["root", str(first), str(first + 1)] for first in range(1, 19, 2)]
    assert paths == made[::-1]  # the newest first
    said = same(both, f"[m.content for m in session.thread({thread!r}).messages]")
    assert said == ["delegate", "done"] * 9


def test_tasks_that_both_kernels_make_at_once_have_their_own_numbers_and_agents(
    both: tuple[Kernel, Kernel],
) -> None:
    one, two = both
    cells = [f"%%task new T{n} --to new:scripted/worker\nDo it." for n in range(5)]
    at_once(both, *cells)
    one.ok(AT_REST)
    at_once(both, "%%spawn --quiet --thread worker-3\nAnd then?", "%task note t3 Well done.")
    one.ok("%task done t1")
    two.ok("%task done t2", AT_REST)

    made = same(both, "[(t.id, t.assigned_to) for t in session.tasks.list()]")
    agents = same(both, "[(a.thread_id, a.name) for a in session.agents()]")
    session = one.value("session.id")
    threads = [f"{session}.{number}" for number in range(1, 11)]
    names = ["worker", *(f"worker-{number}" for number in range(2, 11))]
    assert made == [(f"t{number}", threads[number - 1]) for number in range(1, 11)]
    assert agents == list(zip(threads, names, strict=True))
    notes = same(both, "[n.text for n in session.tasks.get('t3').notes]")
    assert notes == ["done", "Well done.", "Well done."]
    spoken = same(
        both, "[m.content for m in session.thread(session.agents()[2].thread_id).messages]"
    )
    assert isinstance(spoken, list)
    assert spoken[1:] == ["done", *["And then?", "done"] * 2]
    listed = [kernel.ok("%task").displays[0]["text/plain"] for kernel in both]
    assert listed[0] == listed[1]
    assert listed[0].startswith("10 tasks: 2 completed, 8 in_progress\n")


@pytest.mark.parametrize("is_at_work", [True, False])
def test_creator_is_told_once_of_a_task_that_the_other_kernel_completes(
    both: tuple[Kernel, Kernel], is_at_work: bool
) -> None:
    one, two = both
    with a_door() as door:
        if is_at_work:
            one.ok(door.hold)
        one.ok("%%task new Create --to new:scripted/creator\nMake a part.")
        if is_at_work:
            door.wait_for_knock()
        else:
            one.ok(AT_REST)
        two.ok("%task done t2")
        door.open()
        one.ok(AT_REST, "%task done t2", AT_REST)

    messages = "session.thread(session.tasks.get('t1').assigned_to).messages"
    told = same(both, f"[m.content for m in {messages} if m.kind == 'task_completion']")
    assert isinstance(told, list)
    assert [text.splitlines()[1] for text in told] == ['Title: "Part"']
    assert same(both, f"{messages}[-1].content") == "I have heard it."
    assert one.value("heard") + two.value("heard") == 1


def test_run_spends_no_more_than_its_budget_in_both_kernels(both: tuple[Kernel, Kernel]) -> None:
    one, two = both
    with a_door() as door:
        one.ok(door.hold, "%%task new Assign --to new:scripted/creator\nGive it away.")
        for _ in range(3):
            door.wait_for_knock()
        for kernel in both:
            kernel.ok("long = 8_000")  # either may be the one that tells the creator
        two.ok("%task done t2")  # its creator hears of it when one is at rest
        door.open()
        one.ok(AT_REST)
    two.ok(AT_REST, "%task done t3", AT_REST, "%task done t4", AT_REST)

    below = "[info for agent in session.agents() for info in session.thread(agent.thread_id).runs]"
    runs = same(both, f"[(str(info.status), info.tokens_used) for info in {below}]")
    assert isinstance(runs, list)
    assert [status for status, _ in runs] == ["exhausted", *["completed"] * 6]
    assert 15_000 < sum(tokens for _, tokens in runs) <= 20_000


def test_two_kernels_lose_no_message_also_when_one_is_killed(
    kernels: tuple[Kernel, Kernel], tmp_path: Path
) -> None:
    done, faults = one_round(Round(tmp_path / "x", 100, 6, 16, is_killed=True), kernels)

    assert faults == []
    assert done.startswith("100 messages to 6 agents, one kernel killed after ")


BOARDS = """
given = session.tasks.create("Check", "Is it so?", assigned_to="new:scripted/reviewer")
session.thread(given.assigned_to).send("And now?").result()
session.tasks.create("Later", "Some day.", priority="low"); session.tasks.complete("t1", "Yes.");
"""


def test_boards_are_the_same_outputs_in_two_kernels(
    kernels: tuple[Kernel, Kernel], tmp_path: Path
) -> None:
    seen = []
    for number, kernel in enumerate(kernels):
        kernel.ok(NO_SESSION, OPENS.format(store=str(tmp_path / f"{number}.db"), id=None), SCRIPT)
        kernel.ok(BOARDS, AT_REST)
        shown = [kernel.ok(cell) for cell in ("session.tasks.panel()", "session.threads_panel()")]
        for each in shown:
            assert each.order == ["view", "display"]
            assert [*each.views[0][0]] == ["application/vnd.jupyter.widget-view+json"]
            assert each.unstable == []
        board = kernel.ok("session.tasks")
        tables = [each.displays[0]["text/plain"] for each in shown]
        assert tables[0] == board.result
        seen.append((tables, [each.displays for each in shown], board.result_data))

    assert seen[0] == seen[1]
    assert seen[0][0] == [
        "2 tasks: 1 pending, 1 completed\n\n"
        "    task   status     priority  agent     notes\n"
        "t2  Later  pending    low                 0\n"
        "t1  Check  completed  medium    reviewer  2",
        "2 threads\n\n"
        "   thread               kind        model              status       messages\n"
        "0  reviewer             persistent  scripted/reviewer  ✓ completed  4\n"
        "1  (the session's own)                                 ○ pending    0",
    ]
