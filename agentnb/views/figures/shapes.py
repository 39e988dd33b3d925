"""One shape for each status: the glyphs of the outline, drawn bold enough for a small mark.

A shape is a list of closed outlines in a square from -1 to 1, y upwards; where outlines overlap,
the direction in which they run decides what is hole and what is filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, pi, sin

from agentnb.core.types import AgentStatus

Outline = list[tuple[float, float]]


def _box(left: float, bottom: float, right: float, top: float) -> Outline:
    return [(left, bottom), (right, bottom), (right, top), (left, top)]


def _arc(radius: float, begin: float, end: float, steps: int = 24) -> Outline:
    """Points on a circle, from one angle to another, in turns."""
    angles = (2 * pi * (begin + (end - begin) * step / steps) for step in range(steps + 1))
    return [(radius * cos(angle), radius * sin(angle)) for angle in angles]


_RING = [_arc(0.95, 0, 1), _arc(0.62, 1, 0)]

SHAPES: Mapping[AgentStatus, list[Outline]] = {
    AgentStatus.PENDING: _RING,
    AgentStatus.RUNNING: [[(-0.75, -0.95), (1.0, 0.0), (-0.75, 0.95)]],
    AgentStatus.WAITING: [_box(-0.7, -0.9, -0.2, 0.9), _box(0.2, -0.9, 0.7, 0.9)],
    AgentStatus.COMPLETED: [
        [(-1.0, 0.0), (-0.65, 0.38), (-0.25, -0.1), (0.68, 0.9), (1.0, 0.58), (-0.25, -0.78)]
    ],
    AgentStatus.FAILED: [
        [
            *((-0.9, 0.55), (-0.55, 0.9), (0.0, 0.35), (0.55, 0.9), (0.9, 0.55), (0.35, 0.0)),
            *((0.9, -0.55), (0.55, -0.9), (0.0, -0.35), (-0.55, -0.9), (-0.9, -0.55), (-0.35, 0.0)),
        ]
    ],
    AgentStatus.CANCELLED: [_box(-0.8, -0.8, 0.8, 0.8)],
    AgentStatus.EXHAUSTED: [*_RING, [(0.0, 0.0), *_arc(0.7, 0, 0.25)]],
    AgentStatus.INTERRUPTED: [_box(-0.25, 0.2, 0.25, 1.0), _box(-0.25, -1.0, 0.25, -0.2)],
    AgentStatus.SKIPPED: [_box(-0.9, -0.22, 0.9, 0.22)],
}
