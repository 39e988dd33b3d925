"""The whole conversation of any agent: while it works, after its end, and from a file."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb.agent_view import AgentView
from agentnb.core.bus import EventBus
from agentnb.core.errors import RunCancelled, ServerFailed
from agentnb.core.events import (
    AgentInterrupted,
    ModelCallFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.keys import key_of
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.prompt import BLOCK_BESIDE_TOOLS
from agentnb.core.records import FINISHED, STARTED, CallRecord, Kept, ToolCallRecord
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    Message,
    Role,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
    assistant_message,
)
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.record import RunRecord, load_run
from agentnb.run import Run
from agentnb.session import Session
from tests.support import (
    DEADLINE_S,
    Hold,
    by_agent,
    make_tree,
    nothing_left_on_the_runtime,
    requests_of,
    spawn,
)

LONG = "a long text, " * 400
"""More than an event holds."""


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with nothing_left_on_the_runtime():
        yield


@pytest.fixture(autouse=True)
def retries_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentnb.core._call.services._FIRST_DELAY_S", 0.0)


def echo(text: str, times: int = 1) -> str:
    """Say a text again."""
    if not times:
        raise ValueError(text)
    return text * times


def uses(*calls: ToolUse) -> tuple[ToolUseBlock, ...]:
    return tuple(ToolUseBlock(call.id, call.name, call.input) for call in calls)


def said(*blocks: Any) -> Message:
    return Message(Role.ASSISTANT, tuple(blocks))


def results(*blocks: Any) -> Message:
    return Message(Role.USER, tuple(blocks))


SHORT_CALL = ToolUse("s", "echo", {"text": "hi"})
LONG_CALL = ToolUse("l", "echo", {"text": LONG})
BAD_CALL = ToolUse("b", "echo", {"text": "oh", "times": 0})
LOOKED = Reply("I look.", tool_uses=(LONG_CALL, SHORT_CALL, BAD_CALL))
ASKED = said(TextBlock("I look."), *uses(LONG_CALL, SHORT_CALL, BAD_CALL))
ANSWERED = results(
    ToolResultBlock("l", LONG),
    ToolResultBlock("s", "hi"),
    ToolResultBlock("b", "ValueError: oh", is_error=True),
)


@dataclass
class Scene:
    """A script, and the end of the root's conversation after its last request."""

    replies: list[Any]
    tail: tuple[Message, ...] = ()
    """If empty: the streamed text."""
    status: AgentStatus = AgentStatus.COMPLETED
    settings: Mapping[str, Any] = field(default_factory=dict)


SCENES = {
    "answer": Scene([Reply("all of it")], (assistant_message("all of it"),)),
    "tools": Scene([LOOKED, "done"], (assistant_message("done"),)),
    "thinking": Scene(
        [Reply("so", thinking="hm", tool_uses=(SHORT_CALL,)), Reply("done", thinking="aha")],
        (said(ThinkingBlock("aha"), TextBlock("done")),),
    ),
    "paused": Scene(
        [Reply("First this, ", thinking="hm", stop_reason="pause_turn"), "then that."],
        (assistant_message("then that."),),
    ),
    "cut by the budget": Scene(
        # In few pieces: their number does not matter, and the run is saved after each.
        [("word" * 30 + " ") * 400], status=AgentStatus.EXHAUSTED, settings={"budget": 3_000}
    ),
    "tried again": Scene(
        [ServerFailed("no"), Reply("half", error=ServerFailed("down")), "whole"],
        (assistant_message("whole"),),
    ),
    "failed": Scene(
        [Reply("half", error=ServerFailed("down")), Reply("more", error=ServerFailed("down"))],
        (assistant_message("more"),),
        AgentStatus.FAILED,
    ),
    "out of turns": Scene([LOOKED], (ASKED, ANSWERED), settings={"max_turns": 1}),
    "out of turns later": Scene(
        [Reply(tool_uses=(BAD_CALL,)), LOOKED], (ASKED, ANSWERED), settings={"max_turns": 2}
    ),
    "out of turns beside a block": Scene(
        [Reply(spawn("A", before="I split it."), tool_uses=(SHORT_CALL,))],
        (
            said(TextBlock(spawn("A", before="I split it.")), *uses(SHORT_CALL)),
            results(ToolResultBlock("s", "hi"), TextBlock(BLOCK_BESIDE_TOOLS)),
        ),
        settings={"max_turns": 1},
    ),
    "cut with a tool call": Scene(
        [Reply("I look.", tool_uses=(SHORT_CALL,), stop_reason="max_tokens")],
        (assistant_message("I look."),),
    ),
    "synthesis": Scene([spawn("A", "B", before="I split it."), "together"],
                       (assistant_message("together"),)),
}  # fmt: skip


