"""What the state that all agents share answered is kept: enough to answer the same once more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.errors import RateLimited
from agentnb.core.events import (
    AgentExhausted,
    AgentWaiting,
    BudgetPaused,
    BudgetResumed,
    BudgetWarning,
)
from agentnb.core.journal import Recorder
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import Delegation
from agentnb.core.records import RunHead, VerdictRecord
from agentnb.core.synthesis import build_synthesis_prompt, with_short_tool_results
from agentnb.core.types import (
    AgentConfig,
    CompletionRequest,
    Stopped,
    TextDelta,
    ToolResultBlock,
    Usage,
    assistant_message,
    user_message,
)
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.testing.memory_journal import MemoryJournal
from agentnb.tools.spawn import spawn_tools
from tests.by_tools import order, start
from tests.core.clock import ManualClock, everyone_waits
from tests.core.test_inbox import Inbox, Knock, knock
from tests.core.tool_bodies import Tool
from tests.support import Hold, Tree, by_agent, make_tree, requests_of, run_tree, spawn

LONG = " ".join(["x" * 60] * 600)
"""About 9,000 tokens."""
BY_TOOLS = AgentOrchestrator(delegation=Delegation(by_block=False, spawn_tools=spawn_tools()))


def kept(tree: Tree, kind: str) -> list[VerdictRecord]:
    """The verdicts of one kind that were committed."""
    assert isinstance(tree.journal, MemoryJournal)
    verdicts = tree.journal.load(tree.request.run_id).verdicts
    return [each for each in verdicts if each.kind == kind]


def value_of(tree: Tree, kind: str) -> Any:
    """The value of the only verdict of its kind."""
    (verdict,) = kept(tree, kind)
    return verdict.value


def large(tokens: int, text: str) -> Reply:
    return Reply(text, usage=Usage(tokens, 0))


# -- calls -----------------------------------------------------------------------------------------


async def test_call_that_was_not_made_says_why_and_which_budget_ended() -> None:
    tree = await run_tree(ScriptedProvider(["never read"]), budget=40, journal=MemoryJournal())

    value = value_of(tree, "exhausted")
    why = tree.of(AgentExhausted)[0].reason
    assert value == {"call": 1, "why": why, "ended_by": "the budget ended"}
    assert "40 are left" in value["why"]


async def test_call_that_waited_to_be_tried_again_says_which_limit_ended_it() -> None:
    clock = ManualClock()
    limited = RateLimited("slow down", retry_after_s=30)
    tree = make_tree(
        ScriptedProvider([limited]), clock=clock, max_time_s=5, journal=MemoryJournal()
    )
    running = tree.start()
    await tree.saw(AgentWaiting)
    await everyone_waits()
    clock.advance(6)
    await running

    over = "the run's time of 5 s was over"
    assert value_of(tree, "exhausted") == {"call": 2, "why": over, "ended_by": over}


async def test_call_that_the_pot_above_cut_names_that_pot() -> None:
    above = RequestBudget(1000, name="the session's budget")
    pot = RequestBudget(100_000, below=above)
    provider = ScriptedProvider([LONG])
    tree = await run_tree(provider, budget=pot, max_depth=0, journal=MemoryJournal())

    assert value_of(tree, "clamped") == {
        "call": 1,
        "max_tokens": provider.requests[0].max_tokens,
        "limited_by": "the session's budget",
    }


async def test_tasks_of_a_sequence_that_an_exhausted_run_did_not_start_are_kept() -> None:
    tasks = spawn("A", "B", "C", mode="sequential")
    provider = by_agent({"root": [large(30_000, tasks), "what there is"], "A": LONG})
    tree = await run_tree(provider, budget=40_000, journal=MemoryJournal())

    value = value_of(tree, "skipped")
    assert value == {"numbers": [2, 3], "why": "the budget ended before its turn"}
    assert [each.error for each in tree.result.sub_agent_results[1:]] == [value["why"]] * 2


# -- the root's last call --------------------------------------------------------------------------


def last_message(tree: Tree, value: Mapping[str, Any]) -> str:
    """The root's last message, made from the verdict and nothing else that is not recorded."""
    assert value["fits"]
    results = tree.result.sub_agent_results
    return build_synthesis_prompt(results, body_limit=value["body_limit"])


