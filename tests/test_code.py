"""Agents that run code: all the way from a session to a worker, and back.

`tests/workers` tests what one worker may do; this module, what a person and a model see of it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentnb
from agentnb import AgentStatus, Reply, ScriptedProvider, Session, ToolUse
from agentnb.code_places import InWorkers
from agentnb.core.errors import MissingExtra
from agentnb.core.types import CompletionRequest, MediaBlock, ToolResultBlock
from agentnb.testing import by_agent, requests_of, spawn
from agentnb.workers.inside.descendants import marked
from tests.recover_scene import killed
from tests.recover_scene import session_of as scene_of
from tests.support import DEADLINE_S

SALES = pd.DataFrame({"region": ["north", "south"] * 500, "units": range(1000)})
FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nNone"


def run_code(code: str, name: str = "c") -> Reply:
    return Reply(tool_uses=(ToolUse(name, "python", {"code": code}),))


def results(request: CompletionRequest) -> list[ToolResultBlock]:
    return [
        block
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


def session_of(provider: ScriptedProvider, **settings: Any) -> Session:
    return Session(provider=provider, **{"store": None, "code_memory": "600MB", **settings})


def mark_of(run: agentnb.Run[Any]) -> str:
    """The mark in the environment of a run's processes."""
    assert run._given is not None
    assert isinstance(run._given.code, InWorkers)
    return run._given.code.workers.mark


@pytest.fixture(scope="module")
def worked() -> Iterator[tuple[agentnb.Run[Any], ScriptedProvider]]:
    """One run for several tests: a root and two children that compute."""
    child, blind = "Fit {{sales}}.", "Think without."
    provider = by_agent(
        {
            "root": [
                run_code("by = sales.groupby('region').units.sum()\nsales['units'] = 0\nby", "r1"),
                run_code(FIGURE, "r2"),
                run_code("1 / 0", "r3"),
                spawn(child, blind),
                "done",
            ],
            child: [
                run_code("fit = sales.units.to_numpy() * 2\nby = 'mine'\nsorted(globals())", "c1"),
                "fitted",
            ],
            blind: [run_code("sales", "b1"), "nothing"],
        }
    )
    with session_of(provider) as session:
        give = {"sales": SALES, "secret": pd.DataFrame({"salary": [1]})}
        run = session.spawn("go", give=give, code="worker")
        run.result()
        yield run, provider


Worked = tuple["agentnb.Run[Any]", ScriptedProvider]


def test_code_computes_on_a_copy_and_the_persons_object_stays(worked: Worked) -> None:
    _, provider = worked
    result = results(requests_of(provider, "root")[1])[0]
    assert "north" in result.text
    assert SALES.units.sum() == 499_500


def test_objects_come_back_under_their_names(worked: Worked) -> None:
    run, _ = worked
    result = run.result()
    assert isinstance(result.objects["by"], pd.Series)
    assert result.objects["by"]["south"] == sum(range(1, 1000, 2))
    assert result.objects["by (1)"] == "mine"
    np.testing.assert_array_equal(result.objects["fit"], np.arange(1000) * 2)
    assert list(run.objects) == list(result.objects)
    assert "secret" not in result.objects
    with pytest.raises(KeyError, match="nothing"):
        run.objects["nothing"]


def test_child_has_what_it_was_handed_and_no_other_name(worked: Worked) -> None:
    _, provider = worked
    names = results(requests_of(provider, "Fit {{sales}}.")[1])[0].text
    assert "'sales'" in names
    assert "secret" not in names
    refused = results(requests_of(provider, "Think without.")[1])[0]
    assert refused.is_error
    assert "NameError" in refused.text
    for request in requests_of(provider, "Fit {{sales}}."):
        assert "secret" not in str(request.tools) + str(request.messages)


def test_figure_reaches_a_model_as_a_picture_or_as_a_line(worked: Worked) -> None:
    run, provider = worked
    (call,) = [each for each in run.agent("root").tool_calls if each.tool_use_id == "r2"]
    (picture,) = call.media
    assert isinstance(picture, MediaBlock)
    assert picture.media_type == "image/png"
    assert "figure" in results(requests_of(provider, "root")[2])[1].text


def test_error_of_the_code_is_an_error_result_with_its_line(worked: Worked) -> None:
    _, provider = worked
    result = results(requests_of(provider, "root")[3])[2]
    assert result.is_error
    assert "ZeroDivisionError" in result.text
    assert "1 / 0" in result.text


