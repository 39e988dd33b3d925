"""The contents of a wheel and an sdist, built here by hatchling alone, without a network.

`python -m tests.release built` also installs and uses them.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml

import agentnb
from agentnb.doctor.versions import read_requirement
from tests.release.lowest import TESTS, floors
from tests.test_supply import EXTRAS, PROJECT, ROOT, name_of

GENERATED = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (file,) = built.glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def test_wheel_holds_each_file_of_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tree = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "agentnb").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = set(wheel.namelist())
    beside = {name.partition(".dist-info/")[2] for name in held - tree}

    assert tree - held == set()
    assert beside == GENERATED
    kinds = {".py", ".typed", ".js", ".json", ".css", ".sql", ".txt"}
    assert {Path(name).suffix for name in tree} == kinds


def test_sdist_holds_what_a_packager_needs_and_nothing_that_is_made(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    wanted = {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md"}
    wanted |= {"SECURITY.md", "conftest.py", "pyproject.toml"}
    folders = {"agentnb", "binder", "docs", "notebooks", "tests"}
    made = {
        "__pycache__",
        "node_modules",
        ".venv",
        ".agentnb",
        ".git",
        "dist",
        ".ipynb_checkpoints",
    }
    top = {name.partition("/")[0] for name in names}

    assert top - {".ci", ".gitignore", ".pre-commit-config.yaml", "biome.json", "package.json"} == (
        wanted | folders | {"PKG-INFO"}
    )
    assert [name for name in names if made & set(name.split("/"))] == []


def test_metadata_is_the_projects_and_complete(metadata: Message) -> None:
    assert metadata["Name"] == "agentnb"
    assert metadata["Version"] == agentnb.__version__
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Author"] == "agentnb contributors"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert (metadata["Keywords"] or "").split(",") == sorted(PROJECT["keywords"])
    # Only what the tests run on.
    assert [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier", [])
        if each.startswith("Programming Language :: Python :: 3.")
    ] == ["3.11", "3.12", "3.13"]


def test_wheel_asks_for_what_the_project_declares(metadata: Message) -> None:
    asked = [read_requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    declared = {("", name_of(line)) for line in PROJECT["dependencies"]}
    declared |= {(extra, name_of(line)) for extra, lines in EXTRAS.items() for line in lines}

    own = {(each.extra, each.name) for each in asked if each is not None}

    assert None not in asked
    # `test` names other extras, whose requirements are listed separately.
    assert declared - own <= {("test", "agentnb")}
    assert {each for each in own - declared if each[0] != "test"} == set()
    assert metadata.get_all("Provides-Extra") == sorted(EXTRAS)


def test_each_dependency_has_a_lowest_version_that_can_be_tried() -> None:
    lines = {*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)}
    of_agentnb = {line for line in lines if name_of(line) == "agentnb"}
    named = {name_of(line) for line in lines - of_agentnb}

    tried = {name_of(constraint) for constraint in floors(lines)}

    assert floors(["httpx2>=2.12,<3", "anthropic[aiohttp]>=2.5,<3", "pydantic-core"]) == [
        "anthropic==2.5",
        "httpx2==2.12",
    ]
    assert named - tried == {"pydantic-core"}  # pydantic requires exactly one version of it
    paths = [word for words in TESTS.values() for word in words]
    assert [path for path in paths if not (ROOT / path.removeprefix("--ignore=")).exists()] == []


def test_citation_is_of_this_version() -> None:
    """The keys that the format 1.2.0 requires, and no person who is not one."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))

    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == agentnb.__version__ == PROJECT["version"]
    released = f"\n## [{citation['version']}] - {citation['date-released']}\n"
    assert released in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert citation["title"] == "agentnb"
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == [{"name": "agentnb contributors"}]
    assert citation["message"]
