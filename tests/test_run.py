"""`Run`: wait for it, watch it and steer it, from any thread and any loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from typing import Any

import networkx as nx
import pytest

from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.errors import (
    AgentEnded,
    AuthenticationFailed,
    NoOpenQuestion,
    OrchestratorError,
    RunCancelled,
    UnknownAgent,
)
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentWaiting,
    BudgetChanged,
    BudgetResumed,
    Entry,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
)
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.request import RequestContext
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentStatus, OrchestratorResult, Usage
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run, _ByPanel
from agentnb.runtime import get_runtime
from agentnb.session import Session
from tests.notebook.forked import ForkServer
from tests.support import (
    DEADLINE_S,
    Hold,
    by_agent,
    check_record,
    check_result,
    events_of,
    nothing_left_on_the_runtime,
    requests_of,
    spawn,
)


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with nothing_left_on_the_runtime():
        yield


def held(text: str = "half of it") -> tuple[Session, Hold]:
    """A session whose one agent is held in mid-stream."""
    hold = Hold()
    return Session(provider=ScriptedProvider([Reply(text, pause=hold)])), hold


def held_pair() -> tuple[Run, Hold, ScriptedProvider]:
    """A run whose first child is in mid-stream and whose second has completed."""
    hold = Hold()
    provider = by_agent(
        {
            "root": [spawn("A", "B", before="I split it."), "together"],
            "A": Reply("half of it, and the rest", pause=hold),
        }
    )
    run = Session(provider=provider).spawn("a task")
    hold.wait()
    until(run, AgentCompleted, "2")
    return run, hold, provider


def until(run: Run, kind: type[Any], path: str | None = None) -> Any:
    """Wait for the first event of a kind, on a separate loop."""

    async def first() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            async for entry in run.stream():
                for event in events_of([entry], kind, path):
                    return event
        raise AssertionError(f"the run ended without {kind.__name__}")

    return in_thread(lambda: asyncio.run(first()))


def in_thread(function: Callable[[], Any]) -> Any:
    """Call `function` on a plain thread, and return or raise what it does."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future.result(DEADLINE_S)


async def collected(run: Run) -> list[Entry]:
    async with asyncio.timeout(DEADLINE_S):
        return [entry async for entry in run.stream()]


# -- waiting --------------------------------------------------------------------------------------


def test_spawn_returns_at_once_and_result_waits() -> None:
    session, hold = held()

    run = session.spawn("a task")
    hold.wait()
    assert run.status is AgentStatus.RUNNING
    hold.release()

    assert run.result(DEADLINE_S).output == "half of it"
    assert run.done
    assert str(run.status) == "completed"


async def test_run_can_be_awaited_result_and_run_sync_work_inside_a_running_loop() -> None:
    session = Session(provider=ScriptedProvider(["one", "two", "three"]))

    run = session.spawn("first")
    first = await run

    assert first.output == "one"
    assert await run is first is run.result()
    assert session.spawn("second").result(DEADLINE_S).output == "two"
    assert session.run_sync("third").output == "three"


async def test_waiting_does_not_block_the_waiting_loop() -> None:
    session, hold = held()
    run = session.spawn("a task")

    waiting = asyncio.create_task(run._wait())
    await hold.until_reached()
    assert not waiting.done()
    hold.release()

    assert (await waiting).output == "half of it"


def test_run_is_waited_for_from_plain_threads_and_from_other_loops() -> None:
    session, hold = held()
    run = session.spawn("a task")
    hold.wait()
    results: list[OrchestratorResult] = []

    async def await_it() -> OrchestratorResult:
        return await run

    waiting = [
        threading.Thread(target=lambda: results.append(run.result(DEADLINE_S))),
        threading.Thread(target=lambda: results.append(asyncio.run(await_it()))),
    ]
    for thread in waiting:
        thread.start()
    hold.release()
    results.append(asyncio.run(await_it()))
    for thread in waiting:
        thread.join(DEADLINE_S)

    assert [result.output for result in results] == ["half of it"] * 3


