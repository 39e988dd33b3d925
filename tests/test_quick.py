"""`python -m tests.quick`: which tests a change needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import quick
from tests.quick import BUILT, FEATURES, PACKAGE, PAGES, changed_since, needed_for

TESTS = {
    "tests/core/test_bus.py": "from agentnb.core.bus import EventBus",
    "tests/core/test_spawn.py": "from tests.support import DEADLINE_S",
    "tests/mcp/test_tools.py": "",
    "tests/views/panel/test_header.py": "from agentnb.errors import NotebookError",
    "tests/views/test_table.py": "from tests.scenes import scene",
    "tests/browser/test_tree.py": "from tests.scenes import scene",
    "tests/scenes.py": "import json\nfrom tests import other, support\n",
    "tests/store/test_disk.py": "",
    "tests/support.py": "",
    "tests/test_run.py": "",
    "tests/test_cluster.py": "",
}


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ("agentnb/views/panel/header.py", [*PACKAGE, "tests/views/panel"]),
        ("agentnb/views/table.py", [*PACKAGE, "tests/views"]),
        ("agentnb/views/static/layout.js", ["tests/test_built.py", "tests/views"]),
        ("agentnb/core/_run/agent.py", [*PACKAGE, *FEATURES, "tests/core"]),
        ("agentnb/tools/mcp/pool.py", [*PACKAGE, "tests/mcp"]),
        ("agentnb/run.py", [*PACKAGE, "tests/test_run.py"]),
        ("agentnb/cluster/engine.py", [*PACKAGE, "tests/test_cluster.py"]),
        ("agentnb/errors.py", [*PACKAGE, "tests/views/panel/test_header.py"]),
        ("agentnb/maps.py", [*PACKAGE, *FEATURES]),
        ("tests/store/test_disk.py", ["tests/store/test_disk.py"]),
        ("tests/store/conftest.py", ["tests/store"]),
        ("tests/store/data/schema_1.sql", ["tests/store"]),
        ("tests/support.py", ["tests/core/test_spawn.py", "tests/views/test_table.py"]),
        ("tests/browser/test_tree.py", []),
        ("notebooks/first-tree.ipynb", ["notebooks/first-tree.ipynb"]),
        ("docs/how-to/teach-with-it.md", [*PAGES]),
        ("README.md", [*PAGES]),
        ("pyproject.toml", [*BUILT]),
        ("LICENSE", []),
    ],
)
def test_change_runs_the_tests_that_mirror_it(changed: str, wanted: list[str]) -> None:
    assert needed_for([changed], TESTS) == sorted(wanted)


def test_folder_stands_for_its_files() -> None:
    changed = ["agentnb/views/panel/header.py", "agentnb/views/table.py", "tests/core/test_bus.py"]

    assert needed_for(changed, TESTS) == sorted([*PACKAGE, "tests/core/test_bus.py", "tests/views"])


def test_what_is_named_is_there() -> None:
    named = {*BUILT, *FEATURES, *PACKAGE, *PAGES}

    assert [each for each in named if not (quick.ROOT / each).is_file()] == []


def test_change_is_what_differs_from_a_commit_with_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "ROOT", tmp_path)

    def git(*asked: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *asked], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("kept", "edited", "deleted", "of the commit"):
        (tmp_path / name).write_text("before")
    (tmp_path / ".gitignore").write_text("ignored")
    git("add", ".")
    git("commit", "-m", "before")
    (tmp_path / "of the commit").write_text("after")
    git("commit", "-a", "-m", "after")
    (tmp_path / "edited").write_text("after")
    (tmp_path / "deleted").unlink()
    (tmp_path / "new").write_text("")
    (tmp_path / "ignored").write_text("")

    assert changed_since("HEAD") == ["edited", "new"]
    assert changed_since("HEAD~1") == ["edited", "of the commit", "new"]
    with pytest.raises(ValueError, match="no-such-commit"):
        changed_since("no-such-commit")
