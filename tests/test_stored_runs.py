"""Runs in a session's store: its place, the list of runs, and loading them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agentnb
import agentnb.default_session
from agentnb import AgentStatus, Session, configure
from agentnb.core.codec import plain
from agentnb.core.errors import AmbiguousRun, InvalidRequest, NoSuchRun
from agentnb.core.records import RunHead
from agentnb.notebook.settings import settings_text
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.run_store import MOST_SUMMARIES, _KernelRuns
from agentnb.store.store import store_at
from agentnb.store.threads import has_session, open_session
from agentnb.store.transactions import MemoryTransactions
from tests.notebook.forked import ForkServer
from tests.support import DEADLINE_S, Hold, by_agent, spawn

DEFAULT = Path(".agentnb/agentnb.db")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, no default session, nothing set in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTNB_STORE", raising=False)
    monkeypatch.setattr("agentnb.default_session._default", None)
    monkeypatch.setattr("agentnb.run_store._kernel", _KernelRuns())
    return tmp_path


def session_of(**settings: Any) -> Session:
    provider = ScriptedProvider(lambda request: f"Done: {request.messages[-1].text}")
    return Session(**{"provider": provider, **settings})


def ended(session: Session, task: str = "a task", **options: Any) -> Run:
    run = session.spawn(task, **options)
    run.result(DEADLINE_S)
    return run


def tasks(runs: agentnb.RunList) -> list[str]:
    return [info.task for info in runs]


# -- where it is ----------------------------------------------------------------------------------


def test_store_is_beside_the_notebook_and_made_at_the_first_run(project: Path) -> None:
    session = session_of()
    assert (session.store.path, len(session.runs())) == (project / DEFAULT, 0)
    assert list(project.iterdir()) == []

    ended(session)

    assert (project / DEFAULT).is_file()
    assert (project / ".agentnb" / ".gitignore").read_text() == "*\n"
    assert [path.name for path in project.iterdir()] == [".agentnb"]


def test_store_is_in_the_folder_of_the_settings_file(project: Path) -> None:
    other = project / "other"
    other.mkdir()
    (other / "agentnb.yaml").write_text("session: {max_depth: 1}\n")

    assert session_of(config=other).store.path == other / DEFAULT
    assert session_of().store.path == project / DEFAULT


@pytest.mark.parametrize("said", ["none", " None "])
def test_environment_turns_the_store_off_and_nothing_is_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("AGENTNB_STORE", said)

    session = session_of()
    ended(session)

    assert session.store.path is None
    assert list(project.iterdir()) == []


def test_environment_goes_before_the_default_and_what_code_says_before_both(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTNB_STORE", "of/the/environment.db")

    assert session_of().store.path == project / "of/the/environment.db"
    assert session_of(store="mine.db").store.path == project / "mine.db"
    assert session_of(store=project / "mine.db").store.path == project / "mine.db"
    assert session_of(store=None).store.path is None
    monkeypatch.setenv("AGENTNB_STORE", "none")
    assert session_of(store="mine.db").store.path == project / "mine.db"


def test_relative_path_counts_from_where_the_session_was_made(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(store="runs/mine.db")
    assert (project / "runs").is_dir()  # a mistake in the path is an error at once
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")

    ended(session)

    assert (project / "runs/mine.db").is_file()
    assert list((project / "elsewhere").iterdir()) == []


def test_configure_keeps_store_and_id_unless_they_are_given(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = configure(provider=ScriptedProvider([]))
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    monkeypatch.setenv("AGENTNB_STORE", "none")

    second = configure(budget=5)
    third = configure(store="mine.db")

    assert second.store is first.store
    assert first.store.path == project / DEFAULT
    assert third.store.path == project / "elsewhere" / "mine.db"
    assert first.id == second.id == third.id
    assert Session("demo").id != first.id


def test_config_says_where_the_store_is_and_how_to_turn_it_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def line(**settings: Any) -> str:
        lines = settings_text(session_of(**settings)).splitlines()
        return next(line for line in lines if line.startswith("  store"))

    off = "store=None, or AGENTNB_STORE=none in the environment, turns it off"
    assert line() == f"  store         .agentnb/agentnb.db (the default); {off}"
    assert line(store="mine.db") == f"  store         mine.db (set in code); {off}"
    assert line(store=None) == "  store         none: runs are in memory only (set in code)"
    monkeypatch.setenv("AGENTNB_STORE", "theirs.db")
    assert line() == f"  store         theirs.db (AGENTNB_STORE); {off}"
    monkeypatch.setenv("AGENTNB_STORE", "none")
    assert line() == "  store         none: runs are in memory only (AGENTNB_STORE)"


# -- what a run is called -------------------------------------------------------------------------


def test_name_and_tags_are_kept_and_found_again() -> None:
    session = session_of()
    ended(session, "first")
    ended(session, "second", name=" weekly ", tags=["stations", "2026", "stations"])
    session.spawn_all(["A", "B"], name="by hand").result(DEADLINE_S)

    by_hand, weekly, first = session.runs()

    assert (weekly.name, weekly.tags) == ("weekly", ("stations", "2026"))
    assert (first.name, first.tags, by_hand.name) == ("", (), "by hand")
    assert tasks(session.runs(text="STATION")) == ["second"]
    assert tasks(session.runs(text="week")) == ["second"]


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", 5, "\x1b[31m"])
def test_name_that_is_not_one_line_is_refused(name: Any) -> None:
    session = session_of()

    for act in (session.spawn, lambda *a, **k: session.spawn_all(["x"], **k)):
        with pytest.raises(ValueError, match=r"^`name` must be a string of one line, not "):
            act("x", name=name)
    assert session.newest_run is None


@pytest.mark.parametrize(
    ("tags", "named"),
    [
        ("one", "`tags` must be a list of strings, not 'one'"),
        ({"a": 1}, "`tags` must be a list of strings, not {'a': 1}"),
        (5, "`tags` must be a list of strings, not 5"),
        (["a", ""], r"`tags\[1\]` must be a string of one line, not ''"),
        ([5], r"`tags\[0\]` must be a string of one line, not 5"),
    ],
)
def test_tags_that_are_no_list_of_texts_are_refused(tags: Any, named: str) -> None:
    session = session_of()

    with pytest.raises(ValueError, match=f"^{named}"):
        session.spawn("x", tags=tags)
    assert session.newest_run is None


# -- the head -------------------------------------------------------------------------------------


class Keeper:
    """A custom journal that keeps only the head."""

    def __init__(self) -> None:
        self.heads: list[RunHead] = []

    def begin(self, head: RunHead) -> None:
        self.heads.append(head)

    async def commit(self) -> None:
        pass


def test_head_says_what_was_asked_of_whom_and_with_which_settings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "agentnb.yaml").write_text(
        "tools: {spawn: {profiles: {reviewer: {system_prompt: Be strict.}}}}\n"
    )

    def look_up(word: str) -> str:
        """Look up."""
        return word

    keeper = Keeper()
    session = session_of(soul="the soul", memories=["what was"], tools=[look_up], max_turns=7)
    monkeypatch.setattr(session.store, "journal", lambda: keeper)

    run = ended(session, "a task", budget=9_000, max_depth=1, profile="reviewer", name="mine")
    session.spawn_all(["A", "B"], synthesis=False).result(DEADLINE_S)

    one, several = keeper.heads
    assert (one.run_id, one.thread_id) == (run.id, run.thread_id)
    assert (one.session_id, one.task, one.model) == (session.id, "a task", "scripted")
    assert (one.budget_total, one.max_depth, one.name) == (9_000, 1, "mine")
    assert one.settings["soul"] == "the soul"
    assert one.settings["memories"] == ["what was"]
    assert one.settings["tools"] == ["look_up"]
    assert (one.settings["max_turns"], one.settings["budget"]) == (7, 9_000)
    assert one.settings["profile"]["name"] == "reviewer"
    assert "Be strict." in one.settings["profile"]["instructions"]
    assert "provider" not in one.settings
    assert several.settings["plan"] == {
        "mode": "parallel",
        "tasks": ["A", "B"],
        "synthesis": False,
    }
    assert json.loads(json.dumps(plain(one.settings))) == one.settings  # plain values only
    assert (one.first_child, one.settings.keys() & {"chain", "profiles"}) == (1, set())


def test_head_in_the_file_has_the_version_and_the_first_number_of_a_continued_thread(
    project: Path,
) -> None:
    provider = by_agent({"root": [spawn("A", "B"), "first", spawn("C"), "second"]})
    session = Session(provider=provider)
    first = ended(session, "one")
    second = ended(session, "two", thread=first.thread_id)
    session.close()

    store = store_at(project / DEFAULT)
    heads = [store.load(run.id).head for run in (first, second)]
    assert [head.first_child for head in heads] == [1, 3]
    assert {head.version for head in heads} == {agentnb.__version__}


def test_head_holds_what_files_may_say_otherwise_later(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models of a pool, and the texts of sub-agents."""
    (project / "about.md").write_text("About us.")
    (project / "agentnb.yaml").write_text(
        "llm: {pools: {fast: [demo/a, demo/b]}}\n"
        "tools: {spawn: {profiles: {reviewer: "
        "{description: Reads., system_prompt: Be strict., tools: [], pool: fast}}}}\n"
    )
    keeper = Keeper()
    session = Session(model="pool:fast", delegation="tools")
    monkeypatch.setattr(session.store, "journal", lambda: keeper)
    ended(session, "a task")

    (head,) = keeper.heads
    assert head.settings["chain"] == ["demo/a", "demo/b"]
    assert head.settings["bootstrap"] == []
    assert head.settings["profiles"] == {
        "reviewer": {
            "description": "Reads.",
            "instructions": {"bootstrap": [], "prompt_file": None, "system_prompt": "Be strict."},
            "tools": [],
            "models": ["demo/a", "demo/b"],
        }
    }
    assert json.loads(json.dumps(plain(head.settings))) == head.settings