def test_run_sync_works_in_a_plain_thread() -> None:
    session = Session(provider=ScriptedProvider(["ok"]))

    assert in_thread(lambda: session.run_sync("a task")).output == "ok"


def test_result_that_comes_too_late_raises_the_built_in_error_and_the_run_continues() -> None:
    session, hold = held()
    run = session.spawn("a task")
    hold.wait()

    with pytest.raises(TimeoutError, match="continues"):
        run.result(timeout=0)
    assert run.status is AgentStatus.RUNNING
    hold.release()

    assert run.result(DEADLINE_S).output == "half of it"


async def test_await_that_is_cancelled_ends_the_waiting_only() -> None:
    session, hold = held()
    run = session.spawn("a task")
    waiting = asyncio.create_task(run._wait())
    await hold.until_reached()

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not run.done
    hold.release()

    assert (await run).output == "half of it"


async def test_cancelled_wait_of_an_owner_cancels_the_run() -> None:
    session, hold = held()
    run = session.spawn("a task")
    waiting = asyncio.create_task(run.wait_or_cancel())
    await asyncio.sleep(0)  # its first step
    await hold.until_reached()

    waiting.cancel()
    with pytest.raises(RunCancelled, match="interrupted") as raised:
        await waiting

    assert raised.value.partial_result is not None
    assert raised.value.partial_result.final_response.startswith("half of it")


def test_error_of_a_run_is_raised_to_everyone_who_waits_after_the_last_event() -> None:
    provider = ScriptedProvider([AuthenticationFailed("wrong key", status_code=401)])
    run = Session(provider=provider).spawn("a task")

    for _ in range(2):
        with pytest.raises(OrchestratorError, match="wrong key") as raised:
            run.result(DEADLINE_S)
    check_record(run.events)
    assert raised.value.partial_result is not None
    check_result(raised.value.partial_result, run.events)
    assert run.status is AgentStatus.FAILED
    with pytest.raises(OrchestratorError, match="wrong key"):
        asyncio.run(run._wait())


# -- watching -------------------------------------------------------------------------------------


async def test_stream_tells_everything_from_the_beginning_to_the_end() -> None:
    session, hold = held()
    run = session.spawn("a task")
    early = asyncio.create_task(collected(run))
    await hold.until_reached()
    middle = asyncio.create_task(collected(run))
    elsewhere = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(collected(run))))
    hold.release()
    await run
    late = await collected(run)

    assert isinstance(late[0].event, RunStarted)
    assert isinstance(late[-1].event, RunFinished)
    assert await early == await middle == await elsewhere == late == run.events


def test_events_are_dense_in_mid_run_and_at_the_end() -> None:
    run, hold, _ = held_pair()

    before = run.events
    assert [entry.seq for entry in before] == list(range(len(before)))
    assert {entry.run_id for entry in before} == {run.id}
    hold.release()
    run.result(DEADLINE_S)

    assert run.events[: len(before)] == before
    check_record(run.events)


def test_tree_graph_and_records_are_current_in_mid_run() -> None:
    run, hold, _ = held_pair()
    graph = run.graph
    assert run.tree is not None
    root, first, second = (node.agent_id for node in run.tree.walk())

    assert isinstance(graph, nx.DiGraph)
    assert list(graph.edges) == [(root, first), (root, second)]
    assert [str(graph.nodes[n]["status"]) for n in graph] == ["running", "running", "completed"]
    assert [graph.nodes[n]["task"] for n in graph] == ["a task", "A", "B"]
    assert [graph.nodes[n]["depth"] for n in graph] == [0, 1, 1]
    assert graph.nodes[second]["tokens"] > 0
    assert graph.nodes[second]["model"] == "scripted"
    assert str(run.tree) == "root ► running · a task\n├─ 1 ► running · A\n└─ 2 ✓ completed · B"
    hold.release()
    result = run.result(DEADLINE_S)

    assert run.tree == result.agent_tree == TreeFold(run.events).root()
    records = run.to_records()
    assert [(r["path"], r["status"], r["task"]) for r in records] == [
        ("root", "completed", "a task"),
        ("1", "completed", "A"),
        ("2", "completed", "B"),
    ]
    assert sum(r["tokens_used"] for r in records) == result.total_tokens_used
    assert [r["agent_id"] for r in records] == [root, first, second]
    assert run.usage == result.usage