async def test_results_that_fit_are_kept_as_whole() -> None:
    provider = by_agent({"root": [spawn("A"), "ok"]})
    tree = await run_tree(provider, journal=MemoryJournal())

    value = value_of(tree, "fitted")
    assert value == {"fits": True, "tool_limit": None, "body_limit": None}
    assert requests_of(provider, "root")[1].last_user_text == last_message(tree, value)


async def test_limit_that_made_the_results_fit_makes_the_same_message_again() -> None:
    replies: dict[str, Any] = {
        "root": [large(10_000, spawn("A", "B", "C")), "ok"],
        "A": LONG,
        "B": LONG,
        "C": "c",
    }
    provider = by_agent(replies)
    tree = await run_tree(provider, budget=40_000, journal=MemoryJournal())

    value = value_of(tree, "fitted")
    assert (value["tool_limit"], type(value["body_limit"])) == (None, int)
    sent = requests_of(provider, "root")[1].last_user_text
    assert sent.count('truncated="true"') == 2
    assert sent == last_message(tree, value)


async def test_sub_agents_message_is_never_cut_so_it_has_no_verdict() -> None:
    provider = by_agent({"root": [spawn("P"), "ok"], "P": [spawn("c"), "p"]})
    tree = await run_tree(provider, journal=MemoryJournal())

    assert [each.path for each in kept(tree, "fitted")] == ["root"]


async def test_tool_results_that_were_cut_for_the_reserve_are_cut_again_by_the_verdict() -> None:
    async def look(_: Mapping[str, Any], context: object) -> str:
        return "seen " * 40_000

    provider = by_agent({"root": [order(start("a"), ("look", {})), "what there is"]})
    tree = make_tree(
        provider, budget=20_000, tools=[Tool(look)], orchestrator=BY_TOOLS, journal=MemoryJournal()
    )
    await tree.run()

    value = value_of(tree, "fitted")
    assert (value["fits"], value["tool_limit"] in (100_000, 10_000, 2_000, 400)) == (True, True)
    *before, last = requests_of(provider, "root")[-1].messages
    assert last.text == last_message(tree, value)
    (results,) = (message for message in before if _has_results(message))
    whole = user_message("")
    cut = with_short_tool_results([whole, results], value["tool_limit"])
    assert cut[1] == results
    texts = [block.text for block in results.content if isinstance(block, ToolResultBlock)]
    assert max(map(len, texts)) <= value["tool_limit"] + 50


def _has_results(message: Any) -> bool:
    return any(isinstance(block, ToolResultBlock) for block in message.content)


async def test_results_that_do_not_fit_at_all_are_kept_as_that() -> None:
    provider = by_agent({"root": spawn("A", before="I split it."), "A": LONG})
    tree = await run_tree(provider, budget=2000, journal=MemoryJournal())

    assert len(requests_of(provider, "root")) == 1
    assert value_of(tree, "fitted") == {"fits": False, "tool_limit": None, "body_limit": None}


# -- the warning -----------------------------------------------------------------------------------


def near_the_end() -> ScriptedProvider:
    """The root's plan takes 85 of 100 thousand tokens."""
    return by_agent({"root": [large(85_000, spawn("A", "B")), "what there is"]})


AT_THE_PLAN = {"path": "root", "number": 1}


@pytest.mark.parametrize(
    ("policy", "decision", "why"),
    [
        ("continue", "continue", None),
        ("ask", "continue", None),
        ("stop", "stop", "the run was set to stop at the budget's warning line"),
    ],
)
async def test_decision_without_a_question_is_kept_with_why_and_where(
    policy: str, decision: str, why: str | None
) -> None:
    tree = await run_tree(
        near_the_end(), budget=100_000, on_budget_warning=policy, journal=MemoryJournal()
    )

    value = {"decision": decision, "why": why, "answer": "", "by": "", **AT_THE_PLAN}
    assert value_of(tree, "warned") == value
    assert kept(tree, "asked") == []


async def paused(**more: Any) -> tuple[Tree, asyncio.Task[Tree]]:
    """A run whose children wait for an answer, and nothing else happens."""
    tree = make_tree(
        near_the_end(), budget=100_000, is_attended=lambda: True, journal=MemoryJournal(), **more
    )
    running = tree.start()
    await tree.saw(BudgetPaused)
    await everyone_waits()
    return tree, running


async def test_open_question_is_kept_while_it_is_open() -> None:
    tree, running = await paused()

    assert value_of(tree, "asked") == AT_THE_PLAN
    assert kept(tree, "warned") == []

    assert tree.request.meter is not None
    tree.request.meter.answer("continue", "panel")
    await running
    value = {"decision": "continue", "why": None, "answer": "continue", "by": "panel"}
    assert value_of(tree, "warned") == {**value, **AT_THE_PLAN}
    asked, warned = kept(tree, "asked")[0], kept(tree, "warned")[0]
    assert asked.number < warned.number


