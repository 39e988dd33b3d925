"""The store is where a person expects it, and knows whether other machines write there, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentnb.store.place import (
    file_system_of,
    is_network,
    is_network_home,
    make_folder,
    make_named_folder,
    place_of,
)

CWD, PROJECT = Path("/home/ada/notebooks"), Path("/home/ada/project")

# -- where it is --------------------------------------------------------------------------------


def place(
    setting: str | os.PathLike[str] | None,
    *,
    config_folder: Path | None = None,
    cwd: Path = CWD,
    **environment: str,
) -> Path | None:
    return place_of(setting, config_folder=config_folder, environment=environment, cwd=cwd)


def test_by_default_it_is_in_the_folder_of_the_settings_else_in_the_working_directory() -> None:
    assert place("auto", config_folder=PROJECT) == PROJECT / ".agentnb" / "agentnb.db"
    assert place("auto") == CWD / ".agentnb" / "agentnb.db"


def test_environment_replaces_the_default_and_nothing_else() -> None:
    assert place("auto", AGENTNB_STORE="none", config_folder=PROJECT) is None
    assert place("auto", AGENTNB_STORE="None ") is None
    assert place("auto", AGENTNB_STORE="/data/runs.db", config_folder=PROJECT) == Path(
        "/data/runs.db"
    )
    assert place("auto", AGENTNB_STORE="runs.db", config_folder=PROJECT) == CWD / "runs.db"
    assert place("mine.db", AGENTNB_STORE="none") == CWD / "mine.db"
    assert place(None, AGENTNB_STORE="/data/runs.db") is None


@pytest.mark.parametrize("said", ["", "  ", "auto"])
def test_environment_that_says_nothing_leaves_the_default(said: str) -> None:
    assert place("auto", AGENTNB_STORE=said) == CWD / ".agentnb" / "agentnb.db"


def test_none_means_memory_only() -> None:
    assert place(None) is None
    assert place("none") is None


def test_path_is_that_of_the_file() -> None:
    assert place("runs.db") == CWD / "runs.db"
    assert place("../runs.db") == CWD / "../runs.db"
    assert place(Path("/data/runs.db")) == Path("/data/runs.db")


def test_home_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")

    assert place("~/runs.db") == Path("/home/ada/runs.db")
    assert place("auto", AGENTNB_STORE="~/runs.db") == Path("/home/ada/runs.db")
    assert place("~no_such_user_/x.db") == CWD / "~no_such_user_/x.db"


def test_folder_gets_the_usual_file(tmp_path: Path) -> None:
    assert place(tmp_path) == tmp_path / "agentnb.db"
    assert place(str(tmp_path)) == tmp_path / "agentnb.db"
    assert place("not/made/yet/") == CWD / "not/made/yet/agentnb.db"


@pytest.mark.parametrize("wrong", [3, True, b"/data/runs.db", "", "  ", "a\0b", ["x"]])
def test_anything_else_is_an_error_that_names_what_there_is(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"`store` must be 'auto', the path of a file or a folder"):
        place(wrong)  # type: ignore[arg-type]


# -- its folder ---------------------------------------------------------------------------------


def test_folder_of_its_own_is_made_with_a_gitignore_that_hides_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / ".agentnb" / "agentnb.db"

    make_folder(file)
    make_folder(file)

    assert [path.name for path in file.parent.iterdir()] == [".gitignore"]
    assert (file.parent / ".gitignore").read_text() == "*\n"


def test_gitignore_that_is_there_stays(tmp_path: Path) -> None:
    file = tmp_path / ".agentnb" / "agentnb.db"
    make_folder(file)
    (file.parent / ".gitignore").write_text("nothing\n")

    make_folder(file)

    assert (file.parent / ".gitignore").read_text() == "nothing\n"


def test_folder_that_a_person_named_gets_no_gitignore(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b" / "runs.db")

    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_only_a_folder_that_a_person_named_is_made_before_the_first_run(tmp_path: Path) -> None:
    make_named_folder(tmp_path / "a" / "b" / "runs.db")
    make_named_folder(tmp_path / ".agentnb" / "agentnb.db")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "b").is_dir()


def test_folder_that_cannot_be_made_is_left_to_the_first_run(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")

    make_named_folder(tmp_path / "a" / "runs.db")

    with pytest.raises(OSError, match="a"):
        make_folder(tmp_path / "a" / "runs.db")


# -- network homes ------------------------------------------------------------------------------

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 / /home rw,relatime shared:1 master:2 - nfs4 files:/home rw,vers=4.2
41 40 254:1 / /home/ada/fast rw,relatime - xfs /dev/vdb rw
42 27 0:42 / /mnt/my\040share rw - cifs //files/my\040share rw
43 27 0:40 /ada/data /srv/data rw,relatime shared:1 - nfs4 files:/home rw,vers=4.2
44 27 254:0 /var/tmp /home/ada/scratch rw - ext4 /dev/vda rw
45 27 0:45 / /over rw - ext4 /dev/vdc rw
46 45 0:46 / /over rw - fuse.sshfs ada@files: rw
47 27 0:47 / /with-dash rw shared:9 - lustre a - b:/c rw
48 27 0:48 / /back\134slash rw - 9p host rw
""".splitlines()


