"""Typed answers as a person gets them: every type, every way to write a reply, kept and loaded."""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field

import agentnb
from agentnb import Reply, ScriptedProvider, Session, ToolUse
from agentnb.core.errors import InvalidOutput
from agentnb.core.protocols import TypedAnswer, WrongAnswer
from agentnb.core.types import FINAL_ANSWER, CompletionRequest, ToolSpec, user_message
from agentnb.errors import ConfigError
from agentnb.providers.anthropic_wire import body_of
from agentnb.providers.demo import DemoProvider
from agentnb.typed import output_type
from tests.loopback import LoopbackServer
from tests.loopback import Reply as Served
from tests.loopback.said import Refusal
from tests.recover_scene import killed, session_of
from tests.repeating import ended, new_kernel, no_network, session_in
from tests.support import DEADLINE_S, task_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Level(enum.Enum):
    HIGH = "high"
    LOW = "low"


class Part(BaseModel):
    name: str
    share: float = Field(ge=0, le=1)


class Report(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: str
    level: Level
    parts: list[Part] = Field(min_length=1)
    note: str | None = None


class Node(BaseModel):
    name: str
    below: list[Node] = []


@dataclass
class Point:
    x: int
    label: str = "none"


class Row(TypedDict):
    x: int


GOOD: dict[str, Any] = {
    "title": "t",
    "level": "high",
    "parts": [{"name": "p", "share": 0.5}],
    "note": None,
}
REPORT = Report.model_validate(GOOD)


def read(type_: Any, reply: Any) -> TypedAnswer | WrongAnswer:
    output = output_type(type_)
    assert output is not None
    return output.read(reply)


# -- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "given", "data"),
    [
        (Report, GOOD, REPORT),
        (Node, {"name": "a", "below": [{"name": "b"}]}, Node(name="a", below=[Node(name="b")])),
        (Point, {"x": 1}, Point(1)),
        (Row, {"x": 1}, {"x": 1}),
        (list[Row], [{"x": 1}], [{"x": 1}]),
        (Literal["a", "b"], "b", "b"),
        (Level, "low", Level.LOW),
        (int, 5, 5),
        (float, 0.5, 0.5),
        (bool, False, False),
        (list[int], [1, 2], [1, 2]),
        (Optional[int], None, None),  # noqa: UP045
        (int | Part, {"name": "p", "share": 1}, Part(name="p", share=1)),
        (dict[str, int], {"a": 1}, {"a": 1}),
    ],
    ids=str,
)
def test_every_type_reads_its_answer_wrapped_and_bare(type_: Any, given: Any, data: Any) -> None:
    output = output_type(type_)
    assert output is not None
    assert output.schema["type"] == "object"

    for reply in (given, {"value": given}, json.dumps(given), json.dumps({"value": given})):
        if not isinstance(reply, str | dict):
            continue
        found = output.read(reply)
        assert isinstance(found, TypedAnswer), (reply, found)
        assert found.data == data
        assert type(found.data) is type(data)
        assert json.loads(found.text) == json.loads(found.text.strip())
        assert ": " not in found.text


