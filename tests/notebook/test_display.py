from __future__ import annotations

import pytest

from agentnb.core.errors import NotebookError
from agentnb.core.types import AgentNode, AgentStatus, OrchestratorResult, SubAgentResult
from agentnb.notebook.display import has_something_to_show, show_result, wanted_display
from agentnb.providers.scripted import ScriptedProvider
from agentnb.session import Session


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Collects the data of every output."""
    collected: list[dict[str, str]] = []

    def display(data: dict[str, str], *, raw: bool) -> None:
        assert raw
        collected.append(data)

    monkeypatch.setattr("agentnb.notebook.display.display", display)
    return collected


def show(*, quiet: bool = False) -> None:
    """Show a run that has ended."""
    run = Session(provider=ScriptedProvider(["**Yes.**"])).spawn("Is it so?")
    show_result(run.result(60), notes=run.notes, quiet=quiet)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "all"),
        ("", "all"),
        (" Text ", "text"),
        ("none", "none"),
        ("STATIC", "static"),
        ("widget", "widget"),
    ],
)
def test_display_variable_says_what_is_wanted(
    monkeypatch: pytest.MonkeyPatch, value: str | None, wanted: str
) -> None:
    if value is not None:
        monkeypatch.setenv("AGENTNB_DISPLAY", value)

    assert wanted_display() == wanted


def test_unknown_display_is_refused_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTNB_DISPLAY", "loud")

    with pytest.raises(
        NotebookError, match=r"AGENTNB_DISPLAY is 'loud'.* widget, static, text, none"
    ):
        wanted_display()


def test_result_is_one_output_rich_and_plain(displayed: list[dict[str, str]]) -> None:
    show()

    (data,) = displayed
    assert set(data) == {"text/plain", "text/html"}
    assert data["text/plain"] == "**Yes.**\n\nroot ✓ completed · Is it so?"
    assert "<strong>Yes.</strong>" in data["text/html"]


def test_quiet_result_is_the_answer_alone(displayed: list[dict[str, str]]) -> None:
    show(quiet=True)

    (data,) = displayed
    assert data["text/plain"] == "**Yes.**"
    assert "completed" not in data["text/html"]


@pytest.mark.parametrize(("wanted", "kinds"), [("text", [["text/plain"]]), ("none", [])])
def test_display_variable_leaves_parts_out(
    monkeypatch: pytest.MonkeyPatch,
    displayed: list[dict[str, str]],
    wanted: str,
    kinds: list[list[str]],
) -> None:
    monkeypatch.setenv("AGENTNB_DISPLAY", wanted)

    show()

    assert [list(data) for data in displayed] == kinds


def test_run_that_reached_nothing_has_nothing_to_show() -> None:
    root = AgentNode("nb_20261101_k3x9aa", None, "root", "Plan", 0, AgentStatus.FAILED)
    nothing = OrchestratorResult(AgentStatus.FAILED, "It failed.", root)
    child = SubAgentResult(None, "Part", AgentStatus.SKIPPED)
    with_child = OrchestratorResult(
        AgentStatus.FAILED, "It failed.", root, sub_agent_results=(child,)
    )
    with_tokens = OrchestratorResult(AgentStatus.FAILED, "It failed.", root, total_tokens_used=1)

    assert not has_something_to_show(nothing)
    assert has_something_to_show(with_child)
    assert has_something_to_show(with_tokens)