def test_run_can_be_asked_before_it_has_begun() -> None:
    session, hold = held()
    blocked, go = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        assert go.wait(DEADLINE_S)

    get_runtime().loop.call_soon_threadsafe(block)
    assert blocked.wait(DEADLINE_S)
    run = session.spawn("a task")

    assert (run.status, run.tree, run.events) == (AgentStatus.PENDING, None, [])
    assert len(run.graph) == 0
    assert run.to_records() == []
    assert repr(run) == "Run('a task', pending)"
    go.set()
    hold.release()
    run.result(DEADLINE_S)


def test_repr_is_one_stable_line_without_ids_and_times() -> None:
    run = Session(provider=ScriptedProvider(["ok"])).spawn("a task\nof two lines " + "x" * 100)
    run.result(DEADLINE_S)

    assert repr(run) == f"Run('a task of two lines {'x' * 39}…', completed)"


def test_ids_are_those_of_the_contract() -> None:
    runs = [Session(provider=ScriptedProvider(["ok"])).spawn("a task") for _ in range(3)]
    for run in runs:
        run.result(DEADLINE_S)

    assert all(len(run.id) == 32 and int(run.id, 16) for run in runs)
    assert {(run.id[12], run.id[16] in "89ab") for run in runs} == {("7", True)}
    assert len({run.id for run in runs}) == 3


# -- cancelling -----------------------------------------------------------------------------------


def test_branch_is_cancelled_by_its_path_and_the_receipt_says_what_was_stopped() -> None:
    run, _, provider = held_pair()

    receipt = run.cancel("1", reason="took too long")
    result = run.result(DEADLINE_S)

    assert run.tree is not None
    assert receipt.agents == (run.tree.children[0].agent_id,)
    assert receipt.still_running == ()
    assert receipt.duration_ms >= 0
    assert [str(r.status) for r in result.sub_agent_results] == ["cancelled", "completed"]
    assert result.sub_agent_results[0].response == "half of it,"
    assert result.output == "together"
    assert len(requests_of(provider, "root")) == 2


def test_branch_is_cancelled_by_its_agents_id_with_all_below_it() -> None:
    hold = Hold()
    script: dict[str, Any] = {
        "root": [spawn("P"), "ok"],
        "P": spawn("C"),
        "C": Reply("half", pause=hold),
    }
    run = Session(provider=by_agent(script)).spawn("a task")
    hold.wait()
    assert run.tree is not None
    parent = run.tree.children[0]

    receipt = run.cancel(parent.agent_id)
    run.result(DEADLINE_S)

    assert receipt.agents == (parent.agent_id, parent.children[0].agent_id)


@pytest.mark.parametrize("name", [None, "root"])
def test_whole_run_is_cancelled_and_has_ended_when_cancel_returns(name: str | None) -> None:
    run, _, _ = held_pair()

    receipt = run.cancel(name)

    assert run.done
    assert run.status is AgentStatus.CANCELLED
    assert run.tree is not None
    assert receipt.agents == (run.tree.agent_id, run.tree.children[0].agent_id)
    with pytest.raises(RunCancelled, match="cancelled by hand") as raised:
        run.result()
    partial = raised.value.partial_result
    assert partial is not None
    assert partial.pre_spawn_text == "I split it."
    assert [r.response for r in partial.sub_agent_results] == ["half of it,", "done: B"]
    check_record(run.events)


def test_second_cancel_is_a_receipt_of_nothing() -> None:
    run, _, _ = held_pair()

    first, second = run.cancel(), run.cancel()

    assert len(first.agents) == 2
    assert (second.agents, second.still_running) == ((), ())


