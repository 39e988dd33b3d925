"""Round numbers on an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from agentnb.core.money import MICROS, USD
from agentnb.views.figures.words import short_count

_SECONDS = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def ticks(end: float, count: int) -> list[float]:
    """At most `count` + 1 round numbers from 0 to `end`, evenly apart; 0 alone for no length."""
    if end <= 0 or count < 1:
        return [0.0]
    return _steps(end, _round_step(end / count))


def time_ticks(end_s: float, count: int) -> list[float]:
    """Like `ticks`, with long steps that are round in minutes or hours."""
    if end_s <= 0 or count < 1:
        return [0.0]
    step = _round_step(end_s / count)
    if step > 10:
        step = next(
            (s for s in _SECONDS if s >= end_s / count), 86400 * _round_step(end_s / count / 86400)
        )
    return _steps(end_s, step)


def amount_labels(places: Sequence[float], unit: str) -> list[str]:
    """The words for places on the axis of a budget: `20k`, or `$0.50` with as many decimals each.

    Args:
        places: From `ticks`, in tokens or micro-dollars.
        unit: Of the budget: `tokens` or `usd`.
    """
    if unit != USD:
        return [short_count(place) for place in places]
    step = min((place / MICROS for place in places if place), default=1.0)
    if step >= 1:
        return [f"${short_count(place / MICROS)}" for place in places]
    decimals = max(2, -floor(log10(step * 1.0001)))
    return [f"${place / MICROS:.{decimals}f}" if place else "$0" for place in places]


def _round_step(at_least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least `at_least`."""
    power = 10.0 ** floor(log10(at_least))
    return next(
        power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= at_least * 0.999
    )


def _steps(end: float, step: float) -> list[float]:
    return [step * number for number in range(int(end / step * 1.0001) + 1)]
