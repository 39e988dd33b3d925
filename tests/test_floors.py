"""The import floors, checked by pytest as well as by `lint-imports`.

The contracts are in pyproject.toml. The tests run them, also on imports that they must refuse.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command as main; main()"

# By the contract that refuses it: its first words.
WRONG_IMPORTS = {
    "The core: ": {
        "agentnb/core/types.py": "from agentnb.core import events",
        "agentnb/core/errors.py": "from agentnb.core import events",
        "agentnb/core/cycles.py": "from agentnb.core import budget",
    },
    "The core knows no room": {"agentnb/core/cancel.py": "from agentnb.core import records"},
    "The core knows no library": {"agentnb/core/tree.py": "import networkx"},
    "The house: ": {"agentnb/core/prompt.py": "from agentnb import runtime"},
    "Only the notebook floor knows IPython": {"agentnb/runtime.py": "import IPython"},
    "Only one module knows the Anthropic SDK": {"agentnb/run.py": "import anthropic"},
    "Only one module knows the OpenAI SDK": {"agentnb/session.py": "import openai"},
    "Nothing inside the package": {"agentnb/prices.py": "import agentnb"},
    "No circle anywhere": {
        "agentnb/providers/body.py": "from agentnb.providers import aio_transport"
    },
}


def test_every_import_in_the_package_goes_down() -> None:
    result = lint_imports(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("contract", WRONG_IMPORTS)
def test_import_that_goes_up_or_out_is_refused_inside_a_function_too(
    refused: dict[str, str], contract: str
) -> None:
    (said,) = (text for name, text in refused.items() if name.startswith(contract))

    for module, statement in WRONG_IMPORTS[contract].items():
        if contract == "No circle anywhere":
            assert "No cycles are allowed in agentnb.providers.\n" in said
        else:
            imported = ".".join(re.findall(r"[\w.]+", statement)[1::2])
            assert f"{module_of(module)} -> {imported} (l." in said


def test_module_without_a_floor_is_refused(refused: dict[str, str]) -> None:
    assert "agentnb.core.attic" in "".join(refused.values())


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The output of each contract for a copy of the package with all wrong imports."""
    copy = tmp_path_factory.mktemp("copy")
    copy_package(copy)
    for wrong in WRONG_IMPORTS.values():
        for module, statement in wrong.items():
            with (copy / module).open("a", encoding="utf-8") as file:
                file.write(f"\n\ndef _wrong() -> None:\n    {statement}\n")
    (copy / "agentnb" / "core" / "attic.py").touch()
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    said = re.split(r"^(.+)\n-+\n", result.stdout, flags=re.MULTILINE)
    return dict(zip(said[1::2], said[2::2], strict=True))


def module_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def test_core_imports_the_standard_library_and_itself_only() -> None:
    graph = grimp.build_graph("agentnb", include_external_packages=True, cache_dir=None)
    core = graph.find_descendants("agentnb.core") | {"agentnb.core"}

    imported = {name for module in core for name in graph.find_modules_directly_imported_by(module)}

    outside = {name for name in imported - core if name not in sys.stdlib_module_names}
    assert outside == set()
    assert "asyncio" in imported, "the graph holds imports from outside the package"


def copy_package(directory: Path) -> None:
    # A bytecode file may be gone again, if another test's process was writing it.
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
