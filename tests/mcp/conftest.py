"""On a busy machine a server may take long to start: that is not what these tests are about."""

from __future__ import annotations

import pytest

from agentnb.tools.mcp import pool, transport
from tests.support import DEADLINE_S


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_S", DEADLINE_S)
    monkeypatch.setattr(pool, "LIST_S", 2 * DEADLINE_S)
