"""The import floors, checked by pytest as well as by `lint-imports`.

The contracts are in pyproject.toml. The tests run them, and try them on imports to be refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command as main; main()"

WRONG_IMPORTS = {
    "agentnb/core/types.py": "from agentnb.core import events",
    "agentnb/core/errors.py": "from agentnb.core import events",
    "agentnb/core/cycles.py": "from agentnb.core import budget",
    "agentnb/core/tree.py": "import networkx",
    "agentnb/core/prompt.py": "from agentnb import runtime",
    "agentnb/runtime.py": "import IPython",
    "agentnb/run.py": "import anthropic",
    "agentnb/session.py": "import openai",
    "agentnb/prices.py": "from agentnb import Session",
}


def test_every_import_in_the_package_goes_down() -> None:
    result = lint_imports(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("module", WRONG_IMPORTS)
def test_import_that_goes_up_or_out_is_refused_inside_a_function_too(
    tmp_path: Path, module: str
) -> None:
    statement = WRONG_IMPORTS[module]
    copy_package(tmp_path)
    with (tmp_path / module).open("a", encoding="utf-8") as file:
        file.write(f"\n\ndef _wrong() -> None:\n    {statement}\n")

    result = lint_imports(tmp_path)

    assert result.returncode == 1, result.stdout + result.stderr
    importer = module.removesuffix(".py").replace("/", ".")
    assert f"{importer} -> " in result.stdout


def test_circle_among_the_providers_is_refused(tmp_path: Path) -> None:
    copy_package(tmp_path)
    with (tmp_path / "agentnb/providers/body.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef _wrong() -> None:\n    from agentnb.providers import aio_transport\n")

    result = lint_imports(tmp_path)

    assert result.returncode == 1
    assert "No cycles are allowed in agentnb.providers" in result.stdout


def test_module_without_a_floor_is_refused(tmp_path: Path) -> None:
    copy_package(tmp_path)
    (tmp_path / "agentnb" / "core" / "attic.py").touch()

    result = lint_imports(tmp_path)

    assert result.returncode == 1
    assert "agentnb.core.attic" in result.stdout


def test_core_imports_the_standard_library_and_itself_only() -> None:
    graph = grimp.build_graph("agentnb", include_external_packages=True, cache_dir=None)
    core = graph.find_descendants("agentnb.core") | {"agentnb.core"}

    imported = {name for module in core for name in graph.find_modules_directly_imported_by(module)}

    outside = {name for name in imported - core if name not in sys.stdlib_module_names}
    assert outside == set()
    assert "asyncio" in imported, "the graph holds imports from outside the package"


def copy_package(directory: Path) -> None:
    # A file of bytecode may have gone again: another test's process was writing it.
    no_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "agentnb", directory / "agentnb", ignore=no_bytecode)
    shutil.copy(ROOT / "pyproject.toml", directory)


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
