"""What a journal promises of when it keeps, in which order it returns, and how it is called."""

from __future__ import annotations

import asyncio

from agentnb.core.errors import NoSuchRun
from agentnb.core.records import OrderRecord, RunHead
from agentnb.core.types import ROOT_PATH
from agentnb.testing._handed import Bench, Run
from agentnb.testing._promises import (
    PARTS,
    Promises,
    holds,
    same,
    same_run,
    short,
    without_text_so_far,
)

PROMISES = Promises()
promise = PROMISES.promise

# -- what is kept, and when ------------------------------------------------------------------------


@promise("what came before a commit is there after the process died")
async def _(bench: Bench) -> None:
    run = bench.begun()
    call = run.start_call(ROOT_PATH)
    await run.commit()
    same_run(bench.after_death(), run.committed)
    run.say(ROOT_PATH, "An ", "answer")
    run.finish_call(call)
    run.order("budget", "panel", 5)
    run.verdict(ROOT_PATH, 1, "warned", "continue")
    await run.commit()
    same_run(bench.after_death(), run.committed)
    run.end(ROOT_PATH)
    await run.commit()
    same_run(bench.after_death(), run.committed)


@promise("what came after the last commit is there whole or not at all")
async def _(bench: Bench) -> None:
    run = bench.begun("1")
    call = run.start_call(ROOT_PATH)
    tool = run.start_tool("1")
    await run.commit()
    before = run.committed
    run.say(ROOT_PATH, "An ", "answer ", "in pieces")
    run.finish_call(call)
    run.finish_tool(tool, "seen " * 1000)
    run.start_call("1")
    run.end("1", text="An end")
    run.hand()
    found = without_text_so_far(bench.after_death())
    same(found.head, run.head, "the head")
    rows, most = list(found.entries), list(run.handed.entries)
    holds(len(rows) >= len(before.entries), "entries that were committed are missing")
    same(rows, most[: len(rows)], "the entries, as far as they are kept,")
    for part in PARTS[1:]:
        versions = {*map(repr, getattr(before, part)), *map(repr, getattr(run.handed, part))}
        for record in getattr(found, part):
            holds(repr(record) in versions, f"a part of a record: {short(record)}")
        holds(
            len(getattr(found, part)) >= len(getattr(before, part)),
            f"some of the committed `{part}` are missing",
        )


@promise("the result of a call replaces its intent")
async def _(bench: Bench) -> None:
    run = bench.begun()
    call = run.start_call(ROOT_PATH)
    await run.commit()
    run.say(ROOT_PATH, "Yes")
    result = run.finish_call(call)
    await run.commit_all()
    same(bench.after_death().calls, (result,), "the calls")


@promise("each of many commits at once returns when what came before it is kept")
async def _(bench: Bench) -> None:
    run = bench.begin()
    numbers = range(1, 41)
    run.spawn(ROOT_PATH, *map(str, numbers))
    kept: list[int] = []

    async def one(number: int) -> None:
        run.verdict(str(number), 1, "clamped", number)
        await bench.journal.commit()
        kept.append(number)
        if len(kept) in (1, len(numbers)):
            found = {verdict.value for verdict in bench.after_death().verdicts}
            holds(found >= {*kept}, f"the commits of {kept} returned, and only {found} are kept")

    run.hand()
    await asyncio.gather(*map(one, numbers))
    same_run(bench.after_death(), run.handed)


@promise("what is published after the end of the run is kept")
async def _(bench: Bench) -> None:
    run = bench.begun()
    run.end(ROOT_PATH)
    run.end(None)
    await run.commit()
    without_event = bench.after_death()
    same(without_event.ends, run.committed.ends, "the ends")
    same(len(without_event.entries), len(run.committed.entries), "number of `entries`")
    await run.commit()
    same_run(bench.after_death(), run.committed)


@promise("close keeps what came without a commit, and a second close does nothing")
async def _(bench: Bench) -> None:
    run = bench.begun()
    await run.commit()
    run.call(ROOT_PATH, "Yes")
    run.hand()
    bench.journal.close()
    bench.journal.close()
    same_run(bench.after_death(), run.handed)


# -- order -----------------------------------------------------------------------------------------


@promise("orders come in the order in which they were heard, equal ones too")
async def _(bench: Bench) -> None:
    run = bench.begin()
    twice = OrderRecord("budget", "panel", "2", 1, 0.5, 9)
    run.order("cancel", "code", {"agent": None, "reason": "enough"}, path="2", number=9)
    run.order_again(twice)
    run.order("answer", "gate", "stop", path="1", number=3)
    run.order_again(twice)
    run.order("budget", "code", 3, number=0)
    await run.commit_all()
    same(bench.after_death().orders, run.committed.orders, "the orders")


# -- several runs, and the seam --------------------------------------------------------------------


@promise("runs in one journal do not mix")
async def _(bench: Bench) -> None:
    runs = []
    for number in range(3):
        run = bench.begun(run_id=f"run-{number}", task=f"task {number}")
        call = run.start_call(ROOT_PATH)
        run.say(ROOT_PATH, f"answer {number}")
        run.finish_call(call)
        run.finish_tool(run.start_tool(ROOT_PATH), f"seen {number}")
        run.order("budget", "panel", number)
        run.verdict(ROOT_PATH, 1, "clamped", number)
        await run.commit()
        if number != 1:  # one that died in the middle
            run.end(ROOT_PATH, text=f"answer {number}")
            run.end(None)
            await run.commit_all()
        runs.append(run)
    reopened = bench.reopened()
    for run in reversed(runs):
        same_run(bench.journal.load(run.head.run_id), run.committed)
        same_run(reopened.load(run.head.run_id), run.committed)


@promise("a new process can keep further runs beside those of one that died")
async def _(bench: Bench) -> None:
    first = bench.begun(run_id="run-1")
    first.start_call(ROOT_PATH)
    await first.commit()
    journal = bench.reopened()
    second = Run(journal, RunHead("run-2", "thread", "again", "demo/any"))
    second.spawn(ROOT_PATH)
    second.call(ROOT_PATH, "Yes")
    await second.commit_all()
    last = bench.reopened()
    same_run(last.load("run-1"), first.committed)
    same_run(last.load("run-2"), second.committed)


@promise("a run that is not in the journal raises NoSuchRun")
async def _(bench: Bench) -> None:
    run = bench.begun(run_id="run-1")
    await run.commit()
    for journal in (bench.journal, bench.reopened()):
        for unknown in ("run-2", "run", "", "RUN-1", "%", "\x00", "\ud800"):
            try:
                journal.load(unknown)
            except NoSuchRun:
                continue
            except Exception as error:
                raise AssertionError(f"{error!r} for the unknown run {unknown!r}") from error
            raise AssertionError(f"something was loaded for the unknown run {unknown!r}")
