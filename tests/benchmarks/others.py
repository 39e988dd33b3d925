"""One streamed reply for each of 100 agents, by other libraries and by agentnb.

Run by hand from the root of the checkout:
`python -m tests.benchmarks.others [--repeats N] [--count N] [--only NAME,NAME] [--venvs FOLDER]`.
It makes a virtual environment for each library by pip, so it needs a package registry; with
`--venvs` it makes them in that folder and reuses them. Then all libraries take turns, each in a
process of its own, against one server on loopback. The lookup of any other host name fails, and is
printed at the end. A library that cannot be installed, or fails, is left out and printed, too.
Both tables and the list of calls are Markdown, as in `docs/compared.md`.

Each library is used as its documentation shows, with its simplest class of agent, one model client
for all agents, and its telemetry and tracing off. They do not all do the same: see `NOTES`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from tests.benchmarks.http_clients import SYSTEM
from tests.benchmarks.http_server import DELTAS, WORDS, server_process

ROOT = Path(__file__).parent.parent.parent
INSTALL_TIMEOUT_S = 600
RUN_TIMEOUT_S = 300
TIME_HEAD = """
| library | processor time, ms | of the SDK's | pieces |
|---|---|---|---|"""
INSTALLATION_HEAD = """
| library | import, s | packages | MiB |
|---|---|---|---|"""
Measures = dict[str, Any]

NOTES = """
Processor time is that of the client's whole process with all its threads, per agent, of {count}
agents at once that each get one reply of {deltas} pieces over HTTP, after a first round of as
many. "Pieces" is how many of them reach the program that started the agents. Medians of {repeats}
rounds in which all take turns, with least and most; a ratio is the median of the ratios within a
round. Import is the processor time of that program's imports, byte code compiled. Packages and
size are what pip brings into an empty environment for the program, byte code included.

They do not do the same. agentnb, smolagents and Inspect import the SDK later than is measured.
agentnb joins pieces for a reader that falls behind, and keeps a tree below a root, every event,
and a budget that is reserved before each call. The other agents keep their own conversation and
usage. smolagents is synchronous: it runs on threads; its reply is the call of its tool
`final_answer`, not streamed by default, and when streamed it renders the text so far as Markdown
at each piece. Inspect's evaluation writes its log. For CrewAI each agent has a crew and a task of
its own. Telemetry and tracing of all are off: OPENAI_AGENTS_DISABLE_TRACING, LANGSMITH_TRACING,
AUTOGEN_DISABLE_RUNTIME_TRACING, CREWAI_DISABLE_TELEMETRY, CREWAI_TRACING_ENABLED,
OTEL_SDK_DISABLED, HF_HUB_DISABLE_TELEMETRY. All have one model client for all agents. Pydantic AI
groups pieces that come within 0.1 s (`debounce_by`), as by default.
"""


@dataclass(frozen=True)
class Library:
    """One way to get the replies, as a program that `HARNESS` runs.

    Attributes:
        name: On the command line, and of the virtual environment.
        title: In both tables.
        call: How it is called, for the list below the tables.
        packages: For pip; that list has the version of the first one.
        imports: Statements whose time is measured.
        code: Defines `async def one(task) -> tuple[int, str]`, the number of pieces and the whole
            reply, or `async def every(tasks)` for all at once.
        path: The server's.
        environment: Variables that switch off the library's telemetry.
        venv: The library whose environment it shares.
    """

    name: str
    title: str
    call: str
    packages: tuple[str, ...]
    imports: str
    code: str
    path: str = "quick"
    environment: Mapping[str, str] = field(default_factory=dict)
    venv: str = ""


# Type checks run without these libraries, so the code that imports them is text.
HARNESS = r"""
import socket, sys, time

URL, COUNT, WHOLE, SYSTEM = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
outside = set()
look_up = socket.getaddrinfo

