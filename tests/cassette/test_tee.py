"""Two journals for one run: both get all of it, and the second one's failure is no agent's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentnb.cassette import Cassette, CassetteJournal, TeeJournal
from agentnb.core.errors import InternalError
from agentnb.core.protocols import Journal
from agentnb.core.records import RunHead
from agentnb.testing import Check
from agentnb.testing.memory_journal import MemoryJournal
from tests.journal_checks import all_checks
from tests.support import by_agent, make_tree, spawn


def of_two(folder: Path) -> Callable[[], tuple[Journal, Callable[[], Journal]]]:
    def make() -> tuple[Journal, Callable[[], Journal]]:
        memory, path = MemoryJournal(), folder / "a.cassette.jsonl"

        def reopened() -> Journal:
            return TeeJournal(memory.reopened(), CassetteJournal(path, "again"))

        return TeeJournal(memory, CassetteJournal(path, "a run")), reopened

    return make


_names = [str(check) for check in all_checks(lambda: (MemoryJournal(), MemoryJournal))]


@pytest.mark.parametrize("name", _names)
async def test_journal_beside_a_cassette_keeps_its_promises(name: str, tmp_path: Path) -> None:
    checks: dict[str, Check] = {str(each): each for each in all_checks(of_two(tmp_path))}

    await checks[name]()


class Failing:
    """A journal that fails at one method."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __getattr__(self, name: str) -> Any:
        def act(*values: object) -> None:
            if name == self._method:
                raise OSError(f"{name} failed")

        return act

    async def commit(self) -> None:
        if self._method == "commit":
            raise OSError("commit failed")


@pytest.mark.parametrize("method", ["begin", "intend", "keep", "published", "commit"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_failing_one_fails_the_run_at_its_end_and_no_agent(
    method: str, is_first: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    good, bad = CassetteJournal(path, "a run"), Failing(method)
    provider = by_agent({"root": [spawn("one", "two"), "all is done"]})
    both = TeeJournal(bad, good) if is_first else TeeJournal(good, bad)
    tree = make_tree(provider, journal=both)
    await tree.run("root")

    assert isinstance(tree.error, InternalError)
    assert f"{method} failed" in str(tree.error)
    assert {path: status for path, status in tree.statuses().items() if path != "root"} == {
        "1": "completed",
        "2": "completed",
    }
    assert len(Cassette.read(path).calls("a run")) == 4


async def test_cassette_that_cannot_be_written_fails_the_run_at_its_end_and_the_store_has_it(
    tmp_path: Path,
) -> None:
    memory = MemoryJournal()
    tree = make_tree(
        by_agent({"root": [spawn("one"), "all is done"]}),
        journal=TeeJournal(memory, CassetteJournal(tmp_path / "none" / "a", "a run")),
    )
    await tree.run("root")

    assert isinstance(tree.error, InternalError)
    assert len(memory.load(tree.request.run_id).calls) == 3


async def test_journal_that_has_only_commit_may_be_one_of_them(tmp_path: Path) -> None:
    class Least:
        async def commit(self) -> None:
            pass

    both = TeeJournal(Least(), CassetteJournal(tmp_path / "a", "a run"))
    both.begin(RunHead("run", "nb", "the task", "demo/any"))
    await both.commit()
    both.close()

    assert not hasattr(both, "let_go")
