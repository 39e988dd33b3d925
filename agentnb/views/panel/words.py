"""Numbers and times in the words of the panel."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """`1 agent`, `2 agents`, `1,234 agents`."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def clock(seconds: float) -> str:
    """A time of a run as `0:07`, `12:30` or `1:02:03`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
