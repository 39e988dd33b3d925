"""A run draws itself: in mid-run, at its end, and when it was loaded from a file."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.text import Text

from agentnb.providers.scripted import Reply
from agentnb.record import RunRecord, load_run
from agentnb.run import Run
from agentnb.session import Session
from tests.support import DEADLINE_S, Hold, by_agent, spawn


def words(figure: Figure) -> str:
    texts: list[Text] = figure.findobj(Text)
    return "\n".join(text.get_text() for text in texts)


def drawn(run: RunRecord) -> list[str]:
    return [words(figure) for figure in (run.plot(), run.plot_timeline(), run.plot_tokens())]


def a_run(hold: Hold | None = None) -> Run:
    task = "Count the books"
    provider = by_agent(
        {"root": [spawn(task), "all counted"], task: [Reply("one, two", pause=hold)]}
    )
    return Session(provider=provider).spawn("root")


def test_ended_and_loaded_run_draw_the_same(tmp_path: Path) -> None:
    run = a_run()
    run.result(DEADLINE_S)
    run.to_json(tmp_path / "run.json")

    loaded = drawn(load_run(tmp_path / "run.json"))

    assert loaded == drawn(run)
    assert all("Count the books" in text for text in loaded)
    assert all("2 completed" in text for text in loaded)


def test_run_that_goes_on_draws_what_there_is() -> None:
    hold = Hold()
    run = a_run(hold)
    assert hold.reached.wait(DEADLINE_S)

    tree, timeline, tokens = drawn(run)
    hold.release()
    run.result(DEADLINE_S)

    assert "running" in tree
    assert "Count the books" in timeline
    assert "2 completed" not in tokens
    assert "2 completed" in drawn(run)[2]
