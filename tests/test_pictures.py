"""Pictures from tools: what models get, what is kept, and what a replay returns."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import MediaBlock, Reply, Run, ScriptedProvider, Session, ToolOutput
from agentnb.core.events import ToolCallFinished
from agentnb.core.protocols import FallbackModel
from agentnb.core.types import CompletionRequest, ToolResultBlock, ToolUse
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.openai import OpenAIProvider
from agentnb.record import record_of
from agentnb.runtime import get_runtime
from agentnb.store.store import store_at
from agentnb.testing import equal_records
from tests import loopback
from tests.files_of import pdf, png
from tests.loopback import LoopbackServer
from tests.recover_scene import killed, session_of
from tests.repeating import ended, new_kernel, no_network, session_in
from tests.support import DEADLINE_S, events_of

BLACK, OTHER = png(640, 480), png(20, 10, text=b"another")


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with new_kernel():
        yield


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def block(content: bytes, name: str = "") -> MediaBlock:
    return MediaBlock("image/png", b64(content), name)


@agentnb.tool
def plot(what: str) -> ToolOutput:
    """Draw it."""
    return ToolOutput(f"a plot of {what}", (block(BLACK, f"{what}.png"), block(OTHER)))


@agentnb.tool
def look(what: str) -> Any:
    """Look at it."""
    return [f"{what} looks black", OTHER]


def draws(request: CompletionRequest) -> Any:
    """Two calls in one turn, then the answer."""
    if len(request.messages) > 1:
        return "It is black."
    uses = ToolUse("u1", "plot", {"what": "coal"}), ToolUse("u2", "look", {"what": "ink"})
    return Reply(tool_uses=uses)


class WithoutEyes(ScriptedProvider):
    """A model that accepts only text."""

    name = "blind"

    def supports_media(self, model: str, media_type: str) -> bool:
        return False


TEXTS = [
    "a plot of coal\n(picture 1 below)\n(picture 2 below)",
    "ink looks black\n(file: image/png)\n(picture 3 below)",
]
LINES = [
    "a plot of coal\n"
    "(a picture that this model cannot see: image/png, 640 x 480)\n"
    "(a picture that this model cannot see: image/png, 20 x 10)",
    "ink looks black\n(file: image/png)\n"
    "(a picture that this model cannot see: image/png, 20 x 10)",
]
CALLS = [loopback.ToolCall("plot", {"what": "coal"}), loopback.ToolCall("look", {"what": "ink"})]


# -- what models get ------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_api_gets_the_pictures_of_a_turn_behind_all_its_results(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        begins = [each for each in body["messages"] if each["role"] != "system"]
        return loopback.Reply(tool_uses=CALLS) if len(begins) == 1 else "It is black."

    with LoopbackServer(answer) as server:
        provider: Any = AnthropicProvider() if dialect == "anthropic" else OpenAIProvider()
        name = "ANTHROPIC_BASE_URL" if dialect == "anthropic" else "OPENAI_BASE_URL"
        monkeypatch.setenv(name, server.url + ("" if dialect == "anthropic" else "/v1"))
        monkeypatch.setenv(f"{dialect.upper()}_API_KEY", "a-key")
        session = Session(f"{dialect}/any", provider=provider, store=None, tools=[plot, look])
        run = session.spawn("What is it?")
        assert run.result(DEADLINE_S).output == "It is black."
        _, second = [each.body["messages"] for each in server.requests]
        get_runtime().submit(provider.aclose()).result(DEADLINE_S)

    pictures = [BLACK, OTHER, OTHER]
    if dialect == "anthropic":
        content = second[-1]["content"]
        assert [each.get("content") for each in content[:2]] == TEXTS
        assert [each["type"] for each in content] == ["tool_result"] * 2 + ["image"] * 3
        sent = [each["source"] for each in content[2:]]
        assert [(each["media_type"], each["data"]) for each in sent] == [
            ("image/png", b64(each)) for each in pictures
        ]
    else:
        first, other, user = second[-3:]
        assert [each["role"] for each in (first, other, user)] == ["tool", "tool", "user"]
        assert [first["content"], other["content"]] == TEXTS
        assert [each["image_url"]["url"] for each in user["content"]] == [
            f"data:image/png;base64,{b64(each)}" for each in pictures
        ]


def results_in(request: CompletionRequest) -> tuple[list[str], list[MediaBlock]]:
    """The texts of the last message's results, and its files."""
    content = request.messages[-1].content
    texts = [each.text for each in content if isinstance(each, ToolResultBlock)]
    return texts, [each for each in content if isinstance(each, MediaBlock)]


def a_chain() -> FallbackProvider:
    links = ScriptedProvider(draws), WithoutEyes(draws)
    return FallbackProvider([FallbackModel(each, f"{each.name}/x") for each in links])


