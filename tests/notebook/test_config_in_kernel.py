"""A notebook's folder with an agentnb.yaml: a kernel that starts there has its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel, started

SETTINGS = """\
tools:
  spawn:
    profiles:
      reviewer:
        description: Finds mistakes.
        system_prompt: Be strict.
        pool: one
llm:
  default_pool: one
  pools:
    one: [demo]
"""
SCRIPT = """
import agentnb
provider = agentnb.ScriptedProvider(lambda request: "Well said.", name="demo")
session = agentnb.configure(provider=provider)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("notebook")
    (made / "agentnb.yaml").write_text(SETTINGS)
    return made


@pytest.fixture(scope="module")
def kernel(folder: Path) -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # where a front end starts the kernel of a notebook
        with started() as kernel:
            kernel.ok("%load_ext agentnb")
            yield kernel


def test_settings_are_shown_as_text_without_ids_times_and_paths(
    kernel: Kernel, folder: Path
) -> None:
    shown = kernel.ok("%agentnb config")

    assert "  model         demo (llm.default_pool)\n" in shown.stdout
    assert "reviewer     Finds mistakes.\n" in shown.stdout
    assert "/" not in shown.stdout
    assert (shown.unstable, shown.displays, shown.stderr) == ([], [], "")
    assert shown.stdout == kernel.ok("%agentnb config").stdout


def test_profile_of_a_cell_configures_its_root(kernel: Kernel) -> None:
    kernel.ok(SCRIPT, "%%spawn --profile reviewer --quiet\nHello")

    assert "Be strict." in kernel.value("provider.requests[-1].system")
    assert "--profile P" in kernel.ok("%%spawn?").help

    kernel.ok("%%spawn --model pool:one --quiet\nHello")
    assert "Be strict." not in kernel.value("provider.requests[-1].system")
    assert kernel.value("session.newest_run.tree.model") == "demo"


@pytest.mark.parametrize(
    ("cell", "quoted"),
    [
        ("%%spawn --profile writer\nHello", "'writer' (known: 'reviewer')"),
        ("%%spawn --model pool:two\nHello", "'two' (known: 'one')"),
    ],
)
def test_name_that_is_not_there_is_one_line(kernel: Kernel, cell: str, quoted: str) -> None:
    shown = kernel.run(cell)

    assert shown.status == "error"
    assert quoted in shown.error
    assert "\n" not in shown.error


def test_mistakes_of_the_file_are_told_line_by_line_and_put_right_in_the_same_kernel(
    kernel: Kernel, folder: Path
) -> None:
    (folder / "agentnb.yaml").write_text("llm:\n  pool: {}\n  default_pool: one")
    before = kernel.ok("%agentnb config")
    wrong = kernel.run("import agentnb; agentnb.configure()")
    (folder / "agentnb.yaml").write_text(SETTINGS)
    kernel.ok("agentnb.configure()")
    after = kernel.ok("%agentnb config")

    assert "it has changed since" in before.stdout
    assert wrong.error.splitlines() == [
        "ConfigError: agentnb.yaml has 2 mistakes.",
        "  line 2, `llm.pool`: There is no such key here. Did you mean `pools`?",
        "  line 3, `llm.default_pool`: There is no pool 'one'. Known here: none. "
        "Or add it under `llm.pools`.",
    ]
    assert "it has changed since" not in after.stdout
