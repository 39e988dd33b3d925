"""`%spawn questions` and `%spawn answer`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentnb.core.errors import AgentnbError
from agentnb.core.questions import APPROVAL, Question
from agentnb.core.text import literal, one_line, visible
from agentnb.errors import NotebookError
from agentnb.notebook.line import does_not_take
from agentnb.run import Run
from agentnb.views.arguments import code_in, lines_of
from agentnb.views.table import Table

_RUN = re.compile(r"--run(?:=|\s+)(\S+)")
_ANSWER = re.compile(r"\s*(?:--run(?:=|\s+)\S+\s+)?answer(?!\S)")
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)
_USAGE = '`%spawn answer q1 approve`, or `%spawn answer q1 deny "not today"`'


def questions(run: Run, arguments: Sequence[str]) -> str:
    """A table of the open questions of a run."""
    if arguments:
        raise NotebookError(does_not_take(arguments, "%spawn questions"))
    if not (found := run.questions):
        return "No question is open."
    rows = [
        (each.id, visible(each.path, 60), each.kind, one_line(each.text), " or ".join(each.options))
        for each in found
    ]
    table = Table(("", "agent", "kind", "question", "answers"), rows, cell_width=300).plain
    return "\n\n".join([table, *filter(None, map(_asked_for, found))])


def _asked_for(question: Question) -> str:
    """The subject of an approval, line by line: code as code, all else by name and value."""
    if question.kind != APPROVAL:
        return ""
    name, given = question.value["tool"], question.value["arguments"]
    lines = lines_of(name, given)
    is_code = code_in(name, given) is not None
    what = "run" if is_code else f"call {visible(name, 60)} with"
    head = f"{question.id}: {visible(question.path, 60)} asks to {what}:"
    return f"{head}\n{lines}" if lines else ""


class Answering(NamedTuple):
    """The typed arguments of `%spawn answer`."""

    question_id: str
    word: str
    rest: str
    run_id: str | None


def answering_in(line: str) -> Answering | None:
    """Read a `%spawn answer`; `None` if the line has another verb.

    The rest after the answer is not parsed as a shell would: JSON keeps its quotes, and a reason
    its apostrophes. One pair of quotes around the whole reason is dropped. `--run ID` may come
    before the verb, before the question or at the end.

    Raises:
        NotebookError: The question or the answer is missing.
    """
    found = _ANSWER.match(line)
    if found is None:
        return None
    run_ids = _RUN.findall(found[0])
    rest = line[found.end() :].strip()
    for at in (_RUN.match(rest), re.search(rf"\s{_RUN.pattern}$", rest)):
        if at is not None and not run_ids:
            run_ids.append(at[1])
            rest = (rest[: at.start()] + rest[at.end() :]).strip()
    question_id, word, value, *_ = [*rest.split(None, 2), "", "", ""]
    if not word:
        raise NotebookError(f"`%spawn answer` needs a question and an answer: {_USAGE}.")
    return Answering(question_id, word, value.strip(), run_ids[0] if run_ids else None)


def answer(run: Run, answering: Answering) -> str:
    """Answer an open question. Returns what to show."""
    question_id, word, rest, _ = answering
    value, reason = _value_and_reason(word, rest)
    try:
        run.answer(question_id, word, value=value, reason=reason)
    except AgentnbError:
        raise
    except ValueError as error:  # the question does not take this answer
        raise NotebookError(str(error)) from None
    said = f"{word} {value}" if isinstance(value, int) else word
    return f"Answered {visible(question_id, 20)}: {said}."


def _value_and_reason(word: str, rest: str) -> tuple[Any, str | None]:
    """Value and reason from the rest of an answer's line: JSON arguments, a number, or words."""
    if not rest:
        return None, None
    if word in ("deny", "stop"):
        quoted = _QUOTED.fullmatch(rest)
        return None, rest if quoted is None else quoted[2]
    try:
        return json.loads(rest), None
    except ValueError:
        raise NotebookError(
            f"`{visible(word, 20)}` takes JSON, not {literal(rest)}: "
            '`%spawn answer q1 approve {"to": "ann"}`, or `%spawn answer q2 fewer 4`.'
        ) from None
