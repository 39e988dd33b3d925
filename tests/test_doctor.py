"""`python -m agentnb doctor`, from outside, in incomplete environments; and its rules."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentnb.config import Config, load_config
from agentnb.doctor import examine
from agentnb.doctor.finding import Finding, as_text, fault, ok, warn
from agentnb.doctor.jupyter import Jupyter, KernelSpec, check_front_ends, check_kernel, disabled_in
from agentnb.doctor.packages import (
    Installation,
    check_agentnb,
    check_extras,
    check_packages,
    origin_in,
)
from agentnb.doctor.page import check_page
from agentnb.doctor.project import (
    StoreFile,
    check_models,
    check_store,
    check_trust_folder,
    read_store,
)
from agentnb.doctor.runs import check_mode, check_servers
from agentnb.doctor.versions import Requirement, read_requirement
from agentnb.repeat import Repeat
from agentnb.settings import Settings
from agentnb.store.database import open_to_write
from agentnb.store.schema import VERSION
from agentnb.tools.mcp.server import mcp, server_of_file
from tests.support import DEADLINE_S

ROOT = Path(__file__).parent.parent
PIP = f"{shlex.quote(sys.executable)} -m pip"
KEY = "sk-ant-0123456789-secret"

# Package metadata that Python finds first; a package with the version `-` is not found at all.
HIDING = """
import importlib.metadata, sys
hidden = {hidden!r}
real = importlib.metadata.Distribution.from_name.__func__
def from_name(cls, name):
    if name in hidden:
        raise importlib.metadata.PackageNotFoundError(name)
    return real(cls, name)