def test_cancel_of_a_run_that_has_ended_changes_nothing() -> None:
    run = Session(provider=ScriptedProvider(["ok"])).spawn("a task")
    run.result(DEADLINE_S)

    assert run.cancel().agents == ()
    assert run.status is AgentStatus.COMPLETED


def test_unknown_agent_is_named_with_the_known_ones() -> None:
    run, hold, _ = held_pair()

    with pytest.raises(UnknownAgent, match=r"'7\.7'.*'root', '1', '2'"):
        run.cancel("7.7")
    hold.release()

    assert run.result(DEADLINE_S).output == "together"


def test_run_is_cancelled_before_its_first_step() -> None:
    provider = ScriptedProvider([])
    session = Session(provider=provider)

    def spawn_and_cancel() -> Run:
        run = session.spawn("a task")  # on this thread, it cannot begin before this returns
        run.cancel(reason="changed my mind")
        return run

    run = get_runtime().call(spawn_and_cancel)

    with pytest.raises(RunCancelled, match="changed my mind"):
        run.result(DEADLINE_S)
    assert provider.requests == []
    check_record(run.events)


def test_run_is_cancelled_from_another_thread() -> None:
    run, _, _ = held_pair()

    receipt = in_thread(run.cancel)

    assert len(receipt.agents) == 2
    assert run.done


def test_orders_on_the_runtime_thread_do_not_wait() -> None:
    run, _, provider = held_pair()
    runtime = get_runtime()
    session = Session(provider=provider)

    with pytest.raises(RuntimeError, match="await"):
        runtime.call(run.result)
    with pytest.raises(RuntimeError, match="await"):
        runtime.call(lambda: session.run_sync("another"))
    assert session.newest_run is None
    receipt = runtime.call(run.cancel)

    assert receipt.still_running == receipt.agents
    with pytest.raises(RunCancelled):
        run.result(DEADLINE_S)


def test_many_cancels_at_once_stop_each_agent_once() -> None:
    run, _, _ = held_pair()
    receipts: list[Any] = []
    together = threading.Barrier(8)

    def cancel() -> None:
        together.wait(DEADLINE_S)
        receipts.append(run.cancel())

    threads = [threading.Thread(target=cancel) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)

    assert len(receipts) == 8
    assert sum(len(receipt.agents) for receipt in receipts) == 2
    check_record(run.events)


# -- pauses ---------------------------------------------------------------------------------------


def test_paused_run_begins_nothing_more_and_continues_when_it_is_resumed() -> None:
    run, hold, provider = held_pair()
    asked = len(provider.requests)

    in_thread(run.pause)
    assert [*run.paused] == ["root"]
    hold.release()
    assert until(run, AgentWaiting, "root").reason == "paused"
    with pytest.raises(TimeoutError):
        run.result(0.05)  # the run continues: it waits for a person
    assert len(provider.requests) == asked
    assert run.status is AgentStatus.WAITING
    run.resume()

    assert run.result(DEADLINE_S).output == "together"
    assert [*run.paused] == []
    assert [each.agent_id for each in events_of(run.events, RunPaused)] == [None]
    check_record(run.events)


def test_branch_is_named_by_its_path_or_id_and_the_panel_says_that_it_was_the_panel() -> None:
    run, hold, _ = held_pair()
    clicks = run._live().commands
    assert clicks is not None

    run.pause("1")
    run.pause(run.agent("1").agent_id)  # once more: nothing changes
    assert run.paused == ("1",)
    _ByPanel(run).resume("1")
    _ByPanel(run).pause()
    run.resume()
    hold.release()
    run.result(DEADLINE_S)

    orders = [(each.agent_id, each.by) for each in events_of(run.events, RunPaused)]
    assert orders == [(f"{run.thread_id}.1", "code"), (None, "panel")]
    orders = [(each.agent_id, each.by) for each in events_of(run.events, RunResumed)]
    assert orders == [(f"{run.thread_id}.1", "panel"), (None, "code")]