@pytest.mark.parametrize(
    ("path", "file_system"),
    [
        ("/", "ext4"),
        ("/var/lib/x.db", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada/.agentnb/agentnb.db", "nfs4"),
        ("/homework/x.db", "ext4"),  # a name that only begins like a mount's
        ("/home/ada/fast/x.db", "xfs"),  # a local disk in a network home
        ("/home/ada/faster/x.db", "nfs4"),
        ("/mnt/my share/x.db", "cifs"),
        ("/mnt/my\\040share/x.db", "ext4"),
        ("/srv/data/x.db", "nfs4"),  # a part of the network home, bound elsewhere
        ("/home/ada/scratch/x.db", "ext4"),  # a part of the disk, bound into the network home
        ("/over/x.db", "fuse.sshfs"),  # the later mount lies on top
        ("/with-dash/x.db", "lustre"),
        ("/back\\slash/x.db", "9p"),
    ],
)
def test_file_system_is_that_of_the_innermost_mount(path: str, file_system: str) -> None:
    assert file_system_of(path, MOUNTS) == file_system


def test_order_of_the_mounts_decides_only_between_those_at_one_point() -> None:
    rest = [line for line in MOUNTS if " /over " not in line]

    assert file_system_of("/home/ada/fast/x.db", reversed(rest)) == "xfs"
    assert file_system_of("/home/ada/x.db", reversed(rest)) == "nfs4"


@pytest.mark.parametrize(
    "lines", [[], [""], ["no mount at all"], ["1 2 3 / /", "1 2 0:1 / / rw -"]]
)
def test_lines_that_are_no_mounts_are_passed_over(lines: list[str]) -> None:
    assert file_system_of("/x", lines) == ""


def test_file_systems_that_other_machines_share() -> None:
    network = [
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse", "fuse.sshfs", "fuse.s3fs", "lustre",
        "gpfs", "afs", "9p",
    ]  # fmt: skip
    local = ["ext4", "xfs", "btrfs", "zfs", "apfs", "overlay", "tmpfs", "fuseblk", "vfat", ""]

    assert [each for each in network if not is_network(each)] == []
    assert [each for each in local if is_network(each)] == []


def test_place_is_looked_up_without_its_links_and_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "link").symlink_to("share")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"40 27 0:40 / {tmp_path.resolve()}/share rw - nfs4 files:/home rw\n"
    )
    monkeypatch.setattr("agentnb.store.place._MOUNTS", mounts)

    assert is_network_home(tmp_path / "link" / "not" / "made" / "x.db")
    assert not is_network_home(tmp_path / "x.db")


def test_system_that_does_not_tell_its_mounts_has_no_network_homes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentnb.store.place._MOUNTS", tmp_path / "none")

    assert not is_network_home(tmp_path)