@pytest.mark.parametrize("wrong", [5, "Report", REPORT, print, object(), lambda: 1, list["Nope"]])  # type: ignore[name-defined]  # noqa: F821
def test_what_is_no_type_is_refused_in_one_line_before_any_call(wrong: Any) -> None:
    provider = ScriptedProvider([])
    session = Session(provider=provider, config=False)

    for start in (session.spawn, lambda task, **more: session.spawn_all([task], **more)):
        with pytest.raises(ValueError, match="`output` must be an answer type") as raised:
            start("Do it.", output=wrong)
        assert "\n" not in str(raised.value)
    assert provider.requests == []


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```",
        "Sure!\n```\n{}\n```\nAnything else?",
        "Sure: {} Anything [else]?",
        '{"title": 1} no, {}',
        "{}{}",
        "\ufeff {}",
        "\ud800 {}",
        '[the 5 "best"] {}',
        '{"value": {}}',
    ],
)
def test_answer_is_found_inside_other_text(text: str) -> None:
    found = read(Report, text.replace("{}", json.dumps(GOOD)))

    assert isinstance(found, TypedAnswer)
    assert found.data == REPORT


def test_json_inside_a_string_and_escapes_are_read() -> None:
    inside = json.dumps(json.dumps(GOOD))
    escaped = json.dumps({**GOOD, "title": "é 😀"})
    lone = '{"title": "\\ud800", ' + json.dumps(GOOD)[len('{"title": "t", ') :]

    assert read(Report, inside) == read(Report, GOOD)
    assert read(Report, escaped).data.title == "é 😀"  # type: ignore[union-attr]
    found = read(Report, lone)
    assert isinstance(found, TypedAnswer)
    assert found.data.title == "\ufffd"
    found.text.encode()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"NaN"', '"-inf"'])
def test_number_that_is_none_is_refused(number: str) -> None:
    found = read(Part, f'{{"name": "p", "share": {number}}}')
    plain = read(float, number)

    assert isinstance(found, WrongAnswer)
    assert isinstance(plain, WrongAnswer)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]" * 50_000,
        '{"a":' * 20_000,
        "[" * 50_000 + "]" * 50_000,
        "[" + '"' * 100_001,
        "[" + "[]" * 50_000,
        '["' + '\\"' * 50_000,
        "```x\n" * 20_000,
        "[x}" * 33_000,
        '{"b":1}' * 14_000,
        "9" * 100_000,
        "\ud800" * 1000,
        "",
    ],
    ids=lambda text: f"{len(text)} {text[:5]!a}",
)
def test_no_text_makes_reading_raise_or_slow(text: str) -> None:
    for type_ in (Report, list[int], Literal["a"]):
        found = read(type_, text)

        assert found == TypedAnswer([], "[]") or len(found.why) < 10_000  # type: ignore[union-attr]
        assert isinstance(found, WrongAnswer) or type_ == list[int]


def test_mistakes_are_one_line_each_with_their_place_and_few() -> None:
    parts = [{"name": 1, "share": 2}] * 500
    found = read(Report, {"title": "t", "level": "HIGH", "parts": parts})

    assert isinstance(found, WrongAnswer)
    lines = found.why.splitlines()
    assert lines[0].startswith("level: ")
    assert any(line.startswith("parts.0.name: ") for line in lines)
    assert len(lines) <= 21
    assert "more" in lines[-1]


# -- 500 malformed replies ------------------------------------------------------------------------


def _malformed(chance: random.Random) -> str:
    """A reply with a typical fault of a model."""
    good = {**GOOD, "title": chance.choice(["t", "ü", "a \u201cb\u201d", "x" * 300])}
    text = json.dumps(good, ensure_ascii=chance.random() < 0.5)
    ways: list[Callable[[], str]] = [
        lambda: f"```json\n{text}\n```",
        lambda: text[: chance.randrange(len(text))],
        lambda: f"{text}\n{json.dumps({**good, 'level': 'low'})}",
        lambda: f"Here it is: {text}. I hope that {{this}} helps [1].",
        lambda: json.dumps({**good, "level": chance.choice(["HIGH", "hi", "", 3])}),
        lambda: chance.choice(["null", json.dumps({**good, "parts": None})]),
        lambda: json.dumps({**good, "parts": [{"name": "p", "share": float("nan")}]}),
        lambda: json.dumps({key.title(): value for key, value in good.items()}),
        lambda: json.dumps(text),
        lambda: json.dumps({"answer": text}),
        lambda: json.dumps({**good, "extra": 1}),
        lambda: json.dumps([good]),
        lambda: text.replace("t", "\\u0074", 1),
        lambda: text.replace('"', "'"),
        lambda: text + ",",
        lambda: "",
    ]
    return chance.choice(ways)()