# -- listing and loading --------------------------------------------------------------------------


def test_newest_run_is_listed_first_with_what_it_cost_and_how_it_went() -> None:
    provider = by_agent({"root": [spawn("A", "B"), "All of it."]})
    session = Session(provider=provider)
    run = ended(session, "first")
    ended(session_of(), "second")

    newest, first = session.runs()

    assert (newest.task, first.task) == ("second", "first")
    assert (first.id, first.status, first.agents) == (run.id, AgentStatus.COMPLETED, 3)
    assert first.tokens_used == run.budget.tokens_used
    assert (first.thread_id, first.session_id) == (run.thread_id, session.id)
    assert tasks(session.runs(limit=1)) == ["second"]
    assert tasks(session.runs(status="failed")) == []
    assert [record["task"] for record in session.runs().to_records()] == ["second", "first"]


def test_loaded_run_tells_what_the_live_one_told() -> None:
    session = Session(provider=by_agent({"root": [spawn("A", "B"), "All of it."]}))
    run = ended(session)
    records, run_id, entries = run.to_records(), run.id, list(run.events)
    agent, tree = run.agent("1"), str(run.tree)
    answer, usage = run.output, run.usage
    del run
    session = session_of()  # the first session still has its newest run

    for name in (run_id, run_id[:-3], session.runs()[0]):
        loaded = session.load(name)
        assert (loaded.id, loaded.output, str(loaded.tree)) == (run_id, answer, tree)

    assert not isinstance(loaded, Run)
    assert list(loaded.events) == entries
    assert loaded.to_records() == records
    assert loaded.usage == usage
    assert loaded.agent("1").messages == agent.messages
    assert loaded.status is AgentStatus.COMPLETED


