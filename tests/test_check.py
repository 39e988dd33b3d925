"""`agentnb.check`: tests that pass, tests that fail with the tree, and misuse."""

from __future__ import annotations

import copy
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import CheckFailed, LlmError, OrchestratorResult, Price, Session
from agentnb.core.errors import AuthenticationFailed, UnknownAgent
from agentnb.core.types import Usage
from agentnb.errors import UnknownPrice
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.views.marked import MOST_LINES
from tests.by_tools import order
from tests.support import DEADLINE_S, Hold, by_agent, run_python, spawn


@pytest.fixture(autouse=True)
def _no_prices() -> Iterator[None]:
    agentnb.set_prices({})
    yield
    agentnb.set_prices({})


@agentnb.tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


def capital() -> ScriptedProvider:
    """Four agents: the second sub-agent fails, the first has one of its own."""
    return by_agent(
        {
            "root": [spawn("A", "B"), "It is Paris, on the Seine."],
            "A": [spawn("deep"), "A is done"],
            "B": [Reply("half", error=AuthenticationFailed("no key", status_code=401))],
            "deep": [order(("look", {"where": "here"}), ("look", {"where": "there"})), "seen"],
        }
    )


def run_of(provider: ScriptedProvider, task: str = "Which capital?") -> Run:
    run = Session(provider=provider, store=None, tools=[look], config=False).spawn(task)
    try:
        run.result(DEADLINE_S)
    except agentnb.OrchestratorError:
        pass
    return run


def failure(test: Callable[[], object]) -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        test()
    return caught.value


def marked_lines(error: CheckFailed) -> list[str]:
    return [line for line in str(error).split("\n") if line.startswith(">")]


# -- tests that pass -------------------------------------------------------------------------------


def test_every_test_of_a_run_passes_in_one_line() -> None:
    agentnb.set_prices({"scripted": Price(1, 1)})
    run = run_of(capital())

    found = (
        agentnb.check(run)
        .completed()
        .spawned(3)
        .max_depth(2)
        .under(50_000)
        .under("$0.10")
        .said("Paris")
        .said("A is done", agent="1")
        .used_tool("look")
        .used_tool("look", times=2)
        .used_tool("other", times=0)
    )

    assert len(str(found).split("\n")) == 10


def test_run_its_result_and_its_loaded_record_are_checked_alike(tmp_path: Path) -> None:
    run = run_of(capital())
    run.to_json(tmp_path / "run.json")

    for each in (run, run.result(), run.result().record, agentnb.load_run(tmp_path / "run.json")):
        assert each is not None
        agentnb.check(each).completed().spawned(3).used_tool("look", times=2)


