"""Workers killed in the middle of a run: six points of `python -m tests.soak cluster`."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentnb.providers import registry
from tests.soak import cluster


def test_worker_that_is_killed_costs_no_answer_and_nothing_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {**registry._registered})

    told = list(cluster.points(tmp_path, 6, seed=11))

    assert [faults for _, faults in told] == [[]] * 6
    assert any("a worker" in done for done, _ in told)
