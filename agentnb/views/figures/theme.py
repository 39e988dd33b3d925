"""Colours and sizes of the figures: one theme for light pages, one for dark ones.

All values are explicit, so that the user's matplotlib style neither breaks a figure nor is changed
by it. Colour-blind people can tell the status colours apart (a test computes that). Colours have a
contrast of at least 3:1 to the background, text of at least 4.5:1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentnb.core.types import AgentStatus

WIDTH = 920
"""Largest width of a figure, in pixels: what JupyterLab has beside its panels."""
MARGIN = 16
SMALL, BODY, TITLE = 11.0, 12.0, 14.0
"""Font sizes in pixels."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as `#rrggbb`."""

    background: str
    text: str
    muted: str
    """Secondary text."""
    line: str
    """Connecting lines and borders."""
    grid: str
    card: str
    card_edge: str
    status: Mapping[AgentStatus, str]
    call: str
    tool: str
    waiting: str
    used: str
    """The area below the line of used tokens."""
    pause: str
    trouble: str
    """An attempt that failed, a limit."""


LIGHT = Theme(
    background="#ffffff",
    text="#1f2328",
    muted="#59636e",
    line="#8c959f",
    grid="#e4e8ec",
    card="#eff2f5",
    card_edge="#d1d9e0",
    status={
        AgentStatus.PENDING: "#7a828a",
        AgentStatus.RUNNING: "#004be5",
        AgentStatus.WAITING: "#b87a00",
        AgentStatus.COMPLETED: "#0c9e58",
        AgentStatus.FAILED: "#963b06",
        AgentStatus.CANCELLED: "#773f83",
        AgentStatus.EXHAUSTED: "#4a1e00",
        AgentStatus.INTERRUPTED: "#24292f",
        AgentStatus.SKIPPED: "#7a828a",
    },
    call="#1a5ca6",
    tool="#b37700",
    waiting="#a684c9",
    used="#dbe9f7",
    pause="#f3e3c2",
    trouble="#c43d00",
)

DARK = Theme(
    background="#111111",
    text="#e6edf3",
    muted="#9da7b3",
    line="#6e7681",
    grid="#2a2f36",
    card="#1c2128",
    card_edge="#3d444d",
    status={
        AgentStatus.PENDING: "#8b949e",
        AgentStatus.RUNNING: "#4871e5",
        AgentStatus.WAITING: "#fcaf00",
        AgentStatus.COMPLETED: "#17e8a2",
        AgentStatus.FAILED: "#e4602e",
        AgentStatus.CANCELLED: "#d188e2",
        AgentStatus.EXHAUSTED: "#f4d975",
        AgentStatus.INTERRUPTED: "#f0f3f6",
        AgentStatus.SKIPPED: "#8b949e",
    },
    call="#5fb0f5",
    tool="#e8b000",
    waiting="#7a5ba6",
    used="#17324d",
    pause="#40341a",
    trouble="#f4713a",
)


def theme(dark: bool) -> Theme:
    """The theme for a dark or a light page."""
    return DARK if dark else LIGHT
