"""The pytest plugin, from outside: a person's tests in a pytest of their own."""

from __future__ import annotations

import pkgutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import agentnb.pytest_plugin
import agentnb.testing  # a pytest in this process unloads modules that it imported first
from agentnb.session import Session
from tests.test_import import in_fresh_process

pytest_plugins = ["pytester"]

AGENTS = """
import os, socket, asyncio, urllib.request
import pytest
import agentnb
from agentnb import ScriptedProvider

ANSWERS = [] if "UNASKED" in os.environ else ["It is long."] * 9

@pytest.fixture
def agentnb_settings():
    return {"provider": ScriptedProvider(ANSWERS)}
"""


class Suite:
    """A person's test file, and a way to run it."""

    def __init__(self, pytester: pytest.Pytester, patch: pytest.MonkeyPatch) -> None:
        self._pytester, self._patch = pytester, patch
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # also agentnb's, if it is installed
        patch.delenv("CI", raising=False)

    def run(self, code: str, *options: str, passed: int, **environment: str) -> str:
        """Run tests that must all pass; returns what pytest printed."""
        self._pytester.makepyfile(test_it=AGENTS + code)
        for name, value in environment.items():
            self._patch.setenv(name, value)
        plugin = ("-p", "agentnb.pytest_plugin", "-p", "no:cacheprovider")
        done = self._pytester.runpytest_inprocess(*plugin, *options)
        done.assert_outcomes(passed=passed)
        return done.stdout.str()

    @property
    def cassettes(self) -> list[str]:
        folder = self._pytester.path
        return sorted(str(each.relative_to(folder)) for each in folder.rglob("*.jsonl"))


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(pytester, monkeypatch)


TWO_RUNS = """
def test_two(agentnb_session):
    for name in os.environ["NAMES"].split():
        agentnb_session.run_sync("How long is it?", name=name)
"""


def test_recorded_runs_that_no_test_asks_for_are_named(suite: Suite) -> None:
    suite.run(TWO_RUNS, "--agentnb-mode=record", passed=1, NAMES="rhine danube volga")
    assert "not used" not in suite.run(TWO_RUNS, passed=1)

    said = suite.run(TWO_RUNS, passed=1, NAMES="danube")

    assert "2 recordings were not used:\n  test_two.cassette.jsonl: 'rhine', 'volga'\n" in said


RIVERS = """
class TestRivers:
    @pytest.mark.parametrize("river", ["rhine", "Rhine", "Danube/Donau", "x" * 99])
    def test_length(self, agentnb_session, river):
        mode = agentnb_session.mode
        assert f"{mode.name}: {mode.why}".startswith(os.environ["WANTED"])
        assert agentnb_session.run_sync(f"How long is {river}?").output == "It is long."

@pytest.mark.parametrize("again", [1, 2])
def test_same_task_twice(agentnb_session, again):
    for _ in range(2):
        assert agentnb_session.run_sync("Again.").output == "It is long."
"""


def test_each_test_records_its_own_file_and_replays_it_once_it_exists(suite: Suite) -> None:
    suite.run(RIVERS, "--agentnb-mode=record", passed=6, WANTED="record: --agentnb-mode")
    assert [name.removeprefix("cassettes/test_it/") for name in suite.cassettes] == [
        "TestRivers.test_length-Danube-Donau-204909.cassette.jsonl",
        "TestRivers.test_length-Rhine-d21a06.cassette.jsonl",
        "TestRivers.test_length-rhine.cassette.jsonl",
        f"TestRivers.test_length-{'x' * 60}-d0621f.cassette.jsonl",
        "test_same_task_twice-1.cassette.jsonl",
        "test_same_task_twice-2.cassette.jsonl",
    ]

    suite.run(RIVERS, passed=6, WANTED="replay: TestRivers", UNASKED="1")


COUNTED = """
@pytest.mark.parametrize("again", [1, 2])
def test_ids(agentnb_session, again):
    runs = [agentnb_session.spawn("Again.") for _ in range(2)]
    with open(f"ids{again}", "a") as file:
        print(agentnb_session.id, [run.thread_id for run in runs], file=file)
"""


