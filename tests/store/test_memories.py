"""Memories in a store: what a query finds, and in which order."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agentnb.core.secrets import known_secrets
from agentnb.store.database import open_to_write
from agentnb.store.memories import (
    MOST_WORDS,
    add_memory,
    delete_memory,
    list_memories,
    search_memories,
)
from agentnb.store.transactions import MemoryTransactions


@pytest.fixture
def db() -> sqlite3.Connection:
    return MemoryTransactions()._db


def add(db: sqlite3.Connection, *texts: str) -> list[int]:
    return [
        add_memory(db, text, source_agent_id="nb_1.2", run_id="r", now=float(at)).id
        for at, text in enumerate(texts)
    ]


def found(db: sqlite3.Connection, query: str, limit: int = 10) -> list[str]:
    return [memory.text for memory in search_memories(db, query, limit)]


def test_memory_is_kept_with_its_agent_run_and_time(db: sqlite3.Connection) -> None:
    entry = add_memory(db, "Tea, please.", source_agent_id="nb_1.2", run_id="r7", now=60.0)

    assert (entry.text, entry.source_agent_id, entry.run_id) == ("Tea, please.", "nb_1.2", "r7")
    assert entry.created_at.timestamp() == 60.0
    assert entry.id > 0
    assert list_memories(db) == search_memories(db, "tea", 1) == (entry,)
    assert list_memories(db).to_records()[0]["text"] == "Tea, please."


def test_newest_is_listed_first(db: sqlite3.Connection) -> None:
    add(db, "one", "two", "three")

    assert [memory.text for memory in list_memories(db)] == ["three", "two", "one"]


def test_any_word_is_enough_and_more_and_rarer_ones_come_first(db: sqlite3.Connection) -> None:
    add(db, "a train to Basel", "a boat to Bonn", "a boat to Basel", "a goat", "a boat, a boat")

    assert found(db, "boat basel")[0] == "a boat to Basel"
    assert set(found(db, "boat basel")) == {
        "a boat to Basel",
        "a train to Basel",
        "a boat to Bonn",
        "a boat, a boat",
    }
    assert found(db, "Goat?") == ["a goat"]
    assert found(db, "boat basel", limit=1) == ["a boat to Basel"]
    assert found(db, "boat", limit=10**24)


def test_of_equal_ones_the_newest_comes_first(db: sqlite3.Connection) -> None:
    add(db, "tea at one", "tea at two", "tea at six")

    assert found(db, "tea") == ["tea at six", "tea at two", "tea at one"]


def test_text_that_was_kept_twice_is_found_once(db: sqlite3.Connection) -> None:
    add(db, "tea at one", "tea at two", "tea at one")

    assert found(db, "tea", limit=2) == ["tea at one", "tea at two"]


@pytest.mark.parametrize(
    "query",
    ['" OR * NEAR(', "", " \n", '"', "*", "_", "()", "text:", "-", "^", "NOT", "\0", "\ud800"],
)
def test_query_is_words_and_never_a_formula(db: sqlite3.Connection, query: str) -> None:
    add(db, "text of one kind", "another")

    assert found(db, query) == (["text of one kind"] if "text" in query else [])


@pytest.mark.parametrize(
    "word", ["Straße", "ÉCOLE", "e\u0301cole", "naïve", "2,850", "don't", "水"]
)
def test_word_is_found_in_any_spelling(db: sqlite3.Connection, word: str) -> None:
    add(db, f"this is about {word}", "this is about nothing")

    assert found(db, word)[0] == f"this is about {word}"
    assert found(db, word.upper() if word != "Straße" else "straße") == found(db, word)


def test_long_query_counts_by_its_first_words(db: sqlite3.Connection) -> None:
    add(db, "tea at six")
    others = [f"word{number}" for number in range(MOST_WORDS)]

    assert found(db, " ".join([*others[1:], "six"])) == ["tea at six"]
    assert found(db, " ".join([*others, "six"])) == []
    assert found(db, "six " * 100_000) == ["tea at six"]


def test_secret_is_masked_before_it_is_kept(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted-0123456789")
    known_secrets()

    entry = add_memory(
        db, "the key is sk-ant-planted-0123456789", source_agent_id="nb", run_id="r", now=0.0
    )

    assert "planted" not in entry.text
    assert found(db, "planted") == []
    assert found(db, "key") == [entry.text]


def test_half_a_character_can_be_kept(db: sqlite3.Connection) -> None:
    add(db, "half \ud83d of it")

    assert found(db, "half") == ["half \ufffd of it"]


def test_deleted_memory_is_in_no_list_and_found_by_no_word(db: sqlite3.Connection) -> None:
    first, second = add(db, "tea at one", "tea at six")

    assert delete_memory(db, first)

    assert found(db, "tea") == ["tea at six"]
    assert found(db, "one") == []
    for unknown in (first, 0, -1, 2**63, 10**30):
        assert not delete_memory(db, unknown)
    assert [memory.id for memory in list_memories(db)] == [second]
    assert add(db, "tea at nine") > [second], "a number is never used again"


def test_no_word_of_a_deleted_memory_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    db = open_to_write(path, journal_mode="DELETE")
    first, _ = add(db, "a boat to Rotterdam", "a boat to Bonn")
    assert b"rotterdam" in path.read_bytes().lower()

    delete_memory(db, first)
    db.close()

    assert b"rotterdam" not in path.read_bytes().lower()
