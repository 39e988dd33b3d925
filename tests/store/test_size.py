"""What a run adds to a file: at most twice its text, and 1 KiB for each event that is no delta."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentnb.core.types import Message, user_message
from agentnb.store.database import open_to_write
from agentnb.store.journal import SqliteJournal
from agentnb.store.reader import load
from agentnb.store.writer import Writer
from tests.store.fake_runs import PREFACE, FakeRun, words


async def _many_agents(run: FakeRun, *, size: int, count: int) -> None:
    """Agents of one call whose replies come interleaved."""
    run.spawn("root", run.task)
    paths = [str(number) for number in range(1, 101)]
    started = []
    for path in paths:
        run.spawn(path, f"part {path}")
        system = f"{PREFACE * 8}part {path}"
        started.append(await run.start_call(path, system, (user_message(f"Your part: {path}."),)))
    pieces: dict[str, list[tuple[float, str]]] = {path: [] for path in paths}
    for place, text in enumerate(words(count, size=size)):
        for path in paths:
            pieces[path].append(run.say(path, text))
        if place % 10 == 0:
            await run.commit()
    for record in started:
        record = await run.end_call(record, pieces[record.path])
        await run.end_agent(record.path, record.text)


async def _many_turns(run: FakeRun, *, size: int, count: int) -> None:
    """One agent of 50 turns."""
    run.spawn("root", run.task)
    messages: tuple[Message, ...] = (user_message("begin"),)
    for turn in range(50):
        record = await run.start_call("root", PREFACE * 8, messages)
        said = [f"{turn} ", *words(count - 1, size=size)]
        record = await run.end_call(record, [run.say("root", text) for text in said])
        assert record.message is not None
        messages = (*messages, record.message, user_message(f"Result {turn}: " + "r" * 300))
    await run.end_agent("root", record.text)


def _size_when_empty(folder: Path) -> int:
    open_to_write(folder / "empty.db").close()
    return (folder / "empty.db").stat().st_size


def test_a_file_without_a_run_is_small(tmp_path: Path) -> None:
    assert _size_when_empty(tmp_path) <= 200 * 1024


@pytest.mark.parametrize("step_ns", [1_000, 8_000_000])
@pytest.mark.parametrize(
    ("kind", "size", "count"),
    [
        (_many_agents, 17, 50),
        (_many_agents, 4, 200),
        (_many_turns, 17, 50),
        (_many_turns, 4, 200),
        (_many_turns, 4, 3_000),
    ],
)
def test_the_file_is_at_most_twice_the_text_and_a_little_for_each_event(
    tmp_path: Path, kind: Callable[..., Awaitable[None]], size: int, count: int, step_ns: int
) -> None:
    empty = _size_when_empty(tmp_path)
    writer = Writer(tmp_path / "x.db")
    writer.open()
    run = FakeRun(SqliteJournal(writer), step_ns=step_ns)

    async def main() -> None:
        run.begin()
        await kind(run, size=size, count=count)
        await run.end()

    asyncio.run(main())
    writer.close()
    assert writer.trouble is None
    found = writer.path.stat().st_size
    assert found - empty <= 2 * run.text_bytes() + 1024 * run.lifecycle_events
    assert load(writer.path, run.run_id).rows == run.rows
