"""`session.recover(run, budget=…)`: an exhausted run continues with a larger budget."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import CannotRecover, Reply, Run, RunChanged, Session
from agentnb.core.events import AgentExhausted, BudgetChanged, RunFinished, RunStarted
from agentnb.core.types import CompletionRequest, ToolUse
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from tests.recover_scene import BIG, LONG, SMALL, is_exhausted, killed
from tests.recover_scene import session_of as session_in
from tests.support import DEADLINE_S, Hold, events_of, task_of, until


def answer(request: CompletionRequest) -> AnyReply:
    return is_exhausted(request, None)


def session_of(store: Path, **settings: Any) -> tuple[Session, ScriptedProvider]:
    provider = ScriptedProvider(answer)
    given = {"on_budget_warning": "continue", "provider": provider, "config": False}
    return Session(store=store, **{**given, **settings}), provider


def exhausted(session: Session, **more: Any) -> Run:
    run = session.spawn("the task", budget=SMALL, **more)
    assert str(run.result(DEADLINE_S).status) == "exhausted"
    return run


def test_exhausted_run_does_what_was_left_undone_and_keeps_what_was_finished(
    tmp_path: Path,
) -> None:
    first, _ = session_of(tmp_path / "x.db")
    run_id = exhausted(first).id
    spent = first.runs()[0].tokens_used
    session, provider = session_of(tmp_path / "x.db")

    run = session.recover(run_id, budget=BIG)
    result = run.result(DEADLINE_S)

    assert (run.id, result.output) == (run_id, "All of it.")
    assert [task_of(each) for each in provider.requests] == ["B", "C", "root"]
    assert {node.path: str(node.status) for node in result.agent_tree.walk()} == dict.fromkeys(
        ("root", "1", "2", "3"), "completed"
    )
    assert run.receipt is not None
    assert run.receipt.again == ("root", "2")
    assert run.receipt.reused.calls == 2
    assert run.receipt.uncertain == ()
    assert run.budget.total == BIG
    (info,) = session.runs()
    assert str(info.status) == "completed"
    assert info.tokens_used == run.budget.tokens_used > spent + 9_000
    record = session.load(run_id)
    assert len(events_of(record.events, RunStarted)) == len(events_of(record.events, RunFinished))
    own, _ = session_of(tmp_path / "x.db", id=info.session_id)
    texts = [each.content for each in own.thread(run.thread_id).messages]
    assert texts == ["the task", "All of it."]


def test_run_whose_process_died_again_goes_on_with_the_larger_budget(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "is exhausted")
    assert killed(store, "is exhausted", run_id) == run_id
    session, provider = session_of(store)
    assert [str(info.status) for info in session.runs()] == ["interrupted"]

    run = session.recover(run_id)

    assert run.result(DEADLINE_S).output == "All of it."
    assert [task_of(each) for each in provider.requests] == ["B", "C", "root"]
    assert run.budget.total == BIG
    assert run.budget.tokens_used > SMALL + 9_000
    assert run.receipt is not None
    assert run.receipt.again == ()
    assert run.receipt.uncertain == ("call 1 of agent 2 (scripted)",)
    totals = [each.budget_total for each in events_of(run.events, BudgetChanged)]
    assert totals == [BIG]


def test_run_goes_on_in_the_session_that_exhausted_it_again_and_again(tmp_path: Path) -> None:
    session, _ = session_of(tmp_path / "x.db")
    run = exhausted(session)

    for budget in (SMALL + 2_000, SMALL + 15_000):
        run = session.recover(run.id, budget=budget)
        assert str(run.result(DEADLINE_S).status) == "exhausted"
    run = session.recover(session.runs()[0], budget=BIG)

    assert run.result(DEADLINE_S).output == "All of it."
    assert session.newest_run is run
    with pytest.raises(CannotRecover, match=r"it has ended \(completed\)"):
        session.recover(run.id, budget=2 * BIG)


def test_run_that_goes_on_again_is_not_recovered_once_more_meanwhile(tmp_path: Path) -> None:
    session, _ = session_of(tmp_path / "x.db")
    run_id = exhausted(session).id
    hold = Hold()
    held, _ = session_of(
        tmp_path / "x.db", provider=ScriptedProvider(lambda request: is_exhausted(request, hold))
    )
    run = held.recover(run_id, budget=BIG)
    hold.wait()

    for other in (session, held):
        with pytest.raises(CannotRecover, match="it is running in this process"):
            other.recover(run_id, budget=2 * BIG)

    hold.release()
    assert run.result(DEADLINE_S).output == "All of it."


def test_interrupted_run_takes_a_new_total_from_where_new_work_begins(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "delegates")
    session, provider = session_in(store, "delegates")
    with pytest.raises(ValueError, match="at least"):
        session.recover(run_id, budget=1)
    assert [str(info.status) for info in session.runs()] == ["interrupted"]

    run = session.recover(run_id, budget=BIG)

    assert run.result(DEADLINE_S).output == "All of it."
    assert [task_of(each) for each in provider.requests] == ["B", "root"]
    assert run.budget.total == BIG
    assert run.receipt is not None
    assert run.receipt.again == ()


def test_budget_that_is_no_more_than_before_names_the_least(tmp_path: Path) -> None:
    session, provider = session_of(tmp_path / "x.db")
    run = exhausted(session)
    asked = len(provider.requests)

    for budget in (1, SMALL, run.budget.tokens_used):
        with pytest.raises(ValueError, match=r"at least \d\d,\d\d\d: the run has spent") as caught:
            session.recover(run.id, budget=budget)
    least = int(str(caught.value).split("at least ")[1].split(":")[0].replace(",", ""))
    assert least == max(SMALL, run.budget.tokens_used) + 1
    with pytest.raises(ValueError, match="whole number of tokens"):
        session.recover(run.id, budget="many")
    with pytest.raises(CannotRecover, match="`budget=` gives it more"):
        session.recover(run.id)

    assert len(provider.requests) == asked
    assert str(session.runs()[0].status) == "exhausted"
    assert session.recover(run.id, budget=BIG).result(DEADLINE_S).output == "All of it."


def test_run_that_stops_at_its_warning_line_needs_a_line_above_what_was_spent(
    tmp_path: Path,
) -> None:
    session, provider = session_of(tmp_path / "x.db", on_budget_warning="stop")
    run = exhausted(session)
    with pytest.raises(ValueError, match="stops at its warning line") as caught:
        session.recover(run.id, budget=SMALL + 1)
    least = int(str(caught.value).split("at least ")[1].split(":")[0].replace(",", ""))
    asked = len(provider.requests)

    with pytest.raises(ValueError, match=f"at least {least:,}"):
        session.recover(run.id, budget=least - 1)
    session.recover(run.id, budget=least).result(DEADLINE_S)

    assert len(provider.requests) > asked


def test_run_whose_time_or_failures_ended_it_is_not_one_of_budget(tmp_path: Path) -> None:
    def fails(request: CompletionRequest) -> AnyReply:
        if task_of(request) == "root":
            return answer(request)
        return Reply("", error=agentnb.InvalidRequest("no"))

    provider = ScriptedProvider(fails)
    session, _ = session_of(tmp_path / "x.db", provider=provider, stop_after_failures=1)
    run = session.spawn("the task")
    assert str(run.result(DEADLINE_S).status) == "exhausted"

    with pytest.raises(CannotRecover, match="`stop_after_failures` ended it"):
        session.recover(run.id, budget=10 * BIG)


def test_changed_prompt_leaves_the_exhausted_run_and_its_answer_as_they_were(
    tmp_path: Path,
) -> None:
    session, _ = session_of(tmp_path / "x.db")
    run = exhausted(session)
    said = [each.content for each in session.thread(run.thread_id).messages]

    @agentnb.tool
    def look_up(what: str) -> str:
        return what

    other, provider = session_of(tmp_path / "x.db", id=session.id, tools=[look_up])

    with pytest.raises(RunChanged):
        other.recover(run.id, budget=BIG)

    assert provider.requests == []
    assert [str(info.status) for info in other.runs()] == ["exhausted"]
    assert [each.content for each in session.thread(run.thread_id).messages] == said
    assert session.recover(run.id, budget=BIG).result(DEADLINE_S).output == "All of it."


def test_run_of_a_message_in_a_thread_goes_on_with_what_was_said_before(tmp_path: Path) -> None:
    session, provider = session_of(tmp_path / "x.db")
    session.spawn("Hello").result(DEADLINE_S)
    second = session.spawn("the task", thread="last", budget=40)
    assert str(second.result(DEADLINE_S).status) == "exhausted"

    run = session.recover(second.id, budget=BIG)

    assert str(run.result(DEADLINE_S).status) == "completed"
    said = [message.content for message in session.thread(run.thread_id).messages]
    assert said[:1] + said[2:] == ["Hello", "the task", run.result().output]
    assert provider.requests[-1].messages[0].text == "Hello"


def test_tool_with_effects_of_an_agent_that_decides_anew_is_named(tmp_path: Path) -> None:
    """The root read its exhausted job's partial result, got more budget, and ordered something."""
    called: list[str] = []

    @agentnb.tool
    def order_it() -> str:
        called.append("order_it")
        return "it is ordered"

    @agentnb.tool
    def give_more() -> str:
        called.append("give_more")
        run = session.newest_run
        assert run is not None
        asyncio.run(until(lambda: events_of(run.events, AgentExhausted)))
        run.set_budget(60_000)
        return "more"

    def by_tools(request: CompletionRequest) -> AnyReply:
        if task_of(request) == "A":
            return LONG
        turn = len(request.messages) // 2
        if turn == 3:
            return "All is ordered."
        names: tuple[dict[str, dict[str, str]], ...] = (
            {"spawn": {"task": "A"}, "give_more": {}},
            {"spawn_await": {}},
            {"order_it": {}},
        )
        uses = [ToolUse(f"u{name}", name, given) for name, given in names[turn].items()]
        return Reply("", tool_uses=tuple(uses))

    provider = ScriptedProvider(by_tools)
    session, _ = session_of(
        tmp_path / "x.db",
        provider=provider,
        tools=[order_it, give_more],
        delegation="tools",
    )
    run = session.spawn("the task", budget=8_000)
    assert str(run.result(DEADLINE_S).status) == "exhausted"
    assert called == ["give_more", "order_it"]
    asked = len(provider.requests)

    run = session.recover(run.id, budget=BIG)

    assert run.result(DEADLINE_S).output == "All is ordered."
    assert [task_of(each) for each in provider.requests[asked:]] == ["A", "root", "root"]
    assert called == ["give_more", "order_it", "order_it"]
    assert run.receipt is not None
    assert run.receipt.again == ("root", "1")
    assert run.receipt.uncertain == ("tool 'order_it' of agent root (call 4), which decides anew",)
