"""Runs with a server that end at a random moment: six points of `python -m tests.soak mcp`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak import mcp
from tests.support import DEADLINE_S

SEED = 7


@pytest.mark.parametrize("seed", range(6))
def test_end_at_a_random_moment_leaves_no_process_and_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # One order after the other, so that six points have each; chance has the rest.
    monkeypatch.setattr(mcp, "ORDERS", (mcp.ORDERS[seed % len(mcp.ORDERS)],))
    by_chance = random.Random(SEED + seed).randrange(10**6)
    ((done, faults),) = mcp.points(tmp_path, 1, by_chance, patience_s=DEADLINE_S)

    assert faults == [], done
