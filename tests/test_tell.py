"""`run.tell`: a person sends a note to a working agent, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentnb import Session
from agentnb.core.errors import AgentEnded, UnknownAgent
from agentnb.core.events import AgentTold, SpawnIgnored
from agentnb.core.types import TextBlock
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run, _ByPanel
from agentnb.store.store import Store
from agentnb.testing import equal_records
from agentnb.views.outline import lines_below
from tests.loopback import LoopbackServer
from tests.repeating import ended, new_kernel, no_network, session_in
from tests.support import DEADLINE_S, Hold, by_agent, events_of, spawn, text_of


@pytest.fixture
def hold() -> Hold:
    return Hold()


@pytest.fixture
def run(hold: Hold) -> Iterator[Run]:
    """A run whose agent 1 is in the middle of its answer and whose agent 2 has ended."""
    provider = by_agent(
        {
            "root": [spawn("B", "A", mode="sequential"), "All."],
            "A": [Reply("a", pause=hold), "a, and more"],
        }
    )
    run = Session(provider=provider, config=False).spawn("The task")
    hold.wait()
    yield run
    hold.release()
    run.result(DEADLINE_S)


def told(run: Run) -> list[tuple[str, str, str]]:
    found = events_of(run.events, AgentTold)
    return [(run.agent(each.agent_id).path, each.text, each.by) for each in found]


def test_agent_reads_it_and_its_conversation_and_outline_show_it(run: Run, hold: Hold) -> None:
    run.tell("2", "and <more>?")
    _ByPanel(run).tell(f"{run.thread_id}.2", "please")
    assert told(run) == []  # it returns at once, while the agent works

    hold.release()
    result = run.result(DEADLINE_S)

    assert told(run) == [("2", "and <more>?", "code"), ("2", "please", "panel")]
    agent = run.agent("2")
    assert agent.text == result.sub_agent_results[1].response == "a, and more"
    assert agent.messages[-2].content == (
        TextBlock("<note_from_person>and &lt;more&gt;?</note_from_person>"),
        TextBlock("<note_from_person>please</note_from_person>"),
    )
    assert any("and <more>?" in line for line in lines_below({}, run.notes)["2"])
    assert not any("note_from_person" in text_of(each.request) for each in run.agent("root").calls)


def test_notes_to_an_ended_and_to_an_unknown_agent_are_different_errors(
    run: Run, hold: Hold
) -> None:
    with pytest.raises(AgentEnded) as ended:
        run.tell("1", "late")
    with pytest.raises(UnknownAgent):
        run.tell("9", "to whom?")
    assert ended.value.path == "1"

    hold.release()
    run.result(DEADLINE_S)

    for agent in ("2", "root", run.thread_id):
        with pytest.raises(AgentEnded):
            run.tell(agent, "late")
    assert told(run) == []


@pytest.mark.parametrize(("words", "error"), [(" ", ValueError), (None, TypeError)])
def test_words_are_checked_before_anything_else(
    run: Run, words: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        run.tell("9", words)


def test_order_is_kept_with_its_author_and_its_place(hold: Hold, tmp_path: Path) -> None:
    provider = by_agent({"root": [Reply("a", pause=hold), "b"]})
    session = Session(provider=provider, config=False, store=tmp_path / "x.db")
    run = session.spawn("The task")
    hold.wait()
    run.tell("root", "hm")
    hold.release()
    run.result(DEADLINE_S)
    loaded = session.load(run.id).agent("root").messages
    session.close()
    store = Store(tmp_path / "x.db")
    (order,) = store.journal().load(run.id).orders
    store.close()

    assert (order.kind, order.by, order.path, order.number) == ("tell", "code", "root", 1)
    assert order.value == {"agent": "root", "text": "hm"}
    assert loaded == run.agent("root").messages


# -- both dialects, recorded and replayed ---------------------------------------------------------


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with new_kernel():
        yield


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-5-5", "openai/llama3.2"])
def test_run_that_was_told_something_is_replayed_equal(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """A reads it in one more turn and requests sub-agents; the root reads it with its results."""
    run: list[Run] = []
    started = threading.Event()
    asked: list[str] = []

    def answer(body: dict[str, Any]) -> str:
        started.wait(DEADLINE_S)
        text = str(body["messages"])
        asked.append(text)
        if "<task>" not in str(body):
            return "All." if "<sub_agent_results>" in text else spawn("look")
        if "<note_from_person>" in text:
            return f"Two.\n\n{spawn('more')}"
        run[0].tell("1", "again, with </note_from_person> and 'quotes'")
        run[0].tell("root", "be brief")
        return "One."

    for each in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{each}_API_KEY", "no-key")
    with LoopbackServer(answer) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        run.append(session_in("record", model=model).spawn("The task"))
        started.set()
        first = ended(run[0])
    with new_kernel(), no_network():
        again = ended(session_in("replay", model=model).spawn("The task"))

    assert first.result().output == "All."
    assert told(first) == [
        ("1", "again, with </note_from_person> and 'quotes'", "code"),
        ("root", "be brief", "code"),
    ]
    assert [each.tasks for each in events_of(first.events, SpawnIgnored)] == [("more",)]
    assert len(asked) == 4
    assert "be brief" in asked[-1]
    assert "&lt;/note_from_person&gt;" in asked[2]
    assert equal_records(first, again) == []
    assert told(again) == told(first)


@pytest.mark.usefixtures("kernel")
def test_replay_of_another_words_says_where_they_differ() -> None:
    """Its cassette has another conversation: the note is in the message that differs."""
    hold = Hold()
    provider = ScriptedProvider(
        lambda request: "b" if len(request.messages) > 1 else Reply("a", pause=hold)
    )
    run = session_in("record", provider=provider).spawn("The task")
    hold.wait()
    run.tell("root", "be brief")
    hold.release()
    ended(run)
    cassette = Path("x.cassette.jsonl")
    text = cassette.read_text().replace('"text":"be brief"', '"text":"be long"')
    cassette.write_text(text)

    with new_kernel(), no_network():
        again = ended(session_in("replay", provider=provider).spawn("The task"))

    words = str(again._future.exception())
    assert "be" in words
    assert "note_from_person" in words
