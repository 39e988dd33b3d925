"""The result of a call of an agent's code, as the agent reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentnb.workers.inside.figures import MOST_FIGURES, MOST_IN_FIGURE, png_size
from agentnb.workers.inside.value_text import MOST_DISPLAYED
from agentnb.workers.worker import Limits, Outcome

_MOST_IN_PART = 20_000
_MOST_NAMES = 100
_NOTHING = "(no output)"


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of one call."""

    text: str
    """What the agent reads."""
    is_error: bool
    pictures: tuple[bytes, ...] = ()
    """The figures, as PNG."""
    names: tuple[str, ...] = ()
    """The names that were bound or changed."""
    ended: bool = False
    """Whether the worker is gone, and with it all names but the given ones."""
    why: str = ""
    """Which limit stopped the call, or what ended the worker; empty if nothing did."""


def ran(outcome: Outcome, limits: Limits, *, notes: Sequence[str] = ()) -> Ran:
    """The call's result. The parts of a reply are checked: the worker may have written anything."""
    reply = outcome.reply or {}
    pictures = _pictures(outcome.pictures)
    names = tuple(each[:100] for each in _texts(reply.get("names")))[:_MOST_NAMES]
    parts = [*notes, *_failed(reply.get("failed"))]
    parts += [cut(each) for each in _texts(reply.get("displayed"))[:MOST_DISPLAYED]]
    parts += _more(reply.get("not_displayed"), "displayed values", MOST_DISPLAYED)
    parts += _printed(outcome)
    if value := _text(reply, "value"):
        parts.append(value)
    parts += _figure_lines(pictures, reply)
    is_interrupt = reply.get("is_interrupt") is True
    error = _text(reply, "error")
    if error and not (outcome.stopped and is_interrupt):
        parts.append(error)
        if "MemoryError" in error and limits.memory:
            parts.append(f"(The worker may use {_bytes(limits.memory)}. It lives on.)")
    if reply.get("threads"):
        parts.append("(Threads of this code still run; they are stopped with the worker.)")
    if outcome.stopped:
        parts.append(_stopped(outcome.stopped, limits))
    if outcome.ended:
        if not outcome.stopped:
            parts.append(f"The worker ended while the code ran ({outcome.ended}).")
        parts.append(
            "Its names are gone. The next call starts a fresh worker, with the given names."
        )
    if names:
        parts.append(f"(Bound: {', '.join(names)})")
    text = "\n".join(part.strip("\n") for part in parts if part.strip())
    is_error = bool(error or outcome.stopped or outcome.ended)
    why = outcome.stopped or outcome.ended
    return Ran(text or _NOTHING, is_error, pictures, names, bool(outcome.ended), why)


def not_handed(name: str, why: str) -> str:
    """The line for a given name that is not bound."""
    return f"`{name}` could not be handed to the worker: {why}"


def _failed(found: Any) -> list[str]:
    items = [*found.items()][:_MOST_NAMES] if isinstance(found, dict) else []
    return [not_handed(name, cut(str(why), 500)) for name, why in items if name.isidentifier()]


def _printed(outcome: Outcome) -> list[str]:
    parts = [cut(outcome.out)]
    if outcome.err.strip():
        parts.append(f"Standard error:\n{cut(outcome.err)}")
    return parts


def _stopped(limit: str, limits: Limits) -> str:
    return {
        "time": f"Stopped: it ran longer than {limits.time_s:g} s. Do less in one call.",
        "output": f"Stopped: it printed more than {_bytes(limits.most_output)}. Print less.",
        "memory": f"Stopped: its processes used more than {_bytes(limits.memory)} together.",
        "processes": f"Stopped: it started more than {limits.most_processes} processes.",
    }.get(limit, f"Stopped: {limit}.")


def _figure_lines(pictures: Sequence[bytes], reply: Mapping[str, Any]) -> list[str]:
    lines = []
    for number, picture in enumerate(pictures, 1):
        width, height = png_size(picture)
        lines.append(f"(figure {number}: PNG, {width} x {height})")
    return lines + _more(reply.get("figures_left_out"), "figures", MOST_FIGURES)


def _more(left_out: Any, things: str, most: int) -> list[str]:
    """The line for what is left out; none if nothing is."""
    if type(left_out) is not int or left_out < 1:
        return []
    return [f"({left_out:,} more {things} are left out: {most} go at most.)"]


def _pictures(buffers: Sequence[bytes]) -> tuple[bytes, ...]:
    fine = (each for each in buffers if len(each) <= MOST_IN_FIGURE and png_size(each) != (0, 0))
    return tuple(fine)[:MOST_FIGURES]


def _text(reply: Mapping[str, Any], key: str) -> str:
    found = reply.get(key)
    return cut(found) if isinstance(found, str) else ""


def _texts(found: Any) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def cut(text: str, most: int = _MOST_IN_PART + 200) -> str:
    """`text`, or its beginning and end: a worker bounds what it sends, if it is not hostile."""
    if len(text) <= most:
        return text
    left_out = len(text) - most
    return f"{text[: most // 2]}\n… {left_out:,} characters left out …\n{text[-(most // 2) :]}"


def _bytes(number: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if number >= unit:
            return f"{number / unit:g} {name}"
    return f"{number:,} bytes"