importlib.metadata.Distribution.from_name = classmethod(from_name)
"""


class Place:
    """A working directory and an environment for doctor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._path = folder / "path"
        self._path.mkdir()
        self.variables = {"AGENTNB_STORE": "auto"}

    def has_package(self, name: str, version: str) -> None:
        about = self._path / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        about.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )

    def hides(self, *packages: str) -> None:
        self._path.joinpath("sitecustomize.py").write_text(HIDING.format(hidden=packages))

    def writes(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return path

    def doctor(self, *options: str) -> subprocess.CompletedProcess[str]:
        paths = [str(self._path), os.environ["PYTHONPATH"]]
        return subprocess.run(
            [sys.executable, "-m", "agentnb", "doctor", *options],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **self.variables},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def report(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and the JSON."""
        done = self.doctor("--json")
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def by_name(report: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in report["checks"]}


# -- from outside ---------------------------------------------------------------------------------


def test_sound_set_up_has_no_fault_and_is_left_as_it_was(place: Place) -> None:
    place.variables["ANTHROPIC_API_KEY"] = KEY

    code, report = place.report()

    checks = by_name(report)
    assert [check for check in report["checks"] if check["status"] == "fault"] == []
    assert (code, report["ok"]) == (0, True)
    assert set(report) == {"ok", "checks", "versions"}
    assert all(list(check) == ["name", "status", "found", "fix"] for check in report["checks"])
    assert {"python", "agentnb", "packages", "extra lab", "kernel", "jupyterlab", "keys"} < {
        *checks
    }
    assert report["versions"]["pydantic"]
    assert "ANTHROPIC_API_KEY" in checks["keys"]["found"]
    assert KEY not in json.dumps(report)
    assert checks["store"]["found"].endswith(".agentnb/agentnb.db': created by the first run")
    assert list(place.folder.iterdir()) == []


def test_each_fault_has_its_fix_and_the_exit_code_is_1(place: Place) -> None:
    place.has_package("networkx", "3.1")
    place.hides("pydantic")
    place.writes("agentnb.yaml", "session:\n  bugdet: 3\n")
    no_folder = place.writes("file", "")
    kernel = {"argv": ["/elsewhere/bin/python", "-m", "ipykernel_launcher"], "display_name": "P"}
    place.writes("jupyter/kernels/python3/kernel.json", json.dumps(kernel))
    turned_off = {"disabledExtensions": {"anywidget": True}}
    place.writes("config/labconfig/page_config.json", json.dumps(turned_off))
    place.variables |= {
        "AGENTNB_STORE": str(no_folder / "runs.db"),
        "AGENTNB_DISPLAY": "everything",
        "JUPYTER_PATH": str(place.folder / "jupyter"),
        "JUPYTER_CONFIG_DIR": str(place.folder / "config"),
    }

    code, report = place.report()

    found = by_name(report)
    faults = {name: check for name, check in found.items() if check["status"] == "fault"}
    assert (code, report["ok"]) == (1, False)
    assert faults.keys() == {
        "package networkx",
        "package pydantic",
        "settings",
        "kernel",
        "extension anywidget",
        "store",
        "display",
    }
    assert faults["package networkx"]["found"].startswith("3.1; agentnb needs >=3")
    assert faults["package networkx"]["fix"].startswith(f"`{PIP} install 'networkx>=3")
    assert faults["package pydantic"]["found"] == "is not installed"
    assert faults["package pydantic"]["fix"].startswith(f"`{PIP} install 'pydantic>=2")
    assert "`session.bugdet`" in faults["settings"]["found"]
    assert faults["settings"]["fix"] == "edit agentnb.yaml, line 2"
    assert "/elsewhere/bin/python" in faults["kernel"]["found"]
    assert "kernelspec remove python3" in faults["kernel"]["fix"]
    assert "labextension enable anywidget" in faults["extension anywidget"]["fix"]
    assert str(no_folder) in faults["store"]["found"]
    assert "AGENTNB_STORE" in faults["store"]["fix"]
    assert "AGENTNB_DISPLAY" in faults["display"]["fix"]


ELSEWHERE = "in a folder that you may write to"


@pytest.mark.parametrize(
    ("variables", "name", "found", "fix"),
    [
        ({"AGENTNB_MODE": "foo"}, "mode", "not 'foo'", "set AGENTNB_MODE again"),
        (
            {"AGENTNB_MODE": "replay", "AGENTNB_CASSETTE": "HERE/no.cassette.jsonl"},
            "mode",
            "no.cassette.jsonl': there is no such file",
            "Record it",
        ),
        (
            {"AGENTNB_MODE": "auto", "AGENTNB_CASSETTE": "HERE/notes"},
            "mode",
            "notes': line 1: ",
            "Give the path of a file that agentnb recorded",
        ),
        (
            {"AGENTNB_MODE": "record", "AGENTNB_CASSETTE": "HERE/none/new.cassette.jsonl"},
            "mode",
            "its folder is not there",
            "AGENTNB_CASSETTE",
        ),
        ({"AGENTNB_DEMO_PACE_S": "abc"}, "demo", "is 'abc'", "set AGENTNB_DEMO_PACE_S again"),
        ({"AGENTNB_STORE": "/proc/x/y.db"}, "store", "'/proc/x/y.db' cannot be written", ELSEWHERE),
        ({"AGENTNB_STORE": "a" * 300}, "store", "name too long", ELSEWHERE),
    ],
)
def test_variable_that_stops_every_run_is_a_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    name: str,
    found: str,
    fix: str,
) -> None:
    tmp_path.joinpath("notes").write_text("These are no runs.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTNB_STORE", "none")
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value.replace("HERE", str(tmp_path)))

    (told,) = (each for each in examine().findings if each.status == "fault")

    assert told.name == name
    assert found.casefold() in told.found.casefold()
    assert fix in told.fix
    assert [each.name for each in tmp_path.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("server", "found", "fix"),
    [
        ("{command: no-such-program}", "no program 'no-such-program'", "its full path"),
        ("{command: ./there}", "", ""),
        ("{command: bin/../gone}", "no program 'bin/../gone'", "its full path"),
        ("{command: there, env: {PATH: '${LAB_TOOLS}'}}", "", ""),
        ("{command: there, env: {PATH: '.'}}", "", ""),
        ("{command: sh, env: {PATH: '.'}}", "no program 'sh'", "`PATH`"),
        ("{command: sh, env: {KEY: '${LAB_KEY}'}}", "LAB_KEY, which is not set", "LAB_KEY"),
        ("{url: 'http://localhost:1/mcp', headers: {Key: '${LAB_KEY}'}}", "LAB_KEY", "LAB_KEY"),
    ],
)
def test_server_without_its_program_or_variable_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, found: str, fix: str
) -> None:
    tmp_path.joinpath("there").touch(0o755)
    tmp_path.joinpath("agentnb.yaml").write_text(f"tools:\n  mcp:\n    maps: {server}\n")
    monkeypatch.setenv("LAB_TOOLS", str(tmp_path))
    config = load_config(tmp_path)

    (told,) = check_servers(server_of_file(each, config.folder) for each in config.mcp.values())

    assert (told.name, told.status) == ("server maps", "fault" if found else "ok")
    assert found in told.found
    assert fix in told.fix


def test_server_of_the_session_is_started_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("there").touch(0o755)
    monkeypatch.chdir(tmp_path)

    told = [*check_servers([mcp("./there"), mcp("./gone"), mcp("there", env={"PATH": ""})])]

    assert [each.status for each in told] == ["ok", "fault", "ok"]


def test_pool_of_a_model_without_a_provider_is_told(tmp_path: Path) -> None:
    tmp_path.joinpath("agentnb.yaml").write_text("llm:\n  pools: {quick: [demo, lab/mini]}\n")

    (told,) = check_models(load_config(tmp_path))

    # No fault: the notebook may register it.
    assert (told.name, told.status) == ("models", "warn")
    assert "`llm.pools.quick[1]`" in told.found
    assert "line 2" in told.fix


def test_mode_without_a_cassette_is_a_fault_where_the_notebook_would_be_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTNB_MODE", "replay")

    def told(*, in_kernel: bool) -> Finding:
        (found,) = check_mode(lambda: Repeat.of(Settings(), Config(Path())), in_kernel=in_kernel)
        return found

    assert (told(in_kernel=True).status, told(in_kernel=False).status) == ("fault", "warn")
    assert "set AGENTNB_CASSETTE" in told(in_kernel=True).fix


def test_what_a_settings_file_needs_and_lacks_is_told(place: Place) -> None:
    place.hides("mcp", "distributed")
    place.writes(
        "agentnb.yaml",
        "tools:\n  mcp:\n    maps: {command: maps-server}\n"
        "engines:\n  lab: {dask: 'tcp://lab.example.org:8786'}\n"
        "llm:\n  providers:\n    openai: {base_url: 'http://localhost:1', api_key_env: LAB_KEY}\n",
    )
    store = place.writes("notes.db", "These are no runs. " * 100)
    place.variables |= {
        "AGENTNB_STORE": str(store),
        "OPENAI_API_KEY": KEY,
        "XDG_CONFIG_HOME": str(store / "below-a-file"),
    }

    code, report = place.report()

    found = by_name(report)
    assert code == 1
    assert (found["extra mcp"]["status"], found["extra mcp"]["fix"]) == (
        "fault",
        f"`{PIP} install 'agentnb[mcp]'`",
    )
    assert "maps" in found["extra mcp"]["found"]
    assert (found["extra dask"]["status"], found["extra dask"]["fix"]) == (
        "fault",
        f"`{PIP} install 'agentnb[dask]'`",
    )
    assert (found["keys"]["status"], found["keys"]["fix"]) == (
        "fault",
        "set the environment variable LAB_KEY, and start the kernel again",
    )
    assert found["settings"]["status"] == "ok"
    assert found["trust"]["status"] == "warn"
    assert "maps-server" in found["trust"]["found"]
    assert "lab.example.org" in found["trust"]["found"]
    assert "python -m agentnb trust agentnb.yaml" in found["trust"]["fix"]
    assert found["trust folder"]["status"] == "warn"
    assert "XDG_CONFIG_HOME" in found["trust folder"]["fix"]
    assert found["store"]["status"] == "fault"
    assert found["store"]["found"].endswith(": it is not a database")
    assert found["store"]["fix"].startswith("move it away")
    assert store.read_text().startswith("These are no runs.")
    assert KEY not in json.dumps(report)


def test_table_has_a_line_for_each_check_and_one_for_each_fix(place: Place) -> None:
    place.hides("agentnb")  # agentnb is run from a folder, not installed

    done = place.doctor()

    *table, count, where = done.stdout.splitlines()
    assert done.returncode == 0
    assert {line.split()[0] for line in table} <= {"ok", "warn", "fix:"}
    assert re.search(r"^warn +agentnb +\S+, run from a folder", done.stdout, re.MULTILINE)
    assert re.search(r"^ok +jupyterlab +4", done.stdout, re.MULTILINE)
    assert re.search(r"^warn +keys +no key is set", done.stdout, re.MULTILINE)
    assert re.search(r"^ +fix: set ANTHROPIC_API_KEY", done.stdout, re.MULTILINE)
    assert re.fullmatch(r"no faults, \d+ warnings?\.", count)
    assert "%agentnb doctor" in where


# -- packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "version", "is_met"),
    [
        ("pydantic<3,>=2.10", "2.10", True),
        ("pydantic<3,>=2.10", "2.10.0", True),
        ("pydantic<3,>=2.10", "2.9.2", False),
        ("pydantic<3,>=2.10", "2.10rc1", False),
        ("pydantic<3,>=2.10", "3.0", False),
        ("pydantic<3,>=2.10", "3.0.0b2", False),
        ("genai<1.4,>=1.3b0", "1.3b0", True),
        ("genai<1.4,>=1.3b0", "1.3a9", False),
        ("genai<1.4,>=1.3b0", "1.3.dev4", False),
        ("genai<1.4,>=1.3b0", "1.3.post1", True),
        ("genai<1.4,>=1.3b0", "1.4b0", False),
        ("anthropic[aiohttp] (<3,>=2.5)", "2.11.1+local", True),
        ("pydantic-core", "0.1", True),
        ("ipython>=8.20", "10.0", True),
        ("ipython>=8.20", "of today", False),
    ],
)
def test_version_meets_its_bounds_as_pip_has_it(line: str, version: str, *, is_met: bool) -> None:
    requirement = read_requirement(line)

    assert requirement is not None
    assert requirement.is_met_by(version) is is_met


def test_requirement_of_an_extra_knows_it() -> None:
    requirement = read_requirement("Jupyter_Client<9,>=8 ; extra == 'code'")

    assert requirement is not None
    assert (requirement.spec, requirement.extra) == ("jupyter-client>=8,<9", "code")


def installed(**changes: Any) -> Installation:
    line = "pydantic<3,>=2.10"
    requirement = read_requirement(line)
    assert requirement is not None
    fields: dict[str, Any] = {
        "code_version": "0.2.0",
        "version": "0.2.0",
        "python": "3.11.7",
        "python_floor": ">=3.11",
        "requirements": (requirement,),
        "versions": {"pydantic": "2.12"},
        "pip": "%pip",
        "origin": "",
    }
    return Installation(**{**fields, **changes})


def test_code_that_is_not_the_installed_one_is_told() -> None:
    (same,) = check_agentnb(installed())
    (other,) = check_agentnb(installed(version="0.1.0"))
    (nowhere,) = check_agentnb(installed(version=None, requirements=()))

    assert same.status == "ok"
    assert (other.status, "0.1.0" in other.found) == ("warn", True)
    assert "`%pip install --force-reinstall --no-deps SOURCE`" in other.fix
    assert "start the kernel again" in other.fix
    assert (nowhere.status, nowhere.fix) == ("warn", "`%pip install -e .` in its folder")
    assert installed(version=None).adding("lab").startswith("`%pip install -e '.[lab]'`")
    assert [*check_packages(installed(requirements=()))] == []


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ('{"url": "file://HERE/a%20folder", "dir_info": {"editable": true}}', "-e 'HERE/a folder'"),
        ('{"url": "file://HERE/a%20folder", "dir_info": {}}', "'HERE/a folder'"),
        ('{"url": "file://HERE/gone.whl", "archive_info": {}}', ""),
        (
            '{"url": "https://lab.example.org/a.whl", "archive_info": {}}',
            "https://lab.example.org/a.whl",
        ),
        ('{"url": "https://me:pw@lab.example.org/a.whl", "archive_info": {}}', ""),
        (
            '{"url": "ssh://git@lab.example.org/a.git", "vcs_info": '
            '{"vcs": "git", "requested_revision": "v2", "commit_id": "c0ffee"}}',
            "git+ssh://git@lab.example.org/a.git@v2",
        ),
        ("", ""),
        ("[]", ""),
    ],
)
def test_agentnb_is_reinstalled_from_where_it_came_never_by_its_name(
    tmp_path: Path, record: str, words: str
) -> None:
    tmp_path.joinpath("a folder").mkdir()

    origin = origin_in(record.replace("HERE", str(tmp_path)))
    (found,) = check_agentnb(installed(version="0.1.0", origin=origin))

    assert origin == words.replace("HERE", str(tmp_path))
    assert f"--no-deps {origin or 'SOURCE'}`" in found.fix


# -- kernels and pages ----------------------------------------------------------------------------

HERE = Jupyter(
    python="/env/bin/python",
    has_client=True,
    has_ipykernel=True,
    spec=KernelSpec("/env/share/jupyter/kernels/python3", "python"),
    extensions={"@jupyter-widgets/jupyterlab-manager": "5.0", "anywidget": "0.11"},
    disabled=frozenset(),
)


def changed(**changes: Any) -> Jupyter:
    fields = ("python", "has_client", "has_ipykernel", "spec", "extensions", "disabled")
    return Jupyter(**{**{name: getattr(HERE, name) for name in fields}, **changes})


@pytest.mark.parametrize(
    ("jupyter", "status", "fix"),
    [
        (HERE, "ok", ""),
        (changed(spec=KernelSpec("there", "/env/bin/python3.11")), "ok", ""),
        (changed(spec=KernelSpec("there", "/usr/bin/python3")), "fault", "kernelspec remove"),
        (changed(spec=None), "fault", "/env/bin/python -m ipykernel install --sys-prefix"),
        (changed(spec=KernelSpec("", "", trouble="no JSON")), "fault", "ipykernel install"),
        (changed(has_ipykernel=False), "fault", "%pip install 'agentnb[code]'"),
        (changed(has_ipykernel=False, has_client=False, spec=None), "warn", "agentnb[lab]"),
    ],
)
def test_kernel_of_another_environment_is_a_fault(jupyter: Jupyter, status: str, fix: str) -> None:
    (found,) = check_kernel(jupyter, installed())

    assert found.status == status
    assert fix in found.fix
    assert bool(fix) == bool(found.fix)


def test_page_without_its_extensions_is_a_fault_if_it_comes_from_here() -> None:
    bare = changed(extensions={})
    lab = installed(versions={"jupyterlab": "4.6.6"})
    old = installed(versions={"notebook": "6.5.7"})

    sound = [*check_front_ends(HERE, lab, in_kernel=False)]
    faults = [each for each in check_front_ends(bare, lab, in_kernel=False) if each.fix]
    elsewhere = [*check_front_ends(bare, installed(versions={}), in_kernel=True)]
    classic = [each for each in check_front_ends(HERE, old, in_kernel=False) if each.fix]

    assert {each.status for each in sound} == {"ok"}
    assert [(each.name, each.status) for each in faults] == [
        ("extension jupyterlab_widgets", "fault"),
        ("extension anywidget", "fault"),
    ]
    assert all("--force-reinstall" in each.fix for each in faults)
    assert [each.status for each in elsewhere] == ["ok"]
    assert [(each.name, each.status) for each in classic] == [("notebook", "warn")]


def test_extension_is_off_by_the_first_folder_that_says_so(tmp_path: Path) -> None:
    own, system = tmp_path / "own", tmp_path / "system"
    for folder, listed in (
        (own, {"b": False}),
        (system, {"a:plugin": True, "b": True, "c": False}),
    ):
        page = folder / "labconfig" / "page_config.json"
        page.parent.mkdir(parents=True)
        page.write_text(json.dumps({"disabledExtensions": listed}))

    assert disabled_in([own, system]) == {"a"}
    assert disabled_in([system, own]) == {"a", "b"}


def test_page_that_said_nothing_of_a_live_view_is_told_only_if_there_was_one() -> None:
    def page(wanted: str = "all", **known: bool) -> str:
        known = {"displayed": False, "shown": False, **known}
        return check_page(installed(), wanted=wanted, **known).status

    assert page() == "ok"
    assert page(displayed=True) == "warn"
    assert page(displayed=True, shown=True) == "ok"
    assert page("none", displayed=True) == "ok"


def test_colab_is_told_nothing_against_its_own_packages() -> None:
    """Its kernel needs them; IPython 9 ends it."""
    own = {"ipykernel": "6.17.1", "notebook": "6.5.7", "ipython": "7.34.0"}
    lab = [Requirement("ipykernel", ">=7.1", "lab"), Requirement("notebook", ">=7", "lab")]
    needed = (Requirement("ipython", ">=8.20", ""), *lab)
    colab = installed(versions=own, requirements=needed, is_colab=True)

    (front_end,) = check_front_ends(HERE, colab, in_kernel=True)
    (ipython,) = check_packages(colab)
    extras = [each for each in check_extras(colab, {}) if each.fix]
    page = check_page(colab, wanted="all", displayed=True, shown=False)

    assert (front_end.name, front_end.status, "--bg" in front_end.found) == ("colab", "ok", True)
    assert (ipython.status, ipython.fix) == ("fault", "`%pip install 'ipython>=8.20,<9'`")
    assert extras == []
    assert (page.status, "enable_custom_widget_manager()" in page.fix) == ("warn", True)


# -- the store ------------------------------------------------------------------------------------


def test_store_that_opens_has_its_schema_and_one_of_a_newer_agentnb_a_fix(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    open_to_write(path).close()
    (opens,) = check_store(read_store(path), newest=VERSION)
    with open_to_write(path) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    (newer,) = check_store(read_store(path), newest=VERSION)

    assert (opens.status, opens.found) == ("ok", f"{str(path)!r}: opens, schema {VERSION}")
    assert newer.status == "fault"
    assert newer.fix == "update agentnb, or name another file"


def test_store_with_little_room_or_none_is_told() -> None:
    path = Path("runs.db")
    (little,) = check_store(StoreFile(path, free_bytes=3_000_000), newest=VERSION)
    (locked,) = check_store(StoreFile(path, can_be_written=False), newest=VERSION)
    (nothing,) = check_store(StoreFile(None), newest=VERSION)

    assert (little.status, "3 MB left" in little.found) == ("warn", True)
    assert "agentnb.prune" in little.fix
    assert (locked.status, "AGENTNB_STORE" in locked.fix) == ("fault", True)
    assert nothing.status == "ok"


def test_person_without_a_home_can_trust_by_a_variable() -> None:
    (found,) = check_trust_folder(None)

    assert found.status == "warn"
    assert "AGENTNB_TRUST=1" in found.fix


# -- what is shown --------------------------------------------------------------------------------


def test_text_of_a_stranger_acts_on_no_terminal_and_shows_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    said = as_text(
        [fault("settings", f"\x1b[2J{KEY}", "edit it"), warn("a", "b", "c"), ok("d", "e")]
    )

    assert "\x1b" not in said
    assert KEY not in said
    assert said.endswith("1 fault, 1 warning.")


def test_page_on_doctor_names_each_check() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "agentnb" / "doctor").glob("*.py")
    )

    named = set(re.findall(r"(?:ok|warn|fault)\(\s*f?\"([a-z]+(?: [a-z]+)?)", code))

    assert len(named) > 10
    assert {name for name in named if f"`{name}" not in page} == set()
