"""The documents agree with the code."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import json
import pkgutil
import re
import typing
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

import agentnb
from agentnb.core.durable import Priority, Task, TaskNote, TaskStatus
from agentnb.core.events import Event
from agentnb.core.spawn import parse_spawn_instructions
from agentnb.core.types import AgentStatus, CompletionRequest, SpawnMode
from agentnb.modes import MODES
from agentnb.settings import Settings
from agentnb.tasks.wording import format_task_assignment, format_task_completion
from agentnb.testing import Reply, by_agent, tool_calls, tool_results_in
from agentnb.workers.inside.figures import MOST_FIGURES
from agentnb.workers.inside.leaving import MOST_NODES
from agentnb.workers.worker import Limits
from tests.loopback import LoopbackServer
from tests.notebook.forked import ForkServer
from tests.pages import code_of, without_code

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("cls", typing.get_args(Event), ids=lambda cls: cls.__name__)
def test_reference_lists_each_event_with_its_kind_and_its_fields(cls: type) -> None:
    reference = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    fields = [field for field in dataclasses.fields(cls) if field.name != "kind"]

    row = next(line for line in reference.splitlines() if line.startswith(f"| `{cls.__name__}` |"))

    _, kind, listed, _ = (cell.strip() for cell in row.strip("|").split("|"))
    snake_case = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    assert kind == f"`{snake_case}`"
    assert listed == ", ".join(f"`{field.name}`" for field in fields)


def test_architecture_page_shows_every_room_of_the_core() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    house = page[: page.index("Imports go down only")]
    rooms = {path.stem for path in (ROOT / "agentnb" / "core").glob("[a-z]*.py")}

    assert {room for room in rooms if not re.search(rf"\b{room}\b", house)} == set()


PAGES = [
    *sorted(path.name for path in ROOT.glob("*.md")),
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_modules_and_names_that_a_page_mentions_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    files = re.findall(r"`(agentnb/[\w/]+(?:\.(?:py|js|css))?/?)`", text)
    if "decisions" not in page:  # a decision may name the modules of its time
        folders = "core|config|notebook|providers|tools|views"
        files += [f"agentnb/{f}" for f in re.findall(rf"`((?:{folders})/[\w/]+\.\w+)`", text)]
    names = set(re.findall(r"\bagentnb(?!\.(?:ya?ml|db)\b)(?:\.[A-Za-z_]\w*)+", text))

    assert [file for file in files if not (ROOT / file).exists()] == []
    assert [name for name in names if not _exists(name)] == []


def _exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize(
    "document",
    [
        "CONTRIBUTING.md",
        "README.md",
        "SECURITY.md",
        "docs/architecture.md",
        "docs/local-models.md",
        "docs/providers.md",
    ],
)
def test_files_that_a_document_names_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")

    named = re.findall(
        r"`((?:docs|notebooks|tests|binder)/[\w./-]*|[A-Z]+\.md|\.ci/run|pyproject\.toml)`", text
    )
    named += re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text)

    folder = (ROOT / document).parent
    assert named
    assert [n for n in named if not ((folder / n).exists() or (ROOT / n).exists())] == []


@pytest.mark.parametrize("page", PAGES)
def test_anchor_of_a_link_is_a_heading(page: str) -> None:
    links = re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", (ROOT / page).read_text(encoding="utf-8"))

    anchors = {
        target: _anchors((ROOT / page).parent / target if target else ROOT / page)
        for target, _ in links
    }
    assert [f"{t}#{anchor}" for t, anchor in links if anchor not in anchors[t]] == []


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = without_code(page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Not a file, `./agentnb-…`, and not `'agentnb[dask]'`, which adds to an agentnb that is installed.
FROM_PYPI = re.compile(
    r"pip\}? install\b[^\n`]*[\s'\"]agentnb(?![\w\[./-]| @)"
    r"|pip\}? install\b[^\n`]*(?:-U|--upgrade)\b[^\n`]*\bagentnb(?!-)"
    r"|\bagentnb(?:\[\w+\])?[=~<>]=\d|install agentnb=="
)
# A message or a notebook knows that agentnb is installed; the reader of a page may have none.
FROM_PYPI_WITH_EXTRA = re.compile(r"pip\}? install\b[^\n`]*[\s'\"]agentnb\[")


def test_no_page_and_no_message_installs_the_project_of_that_name_on_pypi() -> None:
    files = [*ROOT.glob("*.md"), *ROOT.glob("binder/*"), *(ROOT / "docs").rglob("*.md")]
    texts = {
        file: file.read_text(encoding="utf-8") for file in [*files, *ROOT.glob("notebooks/*.*")]
    }
    for file in (ROOT / "agentnb").rglob("*.py"):
        if "install" in (code := file.read_text(encoding="utf-8")):
            texts[file] = "\n".join(_strings(ast.parse(code)))

    assert len(texts) > 100
    assert {file: found[0] for file, t in texts.items() if (found := FROM_PYPI.search(t))} == {}
    pages = {file: texts[file] for file in files}
    extra = FROM_PYPI_WITH_EXTRA
    assert {file: found[0] for file, t in pages.items() if (found := extra.search(t))} == {}
    for line in (
        "pip install agentnb",
        "pip install -q 'agentnb' nbval",
        "pip install --upgrade 'agentnb[openai]'",
        "install agentnb==0.2.0",
    ):
        assert FROM_PYPI.search(line), line
    for line in ("pip install 'agentnb[openai]'", "pip install ./agentnb-0.2.0-py3-none-any.whl"):
        assert not FROM_PYPI.search(line), line
    assert extra.search("run `pip install -U 'agentnb[openai]'`")
    assert not extra.search("RUN pip install '/opt/agentnb[lab,code]' pandas")


def _strings(code: ast.Module) -> list[str]:
    """The strings of a module, but no docstrings."""
    docs = {id(node.value) for node in ast.walk(code) if isinstance(node, ast.Expr)}
    strings = []
    for node in ast.walk(code):
        if isinstance(node, ast.JoinedStr):
            strings.append(
                "".join(
                    str(part.value)
                    if isinstance(part, ast.Constant)
                    else f"{{{ast.unparse(part.value)}}}"
                    for part in node.values
                    if isinstance(part, ast.Constant | ast.FormattedValue)
                )
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
        ):
            strings.append(node.value)
    return strings


@pytest.mark.parametrize("page", ["docs/how-to/run-in-ci.md", "docs/regression.md"])
def test_workflow_of_a_page_installs_the_wheel_of_this_version(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    assert f"pip install ./agentnb-{agentnb.__version__}-py3-none-any.whl " in text


def test_reference_has_each_public_name_once_and_no_other() -> None:
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    own = {"__version__", "load_ipython_extension"}  # a version; a function that `%load_ext` calls

    shown = re.findall(
        r"^\.\. auto(?:class|function|exception):: agentnb\.(\w+)$", text, re.MULTILINE
    )

    assert sorted(shown) == sorted(set(agentnb.__all__) - own)


def test_site_has_its_own_styles_by_which_pictures_keep_their_proportions() -> None:
    static = ROOT / "docs" / "static"
    config = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    (rule,) = re.findall(
        r"^\.bd-article img \{(.*?)\}", (static / "site.css").read_text("utf-8"), re.M | re.S
    )

    assert {line.strip() for line in rule.split(";")} == {"height: auto", "max-width: 100%", ""}
    assert 'html_static_path = ["static"]\nhtml_css_files = ["site.css"]\n' in config
    for name in ("icon.svg", "scorer.js"):
        assert name in config
        assert (static / name).is_file()


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = {ROOT / "docs" / "index.md"}
    for page in (ROOT / "docs").rglob("*.md"):
        for toctree in re.findall(
            r"^```\{toctree\}\n(.*?)^```",
            page.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        ):
            for line in toctree.splitlines():
                if line and not line.startswith(":"):
                    name, folder = Path(line).name, (page.parent / Path(line).parent).resolve()
                    listed |= {*folder.glob(f"{name}.md"), *folder.glob(f"{name}.ipynb")}

    pages = {*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")}
    assert pages - listed == set()


GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = [term for row in re.findall(r"^\| (.+?) \|", GLOSSARY, re.M) for term in row.split(", ")]
LESSONS = sorted(ROOT.glob("notebooks/*.ipynb"))
NOT_A_TERM = {"not"}  # but set in bold by a lesson
COMMON_TERMS = """
agent answer approval budget call cancel cassette chain conversation depth delegate event job judge
limit message mode model outline panel path pause person plan pool profile prompt provider
question recover replay result root run script session status store sub-agent synthesis task thread
token tool tree turn worker
"""


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_term_that_a_lesson_sets_in_bold_is_in_the_glossary(lesson: Path) -> None:
    cells = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "markdown")
    bold = set(re.findall(r"(?<!\*)\*\*([a-z][a-z -]+)\*\*(?!\*)", text))

    assert {t for t in bold - NOT_A_TERM if not {t, t.removesuffix("s")} & {*TERMS}} == set()


def test_glossary_has_the_common_terms_once_and_each_status_and_mode() -> None:
    assert [term for term, times in Counter(TERMS).items() if times > 1] == []
    assert [each.value for each in AgentStatus if f"`{each}`" not in GLOSSARY] == []
    assert [each for each in MODES if f"`{each}`" not in GLOSSARY] == []
    assert {*COMMON_TERMS.split()} - {*TERMS} == set()


def test_every_guarantee_names_an_existing_test() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    promises = [line for line in page.splitlines() if line.startswith("| ")]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)

    assert len(named) > 30
    assert len([line for line in promises if "test" in line]) == len(promises)
    for file, name in named:
        code = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name}(" in code if name else "def test_" in code, f"{file}::{name}"


def test_python_of_the_page_on_tools_runs_from_top_to_bottom(fork_server: ForkServer) -> None:
    blocks = code_of("docs/tools.md")
    call = """
