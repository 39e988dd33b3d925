"""The three figures of a running, a finished and a loaded run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from agentnb.core.bus import EventBus
from agentnb.providers.scripted import Reply
from agentnb.record import RunRecord, load_run
from agentnb.session import Session
from tests.support import DEADLINE_S, Hold, by_agent, nothing_left_on_the_runtime, run_python, spawn

FIGURES = ("plot", "plot_timeline", "plot_tokens")


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with nothing_left_on_the_runtime():
        yield


def drawn(run: RunRecord, figure: str, *, dark: bool = False) -> bytes:
    """A picture, in a form that is equal for equal pictures."""
    made = getattr(run, figure)(dark=dark)
    assert isinstance(made, Figure)
    file = io.BytesIO()
    made.savefig(file, format="rgba", dpi=50)
    return file.getvalue()


@pytest.mark.parametrize("figure", FIGURES)
def test_figure_of_a_run_can_be_drawn_before_during_and_after_it_and_from_its_file(
    figure: str, tmp_path: Path
) -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A", "B"), "ok"], "A": Reply("half of it", pause=hold)})
    run = Session(provider=provider).spawn("root")
    hold.wait()

    in_between = drawn(run, figure)
    hold.release()
    run.result(DEADLINE_S)
    run.to_json(tmp_path / "run.json")

    assert drawn(RunRecord("r", "root", EventBus("r")), figure) != in_between
    assert drawn(run, figure) not in (in_between, drawn(run, figure, dark=True))
    assert drawn(load_run(tmp_path / "run.json"), figure) == drawn(run, figure)


def test_three_figures_are_three() -> None:
    run = Session(provider=by_agent({"root": [spawn("A", "B"), "ok"]})).spawn("root")
    run.result(DEADLINE_S)

    assert len({drawn(run, figure) for figure in FIGURES}) == 3


def test_matplotlib_is_loaded_by_a_figure_and_by_nothing_before_it() -> None:
    printed = run_python("""
        import sys
        import agentnb
        from agentnb.providers.scripted import ScriptedProvider
        run = agentnb.Session(provider=ScriptedProvider(["ok"])).spawn("a task")
        run.result(30)
        run.to_records(), run.to_json(), run.tree, repr(run), run.cost
        print("matplotlib" in sys.modules)
        run.plot()
        print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
    """)

    assert printed.split() == ["False", "True", "False"]
