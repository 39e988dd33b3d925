"""What a row and the summary say, event by event."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from agentnb.core.events import (
    AgentCancelled,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentWaiting,
    BudgetExhausted,
    BudgetPaused,
    BudgetResumed,
    BudgetUpdate,
    LimitReached,
    RunStarted,
    SynthesisStarted,
)
from agentnb.core.tree import STALLED_AFTER_S
from agentnb.core.types import AgentStatus
from agentnb.recovery import RecoveryReceipt, Reused, ReusedOfAgent
from agentnb.views.panel.details import Details
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.history import reused_in_words
from agentnb.views.panel.wire import Summary
from tests.views.panel.manual_run import ManualRun, id_of


def folded(run: ManualRun) -> PanelFold:
    fold = PanelFold()
    fold.feed(run.bus.rows_since(0))
    fold.notice_silence(run.clock.now())
    return fold


def row(run: ManualRun, path: str = "root") -> dict[str, Any]:
    return dict(folded(run).row(id_of(path)))


def summary(run: ManualRun) -> Summary:
    return folded(run).summary(run.clock.now(), cost="", budget=None)


def test_row_of_an_agent_names_its_place_its_task_and_its_time() -> None:
    run = ManualRun().began("Sum up").after(2).spawned("1", "Find\nfacts").called("1")

    shown = row(run, "1")

    assert (shown["path"], shown["parent"], shown["depth"]) == ("1", "root", 1)
    assert (shown["task"], shown["status"], shown["begun"]) == ("Find facts", "running", 2)
    assert shown["ended"] is None


def test_run_behind_other_messages_of_its_thread_waits_for_its_turn() -> None:
    run = ManualRun()
    queued = summary(run)
    run.tell(
        RunStarted(task_description="t", model="m", budget_total=9, max_depth=3, thread_id="x")
    )

    assert (queued.status, queued.agents, queued.doing) == ("pending", 0, "waiting for its turn")
    assert summary(run).doing == "starting"


def test_ended_agent_has_the_time_of_its_end() -> None:
    run = ManualRun().began().called("root").replied("root").completed("root")

    assert (row(run)["status"], row(run)["ended"]) == ("completed", 0.01)


def test_tokens_are_an_estimate_while_a_reply_streams_and_the_count_afterwards() -> None:
    run = ManualRun().began().called("root").said("root", "x" * 80)
    assert (row(run)["tokens"], row(run)["estimated"]) == (20, True)

    run.replied("root", tokens=50)

    assert (row(run)["tokens"], row(run)["estimated"]) == (50, False)


def test_tokens_of_calls_before_stay_while_the_next_reply_streams() -> None:
    run = ManualRun().began().called("root").replied("root", tokens=50).called("root")

    assert row(run.said("root", "x" * 40))["tokens"] == 60


def asked_tools() -> ManualRun:
    """The root's call has ended, and a tool of it runs."""
    return ManualRun().began().called("root").replied("root").after(2).tool("root", "b", "find")


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (ManualRun().began(), "preparing to call m/one"),
        (ManualRun().began().called("root"), "waiting for the first token"),
        (ManualRun().began().called("root").said("root", "Hm"), ""),
        (
            ManualRun().began().tell(AgentWaiting(agent_id=id_of("root"), reason="the rate limit")),
            "waiting for the rate limit",
        ),
        (
            ManualRun().began().tell(AgentWaiting(agent_id=id_of("root"), reason="to try again")),
            "waiting to try again",
        ),
        (ManualRun().began().called("root").replied("root").spawned("1"), "1 working below"),
        (
            ManualRun().began().called("root").replied("root").spawned("1").spawned("2"),
            "2 working below",
        ),
        (
            ManualRun().began().called("root").replied("root").spawned("1").completed("1"),
            "",
        ),
        (
            ManualRun()
            .began()
            .tell(SynthesisStarted(agent_id=id_of("root"), total=3))
            .called("root")
            .said("root", "So"),
            "combining 3 results",
        ),
        (asked_tools(), "tool find"),
        (asked_tools().tool("root", "a"), "tool look_up and 1 more"),
        (asked_tools().tool("root", "a").tool_ended("root", "b"), "tool look_up"),
        (asked_tools().reported("root", "b", "half of it"), "tool find"),
        (asked_tools().spawned("1").spawned("2"), "tool find, 2 working below"),
        (asked_tools().tool_ended("root", "b"), ""),
        (ManualRun().began().called("root").replied("root").completed("root"), ""),
    ],
)
def test_row_says_what_an_agent_does_or_waits_for(run: ManualRun, words: str) -> None:
    assert row(run)["doing"] == words


