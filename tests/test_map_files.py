"""A map over images and PDFs: what models get, what is kept, and what is refused at once."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import CannotRecover, ScriptedProvider, Session
from agentnb.core import media
from agentnb.core.errors import NotRecorded
from agentnb.core.events import AgentCompleted, ModelCallStarted
from agentnb.core.protocols import FallbackModel
from agentnb.core.types import CompletionRequest, MediaBlock, TextBlock
from agentnb.mapping.documents import read_document
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.openai import OpenAIProvider
from agentnb.runtime import get_runtime
from agentnb.views.panel.history import prompt_of
from tests.files_of import gif, pdf, png, written
from tests.loopback import LoopbackServer
from tests.recover_scene import killed, session_of
from tests.repeating import new_kernel, no_network, session_in
from tests.support import DEADLINE_S, events_of, path_of


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with new_kernel():
        yield


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def seen(request: CompletionRequest) -> str:
    """What a row's agent got: its files and its text."""
    *files, text = request.messages[0].content
    assert isinstance(text, TextBlock)
    assert all(isinstance(each, MediaBlock) for each in files)
    return " ".join([*(each.name for each in files if isinstance(each, MediaBlock)), text.text])


def answers(out: Any) -> list[Any]:
    return [row["answer"] for row in out.result(DEADLINE_S).to_records()]


# -- what models get ------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_api_gets_each_file_before_the_prompt_of_its_row(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = written(tmp_path, a_png=png(), b_GIF=gif(1, 1), c_pdf=pdf(), d_txt=b"words")
    with LoopbackServer(lambda body: "Seen.") as server:
        provider: Any = AnthropicProvider() if dialect == "anthropic" else OpenAIProvider()
        name = "ANTHROPIC_BASE_URL" if dialect == "anthropic" else "OPENAI_BASE_URL"
        monkeypatch.setenv(name, server.url + ("" if dialect == "anthropic" else "/v1"))
        monkeypatch.setenv(f"{dialect.upper()}_API_KEY", "a-key")
        session = Session(f"{dialect}/any", provider=provider, store=None)
        out = session.map(paths, "What is {{name}}?")
        assert answers(out) == ["Seen."] * 4
        sent = [each.body["messages"][-1]["content"] for each in server.requests]
        get_runtime().submit(provider.aclose()).result(DEADLINE_S)

    def source(media_type: str, content: bytes) -> dict[str, Any]:
        return {"type": "base64", "media_type": media_type, "data": b64(content)}

    def image(media_type: str, content: bytes) -> dict[str, Any]:
        if dialect == "anthropic":
            return {"type": "image", "source": source(media_type, content)}
        url = f"data:{media_type};base64,{b64(content)}"
        return {"type": "image_url", "image_url": {"url": url}}

    document: dict[str, Any] = {"type": "document", "source": source(media.PDF, pdf())}
    if dialect == "openai":
        data = f"data:application/pdf;base64,{b64(pdf())}"
        document = {"type": "file", "file": {"filename": "document.pdf", "file_data": data}}
    by_text = {str(content)[-12:]: content for content in sent}
    assert len(by_text) == 4
    expected = [
        [image("image/png", png()), {"type": "text", "text": "What is a.png?"}],
        [image("image/gif", gif(1, 1)), {"type": "text", "text": "What is b.GIF?"}],
        [document, {"type": "text", "text": "What is c.pdf?"}],
    ]
    text: Any = "What is d.txt?"
    if dialect == "anthropic":
        text = [{"type": "text", "text": text}]
    assert sorted(map(str, sent)) == sorted(map(str, [*expected, text]))


