"""The agents of a mapped table: lean prompts, who leads, the sample, answers from before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core._run.sampling import Ahead, Measured, after_sample
from agentnb.core.budget import estimate_input_tokens
from agentnb.core.errors import LlmError, RunCancelled
from agentnb.core.events import (
    AgentCompleted,
    ModelCallStarted,
    QuestionAnswered,
    QuestionAsked,
    SpawnPlanned,
)
from agentnb.core.past import Past
from agentnb.core.plan import ReusedAnswer, Rows
from agentnb.core.protocols import Delegation, ModelChoice
from agentnb.core.request import OpenGate
from agentnb.core.types import CompletionRequest, SpawnInstruction, SpawnMode, StreamEvent, Usage
from agentnb.mapping.options import MapOptions
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.testing.memory_journal import MemoryJournal
from agentnb.typed import output_type
from tests.support import Tree, make_tree, until


def table(count: int, **how: Any) -> dict[str, Any]:
    """Arguments of `make_tree` for a table of so many rows."""
    judges = how.get("judges", 1)
    tasks = tuple(f"Row {at // judges}?" for at in range(count * judges))
    rows = Rows(how.pop("system", "Answer."), **how)
    plan = SpawnInstruction(SpawnMode.PARALLEL, tasks)
    return {"plan": plan, "synthesis": False, "rows": rows, "max_depth": 1}


def asked(tree: Tree) -> list[str]:
    """The paths of the agents in the order in which they called."""
    return [event.agent_id.partition(".")[2] for event in tree.of(ModelCallStarted)]


def answers(request: CompletionRequest) -> str:
    return f"{request.messages[-1].text} Yes."


# -- lean -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [None, bool])
async def test_row_carries_at_most_120_tokens_of_ours(output: Any) -> None:
    provider = ScriptedProvider(lambda _: '{"value": true}')
    options = MapOptions("The person's own text.")
    outputs = output_type(output)
    given_ = table(1, system=options.system) | {"outputs": outputs}
    await make_tree(provider, **given_).run()
    (request,) = provider.requests
    assert request.system.startswith(options.shared)
    ours = estimate_input_tokens(request)
    if outputs is not None:
        ours -= len(str(outputs.schema)) // 4
    ours -= len(options.shared + "Row 0?") // 4
    assert ours <= 120


@pytest.mark.parametrize(("levels", "tells"), [(0, False), (1, True)])
async def test_row_is_told_of_delegation_only_if_it_may(levels: int, tells: bool) -> None:
    provider = ScriptedProvider(answers)
    await make_tree(provider, **table(1) | {"max_depth": 1 + levels}).run()
    assert ("spawn_agents" in provider.requests[0].system) is tells


async def test_row_without_delegation_by_blocks_is_not_told_of_it() -> None:
    tree = make_tree(ScriptedProvider(answers), **table(1) | {"max_depth": 2})
    tree.orchestrator.delegation = Delegation(by_block=False)
    await tree.run()
    (call,) = tree.of(ModelCallStarted)
    assert call.request.system == "Answer."


@pytest.mark.parametrize(("attempts", "calls"), [(1, 1), (3, 3)])
async def test_row_that_fails_is_tried_as_often_as_asked(attempts: int, calls: int) -> None:
    provider = ScriptedProvider(lambda _: Reply("half", error=LlmError("broke off")))
    tree = await make_tree(provider, **table(1, attempts=attempts)).run()
    assert len(tree.of(ModelCallStarted)) == calls


# -- the cache ------------------------------------------------------------------------------------


class Silent(ScriptedProvider):
    """Says nothing to the first row, not one byte, until `go_on` is set."""

    def __init__(self, of: tuple[str, ...] = ("Row 0?",)) -> None:
        super().__init__(answers)
        self.go_on = asyncio.Event()
        self._of = of

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        if request.messages[-1].text in self._of:
            await self.go_on.wait()
        async for event in super().stream(request):
            yield event


async def led(first: Any, *, count: int = 4, **limits: Any) -> tuple[Tree, asyncio.Task[Tree]]:
    """A table with a shared prompt, whose first row answers like this."""

    def reply(request: CompletionRequest) -> Any:
        return first if "Row 0?" in request.messages[-1].text else answers(request)

    given_ = table(count, is_shared=True) | limits
    tree = make_tree(ScriptedProvider(reply), **given_)
    return tree, tree.start()


async def test_others_start_at_the_first_byte_of_the_first() -> None:
    after = asyncio.Event()
    tree, running = await led(Reply("a long answer with many words", pause=after.wait))
    # The first stays open behind its first byte: the others start, and end, meanwhile.
    await until(lambda: len(tree.of(AgentCompleted)) == 3)
    after.set()
    await running
    assert asked(tree)[0] == "1"


async def test_nothing_is_called_before_the_first_byte_of_the_first() -> None:
    provider = Silent()
    tree = make_tree(provider, **table(4, is_shared=True))
    running = tree.start()
    await until(lambda: asked(tree))
    for _ in range(20):
        await asyncio.sleep(0)
    assert asked(tree) == ["1"]
    provider.go_on.set()
    await running
    assert sorted(asked(tree)[-3:]) == ["2", "3", "4"]


async def test_all_start_at_once_without_a_shared_prompt() -> None:
    provider = Silent()
    tree = make_tree(provider, **table(4))
    running = tree.start()
    await until(lambda: len(asked(tree)) == 4)
    provider.go_on.set()
    await running


async def test_others_start_though_the_first_fails() -> None:
    tree, running = await led(LlmError("no"))
    await running
    assert len(tree.of(AgentCompleted)) == 4  # three rows and the root


async def test_others_start_though_the_first_is_cancelled() -> None:
    tree = make_tree(Silent(), **table(4, is_shared=True))
    running = tree.start()
    await until(lambda: asked(tree))
    tree.cancel("1")
    await running
    assert tree.statuses() == {
        "root": "completed",
        "1": "cancelled",
        "2": "completed",
        "3": "completed",
        "4": "completed",
    }


async def test_run_is_cancelled_while_the_others_wait_for_the_first() -> None:
    tree = make_tree(Silent(), **table(4, is_shared=True))
    running = tree.start()
    await until(lambda: asked(tree))
    tree.request.cancellation.cancel(None, "enough")
    await running
    assert isinstance(tree.error, RunCancelled)
    assert set(tree.statuses().values()) == {"cancelled"}


async def test_mark_stands_at_the_same_place_in_all_calls() -> None:
    tree = await make_tree(ScriptedProvider(answers), **table(4, is_shared=True)).run()
    marks = {call.request.cache_prefix for call in tree.of(ModelCallStarted)}
    assert marks == {len("Answer.")}


async def test_first_of_each_model_leads() -> None:
    provider = Silent()
    models = tuple(ModelChoice(provider, name, OpenGate()) for name in ("x/a", "x/b"))
    tree = make_tree(provider, **table(3, judges=2, models=models, is_shared=True))
    running = tree.start()
    await until(lambda: asked(tree))
    for _ in range(200):  # a second that never comes must not be waited for until a deadline
        await asyncio.sleep(0)
    leaders = sorted(asked(tree))
    provider.go_on.set()
    await running
    assert leaders == ["1", "2"]
    assert {call.agent_id[-1]: call.model for call in tree.of(ModelCallStarted)} == {
        "1": "x/a", "2": "x/b", "3": "x/a", "4": "x/b", "5": "x/a", "6": "x/b",
    }  # fmt: skip


# -- the sample -----------------------------------------------------------------------------------


async def sampled(answer: str | None, *, journal: MemoryJournal | None = None) -> Tree:
    """A table of five rows with a sample of two; `None` if nobody is there."""
    limits: dict[str, Any] = {} if answer else {"patience": lambda: 0}
    tree = make_tree(
        ScriptedProvider(answers),
        journal=journal,
        price=lambda _, a, b: Decimal(a + b) / 1000,
        **table(5, sample=2),
        **limits,
    )
    running = tree.start()
    if answer:
        await until(lambda: tree.request.open_questions)
        assert len(asked(tree)) == 2
        (question,) = tree.request.open_questions
        assert (question.kind, question.options) == ("sample", ("go", "stop"))
        assert question.value["agents"] == 3
        assert question.value["cost_usd"] is not None
        tree.request.answer(question.id, answer)
    await running
    return tree


async def test_rest_runs_after_go() -> None:
    tree = await sampled("go")
    assert len(asked(tree)) == 5
    assert tree.result.status == "completed"


async def test_stop_ends_the_map_with_what_is_done() -> None:
    tree = await sampled("stop")
    assert isinstance(tree.error, RunCancelled)
    statuses = [result.status for result in tree.result.sub_agent_results]
    # The sample's rows stand at equal distances.
    assert statuses == ["completed", "skipped", "completed", "skipped", "skipped"]
    left = [each for each in tree.result.sub_agent_results if each.status == "skipped"]
    assert all("sample" in (each.error or "") for each in left)


async def test_without_a_person_it_goes_on_unasked() -> None:
    tree = await sampled(None)
    assert len(asked(tree)) == 5
    assert not tree.of(QuestionAsked)


@pytest.mark.parametrize("answer", ["go", "stop"])
async def test_map_that_is_recovered_has_its_answer_from_the_record(answer: str) -> None:
    journal = MemoryJournal()
    first = await sampled(answer, journal=journal)
    kept = journal.load(first.request.run_id)
    again = make_tree(
        ScriptedProvider({}),
        past=Past(kept),
        run_id=first.request.run_id,
        thread_id=first.request.thread_id,
        **table(5, sample=2),
    )
    await again.run()
    (told,) = again.of(QuestionAnswered)
    assert told.answer == answer
    assert again.statuses() == first.statuses()


ROWS = st.lists(st.integers(10, 5_000), min_size=2, max_size=30)


@given(ROWS, st.integers(1, 400), st.floats(0.3, 3.0))
def test_estimate_is_exact_where_every_row_is_like_the_sample(
    sizes: list[int], output: int, factor: float
) -> None:
    size = sizes[0]
    usage = Usage(round(size * factor), output)
    rest = [Ahead("m", size)] * len(sizes)
    estimate = after_sample([Measured("m", size, usage)], rest, lambda *_: None, is_shared=False)
    assert abs(estimate.tokens - len(rest) * usage.total_tokens) <= 1
    assert estimate.cost_usd is None


@given(ROWS, st.integers(0, 900), st.integers(1, 60), st.integers(0, 300), st.integers(0, 40))
def test_estimate_is_exact_where_a_part_is_the_same_for_each_row_and_a_part_grows(
    sizes: list[int], fixed: int, tenths: int, mark: int, hundredths: int
) -> None:
    sizes = [100 * size for size in sizes]

    def usage(size: int) -> Usage:
        return Usage(fixed + size // 2 + tenths * size // 10, mark + hundredths * size // 100)

    sample = [Measured("m", size, usage(size)) for size in (100, *sizes)]
    rest = [7 * size for size in sizes]
    found = after_sample(
        sample, [Ahead("m", size) for size in rest], lambda *_: None, is_shared=False
    )
    assert found.tokens == pytest.approx(sum(usage(size).total_tokens for size in rest), abs=2)


@pytest.mark.parametrize(
    ("inputs", "outputs", "more"),
    [
        ((100, 200), (10, 90), (150 * 9, 50 * 9)),  # a steeper line than in proportion: by chance
        ((400, 200), (90, 10), (300 + 0.5 * 800, 50)),  # a line that falls: by chance, too
        ((0, 0), (0, 0), (0, 0)),
    ],
)
def test_line_through_a_sample_is_neither_steeper_than_in_proportion_nor_falls(
    inputs: tuple[int, int], outputs: tuple[int, int], more: tuple[float, float]
) -> None:
    sizes = (95, 105)
    sample = [Measured("m", *each) for each in zip(sizes, map(Usage, inputs, outputs), strict=True)]
    found = after_sample(sample, [Ahead("m", 900)], lambda *_: None, is_shared=False)
    assert found.tokens == pytest.approx(sum(more), abs=1)


def test_estimate_reads_from_the_cache_what_the_sample_wrote() -> None:
    sample = [
        Measured("m", 4100, Usage(100, 10, 4000, 0)),
        Measured("m", 4100, Usage(100, 10, 0, 4000)),
    ]
    seen: list[Usage] = []

    def price(_: str, usage: Usage) -> Decimal:
        seen.append(usage)
        return Decimal(1)

    after_sample(sample, [Ahead("m", 4100)] * 10, price, is_shared=True)
    assert seen == [Usage(1000, 100, 0, 40_000)]


# -- answers from before --------------------------------------------------------------------------


class Known:
    """Answers by key, and the keys that were asked for."""

    keeps = False

    def __init__(self, found: dict[str, str]) -> None:
        self.found, self.keys = found, dict[int, str]()

    def find(self, number: int, key: Callable[[], str]) -> ReusedAnswer | None:
        self.keys[number] = key()
        text = self.found.get(self.keys[number])
        return None if text is None else ReusedAnswer("run_0", text)

    def keep(self, number: int, key: str, text: str) -> None:
        raise AssertionError


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("output", [None, bool])
async def test_key_of_a_row_is_that_of_its_first_call(depth: int, output: Any) -> None:
    journal, known = MemoryJournal(), Known({})
    provider = ScriptedProvider(lambda _: "true")
    models = tuple(ModelChoice(provider, name, OpenGate()) for name in ("x/a", "x/b"))
    given_ = table(2, judges=2, models=models, answers=known) | {"max_depth": depth}
    tree = make_tree(provider, journal=journal, outputs=output_type(output), **given_)
    await tree.run()
    kept = journal.load(tree.request.run_id)
    first = {int(call.path): call.key for call in kept.calls if call.number == 1}
    assert known.keys == first


async def test_row_that_is_known_makes_no_call_and_costs_nothing() -> None:
    journal, known = MemoryJournal(), Known({})
    await make_tree(ScriptedProvider(answers), **table(3, answers=known)).run()
    again = Known({known.keys[1]: "From before.", known.keys[3]: "Too."})
    tree = make_tree(ScriptedProvider(answers), journal=journal, **table(3, answers=again))
    await tree.run()
    assert asked(tree) == ["2"]
    texts = [each.response for each in tree.result.sub_agent_results]
    assert texts == ["From before.", "Row 1? Yes.", "Too."]
    (planned,) = tree.of(SpawnPlanned)
    assert planned.numbers == (2,)
    kept = journal.load(tree.request.run_id)
    reused = [each for each in kept.verdicts if each.kind == "reused"]
    assert [each.path for each in reused] == ["1", "3"]
    assert reused[0].value == {"key": known.keys[1], "run": "run_0", "text": "From before."}


async def test_known_rows_are_taken_again_when_the_map_is_recovered() -> None:
    journal, known = MemoryJournal(), Known({})
    await make_tree(ScriptedProvider(answers), **table(2, answers=known)).run()
    again = Known({known.keys[1]: "From before."})
    tree = make_tree(ScriptedProvider(answers), journal=journal, **table(2, answers=again))
    await tree.run()
    kept = journal.load(tree.request.run_id)
    recovered = make_tree(
        ScriptedProvider({}),
        past=Past(kept),
        run_id=tree.request.run_id,
        thread_id=tree.request.thread_id,
        **table(2),
    )
    await recovered.run()
    texts = [each.response for each in recovered.result.sub_agent_results]
    assert texts == ["From before.", "Row 1? Yes."]


async def test_answer_that_does_not_fit_the_type_is_asked_for() -> None:
    known = Known({})
    provider = ScriptedProvider(lambda _: "true")
    how: dict[str, Any] = {"outputs": output_type(bool)}
    await make_tree(provider, **table(1, answers=known), **how).run()
    again = Known({known.keys[1]: "no boolean"})
    tree = await make_tree(provider, **table(1, answers=again), **how).run()
    assert asked(tree) == ["1"]


async def test_plan_of_a_table_holds_no_second_copy_of_its_texts() -> None:
    how = table(1)
    long = "word " * 10_000
    how["plan"] = SpawnInstruction(SpawnMode.PARALLEL, (long, long))
    tree = await make_tree(ScriptedProvider(answers), **how).run()
    (planned,) = tree.of(SpawnPlanned)
    assert [len(task) <= 80 for task in planned.tasks] == [True, True]
    assert planned.estimated_tokens > 2 * len(long) // 4
