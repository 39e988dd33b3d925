"""Grade a class with nbgrader and with otter-grader, and compare the points with those earned.

The lesson has a cassette. A script stands in for the model when it is recorded; from then on the
tools run without a model, keys and network. One kind of student is right, the others change the
prompt, delete, spoil or rename the cassette, set a key, or answer wrongly, or not in Python. All is
made from nothing, by a teacher's commands.

    python -m tests.graders [--students N] [FOLDER]

Run it by hand, in an environment with agentnb, and nbgrader or otter-grader[grading] or both. The N
students (one of each kind, if N is not given) are of the kinds by turns. A new FOLDER is kept, to
look at. The exit code is 1 if a score is not what was earned, and 2 if there is no tool.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentnb
from agentnb.settings import DEFAULT_MODEL
from agentnb.testing import by_agent, spawn

TASK = "Which river is longer, the Danube or the Rhine?"
SETUP = "%load_ext agentnb\n%agentnb mode replay\nimport agentnb"
SPAWN = "%%spawn --name longer -o out\n"
SOLUTION = '''\
def lengths(result):
    """The kilometres that each agent below the root found, in order."""
    ### BEGIN SOLUTION
    words = " ".join(each.response for each in result.sub_agent_results).split()
    return [int(word) for word in words if word.isdigit()]
    ### END SOLUTION'''
TREE_TEST = "assert agentnb.check(out).completed().spawned(2)"
TREE_HIDDEN = 'assert agentnb.check(out).said("Danube")'
LENGTHS_TEST = "assert callable(lengths)"
LENGTHS_HIDDEN = f"""\
# A run of its own: what the student made of `out` does not count here.
recorded = agentnb.get_session().run_sync({TASK!r}, name="longer")
assert lengths(recorded) == [2850, 1233]"""
TREE, LENGTHS, ALL = 2, 3, 5  # points
DEADLINE_S = 60  # for a student
NOTEBOOK, CASSETTE = "rivers.ipynb", "rivers.cassette.jsonl"
HERE = Path(sys.executable).parent
wrong: list[str] = []  # as sentences


@dataclass(frozen=True)
class Student:
    """What a student does with the lesson, and the points that this earns."""

    earned: int
    task: str = TASK
    answer: str = "[int(each.response.split()[3]) for each in result.sub_agent_results]"
    cassette: Callable[[Path], object] = lambda path: None  # what happens to the file
    setup: str = SETUP


KINDS = {
    "right": Student(ALL),
    "other_prompt": Student(LENGTHS, task="Which river is the longest of Europe?"),
    "no_cassette": Student(ALL, cassette=Path.unlink),
    "spoilt_cassette": Student(ALL, cassette=lambda path: path.write_text("no cassette")),
    "wrong_answer": Student(TREE, answer="[1, 2]"),
    "renamed_cassette": Student(ALL, cassette=lambda path: path.rename(path.with_name("my.jsonl"))),
    "own_key": Student(ALL, setup=SETUP + "\n%env ANTHROPIC_API_KEY=sk-mine"),
    # An error's advice leads there; otter's kernel has no name for the notebook.
    "own_mode": Student(ALL, setup=SETUP.replace("mode replay", "mode auto")),
    "no_python": Student(TREE, answer="[1, 2"),
}
STUDENTS = dict(KINDS)


def cell(kind: str, source: str, **metadata: Any) -> dict[str, Any]:
    """A cell of a notebook."""
    of_code: dict[str, Any] = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "metadata": metadata, "source": source, **of_code}


def save(path: Path, *cells: Mapping[str, Any]) -> None:
    """Write a notebook."""
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 4}
    path.write_text(json.dumps(made, indent=1))


def record(folder: Path) -> None:
    """Record the lesson's run. A script plays the part of the real model, whose name it has."""
    danube, rhine = "How long is the Danube?", "How long is the Rhine?"
    answers = {danube: "The Danube has 2850 km.", rhine: "The Rhine has 1233 km."}
    provider = by_agent({"root": [spawn(danube, rhine), "The Danube is longer."], **answers})
    provider.name = DEFAULT_MODEL.partition("/")[0]
    cassette = folder / CASSETTE
    session = agentnb.Session(
        DEFAULT_MODEL, provider=provider, mode="record", cassette=cassette, store=None
    )
    session.run_sync(TASK, name="longer")


