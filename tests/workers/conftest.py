"""On a busy machine a worker's guard may take long to say what was printed."""

from __future__ import annotations

import pytest

from tests.workers.pools import LONG_S


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentnb.workers.worker._COLLECT_PATIENCE_S", LONG_S)
