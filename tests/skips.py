"""Reasons to skip a test that several files share. Not in `support`: kernels need no pytest."""

from __future__ import annotations

import sys

import pytest

needs_late_threads = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="there Python starts no thread once the main thread has ended: its gh-113964",
)
