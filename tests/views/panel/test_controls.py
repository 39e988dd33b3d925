"""The controls of a run: what they show, what they order, and what is no order."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ipywidgets import Widget, link

import agentnb
from agentnb.errors import NotebookError
from agentnb.runtime import get_runtime
from agentnb.views.panel.controls import BudgetNumber, BudgetSlider, CancelButton, PauseButton
from agentnb.views.panel.limits import CEILING_VARIABLE, LARGEST
from tests.support import DEADLINE_S
from tests.views.panel.stage import FrontEnd, Stage, open_widgets

KINDS = (BudgetSlider, BudgetNumber)
BOTH = pytest.mark.parametrize("kind", KINDS)
Kind = Callable[[Stage], Widget]


@pytest.fixture(autouse=True)
def _no_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CEILING_VARIABLE, raising=False)


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    yield
    Widget.close_all()


class Hand:
    """A person at one control: what they see of it, and set there."""

    def __init__(self, control: Widget) -> None:
        self._control = control
        self.page = FrontEnd(getattr(control, "field", control))

    @property
    def state(self) -> dict[str, Any]:
        state = self.page.state
        return {**state, "value": int(state["value"]), "max": self._control.max}

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.page.messages

    def moves(self, *, value: object) -> None:
        is_text = isinstance(self._control, BudgetNumber) and isinstance(value, int)
        self.page.moves(value=str(value) if is_text else value)


def line_of(number: BudgetNumber) -> str:
    """What the number says below its field."""
    return html.unescape(re.sub(r"<[^>]*>", "", str(number.line.value)))


def told_by(control: Widget, stage: Stage) -> str:
    """What a person is told: below the field, or beside the tree."""
    if isinstance(control, BudgetNumber):
        return line_of(control)
    (notice,) = stage.whole().summary.notices
    return notice


# -- the budget -------------------------------------------------------------------------------


@BOTH
def test_budget_control_begins_with_the_total(kind: Kind) -> None:
    control = kind(Stage(budget_total=123_456))

    assert (control.value, control.disabled) == (123_456, False)
    assert Hand(control).state["value"] == 123_456


def test_slider_ends_at_about_twice_the_total_and_the_number_takes_any() -> None:
    stage = Stage(budget_total=50_000)

    slider, number = BudgetSlider(stage), BudgetNumber(stage)

    assert (slider.max, slider.step, slider.continuous_update) == (100_000, 500, False)
    assert number.max == LARGEST


@BOTH
def test_what_a_person_sets_is_commanded_once(kind: Kind) -> None:
    stage = Stage()
    page = Hand(kind(stage))

    page.moves(value=80_000)
    stage.work()
    stage.frame()

    assert stage.given == [("set_budget", 80_000)]
    assert page.state["value"] == 80_000


@BOTH
def test_what_python_sets_is_commanded_too(kind: Kind) -> None:
    stage = Stage()
    control = kind(stage)

    control.value = 30_000
    stage.work()

    assert stage.given == [("set_budget", 30_000)]


@BOTH
def test_total_that_is_set_elsewhere_is_shown_and_is_not_a_command(kind: Kind) -> None:
    stage = Stage()
    control = kind(stage)

    stage.frame(budget_total=345_678)
    stage.work()

    assert control.value == 345_678
    assert stage.given == []


def test_slider_grows_with_the_total() -> None:
    stage = Stage(budget_total=50_000)
    slider = BudgetSlider(stage)

    stage.frame(budget_total=400_000)

    assert (slider.value, slider.max, slider.step) == (400_000, 800_000, 5_000)


@BOTH
def test_frame_on_its_way_does_not_move_the_control_back(kind: Kind) -> None:
    stage = Stage(budget_total=50_000)
    page = Hand(kind(stage))

    page.moves(value=80_000)
    stage.stale_frame(budget_total=50_000)
    stage.work()
    stage.stale_frame(budget_total=50_000)
    stage.frame()
    stage.work()

    assert all(int(message.get("value", 80_000)) == 80_000 for message in page.messages)
    assert page.state["value"] == 80_000
    assert stage.given == [("set_budget", 80_000)]


@BOTH
def test_frames_send_nothing_while_the_total_stays(kind: Kind) -> None:
    # A front end writes anew what a person is typing when it hears anything of the widget.
    stage = Stage()
    page = Hand(kind(stage))

    stage.frame(tokens_used=10_000, at_s=3.0, notices=("Something.",))

    assert page.messages == []


def test_number_below_what_is_used_is_refused_and_says_why() -> None:
    stage = Stage(budget_total=50_000, tokens_used=12_345)
    number = BudgetNumber(stage)
    page = Hand(number)

    page.moves(value=200)
    stage.work()
    stage.frame()

    assert stage.given == []
    assert page.state["value"] == 50_000
    assert line_of(number).startswith("The budget stays at 50,000 tokens: 12,345 are already used")
    assert stage.whole().summary.notices == ()


@BOTH
def test_total_above_the_ceiling_is_the_ceiling_and_that_is_reported(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTNB_BUDGET_CEILING", "60_000")
    stage = Stage(budget_total=50_000)
    control = kind(stage)

    control._set_total(stage, 90_000)
    stage.work()
    stage.frame()

    assert stage.given == [("set_budget", 60_000)]
    words = "The budget is set to 60,000 tokens: that is the maximum."
    assert told_by(control, stage) == words


def test_slider_below_what_is_used_becomes_what_is_used_and_says_why() -> None:
    stage = Stage(budget_total=50_000, tokens_used=12_345)
    page = FrontEnd(BudgetSlider(stage))

    page.moves(value=10)
    stage.work()
    stage.frame()

    assert stage.given == [("set_budget", 12_345)]
    assert page.state["value"] == 12_345
    (notice,) = stage.whole().summary.notices
    assert "12,345 tokens" in notice
    assert "already used" in notice


@BOTH
def test_total_below_what_is_used_is_put_right_also_when_nothing_changes_by_it(kind: Kind) -> None:
    stage = Stage(budget_total=50_000, tokens_used=50_000)
    page = Hand(kind(stage))

    page.moves(value=40_000)
    stage.work()

    assert stage.given == []
    assert page.state["value"] == 50_000


def test_slider_shows_what_is_used_beyond_its_end() -> None:
    stage = Stage(budget_total=400, tokens_used=5_000)
    page = FrontEnd(BudgetSlider(stage))

    page.moves(value=700)
    stage.work()

    assert stage.given == [("set_budget", 5_000)]
    assert (page.state["value"], page.state["max"]) == (5_000, 10_000)


def test_controls_of_a_budget_of_money_speak_of_dollars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CEILING_VARIABLE, "60_000")  # of tokens: it does not hold here
    stage = Stage(budget_total=4_000_000, tokens_used=1_500_000, unit="usd")
    slider, number = BudgetSlider(stage), BudgetNumber(stage)
    assert (slider.description, slider.readout) == ("Budget $4.00", False)
    assert "agentnb-in-dollars" in slider._dom_classes
    assert (number.field.description, number.field.value) == ("Total dollars", "$4")

    page = FrontEnd(number.field)
    page.moves(value="6.5")
    stage.work()
    stage.frame()
    assert stage.given == [("set_budget", 6_500_000)]
    assert (slider.description, page.state["value"]) == ("Budget $6.50", "$6.50")
    assert line_of(number) == "6.5 is $6.50."

    for typed, why in {"$1": "$1.50 is already used", "€3": "not in dollars"}.items():
        page.moves(value=typed)
        assert why in line_of(number)
    assert len(stage.given) == 1


def test_controls_that_are_shown_before_their_run_begins_know_its_unit() -> None:
    hold = threading.Event()
    agentnb.set_prices({"scripted": agentnb.Price(3, 15)})
    get_runtime().call_soon(hold.wait)
    with agentnb.Session(provider=agentnb.ScriptedProvider(["Done."]), store=None) as session:
        try:
            run = session.spawn("Do it.", budget="$4")
            slider, number = run.budget_slider(), run.budget_number()
            assert not run.events
        finally:
            hold.set()
            agentnb.set_prices({})
        run.result(DEADLINE_S)

    assert (slider.description, number.field.description) == ("Budget $4.00", "Total dollars")
    assert number.field.value == "$4"


@BOTH
def test_control_ends_at_the_ceiling(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CEILING_VARIABLE, "60_000")
    stage = Stage(budget_total=50_000)
    control = kind(stage)

    control.value = 10**9
    stage.work()

    assert control.max == 60_000
    assert stage.given == [("set_budget", 60_000)]


@BOTH
def test_total_above_the_ceiling_is_shown_and_can_be_lowered_for_good(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CEILING_VARIABLE, "60_000")
    stage = Stage(budget_total=90_000)
    page = Hand(kind(stage))

    assert (page.state["value"], page.state["max"]) == (90_000, 90_000)
    page.moves(value=30_000)
    stage.work()
    stage.frame()

    assert stage.given == [("set_budget", 30_000)]
    assert (page.state["value"], page.state["max"]) == (30_000, 60_000)


@BOTH
def test_ceiling_that_is_no_number_is_an_error_where_the_control_is_made(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CEILING_VARIABLE, "plenty")

    with pytest.raises(NotebookError, match=CEILING_VARIABLE):
        kind(Stage())


@BOTH
def test_order_that_cannot_be_given_puts_the_control_back_and_says_why(kind: Kind) -> None:
    stage = Stage(budget_total=50_000)
    page = Hand(kind(stage))
    stage.is_gone = True

    page.moves(value=80_000)

    assert page.state["value"] == 50_000
    assert stage.whole().summary.notices == ("The loop of this run is gone.",)


@BOTH
def test_order_that_the_run_refuses_puts_the_control_back_and_says_why(kind: Kind) -> None:
    stage = Stage(budget_total=50_000)
    page = Hand(kind(stage))
    stage.failing = ValueError("No.")

    page.moves(value=80_000)
    stage.work()
    stage.frame()

    assert page.state["value"] == 50_000
    assert stage.whole().summary.notices == ("No.",)


@BOTH
def test_control_of_a_run_that_is_done_shows_its_total_and_is_disabled(kind: Kind) -> None:
    stage = Stage(budget_total=50_000)
    page = Hand(kind(stage))
    page.moves(value=80_000)

    stage.frame(done=True)

    assert (page.state["value"], page.state["disabled"]) == (50_000, True)
    page.moves(value=70_000)  # it was on its way
    assert page.state["value"] == 50_000
    stage.work()
    assert stage.given == [("set_budget", 80_000)]


NONSENSE: tuple[object, ...] = (None, [], float("nan"), float("inf"))


@pytest.mark.parametrize(
    ("kind", "nonsense"),
    [(BudgetSlider, "many"), *((kind, one) for kind in KINDS for one in NONSENSE)],
)
def test_nonsense_of_a_front_end_is_reported_and_put_right(
    kind: Kind, nonsense: object, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(budget_total=50_000)
    page = Hand(kind(stage))

    page.moves(value=nonsense)
    stage.work()

    assert page.state["value"] == 50_000
    assert stage.given == []
    assert len(stage.whole().summary.notices) == 1
    assert capsys.readouterr() == ("", "")


# -- what is typed ----------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["2e5", "200,000", "200 000", "200k", " 200_000 tokens "])
def test_number_is_taken_however_it_is_written_and_says_how_it_was_read(typed: str) -> None:
    stage = Stage(budget_total=50_000)
    number = BudgetNumber(stage)
    page = FrontEnd(number.field)

    page.moves(value=typed)
    stage.work()
    stage.frame()

    assert stage.given == [("set_budget", 200_000)]
    assert page.state["value"] == "200000"
    assert line_of(number) == f"{typed.strip()} is 200,000 tokens."
    assert 'role="status"' in number.line.value
    page.moves(value="300000")
    assert line_of(number) == ""


@pytest.mark.parametrize("typed", ["200.000", "1,5e5", "1.5", "-5", "many", "2e", "<b>7</b>"])
def test_number_that_is_unclear_changes_nothing_stays_to_be_corrected_and_says_why(
    typed: str,
) -> None:
    stage = Stage(budget_total=50_000)
    number = BudgetNumber(stage)
    page = FrontEnd(number.field)

    page.moves(value=typed)
    stage.work()
    stage.frame(tokens_used=7, at_s=3.0)

    assert stage.given == []
    assert number.value == 50_000
    assert page.state["value"] == typed
    assert typed in line_of(number)
    assert line_of(number).endswith("The total stays as it is.")
    assert 'role="alert"' in number.line.value
    assert "<b>" not in number.line.value
    assert number.line.layout.display == ""


def test_unclear_number_is_given_up_when_it_is_emptied_or_another_total_is_set() -> None:
    stage = Stage(budget_total=50_000)
    number = BudgetNumber(stage)
    page = FrontEnd(number.field)

    page.moves(value="many")
    page.moves(value="")
    assert (page.state["value"], line_of(number)) == ("50000", "")
    page.moves(value="many")
    stage.frame(budget_total=60_000)
    assert (page.state["value"], line_of(number)) == ("60000", "")
    assert number.line.layout.display == "none"
    page.moves(value="60,000")
    stage.work()
    assert (page.state["value"], stage.given) == ("60000", [])


def test_controls_linked_in_python_command_what_a_person_sets_and_nothing_else() -> None:
    stage = Stage(budget_total=50_000)
    slider, number = BudgetSlider(stage), BudgetNumber(stage)
    link((slider, "value"), (number, "value"))

    stage.frame(budget_total=60_000)
    stage.work()
    assert stage.given == []

    Hand(number).moves(value=70_000)
    stage.work()
    assert set(stage.given) == {("set_budget", 70_000)}
    assert slider.value == 70_000


@BOTH
def test_no_frame_is_shown_in_the_middle_of_what_a_front_end_says(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Traitlets would put the two together, and take the frame's total for the person's.
    stage = Stage(budget_total=50_000)
    control = kind(stage)
    page, free = Hand(control), list[bool]()
    spoken_to = getattr(control, "field", control)
    set_trait = spoken_to.set_trait

    def try_lock() -> None:
        free.append(stage.lock.acquire(blocking=False))
        if free[-1]:
            stage.lock.release()

    def watched(name: str, value: object) -> None:
        other = threading.Thread(target=try_lock)
        other.start()
        other.join()
        set_trait(name, value)

    monkeypatch.setattr(spoken_to, "set_trait", watched)
    page.moves(value=80_000)

    assert free
    assert not any(free)


def test_readout_is_such_that_the_browser_reads_it_back_as_it_was() -> None:
    # It is taken by `parseInt` when it is left: with a comma in it, 50,000 would become 50.
    assert BudgetSlider(Stage()).readout_format == "d"


@pytest.mark.parametrize("kind", [BudgetSlider, BudgetNumber, CancelButton, PauseButton])
def test_closed_control_is_sent_nothing_and_leaves_nothing_in_the_kernel(kind: Kind) -> None:
    stage, before = Stage(), open_widgets()
    control = kind(stage)

    control.close()

    assert stage.views == []
    assert open_widgets() == before
    stage.frame(budget_total=10, done=True)
    control.close()


@pytest.mark.parametrize("kind", [BudgetSlider, BudgetNumber, CancelButton, PauseButton])
def test_page_of_a_control_alone_hears_that_its_kernel_is_there(kind: Kind) -> None:
    control: Any = kind(Stage())
    sent: list[Any] = []
    control._keeper.comm.send = lambda data, **_: sent.append(data["content"])

    control._keeper._handle_custom_msg({"type": "hello"}, None)
    assert sent == [{"type": "newest"}]
    assert control._keeper.control in control._dom_classes


@pytest.mark.parametrize("kind", [BudgetSlider, BudgetNumber, CancelButton])
def test_control_prints_the_same_in_every_run(kind: Kind) -> None:
    assert repr(kind(Stage(budget_total=1))) == repr(kind(Stage())) == f"{kind.__name__}()"


# -- the end ----------------------------------------------------------------------------------


def test_cancel_button_cancels_the_whole_run_once() -> None:
    stage = Stage()
    button = CancelButton(stage)
    page = FrontEnd(button)

    page.clicks()
    page.clicks()
    stage.work()

    assert stage.given == [("cancel", None)]
    assert (page.state["description"], page.state["disabled"]) == ("Cancel run", True)
    assert page.state["tooltip"] == "Cancelling…"


def test_cancel_button_can_be_pressed_again_when_the_command_failed() -> None:
    stage = Stage()
    page = FrontEnd(CancelButton(stage))
    stage.failing = RuntimeError("The run's thread is busy.")

    page.clicks()
    stage.work()

    assert page.state["disabled"] is False
    assert stage.whole().summary.notices == ("The run's thread is busy.",)
    stage.failing = None
    page.clicks()
    stage.work()
    assert stage.given == [("cancel", None)]


def test_cancel_button_rests_when_the_run_is_done() -> None:
    stage = Stage()
    page = FrontEnd(CancelButton(stage))

    stage.frame(done=True)
    page.clicks()
    stage.work()

    assert page.state["disabled"] is True
    assert stage.given == []


def test_click_does_not_wait_until_a_frame_is_made() -> None:
    stage = Stage()
    page = FrontEnd(CancelButton(stage))

    with stage.lock:  # a frame is being made, on another thread than the click's
        click = threading.Thread(target=page.clicks, daemon=True)
        click.start()
        click.join(DEADLINE_S)
        is_given = not click.is_alive()
        stage.work()

    assert is_given
    assert stage.given == [("cancel", None)]
