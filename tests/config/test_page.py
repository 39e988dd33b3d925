"""docs/configuration.md is right: tests read its example, and make its mistakes."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from agentnb.config import load_config
from agentnb.config.schema import Section
from agentnb.errors import ConfigError, UntrustedSettings
from agentnb.notebook.settings import settings_text
from agentnb.session import Session
from agentnb.settings import SETTINGS, Settings

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MADE = """\
tools:
  spawn:
    profiles:
      reviewer:
        sytem_prompt: Be strict.
        pool: carefull
llm:
  pools: {careful: [demo]}
  providers:
    openai:
      api_key: abc
"""


def read_file(name: str) -> str:
    """One of the tools that the example names."""
    return name


def run_tests() -> str:
    """The other."""
    return ""


@pytest.fixture
def example(project: Path) -> Path:
    """A project with the page's example, and the files that it names."""
    (project / "agentnb.yaml").write_text(EXAMPLE, encoding="utf-8")
    (project / "prompts").mkdir()
    for name in ("prompts/reviewer.md", "STYLE.md", "AGENTS.md"):
        (project / name).write_text(f"the text of {name}")
    return project


@pytest.mark.usefixtures("example")
def test_example_of_the_page_is_in_force_as_it_says() -> None:
    session = Session()

    assert session.model == ("anthropic/claude-haiku-4-5", "demo")
    reviewer = session.config.profile("reviewer")
    assert reviewer.prompt_file == ("prompts/reviewer.md", "the text of prompts/reviewer.md")
    assert reviewer.models == ("anthropic/claude-opus-5", "anthropic/claude-sonnet-5-5")
    assert session.config.bootstrap_of_run()(reviewer) == (("STYLE.md", "the text of STYLE.md"),)
    assert session.config.bootstrap_of_run()(session.config.profile("writer")) == (
        ("AGENTS.md", "the text of AGENTS.md"),
    )


def test_example_of_the_page_has_every_key_that_there_is() -> None:
    sections = Section.__subclasses__()
    keys = {key for section in sections for key in section.model_fields}

    assert len(keys) > 12
    assert {key for key in keys if not re.search(rf"^ *{key}:", EXAMPLE, re.MULTILINE)} == set()


def test_mistakes_of_the_page_are_told_in_these_words(project: Path) -> None:
    (project / "agentnb.yaml").write_text(MADE)

    with pytest.raises(ConfigError) as raised:
        load_config("agentnb.yaml")

    assert f"```text\n{raised.value}\n```" in PAGE


def test_page_quotes_the_refusal_of_a_file_that_is_not_trusted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-1")
    server = "{base_url: 'https://gpu.example/v1', api_key_env: AWS_SECRET_ACCESS_KEY}"
    (project / "agentnb.yaml").write_text(f"llm: {{providers: {{openai: {server}}}}}")

    with pytest.raises(UntrustedSettings) as raised:
        Session("openai/m").run_sync("Say hello")

    first, _ = str(raised.value).split(" If you know", 1)
    assert f"```text\nUntrustedSettings: {first} …\n```" in PAGE


def test_table_of_the_page_has_all_settings_as_they_are() -> None:
    rows = [
        f"| `{each.name}` | `{each.default!r}` | {SETTINGS[each.name].check.right} "
        f"| {'yes' if SETTINGS[each.name].in_file else ''} | {SETTINGS[each.name].about} |"
        for each in fields(Settings)
    ]

    head = (
        "| setting | default | what it takes | in `session` | what it is |\n|---|---|---|---|---|"
    )
    assert "\n".join([head, *rows, ""]) in PAGE


# -- %agentnb config ----------------------------------------------------------------------------


@pytest.mark.usefixtures("example")
def test_what_is_in_force_is_shown_with_where_it_comes_from() -> None:
    assert settings_text(Session(tools=[read_file, run_tests], max_turns=5)) == (
        """\
Settings of agentnb.yaml:
  model         anthropic/claude-haiku-4-5, then demo (llm.default_pool)
  default pool  quick (llm.default_pool)
  delegation    by spawn block and by tools (session.delegation)
  bootstrap     AGENTS.md (the default)
  store         none: runs are in memory only (a replay stores nothing)
  mode          replay (agentnb.yaml)
  cassette      rivers.cassette.jsonl (agentnb.yaml)
Settings of a run (session):
  budget               200,000 (session.budget)
  max_depth            2 (session.max_depth)
  tools                read_file, run_tests (set in code)
  nested_spawn         no (session.nested_spawn)
  max_concurrency      16 (session.max_concurrency)
  max_agents           100 (session.max_agents)
  session_budget       $20, $0.00 of $20.00 is used (session.session_budget)
  max_output_tokens    4,096 (session.max_output_tokens)
  call_timeout_s       300 (session.call_timeout_s)
  recall               5 (session.recall)
  sub_agent_memory     fresh (session.sub_agent_memory)
  on_budget_warning    stop (session.on_budget_warning)
  pause_timeout_s      120 (session.pause_timeout_s)
  max_turns            5 (set in code)
  max_time_s           900 (session.max_time_s)
  stop_after_failures  10 (session.stop_after_failures)
  code_memory          4GB (session.code_memory)
  code_time_s          120 (session.code_time_s)
  code_workers         2 (session.code_workers)
Profiles (tools.spawn.profiles):
  reviewer     Finds mistakes in code, and names the line of each.
    tools      read_file, run_tests
    pool       careful
    bootstrap  STYLE.md
    prompt     prompts/reviewer.md, then system_prompt
  writer       Writes prose for people who do not program.
    tools      all of its parent's (the default)
    pool       its parent's model (the default)
    bootstrap  the default ones
    prompt     none
MCP servers (tools.mcp):
  files   npx -y @modelcontextprotocol/server-filesystem .; not trusted: no run has it before \
`%agentnb trust`
  search  http://localhost:8000/mcp
Engines (engines):
  cores  processes of this machine
  lab    tcp://scheduler.example:8786; not trusted: no run has it before `%agentnb trust`
Pools (llm.pools):
  quick    anthropic/claude-haiku-4-5, then demo
  careful  anthropic/claude-opus-5, then anthropic/claude-sonnet-5-5
Dollars for a million tokens (prices):
  anthropic/claude-opus-5  input 5, output 25, cache_read 0.50, cache_write 6.25
OpenAI-compatible server (llm.providers.openai):
  base_url     http://localhost:11434/v1
  api_key_env  LOCAL_SERVER_KEY (the variable; its value is not shown)"""
    )


