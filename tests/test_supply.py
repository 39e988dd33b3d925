"""The dependencies of the package and its tools are declared, and bounded if it matters."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from agentnb.core.collector import without_collector

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OURS = {"agentnb", "conftest", "tests"}

# A new major version of these changes what users of the package see.
RENDERING = {"anywidget": "<1", "markdown-it-py": "<5", "matplotlib": "<4", "pyyaml": "<7"}


# -- Python ----------------------------------------------------------------------------------------


def test_package_declares_what_it_imports_and_nothing_else() -> None:
    needed = names_of(PROJECT["dependencies"])
    extras = ("code", "dask", "lab", "mcp", "nest", "openai", "otel")
    optional = names_of(line for name in extras for line in EXTRAS[name])
    files = {*(ROOT / "agentnb").rglob("*.py")} - {ROOT / "agentnb" / "pytest_plugin.py"}
    imported = dict(imports_of(files))

    assert undeclared(imported, needed | optional) == {}
    # Imported only in a worker's process, or if switched on, with the extra installed.
    own = {ROOT / "agentnb" / "workers" / "inside", ROOT / "agentnb" / "telemetry"}
    of_every_process = {file for file in files if own.isdisjoint(file.parents)}
    assert undeclared(dict(imports_of(of_every_process, top_only=True)), needed) == {}
    assert needed - {name for module in imported for name in distributions_of(module)} == set()


def test_every_import_of_the_tests_is_declared() -> None:
    declared = names_of([*PROJECT["dependencies"], *(line for e in EXTRAS.values() for line in e)])

    assert undeclared(dict(imports_of([ROOT / "tests", ROOT / "conftest.py"])), declared) == {}


@pytest.mark.parametrize(
    "within",
    [
        "def f():\n    from yaml.nodes import Node",
        "class C:\n    async def f(self):\n        import os, yaml",
        "if 1:\n    pass\nelif 2:\n    pass\nelse:\n    import yaml as y",
        "try:\n    pass\nexcept E:\n    import yaml",
        "try:\n    pass\nfinally:\n    import yaml",
        "match 1:\n    case 1:\n        with a:\n            import yaml",
        "for a in b:\n    pass\nelse:\n    import yaml",
        "while a: import yaml",
    ],
)
def test_import_that_nothing_declares_is_found(within: str, tmp_path: Path) -> None:
    (tmp_path / "lonely.py").write_text(within)
    imported = dict(imports_of([tmp_path]))

    assert undeclared(imported, {"anthropic"}) == {"yaml": "lonely.py"}
    assert dict(imports_of([tmp_path], top_only=True)) == {}


@pytest.mark.parametrize(("name", "bound"), RENDERING.items(), ids=list(RENDERING))
def test_new_major_version_of_what_renders_is_not_taken_unseen(name: str, bound: str) -> None:
    (line,) = (line for line in PROJECT["dependencies"] if name_of(line) == name)

    assert line.endswith(f",{bound}")


def imports_of(roots: Iterable[Path], *, top_only: bool = False) -> Iterator[tuple[str, str]]:
    """Names of imported third-party packages, each with a file that imports it.

    Args:
        roots: Files, or folders of files.
        top_only: Leave out imports in functions and conditions, which may never run.
    """
    for root in roots:
        for path in [root] if root.is_file() else root.rglob("*.py"):
            body = statements_of(path)
            for statement in body if top_only else all_of(body):
                for module in modules_of(statement):
                    package = module.partition(".")[0]
                    if package not in OURS and package not in sys.stdlib_module_names:
                        yield package, path.name


@cache
def statements_of(path: Path) -> list[ast.stmt]:
    with without_collector():  # it takes as long as the parsing
        return ast.parse(path.read_text(encoding="utf-8")).body


def all_of(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, also those in others. Expressions, which are most of a tree, hold none."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            yield from all_of(getattr(statement, part, ()))
        for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from all_of(branch.body)


def modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def undeclared(imported: dict[str, str], declared: set[str]) -> dict[str, str]:
    """The imported packages that are not declared, with their files."""
    return {
        package: file
        for package, file in imported.items()
        if not distributions_of(package) & declared
    }


def distributions_of(package: str) -> set[str]:
    return names_of(_installed().get(package, ()))


@cache
def _installed() -> Mapping[str, Sequence[str]]:
    """The distributions that provide each package. Reads the metadata of all."""
    return packages_distributions()


def names_of(lines: Iterable[str]) -> set[str]:
    return {name_of(line) for line in lines}


def name_of(line: str) -> str:
    """The normalised name in a line of requirements."""
    found = re.match(r"[\w.-]+", line)
    assert found is not None, line
    return re.sub(r"[-_.]+", "-", found[0]).lower()


# -- JavaScript ------------------------------------------------------------------------------------


def test_javascript_tools_have_exact_versions_and_nothing_runs_as_they_are_installed() -> None:
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    tools = {name: of for key, of in package.items() if "ependencies" in key for name in of.items()}

    assert tools
    assert [tool for tool in tools if not re.fullmatch(r"\d+\.\d+\.\d+", tool[1])] == []
    assert {"preinstall", "install", "postinstall", "prepare"} & set(package["scripts"]) == set()


def test_scripts_of_jupyterlab_in_an_environment_in_the_clone_are_not_taken_for_modules() -> None:
    # Node asks the nearest `package.json` above a file. JupyterLab's have none of their own, and
    # README puts the environment into the clone: the server would begin with a traceback of Node.
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))

    assert package.get("type", "commonjs") == "commonjs"


@pytest.mark.parametrize("file", [".ci/run", "Makefile"])
def test_scripts_of_javascript_packages_are_not_run(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    installs = re.findall(r"npm (?:install|ci|i)\b.*", text)

    assert installs
    assert [line for line in installs if "--ignore-scripts" not in line] == []
    assert "npx" not in text
