from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agentnb.core.errors import ToolError
from agentnb.core.protocols import has_effects, on_replay
from agentnb.tools.python import PythonTool
from agentnb.workers.ran import Ran
from agentnb.workers.worker import Limits
from tests.tools.calling import Context, called


@dataclass
class Workers:
    """Answers without a process: those are in `tests/workers`."""

    answer: Ran = field(default_factory=lambda: Ran("21", False))
    limits: Limits = field(default_factory=Limits)
    calls: list[tuple[str, str]] = field(default_factory=list)

    async def run(
        self,
        agent_id: str,
        code: str,
        *,
        report: Callable[[str], object],
        on_wait: Callable[[str], object],
    ) -> Ran:
        self.calls.append((agent_id, code))
        report("a worker starts")
        on_wait("others run")
        return self.answer


def test_code_runs_in_the_worker_of_the_calling_agent_and_its_text_is_the_result() -> None:
    workers, context = Workers(), Context(agent_id="agent 7")

    result = called(PythonTool(workers), {"code": "20 + 1"}, context)

    assert result == "21"
    assert workers.calls == [("agent 7", "20 + 1")]
    assert context.reports == ["a worker starts", "waits: others run"]


def test_failed_code_is_an_error_result_with_the_same_text() -> None:
    tool = PythonTool(Workers(Ran("Line 1: 1/0\nZeroDivisionError", True)))

    with pytest.raises(ToolError) as error:
        called(tool, {"code": "1/0"})

    assert error.value.for_model == "Line 1: 1/0\nZeroDivisionError"


@pytest.mark.parametrize(
    ("input", "said"),
    [
        ({}, "`code` is missing"),
        ({"code": " "}, "blank"),
        ({"code": 3}, "as text"),
        ({"code": "x", "timeout": 5}, "no parameter 'timeout'"),
        ({"code": "x" * 100_001}, "has 100,001 characters"),
    ],
)
def test_wrong_arguments_are_said_before_anything_runs(input: dict[str, object], said: str) -> None:
    workers = Workers()

    with pytest.raises(ToolError, match=said):
        called(PythonTool(workers), input)

    assert workers.calls == []


def test_description_says_the_limits() -> None:
    workers = Workers(limits=Limits(memory=500_000_000, time_s=5))

    assert "5 s and 0.5 GB" in PythonTool(workers).spec.description


def test_call_is_not_repeated_and_a_replay_runs_nothing() -> None:
    tool = PythonTool(Workers())

    assert has_effects(tool)
    assert on_replay(tool) == "recorded"