def test_run_that_goes_on_is_loaded_as_itself() -> None:
    hold = Hold()
    session = session_of(provider=ScriptedProvider([Reply("half of it", pause=hold)]))
    run = session.spawn("a task")
    hold.wait()

    loaded = session.load(run.id)
    (info,) = session.runs()
    with pytest.raises(ValueError, match="has not ended"):
        session.delete_run(run.id)
    hold.release()

    assert loaded is run
    assert info.status is AgentStatus.RUNNING
    assert run.result(DEADLINE_S).output == "half of it"


def test_id_that_fits_no_run_or_several_is_refused() -> None:
    session = session_of()
    ids = [ended(session).id for _ in range(2)]

    with pytest.raises(NoSuchRun):
        session.load("no such id")
    with pytest.raises(AmbiguousRun):
        session.load(ids[0][:4])
    for wrong in ("", 5, None):
        with pytest.raises(ValueError, match="must be a run's id"):
            session.load(wrong)  # type: ignore[arg-type]


def test_deleted_run_is_gone_and_so_are_old_ones() -> None:
    session = configure(provider=ScriptedProvider(lambda request: "Done."))
    run = ended(session, "first")
    ended(session, "second")

    agentnb.delete_run(run.id[:-1])

    assert tasks(agentnb.runs()) == ["second"]
    with pytest.raises(NoSuchRun):
        session.load(run.id)
    assert agentnb.prune().runs == 0
    assert agentnb.prune(older_than="0h").runs == 1
    assert agentnb.runs() == []
    with pytest.raises(ValueError, match="`older_than`"):
        agentnb.prune("soon")


