"""The checks of the lessons' exercises refuse wrong answers, and say what is wrong.

nbval runs the checks with the code to change and with the solutions. Here each wrong answer, and
some right ones that are not as in the solution, run in one process, after only those cells of
their lesson that they need.
"""

from __future__ import annotations

import re
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
    right: tuple[str, ...] = ()
    """Answers that a check has to accept."""


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


def dinner(words: str, **replies: str) -> Wrong:
    """A wrong script: the code of the replies of the root, of agent 1 and of agent 2."""
    script = {"root": '[spawn("starter", "course"), "Leek."]', "starter": '"Melon."'} | replies
    by_task = ", ".join(f"{task!r}: {reply}" for task, reply in script.items())
    run = f"agentnb.Session(provider=by_agent({{{by_task}}}), store=None).spawn('Dinner.')"
    return Wrong(f"run = {run}\nawait run\ncheck_dinner(run)", words)


SIDES = 'spawn("vegetable", "sauce")'


def day(check: str, provider: str, words: str, **settings: object) -> Wrong:
    """A wrong model of the class's day at the harbour, or wrong settings of its session."""
    more = "".join(f", {name}={value!r}" for name, value in settings.items())
    run = f"agentnb.Session(provider={provider}, store=None{more}).spawn(QUESTION)"
    return Wrong(f"run = {run}\nawait run\n{check}(run)", words)


def museums(root: str, room: str, words: str) -> Wrong:
    """A wrong tree: what the root says first, and the agent that looks for a museum."""
    script = (
        f"{{'root': [says({root}), says(answer)], LUNCH: says(lunch), "
        f"ROOM: [says({room}), says('The museum of ships has room.')]}}"
    )
    return day("check_both", f"by_agent({script})", words)


def bank(replies: str, words: str) -> Wrong:
    """Wrong replies of the agent that asks the bank."""
    script = f"{{'root': [spawn('Ask the bank.'), 'Go.'], 'Ask the bank.': [{replies}]}}"
    run = "agentnb.get_session().spawn('When does the bank close?')"
    return Wrong(f"configure({script})\ncheck_1(await {run})", words)


BUSY, BROKEN = 'Overloaded("Busy.")', 'Reply("Open un", error=StreamBroken("Broken."))'


def missing(which: str, words: str) -> Wrong:
    """A wrong choice of what is missing."""
    return Wrong(f'check_2(lambda result: [f"{{part.status}}: {{part.task}}" for {which}])', words)


def function(head: str, body: str, check: str) -> str:
    """A function of a reader, and the call of its check."""
    name = head.partition("(")[0].split()[-1]
    wait = "await " if head.startswith("async ") else ""
    return f"{head}:\n{textwrap.indent(body, '    ')}\n\n{wait}{check}({name})"


def keep_only(body: str, words: str) -> Wrong:
    """A wrong function that stops all sub-agents but one."""
    return Wrong(function("def keep_only(run, path)", body, "check_1"), words)


def deciding(denies: str, how: str = '"deny", reason="Too many."') -> str:
    """A function that denies a letter on this condition, and approves any other."""
    return function(
        "def decide(run)",
        "for at, question in enumerate(run.questions):\n"
        '    to = question.value["arguments"]["to"]\n'
        f"    if {denies}:\n"
        f"        run.answer(question.id, {how})\n"
        "    else:\n"
        '        run.answer(question.id, "approve")',
        "check_2",
    )


def gate(below: str, words: str) -> Wrong:
    """A gate with a wrong border."""
    answers = f'"continue" if warning.budget_total {below} else "stop"'
    return Wrong(f"check_1(lambda warning: {answers})", words)


def two(body: str, words: str) -> Wrong:
    """A wrong function that talks to two agents."""
    begin = "first, second = session.spawn(GAUGE), session.spawn(MAST)\nawait first\nawait second\n"
    head = "first, second = (session.thread(run.thread_id) for run in (first, second))\n"
    return Wrong(function("async def two(session)", f"{begin}{head}{body}", "check_1"), words)


def note_of(
    returns: str = "session.tasks.get(task.id).notes[-1].text",
    title: str = "Check August",
    prompt: str = "Did August have 40 mm of rain?",
    to: str = "new:scripted/checker",
    priority: str = "high",
) -> str:
    """A function that has August checked."""
    task = f"{title!r}, {prompt!r}, assigned_to={to!r}, priority={priority!r}"
    return function(
        "async def note_of(session)",
        f"task = session.tasks.create({task})\n"
        'await session.thread(task.assigned_to).send("What did you look at?")\n'
        f"return {returns}",
        "check_2",
    )


