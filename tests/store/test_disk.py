"""What a disk can do to a store, seen from outside: one sentence, and the run goes on.

See `tests/soak/disk.py` for the process that makes the runs.
"""

from __future__ import annotations

import functools
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentnb import ScriptedProvider, Session
from tests.soak.disk import ANSWERED, LIMIT_FILES, Seen, faults_of_a_full_disk, seen_with

# One sentence: what is wrong, and what to do.
_SENTENCE = re.compile(r"The store '[^']+' cannot be used: [^;.]+; [^;]+\.\Z")


def only_trouble_of(seen: Seen) -> str:
    """The one sentence that the process wrote, once; both runs must have ended well."""
    assert seen.ends == ANSWERED
    (sentence,) = seen.errors
    assert seen.troubles[-1] == sentence
    assert seen.troubles[0] in (None, sentence)
    return sentence


def all_in(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@functools.cache
def files_of_a_store() -> dict[str, bytes]:
    """What a process leaves that made two runs."""
    with tempfile.TemporaryDirectory() as folder:
        seen = seen_with(Path(folder) / "x.db", length=3_000)
        assert (seen.ends, seen.errors) == (ANSWERED, [])
        return all_in(Path(folder))


def a_store_at(path: Path) -> None:
    """A store with two runs, which no process uses."""
    path.parent.mkdir(exist_ok=True)
    assert sorted(files_of_a_store()) == ["x.db", "x.db-alive"]
    for name, content in files_of_a_store().items():
        path.with_name(name).write_bytes(content)


def words(path: Path) -> None:
    path.write_text("These are words, and no database.\n" * 1_000)


def newer(path: Path) -> None:
    a_store_at(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1000000")


def another_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY)")


def damaged(share: float) -> Callable[[Path], None]:
    """A store of which some bytes are wrong, at this share of its length."""

    def make(path: Path) -> None:
        a_store_at(path)
        content = bytearray(path.read_bytes())
        at = int(len(content) * share)
        content[at : at + 8_192] = bytes(byte ^ 0xFF for byte in content[at : at + 8_192])
        path.write_bytes(content)

    return make


def without_text(path: Path) -> None:
    a_store_at(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE contents SET body = CAST(x'ff' AS TEXT)")
        db.commit()


def cut_off(path: Path) -> None:
    a_store_at(path)
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        pytest.param(words, "it is not a database", id="words"),
        pytest.param(another_programs, "it is another program's database", id="another program's"),
        pytest.param(newer, "a newer agentnb wrote it", id="newer"),
        pytest.param(without_text, "it is damaged", id="text that is none"),
        pytest.param(cut_off, "it is damaged", id="cut off"),
        *(
            pytest.param(damaged(share), "it is damaged", id=f"damaged at {share:.0%}")
            for share in (0.1, 0.5, 0.9)
        ),
    ],
)
def test_file_that_is_not_ours_to_write_stays_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], what: str
) -> None:
    path = tmp_path / "x.db"
    make(path)
    before = all_in(tmp_path)

    sentence = only_trouble_of(seen_with(path, lists=False))

    assert _SENTENCE.match(sentence)
    assert what in sentence
    assert all_in(tmp_path) == before


def test_full_disk_takes_no_run_and_the_file_keeps_what_it_has(tmp_path: Path) -> None:
    assert faults_of_a_full_disk(tmp_path / "x.db", fill=LIMIT_FILES) == []


def test_store_that_grows_beyond_its_disk_says_so_in_one_sentence(tmp_path: Path) -> None:
    sentence = only_trouble_of(seen_with(tmp_path / "x.db", between=LIMIT_FILES))

    assert _SENTENCE.match(sentence)
    assert "full" in sentence


NOBODY = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else ""


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder in which a process may not write; `NOBODY` gives up the right of the superuser.

    Not a `tmp_path`: pytest lets nobody else into the folders above it.
    """
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        folder = Path(above, "read only")
        folder.mkdir(mode=0o755)
        yield folder


@pytest.mark.parametrize("has_store", [False, True])
def test_folder_that_cannot_be_written_to_stays_as_it_is(read_only: Path, has_store: bool) -> None:
    path = read_only / "x.db"
    if has_store:
        a_store_at(path)
        path.chmod(0o444)
    before = all_in(read_only)
    read_only.chmod(0o555)
    try:
        seen = seen_with(path, before=f"import agentnb.store.store\n{NOBODY}")
    finally:
        read_only.chmod(0o755)

    assert _SENTENCE.match(only_trouble_of(seen))
    # The runs of this process, and those that can still be read.
    assert seen.listed == ["completed"] * (4 if has_store else 2)
    assert all_in(read_only) == before


def test_file_that_is_deleted_under_a_running_kernel_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "x.db"

    seen = seen_with(path, between="os.remove(path)")

    assert "it was deleted while this process wrote to it" in only_trouble_of(seen)
    assert seen.listed == ["completed"]
    assert not path.exists()


def test_file_that_is_replaced_under_a_running_kernel_stays_as_it_is(tmp_path: Path) -> None:
    path, other = tmp_path / "x.db", tmp_path / "other" / "x.db"
    a_store_at(other)
    before = other.read_bytes()

    seen = seen_with(path, between=f"os.replace({str(other)!r}, path)")

    assert "it was replaced by another file" in only_trouble_of(seen)
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_fork_keeps_its_runs_in_memory_says_so_once_and_leaves_the_file_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"

    seen = seen_with(
        path,
        between="""
import warnings
warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
if os.fork() == 0:
    forked = session.run_sync("Plan.")
    print(json.dumps([forked.output, [str(info.status) for info in session.runs()]]), flush=True)
    sys.exit()
os.wait()
""",
    )

    assert seen.ends == ANSWERED
    assert seen.troubles == [None, None]
    (sentence,) = seen.errors
    assert "belongs to the process that forked this one" in sentence
    assert sentence.endswith(".")
    session = Session(provider=ScriptedProvider([]), config=False, store=path)
    assert [str(info.status) for info in session.runs()] == ["completed"] * 2
    for info in session.runs():
        assert session.load(info).output == "Brought together."