def look_up_loopback(host, *rest, **named):
    if host not in (None, "127.0.0.1", b"127.0.0.1", "localhost"):
        outside.add(str(host))
        raise socket.gaierror(f"only loopback is reached, not {host}")
    return look_up(host, *rest, **named)

socket.getaddrinfo = look_up_loopback
begun_s = time.process_time()
import asyncio
# IMPORTS
import_s = time.process_time() - begun_s

import json

async def every(tasks):
    return await asyncio.gather(*(one(task) for task in tasks))

# CODE

async def main():
    tasks = [f"Say something of part {number}." for number in range(COUNT)]
    await every(tasks)
    begun_s = time.process_time()
    replies = await every(tasks)
    cpu_s = time.process_time() - begun_s
    wrong = [text for _, text in replies if text != WHOLE]
    assert len(replies) == COUNT and not wrong, f"{len(wrong)} were not read whole: {wrong[:1]}"
    pieces = sorted(pieces for pieces, _ in replies)[COUNT // 2]
    told = dict(import_s=import_s, cpu_s=cpu_s, agents=COUNT, pieces=pieces, outside=[*outside])
    # What a library printed may have no end of a line.
    print("\nMEASURES " + json.dumps(told), flush=True)

asyncio.run(main())
"""

AGENTNB = """
os.environ.update(OPENAI_BASE_URL=URL, OPENAI_API_KEY="k")
session = Session(model="openai/m", budget=10**9, max_concurrency=COUNT, store=STORE)

async def every(tasks):
    pieces, texts = Counter(), defaultdict(str)
    run = session.spawn_all(tasks, synthesis=False)
    async for entry in run.stream():
        if isinstance(entry.event, AgentTextDelta):
            pieces[entry.event.agent_id] += 1
            texts[entry.event.agent_id] += entry.event.text
    result = await run
    assert [child.response for child in result.sub_agent_results] == [WHOLE] * COUNT
    return [(pieces[agent], texts[agent]) for agent in pieces if texts[agent] == WHOLE]
"""
AGENTNB_IMPORTS = """
import os
from collections import Counter, defaultdict
from agentnb import Session
from agentnb.core.events import AgentTextDelta
"""

SMOLAGENTS = """
model = OpenAIModel("m", api_base=URL, api_key="k")
pool = ThreadPoolExecutor(COUNT)

def whole(task):
    agent = ToolCallingAgent(
        tools=[],
        model=model,
        instructions=SYSTEM,
        stream_outputs=STREAMED,
        verbosity_level=LogLevel.OFF,
    )
    pieces, text = 0, ""
    for event in agent.run(task, stream=True):
        if isinstance(event, ChatMessageStreamDelta):
            pieces += bool(event.tool_calls)
        elif isinstance(event, FinalAnswerStep):
            text = event.output
    return pieces or 1, text

async def every(tasks):
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*(loop.run_in_executor(pool, whole, task) for task in tasks))
"""
SMOLAGENTS_IMPORTS = """
from concurrent.futures import ThreadPoolExecutor
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent
from smolagents.memory import FinalAnswerStep
from smolagents.models import ChatMessageStreamDelta
"""
HUB_OFF = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

LIBRARIES = (
    Library(
        "sdk",
        "the SDK alone",
        "`chat.completions.create(stream=True)` of `openai`",
        ("openai",),
        "from openai import AsyncOpenAI",
        """
client = AsyncOpenAI(base_url=URL, api_key="k")

