"""`Session`: the settings it passes to runs, and its errors for wrong settings."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import agentnb.default_session
from agentnb.config import load_config
from agentnb.core.errors import InvalidRequest, RunCancelled, UnknownModel
from agentnb.core.events import (
    AgentWaiting,
    BudgetWarning,
    LimitReached,
    ModelCallStarted,
    RunStarted,
    SpawnIgnored,
    SynthesisStarted,
)
from agentnb.core.types import AgentStatus, Usage
from agentnb.default_session import configure, get_session
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.session import Session
from tests.support import (
    DEADLINE_S,
    Hold,
    by_agent,
    check_record,
    check_result,
    events_of,
    requests_of,
    spawn,
)


def ended(run: Run) -> Run:
    """Wait for a run's end, and check what must hold for every run."""
    result = run.result(DEADLINE_S)
    check_record(run.events)
    check_result(result, run.events)
    return run


@pytest.fixture
def default_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agentnb.default_session, "_default", None)


# -- what is handed on ----------------------------------------------------------------------------


def test_settings_reach_the_run() -> None:
    provider = by_agent({"root": [spawn("A"), "ok"]})
    session = Session(
        provider=provider,
        budget=77_000,
        max_depth=2,
        soul="the soul",
        identity="the identity",
        user="the person",
        memories=["what was"],
        max_output_tokens=123,
    )

    run = ended(session.spawn("a task"))

    started = events_of(run.events, RunStarted)[0]
    assert (started.task_description, started.budget_total, started.max_depth) == (
        "a task",
        77_000,
        2,
    )
    root, child, _ = provider.requests
    assert root.max_tokens == child.max_tokens == 123
    for word in ("the soul", "the identity", "what was"):
        assert word in root.system
        assert word in child.system
    assert "the person" in root.system
    assert "the person" not in child.system


def test_limits_of_a_run_go_before_those_of_the_session() -> None:
    provider = ScriptedProvider([spawn("A", before="my own words")])
    session = Session(provider=provider, budget=77_000, max_depth=3)

    run = ended(session.spawn("a task", budget=88_000, max_depth=0))

    started = events_of(run.events, RunStarted)[0]
    assert (started.budget_total, started.max_depth) == (88_000, 0)
    assert run.result().output == "my own words"
    assert session.budget == 77_000


def test_most_sub_agents_of_a_run_go_before_those_of_the_session() -> None:
    provider = by_agent({"root": [spawn("A", "B"), "ok"]})

    run = ended(Session(provider=provider, max_agents=5).spawn("a task", max_agents=1))

    statuses = [str(r.status) for r in run.result().sub_agent_results]
    assert statuses == ["completed", "skipped"]


def test_depth_of_more_than_three_is_a_setting_like_any_other() -> None:
    names = [f"level {n}" for n in range(1, 6)]
    script: dict[str, Any] = {
        upper: [spawn(lower), "back"] for upper, lower in zip(["root", *names], names, strict=False)
    }

    run = ended(Session(provider=by_agent(script), max_depth=5).spawn("a task"))

    assert run.tree is not None
    assert [node.depth for node in run.tree.walk()] == [0, 1, 2, 3, 4, 5]


def test_fresh_sub_agents_get_no_memories() -> None:
    provider = by_agent({"root": [spawn("A"), "ok"]})

    ended(Session(provider=provider, memories=["what was"], sub_agent_memory="fresh").spawn("x"))

    assert "what was" in provider.requests[0].system
    assert "what was" not in requests_of(provider, "A")[0].system


def test_model_of_a_run_shows_in_its_events() -> None:
    run = ended(Session("demo").spawn("Say hello", max_depth=0))

    assert {call.model for call in events_of(run.events, ModelCallStarted)} == {"demo"}


