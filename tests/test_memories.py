"""Agents' memories, by `Session`: kept, recalled, listed, deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Session
from agentnb.core.errors import NoSuchMemory
from agentnb.core.events import MemoryCreated, ToolCallFinished
from agentnb.core.types import ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.store.store import store_at
from tests.support import DEADLINE_S, by_agent, requests_of, spawn

KEY = "sk-ant-planted-0123456789"


def remember(*facts: str) -> Reply:
    return Reply("", tuple(ToolUse(fact, "remember", {"fact": fact}) for fact in facts))


def recall(query: str) -> Reply:
    return Reply("", (ToolUse("t1", "recall", {"query": query}),))


def ended(session: Session, task: str = "a task", **options: Any) -> Run:
    run = session.spawn(task, **options)
    run.result(DEADLINE_S)
    return run


SessionOf = Callable[..., Session]


@pytest.fixture(params=["file", "memory"])
def session_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionOf]:
    """Makes sessions on one file, or on one store in memory."""
    path = tmp_path / "runs.db"
    made: list[Session] = []

    def make(provider: ScriptedProvider, **settings: Any) -> Session:
        store = path if request.param == "file" else None
        session = Session(provider=provider, store=store, tools=["memory"], **settings)
        if made and store is None:  # only sessions on the same store share memories
            session.store = made[0].store
        made.append(session)
        return session

    yield make
    store_at(path).close()


def test_fact_of_one_run_is_in_the_prompt_of_the_next_that_it_fits(session_of: SessionOf) -> None:
    first = session_of(by_agent({"root": [remember("Anna likes green tea.", "It rains."), "ok"]}))
    run = ended(first)
    provider = by_agent({})
    second = session_of(provider, recall=1, memories=["given"])

    ended(second, "What tea does Anna like?")
    ended(second, "Nothing in common")

    fits, other = (request.system for request in provider.requests)
    section = "<long_term_memory>\n- given\n- Anna likes green tea.\n</long_term_memory>"
    assert section in fits
    assert "<long_term_memory>\n- given\n</long_term_memory>" in other
    assert [memory.text for memory in run.result().memories] == [
        "Anna likes green tea.",
        "It rains.",
    ]


def test_memory_of_a_sub_agent_is_its_own_and_published_before_the_end(
    session_of: SessionOf,
) -> None:
    provider = by_agent({"root": [spawn("A"), "together"], "A": [remember("first"), "done"]})
    session = session_of(provider)

    run = ended(session)

    (memory,) = run.result().memories
    assert memory.source_agent_id == run.agent("1").agent_id == f"{run.thread_id}.1"
    assert memory.run_id == run.id
    assert list(session.memories()) == [memory]
    events = [entry.event for entry in run.events]
    (at,) = [at for at, event in enumerate(events) if isinstance(event, MemoryCreated)]
    assert events[at].agent_id == memory.source_agent_id  # type: ignore[union-attr]
    assert [type(event) for event in events[at + 1 :]].count(ToolCallFinished) == 1


def test_run_that_is_loaded_has_its_memories(session_of: SessionOf, tmp_path: Path) -> None:
    session = session_of(by_agent({"root": [remember("first", "second"), "ok"]}))
    run = ended(session)
    run.to_json(tmp_path / "run.json")

    saved = agentnb.load_run(tmp_path / "run.json").memories
    loaded = session.load(run.id).memories

    assert [memory.text for memory in run.memories] == ["first", "second"]
    assert run.memories == run.result().memories == loaded == saved
    assert set(run.memories) == set(session.memories())


def test_run_from_a_file_that_is_closed_has_its_memories(tmp_path: Path) -> None:
    provider = by_agent({"root": [remember("first"), "ok"]})
    store = tmp_path / "runs.db"
    run_id = ended(Session(provider=provider, store=store, tools=["memory"])).id
    store_at(store).close()

    loaded = store_at(store).load(run_id)
    store_at(store).close()

    (created,) = [row[1] for row in loaded.rows if isinstance(row[1], MemoryCreated)]
    assert (created.fact, created.memory_id) == ("first", 1)
    assert created.created_at > 0


def test_agents_that_remember_at_once_all_have_their_own(session_of: SessionOf) -> None:
    names = [f"agent {number}" for number in range(20)]
    provider = by_agent(
        {"root": [spawn(*names), "ok"], **{name: [remember(name), "done"] for name in names}}
    )
    session = session_of(provider)

    run = ended(session)

    made = run.result().memories
    assert {(run.agent(memory.source_agent_id).task, memory.text) for memory in made} == {
        (name, name) for name in names
    }
    assert [memory.id for memory in made] == sorted(memory.id for memory in made)
    assert tuple(reversed(session.memories())) == made


def test_agent_finds_what_another_one_remembered(session_of: SessionOf) -> None:
    ended(session_of(by_agent({"root": [remember("Anna likes tea."), "ok"]})))
    provider = by_agent({"root": [recall("tea?"), "ok"]})

    run = ended(session_of(provider))

    assert run.agent("root").tool_calls[0].result == "- Anna likes tea."


@pytest.mark.parametrize("policy", ["inherit", "fresh"])
def test_sub_agents_get_what_was_recalled_only_if_they_inherit(
    session_of: SessionOf, policy: str
) -> None:
    ended(session_of(by_agent({"root": [remember("Anna likes tea."), "ok"]})))
    provider = by_agent({"root": [spawn("A"), "ok"]})

    ended(session_of(provider, recall=5, sub_agent_memory=policy), "tea")

    assert "- Anna likes tea." in provider.requests[0].system
    is_handed_down = "Anna" in requests_of(provider, "A")[0].system
    assert is_handed_down == (policy == "inherit")


def test_key_is_masked_wherever_a_fact_goes(
    session_of: SessionOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    session = session_of(by_agent({"root": [remember(f"the key is {KEY}"), "ok"]}))

    run = ended(session)

    assert "the key is" in session.memories()[0].text
    assert KEY not in session.memories()[0].text
    assert KEY not in run.result().memories[0].text
    store_at(tmp_path / "runs.db").close()
    assert not any(KEY.encode() in file.read_bytes() for file in tmp_path.glob("runs.db*"))


@pytest.mark.parametrize("query", ['" OR * NEAR(', "* *", "-"])
def test_hostile_query_finds_nothing_and_raises_nothing(session_of: SessionOf, query: str) -> None:
    ended(session_of(by_agent({"root": [remember("Anna likes tea."), "ok"]})))
    provider = by_agent({"root": [recall(query), "ok"]})

    run = ended(session_of(provider, recall=5), query)

    (call,) = run.agent("root").tool_calls
    assert (call.is_error, "Anna" in call.result) == (False, False)
    assert "Anna" not in provider.requests[0].system


def test_memories_are_listed_as_a_table_without_ids_and_times(session_of: SessionOf) -> None:
    provider = by_agent({"root": [remember("one"), spawn("A"), "ok"], "A": [remember("*2*"), "a"]})
    session = session_of(provider)
    run = ended(session)

    memories = session.memories()

    assert repr(memories) == "MemoryList(2 memories)"
    shown = memories._repr_mimebundle_()
    assert shown["text/plain"] == repr(memories)
    assert "*2*" in shown["text/html"]
    assert run.thread_id not in shown["text/html"]
    assert str(memories[0].created_at.year) not in shown["text/html"]
    assert [record["text"] for record in memories.to_records()] == ["*2*", "one"]
    assert memories.to_records()[0]["source_agent_id"] == f"{run.thread_id}.1"


def test_memory_of_two_sentences_can_be_read_whole(session_of: SessionOf) -> None:
    fact = "The committee met in the small hall on the third of March. " * 3 + "It *voted*."
    long = "x" * 1_500
    session = session_of(by_agent({"root": [remember(fact, long), "ok"]}))
    ended(session)

    memories = session.memories()

    assert fact in memories._repr_mimebundle_()["text/html"]
    assert long not in memories._repr_mimebundle_()["text/html"]
    assert long in memories[0]._repr_mimebundle_()["text/html"]
    shown = memories[1]._repr_mimebundle_()
    assert shown["text/plain"] == f"memory of root\n\n{fact}"
    assert "<em>voted</em>" in shown["text/html"]


def test_memory_is_deleted_by_its_entry_or_its_number(session_of: SessionOf) -> None:
    session = session_of(by_agent({"root": [remember("tea one", "tea two"), "ok"]}))
    run = ended(session)
    first, second = run.result().memories

    session.delete_memory(first)
    session.delete_memory(second.id)

    assert list(session.memories()) == []
    with pytest.raises(NoSuchMemory, match=r"`session.memories\(\)` lists"):
        session.delete_memory(first)
    for wrong in ("1", True, None, 1.0):
        with pytest.raises(ValueError, match=r"`session.memories\(\)`"):
            session.delete_memory(wrong)  # type: ignore[arg-type]
    assert len(run.memories) == 2, "the record stays as it was"


def test_to_list_memories_makes_no_file(tmp_path: Path) -> None:
    session = Session(model="demo/demo", store=tmp_path / "runs.db")

    assert session.memories() == ()
    assert list(tmp_path.iterdir()) == []


def test_memories_are_kept_for_the_session_if_there_can_be_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no folder").write_text("a file")
    session = Session(
        provider=by_agent({"root": [remember("Anna likes tea."), "ok"]}),
        store=tmp_path / "no folder" / "runs.db",
        tools=["memory"],
    )

    ended(session)

    assert [memory.text for memory in session.memories()] == ["Anna likes tea."]
    assert len(capsys.readouterr().err.splitlines()) == 1
