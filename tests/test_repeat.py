"""A run is recorded and replayed without its models: by sessions, cassettes and real SDKs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Reply, Run, ScriptedProvider, Session, ToolUse, prices, repeat
from agentnb.core._call import services
from agentnb.core.errors import (
    InvalidRequest,
    NoSuchSession,
    NotRecorded,
    Overloaded,
    RateLimited,
    Refused,
)
from agentnb.core.events import AgentTextDelta, AgentWaiting, BudgetPaused, ProviderFailover
from agentnb.core.protocols import FallbackModel
from agentnb.core.types import CompletionRequest, Usage
from agentnb.errors import NoCassette
from agentnb.providers.fallback import FallbackProvider
from agentnb.testing import Hold, equal_records
from agentnb.views.panel.viewers import Viewers
from tests.loopback import LoopbackServer
from tests.repeating import ended, new_kernel, no_network, session_in
from tests.soak import recover_run
from tests.support import DEADLINE_S, events_of, spawn, task_of
from tests.tasks.keeping import Keeping

CASSETTE = "x.cassette.jsonl"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with new_kernel():
        yield


def repeated(model: Any, act: Any = None, **settings: Any) -> tuple[Run, Run]:
    """A recorded run, and its replay from the cassette alone.

    Args:
        model: The scripted provider's answers.
        act: Starts the run of a session; by default `spawn("Plan.")`.
        settings: The settings of both sessions.
    """
    act = act or (lambda session: session.spawn("Plan."))
    provider = settings.pop("provider", None) or ScriptedProvider(model)
    first = ended(act(session_in("record", provider=provider, **settings)))
    with new_kernel(), no_network():
        again = ended(act(session_in("replay", provider=Unasked(provider), **settings)))
    return first, again


class Unasked:
    """The same provider, which must not be called: a chain has the same models."""

    def __init__(self, provider: Any) -> None:
        self.name = provider.name
        if hasattr(provider, "links"):
            links = provider.links
            self.links = [FallbackModel(Unasked(each.provider), each.model) for each in links]

    def stream(self, request: CompletionRequest) -> Any:
        raise AssertionError("a model was asked in a replay")


def check(first: Run, again: Run) -> None:
    """Check that the replayed run has the events and the end of the recorded one."""
    assert equal_records(first, again) == []
    assert again.budget.tokens_used == first.budget.tokens_used
    errors = [each._future.exception() for each in (first, again)]
    assert repr(errors[1]) == repr(errors[0])
    if errors[0] is None:
        assert again.result().output == first.result().output


def test_run_of_both_dialects_is_replayed_without_server_key_and_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three levels, tools, a sequence, a failure, broken replies, calls that fail once."""
    tries: Counter[recover_run.Call] = Counter()

    def answer(body: dict[str, Any]) -> Any:
        call = recover_run.call_in(body)
        tries[call] += 1
        return recover_run.reply_to(call, body, tries[call])

    for each in ("ANTHROPIC", "OPENAI"):  # the run sets them; this restores them after the test
        monkeypatch.setenv(f"{each}_BASE_URL", "")
        monkeypatch.setenv(f"{each}_API_KEY", "")
    monkeypatch.setenv("AGENTNB_CASSETTE", CASSETTE)
    monkeypatch.setenv("AGENTNB_MODE", "record")
    with LoopbackServer(answer) as server:
        first = ended(recover_run.begin(Path(), server.url))
    asked, ordered = tries.total(), recover_run.orders_in(Path()).read_text()
    monkeypatch.setenv("AGENTNB_MODE", "replay")
    with new_kernel(), no_network():
        again = ended(recover_run.begin(Path(), "http://127.0.0.1:9"))

    assert again.mode == "replay"
    check(first, again)
    assert tries.total() == asked
    assert recover_run.orders_in(Path()).read_text() == ordered


def by_task(replies: dict[str, Any]) -> Any:
    """A model that answers each agent by its task and its number of earlier answers."""

    def model(request: CompletionRequest) -> Any:
        said = replies.get(task := task_of(request), f"done: {task}")
        turns = sum(message.role == "assistant" for message in request.messages)
        return said[turns] if isinstance(said, list) else said

    return model


def in_turn(*replies: Any) -> Any:
    """A model that gives these replies in turn; it raises an error among them."""
    left = iter(replies)
    return lambda request: next(left)


