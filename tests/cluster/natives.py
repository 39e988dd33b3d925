"""Providers and tools that worker processes make themselves, and what they note in a file.

Each note is one short line, appended by one write, so that lines of several processes never mix.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from agentnb.core.errors import MissingKey
from agentnb.core.protocols import ToolContext
from agentnb.core.types import (
    CompletionRequest,
    Stopped,
    StreamEvent,
    TextDelta,
    Usage,
    assistant_message,
)
from tests.support import DEADLINE_S


def note(file: str, line: str) -> None:
    with Path(file).open("a") as opened:
        opened.write(f"{os.getpid()} {line}\n")


def notes(file: Path) -> list[tuple[int, str]]:
    """Who noted what, oldest first."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(pid), line) for pid, _, line in (each.partition(" ") for each in lines)]


class Drip:
    """Says a word again and again until it is closed; notes each word, its start and its end."""

    name = "drip"

    def __init__(self, file: str, word: str = "drip ", pace_s: float = 0.01) -> None:
        self._file, self._word, self._pace_s = file, word, pace_s

    def noted(self) -> str:
        """What is noted of each word."""
        return "word"

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        note(self._file, "begin")
        yield Usage(10, 0)
        try:
            while True:
                note(self._file, self.noted())
                yield TextDelta(self._word)
                await asyncio.sleep(self._pace_s)
        finally:
            note(self._file, "closed")


class Counter:
    """Counts to a number, one piece each, and ends."""

    name = "counter"

    def __init__(self, most: int) -> None:
        self._most = most

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        yield Usage(10, 0)
        for number in range(self._most):
            yield TextDelta(f"{number} ")
        yield Usage(10, self._most)
        text = "".join(f"{number} " for number in range(self._most))
        yield Stopped("end_turn", assistant_message(text))


class Keyless(Counter):
    """Has no key."""

    name = "keyless"

    async def check_key(self) -> None:
        raise MissingKey("There is no key: set `LAB_KEY`.")


class SlowOnce:
    """Notes each call. Waits in the middle of an answer until a file is there, and then ends it."""

    name = "slow"

    def __init__(self, file: str, go: str) -> None:
        self._file, self._go = file, go

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        task = request.last_user_text.strip().split()[-1]
        note(self._file, f"call {task}")
        yield Usage(10, 0)
        yield TextDelta("an ")
        await asyncio.to_thread(_until_there, Path(self._go))
        yield TextDelta("answer")
        yield Usage(10, 2)
        yield Stopped("end_turn", assistant_message("an answer"))


def _until_there(file: Path) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not file.exists():
        assert time.monotonic() < ends, "the test never let it go on"
        time.sleep(0.01)


def where(context: ToolContext) -> str:
    """Say in which process this runs."""
    context.report("on its way")
    return str(os.getpid())


async def where_async() -> str:
    """Say in which process this runs."""
    return str(os.getpid())


def shares(context: ToolContext) -> str:
    """Use what the run's tools share."""
    return str(len(context.workspace))


def spin(file: str, context: ToolContext) -> str:
    """Burn until cancelled."""
    note(file, "begin")
    while not context.cancelled:
        time.sleep(0.005)
    note(file, "cancelled")
    return "stopped"


def log(file: str) -> str:
    """Note a line."""
    note(file, "line")
    return "noted"


def die_once(file: str) -> str:
    """Kill the process of the first call."""
    note(file, "call")
    if len(notes(Path(file))) == 1:
        os.kill(os.getpid(), 9)
    return "alive"