def test_without_a_file_the_defaults_are_shown(project: Path) -> None:
    assert settings_text(Session("demo")) == (
        """\
No agentnb.yaml is used: settings that are not set in code have their defaults.
  model         demo (set in code)
  default pool  none (the default)
  delegation    by spawn block (the default)
  bootstrap     none: there is no AGENTS.md or ENVIRONMENT.md (the default)
  store         none: runs are in memory only (AGENTNB_STORE)
  mode          live (the default)
Settings of a run (session):
  budget               500,000 (the default)
  max_depth            3 (the default)
  nested_spawn         no (the default)
  max_concurrency      32 (the default)
  max_agents           1,000 (the default)
  session_budget       no limit (the default)
  max_output_tokens    8,192 (the default)
  call_timeout_s       600 (the default)
  recall               0 (the default)
  sub_agent_memory     inherit (the default)
  on_budget_warning    ask (the default)
  pause_timeout_s      600 (the default)
  max_turns            50 (the default)
  max_time_s           no limit (the default)
  stop_after_failures  no limit (the default)
  code_memory          2GB (the default)
  code_time_s          60 (the default)
  code_workers         4 (the default)"""
    )


def test_settings_that_nobody_reads_end_with_their_count(project: Path) -> None:
    names = [f"n{n}" for n in range(1_300)]
    profiles = "".join(f"      {name}: {{description: d}}\n" for name in names)
    pools = "".join(f"    {name}: [demo]\n" for name in names)
    (project / "agentnb.yaml").write_text(
        f"tools:\n  spawn:\n    profiles:\n{profiles}llm:\n  pools:\n{pools}"
    )

    lines = settings_text(Session("demo", config=project / "agentnb.yaml")).splitlines()

    assert len(lines) < 400
    assert [line.strip() for line in lines].count("… and 1,250 more") == 2
    assert lines[-2].split() == ["n49", "demo"]


def test_what_is_shown_is_the_same_wherever_the_project_lies(example: Path) -> None:
    shown = settings_text(Session(config=example / "agentnb.yaml"))
    moved = example.rename(example.parent / "moved")

    assert settings_text(Session(config=moved)) == shown
    assert str(example.parent) not in shown


@pytest.mark.usefixtures("example")
def test_key_that_the_named_variable_holds_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_SERVER_KEY", "geheim")

    assert "geheim" not in settings_text(Session())


def test_what_is_wrong_with_profiles_is_shown_with_its_lines(project: Path) -> None:
    (project / "agentnb.yaml").write_text(
        "tools:\n  spawn:\n    profiles:\n      typo:\n        sytem_prompt: a\n"
        "        pool: b\n      deaf: {tools: [listen]}\n      plain: {system_prompt: Be plain.}\n"
    )

    shown = settings_text(Session("demo"))

    _, _, below = shown.partition("Profiles (tools.spawn.profiles):\n")
    assert below.splitlines() == [
        "  deaf         no description",
        "    tools      listen",
        "               line 7, `tools.spawn.profiles.deaf.tools[0]`: This run has no tool "
        "'listen' (known: 'workspace', 'memory', 'tasks'). Give it to the session, "
        "`Session(tools=[...])`, or to the cell, `%%spawn --tools`, or remove it here.",
        "    pool       its parent's model (the default)",
        "    bootstrap  the default ones",
        "    prompt     none",
        "  plain        Be plain. (the first line of its prompt)",
        "    tools      all of its parent's (the default)",
        "    pool       its parent's model (the default)",
        "    bootstrap  the default ones",
        "    prompt     system_prompt",
        "  typo         cannot be used:",
        "               line 5, `tools.spawn.profiles.typo.sytem_prompt`: There is no such key "
        "here. Did you mean `system_prompt`?",
        "               line 6, `tools.spawn.profiles.typo.pool`: There is no pool 'b' "
        "(known: none). Add it under `llm.pools`.",
    ]


def test_what_the_next_run_has_is_shown_and_what_cannot_be_read_again_says_how(
    example: Path,
) -> None:
    session, kept = Session(), Session(config=load_config("agentnb.yaml"))
    (example / "agentnb.yaml").write_text("llm: {default_pool: own, pools: {own: [demo]}}")
    (example / "AGENTS.md").write_bytes(b"\xff")

    shown = settings_text(session)

    assert shown.startswith("Settings of agentnb.yaml:\n  model         demo (llm.default_pool)\n")
    assert settings_text(kept).startswith(
        "Settings of agentnb.yaml, as load_config() read it (it has changed since; to reread it: "
        "agentnb.configure(config='agentnb.yaml')):\n"
        "  model         anthropic/claude-haiku-4-5, then demo (llm.default_pool)\n"
    )
    assert "bootstrap     AGENTS.md: The file 'AGENTS.md' is not UTF-8 (byte 0)." in shown