def until_asked(run: Run) -> None:
    """Return when the budget's question is open and holds an agent.

    An earlier command would end the run before that agent has begun.
    """

    async def asked() -> None:
        async for entry in run.stream():
            if isinstance(entry.event, AgentWaiting) and "budget's question" in entry.event.reason:
                return

    asyncio.run(asyncio.wait_for(asked(), DEADLINE_S))


def uses(name: str, **given: Any) -> Reply:
    return Reply("I do.", tool_uses=(ToolUse(f"u_{name}", name, given),))


SCENES: dict[str, tuple[Any, dict[str, Any]]] = {
    "retries": (in_turn(Overloaded("Too much."), RateLimited("Slow."), "All is well."), {}),
    "a second attempt": (in_turn(InvalidRequest("What?", status_code=422), "Well."), {}),
    "a failure": (in_turn(InvalidRequest("No.", status_code=400)), {}),
    "a refusal": (in_turn(Refused("I will not.")), {}),
    "a cut reply": (in_turn(Reply("It is cut", stop_reason="max_tokens")), {}),
    "a child that fails": (
        by_task(
            {
                "root": [spawn("A", "B"), "What there is."],
                "A": InvalidRequest("No.", status_code=400),
            }
        ),
        {},
    ),
    "a sequence": (by_task({"root": [spawn("A", "B", mode="sequential"), "Both."]}), {}),
    "levels and limits": (
        by_task({"root": [spawn("A"), "All."], "A": [spawn("B"), "a"], "B": [spawn("C"), "b"]}),
        {"max_depth": 2},
    ),
    "a budget that ends": (
        by_task(
            {
                "root": [Reply(spawn("A", "B"), usage=Usage(9_000, 100)), "What there is."],
                "A": Reply("y" * 20_000),
                "B": Reply("z" * 20_000),
            }
        ),
        {"budget": 14_000, "on_budget_warning": "continue"},
    ),
    "a budget that stops": (
        by_task({"root": [Reply(spawn("A"), usage=Usage(90_000, 0)), "What there is."]}),
        {"budget": 100_000, "on_budget_warning": "stop"},
    ),
    "jobs": (
        by_task(
            {
                "root": [
                    uses("spawn", task="A"),
                    uses("spawn_status", job_ids="*"),
                    uses("spawn_await", job_ids="*"),
                    "All.",
                ]
            }
        ),
        {"delegation": "tools"},
    ),
    "notes and memories": (
        by_task(
            {
                "root": [
                    uses("workspace_write", key="a", text="b"),
                    uses("remember", fact="Tea is hot."),
                    uses("recall", query="tea"),
                    spawn("A"),
                    "All.",
                ],
                "A": [uses("workspace_read"), "a"],
            }
        ),
        {"tools": ["workspace", "memory"]},
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_replay_tells_the_same_of_a_run_with(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_FIRST_DELAY_S", 0.01)
    model, settings = SCENES[scene]
    check(*repeated(model, **settings))


def test_failover_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_FIRST_DELAY_S", 0.01)
    one = ScriptedProvider(lambda _: InvalidRequest("No such model.", status_code=404))
    chain = FallbackProvider(
        [FallbackModel(one, "scripted/a"), FallbackModel(ScriptedProvider(["b"]), "scripted/b")]
    )
    first, again = repeated(None, provider=chain)
    check(first, again)
    assert len(events_of(again.events, ProviderFailover)) == 1


@pytest.mark.parametrize(
    ("order", "status"),
    [
        (lambda run: run.answer_budget("continue"), "completed"),
        (lambda run: run.answer_budget("stop"), "exhausted"),
        (lambda run: run.set_budget(300_000), "completed"),
    ],
)
def test_orders_of_a_person_come_at_their_call(
    order: Any, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    monkeypatch.setattr(Viewers, "any", lambda _: True)  # a person is there to ask

    def model(request: CompletionRequest) -> Any:
        if (task := task_of(request)) == "A":
            return Reply("a", usage=Usage(90_000, 0))
        if task == "B":
            runs[0].cancel("2", "not needed")
            return "b"
        turns = sum(message.role == "assistant" for message in request.messages)
        return "What there is." if turns else spawn("A", "B", mode="sequential")

    def spawned(session: Session) -> Run:
        runs.append(session.spawn("Plan."))
        if session.mode.name == "record":
            until_asked(runs[0])
            order(runs[0])
        ended(runs[0])
        return runs.pop()

    first, again = repeated(model, spawned, budget=110_000)

    check(first, again)
    assert len(events_of(again.events, BudgetPaused)) == 1
    assert str(again.status) == status
    assert str(again.agents[-1].status) == ("exhausted" if status == "exhausted" else "cancelled")


class KeptRun:
    """A run for its own agents, which may ask before `spawn` has returned."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._is_here = threading.Event()

    def keep(self, run: Run) -> Run:
        self._run = run
        self._is_here.set()
        return run

    def get(self) -> Run:
        assert self._is_here.wait(DEADLINE_S)
        assert self._run is not None
        return self._run


def cancelling(whom: str | None, replies: dict[str, Any]) -> tuple[Any, Any]:
    """A model whose call for B cancels the agent `whom`, and a function that starts its run."""
    kept = KeptRun()

    async def model(request: CompletionRequest) -> Any:
        if task_of(request) != "B":
            return by_task(replies)(request)
        kept.get().cancel(whom, "not needed")
        await asyncio.Event().wait()

    def act(session: Session) -> Run:
        return kept.keep(session.spawn("Plan."))

    return model, act


def test_job_that_its_agent_stopped_is_not_reported_twice() -> None:
    """The recorded cancel may come before the replay of the tool that requested it."""

    async def model(request: CompletionRequest) -> Any:
        if task_of(request) == "A":
            await asyncio.Event().wait()
        turns = sum(message.role == "assistant" for message in request.messages)
        turn = [uses("spawn", task="A"), uses("spawn_cancel", job_ids="*"), "All."]
        return turn[turns]

    first, again = repeated(model, delegation="tools")

    check(first, again)
    assert [str(agent.status) for agent in again.agents] == ["completed", "cancelled"]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_cancel_of_the_whole_run_comes_again(mode: str) -> None:
    model, act = cancelling(None, {"root": [spawn("A", "B", "C", mode=mode), "All."]})

    first, again = repeated(model, act)

    check(first, again)
    assert str(again.status) == "cancelled"


def test_auto_continues_a_run_that_was_stopped() -> None:
    """Only open calls reach the model; the rest comes from the cassette."""
    model, act = cancelling(None, {"root": [spawn("A", "B", mode="sequential"), "All."]})
    ended(act(session_in("record", provider=ScriptedProvider(model))))
    provider = ScriptedProvider(by_task({"root": ["", "All."]}))

    with new_kernel():
        run = ended(session_in("auto", provider=provider).spawn("Plan."))

    assert run.result().output == "All."
    assert [task_of(request) for request in provider.requests] == ["B", "root"]
    with new_kernel(), no_network():
        check(run, ended(session_in("replay", provider=Unasked(provider)).spawn("Plan.")))


@pytest.mark.parametrize("whom", [None, "1"])
def test_cancel_of_one_and_later_of_those_above_it_each_come_at_their_place(
    whom: str | None,
) -> None:
    kept = KeptRun()

    async def model(request: CompletionRequest) -> Any:
        turns = sum(message.role == "assistant" for message in request.messages)
        task = task_of(request)
        if task == "root" and not turns:
            return spawn("P")
        if task == "P" and not turns:
            return spawn("A", "B")
        if task not in ("P", "B"):
            return f"done: {task}"
        kept.get().cancel(*(("1.2", "not needed") if task == "B" else (whom, "enough")))
        await asyncio.Event().wait()

    def act(session: Session) -> Run:
        return kept.keep(session.spawn("Plan."))

    first, again = repeated(model, act)

    check(first, again)
    assert [str(agent.status) for agent in again.agents[1:]] == [
        "cancelled",
        "completed",
        "cancelled",
    ]


@pytest.mark.parametrize(
    ("tasks", "asked"),
    [
        (("A", "M"), ["root", "M", "root"]),
        (("N", "A", "B"), ["root", "B", "N", "root"]),
        (("A", "B"), ["root", "root"]),
    ],
)
def test_auto_cancels_again_only_the_agent_that_was_cancelled(
    tasks: Sequence[str], asked: Sequence[str]
) -> None:
    """Not another agent that has its place now."""
    model, act = cancelling("2", {"root": [spawn("A", "B"), "What there is."]})
    provider = ScriptedProvider(model)
    ended(act(session_in("record", provider=provider)))
    forget(lambda line: line["kind"] == "call" and line["path"] == "root")
    provider = ScriptedProvider(by_task({"root": [spawn(*tasks), "All."]}))

    with new_kernel():
        run = ended(session_in("auto", provider=provider).spawn("Plan."))

    assert sorted(task_of(request) for request in provider.requests) == sorted(asked)
    was_there = tasks == ("A", "B")
    assert (str(run.agents[-1].status) == "cancelled") is was_there
    with new_kernel(), no_network():
        again = ended(session_in("replay", provider=Unasked(provider)).spawn("Plan."))
    check(run, again)


def test_other_call_of_a_cancelled_agent_is_a_miss() -> None:
    """It does not wait for a cancel during a call that it does not make now."""
    model, act = cancelling("2", {"root": [spawn("A", "B"), "What there is."]})
    ended(act(session_in("record", provider=ScriptedProvider(model))))
    lines = [json.loads(line) for line in Path(CASSETTE).read_text().splitlines()]
    for line in lines:
        if line.get("kind") == "call" and line["path"] == "2":
            line["key"] = "0" * 64
            line["request"]["system"] = "another"
    Path(CASSETTE).write_text("".join(json.dumps(line) + "\n" for line in lines))

    with new_kernel(), no_network():
        run = ended(session_in("replay", provider=ScriptedProvider([])).spawn("Plan."))

    assert isinstance(run._future.exception(), NotRecorded)


def test_agent_that_was_cancelled_after_its_reply_starts_no_sub_agent() -> None:
    """The cancel came after the reply and before its tasks were read."""
    replies = {"root": [spawn("A", "X"), "What there is."], "X": [spawn("B"), "x"]}
    model, act = cancelling("2", replies)
    ended(act(session_in("record", provider=ScriptedProvider(model))))
    forget(
        lambda line: (
            str(line.get("path")).startswith("2.")
            or (line["kind"] == "verdict" and line["path"] == "2")
            or (line["kind"] == "call" and (line["path"], line["number"]) == ("root", 2))
        )
    )
    provider = ScriptedProvider(by_task(replies))

    with new_kernel():
        run = ended(session_in("auto", provider=provider).spawn("Plan."))

    assert [task_of(request) for request in provider.requests] == ["root"]
    assert [(agent.path, str(agent.status)) for agent in run.agents][1:] == [
        ("1", "completed"),
        ("2", "cancelled"),
    ]


def forget(is_lost: Any) -> None:
    """Remove lines from the cassette."""
    head, *lines = Path(CASSETTE).read_text().splitlines(keepends=True)
    kept = [line for line in lines if not is_lost(json.loads(line))]
    assert len(kept) < len(lines)
    Path(CASSETTE).write_text("".join([head, *kept]))


def test_list_of_a_person_and_a_continued_thread_are_replayed() -> None:
    def talk(session: Session) -> Run:
        plan = ended(session.spawn_all(["A", "B"], name="plan"))
        run = ended(session.spawn("And then?", thread=plan.thread_id))
        assert len(session.thread(run.thread_id).messages) == 4
        return run

    check(*repeated(by_task({}), talk))


def test_task_that_an_agent_assigns_is_replayed_with_its_own_run_and_news() -> None:
    part = {"title": "Part", "prompt": "Do it.", "assigned_to": "new:scripted/worker"}
    waits: list[Any] = []

    def model(request: CompletionRequest) -> Any:
        said = [message.text for message in request.messages if message.role == "user"]
        if said[0].startswith("[TASK SYSTEM]"):
            return uses("task_complete", id="t1", note="Done.") if len(said) == 1 else "It is done."
        if "is completed" in said[-1]:
            return "I have heard it."
        if len(said) == 1:
            return uses("task_create", **part)
        return uses("task_list")

    def assigned(session: Session) -> Run:
        run = ended(session.spawn("Plan."))
        assert isinstance(session, Keeping)
        for each in session.started:
            ended(each)
        (agent,) = session.agents()
        waits.append([m.content for m in session.thread(agent.thread_id).messages])
        assert [(task.id, str(task.status)) for task in session.tasks.list()] == [
            ("t1", "completed")
        ]
        return run

    first, again = repeated(model, assigned, tools=["tasks"])

    check(first, again)
    assert waits[0] == waits[1]


# -- which recording answers -----------------------------------------------------------------------


def test_auto_makes_no_recorded_call_and_does_not_change_the_file() -> None:
    script = by_task({"root": [spawn("A", "B"), "All."], "B": "b"})
    ended(session_in("record", provider=ScriptedProvider(script)).spawn("Plan."))
    before = Path(CASSETTE).read_bytes()
    provider = ScriptedProvider([])

    with new_kernel():
        session = session_in("auto", provider=provider)
        runs = [ended(session.spawn("Plan.")) for _ in range(2)]  # the cell runs again

    assert provider.requests == []
    assert [run.result().output for run in runs] == ["All."] * 2
    assert Path(CASSETTE).read_bytes() == before


def test_auto_adds_the_changed_childs_calls_and_the_later_turns_above_it() -> None:
    """The child's prompt has changed, since its profile's text was edited."""
    Path("agentnb.yaml").write_text(SETTINGS.format("Be brief."))
    config = {"config": "agentnb.yaml", "delegation": "tools"}
    script = {
        "root": [
            Reply(
                tool_uses=(
                    ToolUse("u1", "spawn", {"task": "A"}),
                    ToolUse("u2", "spawn", {"task": "B", "profile": "reviewer"}),
                )
            ),
            uses("spawn_await", job_ids="*"),
            "All.",
        ]
    }
    first = ScriptedProvider(by_task(script))
    ended(session_in("record", provider=first, **config).spawn("Plan."))
    before = Path(CASSETTE).read_text().splitlines()
    Path("agentnb.yaml").write_text(SETTINGS.format("Be thorough."))
    provider = ScriptedProvider(by_task({**script, "B": "B, at length."}))

    with new_kernel():
        run = ended(session_in("auto", provider=provider, **config).spawn("Plan."))

    assert [task_of(request) for request in provider.requests] == ["B", "root"]
    assert run.result().output == "All."
    after = Path(CASSETTE).read_text().splitlines()
    new = [json.loads(line) for line in after if line not in before]
    calls = [(one["path"], one["number"]) for one in new if one["kind"] == "call"]
    assert sorted({*calls}) == [("2", 1), ("root", 3)]
    with new_kernel(), no_network():
        replayed = ended(
            session_in("replay", provider=ScriptedProvider([]), **config).spawn("Plan.")
        )
    assert equal_records(run, replayed) == []


async def test_tool_calls_that_are_used_no_more_are_not_waited_for() -> None:
    """The third call had ended first, and the changed run does not make it."""
    ends = {3: asyncio.Event(), 1: asyncio.Event()}

    @agentnb.tool
    async def look(x: int) -> str:
        """Look."""
        if x in before:
            await ends[before[x]].wait()
        if x in ends:
            ends[x].set()
        return f"seen {x}"

    before = {1: 3, 2: 1}
    three = [ToolUse(f"u{x}", "look", {"x": x}) for x in (1, 2, 3)]
    other = [ToolUse(f"v{x}", "look", {"x": x}) for x in (4, 5)]
    settings = {"tools": [look]}
    first = ScriptedProvider([Reply(tool_uses=tuple(three)), "All."])
    await session_in("record", provider=first, **settings).spawn("Plan.")
    forget(lambda line: line["kind"] == "call")
    second = ScriptedProvider([Reply(tool_uses=tuple(other)), "All, now."])
    with new_kernel():
        run = session_in("auto", provider=second, **settings).spawn("Plan.")
        await run

    with new_kernel(), no_network():
        again = session_in("replay", provider=Unasked(second), **settings).spawn("Plan.")
        await asyncio.wait_for(again, DEADLINE_S)

    check(run, again)


SETTINGS = """
tools:
  spawn:
    profiles:
      reviewer: {{description: Reads., system_prompt: {}}}
"""


def test_run_of_another_name_or_task_is_a_run_of_its_own_and_a_repeated_one_too() -> None:
    answers = iter(["one", "two", "three", "four"])
    session = session_in("record", provider=ScriptedProvider(lambda _: next(answers)))
    for task, name in (("Say.", None), ("Say.", None), ("Say.", "named"), ("Other.", None)):
        ended(session.spawn(task, name=name))

    with new_kernel(), no_network():
        replay = session_in("replay", provider=ScriptedProvider([]))
        said = [replay.spawn("Say.").result().output for _ in range(3)]
        said += [replay.spawn("Say.", name="named").result().output]
        said += [replay.spawn("Other.").result().output]

    assert said == ["one", "two", "two", "three", "four"]


def test_run_that_is_named_like_the_second_of_a_name_is_a_run_of_its_own() -> None:
    names, answers = ("it", "it~2", "it"), iter(["one", "two", "three"])
    session = session_in("record", provider=ScriptedProvider(lambda _: next(answers)))
    for name in names:
        ended(session.spawn("Say.", name=name))

    with new_kernel(), no_network():
        replay = session_in("replay", provider=ScriptedProvider([]))
        said = [replay.spawn("Say.", name=name).result().output for name in names]

    assert said == ["one", "two", "three"]


def test_thousands_of_runs_have_threads_of_their_own() -> None:
    labels = [f"run {number}" for number in range(20_000)]

    assert len({repeat._id_of(label) for label in labels}) == len(labels)


def test_record_replaces_the_runs_that_come_up_and_leaves_the_others() -> None:
    for answer, task in (("old", "A."), ("other", "B."), ("new", "A.")):
        with new_kernel():
            ended(session_in("record", provider=ScriptedProvider([answer])).spawn(task))

    with new_kernel(), no_network():
        replay = session_in("replay", provider=ScriptedProvider([]))
        assert [replay.spawn(task).result().output for task in ("A.", "B.")] == ["new", "other"]


# -- what is wrong ---------------------------------------------------------------------------------


def test_call_that_is_not_recorded_names_the_agent_and_the_words_that_differ() -> None:
    ended(session_in("record", provider=ScriptedProvider(["Yes."])).spawn("Plan.", name="it"))

    with new_kernel(), no_network():
        run = session_in("replay", provider=ScriptedProvider([])).spawn("Plan, then!", name="it")
        with pytest.raises(NotRecorded) as raised:
            run.result()

    assert "Plan[-.-]{+, then!+}" in str(raised.value)
    assert "%agentnb mode auto" in str(raised.value)
    assert raised.value.miss.differences[0].part == "message 1"  # type: ignore[attr-defined]
    assert str(run.status) == "failed"


def told_in(line: str) -> set[tuple[str, str]]:
    return {(name, value) for name, value in json.loads(line).items() if isinstance(value, str)}


@pytest.mark.parametrize("edited", ["Ja", "A longer and a better answer."])
def test_answer_that_a_person_edited_is_replayed(edited: str) -> None:
    provider = ScriptedProvider(["The answer."])
    record, file = session_in("record", provider=provider), Path(CASSETTE)
    assert record.run_sync("Plan.").output == "The answer."
    file.write_text(file.read_text().replace("The answer.", edited))
    before = file.read_bytes()

    for mode in ("replay", "auto"):
        with new_kernel():
            run = session_in(mode, provider=ScriptedProvider([])).spawn("Plan.")
            assert run.result(DEADLINE_S).output == edited
            assert "".join(event.text for event in events_of(run.events, AgentTextDelta)) == edited
    assert file.read_bytes() == before


def test_answer_that_was_edited_wherever_it_stands_is_replayed() -> None:
    """Another agent reads it, so it is in a request, whose key it no longer fits."""
    model = by_task({"root": [spawn("A"), "It is long."], "A": "2850 km"})
    ended(session_in("record", provider=ScriptedProvider(model)).spawn("Plan."))
    file = Path(CASSETTE)
    file.write_text(file.read_text().replace("2850 km", "2860 km, says the book"))
    before = file.read_bytes()

    for mode in ("replay", "auto", "replay"):
        with new_kernel():
            run = session_in(mode, provider=ScriptedProvider([])).spawn("Plan.")
            assert run.result(DEADLINE_S).output == "It is long."
            assert run.agent("1").text == "2860 km, says the book"
        if mode == "replay":
            assert file.read_bytes() == before
        before = file.read_bytes()  # `auto` writes the keys that fit now

    edited = [line for line in file.read_text().splitlines() if '"path":"1"' in line]
    file.write_text(file.read_text().replace(edited[0], edited[0].replace("2860", "2870")))
    with new_kernel(), pytest.raises(NotRecorded, match=r"\[-2860-\]\{\+2870\+\} km"):
        session_in("replay", provider=ScriptedProvider([])).spawn("Plan.").result(DEADLINE_S)


def test_auto_without_a_notebooks_name_reads_the_folders_only_cassette(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a grader runs the copy of a student who was told to set `auto`."""
    record, file = session_in("record", provider=ScriptedProvider(["2850 km"])), Path(CASSETTE)
    ended(record.spawn("How long?"))
    before = file.read_bytes()

    with new_kernel():
        session = Session(mode="auto", provider=ScriptedProvider(["new"]), store=None)
        assert session.run_sync("How long?").output == "2850 km"
        assert session.run_sync("How wide?").output == "new"
        assert "it may be another notebook's" in str(session._repeat.read_only())
        session.close()

    assert file.read_bytes() == before
    assert "new calls are answered, and not kept" in capsys.readouterr().err


def test_miss_of_a_sub_agent_fails_the_run_and_is_not_worked_around() -> None:
    model = by_task({"root": [spawn("A", "B"), "All."]})
    ended(session_in("record", provider=ScriptedProvider(model)).spawn("Plan."))
    lines = Path(CASSETTE).read_text().splitlines(keepends=True)
    lost = [line for line in lines if {("kind", "call"), ("path", "2")} <= told_in(line)]
    Path(CASSETTE).write_text("".join(line for line in lines if line not in lost))

    with new_kernel(), no_network():
        run = session_in("replay", provider=ScriptedProvider([])).spawn("Plan.")
        with pytest.raises(NotRecorded, match="agent 2"):
            run.result()

    assert len(lost) == 1


def test_killed_recording_is_reported_and_an_open_one_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hold = Hold()
    model = by_task({"root": [spawn("A"), "All."], "A": Reply("a", pause=hold)})
    session = session_in("auto", provider=ScriptedProvider(model))

    first = session.spawn("Plan.", name="first")
    hold.wait()  # the file has the root's call
    second = ended(session.spawn("Plan.", name="second", max_depth=0))
    assert capsys.readouterr().err == ""
    killed = Path(CASSETTE).read_bytes()
    hold.release()
    ended(first)
    assert [str(run.status) for run in (first, second)] == ["completed"] * 2

    Path(CASSETTE).write_bytes(killed)
    with new_kernel(), no_network():
        replay = session_in("replay", provider=ScriptedProvider([]))
        ended(replay.spawn("Plan.", name="second", max_depth=0))
        ended(replay.spawn("Plan.", name="second", max_depth=0))
    assert capsys.readouterr().err.count("did not end: 'first'") == 1


def test_replay_without_a_cassette_says_how_to_record_one() -> None:
    session = session_in("replay", provider=ScriptedProvider([]))

    with pytest.raises(agentnb.AgentnbError, match=r"x\.cassette\.jsonl"):
        session.spawn("Plan.")


@pytest.mark.parametrize("mode", ["record", "auto", "replay"])
def test_mode_without_a_name_for_its_cassette_is_an_error_before_the_first_call(mode: str) -> None:
    provider = ScriptedProvider([])
    session = Session(mode=mode, provider=provider)

    with pytest.raises(NoCassette, match="AGENTNB_CASSETTE"):
        session.spawn("Plan.")
    assert provider.requests == []


def test_in_ci_a_cassette_that_may_be_the_notebooks_stops_only_runs_over_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", "1")
    Path("some.cassette.jsonl").touch()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-key")

    assert Session("demo").spawn("Hello").result().output
    with no_network(), pytest.raises(NoCassette, match=r"some\.cassette\.jsonl"):
        Session("anthropic/m").spawn("Hello")


def test_replayed_run_is_priced_by_the_day_of_its_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced: list[datetime | None] = []

    def price(model: str, usage: Usage, at: datetime | None) -> Decimal:
        priced.append(at)
        return Decimal(0)

    monkeypatch.setattr(prices, "_by_genai_prices", price)
    ended(session_in("record", provider=ScriptedProvider(["Yes."])).spawn("Plan."))
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    text = Path(CASSETTE).read_text()
    assert text.count(f'"date":"{today}"') == 1
    Path(CASSETTE).write_text(text.replace(today, "2026-02-03"))

    with new_kernel():
        run = ended(session_in("replay", provider=ScriptedProvider([])).spawn("Plan."))
    run.cost  # noqa: B018 - asking is what counts
    run.to_json("run.json")
    agentnb.load_run("run.json").cost  # noqa: B018

    assert {at and f"{at:%Y-%m-%d}" for at in priced} == {"2026-02-03"}


def test_session_of_an_earlier_kernel_is_only_there_in_live_runs() -> None:
    live = Session(provider=ScriptedProvider(["Yes."]), store="x.db")
    ended(live.spawn("Plan."))

    with pytest.raises(NoSuchSession, match="live"):
        session_in("auto", provider=ScriptedProvider([]), store="x.db", id=live.id)


class OwnRun:
    """The run that its own agents cancel: they may begin before `spawn` returns it."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._is_there = threading.Event()

    def begun(self, run: Run) -> Run:
        self._run = run
        self._is_there.set()
        return run

    async def cancel(self, reason: str) -> None:
        await asyncio.to_thread(self._is_there.wait)
        assert self._run is not None
        self._run.cancel(None, reason)


@pytest.mark.parametrize("at", ["root", "A", "tool"])
def test_run_that_a_person_cancelled_is_cancelled_again(at: str) -> None:
    own = OwnRun()

    async def model(request: CompletionRequest) -> Any:
        task = task_of(request)
        turns = sum(message.role == "assistant" for message in request.messages)
        if task == at and (turns or task != "root"):
            await own.cancel("enough")
            return "Too late."
        if task == "root":
            return "All." if turns else spawn("A", "B")
        return uses("wait") if at == "tool" and task == "A" and not turns else f"{task} is done."

    @agentnb.tool
    async def wait() -> str:
        """Wait."""
        await own.cancel("enough")
        await asyncio.Event().wait()
        return "never"

    first, again = repeated(model, lambda each: own.begun(each.spawn("Plan.")), tools=[wait])

    assert str(again.status) == "cancelled"
    check(first, again)


def test_reply_that_was_cut_answers_no_call_that_may_say_more() -> None:
    cut = Reply("It is cut", stop_reason="max_tokens")
    provider = ScriptedProvider(lambda _: cut)
    ended(session_in("record", provider=provider, max_output_tokens=20).spawn("Plan."))

    for most, is_found in ((20, True), (21, False)):
        with new_kernel(), no_network():
            session = session_in("replay", provider=ScriptedProvider([]), max_output_tokens=most)
            run = ended(session.spawn("Plan."))
        assert isinstance(run._future.exception(), NotRecorded) is not is_found


def test_auto_continues_a_run_that_was_cancelled_during_its_recording() -> None:
    """For example by the end of the kernel."""
    own = OwnRun()

    async def stops(request: CompletionRequest) -> Any:
        if task_of(request) == "B":
            await own.cancel("the session was closed")
        return by_task(script)(request)

    script = {"root": [spawn("A", "B", mode="sequential"), "All."]}
    recording = session_in("record", provider=ScriptedProvider(stops))
    assert str(ended(own.begun(recording.spawn("Plan."))).status) == "cancelled"
    provider = ScriptedProvider(by_task(script))

    with new_kernel():
        run = ended(session_in("auto", provider=provider).spawn("Plan."))

    assert run.result().output == "All."
    assert [task_of(request) for request in provider.requests] == ["root"]
    with new_kernel(), no_network():
        replayed = ended(session_in("replay", provider=ScriptedProvider([])).spawn("Plan."))
    assert equal_records(run, replayed) == []


def test_auto_run_that_was_cancelled_midway_is_replayed_and_continues_in_the_next_auto() -> None:
    """The cassette has earlier calls after the place of the cancel."""
    kept = KeptRun()
    script = {"root": [spawn("A", "B", mode="sequential"), "All."], "A": "a", "B": "b"}
    ended(session_in("record", provider=ScriptedProvider(by_task(script))).spawn("Plan."))
    other: dict[str, Any] = {**script, "A": "another a"}

    def stops(request: CompletionRequest) -> Any:
        if task_of(request) == "B":
            kept.get().cancel(None, "enough")
        return by_task(other)(request)

    lines = Path(CASSETTE).read_text().splitlines(keepends=True)
    mine = [line for line in lines if {("kind", "call"), ("path", "1")} <= told_in(line)]
    Path(CASSETTE).write_text("".join(line for line in lines if line not in mine))
    with new_kernel():
        kept.keep(session_in("auto", provider=ScriptedProvider(stops)).spawn("Plan."))
        assert str(ended(kept.get()).status) == "cancelled"

    with new_kernel(), no_network():
        again = ended(session_in("replay", provider=ScriptedProvider([])).spawn("Plan."))
    check(kept.get(), again)

    provider = ScriptedProvider(by_task(other))
    with new_kernel():
        run = ended(session_in("auto", provider=provider).spawn("Plan."))
    assert run.result().output == "All."
    assert "A" not in [task_of(request) for request in provider.requests]


def test_error_that_a_model_gives_now_is_no_recorded_one() -> None:
    """Though one of a sub-agent has the same words."""
    refused = InvalidRequest("no such model", status_code=400)

    def model(request: CompletionRequest) -> Reply | str:
        if task_of(request) != "root":
            return Reply("", error=refused)
        return spawn("a") if len(request.messages) == 1 else "Done."

    ended(session_in("record", provider=ScriptedProvider(model)).spawn("Plan."))
    lines = Path(CASSETTE).read_text().splitlines(keepends=True)
    last = '"kind":"call","run":"11ae5794","path":"root","number":2'
    kept = [line for line in lines if last not in line]
    assert len(kept) == len(lines) - 1
    Path(CASSETTE).write_text("".join(kept))

    with new_kernel():
        provider = ScriptedProvider(lambda _: Reply("", error=refused))
        again = ended(session_in("auto", provider=provider).spawn("Plan."))

    error = again._future.exception()
    assert isinstance(error, InvalidRequest)
    assert not hasattr(error, "__notes__")