script = ScriptedProvider([Reply(tool_uses=(ToolUse("1", "read_pages", {"pages": 2}),)), "Read."])
run = agentnb.Session(provider=script, tools=[read_pages]).spawn("Read.")
print(run.result().output, script.requests[1].last_user_text)
print([e.event.text for e in run.events if e.event.kind == "tool_call_reported"][-1:])
"""

    said = fork_server.printed_by("\n".join([*blocks, call]))

    assert said.splitlines() == [
        "It is 2850 km long.",
        "{'length': 1233}",
        "The Danube is.",
        "(figure: Length in km)",
        "(picture 1 below)",
        "May the root call send_mail? {'tool': 'send_mail', 'arguments': "
        "{'to': 'everyone@example.org', 'text': 'Hello.'}}",
        "It is done. ['ann@example.org']",
        "Anna travels without a car.",
        "By train.",
        "True",
        "Read. 2 pages read",
        "['page 2 of 2']",
    ]


def test_python_of_the_page_on_mcp_servers_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    blocks = code_of("docs/mcp.md")
    monkeypatch.chdir(tmp_path)  # it writes a file

    patient = "from agentnb.tools.mcp import transport\ntransport.CONNECT_S = 120\n"

    assert len(blocks) == 1
    assert fork_server.printed_by(patient + blocks[0], debug=False) == "Take a hat. Sun in Basel.\n"


def test_python_of_the_page_on_objects_in_words_says_what_the_page_says(
    fork_server: ForkServer,
) -> None:
    text = (ROOT / "docs" / "objects.md").read_text(encoding="utf-8")
    blocks = code_of("docs/objects.md")
    (quoted,) = re.findall(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)

    said = fork_server.printed_by("\n".join(blocks), debug=False)

    assert len(blocks) == 3
    assert said.splitlines() == [
        *quoted.splitlines(),
        "forest: Forest",
        "It says of itself (all 39 characters):",
        "> A forest of 300 trees, planted in 1998.",
        "2 mm. rain: all 2 columns; figures on all 12,000 rows",
        "- 'city' (str): count 8,000, nulls 4,000, unique 2, top values: 'Ulm' (4,000), "
        "'Bonn' (4,000)",
        "- 'mm' (float64): count 12,000, nulls 0, unique 3, min 0.0, mean 1.1666666666666667, "
        "median 1.5, max 2.0, std 0.8498719976698006",
    ]


def test_python_of_the_page_on_clusters_runs_from_top_to_bottom(
    monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    # At its end Dask may report a heartbeat without a receiver.
    monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", "critical")
    blocks = code_of("docs/cluster.md")
    # A script starts itself again in processes: as the page says, only below this line.
    indented = "\n".join("    " + line for line in "\n".join(blocks).splitlines())

    # Somebody else's dashboard may have the port of Dask's, which then warns, and leaves a socket.
    begin = """