def played(scene: Scene) -> tuple[Run, ScriptedProvider]:
    provider = by_agent({"root": scene.replies})
    run = Session(provider=provider, tools=[agentnb.tool(echo)], **scene.settings).spawn("the task")
    with suppress(ServerFailed):
        run.result(DEADLINE_S)
    return run, provider


def loaded(run: RunRecord, folder: Path) -> RunRecord:
    run.to_json(folder / "run.json")
    return load_run(folder / "run.json")


# -- after the end, and from a file ---------------------------------------------------------------


@pytest.mark.parametrize("name", SCENES)
def test_conversation_is_whole_after_the_end_and_from_a_file(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]
    run, provider = played(scene)
    asked = requests_of(provider, "root")[-1].messages

    agent = run.agent("root")

    assert agent.status is scene.status
    streamed = "".join(row[2] for row in run._bus.rows_since(0) if len(row) == 3)
    assert agent.messages == (*asked, *(scene.tail or (assistant_message(streamed),)))
    assert agent.is_whole
    assert loaded(run, tmp_path).agents == run.agents


@pytest.mark.parametrize("name", SCENES)
def test_run_that_was_saved_at_any_moment_tells_what_the_run_told_then(
    name: str, tmp_path: Path
) -> None:
    run, _ = played(SCENES[name])
    bus = run._bus
    rows = bus.rows_since(0)

    for length in range(len(rows) + 1):
        then = EventBus.of_record(
            run.id, rows[:length], whole_tool_calls=dict(bus.whole_tool_calls)
        )
        record = RunRecord(run.id, run.task, then)
        assert loaded(record, tmp_path).agents == record.agents
        for agent in record.agents:
            statuses = {call.status for call in agent.calls}
            statuses |= {call.status for call in agent.tool_calls}
            assert not (agent.is_whole and STARTED in statuses)
            if agent.messages and not agent.status.is_terminal:
                last = agent.messages[-1].content
                waits = any(isinstance(block, ToolUseBlock) for block in last)
                assert not (agent.is_whole and waits), "its tools have not all ended"


def test_conversation_of_a_sub_agent_is_its_own(tmp_path: Path) -> None:
    provider = by_agent({"root": [spawn("A"), "together"], "A": [LOOKED, "A is done"]})
    run = Session(provider=provider, tools=[agentnb.tool(echo)]).spawn("the task")
    run.result(DEADLINE_S)

    agent = loaded(run, tmp_path).agent("1")

    first, last = requests_of(provider, "A")
    assert agent.messages == (*first.messages, ASKED, ANSWERED, assistant_message("A is done"))
    assert agent.messages == (*last.messages, assistant_message("A is done"))
    assert agent.is_whole


# -- its calls ------------------------------------------------------------------------------------


