"""Open questions as the panel shows them, and the answers of a page.

An approval shows everything that is asked for. Code is shown as it will run, with its lines, and
may be changed. Other arguments are shown by name and value, and may be changed as JSON. Acting and
invisible characters are written as escapes, which read back as the same text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from agentnb.core.codec import plain
from agentnb.core.events import SpawnPlanned
from agentnb.core.questions import APPROVAL, Question
from agentnb.core.secrets import masked_as_known
from agentnb.core.text import escaped_for_json, visible, visible_text
from agentnb.views.arguments import code_in, values_in
from agentnb.views.panel.clock import clock
from agentnb.views.panel.rules import MessageRefused
from agentnb.views.panel.wire import AnswerCommand, QuestionRow

_NAME_LENGTH = 200
_HAS_SECRET = (
    "They contain a secret, which is not shown: you can only approve or deny them unchanged."
)
_HAS_ESCAPES = (
    "It contains control or hidden characters, shown as escapes: you can only approve or deny it "
    "unchanged."
)


def question_row(question: Question) -> QuestionRow:
    """An open question for a page, with its whole subject."""
    about = question.value if isinstance(question.value, Mapping) else {}
    is_approval = question.kind == APPROVAL
    name, given = str(about.get("tool", "")), about.get("arguments", {})
    code = code_in(name, given) if is_approval else None
    shown_code, fixed = _code_to_change(code) if code is not None else ("", "")
    arguments = _as_json(given) if is_approval and not shown_code else ""
    shown = visible_text(arguments)
    plan = question.value if isinstance(question.value, SpawnPlanned) else None
    return {
        "id": question.id,
        "kind": question.kind,
        "path": question.path,
        "text": visible_text(question.text),
        "options": [visible(option, _NAME_LENGTH) for option in question.options],
        "late": _late(question),
        "tool": visible(name, _NAME_LENGTH) if is_approval else "",
        "code": shown_code,
        "values": [[*each] for each in values_in(given)] if arguments else [],
        "arguments": shown,
        "fixed": _HAS_SECRET if shown != arguments else fixed,
        "tasks": [visible_text(task) for task in plan.tasks] if plan is not None else [],
    }


def _as_json(arguments: Any) -> str:
    return escaped_for_json(json.dumps(plain(arguments), ensure_ascii=False, indent=2))


def _code_to_change(code: str) -> tuple[str, str]:
    """Code as visible text, and why it cannot be changed; empty if it can."""
    shown = visible_text(code)
    if masked_as_known(code) != code:
        return shown, _HAS_SECRET
    # Python treats all kinds of line ends alike.
    same = shown == code.replace("\r\n", "\n").replace("\r", "\n")
    return shown, "" if same else _HAS_ESCAPES


def _late(question: Question) -> str:
    ends_at_s = question.asked_at_s + question.wait_s
    if not question.wait_s or not math.isfinite(ends_at_s):
        return ""
    end = "denied" if question.kind == APPROVAL else "stopped"
    return f"{end} at {clock(ends_at_s)} min without an answer"


def value_of(command: AnswerCommand) -> Any:
    """The value of an answer: changed arguments, a number of tasks, or nothing.

    Raises:
        MessageRefused: The arguments are not a JSON object.
    """
    if command["arguments"] is None:
        return command["number"]
    try:
        arguments = json.loads(command["arguments"])
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise MessageRefused("`arguments` must be a JSON object")
    return arguments