def test_table_has_texts_and_documents_and_each_judge_gets_the_file(tmp_path: Path) -> None:
    paths = written(tmp_path, a_txt=b"the words", b_png=png(), c_png=png())
    provider = ScriptedProvider(seen)
    with Session(provider=provider, store=None) as session:
        out = session.map(paths, "{{name}}: {{text}}", judges=2)

        out.result(DEADLINE_S)
    assert sorted(map(seen, provider.requests)) == [
        *["a.txt: the words"] * 2,
        *["b.png b.png: (see the attached b.png)"] * 2,
        *["c.png c.png: (see the attached c.png)"] * 2,
    ]
    files = [b for r in provider.requests for b in r.messages[0].content[:-1]]
    assert len({id(each.data) for each in files if isinstance(each, MediaBlock)}) == 1  # one text


# -- what is kept ---------------------------------------------------------------------------------


def test_store_and_saved_run_hold_each_file_once(tmp_path: Path) -> None:
    paths = written(tmp_path, a_png=png(), b_png=png(text=b"another"), c_png=png(), d_pdf=pdf())
    with Session(provider=ScriptedProvider(seen), store=tmp_path / "x.db") as session:
        out = session.map(paths, "What is {{name}}?", judges=2)
        out.result(DEADLINE_S)
        live = out.events
        loaded = session.load(out.id)
        with sqlite3.connect(tmp_path / "x.db") as db:
            kinds = "SELECT kind, count(*), sum(typeof(body) = 'blob') FROM contents GROUP BY kind"
            counts = {kind: (count, blobs) for kind, count, blobs in db.execute(kinds)}
            bodies = db.execute("SELECT body FROM contents WHERE kind = 'file'").fetchall()
            others = str(db.execute("SELECT body FROM contents WHERE kind <> 'file'").fetchall())
            others += str(db.execute("SELECT body FROM events").fetchall())
        db.close()

    assert loaded.events == live
    assert counts["file"] == (3, 3)
    assert counts["message"] == (4, 0)
    assert {body for (body,) in bodies} == {png(), png(text=b"another"), pdf()}
    assert b64(pdf())[:40] not in others
    path = tmp_path / "run.json"
    loaded.to_json(path)
    assert path.read_text().count(b64(png())) == 1
    assert agentnb.load_run(path).events == live
    (call, *_) = [e for e in events_of(live, ModelCallStarted) if e.agent_id.endswith(".1")]
    shown = prompt_of(call.request)["messages"]
    size = len(png())
    assert shown == [{"role": "user", "text": f"[image: a.png, {size} bytes]\n\nWhat is a.png?"}]


def test_cassette_names_files_and_answers_for_them_alone(tmp_path: Path) -> None:
    paths = written(tmp_path, a_png=png(), b_png=png(text=b"x" * 9_000), c_pdf=pdf(40))
    prompt = "What is {{name}}?"
    first = session_in("record", provider=ScriptedProvider(seen), store=None).map(paths, prompt)
    recorded = answers(first)

    lines = (tmp_path / "x.cassette.jsonl").read_text().splitlines()

    calls = [line for line in map(json.loads, lines[1:]) if line["kind"] == "call"]
    assert [len(call["request"]["new"][0]["content"]) for call in calls] == [2, 2, 2]
    assert max(map(len, lines)) < 2_000
    named = read_document(paths[2]).named()
    assert calls[2]["request"]["new"][0]["content"][0]["data"] == named.data
    with new_kernel(), no_network():
        session = session_in("replay", provider=ScriptedProvider([]), store=None)
        assert answers(session.map(paths, prompt)) == recorded
    paths[1].write_bytes(png(text=b"changed"))
    with new_kernel(), no_network():
        session = session_in("replay", provider=ScriptedProvider([]), store=None)
        with pytest.raises(NotRecorded) as missed:
            session.map(paths, prompt).result(DEADLINE_S)
    assert "Call 1 of agent 2" in str(missed.value)
    assert "It differs in:\n  message 1 (user)" in str(missed.value)