@pytest.mark.parametrize("makes", [lambda: WithoutEyes(draws), a_chain])
def test_model_that_accepts_no_pictures_gets_a_line_about_them(makes: Callable[[], Any]) -> None:
    provider = makes()
    with Session(provider=provider, store=None, tools=[plot, look]) as session:
        run = session.spawn("What is it?")
        run.result(DEADLINE_S)

    asked: Any = provider.links[0].provider if isinstance(provider, FallbackProvider) else provider
    assert results_in(asked.requests[1]) == (LINES, [])
    first, second = run.agent("root").tool_calls
    assert (first.unseen, second.unseen) == ((1, 2), (1,))
    assert first.media == (block(BLACK, "coal.png"), block(OTHER))  # a person sees them


def test_model_may_take_some_types_and_not_others() -> None:
    class NoPdf(ScriptedProvider):
        def supports_media(self, model: str, media_type: str) -> bool:
            if media_type != "application/pdf":
                return True
            raise RuntimeError("it knows no such type")

    @agentnb.tool
    def find() -> Any:
        """Find both."""
        return [pdf(), BLACK]

    provider = NoPdf([Reply(tool_uses=(ToolUse("u1", "find", {}),)), "Seen."])
    with Session(provider=provider, store=None, tools=[find]) as session:
        session.spawn("Find.").result(DEADLINE_S)

    ((text,), files) = results_in(provider.requests[1])
    assert text.splitlines() == [
        "(file: application/pdf)",
        "(file: image/png)",
        f"(a PDF that this model cannot see: application/pdf, {len(pdf())} bytes)",
        "(picture 1 below)",
    ]
    assert files == [block(BLACK)]


