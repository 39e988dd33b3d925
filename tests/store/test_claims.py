"""A run is claimed before it is recovered: by one process, and only if it can go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from agentnb.core.errors import AmbiguousRun, CannotRecover, NoSuchRun
from agentnb.store.database import open_to_write
from agentnb.store.store import Store
from tests.forks import Program
from tests.store.filled import add_run

DEAD = 7
"""A process that nobody has claimed the number of."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "x.db")
    yield made
    made.close()


def add(store: Store, run_id: str, **columns: object) -> int:
    with closing(open_to_write(store.path)) as db:
        return add_run(db, run_id, **columns)  # type: ignore[arg-type]


def order(store: Store, run: int, agent: str) -> None:
    with closing(open_to_write(store.path)) as db:
        db.execute(
            "INSERT INTO orders VALUES (?, 1, 'cancel', 'panel', 'root', 1, 0, ?)",
            (run, f'{{"agent": {agent}, "reason": "enough"}}'),
        )


def status(store: Store, run_id: str) -> str:
    return next(str(info.status) for info in store.runs() if info.id == run_id)


def test_run_of_a_dead_process_is_claimed_once(store: Store) -> None:
    add(store, "abc", process=DEAD)
    assert store.claim("ab") == "abc"
    assert status(store, "abc") == "running"
    with pytest.raises(CannotRecover) as refused:
        store.claim("abc")
    assert str(refused.value) == (
        "The run 'abc' cannot be recovered: it is running in this process; wait until it has ended."
    )


def test_claim_that_is_given_up_leaves_the_run_to_the_next(store: Store) -> None:
    add(store, "abc", process=DEAD)
    add(store, "other", process=DEAD)
    store.claim("abc")
    store.give_up("other")
    store.give_up("abc")
    assert status(store, "abc") == "interrupted"
    assert store.claim("abc") == "abc"


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        ("completed", "it has ended (completed); start its task again"),
        ("failed", "it has ended (failed); start its task again"),
        ("exhausted", "it has ended (exhausted); `budget=` gives it more, so that it can go on"),
        ("cancelled", "it was cancelled; start its task again"),
    ],
)
def test_run_that_has_ended_cannot_be_claimed(store: Store, ended: str, why: str) -> None:
    add(store, "abc", process=DEAD, status=ended)
    with pytest.raises(CannotRecover) as refused:
        store.claim("abc")
    assert refused.value.why == why
    if ended != "exhausted":
        with pytest.raises(CannotRecover):
            store.claim("abc", may_be_exhausted=True)


def test_run_that_died_while_all_of_it_was_cancelled_cannot_be_claimed(store: Store) -> None:
    order(store, add(store, "whole", process=DEAD), "null")
    order(store, add(store, "branch", process=DEAD), '"1"')
    with pytest.raises(CannotRecover, match="it was cancelled"):
        store.claim("whole")
    assert status(store, "whole") == "interrupted"
    assert store.claim("branch") == "branch"


def test_unknown_run_cannot_be_claimed(store: Store) -> None:
    with pytest.raises(NoSuchRun):
        store.claim("abc")
    assert not store.path.exists()
    add(store, "a1", process=DEAD)
    add(store, "a2", process=DEAD)
    with pytest.raises(NoSuchRun):
        store.claim("b")
    with pytest.raises(AmbiguousRun):
        store.claim("a")
    with pytest.raises(ValueError, match="`run` must be"):
        store.claim(5)  # type: ignore[arg-type]


OTHER = """
import sys
from pathlib import Path
from agentnb.core.errors import CannotRecover
from agentnb.store.store import Store

store = Store(Path(sys.argv[1]))
store.transactions().process
print("ready", flush=True)
sys.stdin.readline()
try:
    print(store.claim("abc", may_be_exhausted=True), flush=True)
except CannotRecover as error:
    print(error.why, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ended", [None, "exhausted"])
def test_of_several_processes_one_gets_the_run_until_it_dies(
    store: Store, ended: str | None
) -> None:
    add(store, "abc", process=DEAD, status=ended)
    with ExitStack() as stack:
        others = [stack.enter_context(Program(OTHER, store.path)) for _ in range(3)]
        for word in ("ready\n", None):
            said = []
            for other in others:
                said.append(other.stdout.readline())
                assert word in (None, said[-1])
            if word is not None:
                for other in others:
                    other.say("go")
        where = (
            "it is running in another process" if ended is None else "its process is still running"
        )
        refused = f"{where}; recover it when that has ended\n"
        assert sorted(said) == sorted(["abc\n", refused, refused])
        with pytest.raises(CannotRecover, match="recover it when that has ended"):
            store.claim("abc", may_be_exhausted=True)
    assert status(store, "abc") == ("interrupted" if ended is None else "exhausted")
    assert store.claim("abc", may_be_exhausted=True) == "abc"
