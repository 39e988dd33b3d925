"""What of a tree's notes the panel leaves to those who open the details of an agent."""

from __future__ import annotations

from typing import Any

import pytest

from agentnb.core.events import AgentCancelled, AgentExhausted, AgentFailed, SpawnIgnored
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentStatus
from agentnb.views.panel.history import RunNotices, unreported_notes
from tests.views.panel.manual_run import ManualRun, id_of


def failed(path: str, error: str) -> AgentFailed:
    return AgentFailed(agent_id=id_of(path), error=error, will_retry=False, attempt=1)


def cancelled(path: str) -> AgentCancelled:
    return AgentCancelled(agent_id=id_of(path), reason="cancelled by hand")


def skipped(path: str, task: str) -> SpawnIgnored:
    return SpawnIgnored(agent_id=id_of(path), reason="too many agents", tasks=(task,))


CASES: dict[str, tuple[list[Any], AgentStatus, str, dict[str, list[str]]]] = {
    "a sub-agent failed": (
        [failed("1.1", "no answer")],
        AgentStatus.COMPLETED,
        "",
        {"1.1": ["error: no answer"]},
    ),
    "the run failed": ([failed("root", "no key")], AgentStatus.FAILED, "no key", {}),
    "the run was cancelled": (
        [cancelled("1.1"), cancelled("1"), cancelled("root")],
        AgentStatus.CANCELLED,
        "cancelled by hand",
        {},
    ),
    "a branch was cancelled that had asked for too much": (
        [skipped("1", "the cover"), cancelled("1.1"), cancelled("1")],
        AgentStatus.COMPLETED,
        "cancelled by hand",
        {"1": ["skipped: the cover (too many agents)"]},
    ),
    "the root asked for too much and failed": (
        [skipped("root", "the cover"), failed("root", "no key")],
        AgentStatus.FAILED,
        "no key",
        {"root": ["skipped: the cover (too many agents)"]},
    ),
    "a sub-agent reached a limit": (
        [AgentExhausted(agent_id=id_of("1"), reason="50 turns")],
        AgentStatus.COMPLETED,
        "",
        {"1": ["50 turns"]},
    ),
    "all is well": ([], AgentStatus.COMPLETED, "", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_note_is_in_the_notices_or_unreported(case: str) -> None:
    events, status, in_lines, unreported = CASES[case]
    run = (
        ManualRun().began().spawned("1").spawned("1.1").tell(*events).ended(status, error=in_lines)
    )
    fold, told = TreeFold(run.bus.entries), RunNotices()
    for entry in run.bus.entries:
        told.learn(entry.event)

    assert unreported_notes(fold) == unreported
    assert in_lines in "\n".join(told.lines(fold))
    assert set(unreported) <= set(fold.notes())
