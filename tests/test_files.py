"""A file is replaced as a whole or stays unchanged."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from agentnb.files import read_part, replace_file


def test_text_stands_in_place_of_what_was_there_with_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("before", encoding="utf-8")
    file.chmod(0o640)

    replace_file(file, "é\n")

    assert file.read_bytes() == "é\n".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_file_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    replace_file(tmp_path / "new.txt", "text")

    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == "text"


def test_planted_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    file, link = tmp_path / "a.txt", tmp_path / "link.txt"
    file.write_text("before", encoding="utf-8")
    for target in (file, tmp_path / "not there"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)

        replace_file(link, "after")

        assert not link.is_symlink()
        assert link.read_text(encoding="utf-8") == "after"
    assert file.read_text(encoding="utf-8") == "before"
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_link_that_was_planted_beside_a_file_is_not_written_through(tmp_path: Path) -> None:
    file, other = tmp_path / "a.txt", tmp_path / "other.txt"
    other.write_text("somebody's", encoding="utf-8")
    (tmp_path / f".a.txt.{os.getpid()}").symlink_to(other)

    replace_file(file, "after")

    assert file.read_text(encoding="utf-8") == "after"
    assert other.read_text(encoding="utf-8") == "somebody's"


def test_link_to_a_pipe_is_refused(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)

    with pytest.raises(OSError, match="It is a link to something that is not a regular file"):
        replace_file(link, "through")

    assert link.is_symlink()


def test_what_is_kept_from_others_is_kept_from_them_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("before", encoding="utf-8")
    file.chmod(0o600)
    modes = []

    def noting(made: int, mode: str) -> io.FileIO:
        modes.append(stat.S_IMODE(os.fstat(made).st_mode))
        return io.FileIO(made, mode)

    monkeypatch.setattr("agentnb.files.os.fdopen", noting)
    replace_file(file, "after")

    assert modes == [0o600]


def test_name_of_a_file_is_cut_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long") as refused:
        replace_file(tmp_path / ("n" * 100_000), "text")

    assert len(str(refused.value)) < 300


def test_failure_in_mid_write_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("before", encoding="utf-8")

    with pytest.raises(UnicodeEncodeError):
        replace_file(file, "half a character \ud83d")

    assert file.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(pipe, "through")

        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_part_of_a_file_is_read_with_the_size_of_the_whole(tmp_path: Path) -> None:
    file, link = tmp_path / "a.txt", tmp_path / "link"
    file.write_bytes(b"0123456789")
    link.symlink_to(file)

    assert read_part(file, start=3, max_bytes=4) == (b"3456", 10)
    assert read_part(link, start=8, max_bytes=4) == (b"89", 10)
    assert read_part(file, start=99, max_bytes=4) == (b"", 10)


def test_part_is_read_of_a_regular_file_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="not a regular file but a pipe"):
        read_part(tmp_path / "pipe", start=0, max_bytes=4)
    with pytest.raises(IsADirectoryError):
        read_part(tmp_path, start=0, max_bytes=4)