def do_lesson(folder: Path, student: Student) -> None:
    """Edit the notebook and the cassette that were handed out, as this student does."""
    path = folder / NOTEBOOK
    lesson = json.loads(path.read_text())
    for each in lesson["cells"]:
        source = "".join(each["source"])
        if source == SETUP:
            each["source"] = student.setup
        if source.startswith("%%spawn"):
            each["source"] = SPAWN + student.task
        if source.startswith("def lengths"):
            each["source"] = f"def lengths(result):\n    return {student.answer}"
    path.write_text(json.dumps(lesson, indent=1))
    student.cassette(folder / CASSETTE)


def environment(home: Path) -> dict[str, str]:
    """This process's, but without keys, settings of agentnb, a network and a person's own files."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AGENTNB_")}
    kept = {k: v for k, v in kept.items() if not k.endswith(("_API_KEY", "_AUTH_TOKEN"))}
    closed = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    home.mkdir()
    path = os.pathsep.join([str(HERE), kept.get("PATH", "")])
    return kept | closed | {"HOME": str(home), "PATH": path}


def run(folder: Path, *command: str, env: Mapping[str, str]) -> None:
    """Run one command, and show it. `SubprocessError` if it fails."""
    begun_s = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S * len(STUDENTS),
        check=False,
    )
    print(f"  {time.monotonic() - begun_s:5.1f} s  {folder.name}$ {' '.join(command)}", flush=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)


def nbgrader(folder: Path, env: Mapping[str, str]) -> dict[str, float]:
    """The points of each student: exchange, autograde, feedback, grades.csv."""
    course, exchange = folder / "course", folder / "exchange"
    (source := course / "source" / "ps1").mkdir(parents=True)
    exchange.mkdir()
    exchange.chmod(0o777)
    settings = f"""c = get_config()