def test_most_open_calls_hold_for_all_runs_of_a_session() -> None:
    holds = [Hold(), Hold()]
    provider = ScriptedProvider([Reply("one", pause=holds[0]), Reply("two", pause=holds[1])])
    session = Session(provider=provider, max_concurrency=1)

    first = session.spawn("first")
    holds[0].wait()
    second = session.spawn("second")
    second.set_budget(second.budget.total)  # after the second run's first step on its loop
    assert len(provider.requests) == 1
    assert second.status is AgentStatus.WAITING
    for hold in holds:
        hold.release()

    assert (first.result(DEADLINE_S).output, second.result(DEADLINE_S).output) == ("one", "two")


@pytest.mark.parametrize("answer", ["continue", "stop"])
def test_callable_of_a_session_is_asked_at_the_warning(answer: str) -> None:
    asked: list[BudgetWarning] = []

    def gate(warning: BudgetWarning) -> str:
        asked.append(warning)
        return answer

    plan = Reply(spawn("A"), usage=Usage(85_000, 0))
    session = Session(
        provider=by_agent({"root": [plan, "ok"]}), budget=100_000, on_budget_warning=gate
    )

    run = ended(session.spawn("a task"))

    assert len(asked) == 1
    assert run.status == ("completed" if answer == "continue" else "exhausted")


def test_runs_are_found_as_the_newest_and_by_id() -> None:
    session = Session(provider=ScriptedProvider(["one", "two"]))
    assert session.find_run("0" * 32) is None

    first, second = ended(session.spawn("first")), ended(session.spawn("second"))

    assert session.newest_run is second
    assert session.find_run(first.id) is first


# -- a person's own fan-out -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_spawn_all_runs_the_tasks_as_children_and_one_synthesis(mode: str) -> None:
    provider = by_agent({"root": "together"})

    run = ended(Session(provider=provider).spawn_all(["A", "B"], mode))

    assert run.tree is not None
    assert [(node.path, node.task) for node in run.tree.children] == [("1", "A"), ("2", "B")]
    assert run.result().output == "together"
    assert len(requests_of(provider, "root")) == len(events_of(run.events, SynthesisStarted)) == 1
    handed_on = "<previous_result>" in requests_of(provider, "B")[0].last_user_text
    assert handed_on is (mode == "sequential")


def test_spawn_all_without_synthesis_answers_with_the_results_in_order() -> None:
    provider = by_agent({})

    run = ended(Session(provider=provider).spawn_all(["A", "B"], synthesis=False))

    assert requests_of(provider, "root") == []
    answer = run.result().output
    assert 0 <= answer.index("done: A") < answer.index("done: B")
    assert run.result().synthesis == ""


def test_spawn_all_takes_equal_tasks_as_often_as_they_are_given() -> None:
    run = ended(Session(provider=by_agent({"root": "ok"})).spawn_all(["A"] * 5))

    assert [str(r.status) for r in run.result().sub_agent_results] == ["completed"] * 5


def test_persons_list_is_run_whole_however_long_it_is() -> None:
    """Twice as many texts as a model may have sub-agents, with all settings at their defaults."""
    texts = [f"text {n}" for n in range(2000)]
    provider = ScriptedProvider(lambda _: Reply("Done.", usage=Usage(10, 5)))

    run = Session(provider=provider).spawn_all(texts, synthesis=False)

    result = run.result(DEADLINE_S)
    assert result.status is AgentStatus.COMPLETED
    assert [r.task for r in result.sub_agent_results] == texts
    assert {r.status for r in result.sub_agent_results} == {AgentStatus.COMPLETED}
    assert not [e for e in run.events if isinstance(e.event, SpawnIgnored)]


def test_tasks_of_a_persons_list_take_no_place_of_what_their_agents_start() -> None:
    provider = by_agent({"A": [spawn("A1", "A2"), "a"], "B": [spawn("B1"), "b"], "root": "ok"})

    run = ended(Session(provider=provider).spawn_all(["A", "B"], "sequential", max_agents=1))

    skipped = [e.event.tasks for e in run.events if isinstance(e.event, SpawnIgnored)]
    assert skipped == [("A2",), ("B1",)]
    assert [node.path for node in run.result().agent_tree.walk()] == ["root", "1", "1.1", "2"]


