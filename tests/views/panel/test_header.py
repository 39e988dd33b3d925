"""The header and the bar: how a run stands, in shape, colour and words."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from ipywidgets import Widget

from agentnb.core.types import AgentStatus, RunUsage, Usage
from agentnb.views.figures.words import counted
from agentnb.views.panel.clock import clock
from agentnb.views.panel.controls import BudgetBar, bar_markup
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.header import Header
from agentnb.views.panel.map_fold import MapShape
from agentnb.views.panel.map_panel import MapPanel
from agentnb.views.panel.panel import RunPanel
from tests.views.panel.manual_run import ManualRun
from tests.views.panel.stage import FrontEnd, Stage

HOSTILE = '<img src=x onerror="alert(1)">\x1b[31m\u202e'


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    yield
    Widget.close_all()


def plain(markup: str) -> str:
    """What is read of a piece of markup."""
    return " ".join(re.sub("<[^>]*>", " ", markup).split())


def read(header: Header) -> str:
    return " | ".join(plain(child.value) for child in header.children)


def test_header_shows_status_time_agents_tokens_cost_and_what_is_waited_for() -> None:
    header = Header(
        Stage(
            status=AgentStatus.WAITING,
            at_s=75.9,
            agents=5,
            by_status={AgentStatus.COMPLETED: 3, AgentStatus.WAITING: 2},
            tokens_used=12_345,
            cost="about $0.0123 (estimate)",
            doing="waiting for the first token",
        )
    )

    assert read(header) == (
        "‖ waiting | 1:15 5 agents: 2 waiting, 3 completed 12,345 tokens "
        "about $0.0123 (estimate) waiting for the first token"
    )


def test_header_leaves_out_what_is_not_known() -> None:
    header = Header(Stage(agents=1, by_status={AgentStatus.RUNNING: 1}))

    assert read(header) == "► running | 0:00 1 agent: 1 running 0 tokens"


def test_share_of_the_input_from_the_cache_stands_behind_the_tokens() -> None:
    usage = RunUsage(input_tokens=580, output_tokens=9, cached_tokens=420)

    header = Header(Stage(tokens_used=631, usage=usage, cost="about $0.01 (estimate)"))

    words = "631 tokens 42 % of input from cache (420 tokens) about $0.01 (estimate)"
    assert words in read(header)


@pytest.mark.parametrize("is_map", [False, True])
def test_share_from_the_cache_follows_the_calls_of_a_tree_and_of_a_map(is_map: bool) -> None:
    run = ManualRun().began()
    for path in ("1", "2"):
        run.spawned(path).called(path)
    publisher = FramePublisher(run.bus)
    panel = MapPanel(publisher, MapShape(2)) if is_map else RunPanel(publisher)
    (header,) = [part for part in panel.children[0].children if isinstance(part, Header)]

    def shown_after(*usages: tuple[str, Usage]) -> str:
        with publisher.lock:
            for path, usage in usages:
                run.after(2).replied(path, usage=usage)
            publisher._tick()
        return read(header)

    assert "cache" not in shown_after()
    assert "0 % of input from cache" in shown_after(("1", Usage(10, 5, 90)))
    assert "45 % of input from cache (90 tokens)" in shown_after(("2", Usage(10, 5, 0, 90)))
    run.ended()
    panel.close()


def test_status_is_sent_when_it_changes_and_at_no_other_time() -> None:
    stage = Stage()
    status, facts = (FrontEnd(child) for child in Header(stage).children)

    stage.frame(at_s=1.0, tokens_used=5)
    assert status.messages == []
    assert len(facts.messages) == 1
    stage.frame(status=AgentStatus.COMPLETED)

    (message,) = status.messages
    assert plain(message["value"]) == "✓ completed"
    assert 'role="status"' in message["value"]
    assert "role=" not in facts.state["value"]


def test_time_alone_is_sent_at_most_once_a_second() -> None:
    stage = Stage(at_s=5.0)
    _, facts = (FrontEnd(child) for child in Header(stage).children)

    for at_s in (5.1, 5.5, 5.99):
        stage.frame(at_s=at_s)
    assert facts.messages == []
    stage.frame(at_s=6.0)

    assert len(facts.messages) == 1


def test_how_many_agents_are_at_what_is_shown_at_once_as_in_the_tree() -> None:
    stage = Stage(at_s=5.0)
    _, facts = (FrontEnd(child) for child in Header(stage).children)

    stage.frame(at_s=5.1, agents=3, by_status={AgentStatus.RUNNING: 3})
    stage.frame(at_s=5.2, doing="2 working below")

    assert len(facts.messages) == 2
    assert "3 agents: 3 running" in plain(facts.messages[0]["value"])


def test_numbers_that_grow_are_sent_at_a_pace_and_the_last_ones_always() -> None:
    stage = Stage(at_s=5.0, tokens_used=1)
    page = FrontEnd(BudgetBar(stage))

    for tokens_used in (2, 3, 4):
        stage.frame(tokens_used=tokens_used, at_s=5.1)
    assert page.messages == []
    stage.frame(tokens_used=5, at_s=5.1, done=True)

    said, saved = page.messages
    assert said == saved
    assert "5 of 50,000 tokens" in plain(saved["value"])


@pytest.mark.parametrize("status", AgentStatus)
def test_every_status_has_a_shape_and_its_word(status: AgentStatus) -> None:
    shape, word = plain(Header(Stage(status=status)).children[0].value).split()

    assert word == status
    assert len(shape) == 1


def test_hostile_words_are_shown_as_text() -> None:
    facts = Header(Stage(doing=HOSTILE, cost=HOSTILE)).children[1].value

    assert "<img" not in facts
    assert "\x1b" not in facts
    assert "\u202e" not in facts
    assert facts.count("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;\\x1b[31m\\u202e") == 2


@pytest.mark.parametrize(
    ("used", "total", "words"),
    [
        (12_345, 50_000, "12,345 of 50,000 tokens (25 %)"),
        (0, 50_000, "0 of 50,000 tokens (0 %)"),
        (39_999, 50_000, "39,999 of 50,000 tokens (79 %)"),
        (40_000, 50_000, "40,000 of 50,000 tokens (80 %), running low"),
        (49_999, 50_000, "49,999 of 50,000 tokens (99 %), running low"),
        (50_000, 50_000, "50,000 of 50,000 tokens (100 %), used up"),
        (52_000, 50_000, "52,000 of 50,000 tokens (104 %), used up"),
        (0, 0, "0 of 0 tokens (100 %), used up"),
        (10**400, 10**400, f"{10**400:,} of {10**400:,} tokens (100 %), used up"),
    ],
)
def test_bar_shows_in_words_what_its_colour_and_length_show(
    used: int, total: int, words: str
) -> None:
    markup = bar_markup(used, total)

    assert plain(markup) == words
    assert f'aria-valuetext="{words}"' in markup


def test_bar_is_as_long_as_what_is_used_and_never_longer_than_itself() -> None:
    assert 'aria-valuenow="25"' in bar_markup(25, 100)
    assert "width:25%" in bar_markup(25, 100)
    assert 'aria-valuenow="100"' in bar_markup(150, 100)
    assert "width:100%" in bar_markup(150, 100)


def test_bar_changes_its_colour_with_its_word() -> None:
    colours = {re.search('background:([^"]*)', bar_markup(used, 100))[1] for used in (1, 80, 100)}  # type: ignore[index]

    assert len(colours) == 3


def test_bar_follows_the_run() -> None:
    stage = Stage(tokens_used=100, budget_total=1_000)
    page = FrontEnd(BudgetBar(stage))

    stage.frame(tokens_used=900, at_s=60.0)

    assert plain(page.state["value"]) == "900 of 1,000 tokens (90 %), running low"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0:00"),
        (0.9, "0:00"),
        (59.99, "0:59"),
        (60, "1:00"),
        (3599, "59:59"),
        (3600, "1:00:00"),
    ],
)
def test_clock_shows_whole_seconds(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_counts_are_in_the_singular_for_one() -> None:
    assert [counted(n, "agent") for n in (0, 1, 1_000)] == ["0 agents", "1 agent", "1,000 agents"]