def test_call_is_told_with_its_pieces_times_and_key(tmp_path: Path) -> None:
    run, provider = played(SCENES["thinking"])

    first, last = loaded(run, tmp_path).agent("root").calls

    assert (first.path, first.number, first.attempt, first.status) == ("root", 1, 1, FINISHED)
    assert (first.text, first.stop_reason, first.error) == ("so", "tool_use", None)
    assert first.message == said(ThinkingBlock("hm"), TextBlock("so"), *uses(SHORT_CALL))
    assert [call.request for call in (first, last)] == provider.requests
    assert [call.key for call in (first, last)] == [
        key_of("scripted", request) for request in provider.requests
    ]
    assert first.at_s <= first.pieces[0][0] <= last.at_s
    texts = [row for row in run._bus.rows_since(0) if len(row) == 3]
    assert (*first.pieces, *last.pieces) == tuple((at_s, text) for at_s, _, text in texts)
    ends = [e.event for e in run.events if isinstance(e.event, ModelCallFinished)]
    assert [call.usage for call in (first, last)] == [end.usage for end in ends]
    assert [call.duration_ms for call in (first, last)] == [end.duration_ms for end in ends]


def test_attempts_are_calls_of_their_own_and_only_the_last_is_in_the_conversation() -> None:
    run, _ = played(SCENES["tried again"])

    agent = run.agent("root")

    assert [(call.number, call.attempt, call.text) for call in agent.calls] == [
        (1, 1, ""),
        (2, 2, "half"),
        (3, 1, "whole"),
    ]
    assert [call.message for call in agent.calls] == [
        None,
        assistant_message("half"),
        assistant_message("whole"),
    ]
    assert [call.error and call.error["message"] for call in agent.calls] == ["no", "down", None]
    assert len({call.key for call in agent.calls}) == 1, "the same request has the same key"
    assert [message.text for message in agent.messages] == ["the task", "whole"]


def test_keys_of_an_agent_are_those_of_its_requests_also_when_a_secret_stands_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "very-secret-value")
    call = ToolUse("l", "echo", {"text": LONG + "very-secret-value"})
    run = Session(
        provider=ScriptedProvider([Reply("It is very-secret-value", tool_uses=(call,)), "done"]),
        tools=[agentnb.tool(echo)],
    ).spawn("say very-secret-value")
    run.result(DEADLINE_S)

    document = run.to_json()
    from_file = loaded(run, tmp_path).agent("root")

    assert "very-secret-value" not in document
    assert [call.key for call in from_file.calls] == [c.key for c in run.agent("root").calls]
    assert from_file.tool_calls[0].input == {"text": LONG + "[secret A_TOKEN]"}
    assert from_file.tool_calls[0].result == LONG + "[secret A_TOKEN]"
    assert from_file.calls[0].message is not None
    assert from_file.calls[0].message.text == "It is [secret A_TOKEN]"
    assert from_file.is_whole


# -- its tool calls -------------------------------------------------------------------------------


def test_tool_calls_are_told_whole_however_long_they_are(tmp_path: Path) -> None:
    run, _ = played(SCENES["tools"])
    events = [entry.event for entry in run.events]
    (cut,) = [e for e in events if isinstance(e, ToolCallStarted) and e.input_length is not None]
    (short,) = [e for e in events if isinstance(e, ToolCallFinished) and e.result_length]
    assert cut.input != {"text": LONG}, "the events hold only a part"
    assert short.result != LONG

    for record in (run, loaded(run, tmp_path)):
        calls = record.agent("root").tool_calls
        assert [(c.number, c.tool_use_id, c.name, c.path, c.status) for c in calls] == [
            (1, "l", "echo", "root", FINISHED),
            (2, "s", "echo", "root", FINISHED),
            (3, "b", "echo", "root", FINISHED),
        ]
        assert [c.input for c in calls] == [dict(LONG_CALL.input), {"text": "hi"}, BAD_CALL.input]
        assert [(c.result, c.is_error) for c in calls] == [
            (LONG, False),
            ("hi", False),
            ("ValueError: oh", True),
        ]
        assert all(c.duration_ms is not None and c.at_s > 0 for c in calls)


def test_view_without_the_whole_tool_calls_is_not_whole() -> None:
    run, _ = played(SCENES["out of turns"])

    record = RunRecord(run.id, run.task, EventBus.of_record(run.id, run._bus.rows_since(0)))
    agent = record.agent("root")

    assert not agent.is_whole
    assert agent.messages[-1] == ASKED, "results that are known in part are no message"
    assert len(agent.tool_calls[0].result) == 2_000


