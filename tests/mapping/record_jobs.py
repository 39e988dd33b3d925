"""Records `recorded_jobs` anew: `python -m tests.mapping.record_jobs`.

No model of a provider is asked: there are no keys here. The maps go through the real SDK to the
loopback server, over real texts. Its answers are drawn from each text by rules, so that they are as
long as the text makes them; and it counts word pieces, of all that goes over the wire and comes
back, where the package estimates by bytes.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from agentnb import Session
from tests.loopback import LoopbackServer, Reply, Step, messages
from tests.mapping.recorded_jobs import FOLDER, JOBS, MODEL, Job

HOME = Path(__file__).parents[2]

# -- texts ----------------------------------------------------------------------------------------

MODULES = (
    "base64 bisect calendar copy difflib fnmatch functools glob heapq inspect locale math os "
    "random re shutil statistics tempfile textwrap tokenize traceback urllib.parse zipfile"
).split()


def shop_messages() -> Iterator[str]:
    """The sixty messages of the lesson on tables."""
    notebook = json.loads((HOME / "notebooks/a-table-of-answers.ipynb").read_text("utf-8"))
    source = next(
        "".join(cell["source"])
        for cell in notebook["cells"]
        if "".join(cell["source"]).startswith("MESSAGES = ")
    )
    yield from ast.literal_eval(ast.parse(source).body[0].value)  # type: ignore[attr-defined]


def docstrings() -> Iterator[str]:
    """Every fourth public function of some modules: its head and docstring."""
    yield from [*_documented()][::4]


def _documented() -> Iterator[str]:
    for module in map(import_module, MODULES):
        for name in sorted(getattr(module, "__all__", ())):
            function = getattr(module, name)
            if inspect.isfunction(function) and function.__doc__:
                head = f"{module.__name__}.{name}{inspect.signature(function)}"
                head = re.sub(r" at 0x[0-9a-f]+", "", head)
                yield f"{head}\n\n{inspect.getdoc(function)}"


def sections() -> Iterator[str]:
    """Every sixth section of the pages in docs/, by page and place; long tables aside."""
    pages = sorted((HOME / "docs").glob("*.md"))
    found = [
        section.strip()
        for page in pages
        for section in re.split(r"(?m)^(?=## )", page.read_text("utf-8"))
    ]
    yield from [each for each in found if 500 <= len(each) <= 5_000][::6]


# -- answers --------------------------------------------------------------------------------------

TOPICS = {
    "repair": "brake|chain|tyre|gears|crack|flickers|motor|creaks|bent|kickstand|spoke|repair",
    "delivery": r"parcel|courier|order \d+|delivered|delivery|tracking|i ordered|you sent",
    "billing": r"charged|invoice|refund|voucher|price|receipt|card was|deposit|pays?\b",
    "praise": "thank|great|best shop|five stars|lovely|wonderful",
}


def topic(text: str) -> dict[str, Any]:
    """The first topic whose words the message has."""
    low = text.lower()
    return {
        "value": next((name for name, words in TOPICS.items() if re.search(words, low)), "question")
    }


def description(text: str) -> dict[str, Any]:
    """The first paragraph of a docstring; its arguments; the errors that it names."""
    head, _, doc = text.partition("\n\n")
    names = re.findall(r"[(,] ?\*{0,2}([a-z_]\w*)", head)
    raises = re.findall(r"\b[A-Z]\w+(?:Error|Exception)\b", doc)
    return {
        "summary": " ".join(doc.partition("\n\n")[0].split()),
        "names": list(dict.fromkeys(names)),
        "raises": list(dict.fromkeys(raises)),
    }


def claims(text: str) -> dict[str, Any]:
    """The sentences that have a number, or a word of a promise."""
    prose = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    sentences = re.split(r"(?<=[.:;|])\s+", " ".join(prose.split()))
    promise = r"\d|\b(?:must|never|always|only|no|not|each|every|all)\b"
    return {
        "value": [
            {"sentence": each, "numbers": re.findall(r"\d[\d,.]*", each)}
            for each in sentences
            if re.search(promise, each)
        ]
    }


RULES: dict[str, tuple[Callable[[], Iterator[str]], Callable[[str], dict[str, Any]]]] = {
    "messages": (shop_messages, topic),
    "docstrings": (docstrings, description),
    "sections": (sections, claims),
}

# -- the server -----------------------------------------------------------------------------------

TOOL_PROMPT_TOKENS = 340
"""What the API adds where a tool must be called, by its page on tool use (of Claude 3 Haiku)."""
_PIECES = re.compile(r" ?[A-Za-z]+|\d{1,3}|[^\sA-Za-z\d]|\s+")
_LONGEST_PIECE = 6


def word_pieces(text: str) -> int:
    """Tokens of a text: words, cut where they are long; digits by three; signs one by one."""
    return sum(
        -(-len(piece.strip()) // _LONGEST_PIECE) if piece.strip().isalpha() else 1
        for piece in _PIECES.findall(text)
    )


def pieces_in(body: dict[str, Any]) -> int:
    """Tokens of a request: system prompt, messages, tools with their schema."""
    told = json.dumps([body.get("system"), body["messages"], body.get("tools")])
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    return word_pieces(told) + TOOL_PROMPT_TOKENS * forced


def server_of(job: Job) -> LoopbackServer:
    """A server that answers a job's question by its rule."""
    rule = RULES[job.name][1]

    def script(body: dict[str, Any]) -> Reply:
        text = body["messages"][-1]["content"]
        text = text if isinstance(text, str) else text[-1]["text"]
        answer = rule(text.removeprefix(job.question))
        reply = Reply(
            tool_uses=[("final_answer", answer)], usage={"input_tokens": pieces_in(body)}, chunk=80
        )
        tokens = word_pieces(json.dumps(["final_answer", answer], ensure_ascii=False))
        steps = messages.steps(reply, body, number=1)
        return Reply(events=[_counted(step, tokens) for step in steps])

    return LoopbackServer(script)


def _counted(step: Step, output_tokens: int) -> Step:
    """A step whose count of output is that of word pieces."""
    if isinstance(step, tuple) and isinstance(step[1], dict) and step[0] == "message_delta":
        return step[0], {**step[1], "usage": {"output_tokens": output_tokens}}
    return step


def record(job: Job) -> None:
    """Record a job in place of what is there."""
    rows = [*RULES[job.name][0]()]
    FOLDER.mkdir(exist_ok=True)
    job.kept.unlink(missing_ok=True)
    with server_of(job) as server:
        os.environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "none"}
        with Session(MODEL, mode="record", cassette=job.kept, store=None, budget=10**8) as session:
            run = session.map(rows, job.prompt, job.output, name=job.name)
            result = run.result()
    size = job.kept.stat().st_size
    print(f"{job.name}: {len(rows)} rows, {len(result.failed)} failed; {run.cost}; {size:,} bytes")


if __name__ == "__main__":
    for each in JOBS:
        record(each)
