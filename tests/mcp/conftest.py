"""On a busy machine a server may take long to start and to end: these tests are not about that."""

from __future__ import annotations

import pytest

from agentnb.tools.mcp import owner, pool, transport
from tests.support import DEADLINE_S


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_S", DEADLINE_S)
    monkeypatch.setattr(pool, "LIST_S", 2 * DEADLINE_S)
    monkeypatch.setattr(owner, "CLOSE_PATIENCE_S", DEADLINE_S)
    monkeypatch.setattr(transport, "_CLOSE_S", DEADLINE_S)