import warnings
warnings.filterwarnings("ignore", "Port 8787")
warnings.simplefilter("ignore", ResourceWarning)
"""
    code = f"{begin}if __name__ == '__main__':\n{indented}"
    assert "primes(" in fork_server.printed_by(code, debug=False)


def test_python_of_the_page_on_a_persons_data_runs_from_top_to_bottom(
    fork_server: ForkServer,
) -> None:
    blocks = code_of("docs/kernel-data.md")

    said = fork_server.printed_by("\n".join(blocks), debug=False)

    assert len(blocks) == 4
    assert said.splitlines() == [
        "The south, by a little.",
        "  region  units",
        "0  north  89700",
        "1  south  90000",
        "0.5008347245409015 <Picture: 400 x 300>",
        "179700",
        "True ['root', 'root']",
        "['# %% root', 'by_region = sales.groupby(\"region\", as_index=False).units.sum()']",
        "['sales']",
        "{'numbers': [1, 2]} {'pattern': 'values of the type re.Pattern cannot come back'}",
    ]


def test_python_of_the_page_on_telemetry_runs_from_top_to_bottom(fork_server: ForkServer) -> None:
    (block,) = code_of("docs/telemetry.md")

    names = fork_server.printed_by(block, debug=False).splitlines()

    assert names[0] == "chat demo"
    assert names[-2:] == ["invoke_agent root", "invoke_workflow"]
    assert set(names[:-2]) == {"chat demo", "invoke_agent sub-agent"}


def test_page_on_a_persons_data_names_the_limits_of_the_code() -> None:
    text = (ROOT / "docs" / "kernel-data.md").read_text(encoding="utf-8")
    limits, settings = Limits(), Settings()

    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for setting, value in (
        ("code_time_s", f"{settings.code_time_s:g} s"),
        ("code_memory", settings.code_memory.replace("GB", " GB")),
        ("code_workers", str(settings.code_workers)),
    ):
        assert any(f"| {value} | `{setting}` |" in row for row in rows), setting
    for words in (
        f"| {limits.most_processes} | |",
        f"| {limits.most_output / 1e6:g} MB | |",
        f"| {limits.most_printed:,} bytes of each stream |",
        f"| {MOST_FIGURES}, of at most 1 MB each |",
        f"{MOST_NODES:,} plain values",
    ):
        assert words in text


def test_python_of_the_page_on_local_models_runs_on_a_local_server(
    monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    blocks = code_of("docs/local-models.md")
    with LoopbackServer({"Compare": "It depends."}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        said = fork_server.printed_by("\n".join([*blocks, "print(result.output)"]))

    assert len(blocks) == 2
    assert said == "It depends.\n"
    assert [request.body["model"] for request in server.requests] == ["qwen3:8b"]


def test_python_of_the_page_on_providers_runs_from_top_to_bottom(fork_server: ForkServer) -> None:
    blocks = code_of("docs/providers.md")
    last = "print(agentnb.Session(model='lab/qwen3:8b').model)"

    assert len(blocks) == 2
    assert fork_server.printed_by("\n".join([*blocks, last])) == "Is anybody there?\nlab/qwen3:8b\n"


def test_python_of_the_page_on_testing_runs_from_top_to_bottom(fork_server: ForkServer) -> None:
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = code_of("docs/testing.md")
    last = """