def test_runs_and_sessions_are_counted_anew_for_each_test(suite: Suite) -> None:
    for _ in range(2):  # in one process
        suite.run(COUNTED, "--agentnb-mode=record", passed=2)

    told = [line for name in ("ids1", "ids2") for line in Path(name).read_text().splitlines()]
    assert len(told) == 4
    assert len(set(told)) == 1


OWN_SESSIONS = """
def plan():
    return agentnb.Session(provider=ScriptedProvider(ANSWERS), store=None).run_sync("Plan.").output

def test_own_session(agentnb_cassette):
    assert plan() == "It is long."
    assert agentnb_cassette.exists()

def test_default_session(agentnb_cassette):
    session = agentnb.configure(provider=ScriptedProvider(ANSWERS), store=None)
    assert session.run_sync("Plan.").output == "It is long."
    assert session.mode.cassette.path == agentnb_cassette

def test_other():
    assert agentnb.Session(store=None).mode.name == "live"
"""


def test_sessions_of_the_code_under_test_use_the_tests_cassette(suite: Suite) -> None:
    suite.run(OWN_SESSIONS, "--agentnb-mode=record", passed=3)
    suite.run(OWN_SESSIONS, passed=3, UNASKED="1")
    assert len(suite.cassettes) == 2


CLOSED = """
from agentnb.testing import NetworkClosed

def by_socket():
    socket.create_connection(("127.0.0.1", PORT))

def by_bare_socket():
    socket.socket()

def by_open_socket():
    BEFORE.connect_ex(("127.0.0.1", PORT))

def by_url():
    urllib.request.urlopen(f"http://localhost:{PORT}/")

def by_asyncio():
    asyncio.run(open_connection())

async def open_connection():
    await asyncio.open_connection("127.0.0.1", PORT)

SERVER = socket.create_server(("127.0.0.1", 0))
PORT = SERVER.getsockname()[1]
BEFORE = socket.socket()

@pytest.fixture(scope="module", autouse=True)
def closes_them():
    yield
    SERVER.close()
    BEFORE.close()

@pytest.mark.parametrize("reach", [by_socket, by_bare_socket, by_open_socket, by_url, by_asyncio])
def test_closed(agentnb_cassette, reach):
    with pytest.raises(NetworkClosed, match="replay.*--agentnb-mode"):
        reach()

def test_loop_works(agentnb_cassette):
    asyncio.run(asyncio.sleep(0))
    for end in socket.socketpair():
        end.close()

def test_open_without_the_fixture():
    with socket.create_connection(("127.0.0.1", PORT)):
        pass
"""


def test_nothing_opens_a_connection_while_a_test_is_replayed(suite: Suite) -> None:
    suite.run(CLOSED, "--agentnb-mode=replay", passed=7)


IN_CI = """
from agentnb.errors import NoCassette

class Remote(ScriptedProvider):
    uses_network = True

@pytest.fixture
def agentnb_settings(request):
    return {"provider": (Remote if "network" in request.node.name else ScriptedProvider)(ANSWERS)}

def test_network(agentnb_session):
    assert agentnb_session.mode.name == "live"
    with pytest.raises(NoCassette, match="--agentnb-mode=record"):
        agentnb_session.spawn("x")
    with pytest.raises(RuntimeError, match="--agentnb-mode=record"):
        socket.socket()

def test_script(agentnb_session):
    assert agentnb_session.run_sync("How long?").output == "It is long."
"""


def test_in_ci_a_test_without_a_cassette_is_not_silently_live(suite: Suite) -> None:
    suite.run(IN_CI, passed=2, CI="true")


def test_plugin_loads_nothing_before_it_is_asked_for() -> None:
    loaded = in_fresh_process(
        "import agentnb, sys; before = set(sys.modules); import pytest, agentnb.pytest_plugin",
        "sorted(m for m in set(sys.modules) - before if m.startswith('agentnb'))",
    )

    assert loaded == ["agentnb.pytest_plugin"]


def test_entry_point_names_the_plugin() -> None:
    project = Path(__file__).parent.parent / "pyproject.toml"
    points = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]

    found = pkgutil.resolve_name(points["pytest11"]["agentnb"])

    assert isinstance(found, ModuleType)
    assert found is agentnb.pytest_plugin
    assert Session is agentnb.Session
