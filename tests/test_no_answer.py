"""Replies without an answer, from outside: each kind of agent, both dialects, each kind of end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

import agentnb
from agentnb.core.errors import AuthenticationFailed, NoAnswer, OrchestratorError
from agentnb.core.types import Usage
from agentnb.providers.scripted import Reply as ScriptedReply
from agentnb.testing import ScriptedProvider, by_agent, tool_calls
from tests.loopback import LoopbackServer, Reply, ToolCall
from tests.support import DEADLINE_S, spawn

LIMIT = 100
HALF = "word " * 60
"""Thinking of some 75 tokens."""
MODELS = {"chat": "openai/m", "messages": "anthropic/m"}
KINDS = ("agent", "block", "tool", "row", "judge", "typed row", "synthesis")
TASK = "Name the capital."

EATEN = Reply(thinking=HALF * 2, text="Paris")
"""Within the limit there is room for thinking only; within twice the limit, for all."""
ENDLESS = Reply(thinking=HALF * 9, text="Paris")
SILENT = Reply(thinking="Hm.", stop_reason="end_turn")
FULL = Reply(thinking="Hm.", stop_reason="model_context_window_exceeded")
CUT = Reply(text="Par", stop_reason="model_context_window_exceeded")
DECLINED = Reply(text="Half an", stop_reason="guardrail_intervened")
PARIS = Reply(text="Paris")
NO_ROOM = Reply(status=400, message="max_tokens: 200 > 100, the most that this model writes")


@dataclass
class Scene:
    """One agent of a kind, asked over one dialect, gets the replies of a test."""

    dialect: str
    kind: str
    replies: list[Reply]
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of its requests."""

    def answer(self, body: dict[str, Any]) -> Reply:
        last = _text(body["messages"][-1])
        has_results = "<sub_agent_results>" in last or '"tool_result"' in last
        is_root = "<task>" not in json.dumps(body.get("system", body["messages"][0]))
        if self.kind == "synthesis":
            is_it = is_root and "<sub_agent_results>" in json.dumps(body["messages"])
        elif self.kind in ("block", "tool"):
            is_it = not is_root
        else:
            is_it = body["model"] == "m"
        if is_it:
            self.asked.append(body)
            return self.replies.pop(0) if self.replies else PARIS
        if not is_root or self.kind == "judge":
            return PARIS
        if has_results or "tool" in str(body["messages"][-1]):
            return Reply(text="All in all.")
        if self.kind == "tool":
            return Reply(tool_uses=[ToolCall("spawn", {"task": TASK})])
        return Reply(text=spawn(TASK, before="I ask for the capital first."))

    def run(self, *, budget: int = 1_000_000, **more: Any) -> Mapping[str, Any]:
        """What its record says of it: a row of `to_records()`."""
        session = agentnb.Session(
            MODELS[self.dialect],
            store=None,
            max_output_tokens=LIMIT,
            budget=budget,
            delegation="tools" if self.kind == "tool" else "block",
            **more,
        )
        with session:
            if self.kind in ("row", "judge", "typed row"):
                model = MODELS[self.dialect]
                models = [model, f"{model}2"] if self.kind == "judge" else None
                output = Literal["Paris", "Rome"] if self.kind == "typed row" else None
                run: Any = session.map([TASK], "{{text}}", output, models=models)
                run.result(DEADLINE_S)
            else:
                run = session.spawn("Think.", max_depth=0 if self.kind == "agent" else 1)
                with contextlib.suppress(NoAnswer):
                    run.result(DEADLINE_S)
            path = "root" if self.kind in ("agent", "synthesis") else "1"
            (found,) = (each for each in run.to_records() if each["path"] == path)
            return {**found, "answer": found["answer"].strip('"')}  # of a typed row it is JSON

    @property
    def limits(self) -> list[int]:
        """The `max_tokens` of its requests."""
        names = ("max_tokens", "max_completion_tokens")
        return [next(body[name] for name in names if name in body) for body in self.asked]


@agentnb.tool
def note(q: str) -> str:
    """Note a fact."""
    return "noted"


def _text(message: Mapping[str, Any]) -> str:
    return json.dumps(message["content"])


Make = Callable[..., Scene]