def test_killed_map_goes_on_with_the_files_that_it_had(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    written(tmp_path, a_png=png(), b_png=png(text=b"b"), c_pdf=pdf())
    run_id = killed(store, "maps files")
    session, provider = session_of(store, "maps files")
    (tmp_path / "b.png").rename(tmp_path / "away")

    with pytest.raises(CannotRecover, match=r"b\.png"):
        session.recover(run_id)
    (tmp_path / "b.png").write_bytes(png(text=b"changed"))
    with pytest.raises(CannotRecover, match=r"b\.png.*changed"):
        session.recover(run_id)
    (tmp_path / "away").replace(tmp_path / "b.png")
    run = session.recover(run_id)
    assert str(run.result(DEADLINE_S).status) == "completed"
    ended = {path_of(each.agent_id) for each in events_of(run.events, AgentCompleted)}
    assert ended >= {"1", "2", "3"}
    asked = [request.messages[0].content[0] for request in provider.requests]
    assert read_document(tmp_path / "b.png") in asked
    assert len(asked) <= 2  # the first had ended


# -- what is refused ------------------------------------------------------------------------------


class WithoutMedia:
    """A custom provider that does not declare files."""

    name = "own"

    def stream(self, request: CompletionRequest) -> Any:
        raise AssertionError("it was asked")


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "demo"},
        {"provider": WithoutMedia()},
        {
            "provider": FallbackProvider(
                [
                    FallbackModel(ScriptedProvider([]), "scripted/x"),
                    FallbackModel(WithoutMedia(), "own/y"),
                ]
            )
        },
    ],
)
def test_model_that_takes_no_files_is_refused_before_any_call(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    paths = written(tmp_path, a_txt=b"words", b_pdf=pdf())
    with Session(store=tmp_path / "x.db", **settings) as session:
        with pytest.raises(ValueError, match=r"(demo|own).*b\.pdf.*use a model"):
            session.map(paths, "What is {{name}}?")

        assert list(session.runs()) == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.png", None, r"no file .*x\.png.*check"),
        ("x.png", b"", r"x\.png.* is empty.*write it again"),
        ("x.jpg", png(), r"x\.jpg.* is image/png.*rename.*\.png"),
        ("x.pdf", b"words", r"x\.pdf.* is not application/pdf.*save it again"),
        ("x.png", png() + b"\0" * 4_000_000, r"x\.png.* 4\.0 MB.*at most 3\.9 MB.*scale it down"),
        ("x.gif", "folder", r"x\.gif.* cannot be read"),
    ],
)
def test_wrong_file_is_named_with_its_row_before_any_call(
    name: str, content: bytes | str | None, words: str, tmp_path: Path
) -> None:
    (right,) = written(tmp_path, a_png=png())
    wrong = tmp_path / name
    if content == "folder":
        wrong.mkdir()
    elif isinstance(content, bytes):
        wrong.write_bytes(content)
    provider = ScriptedProvider(seen)

    with Session(provider=provider, store=None) as session:
        with pytest.raises(ValueError, match=words) as caught:
            session.map([right, wrong], "What is {{name}}?")

    assert "rows[1]" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert provider.requests == []


def test_pdf_may_be_larger_than_an_image_and_not_larger_than_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = written(tmp_path, a_pdf=pdf(text=b"x" * 4_000_000))
    assert read_document(path).size == path.stat().st_size
    monkeypatch.setitem(media.MOST_BASE64, media.PDF, 5 * media.MB)  # in place of 32

    with pytest.raises(ValueError, match=r"a\.pdf.* 4\.1 MB|a\.pdf.* 4\.0 MB.*split it"):
        read_document(path)


def test_text_of_documents_alone_is_refused_with_what_is_there(tmp_path: Path) -> None:
    paths = written(tmp_path, a_png=png(), b_png=png())
    with Session(provider=ScriptedProvider(seen), store=None) as session:
        with pytest.raises(ValueError, match=r"a\.png.* is attached before.*\{\{name\}\}"):
            session.map(paths, "What? {{text}}")
        assert answers(session.map(paths, "What?")) == ["a.png What?", "b.png What?"]
