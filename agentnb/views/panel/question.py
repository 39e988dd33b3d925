"""The question after a budget warning: continue or stop?

It is shown while the run waits for the answer; its buttons work once for each question.
"""

from __future__ import annotations

import math
from typing import Any

from ipywidgets import Box, Button, Layout

from agentnb.core.money import share_in_words
from agentnb.views.panel.clock import clock
from agentnb.views.panel.comm import hear
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.widgets import GuardedPart, Markup, RunWidget, hide_until_live, text
from agentnb.views.panel.wire import Frame, Question

_LINE = 80
"""Per cent of the budget at which a run asks."""
_ANSWERS = {"continue": "Continue", "stop": "Stop"}


class BudgetQuestion(RunWidget, Box):
    """The question with Continue and Stop; hidden while there is none.

    Args:
        publisher: The run's frames.
    """

    publisher: FramePublisher

    def __init__(self, publisher: FramePublisher, **traits: Any) -> None:
        self._asked: Question | None = None
        self._words: Markup | None = None
        self._buttons: dict[str, Button] = {}
        layout = Layout(
            display="none", flex_flow="row wrap", align_items="center", overflow="visible"
        )
        with publisher.lock:
            super().__init__(**{"layout": layout, **traits})
            self.add_class("agentnb-budget-question")
            hide_until_live(self)
            self.attach(publisher)

    def show(self, frame: Frame) -> None:
        """Show the open question, or hide."""
        asked = frame.summary.question
        if asked == self._asked:
            return
        self._asked = asked
        words = self._words or self._make()
        self._enable(asked is not None)
        # Show the element before its text: an alert is announced when it appears.
        self.layout.display = "none" if asked is None else "flex"
        words.value = "" if asked is None else question_markup(asked)

    def _make(self) -> Markup:
        """Make the parts on first use: most runs need none, and each widget delays a panel."""
        self._words = Markup(layout=Layout(flex="1 1 20em", min_width="0"))
        for answer, name in _ANSWERS.items():
            button = _AnswerButton(
                self, description=name, disabled=True, layout=Layout(width="auto")
            )
            button.on_click(lambda _, answer=answer: self._pressed(answer))
            hear(button)
            self._buttons[answer] = button
        self.children = [self._words, *self._buttons.values()]
        return self._words

    def _pressed(self, answer: str) -> None:
        if self._buttons[answer].disabled or self.publisher.commands is None:
            return

        def made(worked: bool) -> None:
            if not worked:
                self._enable(self._asked is not None)

        self._enable(False)
        self.publisher.commands.answer(answer, made=made)

    def _enable(self, is_open: bool) -> None:
        for button in self._buttons.values():
            button.disabled = not is_open


class _AnswerButton(GuardedPart, Button):
    """A button of a question."""


def question_markup(question: Question) -> str:
    """The question as markup."""
    return (
        '<div role="alert" style="line-height:1.4;padding:4px 10px;'
        'border-left:4px solid var(--jp-warn-color1,#f57c00)">'
        f"{text(question_words(question))}</div>"
    )


def question_words(question: Question) -> str:
    """The question as one line: what is used, what waits, and what happens without an answer."""
    percent = math.floor(question.percentage)
    share = f"More than {_LINE} %" if percent > _LINE else f"{percent} %"
    ends_at_s = question.asked_at_s + question.wait_s
    by_itself = ""
    if math.isfinite(ends_at_s):
        by_itself = f"; without one the run stops at {clock(ends_at_s)} min"
    return (
        f"{share} of the budget is used: "
        f"{share_in_words(question.tokens_used, question.budget_total, question.unit)}. "
        f"New calls wait for your answer{by_itself}. "
        "Raising the budget also lets them continue."
    )
