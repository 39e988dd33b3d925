"""Two kernels write to one store, and a third process reads it. See `tests/soak/two_kernels.py`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentnb.store import database
from agentnb.store.schema import VERSION, migrate, version_of
from tests.soak.two_kernels import points


def test_two_processes_with_runs_of_fifty_agents_lose_nothing_while_a_third_reads(
    tmp_path: Path,
) -> None:
    ((done, faults),) = points(tmp_path, 1, 0)

    assert faults == []
    assert done.startswith("6 runs of 50 agents, read ")
    assert " read 0 times" not in done


def test_store_that_is_being_made_is_read_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("VACUUM")  # it has a page, and nothing in it
        look = database._is_empty

        def made_after_the_first_look(db: sqlite3.Connection) -> bool:
            is_empty = look(db)
            migrate(other)
            return is_empty

        monkeypatch.setattr(database, "_is_empty", made_after_the_first_look)
        with closing(database.open_to_read(path)) as db:
            assert version_of(db) == VERSION


def test_new_file_has_its_version_as_soon_as_it_has_a_page(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        sizes: dict[str, int] = {}
        db.set_trace_callback(lambda sql: sizes.update({sql: path.stat().st_size}))
        migrate(db)

    assert "COMMIT" in sizes
    assert set(sizes.values()) == {0}


def test_file_that_another_process_makes_meanwhile_is_not_another_programs(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as db,
        closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other,
    ):
        statements: list[str] = []

        def made_after_the_first_statement(sql: str) -> None:
            statements.append(sql)
            if len(statements) == 2:
                migrate(other)

        db.set_trace_callback(made_after_the_first_statement)
        assert version_of(db) in (0, VERSION)