EXERCISES = {
    "first-tree": Exercises(
        needs=(1, 3, 11, 25, 30),
        wrong=(
            Wrong(
                'check_lists(["root"], ["1", "2.1", "2.2", "3"])',
                "An agent that delegated has children",
            ),
            Wrong(
                'check_lists(["root", "2"], [agent.path for agent in demo.agents if agent.depth])',
                "An agent that worked alone has none.",
            ),
            dinner(
                "The main course is agent 2: it delegates.",
                root='[spawn("starter", "course", "vegetable", "sauce"), "Leek."]',
            ),
            dinner("The main course is agent 2: it delegates.", starter=f'[{SIDES}, "Melon."]'),
            dinner("Agent 2 failed: it needs two replies.", course=f"[{SIDES}]"),
            dinner("Agent 2 speaks twice", course=SIDES),
        ),
    ),
    "parallel-and-sequential": Exercises(
        needs=(1, 3, 5, 7, 9, 10, 12, 14, 15, 16, 20, 22, 35, 40),
        wrong=(
            day("check_cheaper", "planner('parallel')", "It saves 0%.", max_depth=3),
            day("check_cheaper", "planner('sequential')", "The answer has changed"),
            day("check_cheaper", "planner('parallel')", "The tasks have changed", max_depth=0),
            day(
                "check_cheaper",
                "by_agent({'root': before.output})",
                "The tasks have changed",
            ),
            museums("spawn(ROOM, LUNCH)", "spawn(*ASK)", "Lunch does not know the museum."),
            museums(
                "spawn(ROOM, LUNCH, mode='sequential')",
                "spawn(*ASK, mode='sequential')",
                "calls in a row. What need not wait for what?",
            ),
            museums(
                "spawn(*ASK, LUNCH, mode='sequential')",
                "'Ships.'",
                "7 agents below the root",
            ),
            museums(
                "spawn(ROOM, LUNCH, mode='sequential')",
                "spawn('Ships?', *ASK[1:])",
                "The tasks are",
            ),
        ),
    ),
    "depth-and-failure": Exercises(
        needs=(1, 3, 4, 11, 12, 17, 18, 20, 33, 34, 37, 41),
        wrong=(
            bank(f'{BUSY}, "Open until four."', "its faults are ['calls again']"),
            bank(f'{BROKEN}, {BUSY}, "Open until four."', "are ['is tried once more', 'calls a"),
            bank(f'{BUSY}, {BROKEN}, "Open."', "Open until four."),
            bank('Refused("No."), "Open until four."', "Open until four."),
            missing("part in result.sub_agent_results if part.error", "missing(circle) is []"),
            Wrong(
                "check_2(lambda result: [part.task for part in result.incomplete])",
                "missing(orders) is ['Ask the band.']",
            ),
            Wrong(
                "check_2(lambda result: [f\"{row['status']}: {row['task']}\" "
                "for row in result.record.to_records()[1:] if row['status'] != 'completed'])",
                "missing(festival) is ['skipped: Bake each cake for a trial.']",
            ),
            missing("part in result.incomplete] or ['nothing'", "missing(festival) is ['nothing']"),
        ),
    ),
    "steering": Exercises(
        needs=(1, 3, 28, 40, 44),
        wrong=(
            keep_only('run.cancel("1")\nrun.cancel("2")', "'1') these are completed: 3\n"),
            keep_only("run.cancel(path)", "'3') these are completed: 1 2 2.1 2.2\n"),
            keep_only("run.cancel()", "the root is cancelled"),
            keep_only(
                "for agent in run.agents:\n"
                '    if agent.path not in ("root", path):\n'
                "        run.cancel(agent.path)",
                "'2') these are completed: 2\n",
            ),
            Wrong(deciding("at != 1"), "sent is ['all churches: Hello.']"),
            Wrong(deciding('"all" in to'), "sent is ['the mayor: Hello.']"),
            Wrong(deciding("True"), "sent is []"),
            Wrong(deciding('to.startswith("all")', '"deny"'), "the model reads no reason"),
            Wrong(
                function("def decide(run)", 'run.answer("q1", "deny", reason="No.")', "check_2"),
                "there are open questions",
            ),
        ),
    ),
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
                "these are different messages",
            ),
        ),
    ),
    "agents-and-your-data": Exercises(
        needs=(1, 3, 5, 31),
        wrong=(
            Wrong('await check_1("line = 4")', "hold the slope and the offset"),
            Wrong(
                'await check_1("line = [4, 13]")',
                "leave the class `Line` as it is.",
            ),
        ),
        right=('await check_1(LINE.replace("Line:", "Line(object):") + "line = vars(line)")',),
    ),
    "budgets": Exercises(
        needs=(1, 32, 36),
        wrong=(
            Wrong('check_1(lambda warning: "go")', "A gate returns 'continue' or 'stop'. Here the"),
            Wrong("check_1(lambda warning: None)", "answered None, not 'continue' or 'stop'"),
            Wrong("check_1(lambda warning: 1 / 0)", "ZeroDivisionError"),
            Wrong('check_1(lambda warning: "continue")', "of 30,000 tokens is completed."),
            gate("< 30_000", "of 25,000 tokens is completed."),
            gate("<= 25_000", "of 25,000 tokens is completed."),
            gate("<= 20_000", "of 24,999 tokens is exhausted."),
            Wrong("check_2(lambda pages: 1_000 * pages)", "2 pages are exhausted"),
        ),
    ),
    "threads-and-tasks": Exercises(
        needs=(1, 3, 28, 32),
        wrong=(
            two(
                "texts = [first.send(WHERE), second.send(WHERE)]\nreturn [await t for t in texts]",
                "the answers are [",
            ),
            two(
                "return [(await thread.send(WHERE)).output for thread in (second, first)]",
                "the answers are ['You told me: The mast stands",
            ),
            two(
                "return [(await first.send(WHERE)).output for _ in range(2)]",
                "the threads were told [",
            ),
            Wrong(note_of(to="new:scripted/anything"), "agents are ['scripted/anything']"),
            Wrong(note_of(priority="low"), "the tasks are [('Check August', 'low', 'completed')]"),
            Wrong(note_of(title="August"), "the tasks are [('August', 'high', 'completed')]"),
            Wrong(note_of("session.tasks.get(task.id).notes[-1]"), "the note is TaskNote("),
        ),
        right=(note_of(prompt="May I ask: did August have 40 mm of rain?"),),
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


# `configure` keeps settings of before, and here the lessons share a process.
ANEW = "import agentnb.default_session\nagentnb.default_session._default = None"


def cells(name: str, exercises: Exercises) -> Iterator[str]:
    """The cells that the checks need, and then each answer."""
    yield ANEW
    lesson = load(lessons.FOLDER / f"{name}.ipynb")
    prefix = lesson.cells[0].id.rpartition("-")[0]
    by_id = {cell.id: cell.source for cell in lesson.cells}
    yield from (by_id[f"{prefix}-{number:02}"] for number in exercises.needs)
    for answer in (*(wrong.code for wrong in exercises.wrong), *exercises.right):
        body = textwrap.indent(f"print('--- answer')\n{answer}", "    ")
        yield f"try:\n{body}\nexcept AssertionError as error:\n    print(error)"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> dict[str, str]:
    """The output of each lesson's answers, all run in one process."""
    pages = {f"{name}.ipynb": list(cells(name, wrong)) for name, wrong in EXERCISES.items()}
    return run_cells(pages, tmp_path_factory.mktemp("exercises"), fork_server)


def said_of_each(said: dict[str, str], name: str) -> tuple[list[str], list[str]]:
    """What a lesson's checks say of the wrong answers, and of the right ones."""
    printed, exercises = said[f"{name}.ipynb"], EXERCISES[name]
    assert "=== FAILED" not in printed, printed
    of_each = printed.split("--- answer\n")[1:]
    assert len(of_each) == len(exercises.wrong) + len(exercises.right)
    return of_each[: len(exercises.wrong)], of_each[len(exercises.wrong) :]


def passes(text: str) -> bool:
    return re.search(r"^(✓|Right:)", text, re.MULTILINE) is not None


@pytest.mark.parametrize("name", EXERCISES)
def test_check_says_what_is_wrong_with_a_wrong_answer(said: dict[str, str], name: str) -> None:
    of_wrong, _ = said_of_each(said, name)

    assert list(filter(passes, of_wrong)) == []
    missed = [
        (w.words, text)
        for w, text in zip(EXERCISES[name].wrong, of_wrong, strict=True)
        if w.words not in text
    ]
    assert missed == []


@pytest.mark.parametrize("name", [name for name in EXERCISES if EXERCISES[name].right])
def test_check_accepts_another_right_answer(said: dict[str, str], name: str) -> None:
    _, of_right = said_of_each(said, name)

    assert [text for text in of_right if not passes(text)] == []