async def one(task):
    said = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    pieces = []
    async for chunk in await client.chat.completions.create(model="m", messages=said, stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            pieces.append(chunk.choices[0].delta.content)
    return len(pieces), "".join(pieces)
""",
    ),
    Library(
        "agentnb",
        "agentnb",
        "`Session(store=None).spawn_all(…, synthesis=False)`",
        (f"{ROOT}[openai]",),
        AGENTNB_IMPORTS,
        "STORE = None" + AGENTNB,
    ),
    Library(
        "agentnb-store",
        "agentnb with its store",
        "the same, with `store` as by default",
        (f"{ROOT}[openai]",),
        AGENTNB_IMPORTS,
        'STORE = os.path.abspath("runs.db")' + AGENTNB,
        venv="agentnb",
    ),
    Library(
        "openai-agents",
        "OpenAI Agents SDK",
        "`Runner.run_streamed`",
        ("openai-agents",),
        """
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
""",
        """
set_tracing_disabled(True)
client = AsyncOpenAI(base_url=URL, api_key="k")
model = OpenAIChatCompletionsModel(model="m", openai_client=client)
agent = Agent(name="Helper", instructions=SYSTEM, model=model)

async def one(task):
    pieces = []
    result = Runner.run_streamed(agent, task)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            pieces.append(event.data.delta)
    return len(pieces), result.final_output
""",
        environment={"OPENAI_AGENTS_DISABLE_TRACING": "1"},
    ),
    Library(
        "pydantic-ai",
        "Pydantic AI",
        "`Agent.run_stream`",
        ("pydantic-ai-slim[openai]",),
        """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
""",
        """
model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=URL, api_key="k"))
agent = Agent(model, instructions=SYSTEM)

async def one(task):
    async with agent.run_stream(task) as result:
        pieces = [piece async for piece in result.stream_text(delta=True)]
    return len(pieces), "".join(pieces)
""",
    ),
    Library(
        "langgraph",
        "LangGraph",
        '`create_agent(…).astream(stream_mode="messages")`',
        ("langgraph", "langchain", "langchain-openai"),
        """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
""",
        """
model = ChatOpenAI(model="m", base_url=URL, api_key="k")
agent = create_agent(model, tools=[], system_prompt=SYSTEM)

async def one(task):
    said = {"messages": [{"role": "user", "content": task}]}
    pieces = []
    async for token, _ in agent.astream(said, stream_mode="messages"):
        if token.text:
            pieces.append(str(token.text))
    return len(pieces), "".join(pieces)
""",
        environment={"LANGSMITH_TRACING": "false"},
    ),
    Library(
        "autogen",
        "AutoGen AgentChat",
        "`AssistantAgent.run_stream`",
        ("autogen-agentchat", "autogen-ext[openai]"),
        """
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_ext.models.openai import OpenAIChatCompletionClient
""",
        """
client = OpenAIChatCompletionClient(model="gpt-4o", base_url=URL, api_key="k")

async def one(task):
    agent = AssistantAgent(
        "helper", model_client=client, system_message=SYSTEM, model_client_stream=True
    )
    pieces = 0
    async for message in agent.run_stream(task=task):
        if isinstance(message, ModelClientStreamingChunkEvent):
            pieces += 1
        elif isinstance(message, TaskResult):
            text = message.messages[-1].content
    return pieces, text
""",
        environment={"AUTOGEN_DISABLE_RUNTIME_TRACING": "true"},
    ),
    Library(
        "smolagents",
        "smolagents",
        "`ToolCallingAgent.run` on threads, not streamed, as by default",
        ("smolagents[openai]",),
        SMOLAGENTS_IMPORTS,
        "STREAMED = False" + SMOLAGENTS,
        path="called",
        environment=HUB_OFF,
    ),
    Library(
        "smolagents-streamed",
        "smolagents, streamed",
        "the same, with `stream_outputs=True`",
        ("smolagents[openai]",),
        SMOLAGENTS_IMPORTS,
        "STREAMED = True" + SMOLAGENTS,
        path="called",
        environment=HUB_OFF,
        venv="smolagents",
    ),
    Library(
        "inspect",
        "Inspect, an agent",
        "an `@agent` that calls `generate(…, on_stream=…)`, by `run`",
        ("inspect-ai", "openai"),
        """
from inspect_ai.agent import agent, run
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig, get_model
""",
        """
model = get_model(
    "openai/m",
    base_url=URL,
    api_key="k",
    config=GenerateConfig(max_connections=COUNT),
    responses_api=False,
)

