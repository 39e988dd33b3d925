"""A map whose kernel is killed: the same cell again pays for open rows only."""

from __future__ import annotations

from pathlib import Path

from tests.soak import map as killed_maps


def test_no_finished_row_is_paid_twice_whenever_its_kernel_is_killed(tmp_path: Path) -> None:
    for _, faults in killed_maps.points(tmp_path, 6, seed=3):
        assert not faults


def test_a_row_that_is_asked_again_is_a_fault() -> None:
    """The harness itself."""
    row = killed_maps.PROMPT.replace("{{text}}", "row 0")
    ledger = f"begins\nasked {row}\nasked {row}\ndone 1 {row}\nbegins\nasked {row}\nasked {row}\n"
    assert any("finished" in fault for fault in killed_maps.faults_in(ledger, ["completed"]))
