"""Spans of the test's own runs, and of no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import agentnb
from tests.telemetry.spans import Seen


@pytest.fixture
def seen() -> Iterator[Seen]:
    """`instrument` is on."""
    found = Seen()
    found.end = agentnb.instrument(found.provider)
    yield found
    found.end()
    found.provider.shutdown()
