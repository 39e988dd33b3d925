"""Two processes answer messages on the same threads. See `tests/soak/queue.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.queue import one_round


@pytest.mark.parametrize("is_killed", [False, True])
def test_messages_of_two_processes_are_answered_once_each_in_order(
    tmp_path: Path, is_killed: bool
) -> None:
    done, faults = one_round(
        tmp_path / "x.db", messages=200, seed=16, is_killed=is_killed, spread=5
    )

    assert faults == []
    assert done.startswith("200 messages on 5 threads")
