"""A kernel that starts in a folder with an agentnb.yaml has its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import NO_SESSION, Kernel

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
def kernel(folder: Path, fork_server: ForkServer) -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # where a front end starts the kernel of a notebook
        with fork_server.started() as kernel:
            kernel.ok("%load_ext agentnb")
            yield kernel


def test_settings_are_shown_as_text_without_ids_times_and_paths(
    kernel: Kernel, folder: Path
) -> None:
    kernel.ok(NO_SESSION)
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
    kernel.ok(SCRIPT)
    (folder / "agentnb.yaml").write_text("llm:\n  pool: {}\n  default_pool: one")
    wrong = [
        kernel.run(cell).error.splitlines()
        for cell in (
            "%%spawn --quiet\nHello",
            "%agentnb config",
            "session.spawn('Hello')",
            "import agentnb; agentnb.configure()",
        )
    ]
    (folder / "agentnb.yaml").write_text(SETTINGS.replace("Be strict.", "Be kind."))
    kernel.ok("%%spawn --profile reviewer --quiet\nHello")
    (folder / "agentnb.yaml").write_text(SETTINGS)
    after = kernel.ok("%agentnb config")

    assert "Be kind." in kernel.value("provider.requests[-1].system")
    assert wrong == 4 * [wrong[0]]
    assert wrong[0] == [
        "ConfigError: agentnb.yaml has 2 mistakes.",
        "  line 2, `llm.pool`: There is no such key here. Did you mean `pools`?",
        "  line 3, `llm.default_pool`: There is no pool 'one' (known: none). "
        "Add it under `llm.pools`.",
    ]
    assert "reviewer     Finds mistakes.\n" in after.stdout


def test_broken_profile_is_one_line_for_who_uses_it_and_nothing_for_others(
    kernel: Kernel, folder: Path
) -> None:
    kernel.ok(SCRIPT)
    (folder / "agentnb.yaml").write_text(SETTINGS.replace("pool: one", "poool: one", 1))
    used = kernel.run("%%spawn --profile reviewer\nHello")
    shown = kernel.ok("%agentnb config")
    kernel.ok("%%spawn --quiet\nHello")
    (folder / "agentnb.yaml").write_text(SETTINGS)

    line = (
        "line 7, `tools.spawn.profiles.reviewer.poool`: There is no such key here. "
        "Did you mean `pool`?"
    )
    assert used.error == f"ConfigError: agentnb.yaml, {line}"
    assert line in shown.stdout


def test_file_that_names_a_strangers_server_is_one_line_until_it_is_trusted(
    kernel: Kernel, folder: Path
) -> None:
    kernel.ok(SCRIPT)
    server = "  providers: {openai: {base_url: http://gpu.example.invalid/v1}}\n"
    (folder / "agentnb.yaml").write_text(SETTINGS + server)
    refused = kernel.run("%%spawn --model openai/m\nHello").error
    shown = kernel.ok("%agentnb config").stdout
    kernel.ok("%%spawn --quiet\nHello")  # what needs no such server goes on
    trusted = kernel.ok("%agentnb trust").stdout
    after = kernel.ok("%agentnb config").stdout
    (folder / "agentnb.yaml").write_text(SETTINGS)

    assert refused.startswith(
        "UntrustedSettings: agentnb.yaml is not trusted, so nothing was sent: by"
    )
    assert "http://gpu.example.invalid/v1. If you know this server" in refused
    assert "\n" not in refused
    assert "  trust     not given: nothing is sent there before `%agentnb trust`" in shown
    assert trusted == (
        "agentnb.yaml is trusted: every conversation with an `openai/...` model, and the value of "
        "`OPENAI_API_KEY` may go to http://gpu.example.invalid/v1. A changed file needs trust "
        "again.\n"
    )
    assert "`OPENAI_API_KEY` may go there" in after
    assert kernel.run("%agentnb trust a b").error.startswith("NotebookError: `%agentnb trust`")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("agentnb.Session(budget=-1)", "ValueError: `budget` must be a whole number of tokens"),
        ("agentnb.Session(bugdet=1)", "TypeError: There is no setting 'bugdet': did you"),
        ("agentnb.configure(max_turns=0)", "ValueError: `max_turns` must be a whole number of"),
        ("session.spawn('Hello', budget='few')", "ValueError: `budget` must be a whole number of"),
        ("agentnb.configure(bugdet=1)", "ValueError: There is no setting 'bugdet': did you"),
        ("agentnb.configure(tools=type)", "ValueError: `tools` must be a list of"),
        ("session.spawn('Hello', max_depth='deep')", "ValueError: `max_depth` must be a whole"),
        ("agentnb.Session(max_time_s=-1)", "ValueError: `max_time_s` must be a number of seconds"),
        (
            "agentnb.register_provider('a/b', 5)",
            "ValueError: A provider cannot have the name 'a/b'",
        ),
        ("session.spawn_all(5)", "ValueError: `tasks` must be a list of strings"),
        ("session.run_sync('Hello', model='nowhere/large')", "UnknownModel: No provider answers"),
    ],
)
def test_wrong_setting_in_a_plain_cell_is_one_line(kernel: Kernel, cell: str, words: str) -> None:
    kernel.ok(SCRIPT)
    shown = kernel.run(cell)

    assert shown.status == "error"
    assert shown.error.startswith(words)
    assert "\n" not in shown.error
