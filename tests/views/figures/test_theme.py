"""The colours can be told apart and read, computed from their values."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from agentnb.core.types import AgentStatus
from agentnb.views.figures.shapes import SHAPES
from agentnb.views.figures.theme import DARK, LIGHT, Theme, theme
from agentnb.views.outline import GLYPHS

THEMES = pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])

# For linear RGB, full severity. Machado, Oliveira and Fernandes, "A Physiologically-based Model
# for Simulation of Color Vision Deficiency", IEEE Trans. Vis. Comput. Graph. 15(6), 2009.
VISIONS = {
    "all cones": np.eye(3),
    "no red cones": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green cones": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue cones": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = _TO_XYZ.sum(axis=1)


def linear(colour: str) -> NDArray[np.float64]:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    darker, lighter = sorted(float(linear(colour) @ _TO_XYZ[1]) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def lab(colour: str, vision: NDArray[np.float64]) -> NDArray[np.float64]:
    seen = np.clip(vision @ linear(colour), 0, 1)
    x, y, z = (float(v) for v in _TO_XYZ @ seen / _WHITE)
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def looks(colours: Theme) -> dict[str, str]:
    """One colour for each status; two that are grey are told apart by their shapes."""
    assert colours.status[AgentStatus.PENDING] == colours.status[AgentStatus.SKIPPED]
    return {str(s): c for s, c in colours.status.items() if s is not AgentStatus.SKIPPED}


@THEMES
@pytest.mark.parametrize("vision", VISIONS.values(), ids=list(VISIONS))
def test_statuses_can_be_distinguished_by_their_colours(
    colours: Theme, vision: NDArray[np.float64]
) -> None:
    apart = {
        (one, other): float(np.linalg.norm(lab(a, vision) - lab(b, vision)))
        for (one, a), (other, b) in combinations(looks(colours).items(), 2)
    }

    # Two colours side by side are told apart from about 2 on; in small marks far from each other
    # it takes several times that.
    assert min(apart.values()) > 20, sorted(apart, key=lambda pair: apart[pair])[:3]


@THEMES
@pytest.mark.parametrize("vision", VISIONS.values(), ids=list(VISIONS))
def test_bars_of_the_timeline_can_be_distinguished(
    colours: Theme, vision: NDArray[np.float64]
) -> None:
    bars = [colours.call, colours.tool, colours.waiting]

    for a, b in combinations(bars, 2):
        assert float(np.linalg.norm(lab(a, vision) - lab(b, vision))) > 20


@THEMES
def test_words_and_marks_stand_out_from_what_is_behind_them(colours: Theme) -> None:
    for ground in (colours.background, colours.card):
        assert contrast(colours.text, ground) >= 7
        assert contrast(colours.muted, ground) >= 4.5
        for colour in colours.status.values():
            assert contrast(colour, ground) >= 3
    for colour in (colours.call, colours.tool, colours.waiting, colours.trouble, colours.line):
        assert contrast(colour, colours.background) >= 3


def test_every_status_has_a_colour_and_a_shape_of_its_own() -> None:
    assert set(LIGHT.status) == set(DARK.status) == set(SHAPES) == set(GLYPHS) == set(AgentStatus)
    assert len({str(shape) for shape in SHAPES.values()}) == len(AgentStatus)
    for shape in SHAPES.values():
        assert all(abs(x) <= 1 and abs(y) <= 1 for outline in shape for x, y in outline)


def test_page_chooses_the_theme() -> None:
    assert theme(dark=False) is LIGHT
    assert theme(dark=True) is DARK