def test_root_of_a_fan_out_is_running_while_its_children_are() -> None:
    hold = Hold()
    session = Session(provider=by_agent({"A": Reply("a", pause=hold)}))

    run = session.spawn_all(["A"], synthesis=False)
    hold.wait()

    assert run.status is AgentStatus.RUNNING
    assert run.tree is not None
    assert run.tree.status is AgentStatus.RUNNING
    hold.release()
    ended(run)


class Frame:
    """Like a data frame: iterating over it gives the names of its columns."""

    columns = ("text",)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "empty"),
        (("one task",), "`spawn`"),
        ((["A", " "],), r"`tasks\[1\]` must be a non-blank string, not ' '"),
        ((["A", 7],), r"`tasks\[1\]` .* not 7"),
        ((["A", float("nan")],), r"`tasks\[1\]` .* not nan"),
        (([b"A"],), r"`tasks\[0\]`"),
        ((None,), "list of strings, not None"),
        ((7,), "list of strings, not 7"),
        (({"A": 1},), "not a dict"),
        (({"A", "B"},), "not a set"),
        ((Frame(),), "not a Frame"),
        ((["A"], "zigzag"), "zigzag"),
    ],
)
def test_fan_out_that_makes_no_sense_is_refused(arguments: Any, message: str) -> None:
    session = Session(provider=ScriptedProvider([]))

    with pytest.raises(ValueError, match=message):
        session.spawn_all(*arguments)

    assert session.newest_run is None


@pytest.mark.parametrize("max_depth", [0, -1, "deep", True])
def test_fan_out_without_depth_is_refused(max_depth: Any) -> None:
    session = Session(provider=ScriptedProvider([]))

    with pytest.raises(ValueError, match="`max_depth` must be"):
        session.spawn_all(["A"], max_depth=max_depth)

    assert session.newest_run is None


def test_fan_out_takes_any_row_of_texts() -> None:
    session = Session(provider=by_agent({}))

    for texts in (("A", "B"), (each for each in "AB")):
        run = ended(session.spawn_all(texts, synthesis=False))  # type: ignore[arg-type]
        assert [r.task for r in run.result().sub_agent_results] == ["A", "B"]


