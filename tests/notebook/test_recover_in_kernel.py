"""Kernels that are killed at any moment of a run with real calls: the next one goes on with it."""

from __future__ import annotations

from pathlib import Path

from tests.soak import recover


def test_killed_kernels_run_goes_on_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    told = list(recover.points(tmp_path, 3, seed=5))

    assert [faults for _, faults in told] == [[]] * 3
    assert sum("calls kept" in done for done, _ in told) >= 2, told
    assert any("twice" in done for done, _ in told), told