# -- without a store ------------------------------------------------------------------------------


def test_without_a_store_the_runs_of_this_process_are_listed() -> None:
    session = session_of(store=None)
    run = ended(session, "first", name="mine", tags=["one"])
    failing = session_of(store=None, provider=ScriptedProvider([InvalidRequest("No.")]))
    with pytest.raises(agentnb.OrchestratorError):
        ended(failing, "second")

    second, first = session.runs()

    assert (first.id, first.name, first.tags, first.task) == (run.id, "mine", ("one",), "first")
    assert (first.status, first.agents) == (AgentStatus.COMPLETED, 1)
    assert first.tokens_used == run.budget.tokens_used
    assert (second.task, second.status) == ("second", AgentStatus.FAILED)
    assert tasks(session.runs(status="failed")) == ["second"]
    assert tasks(session.runs(text="ONE")) == ["first"]
    assert tasks(session.runs(limit=1)) == ["second"]
    assert session.load(run.id[:-2]) is run
    with pytest.raises(ValueError, match="`limit`"):
        session.runs(limit=0)
    assert not DEFAULT.exists()


def test_without_a_store_runs_are_deleted_and_pruned_from_memory() -> None:
    hold = Hold()
    session = session_of(
        store=None, provider=ScriptedProvider(["one", "two", Reply("three", pause=hold)])
    )
    first, _ = ended(session, "first"), ended(session, "second")
    going_on = session.spawn("third")
    hold.wait()

    assert tasks(session.runs()) == ["third", "second", "first"]
    assert session.runs()[0].status is AgentStatus.RUNNING
    with pytest.raises(ValueError, match="has not ended"):
        session.delete_run(going_on.id)
    session.delete_run(first.id)
    with pytest.raises(NoSuchRun):
        session.load(first.id)
    assert session.prune("30d").runs == 0
    assert session.prune("0h").runs == 1
    assert tasks(session.runs()) == ["third"]
    hold.release()
    going_on.result(DEADLINE_S)


def test_without_a_store_only_the_newest_summaries_are_kept() -> None:
    session = session_of(store=None)
    for number in range(MOST_SUMMARIES + 2):
        ended(session, f"task {number}")

    listed = session.runs(limit=None)

    assert tasks(listed)[0] == f"task {MOST_SUMMARIES + 1}"
    assert len(listed) == MOST_SUMMARIES
    with pytest.raises(NoSuchRun, match=r"^Only a summary of the run .* is left: "):
        session.load(listed[-1])


# -- the database of threads, tasks and memories --------------------------------------------------


def add_session(session: Session) -> bool:
    """Write to the session's database. Returns whether the session reads it back."""
    work = partial(open_session, session_id=session.id, now=0.0)
    session.store.transactions().do(work)
    return session.store.transactions().do(partial(has_session, session_id=session.id))