@pytest.mark.parametrize(
    ("output", "text", "count"),
    [
        (ToolOutput("x", (MediaBlock("image/svg+xml", "aGk="),)), "image/svg+xml, and only", 0),
        (ToolOutput("x", (MediaBlock("image/png", "aGk="),)), "content is not of that type", 0),
        (ToolOutput("x", (MediaBlock("image/png", "a<b"),)), "is not base64", 0),
        (ToolOutput("x", (block(BLACK + bytes(2 * 2**20)),)), "2.1 MB, and at most 1 MB", 0),
        (ToolOutput("", (block(BLACK),) * 10), "(2 more left out: a result has at most 8", 8),
        (ToolOutput("x", ("aGk=",)), "returned str where a `MediaBlock` was", 0),  # type: ignore[arg-type]
        (ToolOutput(1), "returned int where text was", 0),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_picture_or_too_much_is_left_out_and_said(
    output: ToolOutput, text: str, count: int
) -> None:
    @agentnb.tool
    def give() -> ToolOutput:
        """Give it."""
        return output

    provider = ScriptedProvider([Reply(tool_uses=(ToolUse("u1", "give", {}),)), "Seen."])
    with Session(provider=provider, store=None, tools=[give]) as session:
        session.spawn("Give.").result(DEADLINE_S)

    ((said,), files) = results_in(provider.requests[1])
    assert text in said
    assert len(files) == count


# -- what is kept ---------------------------------------------------------------------------------


def drawn(session: Session) -> Run:
    return session.spawn("What is it?", name="drawn")


def media_in(run: Any) -> list[tuple[MediaBlock, ...]]:
    return [each.media for each in run.agent("root").tool_calls]


EXPECTED = [(block(BLACK, "coal.png"), block(OTHER)), (block(OTHER),)]


@pytest.mark.parametrize("provider", [ScriptedProvider, WithoutEyes])
def test_store_and_saved_run_hold_each_picture_once(
    provider: type[ScriptedProvider], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"store": tmp_path / "x.db", "tools": [plot, look]}
    with Session(provider=provider(draws), **settings) as session:
        run = drawn(session)
        run.result(DEADLINE_S)
        with sqlite3.connect(tmp_path / "x.db") as db:
            bodies = db.execute("SELECT body FROM contents WHERE kind = 'file'").fetchall()
            others = str(db.execute("SELECT body FROM contents WHERE kind <> 'file'").fetchall())
            others += str(db.execute("SELECT body FROM events").fetchall())
        db.close()
    path = tmp_path / "run.json"
    run.to_json(path)
    view, events = run.agent("root"), run.events
    # Not by `Session.load`, which returns the run of this process.
    kept = store_at(tmp_path / "x.db").load(run.id, pricing=lambda calls: None)
    loaded = record_of(run.id, "What is it?", kept.rows, kept.whole_tool_calls)

    assert sorted(body for (body,) in bodies) == sorted([BLACK, OTHER])
    assert b64(BLACK)[:40] not in others
    text = path.read_text()
    assert (text.count(b64(BLACK)), text.count(b64(OTHER))) == (1, 1)
    assert [each.media for each in view.tool_calls] == EXPECTED
    for again in (loaded, agentnb.load_run(path)):
        assert again.agent("root").tool_calls == view.tool_calls
        assert again.agent("root").messages == view.messages
        assert again.agent("root").is_whole
        assert again.events == events
    told = events_of(events, ToolCallFinished)
    assert {each.name: each.media for each in told} == {
        name: tuple(media.named() for media in made)
        for name, made in zip(("plot", "look"), EXPECTED, strict=True)
    }
    assert max(len(repr(each)) for each in told) < 2_000  # events stay small


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"media": []}, "are not the files that its event names"),
        ({"media": [{"media_type": "image/png", "data": "aGk="}] * 2}, "are not the files"),
        ({"media": [{"media_type": 1}]}, "`media`: .*`data` is missing"),
        ({"media": None}, "is not a list"),
        ({"unseen": [3]}, "no places of its `media`"),
        ({"unseen": ["1"]}, "no places of its `media`"),
    ],
)
def test_saved_run_whose_pictures_are_not_those_of_its_events_is_refused(
    changed: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with Session(provider=ScriptedProvider(draws), store=None, tools=[plot, look]) as session:
        run = drawn(session)
        run.result(DEADLINE_S)
    saved = json.loads(str(run.to_json()))
    (first,) = [each for each in saved["tool_calls"] if each["number"] == 1]
    first.update(changed)
    (tmp_path / "run.json").write_text(json.dumps(saved))

    with pytest.raises(agentnb.UnreadableRun, match=why):
        agentnb.load_run(tmp_path / "run.json")


@pytest.mark.parametrize("provider", [ScriptedProvider, WithoutEyes])
def test_replay_gives_the_pictures_back(provider: type[ScriptedProvider], tmp_path: Path) -> None:
    """Also without the model that did not accept them."""
    settings: dict[str, Any] = {"store": None, "tools": [plot, look]}
    first = ended(drawn(session_in("record", provider=provider(draws), **settings)))
    lines = map(json.loads, (tmp_path / "x.cassette.jsonl").read_text().splitlines()[1:])
    by_kind: dict[str, list[Any]] = {}
    for line in lines:
        by_kind.setdefault(line["kind"], []).append(line)
    called = by_kind["tool_call"]

    with new_kernel(), no_network():
        replaying = ScriptedProvider([])
        again = ended(drawn(session_in("replay", provider=replaying, **settings)))

    assert [len(each["media"]) for each in called] == [2, 1]
    assert called[0]["media"][0]["data"] == b64(BLACK)
    assert b64(BLACK)[:40] not in json.dumps(by_kind["call"])
    assert again.result().output == "It is black."
    assert equal_records(first, again) == []
    assert media_in(again) == EXPECTED


def test_tool_that_is_run_again_and_draws_something_else_is_a_miss() -> None:
    content = [BLACK]

    @agentnb.tool(on_replay="run")
    def plot(what: str) -> Any:
        """Draw it."""
        return content[0]

    settings: dict[str, Any] = {"store": None, "tools": [plot, look]}
    ended(drawn(session_in("record", provider=ScriptedProvider(draws), **settings)))
    with new_kernel():
        again = drawn(session_in("replay", provider=ScriptedProvider([]), **settings))
        assert again.result(DEADLINE_S).output == "It is black."
    content[0] = OTHER
    with new_kernel():
        again = drawn(session_in("replay", provider=ScriptedProvider([]), **settings))
        with pytest.raises(agentnb.NotRecorded, match=r"'plot'.*other pictures"):
            again.result(DEADLINE_S)


def test_killed_run_goes_on_with_the_pictures_that_it_had(tmp_path: Path) -> None:
    run_id = killed(tmp_path / "x.db", "draws")
    session, provider = session_of(tmp_path / "x.db", "draws")
    before = session.load(run_id)

    run = session.recover(run_id)

    assert run.result(DEADLINE_S).output == "Seen."
    (asked,) = provider.requests
    assert before.agent("root").messages == asked.messages
    assert results_in(asked)[1] == [block(BLACK), block(BLACK)]
    assert media_in(run) == media_in(before) == media_in(session.load(run_id))


def test_picture_shows_itself_in_a_notebook_and_hostile_data_does_not() -> None:
    shown = block(BLACK)._repr_mimebundle_()
    assert shown["image/png"] == b64(BLACK)
    for data in ("<script>", b64(b"<svg onload=alert(1)>"), b64(BLACK) + '" onerror="x'):
        for media_type in ("image/png", "image/svg+xml", "text/html"):
            assert [*MediaBlock(media_type, data)._repr_mimebundle_()] == ["text/plain"]
    assert [*block(BLACK).named()._repr_mimebundle_()] == ["text/plain"]