import asyncio
for check in provider_contract(factory):
    asyncio.run(test_my_provider(check))
try:
    agentnb.check(result).spawned(3)
except AssertionError as error:
    print(error)
"""

    said = fork_server.printed_by("\n".join([*blocks, last]))
    # The number of a prompt's tokens is not fixed by this page.
    said = re.sub(r"· [\d,]+ tokens", "· N tokens", said)

    assert len(blocks) == 4
    (failure,) = re.findall(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert said.splitlines() == [
        "The Danube is longer. 2",
        "✓ completed",
        "✓ 2 agents below the root",
        "✓ at most 1 level below the root",
        "✓ under 50,000 tokens",
        "✓ the answer says 'Danube'",
        "✓ the answer of agent 1 says '2850'",
        "✓ tool river_length: 1 call",
        "False [('root', 'changed'), ('1', 'changed'), ('2', 'only before')]",
        "[-It has 2850 km.-]{+done: the Danube+}",
        *re.sub(r"· [\d,]+ tokens", "· N tokens", failure).splitlines(),
    ]


def test_page_on_regression_runs_as_a_script_in_tests_and_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    text = (ROOT / "docs" / "regression.md").read_text(encoding="utf-8")
    *script, test_file = code_of("docs/regression.md")
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # also agentnb's, if it is installed
    monkeypatch.setenv("CI", "true")
    Path("test_rivers.py").write_text(
        "import agentnb\n"
        "provider = agentnb.ScriptedProvider(['Long.', 'Longer.'])  # each is asked once\n"
        "agentnb.set_prices({'scripted': agentnb.Price(3, 15)})\n"
        f"{test_file}"
    )

    said = fork_server.printed_by("\n".join(script))
    tests = fork_server.printed_by("""
        import pytest
        options = ["-q", "-p", "agentnb.pytest_plugin", "-p", "no:cacheprovider", "test_rivers.py"]
        for mode in ["--agentnb-mode=record"], []:
            assert pytest.main([*options, *mode]) == 0
    """)

    assert said.splitlines()[:4] == [
        "✓ completed",
        "✓ 2 agents below the root",
        "✓ under 5,000 tokens",
        "✓ the answer says 'Danube'",
    ]
    assert re.fullmatch(r"about \$0\.0\d+ \(estimate\)", said.splitlines()[4])
    assert tests.count("2 passed") == 2
    kept = [each.name for each in Path("cassettes/test_rivers").iterdir()]
    assert "test_river-Rhine-d21a06.cassette.jsonl" in kept
    steps = yaml.safe_load(workflow)["jobs"]["replay"]["steps"]
    command = "pytest --nbval --nbval-current-env --agentnb-mode=replay notebooks/"
    assert steps[-1] == {"run": command}


def test_python_of_the_page_on_delegation_runs_from_top_to_bottom(fork_server: ForkServer) -> None:
    blocks = code_of("docs/delegation.md")

    answer, results, started = fork_server.printed_by("\n".join(blocks)).splitlines()
    job, told = ast.literal_eval(results)

    assert answer == "Not the thermistor."
    assert re.fullmatch("[0-9a-f]{6}", job)
    assert told == f"[{job}: OK]\nCheap and quick, but its curve has to be corrected."
    assert (len(blocks), started) == (2, "['One']")


def test_page_on_delegation_shows_a_block_that_is_understood() -> None:
    (block,) = code_of("docs/delegation.md", "xml")

    understood = parse_spawn_instructions(block)

    assert understood is not None
    assert (understood.mode, len(understood.tasks)) == (SpawnMode.PARALLEL, block.count("<agent "))


def test_page_on_delegation_quotes_the_blocks_of_jobs() -> None:
    async def never(request: CompletionRequest) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    def stop_second(request: CompletionRequest) -> Reply:
        return tool_calls(("spawn_cancel", {"job_ids": tool_results_in(request)[1]}))

    def wait_for_three(request: CompletionRequest) -> Reply:
        one, two, *_ = tool_results_in(request)
        return tool_calls(("spawn_await", {"job_ids": f"{one},{two},ffffff"}))

    (quoted,) = code_of("docs/delegation.md", "text")
    ask = tool_calls(("spawn", {"task": "first"}), ("spawn", {"task": "second"}))
    provider = by_agent(
        {
            "root": [ask, stop_second, wait_for_three, "Done."],
            "first": quoted.splitlines()[1],
            "second": never,
        }
    )
    session = agentnb.Session(provider=provider, delegation="tools", store=None)
    session.run_sync("Weigh a thermistor.")

    one, two, _, blocks = tool_results_in(provider.requests[-1])
    assert blocks.replace(one, "6b86b2").replace(two, "d4735e") == quoted.strip()


def test_python_of_the_page_on_threads_and_tasks_runs_from_top_to_bottom(
    fork_server: ForkServer,
) -> None:
    blocks = code_of("docs/threads-and-tasks.md")

    said = fork_server.printed_by("\n".join(blocks))

    assert len(blocks) == 2
    assert said.splitlines() == [
        "['user', 'assistant', 'user', 'assistant']",
        "in_progress ['(demo) Here a model ']",
    ]


def test_page_on_threads_and_tasks_quotes_what_agents_are_sent_letter_for_letter() -> None:
    text = (ROOT / "docs" / "threads-and-tasks.md").read_text(encoding="utf-8")
    now = datetime(2026, 11, 1, tzinfo=UTC)
    prompt = "Is each of these rivers in Europe? Volga, Po, Nile"
    note = TaskNote("The Nile is not.", None, now)
    task = Task(
        "t1", "Check the list", prompt, TaskStatus.COMPLETED, Priority.MEDIUM, None, None, (note,),
        "nb_20261101_k3x9aa", now, now,
    )  # fmt: skip

    quoted = re.findall(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)

    assert [each.strip() for each in quoted] == [
        format_task_assignment(task),
        format_task_completion(task),
    ]
