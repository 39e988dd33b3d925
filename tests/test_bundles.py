"""agentnb's values as the last line of a cell: a page at most, inert, equal in every replay."""

from __future__ import annotations

import copy
import dataclasses
import html
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.lib.pretty import pretty

import agentnb
from agentnb.agent_view import AgentView, AgentViews
from agentnb.bundles import ANSWER_LENGTH, OUTLINE_LINES
from agentnb.core.errors import AuthenticationFailed, OrchestratorError
from agentnb.core.shown import Shown
from agentnb.core.types import (
    AgentMemoryContext,
    AgentNode,
    AgentStatus,
    OrchestratorResult,
    SubAgentResult,
    SubAgentResults,
)
from agentnb.prices import Price, set_prices
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.session import Session
from agentnb.views.table import ROWS
from tests.support import DEADLINE_S, Hold, by_agent, nothing_left_on_the_runtime, run_python, spawn
from tests.views.test_markdown import HOSTILE, Page

ACTING = "\x1b[31m\x07\u202eevil\u2066\r\n\ttab\x00\u2028end"
IDS_AND_TIMES = re.compile(
    r"nb_\d{8}|\b[0-9a-f]{32}\b|0x[0-9a-f]{6,}|\b\d+(\.\d+)? ?m?s\b|\d\d:\d\d"
)


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with nothing_left_on_the_runtime():
        yield


@pytest.fixture
def no_prices() -> Iterator[None]:
    yield
    set_prices({})


def finished(task: str = "root", a: str = "**A** is $5 or $6", why: str = "no") -> Run:
    """A run with an answer, a sub-agent that completed, one that failed, and a skipped task."""
    provider = by_agent(
        {
            "root": [spawn("A", "B", task, before="I split it."), f"# Both\n\n{a}"],
            "A": [a],
            "B": [Reply("half", error=AuthenticationFailed(why, status_code=401))],
        }
    )
    run = Session(provider=provider).spawn("root")
    run.result(DEADLINE_S)
    return run


def values_of(run: Run) -> dict[str, object]:
    """All values of one run that have a display."""
    result = run.result(DEADLINE_S)
    assert run.tree is not None
    return {
        "run": run,
        "result": result,
        "sub_agent_results": result.sub_agent_results,
        "sub_agent_results[0]": result.sub_agent_results[0],
        "sub_agent_results[1]": result.sub_agent_results[1],
        "sub_agent_results[-1]": result.sub_agent_results[-1],
        "incomplete": result.incomplete,
        "memory_contexts": result.memory_contexts,
        "memory_contexts[0]": result.memory_contexts[0],
        "events": run.events,
        "tree": run.tree,
        "cost": run.cost,
    }


def thousand(answer: str = "It is so.") -> OrchestratorResult:
    """A finished run of a thousand agents, of which ten completed."""
    statuses = (
        [AgentStatus.COMPLETED] * 10 + [AgentStatus.FAILED] * 980 + [AgentStatus.SKIPPED] * 10
    )
    results = [
        SubAgentResult(
            None if status is AgentStatus.SKIPPED else f"nb_20261101_k3x9aa.{number}",
            f"task {number}: " + "look at it " * 100,
            status,
            answer if status is AgentStatus.COMPLETED else "",
            None if status is AgentStatus.COMPLETED else "It broke, and " * 100,
        )
        for number, status in enumerate(statuses, start=1)
    ]
    root = "nb_20261101_k3x9aa"
    nodes = [
        AgentNode(r.agent_id, root, str(number), r.task, 1, r.status)
        for number, r in enumerate(results, start=1)
        if r.agent_id is not None
    ]
    return OrchestratorResult(
        AgentStatus.COMPLETED,
        answer,
        AgentNode(root, None, "root", "all", 0, AgentStatus.COMPLETED, children=tuple(nodes)),
        sub_agent_results=tuple(results),
        incomplete=tuple(r for r in results if r.status is not AgentStatus.COMPLETED),
        memory_contexts=tuple(AgentMemoryContext("id", answer, r.task) for r in results),
    )