def test_tool_call_in_which_the_process_died_has_no_result(tmp_path: Path) -> None:
    run, _ = played(SCENES["out of turns"])
    rows = run._bus.rows_since(0)
    begun = max(place for place, row in enumerate(rows) if isinstance(row[1], ToolCallStarted))
    died = AgentInterrupted(agent_id=run.thread_id, reason="the process died")
    rows = [*rows[: begun + 1], (rows[begun][0], died)]

    record = RunRecord(run.id, run.task, EventBus.of_record(run.id, rows))
    agent = record.agent("root")

    assert agent.status is AgentStatus.INTERRUPTED
    assert (agent.tool_calls[-1].status, agent.tool_calls[-1].duration_ms) == (STARTED, None)
    assert agent.messages[-1] == ASKED
    assert not agent.is_whole
    assert loaded(record, tmp_path).agents == record.agents


def test_results_after_the_last_call_are_those_that_the_engine_would_have_sent() -> None:
    huge = ToolUse("h", "echo", {"text": "x" * 1_000, "times": 150})
    both = Reply(spawn("A", before="I split it."), tool_uses=(LONG_CALL, huge, BAD_CALL))
    ended, _ = played(Scene([both], settings={"max_turns": 1}))
    _, provider = played(Scene([both, "done"]))

    sent = provider.requests[1].messages

    assert ended.agent("root").messages == sent
    assert len(ended.agent("root").tool_calls[1].result) == 150_000


# -- and what a journal keeps ---------------------------------------------------------------------


class Keeping:
    """Keeps the newest record of each call and tool call."""

    def __init__(self) -> None:
        self.kept: dict[tuple[type, str, int], Any] = {}

    async def commit(self) -> None:
        return

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        self.kept[type(record), record.path, record.number] = record

    def keep(self, record: Kept) -> None:
        if isinstance(record, CallRecord | ToolCallRecord):
            self.intend(record)


def without_what_no_event_holds(record: Any) -> Any:
    if isinstance(record, ToolCallRecord):
        return replace(record, effects=True)
    words = record.error and record.error["message"]
    return replace(record, error=words)


@pytest.mark.parametrize("name", SCENES)
async def test_view_has_the_records_that_the_journal_was_handed(name: str) -> None:
    journal, scene = Keeping(), SCENES[name]
    settings = dict(scene.settings)
    turns = settings.pop("max_turns", 10)
    tree = make_tree(
        by_agent({"root": scene.replies}),
        tools=[agentnb.tool(echo)],
        journal=journal,
        orchestrator=AgentOrchestrator(max_turns=turns),
        **settings,
    )
    await tree.run()

    agents = RunRecord("r", "the task", tree.bus).agents

    told: list[Any] = [call for one in agents for call in (*one.calls, *one.tool_calls)]
    assert {(type(each), each.path, each.number): without_what_no_event_holds(each)
            for each in told} == {
        key: without_what_no_event_holds(each) for key, each in journal.kept.items()
    }  # fmt: skip
    assert told


# -- while it works -------------------------------------------------------------------------------


def test_agent_in_a_tool_is_told_with_the_open_call_and_whole_once_it_was_cancelled(
    tmp_path: Path,
) -> None:
    hold = Hold()

    async def wait(text: str) -> str:
        """Wait."""
        await hold()
        return text

    call = ToolUse("w", "wait", {"text": LONG})
    provider = ScriptedProvider([Reply("I wait.", thinking="hm", tool_uses=(call, SHORT_CALL))])
    tools = [agentnb.tool(wait), agentnb.tool(echo)]
    run = Session(provider=provider, tools=tools).spawn("the task")
    hold.wait()
    until(run, lambda agent: len(agent.tool_calls) == 2 and agent.tool_calls[1].result)

    live = run.agent("root")
    asked = said(ThinkingBlock("hm"), TextBlock("I wait."), *uses(call, SHORT_CALL))
    assert live.messages == (*provider.requests[0].messages, asked)
    assert [(c.status, c.result) for c in live.tool_calls] == [(STARTED, ""), (FINISHED, "hi")]
    assert not live.is_whole
    assert loaded(run, tmp_path).agents == run.agents

    run.cancel()
    with pytest.raises(RunCancelled):
        run.result(DEADLINE_S)

    agent = run.agent("root")
    assert agent.status is AgentStatus.CANCELLED
    assert agent.tool_calls[0].input == {"text": LONG}
    assert agent.messages == (
        *live.messages,
        results(
            ToolResultBlock("w", "cancelled", is_error=True),
            ToolResultBlock("s", "hi"),
        ),
    )
    assert agent.is_whole
    assert loaded(run, tmp_path).agents == run.agents
    hold.release()