@pytest.fixture(params=MODELS)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def scene(dialect: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def make(kind: str, *replies: Reply) -> Scene:
            it = Scene(dialect, kind, list(replies))
            server = stack.enter_context(LoopbackServer(it.answer))
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-real-key")
            return it

        yield make


@pytest.mark.parametrize("kind", KINDS)
def test_thinking_that_used_up_the_limit_gets_twice_as_much(scene: Make, kind: str) -> None:
    it = scene(kind, EATEN, EATEN)

    found = it.run()

    assert (found["status"], found["answer"], found["error"]) == ("completed", "Paris", None)
    assert found["notes"] == "The reply held no text within its limit of 100 tokens."
    assert it.limits == [LIMIT, 2 * LIMIT]
    first, second = map(without_limit, it.asked)
    assert first == second


@pytest.mark.parametrize("kind", KINDS)
def test_thinking_that_used_up_twice_the_limit_is_a_failure(scene: Make, kind: str) -> None:
    it = scene(kind, ENDLESS, ENDLESS)

    found = it.run()

    assert found["status"] == "failed"
    assert "`max_output_tokens` (100 tokens, then twice as many)" in found["error"]
    assert it.limits == [LIMIT, 2 * LIMIT]


@pytest.mark.parametrize("kind", KINDS)
def test_server_that_refuses_twice_the_limit_is_told_with_what_to_do(
    scene: Make, kind: str
) -> None:
    it = scene(kind, EATEN, NO_ROOM, NO_ROOM)

    found = it.run()

    assert found["status"] == "failed"
    assert "Set a larger `max_output_tokens`" in found["error"]
    assert "the most that this model writes" in found["error"]
    assert it.limits == [LIMIT, 2 * LIMIT]


@pytest.mark.parametrize("kind", KINDS)
def test_thinking_without_an_end_in_the_text_is_thinking_that_used_up_the_limit(
    scene: Make, kind: str
) -> None:
    it = scene(kind, Reply(text="<think>Paris, I am sure"), PARIS)

    found = it.run()

    assert (found["status"], found["answer"]) == ("completed", "Paris")
    assert it.limits == [LIMIT, 2 * LIMIT]


@pytest.mark.parametrize("kind", KINDS)
def test_silent_agent_is_asked_once_more_in_other_words(scene: Make, kind: str) -> None:
    it = scene(kind, SILENT, PARIS)

    found = it.run()

    assert (found["status"], found["answer"], found["error"]) == ("completed", "Paris", None)
    assert found["notes"] == "The reply held no text."
    first, second = it.asked
    words = "there is no text" if kind == "typed row" else "Give your answer to the task now"
    assert words in _text(second["messages"][-1])
    assert words not in _text(first["messages"][-1])
    assert it.limits == [LIMIT, LIMIT]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\u00a0\ufeff\n"])
def test_agent_that_says_nothing_twice_has_failed(scene: Make, kind: str, text: str) -> None:
    silent = Reply(text=text)
    it = scene(kind, silent, silent, PARIS)

    found = it.run()

    assert found["status"] == "failed"
    assert "its reply was empty, also when it was asked for its answer" in found["error"]
    assert found["notes"] == "The reply held no text.", "once, though of both calls"
    assert len(it.asked) == 2
    assert it.asked[0] != it.asked[1]


@pytest.mark.parametrize("kind", KINDS)
def test_full_window_without_text_is_a_failure_at_once(scene: Make, kind: str) -> None:
    it = scene(kind, FULL)

    found = it.run()

    assert found["status"] == "failed"
    assert "its context window was full" in found["error"]
    assert len(it.asked) == 1


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "typed row"])
def test_full_window_with_text_is_an_answer_that_was_cut(scene: Make, kind: str) -> None:
    it = scene(kind, CUT)

    found = it.run()

    assert (found["status"], found["answer"]) == ("completed", "Par")
    assert "cut at a limit" in found["notes"]
    assert len(it.asked) == 1


@pytest.mark.parametrize("kind", ["agent", "block", "tool"])
def test_text_beside_the_last_tool_call_is_the_answer_if_nothing_follows(
    scene: Make, kind: str
) -> None:
    it = scene(
        kind, Reply(text="It is Paris.", tool_uses=[ToolCall("note", {"q": "Paris"})]), SILENT
    )

    found = it.run(tools=[note])

    assert (found["status"], found["answer"]) == ("completed", "It is Paris.")
    assert len(it.asked) == 2


def test_text_from_before_a_sub_agents_answer_is_not_the_answer() -> None:
    provider = by_agent(
        {
            "root": [
                tool_calls(("spawn", {"task": "A"}), text="I ask somebody."),
                tool_calls(("spawn_await", {"job_ids": "*"})),
                "",
                "It is Paris.",
            ],
            "A": "Paris",
        }
    )
    with agentnb.Session(provider=provider, store=None, delegation="tools") as session:
        result = session.spawn("Think.").result(DEADLINE_S)

    assert result.final_response == "It is Paris."


def test_text_from_before_a_persons_note_is_not_the_answer_to_it() -> None:
    told = list[agentnb.Run]()

    @agentnb.tool
    def look() -> str:
        """Look it up."""
        told[0].tell("root", "Italy's, please.")
        return "found"

    scripted = ScriptedProvider([tool_calls(("look", {}), text="It is Paris."), "", "It is Rome."])
    with agentnb.Session(provider=scripted, store=None, tools=[look], max_depth=0) as session:
        told.append(session.spawn(TASK))

        assert told[0].result(DEADLINE_S).final_response == "It is Rome."


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replies", [(EATEN, EATEN), (ENDLESS, ENDLESS), (SILENT, SILENT)])
def test_recording_answers_both_calls(
    scene: Make, kind: str, replies: tuple[Reply, ...], tmp_path: Path
) -> None:
    cassette = tmp_path / "two-calls.cassette.jsonl"
    it = scene(kind, *replies)

    live = it.run(mode="record", cassette=cassette)
    asked = len(it.asked)
    again = it.run(mode="replay", cassette=cassette)

    told = ("status", "answer", "error", "notes")
    assert [again[name] for name in told] == [live[name] for name in told]
    assert len(it.asked) == asked == 2