@pytest.mark.parametrize("order", [Run.pause, Run.resume])
def test_agent_that_is_unknown_or_has_ended_is_not_paused(
    order: Callable[[Run, str | None], None],
) -> None:
    run, hold, _ = held_pair()

    with pytest.raises(UnknownAgent, match=r"'7\.7'"):
        order(run, "7.7")
    with pytest.raises(AgentEnded) as raised:
        order(run, "2")
    assert raised.value.path == "2"
    hold.release()
    run.result(DEADLINE_S)
    for agent, path in ((None, "root"), ("1", "1")):
        with pytest.raises(AgentEnded) as raised:
            order(run, agent)
        assert raised.value.path == path


# -- the budget -----------------------------------------------------------------------------------


def test_budget_is_set_in_mid_run_and_in_force_when_the_order_returns() -> None:
    run, hold, _ = held_pair()

    run.set_budget(123_456)

    assert run.budget.total == 123_456
    assert events_of(run.events, BudgetChanged)[-1].budget_total == 123_456
    hold.release()
    assert run.result(DEADLINE_S).status is AgentStatus.COMPLETED


def test_budget_set_below_what_is_used_ends_the_run_without_an_error() -> None:
    run, _, _ = held_pair()

    run.set_budget(1)
    result = run.result(DEADLINE_S)

    assert result.status is AgentStatus.EXHAUSTED
    assert "half of it," in result.output
    assert run.status is AgentStatus.EXHAUSTED


@pytest.mark.parametrize("total", [-1, "many", 1.5, True])
def test_budget_that_is_no_number_of_tokens_is_refused(total: Any) -> None:
    run, hold, _ = held_pair()

    with pytest.raises(ValueError, match=repr(total)):
        run.set_budget(total)
    hold.release()

    assert run.result(DEADLINE_S).status is AgentStatus.COMPLETED


def attended() -> Run:
    """A run that waits for a person's answer, with a person there."""
    plan = Reply(spawn("A"), usage=Usage(85_000, 0))
    provider = by_agent({"root": [plan, "what there is"]})
    request = RequestContext(RequestBudget(100_000), is_attended=lambda: True)
    bus = EventBus(request.run_id)
    execution = AgentOrchestrator().execute(provider, AgentContext(), "a task", request, bus)
    run = Run("a task", execution, request=request, bus=bus, runtime=get_runtime())
    until(run, AgentWaiting, "1")
    return run


@pytest.mark.parametrize(
    ("answer", "status"), [("continue", AgentStatus.COMPLETED), ("stop", AgentStatus.EXHAUSTED)]
)
def test_paused_run_is_answered_from_any_thread(answer: str, status: AgentStatus) -> None:
    run = attended()
    assert run.status is AgentStatus.RUNNING

    in_thread(lambda: run.answer_budget(answer))

    assert run.result(DEADLINE_S).status is status
    assert [e.reason for e in events_of(run.events, BudgetResumed)] == [answer]


@pytest.mark.parametrize(
    ("answer", "status"), [("continue", AgentStatus.COMPLETED), ("stop", AgentStatus.EXHAUSTED)]
)
def test_budget_s_question_is_one_of_the_run_s_and_is_answered_once(
    answer: str, status: AgentStatus
) -> None:
    run = attended()
    (question,) = run.questions
    assert (question.id, question.kind, question.path) == ("q1", "budget", "root")
    assert question.options == ("continue", "stop")

    with pytest.raises(ValueError, match="'continue' or 'stop'"):
        run.answer("q1", "approve")
    run.answer("q1", answer)
    assert run.questions == ()
    with pytest.raises(NoOpenQuestion):
        run.answer("q1", "stop")

    assert run.result(DEADLINE_S).status is status
    assert [e.reason for e in events_of(run.events, BudgetResumed)] == [answer]
    with pytest.raises(NoOpenQuestion):
        run.answer("q1", answer)


def test_raise_resumes_a_paused_run() -> None:
    run = attended()

    run.set_budget(200_000)

    assert run.result(DEADLINE_S).status is AgentStatus.COMPLETED