@pytest.mark.parametrize("delegation", ["block", "tools"])
def test_500_malformed_replies_are_valid_after_one_repair_or_fail_with_their_text(
    delegation: str,
) -> None:
    chance = random.Random(20)
    calls: dict[str, list[CompletionRequest]] = {}
    said: dict[str, list[str]] = {}

    def reply(request: CompletionRequest) -> Any:
        task = task_of(request)
        calls.setdefault(task, []).append(request)
        text = _malformed(chance)
        if len(calls[task]) == 2 and chance.random() < 0.6:
            text = json.dumps(GOOD)
        said.setdefault(task, []).append(text)
        if request.tools and chance.random() < 0.5:
            try:
                given = json.loads(text)
            except ValueError:
                given = None
            if isinstance(given, dict):
                return Reply("", (ToolUse(f"f{len(calls[task])}", FINAL_ANSWER, given),))
        return text

    session = Session(
        provider=ScriptedProvider(reply), config=False, delegation=delegation, store=None
    )
    tasks = [f"Row {number}." for number in range(250)]
    run = session.spawn_all(
        tasks, synthesis=False, max_depth=1, max_agents=1_000, budget=10**8, output=Report
    )
    results = run.result(DEADLINE_S).sub_agent_results

    ways = set()
    for result in results:
        requests, texts = calls[result.task], said[result.task]
        assert len(requests) <= 2
        if result.error is None:
            assert isinstance(result.data, Report)
            assert Report.model_validate_json(result.response) == result.data
        else:
            assert len(requests) == 2
            assert result.data is None
            assert "Report" in result.error
            kept = [each for each in texts if each.strip()][-1:]
            assert not kept or result.response == kept[0].strip() or _same(result.response, kept[0])
        ways.add((len(requests), result.error is None))
    assert ways == {(1, True), (2, True), (2, False)}


def _same(one: str, other: str) -> bool:
    """Whether two texts are the same JSON, as which a tool's arguments are kept."""
    try:
        return str(json.loads(one)) == str(json.loads(other))
    except ValueError:
        return False


def test_schema_reaches_depth_two_through_profiles_and_is_in_no_turn_before(
    project: Path,
) -> None:
    (project / "agentnb.yaml").write_text(
        "tools: {spawn: {enabled: true, profiles: {judge: {system_prompt: Judge., output: "
        "{verdict: [good, bad], lines: 'list[int]', advice: str | None}}}}}\n"
    )
    asked: list[tuple[str, bool]] = []
    verdict = {"verdict": "good", "lines": [1], "advice": None}

    def reply(request: CompletionRequest) -> Any:
        who = "child" if "<task>" in request.system else "root"
        if who == "child" and "inner" in request.messages[0].text:
            who = "grandchild"
        asked.append((who, request.output_schema is not None))
        if who == "grandchild":
            return json.dumps(verdict)
        if request.output_schema is not None:
            return Reply("", (ToolUse("f", FINAL_ANSWER, verdict),))
        task = {"root": "the child's", "child": "the inner"}[who]
        calls = [each for each in request.messages if each.role == "assistant"]
        if not calls:
            return Reply("", (ToolUse("s", "spawn", {"task": task, "profile": "judge"}),))
        if len(calls) == 1:
            return Reply("", (ToolUse("w", "spawn_await", {"job_ids": "*"}),))
        return "All is good."

    session = Session(provider=ScriptedProvider(reply), delegation="tools", nested_spawn=True)
    run = session.spawn("Do it.", profile="judge")
    result = run.result(DEADLINE_S)

    assert result.data.model_dump() == verdict
    assert run.agent("1").data.verdict == "good"
    assert run.agent("1.1").data.lines == [1]
    assert asked[-1] == ("root", True)
    assert [each for each in asked if each == ("root", True)] == [("root", True)]
    awaited = [each.result for each in run.agent("root").tool_calls if each.name == "spawn_await"]
    assert json.dumps(verdict, separators=(",", ":")) in awaited[0]


