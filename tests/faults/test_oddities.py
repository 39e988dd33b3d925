"""Replies that are odd and whole: nobody notices, nothing is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from agentnb.core.budget import estimate_input_tokens, size_in_bytes, tokens_in
from agentnb.core.events import (
    AgentCompleted,
    AgentFailed,
    AgentWaiting,
    ModelCallFinished,
    ModelCallStarted,
)
from agentnb.core.types import Usage
from tests.faults.oddities import COUNTS, Oddity, oddities_of, with_usage
from tests.faults.stage import GRANDCHILD, PLACES, ROOT, SAID, SIBLING, SYNTHESIS, Stage, open_stage
from tests.faults.wire import MESSAGES, WIRES, Wire

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stages() -> AsyncIterator[Mapping[Wire, Stage]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {wire: await stack.enter_async_context(open_stage(wire)) for wire in WIRES}
    gc.collect()  # whatever was not closed would be told now


ODDITIES = [
    pytest.param(wire, oddity, id=f"{wire.name}-{oddity.name}")
    for wire in WIRES
    for oddity in oddities_of(wire)
]


@pytest.mark.parametrize(("wire", "oddity"), ODDITIES)
async def test_odd_reply_that_is_whole_is_heard_whole_everywhere_and_asked_for_once(
    stages: Mapping[Wire, Stage], wire: Wire, oddity: Oddity
) -> None:
    stage = stages[wire]
    played = await stage.play(oddity.reply, PLACES)

    tree, events = played.tree, played.tree.of(AgentCompleted)
    assert played.calls == dict.fromkeys(SAID, 1)
    assert tree.of(AgentWaiting) == []
    assert tree.of(AgentFailed) == []
    assert set(tree.statuses().values()) == {"completed"}
    assert tree.result.final_response == oddity.heard(SAID[SYNTHESIS])
    assert tree.of(AgentCompleted, "1.1")[0].text == oddity.heard(SAID[GRANDCHILD])
    cut = {event.agent_id for event in events if event.cut}
    assert cut == {tree.id_of(p) for p in ("root", "1", "1.1") if oddity.is_cut}
    spoilt = [r for r in played.requests if r.number not in {q.number for q in played.at(SIBLING)}]
    for request in spoilt if oddity.breaks_connection else ():
        await asyncio.to_thread(stage.server.wait_disconnected, request.connection)


@pytest.mark.parametrize(("first", "last", "input_tokens", "output_tokens"), COUNTS)
async def test_usage_is_the_providers_count_and_the_size_of_what_it_did_not_count(
    stages: Mapping[Wire, Stage],
    first: object,
    last: object,
    input_tokens: int | None,
    output_tokens: int | None,
) -> None:
    played = await stages[MESSAGES].play(with_usage(first, last), [GRANDCHILD])

    tree = played.tree
    (call,), (asked,) = tree.of(ModelCallFinished, "1.1"), tree.of(ModelCallStarted, "1.1")
    by_size = Usage(
        estimate_input_tokens(asked.request), tokens_in(size_in_bytes(SAID[GRANDCHILD]))
    )
    assert call.usage == Usage(
        by_size.input_tokens if input_tokens is None else input_tokens,
        by_size.output_tokens if output_tokens is None else output_tokens,
    )
    assert call.error is None
    assert tree.result.final_response == SAID[SYNTHESIS]
    used = sum(finished.usage.budget_tokens for finished in tree.of(ModelCallFinished))
    assert tree.request.budget.tokens_used == used


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_megabyte_in_one_delta_is_heard_whole_and_its_block_is_followed(
    stages: Mapping[Wire, Stage], wire: Wire
) -> None:
    long = "é" * 500_000

    played = await stages[wire].play(
        lambda wire, text: wire.whole(f"{long}\n\n{text}"), [ROOT, GRANDCHILD]
    )

    tree = played.tree
    assert played.calls == dict.fromkeys(SAID, 1)
    assert tree.result.pre_spawn_text.startswith(long)
    assert tree.of(AgentCompleted, "1.1")[0].text == f"{long}\n\n{SAID[GRANDCHILD]}"
    assert tree.result.final_response == SAID[SYNTHESIS]