c.CourseDirectory.course_id = "rivers101"
c.CourseDirectory.ignore.append(".agentnb")  # else stored runs of the teacher are handed out
c.Exchange.root = {str(exchange)!r}
c.Exchange.cache = {str(folder / "cache")!r}"""
    (course / "nbgrader_config.py").write_text(settings)

    def marked(name: str, *, solution: bool = False, points: int = 0) -> dict[str, Any]:
        own = {"grade_id": name, "solution": solution, "locked": not solution, "task": False}
        return own | {"grade": bool(points), "schema_version": 3, "points": points}

    test = "{}\n### BEGIN HIDDEN TESTS\n{}\n### END HIDDEN TESTS".format
    tree, lengths = test(TREE_TEST, TREE_HIDDEN), test(LENGTHS_TEST, LENGTHS_HIDDEN)
    save(
        source / NOTEBOOK,
        cell("code", SETUP, nbgrader=marked("setup")),
        cell("code", SPAWN + TASK),
        cell("code", SOLUTION, nbgrader=marked("answer", solution=True)),
        cell("code", tree, nbgrader=marked("tree", points=TREE)),
        cell("code", lengths, nbgrader=marked("lengths", points=LENGTHS)),
    )
    record(source)
    for verb in ("generate_assignment", "release_assignment"):
        run(course, "nbgrader", verb, "ps1", env=env)

    def hand_in(name: str) -> None:
        (home := folder / "students" / name).mkdir(parents=True)
        (home / "nbgrader_config.py").write_text(settings)
        run(home, "nbgrader", "fetch_assignment", "ps1", env=env)
        do_lesson(home / "ps1", STUDENTS[name])
        run(home, "nbgrader", "submit", "ps1", f"--student={name}", env=env)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(hand_in, STUDENTS))
    for verb in ("collect", "autograde", "generate_feedback", "release_feedback"):
        run(course, "nbgrader", verb, "ps1", env=env)
    run(course, "nbgrader", "export", env=env)  # grades.csv
    shown = {"right": "2 ✓ completed", "other_prompt": "NotRecorded"}
    for name, words in {each: shown[each] for each in STUDENTS if each in shown}.items():
        page = course / "feedback" / name / "ps1" / "rivers.html"
        if words not in page.read_text(encoding="utf-8"):
            wrong.append(f"nbgrader's feedback for {name} does not show {words!r}.")
    with (course / "grades.csv").open(newline="") as lines:
        return {row["student_id"]: float(row["score"]) for row in csv.DictReader(lines)}


def otter(folder: Path, env: Mapping[str, str]) -> dict[str, float]:
    """The points of each student: assign, which grades the solution, then run on each zip."""
    (master := folder / "master").mkdir()

    def question(name: str, points: int, tests: str, hidden: str, *solution: Any) -> list[Any]:
        config = f"# BEGIN QUESTION\nname: {name}\npoints: {points}\nall_or_nothing: true"
        asked = [cell("raw", config), cell("markdown", f"Question `{name}`."), *solution]
        asked += [cell("raw", "# BEGIN TESTS"), cell("code", tests), cell("code", hidden)]
        return [*asked, cell("raw", "# END TESTS"), cell("raw", "# END QUESTION")]

    own = cell("code", SOLUTION.replace("###", "#"))
    answer = [cell("raw", "# BEGIN SOLUTION"), own, cell("raw", "# END SOLUTION")]
    save(
        master / NOTEBOOK,
        cell("raw", f"# ASSIGNMENT CONFIG\nname: ps1\nfiles: [{CASSETTE}]"),
        cell("code", SETUP),
        cell("code", SPAWN + TASK),
        *question("tree", TREE, TREE_TEST, f"# HIDDEN\n{TREE_HIDDEN}"),
        *question("lengths", LENGTHS, LENGTHS_TEST, f"# HIDDEN\n{LENGTHS_HIDDEN}", *answer),
    )
    record(master)
    run(master, "otter", "assign", NOTEBOOK, "dist", env=env)
    (autograder,) = (master / "dist" / "autograder").glob("*.zip")

    def graded(name: str) -> float:
        home = shutil.copytree(master / "dist" / "student", folder / "students" / name)
        do_lesson(home, STUDENTS[name])
        shutil.make_archive(str(home), "zip", home)
        run(home, "otter", "run", f"{home}.zip", "-a", str(autograder), "--no-logo", env=env)
        tests = json.loads((home / "results.json").read_text(encoding="utf-8"))["tests"]
        return sum(test.get("score") or 0 for test in tests)

    # One at a time: of two kernels that start at once, one may take the other's port.
    return {name: graded(name) for name in STUDENTS}


def main(folder: Path) -> int:
    """Grade with each tool that is installed, and print the points."""
    points: dict[str, Mapping[str, float]] = {}
    for grade in (nbgrader, otter):
        if not (HERE / (tool := grade.__name__)).exists():
            print(f"{tool} is not installed in {HERE}: skipped.")
            continue
        print(f"{tool}:")
        (own := folder / tool).mkdir(parents=True)
        begun_s = time.monotonic()
        try:
            points[tool] = grade(own, environment(own / "home"))
            took_s = time.monotonic() - begun_s
            mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            print(f"  {took_s / len(STUDENTS):.1f} s a student; the largest process {mb} MB so far")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(error.output, error, sep="\n")
            points[tool] = {}
    if not points:
        return 2
    print(f"\n{'student':20} {'earned':>8}", *(f"{tool:>9}" for tool in points))
    for name, student in STUDENTS.items():
        given = [scores.get(name) for scores in points.values()]
        shown = (f"{'none' if each is None else format(each, 'g'):>9}" for each in given)
        print(f"{name:20} {student.earned:>4} / {ALL}", *shown)
        if any(each != student.earned for each in given):
            wrong.append(f"{name} did not get the points earned.")
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.graders")
    parser.add_argument("--students", type=int, metavar="N", default=len(KINDS))
    parser.add_argument("folder", type=Path, metavar="FOLDER", nargs="?")
    order = parser.parse_args()
    kinds = list(KINDS)
    for number in range(len(KINDS), order.students):
        kind = kinds[number % len(kinds)]
        STUDENTS[f"{kind}_{number // len(kinds) + 1}"] = KINDS[kind]
    if order.folder is not None:
        sys.exit(main(order.folder.resolve()))
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