def until(run: Run, holds: Callable[[AgentView], object]) -> None:
    """Wait until the root's view is as wanted."""
    while True:
        seen = len(run._bus)
        if holds(run.agent("root")):
            return
        run._bus.wait_past(seen, timeout_s=DEADLINE_S)


def test_reply_that_the_budget_stopped_in_the_middle_is_kept_as_far_as_it_came(
    tmp_path: Path,
) -> None:
    class Endless:
        """A model that writes more than the limit."""

        name = "endless"

        async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
            for number in itertools.count():
                yield TextDelta(f"word {number} ")

    run = Session(provider=Endless(), budget=3_000).spawn("the task")
    run.result(DEADLINE_S)

    agent = run.agent("root")

    assert agent.status is AgentStatus.EXHAUSTED
    (call,) = agent.calls
    assert (call.stop_reason, call.message) == (None, assistant_message(call.text))
    assert "word 99 " in call.text
    assert agent.messages == (*call.request.messages, assistant_message(call.text))
    assert agent.is_whole
    assert loaded(run, tmp_path).agents == run.agents


def test_cancelled_reply_is_kept_as_far_as_it_came(tmp_path: Path) -> None:
    hold = Hold()
    run = Session(provider=ScriptedProvider([Reply("some of it, not all", pause=hold)])).spawn("t")
    hold.wait()

    live = run.agent("root")
    run.cancel()
    with pytest.raises(RunCancelled):
        run.result(DEADLINE_S)
    agent = run.agent("root")

    assert live.messages[-1].text == live.calls[0].text != ""
    assert (live.calls[0].message, live.calls[0].usage, live.is_whole) == (None, None, False)
    assert agent.messages == live.messages
    assert agent.is_whole
    assert agent.calls[0].error is not None
    assert agent.calls[0].error["message"] == "cancelled"
    assert loaded(run, tmp_path).agents == run.agents
    hold.release()


# -- older files ----------------------------------------------------------------------------------

DATA = Path(__file__).parent / "core" / "data"


def test_older_file_without_whole_replies_shows_what_it_has() -> None:
    run = load_run(DATA / "run_version_2.json")

    root, first, second = run.agents

    assert [message.text for message in root.messages][-1] == "Grüße, together"
    assert [call.message for call in first.calls] == [None, None]
    assert [len(call.result) for call in first.tool_calls] == [10, 2_000]
    assert first.messages[-1] == assistant_message("A is done")
    assert first.messages[-2].content[1] == ToolResultBlock("t2", "0123456789" * 250)
    assert second.messages[-1] == assistant_message("I look once more.")
    assert [agent.is_whole for agent in run.agents] == [False, False, False]
    assert run.status is AgentStatus.COMPLETED


def test_file_of_the_first_version_shows_what_it_has() -> None:
    run = load_run(DATA / "run_version_1.json")

    assert {agent.path: agent.messages[-1].text for agent in run.agents} == {
        "root": "Together: half of it",
        "1": "A is done",
        "2": "half",
    }
    (call,) = run.agent("1").tool_calls
    assert (call.name, call.is_error, call.status) == ("no_such_tool", True, FINISHED)
    assert call.result == "There is no tool 'no_such_tool' (known: none)."
    assert {agent.path: agent.is_whole for agent in run.agents} == {
        "root": False,
        "1": False,
        "2": True,  # its reply broke off: its text is what arrived
    }
