from __future__ import annotations

import pytest

from agentnb.core.types import AgentNode, AgentStatus, OrchestratorResult, SubAgentResult
from agentnb.errors import NotebookError
from agentnb.notebook.display import has_something_to_show, show_result
from agentnb.providers.scripted import ScriptedProvider
from agentnb.session import Session
from agentnb.views.front_end import wanted_display


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
    """Show a finished run."""
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


def test_outline_of_20_000_tasks_in_one_reply_ends_with_their_count(
    displayed: list[dict[str, str]],
) -> None:
    tasks = "".join(f'<agent task="Look at part {n} of it"/>' for n in range(20_000))
    block = f"<spawn_agents>{tasks}</spawn_agents>"
    provider = ScriptedProvider({"part": "seen", "Go": block, "results": "Done."})
    run = Session(
        provider=provider, budget=100_000_000, max_output_tokens=2_000_000, max_agents=5
    ).spawn("Go")
    result = run.result(60)

    show_result(result, notes=run.notes)
    show_result(result, notes=run.notes, unreported=run.unreported_notes)

    alone, below_a_live_view = displayed
    for data in displayed:
        lines = data["text/plain"].splitlines()
        assert len(lines) < 60
        assert lines[-6].endswith("19,975 further notes")
        assert lines[-1].startswith("└─ 5 ✓ completed")
        assert len(data["text/html"]) < 20_000
    # The live view tells neither the notes nor how many they are.
    assert "</span>  19,975 further notes\n" in below_a_live_view["text/html"]
    assert "│  19,975 further notes\n" in alone["text/html"]
    assert len(run.to_records()) == 20_001


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