def test_open_tool_call_has_its_name_what_it_reported_last_and_its_beginning() -> None:
    run = asked_tools()
    assert row(run)["tool"] == {"name": "find", "said": "", "since": 2}

    run.after(1).tool("root", "a").reported("root", "a", "1 of 2").reported("root", "a", "2 of 2")
    assert row(run)["tool"] == {"name": "look_up and 1 more", "said": "2 of 2", "since": 3}

    run.tool_ended("root", "a")
    assert row(run)["tool"] == {"name": "find", "said": "", "since": 2}
    assert row(run.tool_ended("root", "b"))["tool"] is None


def test_row_counts_tool_calls_and_their_errors() -> None:
    run = asked_tools().tool("root", "a").tool_ended("root", "a", "ValueError: no", is_error=True)
    assert (row(run)["tool_calls"], row(run)["tool_errors"]) == (2, 1)

    run.tool_ended("root", "b", "cancelled", is_error=True)
    assert (row(run)["tool_calls"], row(run)["tool_errors"]) == (2, 1)


def test_agent_that_ended_under_its_tool_shows_none_also_when_it_goes_on() -> None:
    run = asked_tools().tell(AgentInterrupted(agent_id=id_of("root")))
    assert row(run)["tool"] is None

    assert row(run.called("root").said("root", "so"))["tool"] is None


def test_names_and_reports_of_tools_are_one_line_of_bounded_length() -> None:
    run = asked_tools().tool("root", "a", "x\n\x1b" + "y" * 500).reported("root", "a", "z" * 500)

    shown = row(run)["tool"]
    assert shown["name"].startswith("x \\x1byy")
    assert (len(shown["name"]), len(shown["said"])) == (60 + len(" and 1 more"), 200)
    assert len(row(run)["doing"]) < 100


def test_header_shows_what_the_roots_tool_reported() -> None:
    assert summary(asked_tools()).doing == "tool find"
    assert summary(asked_tools().reported("root", "b", "half")).doing == "tool find: half"


def test_first_report_of_a_tool_is_news_and_those_after_it_only_growth() -> None:
    fold = folded(asked_tools())
    fold.take_touched()

    def after(text: str) -> tuple[set[str], set[str]]:
        run = asked_tools().reported("root", "b", text)
        fold.touched.clear()
        fold.said_more.clear()
        fold.feed(run.bus.rows_since(len(run.bus) - 1))
        return fold.touched, fold.said_more

    assert after("1 of 9") == ({id_of("root")}, set())
    assert after("2 of 9") == (set(), {id_of("root")})


def test_wait_of_known_length_shows_when_it_ends() -> None:
    waiting = AgentWaiting(agent_id=id_of("root"), reason="the rate limit", wait_s=12)
    run = ManualRun().began().after(3).tell(waiting)
    assert (row(run)["status"], row(run)["until"]) == ("waiting", 15)

    assert row(run.called("root"))["until"] is None


def test_agent_that_has_brought_no_text_for_half_a_minute_is_stalled() -> None:
    run = ManualRun().began().called("root").said("root", "Hm").after(STALLED_AFTER_S - 1)
    assert not row(run)["stalled"]

    shown = row(run.after(1))

    assert (shown["stalled"], shown["doing"]) == (True, "no text for 30 s")
    assert not row(run.said("root", "so"))["stalled"]


def test_agent_without_an_open_call_never_counts_as_stalled() -> None:
    run = ManualRun().began().called("root").replied("root").spawned("1").after(100)

    assert not row(run)["stalled"]


def test_second_attempt_is_counted() -> None:
    failed = AgentFailed(agent_id=id_of("root"), error="cut", will_retry=True, attempt=1)

    shown = row(ManualRun().began().called("root").tell(failed))

    assert (shown["attempt"], shown["doing"]) == (2, "waiting for a second attempt")


def test_root_that_plans_nothing_works_while_its_sub_agents_do() -> None:
    run = ManualRun().began().spawned("1")

    assert row(run)["status"] == "running"
    assert summary(run).by_status == {AgentStatus.RUNNING: 1, AgentStatus.PENDING: 1}


def test_text_from_a_model_is_made_visible() -> None:
    run = ManualRun().began("\x1b[31mred\u202e \ud800")

    assert row(run)["task"] == "\\x1b[31mred\\u202e \ufffd"