def test_order_says_whether_it_came_from_a_panel_or_from_code() -> None:
    run = attended()
    clicks = run._live().commands
    assert clicks is not None

    run.set_budget(90_000)
    clicks.answer("continue")
    run.result(DEADLINE_S)

    assert [e.by for e in events_of(run.events, BudgetChanged)] == ["code"]
    assert [e.by for e in events_of(run.events, BudgetResumed)] == ["panel"]

    run = attended()
    commands = run._live().commands
    assert commands is not None
    commands.set_budget(90_000)  # first: the run ends without the agent that waits for an answer
    commands.cancel("1")
    run.result(DEADLINE_S)

    assert [e.by for e in events_of(run.events, BudgetChanged)] == ["panel"]
    assert [e.by for e in events_of(run.events, AgentCancelled)] == ["panel"]


def test_answer_where_nothing_is_asked_is_refused() -> None:
    run, hold, _ = held_pair()

    with pytest.raises(NoOpenQuestion):
        run.answer_budget("continue")
    with pytest.raises(ValueError, match="perhaps"):
        run.answer_budget("perhaps")
    hold.release()
    run.result(DEADLINE_S)


# -- interrupts -----------------------------------------------------------------------------------

_INTERRUPTED = """
    import os, signal, threading
    from agentnb import Reply, Run, RunCancelled, ScriptedProvider, Session
    from tests.support import DEADLINE_S, Hold

    streaming, closing, waiting = Hold(), Hold(), threading.Event()

    class Stubborn:
        name = "stubborn"

        async def stream(self, request):
            try:
                await streaming()
                yield
            finally:
                await closing()

    class WatchedRun(Run):
        def result(self, timeout=None):
            waiting.set()
            return super().result(timeout)

    import agentnb.session
    agentnb.session.Run = WatchedRun

    def interrupt():
        streaming.wait()
        assert waiting.wait(DEADLINE_S)
        {interrupt}
        {then}

    threading.Thread(target=interrupt, daemon=True).start()
    session = Session(provider={provider})
    try:
        session.run_sync("a task")
    except RunCancelled as error:
        print(error.partial_result.status, error.partial_result.final_response.splitlines()[0])
    except KeyboardInterrupt:
        print("gave up,", session.newest_run.status)
    """


def test_waits_that_were_given_up_leave_nothing_with_the_run() -> None:
    session, hold = held()
    run = session.spawn("a task")
    hold.wait()

    async def give_up(times: int) -> None:
        for _ in range(times):
            waiting = asyncio.ensure_future(run)
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])

    asyncio.run(give_up(1))
    before = len(run._future._done_callbacks)  # type: ignore[attr-defined]  # private to Python
    asyncio.run(give_up(50))

    assert len(run._future._done_callbacks) == before  # type: ignore[attr-defined]
    assert run._waiting == set()
    hold.release()
    run.result(DEADLINE_S)


INTERRUPT = "os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize(
    "interrupt",
    [
        INTERRUPT,
        # Python keeps the signal for the main thread and does not wake it: as if it came between
        # the main thread's last check for signals and its sleep, which no test can time.
        "signal.pthread_kill(threading.get_ident(), signal.SIGINT)",
    ],
    ids=["process", "another thread"],
)
def test_interrupt_of_run_sync_cancels_the_run_and_raises_with_what_was_reached(
    interrupt: str, fork_server: ForkServer
) -> None:
    provider = "ScriptedProvider([Reply('half of it', pause=streaming)])"

    printed = fork_server.printed_by(
        _INTERRUPTED.format(provider=provider, interrupt=interrupt, then="")
    )

    assert printed == "cancelled half of it\n"


def test_second_interrupt_gives_up_waiting_for_a_run_that_does_not_stop(
    fork_server: ForkServer,
) -> None:
    then = f"closing.wait(); {INTERRUPT}"

    printed = fork_server.printed_by(
        _INTERRUPTED.format(provider="Stubborn()", interrupt=INTERRUPT, then=then)
    )

    assert printed == "gave up, running\n"