# -- wrong settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("budget", "many", "'many'"),
        ("budget", -1, "-1"),
        ("budget", 1.5, "1.5"),
        ("budget", True, "True"),
        ("max_depth", -1, "max_depth"),
        ("max_depth", "3", "max_depth"),
        ("max_agents", -1, "max_agents"),
        ("max_agents", "many", "max_agents"),
        ("max_concurrency", 0, "max_concurrency"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("max_output_tokens", "much", "max_output_tokens"),
        ("max_turns", 0, "max_turns"),
        ("max_turns", True, "max_turns"),
        ("call_timeout_s", 0, "call_timeout_s"),
        ("call_timeout_s", "long", "call_timeout_s"),
        ("pause_timeout_s", -1, "pause_timeout_s"),
        ("on_budget_warning", "perhaps", "'perhaps'"),
        ("sub_agent_memory", "some", "'some'"),
        ("mode", "sometimes", "'sometimes'"),
        ("store", 5, "`store`"),
    ],
)
def test_setting_out_of_its_range_is_refused_at_once_and_named(
    setting: str, value: Any, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        Session(provider=ScriptedProvider([]), **{setting: value})


@pytest.mark.parametrize("model", ["nobody/model", "anthropic", "anthropic/", "", "gpt"])
def test_unknown_model_is_refused_at_once_and_the_known_are_named(model: str) -> None:
    with pytest.raises(UnknownModel, match="anthropic, demo") as raised:
        Session(model)

    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("task", ["", "  \n ", None, 3])
def test_blank_task_is_refused_and_no_run_begins(task: Any) -> None:
    session = Session(provider=ScriptedProvider([]))

    with pytest.raises(ValueError, match="blank"):
        session.spawn(task)
    assert session.newest_run is None


def test_wrong_limit_of_a_run_is_refused_and_no_run_begins() -> None:
    session = Session(provider=ScriptedProvider([]))

    for limits in ({"budget": -1}, {"max_depth": -1}, {"max_agents": -1}, {"model": "nobody/x"}):
        with pytest.raises(ValueError, match=r"-1|nobody"):
            session.spawn("a task", **limits)
    assert session.newest_run is None


# -- the session that the magics use --------------------------------------------------------------


@pytest.mark.usefixtures("default_session")
def test_configure_keeps_the_settings_that_it_is_not_given() -> None:
    provider = ScriptedProvider([])
    first = configure(provider=provider, budget=1000, soul="the soul")

    second = configure(max_depth=1)

    assert get_session() is second is not first
    assert repr(second) == "Session(model='scripted', budget=1000, max_depth=1)"
    assert second.settings.soul == "the soul"
    assert (first.budget, first.max_depth) == (1000, 3)


@pytest.mark.usefixtures("default_session")
def test_configure_does_not_change_open_runs() -> None:
    hold = Hold()
    provider = ScriptedProvider([Reply("half of it", pause=hold)])
    run = configure(provider=provider).spawn("a task")
    hold.wait()

    configure(budget=1)
    hold.release()

    assert run.result(DEADLINE_S).output == "half of it"


@pytest.mark.usefixtures("default_session")
def test_configure_refuses_what_it_does_not_know_and_keeps_the_old_session() -> None:
    before = configure(budget=1000)

    with pytest.raises(ValueError, match="'budgets'") as raised:
        configure(budgets=2000)
    assert "max_depth" in str(raised.value)
    with pytest.raises(ValueError, match="max_depth"):
        configure(max_depth="deep")
    assert get_session() is before


def test_wrong_setting_is_shown_as_one_line_and_stays_the_error_that_it_is() -> None:
    session = Session(provider=ScriptedProvider([]), config=False)
    table = type("Table", (), {"__repr__": lambda self: "a b\n1 2"})()
    calls: list[tuple[Any, list[str]]] = [
        (lambda: Session(budget=-1), ["ValueError: `budget` must be a whole number"]),
        (lambda: Session(tools=table), ["ValueError: `tools` must be a list of", "not a b 1 2."]),
        (lambda: session.spawn(""), ["ValueError: A task must be a non-blank string"]),
        (lambda: session.spawn("x", profile="y"), ["UnknownProfile: There is no profile 'y'"]),
        (lambda: session.spawn_all(["x"], max_depth=0), ["ValueError: `spawn_all` starts"]),
        (lambda: configure(budgets=1), ["ValueError: There is no setting 'budgets'"]),
        (lambda: load_config("nowhere.yaml"), ["ConfigError: nowhere.yaml: There is no such"]),
        (lambda: load_config(5), ["ValueError: The path of a settings file must be"]),  # type: ignore[arg-type]
    ]
    for call, expected in calls:
        with pytest.raises(ValueError) as raised:  # noqa: PT011  # the words are looked at below
            call()
        for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
            (line,) = vars(error)["_render_traceback_"]()
            assert "\n" not in line
            assert all(words in line for words in expected), line


def test_repr_is_one_stable_line() -> None:
    session = Session(provider=ScriptedProvider([]))

    assert repr(session) == "Session(model='scripted', budget=500000, max_depth=3)"


def test_model_of_the_sessions_own_provider_is_answered_by_it() -> None:
    provider = ScriptedProvider(["first", "second"])
    session = Session(provider=provider)

    session.run_sync("one", model="scripted/large")
    run = session.spawn("two", model="scripted:small")
    run.result(DEADLINE_S)

    assert [request.model for request in provider.requests] == ["large", "small"]


async def test_sessions_share_the_gate_of_a_provider() -> None:
    hold = Hold()
    provider = ScriptedProvider([Reply("a", pause=hold), "b"])
    first = Session(provider=provider, max_concurrency=1).spawn("one")
    await hold.until_reached()
    second = Session(provider=provider, max_concurrency=1).spawn("two")

    async for entry in second.stream():
        if isinstance(entry.event, AgentWaiting):
            assert "one of 1 slots" in entry.event.reason
            break
    assert len(provider.requests) == 1

    hold.release()
    await first
    await second


@pytest.mark.parametrize(
    "setting", [{"soul": None}, {"memories": "likes tea"}, {"memories": [1]}, {"user": 5}]
)
def test_setting_that_is_no_text_is_refused_by_its_name(setting: dict[str, Any]) -> None:
    (name,) = setting

    with pytest.raises(ValueError, match=f"`{name}`"):
        Session(provider=ScriptedProvider([]), **setting)


# -- an interrupt before the caller waits --------------------------------------------------------


class InterruptedInBetween(Session):
    """The interrupt comes after the run has started, and before the caller has it."""

    def spawn(self, *args: Any, **limits: Any) -> Run:
        super().spawn(*args, **limits)
        raise KeyboardInterrupt


def test_interrupt_between_the_start_and_the_wait_of_run_sync_stops_the_run() -> None:
    hold = Hold()
    session = InterruptedInBetween(
        provider=ScriptedProvider([Reply("never finished", pause=hold), "another"])
    )

    with pytest.raises(RunCancelled, match="interrupted"):
        session.run_sync("a task")

    assert session.newest_run is not None
    assert session.newest_run.done


def test_owner_learns_of_the_runs_of_its_own_thread_only() -> None:
    session = Session(provider=by_agent({"root": "ok"}))
    with session.owning() as owned:
        other = threading.Thread(target=lambda: session.spawn("somebody else's"))
        other.start()
        other.join(DEADLINE_S)
        assert owned == []

        mine = session.spawn("mine")
        assert owned == [mine]
    later = session.spawn("later")

    assert owned == [mine]
    for run in (mine, later):
        run.result(DEADLINE_S)


# -- what else may end a run ----------------------------------------------------------------------


def test_run_that_takes_too_long_ends_with_what_it_has() -> None:
    hold = Hold()
    provider = by_agent({"root": "what there is", "A": Reply("half of A", pause=hold)})
    session = Session(provider=provider, max_time_s=0.05)

    result = session.spawn_all(["A"]).result(DEADLINE_S)  # although `A` is still held

    assert result.status is AgentStatus.EXHAUSTED
    assert result.sub_agent_results[0].response == "half of A"
    assert result.output == "what there is"
    assert session.newest_run is not None
    [reached] = events_of(session.newest_run.events, LimitReached)
    assert (reached.limit, reached.value) == ("max_time_s", 0.05)


def test_so_many_failures_end_a_list_of_tasks() -> None:
    provider = by_agent({"A": InvalidRequest("no"), "root": "what there is"})
    session = Session(provider=provider, stop_after_failures=1)

    result = session.spawn_all(["A", "B"], "sequential").result(DEADLINE_S)

    assert [str(each.status) for each in result.sub_agent_results] == ["failed", "skipped"]
    assert result.status is AgentStatus.EXHAUSTED
    assert result.output == "what there is"


def test_close_does_not_wait_for_a_loop_that_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, closed = threading.Event(), threading.Event()

    class Servers:
        is_empty = False

        async def aclose(self) -> None:
            closed.set()

    monkeypatch.setattr("agentnb.session._SERVERS_PATIENCE_S", 0.0, raising=False)
    session = Session(provider=ScriptedProvider([]), store=None)
    monkeypatch.setattr(session, "_servers", Servers())
    get_runtime().call_soon(lambda: go_on.wait(DEADLINE_S))

    try:
        session.close()
        assert not closed.is_set()
    finally:
        go_on.set()
    assert closed.wait(DEADLINE_S)  # they are closed once the loop goes on