def test_summary_counts_agents_and_has_the_budget_and_the_time() -> None:
    update = BudgetUpdate(tokens_used=400, budget_total=900, percentage=44.4)
    run = ManualRun().began().spawned("1").called("1").tell(update).after(7)

    told = summary(run)

    assert (told.agents, told.status, told.at_s) == (2, "running", 7)
    assert (told.tokens_used, told.budget_total) == (400, 900)
    assert not told.done


def test_summary_of_a_run_that_has_ended_has_its_duration() -> None:
    told = summary(ManualRun().began().completed("root").ended().after(60))

    assert (told.done, told.status, told.at_s) == (True, "completed", 0.01)


def test_root_that_has_ended_is_not_the_end_of_the_run() -> None:
    assert summary(ManualRun().began().called("root").completed("root")).status == "running"


def test_question_is_open_from_the_pause_to_the_answer() -> None:
    paused = BudgetPaused(tokens_used=800, budget_total=1000, percentage=80, wait_s=600)
    run = ManualRun().began().after(5).tell(paused)

    question = summary(run).question
    assert question is not None
    assert (question.tokens_used, question.budget_total, question.asked_at_s) == (800, 1000, 5)
    assert summary(run).doing == "new calls wait for an answer about the budget"

    assert summary(run.tell(BudgetResumed(reason="continue"))).question is None


def test_notice_of_an_exhausted_budget_says_what_was_done_and_what_was_not() -> None:
    exhausted = BudgetExhausted(
        tokens_used=1000,
        budget_total=1000,
        percentage=100,
        completed_agents=(id_of("2"),),
        incomplete_agents=(id_of("root"), id_of("1"), id_of("10")),
    )

    (notice,) = summary(ManualRun().began().tell(exhausted)).notices

    assert notice == (
        "The budget is used up at 1,000 of 1,000 tokens. Done by then: 2. Not done: 1, 10."
    )


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [("max_time_s", 0.5, "max_time_s=0.5"), ("stop_after_failures", 3, "stop_after_failures=3")],
)
def test_notice_of_a_limit_names_the_setting_and_what_was_done(
    limit: str, value: float, said: str
) -> None:
    reached = LimitReached(
        limit=limit,
        value=value,
        completed_agents=(id_of("2"),),
        incomplete_agents=(id_of("root"), id_of("1")),
    )
    run = ManualRun().began().tell(reached).ended(AgentStatus.EXHAUSTED)

    (notice,) = summary(run).notices

    assert notice == f"Stopped by {said}. Done by then: 2. Not done: 1."


def test_notice_of_a_budget_with_room_again_does_not_say_that_the_run_was_stopped() -> None:
    exhausted = BudgetExhausted(
        tokens_used=900,
        budget_total=5000,
        percentage=18,
        completed_agents=(),
        incomplete_agents=(id_of("root"), id_of("3")),
    )

    (notice,) = summary(ManualRun().began().tell(exhausted)).notices

    assert notice == ("At 900 of 5,000 tokens the budget had no room for 3. Done by then: nothing.")


def test_notice_of_results_that_were_not_brought_together_says_why_and_what_is_there() -> None:
    ended = AgentExhausted(agent_id=id_of("root"), reason="the budget left too little")
    run = ManualRun().began().spawned("1").completed("1").tell(ended).ended(AgentStatus.EXHAUSTED)

    assert summary(run).notices == (
        "The results were not combined: the budget left too little. Done: 1.",
    )


def cancelled(path: str) -> AgentCancelled:
    return AgentCancelled(agent_id=id_of(path), reason="by hand")


def test_notice_of_a_cancel_names_the_branch_by_its_top() -> None:
    run = ManualRun().began().spawned("1").spawned("1.1").spawned("2").spawned("11")
    run.tell(cancelled("1.1")).tell(cancelled("1")).tell(cancelled("11"))

    assert summary(run).notices == (
        "Cancelled: 1 with 1.1 below it (by hand).",
        "Cancelled: 11 (by hand).",
    )


def test_notice_of_a_cancelled_run_names_who_was_still_at_work() -> None:
    run = ManualRun().began().spawned("1").completed("1").spawned("2")
    run.tell(cancelled("2")).tell(cancelled("root")).ended(AgentStatus.CANCELLED)

    assert summary(run).notices == ("Cancelled: the run with 2 that were working (by hand).",)


def test_notice_of_a_failed_run_says_why() -> None:
    run = ManualRun().began().ended(AgentStatus.FAILED, error="no key\nis set")

    assert summary(run).notices == ("The run failed: no key is set",)


