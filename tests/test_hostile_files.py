"""Files from a stranger: one clear error at once, or a record that can be viewed in every way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

from agentnb.config.load import load_config
from agentnb.config.schema import Hints
from agentnb.core.budget import RequestBudget
from agentnb.core.errors import UnreadableRun
from agentnb.core.types import MOST, AgentConfig
from agentnb.record import load_run
from agentnb.session import Session
from tests.hostile_runs import Mutator, deep, look_at_everything
from tests.test_conversation import SCENES, played
from tests.test_record import a_run

OLD = Path(__file__).parent / "core" / "data" / "run_version_1.json"
SEED = 13


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(a_run().to_json())
    return document


@pytest.fixture(scope="module")
def saved_with_tools() -> dict[str, Any]:
    """A run whose events cut the input and the result of a tool call."""
    run, _ = played(SCENES["out of turns"])
    document: dict[str, Any] = json.loads(run.to_json())
    return document


def changed(saved: dict[str, Any], change: Callable[[Any, Any], object]) -> str:
    """A saved run as text; `change` gets the document and, by kind, each kind's first event."""
    document = json.loads(json.dumps(saved))
    first: dict[str, Any] = {}
    for line in document["entries"]:
        first.setdefault(line["kind"], line)
    change(document, first)
    return json.dumps(document)


def set_to(kind: str, **fields: Any) -> Callable[[Any, Any], object]:
    return lambda _, first: first[kind].update(fields)


def added(**fields: Any) -> Callable[[Any, Any], object]:
    """Add one event before the last; of the root, if it is an agent's event."""

    def add(document: Any, first: Any) -> None:
        last = document["entries"][-1]
        root = {"agent_id": first["agent_spawned"]["agent_id"]}
        document["entries"].insert(-1, {"at_s": last["at_s"]} | root | fields)

    return add


def with_cut(**fields: Any) -> Callable[[Any, Any], object]:
    return lambda document, _: document["tool_calls"][0].update(fields)


def without_results(document: Any, first: Any) -> None:
    document["entries"] = [e for e in document["entries"] if e["kind"] != "tool_call_finished"]


def later_but_the_last(document: Any, first: Any) -> None:
    for line in document["entries"][:-1]:
        line["at_s"] += 5e8


def spawned_again(document: Any, first: Any) -> None:
    document["entries"].append(first["agent_spawned"] | {"at_s": 1e6})