def test_transactions_make_the_file_and_write_to_it(project: Path) -> None:
    session = session_of(store="mine.db")
    assert not Path("mine.db").exists()

    assert add_session(session)

    assert session.store.transactions() is session.store.transactions()
    other = session_of(store="mine.db")
    assert other.store.transactions().do(partial(has_session, session_id=session.id))


def test_without_a_file_transactions_are_in_the_memory_of_their_session(project: Path) -> None:
    session, other = session_of(store=None), session_of(store=None)

    assert add_session(session)

    assert session.store.transactions() is session.store.transactions()
    assert not other.store.transactions().do(partial(has_session, session_id=session.id))
    assert list(project.iterdir()) == []


def test_file_that_cannot_be_opened_gives_transactions_in_memory_and_is_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "no folder").write_text("a file")
    session = session_of(store=project / "no folder" / "runs.db")

    assert add_session(session)
    ended(session)

    assert isinstance(session.store.transactions(), MemoryTransactions)
    assert capsys.readouterr().err.splitlines() == [session.store.trouble]


@pytest.mark.parametrize(
    "end",
    ["with session:\n    pass\nprint(len(session.threads()))", "del session\ngc.collect()", ""],
    ids=["closed", "dropped", "alive at exit"],
)
def test_session_without_a_store_leaves_no_connection_open(
    end: str, fork_server: ForkServer
) -> None:
    code = """
    import gc
    import agentnb
    session = agentnb.Session(model="demo/demo", store=None)
    run = session.spawn("a task")
    run.result()
    print(len(session.threads()))
    """
    said = fork_server.printed_by(f"{textwrap.dedent(code)}\n{end}\nprint(run.status)")
    assert set(said.split()) == {"2", "completed"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_fork_has_transactions_in_its_own_memory(project: Path) -> None:
    code = """
    import os
    import agentnb
    session = agentnb.Session(model="demo/demo", store="mine.db")
    parents = type(session.store.transactions()).__name__
    if not (child := os.fork()):
        print(parents, type(session.store.transactions()).__name__, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["_FileTransactions", "MemoryTransactions"]


# -- trouble --------------------------------------------------------------------------------------


def test_trouble_is_told_once_in_one_line_and_the_run_goes_on(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "no folder").write_text("a file")
    session = session_of(store=project / "no folder" / "runs.db")

    for task in ("first", "second"):
        assert ended(session, task).output == f"Done: {task}"

    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert told.err.strip() == session.store.trouble
    assert tasks(session.runs()) == ["second", "first"]
    assert session.load(session.runs()[0]).output == "Done: second"
    assert (project / "no folder").read_text() == "a file"
    assert str(session.store.trouble) in settings_text(session)
    session.delete_run(session.runs()[0])
    assert tasks(session.runs()) == ["first"]


def test_script_that_starts_no_further_run_is_told_at_its_end(project: Path) -> None:
    code = """
    import agentnb
    provider = agentnb.ScriptedProvider(lambda request: "Done.")
    session = agentnb.Session(provider=provider, store="mine.db")
    run = session.spawn("a task")
    type(session.store).trouble = property(lambda self: "The disk is full.")
    print(run.result().output)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("Done.\n", "The disk is full.\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_process_lists_what_is_kept_and_keeps_its_own_runs_in_memory(project: Path) -> None:
    code = """
    import os
    import agentnb
    provider = agentnb.ScriptedProvider(lambda request: "Done.")
    session = agentnb.Session(provider=provider, store="mine.db")
    session.run_sync("of the parent")
    if not (child := os.fork()):
        session.run_sync("of the child")
        print([info.task for info in session.runs()], session.store.trouble is None, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    session.run_sync("of the parent again")
    print([info.task for info in session.runs()], session.store.trouble is None)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == [
        "['of the child', 'of the parent'] False",
        "['of the parent again', 'of the parent'] True",
    ]
    assert len(done.stderr.splitlines()) == 1
