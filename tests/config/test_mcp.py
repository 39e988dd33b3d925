"""MCP servers in a settings file: what is read, what is refused, and what needs trust."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentnb import ScriptedProvider, Session
from agentnb.__main__ import main
from agentnb.config import McpEntry, load_config
from agentnb.errors import ConfigError, UntrustedSettings
from agentnb.notebook.settings import settings_text
from agentnb.trust import trust
from tests.mcp.scene import SERVER, pids_in, results, server, use

THE_SERVER = f"""
tools:
  mcp:
    t:
      command: {sys.executable}
      args: [-S, {SERVER}, log=log]
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration folder in which nothing is trusted yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))


def written(folder: Path, text: str = THE_SERVER) -> Path:
    file = folder / "agentnb.yaml"
    file.write_text(text)
    return file


def test_server_is_read_with_all_that_it_can_have(tmp_path: Path) -> None:
    config = load_config(
        written(
            tmp_path,
            """
tools:
  mcp:
    files:
      command: npx
      args: [-y, "@org/server", "8080"]
      env: {LEVEL: debug, TOKEN: "${GITHUB_TOKEN}"}
      approval: true
      timeout_s: 2.5
    git:
      command: git-server
      env: [GITHUB_TOKEN]
    web:
      url: http://localhost:8000/mcp?x=1
      headers: {Authorization: "Bearer ${WEB_KEY}"}
      approval: false
""",
        )
    )

    assert dict(config.mcp) == {
        "files": McpEntry(
            "files",
            "npx",
            ("-y", "@org/server", "8080"),
            env=(("LEVEL", "debug"), ("TOKEN", "${GITHUB_TOKEN}")),
            approval=True,
            timeout_s=2.5,
        ),
        "git": McpEntry("git", "git-server", env=(("GITHUB_TOKEN", "${GITHUB_TOKEN}"),)),
        "web": McpEntry(
            "web",
            url="http://localhost:8000/mcp?x=1",
            headers=(("Authorization", "Bearer ${WEB_KEY}"),),
            approval=False,
        ),
    }


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("t: {}", "either a `command` or a `url`"),
        ("t: {command: a, url: 'http://localhost'}", "either a `command` or a `url`"),
        ("t: {url: 'ftp://localhost'}", "not the address of a server"),
        ("t: {url: 'http://me:pw@localhost/'}", "not the address of a server"),
        ("t: {url: 'http://localhost/', args: [a]}", "belong to a `command`"),
        ("t: {command: a, headers: {X: b}}", "belong to a `url`"),
        ("t: {url: 'http://localhost/', headers: {Authorization: Bearer abc}}", "Never put a key"),
        ("t: {command: a, timeout_s: 0}", "number of seconds above 0"),
        ("t: {command: a, args: [8080]}", "in quotes: `'8080'`"),
        ("t: {command: a, cwd: b}", "cwd"),
        ("a__b: {command: a}", "cannot be the name of an MCP server"),
    ],
)
def test_mistake_is_told_with_its_fix(tmp_path: Path, entry: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"tools\.mcp") as told:
        load_config(written(tmp_path, f"tools:\n  mcp:\n    {entry}\n"))

    assert says.replace("'8080'", "") in str(told.value).replace("'8080'", "").replace('"8080"', "")
    assert "abc" not in str(told.value)


def test_server_of_a_trusted_file_is_one_of_the_tools_of_every_run(tmp_path: Path) -> None:
    trust(load_config(written(tmp_path)))
    script: list[Any] = [use("t__echo"), "one", "two", use("t__echo"), "three"]
    with Session(provider=ScriptedProvider(script), config=tmp_path, store=None) as session:
        assert [tool.spec.name for tool in session.tools] == ["t"]
        assert results(session.spawn("One.")) == {"t__echo": "hi"}
        assert results(session.spawn("Two.", tools=[])) == {}
        assert results(session.spawn("Three.", tools=["t"])) == {"t__echo": "hi"}

    assert len(pids_in(tmp_path / "log")) == 1, "it is started in the file's folder"


def test_server_that_code_gives_goes_before_one_of_the_file_of_that_name(tmp_path: Path) -> None:
    written(tmp_path)
    settings = {"provider": ScriptedProvider([use("t__echo"), "one"]), "store": None}
    with Session(tools=[server()], config=tmp_path, **settings) as session:  # type: ignore[arg-type]
        assert results(session.spawn("One.")) == {"t__echo": "hi"}  # no trust was needed

    assert pids_in(tmp_path / "log") == []


def test_command_of_a_file_is_not_started_before_it_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    with Session(provider=ScriptedProvider(["yes"]), config=file, store=None) as session:
        with pytest.raises(UntrustedSettings, match=r"would be started \(`tools\.mcp\.t`\)") as no:
            session.spawn("Go.")
        assert "nothing was started" in str(no.value)
        assert session.run_sync("Without it.", tools=[]).output == "yes"
        assert "no run has it before `%agentnb trust`" in settings_text(session)
    assert not (tmp_path / "log").exists()

    assert main(["trust", str(file)]) == 0
    assert "would be started" in capsys.readouterr().out
    with Session(provider=ScriptedProvider(["yes"]), config=file, store=None) as session:
        assert session.run_sync("Go.").output == "yes"
        assert "no run has it" not in settings_text(session)


def test_server_on_another_machine_needs_trust_and_one_on_this_does_not(tmp_path: Path) -> None:
    def refusal(url: str) -> str:
        file = written(tmp_path, f"tools: {{mcp: {{web: {{url: '{url}'}}}}}}\n")
        with Session(provider=ScriptedProvider([]), config=file, store=None) as session:
            try:
                session.spawn("Go.").cancel()
            except UntrustedSettings as error:
                return str(error)
        return ""

    assert "would go to http://mcp.example.invalid/x" in refusal("http://mcp.example.invalid/x")
    assert refusal("http://127.0.0.1:1/mcp") == ""


def test_variable_that_is_not_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTNB_TRUST", "1")
    file = written(tmp_path, f"{THE_SERVER}      env: [OF_THE_SERVER]\n")
    with Session(provider=ScriptedProvider(["never"]), config=file, store=None) as session:
        with pytest.raises(Exception, match="environment variable OF_THE_SERVER is not set"):
            session.run_sync("Go.")

    monkeypatch.setenv("OF_THE_SERVER", "the-variable's-value")
    script: list[Any] = [use("t__where"), "done"]
    with Session(provider=ScriptedProvider(script), config=file, store=None) as session:
        run = session.spawn("Go.")
        assert "the-variable's-value" in results(run)["t__where"]
        run.to_json(tmp_path / "run.json")
    assert "the-variable" not in (tmp_path / "run.json").read_text(encoding="utf-8")
