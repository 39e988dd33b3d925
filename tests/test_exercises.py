"""The checks of the lessons' exercises refuse wrong answers, and say what is wrong.

nbval runs the checks with the code to change and with the solutions. Here each wrong answer runs
in one process, after only those cells of its lesson that it needs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests import lessons
from tests.notebook.forked import ForkServer
from tests.notebook.saved import load
from tests.pages import run_cells


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong answer, as a reader would write it, and words that the check must print."""

    code: str
    words: str


@dataclass(frozen=True, slots=True)
class Exercises:
    """The exercises of one lesson."""

    needs: tuple[int, ...]
    """Numbers of the cells that the checks need; they are in the cells' ids."""
    wrong: tuple[Wrong, ...]


BLOCK = (
    '<spawn_agents mode="{mode}"><agent task="{first}" /><agent task="{second}" /></spawn_agents>'
)
ESCAPED = {
    "first": "Describe &quot;Salt &amp; Smoke&quot;.",
    "second": "Shorten it to &lt; 10 words.",
}


def block(text: str, words: str, **changed: str) -> Wrong:
    """A wrong answer to the exercise on blocks."""
    text = text.format_map({"mode": "sequential"} | ESCAPED | changed)
    return Wrong(f"await check_block({text!r})", words)


def boss(*turns: str, words: str) -> Wrong:
    """A boss that takes these turns, whatever the experts say, and then answers."""
    replies = "".join(f"Reply(tool_uses=({turn},)), " for turn in turns)
    source = f"[{replies}CHOICE, CHOICE][turn(request)]"
    return Wrong(f"check_1(lambda request: {source})", words)


SPAWN, SECOND = 'call("spawn", task=TASKS[0])', 'call("spawn", task=TASKS[1])'
AWAIT = 'call("spawn_await", job_ids="*")'
OTHER = 'call("spawn_await", job_ids="ffffff")'

CAREFUL = 'QUESTION, Ticket, models=["scripted/careful"], key="number"'

EXERCISES = {
    "what-a-model-is-sent": Exercises(
        needs=(1, 30),
        wrong=(
            block("There is no block.", "Nothing was started"),
            block(BLOCK, "not valid XML", first='Describe "Salt & Smoke".'),
            block(BLOCK, "not valid XML", first="Describe &quot;Salt & Smoke&quot;."),
            block(BLOCK, "not valid XML", second="Shorten it to < 10 words."),
            block(BLOCK, "The tasks are", second="Shorten it."),
            block(f"{BLOCK}\n", "which mode is it?", mode="parallel"),
            Wrong(
                'await check_block(spawn(*TASKS, mode="sequential"))',
                "Write the block by hand.",
            ),
        ),
    ),
    "delegation": Exercises(
        needs=(1, 3, 7, 24),
        wrong=(
            boss(SPAWN, AWAIT, words="the run is completed. Asked: ['Name one strength and"),
            boss(SPAWN, AWAIT, SECOND, words="the boss did this: spawn spawn_await spawn\n"),
            boss(SPAWN, AWAIT, SECOND, OTHER, words="the boss did this: spawn spawn_await spawn\n"),
            boss(SPAWN, SECOND, AWAIT, words="the boss did this: spawn spawn spawn_await\n"),
            boss(SPAWN, AWAIT, SECOND, AWAIT, words="'It has no weakness.', and the run is compl"),
        ),
    ),
    "a-table-of-answers": Exercises(
        needs=(1, 3, 6, 7, 9, 13, 15, 17, 23, 32, 36),
        wrong=(
            Wrong(
                'check_1(lambda out: out.ok.index[out.ok["topic"].isna()])',
                "it returns an object of type Index, not a list.\n`tolist()`",
            ),
            Wrong("check_1(lambda out: None)", "of type NoneType, not a list."),
            Wrong(
                'check_1(lambda out: out.df.index[out.df["topic"].isna()].tolist())',
                "of 60 rows these are undecided: [48, 50, 57, 58, 59]",
            ),
            Wrong(
                f"async def second_look():\n    return session.map(table[:1], {CAREFUL})\n\n"
                "await check_2(second_look)",
                "it returns an object of type MapRun, no MapResult.\nWrite `return await",
            ),
            Wrong(
                f"async def second_look():\n    return await session.map(table, {CAREFUL})\n\n"
                "await check_2(second_look)",
                "60 messages were read, and judges differ on 12.",
            ),
            Wrong(
                f"async def second_look():\n    return await session.map(table[:12], {CAREFUL})\n\n"
                "await check_2(second_look)",
                "these are other messages",
            ),
        ),
    ),
    "agents-and-your-data": Exercises(
        needs=(1, 3, 5, 31),
        wrong=(
            Wrong('await check_1("line = 4")', "hold the slope and the offset"),
            Wrong(
                'await check_1("line = [4, 13]")',
                "leave the class `Line` in the code.",
            ),
        ),
    ),
    "budgets": Exercises(
        needs=(1, 32, 36),
        wrong=(
            Wrong('check_1(lambda warning: "go")', "A gate returns 'continue' or 'stop'. Here the"),
            Wrong("check_1(lambda warning: None)", "answered None, not 'continue' or 'stop'"),
            Wrong("check_1(lambda warning: 1 / 0)", "ZeroDivisionError"),
            Wrong('check_1(lambda warning: "continue")', "the large run is completed."),
            Wrong("check_2(lambda pages: 1_000 * pages)", "2 pages are exhausted"),
        ),
    ),
    # The last one, since it sets the mode of all later sessions.
    "testing-agents": Exercises(
        needs=(1, 6, 15, 19),
        wrong=(
            Wrong(
                "async def is_recorded(tasks):\n    return False\n\nawait check_2(is_recorded)",
                "it returns False, and not True, for the tasks ['How long is the Danube?', 'How l",
            ),
            Wrong(
                "async def is_recorded(tasks):\n    pass\n\nawait check_2(is_recorded)",
                "it returns None, and not True",
            ),
        ),
    ),
}


def cells(name: str, exercises: Exercises) -> Iterator[str]:
    """The cells that the checks need, and then each wrong answer."""
    lesson = load(lessons.FOLDER / f"{name}.ipynb")
    prefix = lesson.cells[0].id.rpartition("-")[0]
    by_id = {cell.id: cell.source for cell in lesson.cells}
    yield from (by_id[f"{prefix}-{number:02}"] for number in exercises.needs)
    for wrong in exercises.wrong:
        body = textwrap.indent(f"print('--- wrong')\n{wrong.code}", "    ")
        yield f"try:\n{body}\nexcept AssertionError as error:\n    print(error)"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> dict[str, str]:
    """The output of each lesson's wrong answers, all run in one process."""
    pages = {f"{name}.ipynb": list(cells(name, wrong)) for name, wrong in EXERCISES.items()}
    return run_cells(pages, tmp_path_factory.mktemp("exercises"), fork_server)


@pytest.mark.parametrize("name", EXERCISES)
def test_check_says_what_is_wrong_with_a_wrong_answer(said: dict[str, str], name: str) -> None:
    printed = said[f"{name}.ipynb"]
    assert "=== FAILED" not in printed, printed

    of_each = printed.split("--- wrong\n")[1:]
    wrong = EXERCISES[name].wrong
    assert len(of_each) == len(wrong)
    assert [text for text in of_each if "✓" in text or "Right:" in text] == []
    missed = [
        (w.words, text) for w, text in zip(wrong, of_each, strict=True) if w.words not in text
    ]
    assert missed == []