@agent
def helper(pieces):
    async def told(event):
        if event.type == "text":
            pieces.append(event.text)

    async def execute(state):
        state.output = await model.generate(state.messages, on_stream=told)
        state.messages.append(state.output.message)
        return state

    return execute

async def one(task):
    pieces = []
    said = [ChatMessageSystem(content=SYSTEM), ChatMessageUser(content=task)]
    state = await run(helper(pieces), said)
    return len(pieces), state.output.completion
""",
    ),
    Library(
        "inspect-eval",
        "Inspect, an evaluation",
        "`eval_async` of samples with `react()`, with its log, streamed but given whole",
        ("inspect-ai", "openai"),
        """
from inspect_ai import Task, eval_async
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
""",
        """
model = get_model(
    "openai/m",
    base_url=URL,
    api_key="k",
    config=GenerateConfig(max_connections=COUNT),
    responses_api=False,
    streaming=True,
)

async def every(tasks):
    samples = [Sample(input=task) for task in tasks]
    one = Task(dataset=samples, solver=react(prompt=SYSTEM, submit=False))
    (log,) = await eval_async(one, model=model, max_samples=COUNT, log_dir="logs", score=False)
    return [(1, sample.output.completion) for sample in log.samples]
""",
        environment={"INSPECT_DISPLAY": "none"},
        venv="inspect",
    ),
    Library(
        "crewai",
        "CrewAI",
        "`Crew(stream=True).akickoff()` of one agent and one task",
        ("crewai",),
        "from crewai import LLM, Agent, Crew, Task",
        """
llm = LLM(model="openai/gpt-4o", base_url=URL, api_key="k", stream=True)

async def one(task):
    agent = Agent(role="Helper", goal="Do one part of a task.", backstory=SYSTEM, llm=llm)
    said = Task(description=task, expected_output="A few words.", agent=agent)
    crew = Crew(agents=[agent], tasks=[said], stream=True, tracing=False)
    streaming = await crew.akickoff()
    pieces = [chunk.content async for chunk in streaming if chunk.content]
    return len(pieces), streaming.result.raw
""",
        environment={
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_DISABLE_VERSION_CHECK": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "OTEL_SDK_DISABLED": "true",
        },
    ),
)


# -- environments -----------------------------------------------------------------------------


def installed(library: Library, folder: Path) -> Path | None:
    """The Python of the library's environment; `None` if pip took too long or failed."""
    home = folder / (library.venv or library.name)
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return python
    venv.create(home)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq"]
    try:
        subprocess.run([*install, *library.packages], check=True, timeout=INSTALL_TIMEOUT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"left out: {library.name} was not installed: {error}", flush=True)
        return None
    (home / "complete").touch()
    return python


def site_of(python: Path) -> Path:
    """The folder with an environment's packages."""
    (found,) = python.parent.parent.glob("lib/python*/site-packages")
    return found


def packages_of(python: Path) -> dict[str, str]:
    """The distributions in an environment, with their versions."""
    return {
        distribution.name.lower().replace("_", "-"): distribution.version
        for distribution in distributions(path=[str(site_of(python))])
    }


def size_mib(python: Path) -> float:
    """The size of an environment's packages on disk."""
    files = (path for path in site_of(python).rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files) / 2**20


# -- measuring --------------------------------------------------------------------------------


