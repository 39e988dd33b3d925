"""A test runs every code block of the documentation, or the page says why it is not run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml

from agentnb.config import load_config
from tests.loopback import LoopbackServer
from tests.notebook.forked import SDKS, ForkServer
from tests.pages import ROOT, blocks_of, cells_of, code_of, run_cells

PAGES = [
    *sorted(path.name for path in ROOT.glob("*.md")),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")),
]
# Blocks that are shown but not run: the page says what checks them.
SHOWN = {"xml", "text", "dockerfile"}
READ = {"json", "yaml"}  # by a test below
BUILT = {"{toctree}", "{eval-rst}"}  # by `make docs`

# Code that this file puts before a page's first block, before its second, and so on.
RUN_HERE = {
    "README.md": [],
    "docs/index.md": [],
    "docs/start.md": [],
    "docs/configuration.md": [],
    "docs/typed-answers.md": [],
    "docs/panel.md": [
        """
import agentnb
from agentnb.testing import Hold, Reply, by_agent, spawn
hold = Hold()
replies = {"root": [spawn("a", "b"), "both"], "b": [spawn("c"), "c"], "c": Reply("It.", pause=hold)}
session = agentnb.Session(provider=by_agent(replies), store=None)
""",
        "hold.wait()",
        """
print(run.paused)
hold.release()
print(run.result().output)
""",
    ],
    "docs/cassette.md": [
        """
import agentnb
from agentnb.core.keys import key_of
from agentnb.testing import ScriptedProvider
script = ScriptedProvider({"moon": "The moon."}, name="demo")
recording = agentnb.Session(
    model="demo/any", provider=script, mode="record", cassette="lesson.cassette.jsonl", store=None
)
recording.spawn_all(["What does the moon do?"], name="tides").result()
request = script.requests[0]
key = key_of("demo/any", request)
""",
        "print(cassette.labels, [call.path for call in cassette.calls('tides')])",
    ],
    "docs/tables.md": [
        *("", "", "", ""),
        "df, session = letters, agentnb.Session(provider=script, store=None)",
    ],
    "docs/how-to/label-a-column.md": [],
    "docs/how-to/other-front-ends.md": ["", "print(run.tree_view(), run.result().status)"],
    "docs/how-to/stop-a-runaway.md": [],
    "docs/how-to/teach-with-it.md": [],
    "docs/how-to/use-a-hub.md": [
        """
import os, types
os.environ["CLASS_KEY"] = "class"
c = types.SimpleNamespace(Spawner=types.SimpleNamespace())
person = types.SimpleNamespace(user=types.SimpleNamespace(name="me"))
""",
        "print(c.Spawner.environment['AGENTNB_STORE'](person))",
        "print(c.Spawner.environment)",
        "print(c.Spawner.environment)",
    ],
    "docs/how-to/use-ollama.md": [],
}
RUN_ELSEWHERE = {
    "docs/cluster.md": "tests/test_docs.py",
    "docs/delegation.md": "tests/test_docs.py",
    "docs/how-to/run-in-ci.md": "tests/test_doc_blocks.py",
    "docs/journal.md": "tests/test_journal_contract.py",
    "docs/kernel-data.md": "tests/test_docs.py",
    "docs/local-models.md": "tests/test_docs.py",
    "docs/mcp.md": "tests/test_docs.py",
    "docs/objects.md": "tests/test_docs.py",
    "docs/providers.md": "tests/test_docs.py",
    "docs/regression.md": "tests/test_docs.py",
    "docs/store.md": "tests/store/test_sql_of_docs.py",
    "docs/telemetry.md": "tests/test_docs.py",
    "docs/testing.md": "tests/test_docs.py",
    "docs/threads-and-tasks.md": "tests/test_docs.py",
    "docs/tools.md": "tests/test_docs.py",
}


@pytest.mark.parametrize("page", PAGES)
def test_block_is_run_or_says_why_it_is_not(page: str) -> None:
    blocks = [each for each in blocks_of(page) if each.language not in SHOWN | READ | BUILT]
    run = {block.language for block in blocks if block.runs}

    assert {block.language for block in blocks} <= {"python", "ipython", "bash", "sql"}
    assert [block.code for block in blocks if not block.runs and block.reason is None] == []
    if "bash" in run:  # run by the commands of `.ci/run`, or by the test below
        assert page in ("README.md", "docs/how-to/run-in-ci.md")
    if run - {"bash"}:
        assert (page in RUN_HERE) != (page in RUN_ELSEWHERE)
    if page in RUN_ELSEWHERE:
        test = (ROOT / RUN_ELSEWHERE[page]).read_text(encoding="utf-8")
        assert run <= {"python", "sql", "bash"}
        for language in run:
            call = f'code_of("{page}")' if language == "python" else f'"{page}", "{language}")'
            assert call in test


@pytest.mark.parametrize("page", PAGES)
def test_shown_block_names_what_checks_it(page: str) -> None:
    shown = [block for block in blocks_of(page) if block.language in SHOWN]

    assert [block.code for block in shown if block.reason is None] == []
    for block in shown:
        for test in re.findall(r"tests/[\w/]+\.py", block.reason or ""):
            code = (ROOT / test).read_text(encoding="utf-8")
            assert f'"{page}"' in code or f'"{Path(page).name}"' in code, block.code


@pytest.mark.parametrize("page", PAGES)
def test_yaml_of_a_page_has_no_mistake(page: str, tmp_path: Path) -> None:
    for name in ("prompts/reviewer.md", "STYLE.md"):  # which a file on a page may name
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    file = tmp_path / "agentnb.yaml"
    for code in code_of(page, "yaml"):
        if "jobs" in yaml.safe_load(code):
            _check_workflow(code)
            continue
        file.write_text(code, encoding="utf-8")
        assert load_config(file).broken == {}


def _check_workflow(code: str) -> None:
    """Check a workflow's keys, as GitHub knows them: of the ones that the pages use."""
    workflow = yaml.load(code, yaml.BaseLoader)  # for YAML 1.1 the key `on` is true
    assert workflow.keys() == {"name", "on", "jobs"}
    for job in workflow["jobs"].values():
        assert job.keys() == {"runs-on", "steps"}
        for step in job["steps"]:
            assert len(step.keys() & {"run", "uses"}) == 1
            assert step.keys() <= {"run", "uses", "with", "name"}