def bundle_of(value: object) -> dict[str, str]:
    """The bundle that a notebook requests from a value."""
    assert isinstance(value, Shown)
    return value._repr_mimebundle_()


def rows_of(bundle: dict[str, str]) -> list[str]:
    """The text of each paragraph and row of a page."""
    lines = re.findall(r"<(?:p|tr)>(.*?)</(?:p|tr)>", bundle["text/html"])
    return [
        html.unescape(re.sub("<[^>]+>", "", line.replace("<t", "|<t")[1:]))
        if line.startswith("<t")
        else line
        for line in lines
    ]


class Bundle(Page):
    """Reads a value's HTML like a browser, and refuses active content."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "div":
            assert set(given) == {"class"}
        elif tag == "pre" and given:
            assert set(given) == {"class", "style"}
            assert given["class"] == "agentnb-outline"
            assert "url" not in str(given["style"])
        else:
            super().handle_starttag(tag, attrs)
            return
        self._open.append(tag)


# -- what each shows ------------------------------------------------------------------------------


def test_run_and_its_result_show_tree_and_answer() -> None:
    run = finished()

    of_run, of_result = bundle_of(run), bundle_of(run.result(DEADLINE_S))

    for shown in (of_run, of_result):
        assert "# Both\n\n**A** is $5 or $6" in shown["text/plain"]
        assert "├─ 1 ✓ completed · A\n" in shown["text/plain"]
        assert "✗ failed · B\n" in shown["text/plain"]
        assert "error: " in shown["text/plain"]
        assert ': the task "root"' in shown["text/plain"] or "skipped: root" in shown["text/plain"]
        assert "<h1>Both</h1>" in shown["text/html"]
        assert "agentnb-outline" in shown["text/html"]


def test_run_that_goes_on_shows_how_far_it_is_and_what_there_is_so_far() -> None:
    hold, before = Hold(), Hold()
    first_words = Reply(spawn("B", before="I *split* it."), pause=before)
    provider = by_agent({"root": [first_words, "Done."], "B": [Reply("b", pause=hold)]})
    run = Session(provider=provider).spawn("root")
    try:
        before.wait()
        first = bundle_of(run)
        before.release()
        hold.wait()
        second, again = bundle_of(run), bundle_of(run)
    finally:
        before.release()
        hold.release()
        run.result(DEADLINE_S)

    assert "root ► running · root" in first["text/plain"]
    assert "the run has not ended." in first["text/plain"]
    assert second == again
    assert "1 ► running · B" in second["text/plain"]
    assert "I *split* it.\n\n(So far: the run has not ended.)" in second["text/plain"]
    assert "spawn_agents" not in second["text/plain"]
    assert "<em>split</em>" in second["text/html"]


def agent(path: str, task: str, status: AgentStatus, text: str = "", **other: Any) -> AgentView:
    """An agent of a run, with other words."""
    there = finished().agent("1")
    blank: dict[str, Any] = {"error": None, "cut": False, "children": ()}
    return dataclasses.replace(
        there, path=path, task=task, status=status, text=text, **blank | other
    )


def test_agent_shows_path_status_task_text_error_and_its_sub_agents() -> None:
    below = tuple(f"1.{number}" for number in range(1, 101))
    fine = agent("1", "Look\nat it", AgentStatus.COMPLETED, "*It is.*", cut=True, children=below)
    broken = agent("2", "Look", AgentStatus.FAILED, error="no")

    shown = bundle_of(fine)

    head, text, cut, children = shown["text/plain"].split("\n\n")
    assert (head, text) == ("1 ✓ completed · Look at it", "*It is.*")
    assert cut == "The text was cut at a limit."
    assert children.startswith("sub-agents: 1.1, 1.2, ")
    assert children.endswith(", 1.40 … and 60 more")
    assert "<em>It is.</em>" in shown["text/html"]
    assert bundle_of(broken)["text/plain"] == "2 ✗ failed · Look\n\nerror: no"
    evil = agent(ACTING, HOSTILE[0], AgentStatus.FAILED, ACTING, error=ACTING)
    Bundle(bundle_of(evil)["text/html"])
    several = AgentViews([fine, broken] * 20)
    assert repr(several) == "AgentViews(40 agents: 20 completed, 20 failed)"
    assert rows_of(bundle_of(several))[1:4] == [
        "path|status|task|answer|error",
        "1|✓ completed|Look at it|*It is.*|",
        "2|✗ failed|Look||no",
    ]


def test_agents_of_a_run_show_themselves_by_path() -> None:
    run = finished()
    run.result(DEADLINE_S)

    assert repr(run.agents) == "AgentViews(3 agents: 2 completed, 1 failed)"
    assert [row.split("|")[0] for row in rows_of(bundle_of(run.agents))[2:]] == ["root", "1", "2"]
    assert bundle_of(run.agent("1"))["text/plain"] == "1 ✓ completed · A\n\n**A** is $5 or $6"
    assert len(repr(run.agent("root"))) < 200


def test_sub_agents_result_shows_task_status_answer_as_markdown_and_error() -> None:
    fine, failed, skipped = finished().result(DEADLINE_S).sub_agent_results

    assert bundle_of(fine)["text/plain"] == "1 ✓ completed · A\n\n**A** is $5 or $6"
    assert "<strong>A</strong>" in bundle_of(fine)["text/html"]
    assert bundle_of(failed)["text/plain"].startswith("2 ✗ failed · B\n\nhalf\n\nerror: ")
    assert bundle_of(skipped)["text/plain"].startswith("3 – skipped · root\n\n")  # noqa: RUF001


def test_list_of_results_shows_a_table() -> None:
    shown = bundle_of(finished().result(DEADLINE_S).sub_agent_results)

    words = "3 results: 1 completed, 1 failed, 1 skipped"
    assert shown["text/plain"] == f"SubAgentResults({words})"
    *rows, last = rows_of(shown)
    assert rows == [
        words,
        "path|status|task|answer|error",
        "1|✓ completed|A|**A** is $5 or $6|",
        "2|✗ failed|B|half|no",
    ]
    assert last.startswith("3|– skipped|root||the task")  # noqa: RUF001
    assert "<span>$</span>5 or <span>$</span>6" in shown["text/html"], "no formula for MathJax"


def test_empty_list_says_that_there_is_nothing() -> None:
    assert bundle_of(SubAgentResults())["text/plain"] == "SubAgentResults(no results)"
    assert rows_of(bundle_of(SubAgentResults())) == ["no results"]


def test_events_are_shown_by_agent_since_their_order_between_agents_is_chance() -> None:
    shown = bundle_of(finished().events)

    called = "agent_spawned → model_call_started"
    answered = "agent_text_delta → model_call_finished"
    assert shown["text/plain"] == "Entries(events of 3 agents)"
    assert rows_of(shown)[:2] == ["events of 3 agents", "agent|events"]
    assert rows_of(shown)[4] == f"1|{called} → {answered} → agent_completed"


@pytest.mark.usefixtures("no_prices")
def test_cost_shows_a_table_by_model_and_by_agent_below_the_sum() -> None:
    run = finished()
    unpriced = bundle_of(run.cost)["text/plain"]
    set_prices({"scripted": Price(10, 20)})
    priced = bundle_of(run.cost)

    assert unpriced.startswith("unpriced: no price is known for scripted (")
    lines = priced["text/plain"].splitlines()
    assert lines[0] == str(run.cost)
    assert lines[0].endswith("(estimate)")
    assert [line.split()[0] for line in lines if line] == [
        "about", "model", "scripted", "agent", "root", "1", "2"
    ]  # fmt: skip
    assert all(line.split()[1].startswith("$0.") for line in lines[-3:])
    assert priced["text/html"].count("<table>") == 2
    assert re.search(r"\$\d", priced["text/html"]) is None, "no formula for MathJax"


# -- stable, inert, short -------------------------------------------------------------------------


def test_same_run_shows_the_same_again_without_ids_and_times() -> None:
    one, two = values_of(finished()), values_of(finished())

    for name, value in one.items():
        bundle = bundle_of(value)
        assert set(bundle) == {"text/plain", "text/html"}, name
        assert bundle == bundle_of(two[name]), name
        assert IDS_AND_TIMES.findall("".join(bundle.values()) + repr(value)) == [], name


@pytest.mark.parametrize("hostile", [*HOSTILE, ACTING, "lone \ud83d half"])
def test_hostile_text_is_shown_and_does_nothing(hostile: str) -> None:
    for name, value in values_of(finished(hostile or "task", hostile, hostile)).items():
        bundle = bundle_of(value)
        Bundle(bundle["text/html"])
        for text in (*bundle.values(), repr(value)):
            assert text.encode()
            assert not set(text) & set("\x1b\x07\x00\r\u202e\u2066\u2028"), name


@pytest.mark.parametrize("text", ["x" * 100_000, "\x1b" * 500, "\U000e0001\n" * 500, "'\"\\" * 500])
def test_repr_is_one_short_line_whatever_the_texts(text: str) -> None:
    result = SubAgentResult("nb_20261101_k3x9aa.1", text, AgentStatus.FAILED, text, text)
    node = AgentNode("id", None, "1." * 500, text, 0, AgentStatus.FAILED)
    memory = AgentMemoryContext("id", text, text)
    whole = OrchestratorResult(AgentStatus.FAILED, text, node, incomplete=(result,) * 1000)
    error_only = dataclasses.replace(result, response="")
    run = Session(provider=ScriptedProvider(["ok"])).spawn(text)
    run.result(DEADLINE_S)

    for value in (result, error_only, node, memory, whole, whole.incomplete, run, run.events):
        assert repr(value).isprintable()
        assert len(repr(value)) <= 200, repr(value)


def test_run_of_a_thousand_agents_shows_a_page_and_says_how_much_more_there_is() -> None:
    result = thousand("word " * 20_000)

    for value in (result, result.agent_tree, result.incomplete, result.memory_contexts):
        assert isinstance(value, Shown)
        bundle = bundle_of(value)
        Bundle(bundle["text/html"])
        assert len(bundle["text/plain"]) < 60_000
        assert len(bundle["text/html"]) < 60_000
        assert len(bundle["text/plain"].splitlines()) < OUTLINE_LINES + 10
        assert len(repr(value)) <= 200
        assert "\n" not in repr(value)
    assert repr(result.incomplete) == "SubAgentResults(990 results: 980 failed, 10 skipped)"
    assert rows_of(bundle_of(result.incomplete))[-1] == f"… and {990 - ROWS:,} more"
    shown = bundle_of(result)["text/plain"]
    assert f"(… and {100_000 - ANSWER_LENGTH:,} more characters)" in shown
    assert re.search(r"not shown: \d+ further agents: \d+ failed", shown)
    of_tree = bundle_of(result.agent_tree)["text/plain"].splitlines()
    assert of_tree[1].endswith("not shown: 891 further agents: 891 failed")
    assert len(of_tree) == OUTLINE_LINES + 1
    assert of_tree[-1].startswith("└─ 99 ")


def test_chain_of_agents_that_is_very_deep_shows_its_beginning() -> None:
    tree = AgentNode("id", "id", "1", "the deepest", 5000, AgentStatus.COMPLETED)
    for depth in reversed(range(5000)):
        tree = AgentNode(
            "id", "id", f"{depth}", "t", depth, AgentStatus.COMPLETED, children=(tree,)
        )

    lines = bundle_of(tree)["text/plain"].splitlines()

    assert len(lines) == OUTLINE_LINES + 1
    assert lines[1].endswith("not shown: 4,901 further agents: 4,901 completed")


# -- agentnb's tuples and lists are tuples and lists------------------------------------------------


def test_list_of_ours_is_a_tuple_whose_slices_are_of_its_kind() -> None:
    results = thousand().incomplete

    assert isinstance(results, tuple)
    assert results == tuple(results)
    assert hash(results) == hash(tuple(results))
    assert isinstance(results[0], SubAgentResult)
    assert type(results[:3]) is type(results[::-1]) is SubAgentResults
    assert results[:3] == tuple(results)[:3]
    assert repr(results[:3]) == "SubAgentResults(3 results: 3 failed)"
    for same in (pickle.loads(pickle.dumps(results)), copy.copy(results), copy.deepcopy(results)):
        assert same == results
        assert type(same) is SubAgentResults


def test_result_is_the_same_after_every_way_through_which_values_go() -> None:
    result = finished().result(DEADLINE_S)

    for same in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert same == result
        assert type(same.incomplete) is SubAgentResults
    as_dict = dataclasses.asdict(result)
    assert as_dict["incomplete"][0]["task"] == result.incomplete[0].task
    assert repr(as_dict["incomplete"])
    made_by_hand = dataclasses.replace(result, incomplete=list(result.incomplete))  # type: ignore[arg-type]
    assert made_by_hand == result


def test_events_are_a_list_whose_slices_are_of_its_kind() -> None:
    events = finished().events

    assert isinstance(events, list)
    assert events == list(events)
    assert events[:3] == list(events)[:3]
    assert repr(events[:3]) == "Entries(events of 1 agent)"
    assert pickle.loads(pickle.dumps(events)) == events


# -- who asks -------------------------------------------------------------------------------------


def test_ipython_shows_the_bundle_and_prints_the_short_line_within_other_values() -> None:
    result = thousand()
    formatter = DisplayFormatter()

    for value in (result, result.incomplete, result.incomplete[:3], result.incomplete[0]):
        data, _ = formatter.format(value)  # type: ignore[no-untyped-call]
        assert data == bundle_of(value)
        assert pretty([value]) == f"[{value!r}]"  # type: ignore[no-untyped-call]


def test_only_the_kinds_that_are_asked_for_are_given() -> None:
    result = thousand()

    assert set(result._repr_mimebundle_(include=["text/plain"])) == {"text/plain"}
    assert set(result._repr_mimebundle_(exclude=["text/plain"])) == {"text/html"}


def test_result_that_another_process_has_made_shows_itself_and_a_run_loads_nothing_for_it() -> None:
    pickled = pickle.dumps(finished().result(DEADLINE_S))

    printed = run_python(f"""
        import pickle, sys
        result = pickle.loads({pickled!r})
        print("agentnb.bundles" in sys.modules, "markdown_it" in sys.modules)
        print("<h1>Both</h1>" in result._repr_mimebundle_()["text/html"])
    """)

    assert printed.split() == ["False", "False", "True"]


def test_run_that_failed_shows_what_it_had_reached() -> None:
    provider = by_agent(
        {"root": [Reply("half", error=AuthenticationFailed("no", status_code=401))]}
    )
    run = Session(provider=provider).spawn("root")
    with pytest.raises(OrchestratorError) as raised:
        run.result(DEADLINE_S)

    shown = bundle_of(run)["text/plain"]

    assert "root ✗ failed · root" in shown
    assert "half" in shown
    assert raised.value.partial_result is not None
    assert "half" in bundle_of(raised.value.partial_result)["text/plain"]
    assert agentnb.RunRecord in type(run).mro()