PAUSED = {"kind": "budget_paused", "tokens_used": 1, "budget_total": 2, "percentage": 50}
LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (later_but_the_last, "`at_s` is before the time of an event that came earlier"),
        (set_to("run_started", budget_total="0x" + "f" * 1_000_000), "`budget_total`: it is not"),
        (set_to("run_started", budget_total=10**400), "`budget_total`: it is not"),
        (set_to("run_started", max_depth=-1), "`max_depth`: it is not between 0 and 1e+24"),
        (set_to("budget_update", percentage="nan"), "`percentage`: it is not between"),
        (set_to("budget_update", percentage="inf"), "`percentage`: it is not between"),
        (set_to("model_call_finished", usage={"input_tokens": 10**25}), "`usage`: `input_"),
        (added(**PAUSED, wait_s="nan"), "`wait_s`: it is not between 0 and 1e+24"),
        (added(kind="agent_waiting", reason="r", wait_s="inf"), "`wait_s`: it is not between"),
        (set_to("tool_call_started", input={"a": [10**900]}), "`input`: it contains a number of "),
        (set_to("agent_spawned", agent_id="nb." + "9" * 5_000), "an id has at most 1,000 "),
        (added(kind="synthesis_started", agent_id="nobody", total=1), "no agent 'nobody' was"),
        (lambda d, _: d["entries"][11].update(parent_id="nobody"), "there is no agent 'nobody'"),
        (lambda d, _: d["entries"][11].update(agent_id="other"),
         "'other' is not a sub-agent of its "),
        (lambda d, _: d["entries"][11].update(depth=9), "`depth` is not one more than"),
        (spawned_again, "is spawned a second time"),
        (lambda d, _: d.update(run_id=LONG), "an id has at most 1,000 char"),
        (lambda d, _: d.update(version=3, agentnb=LONG), "it has version 3 of the format"),
        (lambda d, _: d.update(version=[LONG]), "its `version` is ['xxx"),
        (set_to("run_finished", status=LONG), "`status`: 'xxx"),
        (lambda _, first: first["run_finished"].update(kind=LONG), "is of the kind 'xxx"),
    ],
)  # fmt: skip
def test_run_that_cannot_have_been_is_refused_in_one_short_sentence(
    saved: dict[str, Any],
    tmp_path: Path,
    change: Callable[[Any, Any], object],
    complaint: str,
) -> None:
    path = tmp_path / "run.json"
    path.write_text(changed(saved, change))

    with pytest.raises(UnreadableRun) as refused:
        load_run(path)

    assert complaint in str(refused.value)
    assert len(str(refused.value)) < 500 + len(str(path))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (with_cut(input={"a": [10**900]}), "its tool call 0 is invalid: `input`: it contains a "),
        (with_cut(input=deep(200)), "its tool call 0 is invalid: `input`: it contains lists and"),
        (with_cut(result=[LONG]), "its tool call 0 is invalid: its `result` is not a string"),
        (with_cut(agent_id=LONG), "its tool call 0 is invalid: agent 'xxx"),
        (with_cut(number=10**24), "has no tool call 1000000000000000000000000. "),
        (lambda d, _: d["tool_calls"].append({}), "its tool call 1 is invalid: it lacks a string"),
        (lambda d, _: d["tool_calls"].append(LONG), "its tool call 1 is invalid: it is not an"),
        (lambda d, _: d.update(tool_calls=LONG), "its `tool_calls` is not a list"),
        (set_to("tool_call_started", input_length=None), "it must have what its events cut"),
        (without_results, "it must have what its events cut"),
    ],
)  # fmt: skip
def test_whole_values_that_no_run_can_have_had_are_refused_in_one_short_sentence(
    saved_with_tools: dict[str, Any],
    tmp_path: Path,
    change: Callable[[Any, Any], object],
    complaint: str,
) -> None:
    path = tmp_path / "run.json"
    path.write_text(changed(saved_with_tools, change))

    with pytest.raises(UnreadableRun) as refused:
        load_run(path)

    assert complaint in str(refused.value)
    assert len(str(refused.value)) < 500 + len(str(path))