@pytest.mark.parametrize(
    ("replies", "status", "line"),
    [
        ([EATEN, EATEN], "completed", "The reply held no text within its limit of 100 tokens."),
        ([ENDLESS, ENDLESS], "failed", "`max_output_tokens` (100 tokens, then twice as many)"),
        ([SILENT, PARIS], "completed", "The reply held no text."),
        ([SILENT, SILENT], "failed", "its reply was empty, also when it was asked"),
        ([FULL], "failed", "its context window was full before any text came"),
        ([CUT], "completed", "the answer was cut at a limit"),
        ([DECLINED], "failed", "declined to answer (guardrail_intervened): Half an"),
    ],
    ids=["eaten", "endless", "silent", "silent twice", "full", "cut", "declined"],
)
def test_each_end_is_told_in_one_line_wherever_a_person_looks(
    scene: Make, replies: list[Reply], status: str, line: str, tmp_path: Path
) -> None:
    it = scene("agent", *replies)
    model = MODELS[it.dialect]
    with agentnb.Session(
        model, store=tmp_path / "runs.db", max_output_tokens=LIMIT, max_depth=0
    ) as session:
        run = session.spawn(TASK)
        with contextlib.suppress(OrchestratorError):
            run.result(DEADLINE_S)
        loaded = session.load(run.id)
        for record in (run, loaded):
            (row,) = record.to_records()
            assert row["status"] == status
            assert row["cut"] is ("cut" in line)
            assert line in (row["error"] or row["notes"])
            view = record.agent("root")
            assert line in (view.error or " ".join(view.notes))
            saved = " ".join(record._repr_mimebundle_()["text/plain"].split())
            assert saved.count(line) <= 2, "once as the answer, once beside the agent"
            assert line in saved


@pytest.mark.parametrize("kind", ["agent", "typed row"])
def test_call_is_no_empty_reply(scene: Make, kind: str) -> None:
    """A reply with a tool call alone needs no text: neither is noted, nor asked again."""
    call = ToolCall("final_answer", {"value": "Paris"})
    if kind == "agent":
        call = ToolCall("note", {"q": "Paris"})
    it = scene(kind, Reply(tool_uses=[call]))

    found = it.run(tools=[note])

    assert (found["status"], found["notes"]) == ("completed", None)
    assert len(it.asked) == (2 if kind == "agent" else 1)


def test_earlier_answer_of_a_conversation_is_none_to_the_next_task(scene: Make) -> None:
    it = scene("agent", PARIS, SILENT, SILENT)
    with agentnb.Session(MODELS[it.dialect], store=None, max_depth=0) as session:
        run = session.spawn(TASK)
        run.result(DEADLINE_S)
        thread = session.thread(run.thread_id)
        with pytest.raises(NoAnswer):
            thread.send("And of Italy?").result(DEADLINE_S)

    assert "Paris" in json.dumps(it.asked[-1]["messages"])


@pytest.mark.parametrize("budget", [250, 300])
def test_budget_without_room_for_twice_the_limit_is_exhausted(scene: Make, budget: int) -> None:
    it = scene("agent", ENDLESS, ENDLESS)

    found = it.run(budget=budget)

    assert found["status"] == "exhausted"
    assert "its thinking used up `max_output_tokens` (100 tokens), and the" in found["error"]
    assert it.limits == [LIMIT]


@pytest.fixture
def dollars() -> Iterator[None]:
    """Ten dollars a million tokens of output."""
    agentnb.set_prices({"scripted": agentnb.Price(1, 10)})
    yield
    agentnb.set_prices({})


@pytest.mark.parametrize("budget", [12_000, "$0.12"])
def test_less_than_what_was_used_up_is_not_tried(budget: int | str, dollars: None) -> None:
    """The budget has room for a call, but its reply could be no longer than the first."""
    eaten = ScriptedReply("", thinking="Hm.", stop_reason="max_tokens", usage=Usage(100, 8_192))
    provider = ScriptedProvider([eaten, "Paris"])
    with agentnb.Session(provider=provider, store=None, budget=budget, max_depth=0) as session:
        result = session.spawn(TASK).result(DEADLINE_S)

    assert result.status == "exhausted"
    assert "the budget has no room for twice as many" in result.final_response
    assert len(provider.requests) == 1


def test_key_that_is_refused_meanwhile_is_told_as_that(scene: Make) -> None:
    it = scene("agent", EATEN, Reply(status=401, message="the key has been revoked"))

    with pytest.raises(AuthenticationFailed, match="revoked"):
        it.run()


def without_limit(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in body.items() if not name.startswith("max_")}