@pytest.mark.parametrize(
    ("output", "key"),
    [("{a: text}", "a"), ("{a: [1]}", "a"), ("{a: 5}", "a"), ("{copy: str}", "copy"), ("5", "")],
)
def test_wrong_output_of_a_profile_names_its_line_and_key(
    project: Path, output: str, key: str
) -> None:
    (project / "agentnb.yaml").write_text(
        f"tools:\n  spawn:\n    profiles:\n      judge:\n        output: {output}\n"
    )
    session = Session(provider=ScriptedProvider([]))

    with pytest.raises(ConfigError) as raised:
        session.spawn("Do it.", profile="judge")

    assert "5" in str(raised.value)
    assert f"judge.output.{key}".rstrip(".") in str(raised.value)


# -- kept, loaded, done again ---------------------------------------------------------------------


def typed_session(**settings: Any) -> Session:
    def reply(request: CompletionRequest) -> Any:
        if len(request.messages) == 1:
            return Reply("", (ToolUse("f", FINAL_ANSWER, {"title": "t"}),))
        return Reply("", (ToolUse("g", FINAL_ANSWER, GOOD),))

    return Session(provider=ScriptedProvider(reply), config=False, max_depth=0, **settings)


def test_loaded_run_has_its_answer_as_plain_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = typed_session(store=tmp_path / "x.db")
    run = session.spawn("Do it.", output=Report)
    run.result(DEADLINE_S)
    run.to_json(tmp_path / "run.json")
    # As in another process, since this one has the run itself.
    monkeypatch.setattr("agentnb.run_store._kernel.alive", lambda run_id: None)
    loaded = session.load(run.id)
    opened = agentnb.load_run(tmp_path / "run.json")

    assert run.agent("root").data == REPORT
    assert loaded.agent("root").data == opened.agent("root").data == GOOD
    for record in (loaded, opened):
        kept = [call.request.output_schema for call in record.agent("root").calls]
        live = [call.request.output_schema for call in run.agent("root").calls]
        assert kept == live
        assert [c.key for c in record.agent("root").calls] == [
            c.key for c in run.agent("root").calls
        ]
    (told,) = session.runs()
    assert told.id == run.id


def test_replay_of_a_typed_run_gives_the_same_value_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replies = [
        Reply("", (ToolUse("f", FINAL_ANSWER, {}),)),
        Reply("", (ToolUse("g", FINAL_ANSWER, GOOD),)),
    ]
    with new_kernel():
        first = ended(
            session_in("record", provider=ScriptedProvider(replies), max_depth=0).spawn(
                "Do it.", output=Report
            )
        )
    with new_kernel(), no_network():
        again = ended(
            session_in("replay", provider=ScriptedProvider([]), max_depth=0).spawn(
                "Do it.", output=Report
            )
        )

    assert first.result().data == again.result().data == REPORT


def test_recovered_run_has_plain_values_and_asks_no_ended_agent_again(tmp_path: Path) -> None:
    run_id = killed(tmp_path / "x.db", "is typed")
    session, provider = session_of(tmp_path / "x.db", "is typed")

    run = session.recover(run_id)
    a, b = run.result(DEADLINE_S).sub_agent_results

    assert (a.data, b.data) == ({"value": 3}, {"value": 4})
    assert run.receipt is not None
    assert (run.receipt.reused.calls, run.receipt.changed) == (2, ())
    assert len(provider.requests) == 1
    assert provider.requests[0].output_schema is not None


# -- providers ------------------------------------------------------------------------------------


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    level: Level
    parts: list[Part] = Field(min_length=2)
    stars: int = Field(ge=1, le=5)
    share: float = Field(gt=0, lt=1)
    is_ok: bool
    short: str = Field(max_length=4)
    note: str | None = None
    node: Node
    by_name: dict[str, int]
    pair: tuple[int, str]