def test_numbers_beyond_those_of_a_computer_are_refused_where_anything_may_stand(
    saved: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    text = changed(saved, set_to("tool_call_started", input={"a": "HERE"}))
    path.write_text(text.replace('"HERE"', "1e999"))

    with pytest.raises(UnreadableRun, match="it contains a number that is not finite"):
        load_run(path)


def test_time_that_two_threads_took_at_once_may_go_back_a_little(
    saved: dict[str, Any], tmp_path: Path
) -> None:
    def shifted(document: Any, first: Any) -> None:
        for line in document["entries"]:
            line["at_s"] += 0.5
        document["entries"][-1]["at_s"] = 1e-9  # the figure's end is no billionth of its length

    (tmp_path / "run.json").write_text(changed(saved, shifted))

    look_at_everything(load_run(tmp_path / "run.json"))


@pytest.mark.parametrize(
    "change",
    [
        set_to("budget_update", budget_total=MOST, tokens_used=MOST, percentage=1e24),
        set_to("model_call_finished", usage={"input_tokens": MOST, "cache_read_tokens": MOST}),
        set_to("run_finished", at_s=9.9e8, duration_ms=MOST),
        added(**PAUSED, wait_s="inf"),
        added(kind="agent_waiting", reason="r", wait_s=1e24),
        set_to("tool_call_started", name="\x1b" + LONG, tool_use_id=LONG),
        lambda d, _: d["entries"].pop(),
    ],
    ids=["pot", "usage", "late", "patient", "waiting", "names", "goes on"],
)
def test_run_at_the_edge_of_what_can_be_is_looked_at_like_any_other(
    saved: dict[str, Any], tmp_path: Path, change: Callable[[Any, Any], object]
) -> None:
    (tmp_path / "run.json").write_text(changed(saved, change))

    look_at_everything(load_run(tmp_path / "run.json"))


def test_mutated_run_is_refused_or_every_look_at_it_works(
    saved: dict[str, Any], saved_with_tools: dict[str, Any], tmp_path: Path
) -> None:
    mutator = Mutator(SEED)
    documents = [saved, json.loads(OLD.read_text("utf-8")), saved_with_tools]
    path = tmp_path / "run.json"
    refused, looked = list[str](), 0
    for number in range(180):
        path.write_text(mutator.changed(documents[number % 3]))
        try:
            record = load_run(path)
        except UnreadableRun as error:
            refused.append(str(error))
            continue
        look_at_everything(record, with_pictures=number % 30 == 0)
        looked += 1

    assert len(refused) > 25
    assert max(map(len, refused)) < 1_000
    assert looked > 25


# -- not a regular file ---------------------------------------------------------------------------


def test_pipe_and_device_are_no_runs_and_nobody_waits_for_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(UnreadableRun, match="it is not a regular file but a pipe or a device"):
            load_run(path)


def test_link_to_a_saved_run_is_read(saved: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(saved))
    (tmp_path / "link.json").symlink_to(tmp_path / "run.json")

    assert load_run(tmp_path / "link.json").id == saved["run_id"]


def test_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(2**40)  # a sparse file: it takes no room

    with pytest.raises(UnreadableRun, match="it is larger than 1,073,741,824 bytes"):
        load_run(tmp_path / "large.json")


def test_name_of_a_file_is_cut_in_the_error_and_in_its_cause() -> None:
    with pytest.raises(UnreadableRun) as refused:
        load_run("n" * 1_000_000)

    assert len(str(refused.value)) < 500
    assert len(str(refused.value.__cause__)) < 500


# -- limits of a run, so that its file can be read ------------------------------------------------


def test_number_that_no_record_could_hold_is_refused_where_it_is_given() -> None:
    for settings in ({"budget": MOST + 1}, {"max_depth": MOST + 1}):
        with pytest.raises(ValueError, match=r"must be at most 1e\+24"):
            Session(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be at most 1e\+24"):
        AgentConfig(max_output_tokens=MOST + 1)
    assert RequestBudget(MOST).total == MOST


# -- a settings file ------------------------------------------------------------------------------


def settings_file(count: int) -> str:
    lines = ["llm:", "  pools:"]
    lines += [f"    agent{n}: [demo/demo]" for n in range(count)]
    lines += ["tools:", "  spawn:", "    profiles:"]
    lines += [f"      r{n}: {{pool: agentx{n}}}" for n in range(count)]
    return "\n".join(lines)


def test_file_of_wrong_names_is_told_in_linear_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    original = SequenceMatcher.real_quick_ratio

    def counting(self: Any) -> float:
        nonlocal compared
        compared += 1
        return original(self)

    monkeypatch.setattr(SequenceMatcher, "real_quick_ratio", counting)
    work, told = [], []
    for count in (200, 1_600):
        (tmp_path / "agentnb.yaml").write_text(settings_file(count))
        compared = 0
        config = load_config(tmp_path)
        work.append(compared)
        told.append(max(len(each.what) for own in config.broken.values() for each in own))
        assert len(config.broken) == count

    assert max(work) <= 20_000
    assert max(told) < 2_000


def test_near_name_is_suggested_until_the_comparisons_are_used_up() -> None:
    hints = Hints(comparisons=5)

    assert hints.nearest("fats", ["fast", "slow"]) == "fast"
    assert hints.nearest("solw", ["fast", "slow"]) == "slow"
    assert hints.nearest("fats", ["fast", "slow"]) is None
