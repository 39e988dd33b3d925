"""A file is replaced as a whole, or it is as it was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentnb.files import replace_file


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


def test_what_a_link_points_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    file, link = tmp_path / "a.txt", tmp_path / "link.txt"
    file.write_text("before", encoding="utf-8")
    link.symlink_to(file)

    replace_file(link, "after")

    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "after"


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