def test_code_of_a_run_is_every_cell_to_be_run_again(worked: Worked) -> None:
    run, _ = worked
    assert [cell.path for cell in run.code][:3] == ["root"] * 3
    assert sorted(cell.path for cell in run.code) == ["1", "2", "root", "root", "root"]
    assert [cell.is_error for cell in run.code if cell.path == "root"] == [False, False, True]
    names: dict[str, Any] = {"sales": SALES.copy()}
    exec(run.code[0], names)
    assert names["by"].equals(run.objects["by"])
    assert "# %% root" in str(run.code)
    assert agentnb.load_run is not None


def test_nothing_of_a_run_is_left_when_it_has_ended(worked: Worked) -> None:
    run, _ = worked
    assert marked(mark_of(run)) == []


def test_runaway_is_stopped_by_a_cancel_of_its_agent_and_its_parent_goes_on() -> None:
    started = threading.Event()
    child = "Run away."
    provider = by_agent(
        {
            "root": [spawn(child, "Stay."), "done without it"],
            child: [run_code("while True:\n    pass"), "never read"],
        }
    )
    with session_of(provider) as session:
        run = session.spawn("go", code="worker")
        _wait_for_tool(run, started)
        receipt = run.cancel("1")
        assert receipt.still_running == ()
        assert run.result().output == "done without it"
        assert run.agent("1").status is AgentStatus.CANCELLED
        assert marked(mark_of(run)) == []


def _wait_for_tool(run: agentnb.Run[Any], started: threading.Event) -> None:
    """Wait until code runs."""

    def look() -> None:
        import asyncio

        async def until_it_runs() -> None:
            async for entry in run.stream():
                if entry.event.kind == "tool_call_started":
                    started.set()
                    return

        asyncio.run(until_it_runs())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    assert started.wait(120)


def test_replay_runs_no_code_and_says_so_of_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: dict[str, list[Any]] = {"root": [run_code("table = 6 * 7\ntable"), "done"]}
    cassette = tmp_path / "x.cassette.jsonl"
    with session_of(by_agent(script), mode="record", cassette=cassette) as session:
        recorded = session.spawn("go", code="worker")
        assert recorded.result().objects["table"] == 42
    monkeypatch.setitem(sys.modules, "ipykernel", None)  # a replay needs no extra
    with session_of(by_agent({}), mode="replay", cassette=cassette) as session:
        run = session.spawn("go", code="worker")
        assert run.result().output == "done"
        assert [call.result for call in run.agent("root").tool_calls] == [
            call.result for call in recorded.agent("root").tool_calls
        ]
        assert list(run.code) == list(recorded.code)
        with pytest.raises(KeyError, match="replay"):
            run.objects["table"]


def test_run_whose_code_nothing_can_run_is_refused_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    session = session_of(by_agent({}))

    with pytest.raises(MissingExtra, match=r"pip install 'agentnb\[code\]'"):
        session.spawn("go", code="worker")


def test_recovered_run_runs_no_cell_twice_and_says_that_the_objects_are_gone(
    tmp_path: Path,
) -> None:
    run_id = killed(tmp_path / "x.db", "runs code")
    session, provider = scene_of(tmp_path / "x.db", "runs code")
    run = session.recover(run_id)
    assert run.result(DEADLINE_S).output == "Done."
    first, unknown, gone, fresh = results(provider.requests[-1])
    assert first.text.startswith("6\n")
    assert "nobody knows whether it did" in unknown.text
    assert gone.is_error
    assert "went with the kernel" in gone.text
    assert fresh.is_error
    assert "NameError" in fresh.text
    assert "fresh worker" in fresh.text
    assert "`numbers`" in fresh.text
    assert run.receipt is not None
    assert len(run.receipt.uncertain) == 1
    assert "numbers" in str(provider.requests[0].messages[0])


def test_record_keeps_that_code_ran_and_holds_no_object(tmp_path: Path) -> None:
    provider = by_agent({"root": [run_code("a = 1"), "done"]})
    with session_of(provider, store=tmp_path / "x.db") as session:
        run = session.spawn("go", give={"sales": SALES}, code="worker")
        run.result()
        kept = session.load(run.id)
        text = run.to_json()
    assert list(kept.code) == ["a = 1"]
    assert json.loads(text)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("code_memory", "2"), ("code_memory", "1MB"), ("code_time_s", 0), ("code_workers", 0)],
)
def test_wrong_limits_of_code_are_refused(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=setting):
        Session(**{setting: value})
