"""`inspect` and `python` by name: in lists of tools, in profiles, and in what needs approval.

A run has them by `give` and `code`, so a name alone gives neither. No code runs here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentnb import ConfigError, Question, Session
from agentnb.testing import by_agent, requests_of, tool_calls

SETTINGS = """
tools:
  spawn:
    profiles:
      analyst: {tools: [inspect, python]}
      reader: {tools: [inspect]}
      heir: {description: Has what its parent has.}
"""
DATA: dict[str, Any] = {"give": {"numbers": [1, 2]}, "code": "worker"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agentnb.yaml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def names(provider: Any, agent: str = "root") -> list[str]:
    """The tools that an agent is offered, without those that start sub-agents."""
    offered = [spec.name for spec in requests_of(provider, agent)[0].tools]
    return [name for name in offered if not name.startswith("spawn")]


def of_root(project: Path, **options: Any) -> list[str]:
    provider = by_agent({"root": ["Done."]})
    with Session(provider=provider, config=project, store=None) as session:
        session.run_sync("go", **options)
    return names(provider)


@pytest.mark.parametrize("code", ["worker", "kernel"])
def test_root_whose_profile_names_them_has_each_once(project: Path, code: str) -> None:
    found = of_root(project, profile="analyst", **(DATA | {"code": code}))

    assert found == ["inspect", "python"]


def test_list_of_tools_may_name_them(project: Path) -> None:
    assert of_root(project, tools=["python", "memory"], **DATA) == [
        "python",
        "remember",
        "recall",
        "inspect",
    ]


@pytest.mark.parametrize("options", [{"profile": "reader"}, {"tools": []}])
def test_root_has_what_the_run_was_started_with_though_its_list_leaves_it_out(
    project: Path, options: dict[str, Any]
) -> None:
    assert of_root(project, **options, **DATA) == ["inspect", "python"]


@pytest.mark.parametrize(
    ("profile", "options", "key", "name", "fix"),
    [
        ("analyst", {"give": DATA["give"]}, "analyst.tools[1]", "python", "`code='worker'`"),
        ("analyst", {"code": "worker"}, "analyst.tools[0]", "inspect", "`give={...}`"),
    ],
)
def test_profile_that_names_what_the_run_lacks_is_an_error_with_its_fix(
    project: Path, profile: str, options: dict[str, Any], key: str, name: str, fix: str
) -> None:
    session = Session(provider=by_agent({}), config=project, store=None)

    with pytest.raises(ConfigError) as raised:
        session.spawn("go", profile=profile, **options)

    (mistake,) = raised.value.mistakes
    assert mistake.key == f"tools.spawn.profiles.{key}"
    assert f"'{name}', which comes with" in mistake.what
    assert fix in mistake.what


@pytest.mark.parametrize("name", ["inspect", "python"])
def test_name_alone_gives_a_session_neither(name: str) -> None:
    with pytest.raises(ValueError, match=f"`tools`: '{name}' comes with "):
        Session(tools=[name])


@pytest.mark.parametrize(
    ("profile", "offered"),
    [("analyst", ["inspect", "python"]), ("reader", ["inspect"]), ("heir", ["inspect", "python"])],
)
def test_sub_agent_has_what_its_profile_names_and_no_more(
    project: Path, profile: str, offered: list[str]
) -> None:
    task = "Look at {{numbers}}."
    start = tool_calls(("spawn", {"task": task, "profile": profile}))
    provider = by_agent({"root": [start, *["Done."] * 2], task: ["Looked."]})
    with Session(provider=provider, config=project, store=None, delegation="tools") as session:
        session.run_sync("go", **DATA)

    assert names(provider, task) == offered


def test_profile_that_names_python_is_not_offered_where_no_code_runs(project: Path) -> None:
    start = tool_calls(("spawn", {"task": "Count.", "profile": "analyst"}))
    provider = by_agent({"root": [start, "Alone."]})
    with Session(provider=provider, config=project, store=None, delegation="tools") as session:
        run = session.spawn("go", give=DATA["give"])
        run.result()

    (call,) = run.agent("root").tool_calls
    assert call.is_error
    assert "`code='worker'`" in str(call.result)
    assert '<profile name="analyst"' not in requests_of(provider, "root")[0].system


@pytest.fixture
def careful(project: Path) -> Path:
    """The project; in it, both need approval in every run."""
    approval = "tools:\n  approval: [python, inspect]\n  spawn:\n"
    settings = SETTINGS.replace("tools:\n  spawn:\n", approval, 1)
    (project / "agentnb.yaml").write_text(settings, encoding="utf-8")
    return project


def test_approval_may_name_them_in_runs_that_have_neither(careful: Path) -> None:
    assert of_root(careful) == []


def test_approval_by_name_asks_before_code_runs_in_a_worker(careful: Path) -> None:
    asked: list[Any] = []

    def deny(question: Question) -> str:
        asked.append(question.value)
        return "deny"

    provider = by_agent({"root": [tool_calls(("python", {"code": "1"})), "Done."]})
    with Session(provider=provider, config=careful, store=None, approve=deny) as session:
        run = session.spawn("go", code="worker")
        run.result()

    assert asked == [{"tool": "python", "arguments": {"code": "1"}}]
    assert "was not run" in str(run.agent("root").tool_calls[0].result)
