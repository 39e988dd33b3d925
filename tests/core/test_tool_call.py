"""One tool call: whatever a tool does, its model is told something, and its record is in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core._call.tool_call import REPORT_PAUSE_S
from agentnb.core.codec import event_of, plain
from agentnb.core.errors import ToolError
from agentnb.core.events import ToolCallFinished, ToolCallReported, ToolCallStarted
from agentnb.core.protocols import MOST_FOR_MODEL, ToolContext
from agentnb.core.reading import MOST_IN_EVENT
from agentnb.core.records import Kept, ToolCallRecord
from agentnb.core.types import MALFORMED_INPUT, ToolResultBlock
from agentnb.providers.scripted import ScriptedProvider
from tests.core.clock import ManualClock, everyone_waits
from tests.core.tool_bodies import Tool, looking, on_thread, order, outcome_of, told
from tests.support import Tree, by_agent, make_tree, run_tree, spawn

# -- what a tool may know --------------------------------------------------------------------------


async def test_tool_is_told_who_calls_it_and_shares_the_workspace_of_the_run() -> None:
    seen: list[tuple[str, str, bool]] = []

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        seen.append((context.agent_id, context.path, context.cancelled))
        context.workspace["count"] = context.workspace.get("count", 0) + 1
        return str(context.workspace["count"])

    provider = by_agent({"root": [spawn("A"), "ok"], "A": [order("look", "look"), "Seen."]})
    tree = await run_tree(provider, tools=[Tool(body)], workspace={"count": 5})

    assert seen == [(tree.id_of("1"), "1", False)] * 2
    assert tree.request.workspace == {"count": 7}


async def test_calls_of_one_turn_run_at_the_same_time_and_answer_in_their_order() -> None:
    both = asyncio.Barrier(2)

    async def first(_: Mapping[str, Any], context: ToolContext) -> str:
        await both.wait()
        await asyncio.sleep(0)
        return "of the first"

    async def second(_: Mapping[str, Any], context: ToolContext) -> str:
        await both.wait()
        return "of the second"

    provider = ScriptedProvider([order("first", "second"), "Seen."])
    tree = await run_tree(provider, tools=[Tool(first, "first"), Tool(second, "second")])

    assert [event.name for event in tree.of(ToolCallFinished)] == ["second", "first"]
    assert [block.text for block in told(tree)] == ["of the first", "of the second"]


@pytest.mark.parametrize(
    "wrong", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("no")], ids=repr
)
async def test_tool_that_raises_does_not_stop_the_one_beside_it(wrong: BaseException) -> None:
    has_raised = asyncio.Event()

    async def raises(_: Mapping[str, Any], context: ToolContext) -> str:
        has_raised.set()
        raise wrong

    async def goes_on(_: Mapping[str, Any], context: ToolContext) -> str:
        await has_raised.wait()
        await everyone_waits()
        return "whole"

    provider = ScriptedProvider([order("raises", "goes_on"), "Seen."])
    tree = await run_tree(provider, tools=[Tool(raises, "raises"), Tool(goes_on, "goes_on")])

    assert [block.is_error for block in told(tree)] == [True, False]
    assert told(tree)[1].text == "whole"


# -- what a tool may come to -----------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class ExitingToolError(ToolError):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("Give a city, like 'Oslo'."), "Give a city, like 'Oslo'."),
        (ValueError("no eyes"), "ValueError: no eyes"),
        (LookupError(), "LookupError"),
        (Unspeakable(), "Unspeakable"),
        (Exiting(), "Exiting"),
        (ExitingToolError(), "ExitingToolError"),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit("its own"), "GeneratorExit: its own"),
        (asyncio.CancelledError("its own"), "CancelledError: its own"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("timeout_s", [None, 5.0])
async def test_error_of_a_tool_is_told_to_the_model_in_its_own_words(
    error: BaseException, words: str, timeout_s: float | None
) -> None:
    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        raise error

    tree = await run_tree(looking(), tools=[Tool(body, timeout_s=timeout_s)])

    assert told(tree) == (ToolResultBlock("t1", words, is_error=True),)
    assert tree.result.final_response == "Seen."


async def test_tool_whose_arguments_are_no_json_object_is_not_called_and_its_model_told() -> None:
    seen: list[Mapping[str, Any]] = []

    async def body(input: Mapping[str, Any], context: ToolContext) -> str:
        seen.append(input)
        return "seen"

    tree = await run_tree(looking(**{MALFORMED_INPUT: '{"at":\n'}), tools=[Tool(body)])

    words = (
        'The arguments of the call are no JSON object: {"at":\n'
        "Call it again with arguments as one JSON object."
    )
    assert seen == []
    assert told(tree) == (ToolResultBlock("t1", words, is_error=True),)
    assert tree.of(ToolCallFinished)[0].is_error


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(4),
        asyncio.CancelledError(),
        OSError("x"),
    ],
    ids=repr,
)
async def test_whatever_is_raised_on_a_thread_is_told_to_the_model(error: BaseException) -> None:
    def body(context: ToolContext) -> str:
        raise error

    text, is_error = await outcome_of(on_thread(body))

    assert is_error
    assert type(error).__name__ in text


async def test_surrogate_in_a_result_is_replaced_and_a_pair_made_one() -> None:
    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        context.report("half \ud83d")
        return "half \ud83d, whole \ud83d\ude00"

    tree = await run_tree(looking(), tools=[Tool(body)])

    assert told(tree)[0].text == "half \ufffd, whole \N{GRINNING FACE}"
    assert tree.of(ToolCallFinished)[0].result == told(tree)[0].text
    assert tree.of(ToolCallReported)[0].text == "half \ufffd"


async def test_result_that_is_far_too_long_is_cut_for_the_model_and_says_so() -> None:
    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        return "x" * 5_000_000

    text, is_error = await outcome_of(body, budget=10**7)

    assert not is_error
    assert text.startswith("x" * MOST_FOR_MODEL + "\n\n(The result has 5,000,000 characters")
    assert len(text) < MOST_FOR_MODEL + 100


# -- what is told of it ----------------------------------------------------------------------------


class KeepingJournal:
    """Keeps tool calls, and remembers what stood in the record when it was asked to."""

    def __init__(self) -> None:
        self.records: list[ToolCallRecord] = []
        self.ended_before: list[int] = []
        self.tree: Tree | None = None

    async def commit(self) -> None:
        return

    def keep(self, record: Kept) -> None:
        assert self.tree is not None
        if isinstance(record, ToolCallRecord):
            self.records.append(record)
            self.ended_before.append(len(self.tree.of(ToolCallFinished)))


async def test_events_hold_the_beginning_of_what_is_long_and_the_journal_all_of_it() -> None:
    input = {"text": "a" * 9000, "also": list(range(3000)), "short": 1}

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        return "b" * 150_000

    journal = KeepingJournal()
    tree = make_tree(looking(**input), tools=[Tool(body)], journal=journal)
    journal.tree = tree
    await tree.run()

    (started,), (finished,) = tree.of(ToolCallStarted), tree.of(ToolCallFinished)
    assert started.input["text"] == "a" * 200
    assert started.input["short"] == 1
    assert len(str(started.input)) < MOST_IN_EVENT
    assert started.input_length is not None
    assert started.input_length > 20_000
    assert finished.result == "b" * MOST_IN_EVENT
    assert finished.result_length == 150_000
    (record,) = journal.records
    assert (record.tool_use_id, record.name, record.input) == ("t1", "look", input)
    assert (record.path, record.number, record.status) == ("root", 1, "finished")
    assert record.result == "b" * 150_000
    assert not record.is_error
    assert journal.ended_before == [0], "it is kept before anyone is told"
    assert event_of(plain(started)) == started
    assert event_of(plain(finished)) == finished


async def test_short_input_and_result_stand_whole_in_the_events() -> None:
    async def body(given: Mapping[str, Any], context: ToolContext) -> str:
        return f"at {given['at']}"

    tree = await run_tree(looking(at="sea"), tools=[Tool(body)])

    (started,), (finished,) = tree.of(ToolCallStarted), tree.of(ToolCallFinished)
    assert (started.input, started.input_length) == ({"at": "sea"}, None)
    assert (finished.result, finished.result_length) == ("at sea", None)


async def test_journal_that_cannot_keep_a_tool_call_is_told_at_the_end_and_stops_nothing() -> None:
    class Full(KeepingJournal):
        def keep(self, record: Kept) -> None:
            raise OSError("disk full")

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        return "there"

    tree = await run_tree(looking(), tools=[Tool(body)], journal=Full())

    assert tree.result.final_response == "Seen."
    assert "OSError in the journal: disk full" in str(tree.error)


# -- how far it is ---------------------------------------------------------------------------------


async def test_reports_are_told_ten_times_a_second_at_most_and_the_newest_always() -> None:
    clock, go_on = ManualClock(), asyncio.Event()

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        for part in range(3):
            context.report(f"part {part}")
        await everyone_waits()
        context.report("two\nlines")
        context.report("half")
        await go_on.wait()
        context.report("never shown")
        context.report("x" * 900)
        await everyone_waits()
        return "there"

    tree = make_tree(looking(), tools=[Tool(body)], clock=clock)
    running = tree.start()
    await tree.saw(ToolCallReported)
    await everyone_waits()
    assert [report.text for report in tree.of(ToolCallReported)] == ["part 2"]
    clock.advance(REPORT_PAUSE_S)
    assert [report.text for report in tree.of(ToolCallReported)] == ["part 2", "half"]
    go_on.set()
    await running

    assert [len(report.text) for report in tree.of(ToolCallReported)] == [6, 4, 200]
    assert clock.pending == 0
    kinds = [type(event) for event in tree.events]
    assert kinds.index(ToolCallFinished) > max(
        place for place, kind in enumerate(kinds) if kind is ToolCallReported
    )


async def test_report_after_the_end_of_its_call_is_passed_over() -> None:
    kept: list[ToolContext] = []

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        kept.append(context)
        return "there"

    provider = by_agent({"root": [spawn("A"), spawn("B")], "A": [order("look"), "ok"]})
    tree = await run_tree(provider, tools=[Tool(body)])
    before = len(tree.entries)
    kept[0].report("too late")
    await everyone_waits()

    assert len(tree.entries) == before
    assert kept[0].cancelled, "nobody waits for it any more"


async def test_report_may_come_from_any_thread() -> None:
    def body(context: ToolContext) -> str:
        threads = [threading.Thread(target=context.report, args=(f"from {n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "there"

    tree = await run_tree(looking(), tools=[Tool(on_thread(body))])

    reports = tree.of(ToolCallReported)
    assert reports
    assert {report.text for report in reports} <= {f"from {n}" for n in range(8)}