def test_demo_model_gives_answers_that_fit_any_schema_and_vary_by_the_prompt() -> None:
    session = Session(provider=DemoProvider(pace_s=0), config=False, max_depth=0, store=None)
    tasks = [f"Rate complaint {n} of Anna about the price." for n in range(12)]

    def table() -> list[Any]:
        run = session.spawn_all(tasks, synthesis=False, max_depth=1, output=Everything)
        return [each.data for each in run.result(DEADLINE_S).sub_agent_results]

    rows = table()
    assert all(isinstance(row, Everything) for row in rows)
    assert table() == rows
    assert len({row.stars for row in rows}) > 1
    assert {row.level for row in rows} == set(Level)
    assert all(row.parts[0].name.startswith("(demo)") for row in rows)


@pytest.mark.parametrize(
    ("model", "choice"),
    [
        ("anthropic/claude-haiku-4-5", {"type": "tool", "name": FINAL_ANSWER}),
        ("openai/llama", {"type": "function", "function": {"name": FINAL_ANSWER}}),
    ],
)
@pytest.mark.parametrize("by_tool", [True, False])
def test_wire_forces_the_only_tool_and_takes_plain_json(
    model: str, choice: Any, by_tool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(body: dict[str, Any]) -> Served:
        if by_tool:
            return Served(tool_uses=[(FINAL_ANSWER, GOOD)])
        return Served(text=json.dumps(GOOD))

    with LoopbackServer(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        session = Session(model, config=False, max_depth=0, store=None)
        result = session.spawn("Do it.", output=Report).result(DEADLINE_S)

        (request,) = server.requests
        assert result.data == REPORT
        assert len(request.body["tools"]) == 1
        assert request.body["tool_choice"] == choice


@pytest.mark.parametrize(
    ("refused", "complaint", "tries"),
    [
        ("tool_choice", "Extra inputs are not permitted: tool_choice", 2),
        ("tools", "registry.ollama.ai/library/gemma:2b does not support tools", 2),
    ],
)
def test_server_that_refuses_tools_is_asked_in_words_and_that_is_remembered(
    refused: str, complaint: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(body: dict[str, Any]) -> Served:
        if refused in body:
            raise Refusal(400, complaint)
        return Served(text=json.dumps(GOOD))

    with LoopbackServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        session = Session("openai/gemma", config=False, max_depth=0, store=None)
        for _ in range(2):
            assert session.spawn("Do it.", output=Report).result(DEADLINE_S).data == REPORT

        assert len(server.requests) == tries + 1
        last = server.requests[-1].body
        assert ("tools" in last) == (refused != "tools")
        assert ("JSON schema" in str(last["messages"][-1])) == (refused == "tools")


def test_no_tool_is_forced_where_the_model_may_think() -> None:
    schema = {"type": "object", "properties": {}}
    tools = (ToolSpec(FINAL_ANSWER, "", schema),)

    def asked(**extra: Any) -> dict[str, Any]:
        messages = (user_message("x"),)
        return body_of(
            CompletionRequest("m", "", messages, tools, 100, extra=extra, output_schema=schema)
        )

    assert "tool_choice" in asked()
    assert "tool_choice" in asked(thinking={"type": "disabled"})
    assert "tool_choice" not in asked(thinking={"type": "adaptive"})
    assert "tool_choice" not in asked(thinking={"type": "enabled", "budget_tokens": 1024})


def test_failed_root_raises_with_the_text() -> None:
    session = Session(provider=ScriptedProvider(["no", "No."]), config=False, max_depth=0)

    with pytest.raises(InvalidOutput) as raised:
        session.spawn("Do it.", output=Report).result(DEADLINE_S)

    assert raised.value.partial_result is not None
    assert raised.value.partial_result.final_response == "No."