@pytest.mark.parametrize("page", PAGES)
def test_json_of_a_page_can_be_read(page: str) -> None:
    for code in code_of(page, "json"):
        lines = code.splitlines() if page == "docs/cassette.md" else [code]
        assert [type(json.loads(line)) for line in lines] == [dict] * len(lines)


def test_commands_of_the_readme_are_those_of_ci() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    marked = re.findall(r"^<!-- ci: (\w+) -->\n```bash\n", text, re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    run = [block for block in blocks_of("README.md") if block.language == "bash" and block.runs]
    assert len(run) == len(marked) == 3
    assert [mark for mark in marked if f" readme {mark}\n" not in ci] == []


@pytest.fixture(scope="module")
def said(
    tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer
) -> Iterator[dict[str, str]]:
    """The output of each page of `RUN_HERE`, all run in one process."""
    cells = {
        page: [cell for both in zip_longest(before, cells_of(page), fillvalue="") for cell in both]
        for page, before in RUN_HERE.items()
    }
    rules = {"Compare": "It depends.", "bring": "Both.", "speaks": "Its size."}
    fork_server.preload(*SDKS)
    with LoopbackServer(rules) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        patch.setenv("AGENTNB_DEMO_PACE_S", "0")
        yield run_cells(cells, tmp_path_factory.mktemp("pages"), fork_server)


# Parts of a page's output, with several blanks as one.
WORDS = {
    "README.md": ["2.1 ✓ completed · List what speaks for: Compare three ways"],
    "docs/index.md": ["All completed."],
    "docs/start.md": ["completed\nroot ✓ completed"],
    "docs/configuration.md": ["completed $0.50"],
    "docs/typed-answers.md": ["title='(demo) food' stars="],
    "docs/panel.md": ["TreeView()", "()\nboth"],
    "docs/cassette.md": ["is already used.", "('tides',) ['root', '1']"],
    "docs/tables.md": [
        "about urgent status path\na delivery True completed 1\nb none False completed 2\n"
        "c price False completed 3\n1\n3 0 completed\ndelivery True\n"
        "answer answer_1 answer_2\n0 yes yes yes\n1 no no no\n2 no no no\n3 NaN yes no\n0.53 4\n"
        "row answer_1 answer_2 path\n3 3 yes no 7\n0.64\n19.60 completed\n12.50 completed",
        "0 2",
    ],
    "docs/how-to/label-a-column.md": [
        "4 0 completed",
        "3 Where is my parcel? NaN delivery",
        "1.0 4",
    ],
    "docs/how-to/other-front-ends.md": ["TreeView() completed"],
    "docs/how-to/stop-a-runaway.md": ["cancelled ()\ncancelled\nexhausted 6"],
    "docs/how-to/teach-with-it.md": ["The Danube is longer.", "✓ 2 agents below the root"],
    "docs/how-to/use-a-hub.md": [
        "/scratch/me/agentnb.db\n{'ANTHROPIC_API_KEY': 'class'}\n"
        "{'AGENTNB_BUDGET_CEILING': '60000'}"
    ],
    "docs/how-to/use-ollama.md": ["It depends.\nBoth."],
}


@pytest.mark.parametrize("page", RUN_HERE)
def test_blocks_of_a_page_run_from_top_to_bottom(said: dict[str, str], page: str) -> None:
    printed = "\n".join(" ".join(line.split()) for line in said[page].splitlines())

    assert "=== FAILED" not in printed, said[page]
    assert [words for words in WORDS[page] if words not in printed] == [], said[page]


def test_page_on_ci_records_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    (python,) = code_of("docs/how-to/run-in-ci.md")
    record, replay = code_of("docs/how-to/run-in-ci.md", "bash")
    (workflow,) = code_of("docs/how-to/run-in-ci.md", "yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # also agentnb's, if it is installed
    monkeypatch.setenv("AGENTNB_DEMO_PACE_S", "0")
    monkeypatch.setenv("CI", "true")
    (tmp_path / "test_rivers.py").write_text(python, encoding="utf-8")

    tests = fork_server.printed_by(f"""
        import pytest
        options = ["-q", "-p", "agentnb.pytest_plugin", "-p", "no:cacheprovider"]
        for command in {record.split()!r}, {replay.split()!r}:
            assert pytest.main([*options, *command[1:]]) == 0
    """)

    assert tests.count("1 passed") == 2
    (cassette,) = (tmp_path / "cassettes" / "test_rivers").iterdir()
    assert cassette.name == "test_answer_has_three_parts.cassette.jsonl"
    steps = yaml.safe_load(workflow)["jobs"]["replay"]["steps"]
    assert steps[-2:] == [
        {"run": "pytest --agentnb-mode=replay"},
        {"run": "pytest --nbval --nbval-current-env --agentnb-mode=replay notebooks/"},
    ]
