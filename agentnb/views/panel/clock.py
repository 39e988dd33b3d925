"""A run's time in words."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """A time of a run as `0:07`, `12:30` or `1:02:03`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
