"""What holds for whole trees holds on a cluster: tests of the core, once more over processes.

Each is written for a run in one process. Here the calls of every agent are made by workers, which
ask the script where the test is.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from distributed import Client

import agentnb
from agentnb import Reply, RunRecord, ScriptedProvider, Session, ToolUse
from agentnb.core import orchestrator
from agentnb.core.errors import StreamBroken
from agentnb.core.orchestrator import InProcessEngine
from agentnb.core.protocols import Engine, Provider
from agentnb.testing import equal_records, provider_contract
from agentnb.testing.memory_journal import MemoryJournal
from tests.cluster.on_cluster import RelayingEngine, a_cluster
from tests.cluster.relay import relay
from tests.core.test_failover import (  # noqa: F401
    test_agent_that_moved_on_stays_there_and_its_siblings_begin_at_the_first,
    test_chain_of_which_nobody_answers_fails_and_names_every_model,
)
from tests.core.test_isolation import test_every_agent_sees_what_it_was_handed_and_nothing_else  # noqa: F401
from tests.core.test_jobs import test_results_of_jobs_and_block_are_told_in_the_order_of_their_tasks  # noqa: F401
from tests.core.test_orchestrator import (  # noqa: F401
    test_block_cut_by_max_tokens_is_never_followed_and_the_reason_says_so,
    test_capabilities_are_told_exactly_where_depth_allows_and_in_the_first_call,
    test_childs_answer_cannot_close_the_results_or_order_a_spawn,
    test_depth_three_is_reached_and_every_level_brings_its_results_together,
    test_failed_task_of_a_sequence_hands_on_its_error_and_the_next_one_runs,
    test_first_message_is_the_task_as_the_person_wrote_it,
    test_parallel_children_run_all_at_once_and_results_stand_in_task_order,
    test_plan_of_a_person_runs_without_a_planning_call,
    test_roots_own_task_as_a_sub_task_is_a_cycle_that_a_corrective_turn_names,
    test_second_block_of_a_reply_is_ignored_with_an_event,
    test_sequence_hands_on_the_immediately_prior_result_only_and_escaped,
    test_sequential_children_run_one_by_one,
    test_spawn_below_the_deepest_level_gives_the_text_before_it,
    test_sub_agents_beyond_the_most_are_skipped_with_a_reason_in_task_order,
    test_synthesis_happens_also_when_all_children_failed,
    test_usage_is_the_sum_of_the_providers_numbers_and_the_pot_counts_reads_a_tenth,
)
from tests.core.test_orchestrator_budget import (  # noqa: F401
    test_budget_that_ends_in_a_child_leaves_its_siblings_and_the_synthesis,
    test_last_budget_update_says_what_was_used_in_the_end,
    test_reserve_is_left_for_the_roots_synthesis_and_used_by_it,
)
from tests.core.test_orchestrator_failure import (  # noqa: F401
    test_agent_streams_a_turn_runs_its_tools_and_streams_again,
    test_call_that_fails_before_its_first_text_is_made_up_to_four_times,
    test_child_that_fails_twice_is_failed_and_its_siblings_go_on,
    test_failed_synthesis_is_made_again_and_finished_children_are_kept,
    test_retry_keeps_finished_tool_results,
    test_root_that_fails_raises_with_all_that_was_reached,
)
from tests.core.test_typed_answers import test_wrong_answer_goes_back_once_with_what_is_wrong  # noqa: F401
from tests.journal_checks import all_checks
from tests.support import by_agent, spawn
from tests.test_journal_contract import JOURNALS, check_of, close_writers, over


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with a_cluster(2) as client:
        yield client


@pytest.fixture(autouse=True)
def _on_workers(
    client: Client, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    monkeypatch.setattr(orchestrator, "InProcessEngine", lambda: RelayingEngine(client))
    answered = relay().answered
    yield
    # One of the provider's promises needs no call, and a journal's none.
    no_call = any(words in request.node.name for words in ("has a name", "test_journal_"))
    assert no_call or relay().answered > answered, "no call came from a worker"


def script() -> ScriptedProvider:
    return by_agent(
        {
            "root": [spawn("a", "b", mode="sequential"), "Both."],
            "a": [Reply("half", error=StreamBroken("cut")), calls("look", "1"), "an answer"],
            "b": [spawn("c"), "with one below"],
            "c": ["the third"],
        }
    )


def calls(name: str, *ids: str) -> Reply:
    return Reply("", tool_uses=tuple(ToolUse(each, name, {}) for each in ids))


@agentnb.tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("store", [None, "runs.db"], ids=["memory", "file"])
def test_same_run_leaves_the_same_record_and_journal_as_in_one_process(
    client: Client, store: str | None, tmp_path: Path
) -> None:
    def run(name: str, engine: Engine) -> RunRecord:
        where = store and tmp_path / name / store
        session = Session(provider=script(), tools=[look], store=where, config=False, engine=engine)
        done = session.spawn("the task")
        done.result()
        session.close()
        return done if where is None else Session(store=where, config=False).load(done.id)

    here, there = run("here", InProcessEngine()), run("there", RelayingEngine(client))
    assert equal_records(there, here) == []


# A call that is cancelled before it went out never took its reply from the script, as that asks.
_NOT_OF_A_SCRIPT_ELSEWHERE = "a cancelled call ends"


@pytest.mark.parametrize(
    "promise",
    [
        str(check)
        for check in provider_contract(ScriptedProvider)
        if not str(check).startswith(_NOT_OF_A_SCRIPT_ELSEWHERE)
    ],
)
async def test_provider_on_a_worker_keeps_its_promise(promise: str, client: Client) -> None:
    engine = RelayingEngine(client)

    def factory(replies: Sequence[Reply]) -> Provider:
        return engine.provider_there(ScriptedProvider(replies))

    (check,) = [each for each in provider_contract(factory) if str(each) == promise]
    await check()


PROMISES = [str(check) for check in all_checks(over(MemoryJournal))]


def broken_promises(journal: str) -> list[str]:
    """What a journal of this process does not keep of its contract."""
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        for promise in PROMISES:
            try:
                asyncio.run(check_of(promise, JOURNALS[journal](Path(folder)))())
            except Exception as error:
                broken.append(f"{promise}: {error!r}")
            finally:
                close_writers()
    return broken


@pytest.mark.parametrize("journal", JOURNALS)
def test_journal_of_a_session_in_a_workers_process_keeps_its_promises(
    client: Client, journal: str
) -> None:
    asked = client.submit(broken_promises, journal, pure=False)
    assert asked.result() == []
    assert len(PROMISES) > 20