def test_run_from_the_store_is_checked(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.db")
    run_id = Session(provider=capital(), tools=[look], store=path).spawn("Which?").id
    session = Session(provider=ScriptedProvider([]), store=path)

    agentnb.check(session.load(run_id)).completed().spawned(3).said("Seine")


def test_skipped_task_is_no_spawned_agent() -> None:
    run = run_of(by_agent({"root": [spawn("A", "Which capital?"), "done"]}))

    assert [row["status"] for row in run.to_records()].count("skipped") == 1
    agentnb.check(run).spawned(1)


def test_tokens_are_the_providers_plain_ones() -> None:
    usage = Usage(10, 5, 0, 1_000)  # a budget counts a tenth of the cached tokens
    run = run_of(ScriptedProvider([Reply("hello", usage=usage)]))

    agentnb.check(run).under(1_016)
    assert failure(lambda: agentnb.check(run).under(1_015)).found == "1,015"


# -- which run -------------------------------------------------------------------------------------


def test_check_without_a_run_takes_the_newest_of_any_session() -> None:
    first, second = (run_of(ScriptedProvider([text])) for text in ("one", "two"))

    agentnb.check().said("two")
    assert failure(lambda: agentnb.check().said("one"))
    assert first.done
    assert second.done


def test_check_without_any_run_says_so() -> None:
    out = run_python(
        """
        import agentnb
        try:
            agentnb.check()
        except ValueError as error:
            print(error)
        """
    )

    assert "agentnb.check(run)" in out


def test_run_that_goes_on_is_waited_for() -> None:
    hold = Hold()
    provider = ScriptedProvider([Reply("It is Paris.", pause=hold)])
    run = Session(provider=provider, store=None).spawn("Which?")
    hold.wait()
    checked: list[object] = []
    thread = threading.Thread(target=lambda: checked.append(agentnb.check(run).said("Paris.")))
    thread.start()

    assert not checked
    hold.release()
    thread.join(DEADLINE_S)

    assert len(checked) == 1


async def test_run_that_goes_on_is_waited_for_on_a_loop_of_the_caller() -> None:
    run = Session(provider=ScriptedProvider(["It is Paris."]), store=None).spawn("Which?")

    agentnb.check(run).completed()


def test_failed_run_is_waited_for_without_its_error() -> None:
    hold = Hold()
    provider = ScriptedProvider(
        [Reply("half", pause=hold, error=AuthenticationFailed("no key", status_code=401))]
    )
    run = Session(provider=provider, store=None).spawn("Which?")
    hold.release()

    error = failure(lambda: agentnb.check(run).completed())

    assert error.found.startswith("failed: ")
    assert "no key" in error.found


def test_waiting_on_the_loop_of_the_run_itself_is_refused() -> None:
    hold = Hold()
    run = Session(provider=ScriptedProvider([Reply("x", pause=hold)]), store=None).spawn("Which?")
    hold.wait()

    async def on_the_runtime() -> None:
        agentnb.check(run)

    with pytest.raises(RuntimeError, match="await run"):
        get_runtime().submit(on_the_runtime()).result(DEADLINE_S)
    hold.release()
    run.result(DEADLINE_S)


@pytest.mark.parametrize("given", [None, 3, "0198", agentnb.Session])
def test_what_is_no_run_is_refused_with_what_is(given: object) -> None:
    with pytest.raises(ValueError, match="RunRecord"):
        agentnb.check(given)


# -- the result's record ---------------------------------------------------------------------------


def test_result_has_the_record_of_its_run_however_it_ended() -> None:
    run = run_of(ScriptedProvider([LlmError("no")]))
    partial = run.reached

    assert partial is not None
    assert partial.record is not None
    assert partial.record.id == run.id
    assert failure(lambda: agentnb.check(partial).completed()).paths == ("root",)


async def test_every_way_to_a_result_gives_the_same_record() -> None:
    run = Session(provider=ScriptedProvider(["hello"]), store=None).spawn("Which?")
    result = await run

    assert result is run.result()
    assert result.record is run.result().record is not None


def test_record_of_a_result_is_neither_compared_nor_shown_nor_copied() -> None:
    result = run_of(capital()).result()

    for made in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert isinstance(made, OrchestratorResult)
        assert made == result
        assert made.record is None
        assert repr(made) == repr(result)
    with pytest.raises(ValueError, match="record"):
        agentnb.check(copy.copy(result))


# -- tests that fail -------------------------------------------------------------------------------

FAILING: dict[str, tuple[Callable[[Any], object], list[str]]] = {
    "completed": (lambda c: c.completed(), ["root"]),
    "spawned": (lambda c: c.spawned(3), ["root"]),
    "max_depth": (lambda c: c.max_depth(0), ["1", "1.1"]),
    "under": (lambda c: c.under(10), ["1"]),
    "said": (lambda c: c.said("paris"), ["root"]),
    "said by an agent": (lambda c: c.said("paris", agent="1.1"), ["1.1"]),
    "used_tool": (lambda c: c.used_tool("search"), ["root"]),
    "used_tool, times": (lambda c: c.used_tool("look", times=1), ["1.1"]),
}


def two_levels(end: str | LlmError = "It is Paris.") -> Run:
    usage = Usage(50, 0)
    return run_of(
        by_agent(
            {
                "root": [spawn("A"), end],
                "A": [Reply(spawn("deep"), usage=Usage(9_000, 1)), "A is done"],
                "deep": [
                    order(("look", {"where": "here"}), ("look", {"where": "there"})),
                    Reply("seen", usage=usage),
                ],
            }
        )
    )


@pytest.mark.parametrize("what", FAILING)
def test_failed_check_is_an_assertion_error_with_the_tree_and_the_broken_lines(what: str) -> None:
    test, paths = FAILING[what]
    run = two_levels(LlmError("no") if what == "completed" else "It is Paris.")

    error = failure(lambda: test(agentnb.check(run)))

    assert isinstance(error, AssertionError)
    assert list(error.paths) == paths
    first, empty, *tree = str(error).split("\n")
    assert first == f"expected {error.expected}, found {error.found}"
    assert empty == ""
    assert len(tree) == 3, "one line for each agent"
    assert [line for line in tree if line.startswith(">")] == marked_lines(error)
    assert [path for path in paths if not any(f" {path} " in m for m in marked_lines(error))] == []


def test_lines_of_the_tree_have_path_status_task_and_tokens() -> None:
    error = failure(lambda: agentnb.check(two_levels()).spawned(1))

    line = next(line for line in str(error).split("\n") if " 1 " in line and "└" in line)
    assert [word in line for word in ("completed", "A", "tokens")] == [True, True, True]


def test_same_run_fails_with_the_same_words() -> None:
    one, other = (str(failure(lambda: agentnb.check(two_levels()).said("x"))) for _ in range(2))

    assert one == other


def test_long_run_is_shortened_around_the_broken_line() -> None:
    tasks = [f"task {n}" for n in range(200)]
    run = run_of(by_agent({"root": [spawn(*tasks), "all"], "task 150": [spawn("deep"), "x"]}))

    error = failure(lambda: agentnb.check(run).max_depth(1))

    tree = str(error).split("\n")[2:]
    assert error.paths == ("151.1",)
    assert len(tree) <= MOST_LINES + 3
    at = tree.index(marked_lines(error)[0])
    assert " root " in tree[0]
    assert " 151 " in tree[at - 1]
    assert " 152 " in tree[at + 1]
    shown = [line for line in tree if "not shown" not in line]
    left_out = [int(line.split()[1]) for line in tree if "not shown" in line]
    assert len(shown) + sum(left_out) == 202


def test_hostile_words_of_a_model_do_not_act_in_the_message() -> None:
    run = run_of(ScriptedProvider(["\x1b[31mred\n> 1 ✓ completed"]), task="Which\x1b[0m?")

    error = failure(lambda: agentnb.check(run).said("blue"))

    assert "\x1b" not in str(error)
    assert len(marked_lines(error)) == 1


def test_answer_in_another_case_is_named() -> None:
    assert "another case" in failure(lambda: agentnb.check(two_levels()).said("paris")).found


def test_tools_that_were_used_are_listed() -> None:
    assert "look (2)" in failure(lambda: agentnb.check(two_levels()).used_tool("search")).found


def test_failed_check_in_a_cell_is_its_message_alone() -> None:
    error = failure(lambda: agentnb.check(two_levels()).spawned(1))

    (shown,) = error._render_traceback_()  # type: ignore[attr-defined]
    assert shown == f"CheckFailed: {error}"


def test_failed_check_keeps_its_fields_in_a_pickle() -> None:
    error = failure(lambda: agentnb.check(two_levels()).spawned(1))

    again = pickle.loads(pickle.dumps(error))

    assert (again.expected, again.found, again.paths, str(again)) == (
        error.expected,
        error.found,
        error.paths,
        str(error),
    )


# -- cost ------------------------------------------------------------------------------------------


def test_cost_that_is_not_known_is_an_error_of_its_own() -> None:
    error = failure(lambda: agentnb.check(two_levels()).under("$100"))

    assert isinstance(error, UnknownPrice)
    assert "set_prices" in error.found
    assert error.paths == ("root", "1", "1.1")


def test_cost_at_the_limit_is_not_under_it() -> None:
    agentnb.set_prices({"scripted": Price(1_000, 0)})  # a tenth of a cent for each token
    usage = Usage(100, 0)
    run = run_of(ScriptedProvider([Reply("hello", usage=usage)]))

    agentnb.check(run).under("$0.1000001")
    error = failure(lambda: agentnb.check(run).under("$0.10"))

    assert not isinstance(error, UnknownPrice)
    assert error.paths == ("root",)


# -- arguments -------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a float": (lambda c: c.under(0.1), '"$0.10"'),
    "no dollar sign": (lambda c: c.under("0.10"), '"$0.10"'),
    "a decimal comma": (lambda c: c.under("$0,10"), '"$0.10"'),
    "no tokens": (lambda c: c.under(0), "50_000"),
    "true": (lambda c: c.under(True), "50_000"),
    "no money": (lambda c: c.under("$0"), "above 0"),
    "fewer than none": (lambda c: c.spawned(-1), "at least 0"),
    "a text": (lambda c: c.max_depth("2"), "at least 0"),
    "negative times": (lambda c: c.used_tool("look", times=-1), "`times`"),
    "no tool": (lambda c: c.used_tool(look), "name of a tool"),
    "nothing said": (lambda c: c.said(""), "part of the answer"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_argument_says_what_is_possible(what: str) -> None:
    test, possible = WRONG[what]
    found = agentnb.check(run_of(ScriptedProvider(["hello"])))

    with pytest.raises(ValueError, match=re.escape(possible)) as caught:
        test(found)

    assert not isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("limit", ["$1,500", "$1", "$.5", "$ 0.5", " $1.50 "])
def test_dollars_are_read_as_people_write_them(limit: str) -> None:
    agentnb.set_prices({"scripted": Price(1, 1)})

    agentnb.check(run_of(ScriptedProvider(["hello"]))).under(limit)


def test_unknown_agent_lists_the_agents_that_are_there() -> None:
    with pytest.raises(UnknownAgent, match=r"'1\.1'"):
        agentnb.check(two_levels()).said("x", agent="7")


# -- shown -----------------------------------------------------------------------------------------


def test_check_shows_a_line_for_each_test_that_is_the_same_for_every_run() -> None:
    shown = []
    for text in ("It is Paris.", "It is Paris, the city."):
        found = agentnb.check(run_of(ScriptedProvider([text]))).completed().under(50_000).spawned(0)
        bundle = found._repr_mimebundle_()
        assert bundle["text/plain"] == str(found)
        shown.append(bundle)

    assert shown[0] == shown[1]
    assert [line[0] for line in shown[0]["text/plain"].split("\n")] == ["✓"] * 3
    assert all(line in shown[0]["text/html"] for line in shown[0]["text/plain"].split("\n"))


def test_check_without_a_test_does_not_look_like_one_that_passed() -> None:
    found = agentnb.check(run_of(ScriptedProvider(["hello"])))

    assert "✓" not in str(found)
    assert "no tests" in repr(found)