def measured(library: Library, python: Path, url: str, count: int) -> Measures:
    """Run a library in one process; return its measures."""
    script = HARNESS.replace("# IMPORTS", library.imports).replace("# CODE", library.code)
    with tempfile.TemporaryDirectory() as home:
        # Without the person's keys, paths and settings.
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1",
            "DO_NOT_TRACK": "1",
            **library.environment,
        }
        done = subprocess.run(
            [python, "-c", script, f"{url}/{library.path}/v1", str(count), WORDS * DELTAS, SYSTEM],
            capture_output=True,
            text=True,
            cwd=home,
            env=environment,
            timeout=RUN_TIMEOUT_S,
        )
    told = [line for line in done.stdout.splitlines() if line.startswith("MEASURES ")]
    if done.returncode or not told:
        raise RuntimeError(f"{library.name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    measures: Measures = json.loads(told[0].removeprefix("MEASURES "))
    return measures


def extremes(values: Sequence[int]) -> str:
    """The least and the most of values; one figure if they are the same."""
    least, most = min(values), max(values)
    return f"{least}" if least == most else f"{least} to {most}"


def spread(values: Sequence[float], form: str) -> str:
    """The median of values, with the least and the greatest."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{form}} ({least:{form}} to {most:{form}})"


def time_row(library: Library, rounds: list[Measures], base: list[Measures]) -> str:
    """A line of the table of time."""
    cpu_ms = [1000 * one["cpu_s"] / one["agents"] for one in rounds]
    ratios = [one["cpu_s"] / other["cpu_s"] for one, other in zip(rounds, base, strict=True)]
    cells = (
        library.title,
        spread(cpu_ms, ".1f"),
        spread(ratios, ".2f"),
        extremes([one["pieces"] for one in rounds]),
    )
    return f"| {' | '.join(cells)} |"


def installation_row(library: Library, python: Path, rounds: list[Measures]) -> str:
    """A line of the table of installation."""
    cells = (
        library.title,
        f"{statistics.median(one['import_s'] for one in rounds):.2f}",
        str(len(packages_of(python))),
        f"{size_mib(python):.0f}",
    )
    return f"| {' | '.join(cells)} |"


def call_line(library: Library, python: Path) -> str:
    """A line of the list of versions and calls."""
    packages = packages_of(python)
    name = library.packages[0].partition("[")[0]
    versions = [packages["agentnb" if name == str(ROOT) else name]]
    if name != "openai":
        versions.append(f"`openai` {packages['openai']}")
    return f"- {library.title} ({', '.join(versions)}): {library.call}"


def main() -> None:
    """Measure all, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", default="", help="names, with commas; the SDK always runs")
    parser.add_argument(
        "--venvs", type=Path, help="environments stay there; delete one to renew it"
    )
    arguments = parser.parse_args()
    only = arguments.only.split(",") if arguments.only else [each.name for each in LIBRARIES]
    chosen = [each for each in LIBRARIES if each.name in ("sdk", *only)]
    with tempfile.TemporaryDirectory(prefix="agentnb-others-") as temporary:
        folder = (arguments.venvs or Path(temporary)).resolve()
        pythons = {each.name: python for each in chosen if (python := installed(each, folder))}
        chosen = [each for each in chosen if each.name in pythons]
        rounds: dict[str, list[Measures]] = {each.name: [] for each in chosen}
        with server_process() as url:
            for turn in range(arguments.repeats):
                print(f"round {turn + 1} of {arguments.repeats}", flush=True)
                for each in [each for each in chosen if each.name in rounds]:
                    try:
                        measures = measured(each, pythons[each.name], url, arguments.count)
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        print(f"left out: {each.name}: {error}", flush=True)
                        del rounds[each.name]
                    else:
                        rounds[each.name].append(measures)
                # After each round, so that a run that is stopped has printed what it measured.
                done = [each for each in chosen if each.name in rounds]
                print(TIME_HEAD)
                for each in done:
                    print(time_row(each, rounds[each.name], rounds["sdk"]))
                print(INSTALLATION_HEAD)
                for each in done:
                    print(installation_row(each, pythons[each.name], rounds[each.name]))
                print()
                for each in done:
                    print(call_line(each, pythons[each.name]), flush=True)
        print(NOTES.format(count=arguments.count, deltas=DELTAS, repeats=arguments.repeats))
        for name, of_one in rounds.items():
            if outside := {host for measures in of_one for host in measures["outside"]}:
                print(f"{name} looked up {', '.join(sorted(outside))}, in vain")


if __name__ == "__main__":
    main()
