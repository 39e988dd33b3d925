"""`agentnb.compare`: which agents, words, tokens and costs differ between two runs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import OrchestratorError, Price, Session, ToolUse
from agentnb.__main__ import main
from agentnb.cassette import Cassette
from agentnb.checking.compare import Comparison, side_of
from agentnb.checking.recordings import recorded_side
from agentnb.core.errors import AuthenticationFailed, InvalidRequest
from agentnb.core.types import AgentStatus, Usage
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.views.table import ROWS
from tests.support import DEADLINE_S, Hold, by_agent, spawn


@pytest.fixture(autouse=True)
def _no_prices() -> Iterator[None]:
    agentnb.set_prices({})
    yield
    agentnb.set_prices({})


def run_of(provider: ScriptedProvider, task: str = "Which capital?") -> Run:
    run = Session(provider=provider, store=None, max_agents=5000, budget=10**8).spawn(task)
    try:
        run.result(DEADLINE_S)
    except OrchestratorError:
        pass
    return run


def tree(*tasks: str, answer: AnyReply = "It is Paris, on the Seine.", **replies: AnyReply) -> Run:
    """A root with a sub-agent for each task; `replies` by task."""
    return run_of(by_agent({"root": [spawn(*tasks), answer], **replies}))


def changes(found: object) -> dict[str, str]:
    assert isinstance(found, Comparison)
    return {each.path: each.change for each in found.agents}


# -- what differs ----------------------------------------------------------------------------------


def test_equal_runs_say_so_in_one_line() -> None:
    found = agentnb.compare(tree("A", "B"), tree("A", "B"))

    assert found.same
    assert not found.changed
    assert set(changes(found).values()) == {"same"}
    assert "\n" not in str(found)
    assert "same" in str(found)


def test_agents_that_only_one_run_has_are_named() -> None:
    before = run_of(by_agent({"root": [spawn("A", "B"), "x"], "A": [spawn("deep"), "a"]}))
    after = run_of(by_agent({"root": [spawn("A", "B", "C"), "x"], "A": ["a"]}))

    found = agentnb.compare(before, after)

    assert changes(found)["1.1"] == "only before"
    assert changes(found)["3"] == "only after"
    by_path = {each.path: each for each in found.agents}
    assert by_path["1.1"].after is None
    assert by_path["3"].before is None
    assert by_path["3"].after is not None
    assert by_path["3"].after.task == "C"
    assert not found.same


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"A": Reply("done", error=AuthenticationFailed("no", status_code=401))}, "status"),
        ({"A": "another answer"}, "answer"),
        ({"A": Reply("done: A", usage=Usage(7, 7))}, "tokens"),
    ],
)
def test_field_that_differs_is_named(other: dict[str, AnyReply], field: str) -> None:
    found = agentnb.compare(tree("A", "B"), tree("A", "B", **other))

    by_path = {each.path: each for each in found.agents}
    assert field in by_path["1"].differs
    assert by_path["2"].change == "same"
    assert not found.same


def test_other_task_is_named_with_its_words() -> None:
    usage = Usage(5, 5)
    before, after = (
        tree(task, **{task: Reply("done", usage=usage)})
        for task in ("Look at Paris", "Look at Rome")
    )

    (_, first) = agentnb.compare(before, after).agents

    assert first.differs == ("task",)
    assert first.words("task") == "Look at [-Paris-]{+Rome+}"


def test_cost_that_differs_is_named_although_the_tokens_are_the_same() -> None:
    agentnb.set_prices({"scripted": Price(1_000, 2_000)})
    one, other = (
        run_of(ScriptedProvider([Reply("x", usage=u)])) for u in (Usage(9, 1), Usage(1, 9))
    )

    found = agentnb.compare(one, other)

    assert found.agents[0].differs == ("cost_usd",)
    assert found.before.tokens == found.after.tokens == 10
    assert (found.before.cost_usd, found.after.cost_usd) == (0.011, 0.019)


def test_skipped_task_is_compared_too() -> None:
    found = agentnb.compare(tree("A", "Which capital?"), tree("A", "B"))

    before = found.agents[2].before
    assert found.agents[2].path == "2"
    assert before is not None
    assert before.status == "skipped"


def test_words_that_differ_in_an_answer_are_shown() -> None:
    found = agentnb.compare(tree("A"), tree("A", answer="It is London, on the Thames."))

    expected = "It is [-Paris-]{+London+}, on the [-Seine-]{+Thames+}."
    assert found.agents[0].words() == expected
    assert f"root, answer: {expected}" in str(found)
    html = found._repr_mimebundle_()["text/html"]
    assert "<del>Paris</del><ins>London</ins>, on" in html


def test_answers_that_differ_in_white_space_alone_are_not_the_same() -> None:
    found = agentnb.compare(tree("A", answer="a b"), tree("A", answer="a  b"))

    assert "answer" in found.agents[0].differs
    assert found.agents[0].words() == ""
    assert "white space" in str(found)


# -- which runs ------------------------------------------------------------------------------------


def test_live_loaded_and_stored_runs_and_results_are_compared_alike(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.db")
    provider = by_agent({"root": [spawn("A"), "It is Paris, on the Seine."]})
    stored = Session(provider=provider, store=path)
    run_id = stored.spawn("Which capital?").result(DEADLINE_S).record.id
    run = tree("A")
    run.to_json(tmp_path / "run.json")

    for other in (
        run.result(),
        agentnb.load_run(tmp_path / "run.json"),
        Session(provider=provider, store=path).load(run_id),
    ):
        assert agentnb.compare(run, other).same
        assert agentnb.compare(other, run).same


def test_run_that_goes_on_is_waited_for() -> None:
    hold = Hold()
    provider = ScriptedProvider([Reply("hello", pause=hold)])
    run = Session(provider=provider, store=None).spawn("Which capital?")
    hold.wait()
    other = run_of(ScriptedProvider(["hello"]))
    same: list[bool] = []
    thread = threading.Thread(target=lambda: same.append(agentnb.compare(run, other).same))
    thread.start()

    assert not same
    hold.release()
    thread.join(DEADLINE_S)

    assert same == [True]


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(ValueError, match="RunRecord"):
        agentnb.compare(tree("A"), "yesterday")  # type: ignore[arg-type]


# -- for a program, and shown ----------------------------------------------------------------------


def test_records_have_a_flat_row_for_each_agent() -> None:
    rows = agentnb.compare(tree("A", "B"), tree("A", A="another")).to_records()

    assert [row["path"] for row in rows] == ["root", "1", "2"]
    assert rows[1]["answer_before"] == "done: A"
    assert rows[1]["answer_after"] == "another"
    assert rows[2]["change"] == "only before"
    assert rows[2]["status_after"] is None
    assert {type(value) for row in rows for value in row.values()} <= {str, int, float, type(None)}
    assert len({tuple(row) for row in rows}) == 1


def test_comparison_of_large_runs_shows_the_first_and_counts_the_rest() -> None:
    tasks = [f"task {n}" for n in range(1_000)]
    before = tree(*tasks)
    after = tree(*tasks, **{task: f"other {task}" for task in tasks})

    found = agentnb.compare(before, after)

    assert sum(each.change == "changed" for each in found.agents) >= 1_000
    assert len(str(found).split("\n")) < 5 * ROWS
    assert len(repr(found)) < 200
    assert len(repr(found.agents)) < 200


def test_comparison_is_the_same_text_each_time_without_ids_and_times() -> None:
    texts = [
        agentnb.compare(tree("A", "B"), tree("A", A="x"))._repr_mimebundle_() for _ in range(2)
    ]

    assert texts[0] == texts[1]
    assert texts[0]["text/plain"] == str(agentnb.compare(tree("A", "B"), tree("A", A="x")))


def test_hostile_words_of_a_model_do_not_act() -> None:
    found = agentnb.compare(tree("A"), tree("A", answer="\x1b[31m<script>x</script>\u202e"))

    bundle = found._repr_mimebundle_()
    assert "\x1b" not in bundle["text/plain"]
    assert "\u202e" not in bundle["text/plain"]
    assert "<script>" not in bundle["text/html"]


def test_secret_in_an_answer_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789abcdef")

    found = agentnb.compare(tree("A"), tree("A", answer="It is sk-planted-0123456789abcdef"))

    shown = [str(found), str(found.to_records()), found._repr_mimebundle_()["text/html"]]
    assert [text for text in shown if "planted" in text] == []


# -- of two cassettes ------------------------------------------------------------------------------


def recorded(path: Path, name: str, *, model: ScriptedProvider, **more: Any) -> Run:
    options = {"mode": "record", "cassette": path, "store": None, **more}
    with Session(provider=model, **options) as session:
        run = session.spawn("Which capital?", name=name)
        try:
            run.result(DEADLINE_S)
        except OrchestratorError:
            pass
    return run


REFUSED = InvalidRequest("no such model", status_code=400)
RECORDED: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "alone": ({"root": "Rome."}, {}),
    "two levels": ({"root": [spawn("A & <B>", "B"), "Rome."], "B": [spawn("C"), "c"]}, {}),
    "a failed agent": ({"root": [spawn("A"), "x"], "A": Reply("", error=REFUSED)}, {}),
    "a failed root": ({"root": Reply("", error=REFUSED)}, {}),
    "a cut answer": ({"root": Reply("Ro", stop_reason="max_tokens")}, {}),
    "an exhausted run": (
        {"root": [spawn("A"), Reply("long", usage=Usage(900, 300)), "end"]},
        {"budget": 2_000},
    ),
}


@pytest.mark.parametrize("what", RECORDED)
def test_recorded_run_is_compared_as_the_run_itself(tmp_path: Path, what: str) -> None:
    replies, options = RECORDED[what]
    agentnb.set_prices({"scripted": Price(1, 2)})
    run = recorded(tmp_path / "a.cassette.jsonl", "a", model=by_agent(replies), **options)

    side = recorded_side(Cassette.read(tmp_path / "a.cassette.jsonl"), "a")

    assert Comparison(side_of(run), side).same
    assert side.agents.keys() == {row["path"] for row in run.to_records()}


def test_rows_of_a_recorded_table_have_their_tasks(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette.jsonl"
    model = ScriptedProvider(lambda _: "Yes.")
    with Session(provider=model, mode="record", cassette=path, store=None) as session:
        run = session.map(["aa", "bb"], "Is {{text}} a word?", name="a")
        run.result(DEADLINE_S)

    side = recorded_side(Cassette.read(path), "a")

    assert Comparison(side_of(run), side).same
    assert [agent.task for agent in side.agents.values()][1:] == [
        "Is aa a word?",
        "Is bb a word?",
    ]


def test_cassettes_are_compared_run_by_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.cassette.jsonl", tmp_path / "new.cassette.jsonl"
    kept, gone, made = (by_agent({"root": said}) for said in ("Rome.", "Oslo.", "Lima."))
    for path in (old, new):
        recorded(path, "kept", model=kept)
        answer = "It is Paris." if path == old else "It is Lyon."
        recorded(path, "changed", model=by_agent({"root": [spawn("A"), answer]}))
    recorded(old, "gone", model=gone)
    recorded(new, "made", model=made)

    assert main(["cassette", "diff", str(old), str(new)]) == 1
    said = capsys.readouterr().out
    assert main(["cassette", "diff", str(old), str(old)]) == 0
    same = capsys.readouterr().out
    assert main(["cassette", "diff", str(old), str(tmp_path / "nowhere")]) == 2

    assert "root, answer: It is [-Paris-]{+Lyon+}." in said
    assert "Run 'gone' is only in the cassette before." in said
    assert "Run 'made' is only in the cassette after." in said
    assert "kept" not in said
    assert said.endswith("4 runs: 1 changed, 1 only after, 1 only before, 1 same\n")
    assert same == "The recorded runs are the same.\n"
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("was", "now", "where"),
    [
        ("Rome is it", "Oslo is it", "root, reply 2: [-Rome-]{+Oslo+} is it"),
        ("cc", "dd", "agent 1, reply 2: [-cc-]{+dd+}"),
        ("3 degrees", "5 degrees", "agent 1, result of tool call 1: [-3-]{+5+} degrees"),
    ],
)
def test_reply_that_was_edited_is_named_though_the_runs_end_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], was: str, now: str, where: str
) -> None:
    old, new = tmp_path / "old.cassette.jsonl", tmp_path / "new.cassette.jsonl"

    @agentnb.tool
    def look() -> str:
        """Look."""
        return "3 degrees"

    use = Reply("", tool_uses=(ToolUse("u1", "look", {}),))
    model = by_agent({"root": [spawn("A"), "Rome is it"], "A": [use, "cc"]})
    recorded(old, "a", model=model, tools=[look])
    lines = old.read_text().splitlines()
    edited = [
        re.sub(rf'"(content|result)":"{was}"', rf'"\1":"{now}"', line)
        if '"kind":"call"' in line or '"kind":"tool_call"' in line
        else line
        for line in lines
    ]
    assert sum(one != other for one, other in zip(lines, edited, strict=True)) == 1
    new.write_text("\n".join([*edited, ""]))

    assert main(["cassette", "diff", str(old), str(new)]) == 1
    said = capsys.readouterr().out

    assert said.startswith(f"Run 'a':\n  {where}\n")
    assert said.endswith("1 run: 1 changed\n")


def test_recording_of_a_run_that_has_not_ended_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette.jsonl"
    recorded(path, "a", model=by_agent({"root": [spawn("A"), "x"]}))
    lines = [
        line for line in path.read_text().splitlines() if json.loads(line).get("kind") != "end"
    ]
    path.write_text("\n".join([*lines, ""]))

    side = recorded_side(Cassette.read(path), "a")

    assert {agent.status for agent in side.agents.values()} == {AgentStatus.RUNNING}
    assert side.totals.status == AgentStatus.RUNNING


def test_cassettes_that_differ_in_the_model_alone_are_not_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "other"):
        model = by_agent({"root": "Rome."})
        model.name = name
        recorded(tmp_path / name, "x", model=model)

    assert main(["cassette", "diff", str(tmp_path / "one"), str(tmp_path / "other")]) == 1
    assert "Run 'x' (one → other):" in capsys.readouterr().out