async def test_question_in_the_middle_of_a_reply_is_kept_before_anything_else_happens() -> None:
    """No call ends meanwhile, and no second passes after which its text would be kept."""
    hold = Hold()

    class Long:
        name = "long"

        async def stream(self, request: CompletionRequest) -> Any:
            for _ in range(85):
                yield TextDelta("word" * 100)
            await hold()
            yield Stopped("end_turn", assistant_message("word" * 8500))

    tree = make_tree(
        Long(),
        budget=10_000,
        context=AgentContext(agent_config=AgentConfig(max_output_tokens=9_500)),
        is_attended=lambda: True,
        clock=ManualClock(),
        journal=MemoryJournal(),
    )
    running = tree.start()
    await hold.until_reached()
    await everyone_waits()

    assert len(tree.of(BudgetPaused)) == 1
    assert value_of(tree, "asked") == {"path": "root", "number": 1}
    hold.release()
    await running


async def test_question_that_nobody_answered_says_so() -> None:
    clock = ManualClock(sleeps_end=True)
    tree, running = await paused(clock=clock)
    clock.advance(600)
    await running

    value = value_of(tree, "warned")
    assert (value["decision"], value["answer"], value["by"]) == ("stop", "timeout", "limit")
    assert value["why"] == "nobody answered the budget's question in time"


async def test_gate_that_raises_is_kept_with_its_words() -> None:
    def gate(_: BudgetWarning) -> str:
        raise OSError("no line")

    tree = await run_tree(near_the_end(), budget=100_000, budget_gate=gate, journal=MemoryJournal())

    value = value_of(tree, "warned")
    assert (value["decision"], value["by"]) == ("stop", "gate")
    assert value["why"] == "stop: the budget gate raised OSError: no line"
    assert [each.reason for each in tree.of(BudgetResumed)] == [value["answer"]]


# -- orders ----------------------------------------------------------------------------------------


async def test_order_is_kept_when_it_takes_effect_though_nothing_else_happens() -> None:
    hold, clock = Hold(), ManualClock()  # no second passes, so no text is kept meanwhile
    tree = make_tree(
        by_agent({"root": Reply("at last", pause=hold)}), clock=clock, journal=MemoryJournal()
    )
    running = tree.start()
    await hold.until_reached()
    tree.request.budget.set_total(90_000, by="panel")
    await everyone_waits()

    assert isinstance(tree.journal, MemoryJournal)
    (order,) = tree.journal.load(tree.request.run_id).orders
    assert (order.kind, order.by, order.value) == ("budget", "panel", 90_000)
    hold.release()
    await running


async def test_order_after_the_end_is_kept_nowhere_and_starts_nothing() -> None:
    clock, journal = ManualClock(), MemoryJournal()
    recorder = Recorder(journal, EventBus("run", clock=clock), clock)
    recorder.begin(RunHead("run", "nb", "t", "p/m"))
    recorder.order("budget", "panel", 8)
    await recorder.end()
    before = asyncio.all_tasks()
    recorder.order("budget", "panel", 9)

    assert asyncio.all_tasks() == before
    journal.close()
    assert [each.value for each in journal.load("run").orders] == [8]


# -- the inbox -------------------------------------------------------------------------------------


async def test_texts_of_the_inbox_are_kept_with_the_agent_that_was_told() -> None:
    inbox = Inbox()
    provider = ScriptedProvider([knock("t1"), knock("t2"), "Heard."])
    tools = [Knock(inbox, "one ({})", " ", "two ({})")]
    tree = await run_tree(provider, tools=tools, inbox=inbox, journal=MemoryJournal())

    told = [(each.path, each.number, each.value) for each in kept(tree, "told")]
    texts = ["one (root)", "two (root)"]
    assert told == [("root", n, {"call": n + 1, "texts": texts}) for n in (1, 2)]


async def test_inbox_without_a_word_leaves_no_verdict() -> None:
    inbox = Inbox()
    provider = ScriptedProvider([knock("t1"), "Nothing."])
    tree = await run_tree(provider, tools=[Knock(inbox, " ")], inbox=inbox, journal=MemoryJournal())

    assert len(inbox.taken) == 1
    assert kept(tree, "told") == []