@pytest.mark.parametrize("reason", ["continue", "raised"])
def test_answer_that_lets_the_run_go_on_needs_no_notice(reason: str) -> None:
    assert summary(ManualRun().began().tell(BudgetResumed(reason=reason))).notices == ()


def test_statuses_are_counted_as_if_all_were_counted_anew() -> None:
    chance, fold, position = random.Random(7), PanelFold(), 0
    run = ManualRun().began()
    paths = [f"{number}" for number in range(1, 9)]
    for path in paths:
        run.spawned(path)
    for _ in range(300):
        path = chance.choice(paths)
        cancelled = AgentCancelled(agent_id=id_of(path), reason="")
        waiting = AgentWaiting(agent_id=id_of(path), reason="for a slot")
        match chance.randrange(7):
            case 0:
                run.called(path)
            case 1:
                run.said(path, "more")  # goes on from a wait, without a call
            case 2:
                run.replied(path)
            case 3:
                run.completed(path)
            case 4:
                run.spawned(f"{path}.1")  # its parent is at work then
            case 5:
                run.tell(cancelled)
            case _:
                run.tell(waiting)
        rows = run.bus.rows_since(position)
        position += len(rows)
        fold.feed(rows)
        shown = fold.summary(run.clock.now(), cost="", budget=None).by_status
        agents = fold.tree.agents.values()
        assert shown == Counter(fold.tree.status_of(agent) for agent in agents)
        assert 0 not in shown.values()


def test_only_agents_that_something_happened_to_are_touched() -> None:
    run = ManualRun().began().spawned("1").spawned("2")
    fold = folded(run)
    assert fold.take_touched() == [id_of("root"), id_of("1"), id_of("2")]

    fold.feed(run.called("2").bus.rows_since(len(run.bus) - 1))

    assert fold.take_touched() == [id_of("2")]


# -- a run that was recovered ----------------------------------------------------------------------

RECEIPT = RecoveryReceipt(
    Reused(3, 1, 1200, None),
    ("call 2 of agent 1 (m/one)",),
    ("1",),
    open_calls=1,
    by_agent={
        "root": ReusedOfAgent(1, False),
        "1": ReusedOfAgent(1, False),
        "2": ReusedOfAgent(1, True),
    },
)


def recovered(receipt: RecoveryReceipt | None, *, ended: bool = True) -> PanelFold:
    begun = RunStarted(task_description="t", model="m", budget_total=9, max_depth=3, recovered=2)
    run = ManualRun().tell(begun).spawned("root").spawned("2").spawned("3")
    run.called("2").replied("2").called("3").replied("3")
    if ended:
        run.completed("2").completed("3")
    fold = PanelFold(lambda: receipt)
    fold.feed(run.bus.rows_since(0))
    return fold


def test_row_of_an_agent_whose_whole_work_is_reused_says_so_when_it_has_ended() -> None:
    def reused(fold: PanelFold) -> list[str]:
        agents = fold.tree.agents
        return [agents[name].path for name in agents if fold.row(name)["reused"]]

    assert reused(recovered(RECEIPT)) == ["2"]
    assert reused(recovered(RECEIPT, ended=False)) == []
    assert reused(recovered(None)) == []


def test_notice_of_a_recovery_is_its_receipt_or_else_that_there_was_one() -> None:
    def notices(fold: PanelFold) -> tuple[str, ...]:
        return fold.summary(1.0, cost="", budget=None).notices

    fold = recovered(RECEIPT)
    assert notices(fold) == (
        "Recovered: 3 calls and 1 tool call reused (1,200 tokens); 1 was open and is made again.",
        "No longer match their record: 1.",
    )
    assert notices(fold) is notices(fold)
    assert notices(recovered(None)) == ("Recovered 2 times after its process had died.",)


def test_details_say_how_much_of_an_agents_work_is_reused() -> None:
    def words(path: str, receipt: RecoveryReceipt | None = RECEIPT) -> str:
        return Details(path).whole(recovered(receipt), lambda path: "")["reused"]

    assert words("2") == "it had finished before the run was recovered"
    assert words("3") == ""
    assert words("2", None) == ""
    assert reused_in_words(ReusedOfAgent(2, False), 3) == "2 of 3 calls"
    assert reused_in_words(ReusedOfAgent(2, False), 1) == "1 of 1 call"
    assert reused_in_words(ReusedOfAgent(2, False), 0) == ""
