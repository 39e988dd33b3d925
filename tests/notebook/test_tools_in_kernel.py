"""`%%spawn --tools` in a real kernel: agents call the functions of a notebook."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files_of import png
from tests.mcp.scene import SERVER, is_alive, pids_in
from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Kernel

SCRIPT = (
    f"PNG = {png(640, 480)!r}"
    + """
import agentnb
from agentnb.core.types import ToolUse

def look_up(river: str) -> str:
    '''How long a river is.'''
    print("looked up", river)
    return f"{river}: 1320 km"

@agentnb.tool(name="deep")
async def depth(river: str) -> int:
    return 40

def from_session() -> str:
    return "session"

def plot(what: str) -> object:
    "Draw it."
    return "drawn", PNG

Thing = type("Thing", (), {})
number = 5
uses = lambda name, **given: agentnb.Reply(tool_uses=(ToolUse("t", name, given),))
provider = agentnb.ScriptedProvider({
    "Rhine": [uses("look_up", river="Rhine")] * 9,
    "Rhine: 1320 km": "It is 1320 km long.",
    "Draw coal": [uses("plot", what="coal")] * 9,
    "drawn": "It is black.",
    "Hello": "Well said.",
})
provider_of_script = provider
session = agentnb.configure(provider=provider, tools=[from_session])
offered = lambda: [spec.name for spec in provider.requests[-1].tools]
"""
)


@pytest.fixture(scope="module")
def kernel(fork_server: ForkServer) -> Iterator[Kernel]:
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb", SCRIPT)
        yield kernel


@pytest.fixture(autouse=True)
def own_session(kernel: Kernel) -> None:
    """Gives each test the session of `SCRIPT`, whatever the one before it has configured."""
    kernel.ok(
        "provider = provider_of_script\n"
        "_ = agentnb.configure(provider=provider, tools=[from_session])"
    )


def test_picture_of_a_tool_stands_below_the_tree_and_is_the_same_in_every_run(
    kernel: Kernel,
) -> None:
    first, second = (kernel.ok("%%spawn --tools plot\nDraw coal") for _ in range(2))

    assert first.order == ["view", "display", "picture", "display", "picture"]
    caption = "root, plot: picture 1 of call 1 (image/png, 640 x 480)"
    assert first.displays[-1]["text/plain"] == caption
    data, about = first.pictures[-1]
    assert base64.b64decode(data["image/png"]) == png(640, 480)
    assert (data["text/plain"], about["image/png"]["alt"]) == (caption, caption)
    assert (first.displays, first.pictures) == (second.displays, second.pictures)
    assert first.unstable == []
    assert kernel.ok("%%spawn --quiet --tools plot\nDraw coal").pictures == []


def test_function_of_the_notebook_is_called_and_answers(kernel: Kernel) -> None:
    shown = kernel.ok("%%spawn --tools look_up -o found\nHow long is the Rhine?")

    assert "It is 1320 km long." in shown.displays[-1]["text/plain"]
    assert kernel.ok("offered()").result == "['look_up']"
    assert kernel.ok("provider.requests[-1].messages[-1].content[0].is_error").result == "False"


def test_tool_calls_are_counted_below_the_answers_outline_and_by_status(kernel: Kernel) -> None:
    kernel.ok("uses_no = uses('no_such_tool')")
    kernel.ok("agentnb.configure(provider=agentnb.ScriptedProvider([uses('look_up', river='x'), "
              "uses_no, 'Well.']))")  # fmt: skip

    shown = kernel.ok("%%spawn --tools look_up\nHello")

    words = "root ✓ completed · Hello\n   2 tool calls, 1 error"
    assert words in shown.displays[-1]["text/plain"]
    assert words in kernel.ok("%spawn status").text
    kernel.ok("agentnb.configure(provider=provider, tools=[from_session])")


def test_tools_of_notebook_and_session_and_the_workspace_are_meant_by_their_names(
    kernel: Kernel,
) -> None:
    kernel.ok("%%spawn --tools depth,from_session,workspace\nHello")

    names = "['deep', 'from_session', 'workspace_read', 'workspace_write']"
    assert kernel.ok("offered()").result == names


def test_server_in_a_variable_is_meant_by_the_variable_and_stays_between_cells(
    kernel: Kernel, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-S", str(SERVER), f"log={log}"]
    kernel.ok(
        f"notes = agentnb.mcp({command!r}, name='files')",
        "provider = agentnb.ScriptedProvider({"
        "'Read': [uses('files__echo', text='hi')] * 9, 'hi': 'It says hi.', 'Hello': 'Well.'})",
        "_ = agentnb.configure(provider=provider, tools=[])",
    )

    shown = kernel.ok("%%spawn --tools notes\nRead the notes.")
    assert "It says hi." in shown.displays[-1]["text/plain"]
    assert "root ✓ completed · Read the notes.\n   1 tool call" in shown.displays[-1]["text/plain"]
    assert shown.unstable == []
    assert kernel.value("offered()[:2]") == ["files__echo", "files__write"]

    kernel.ok("%%spawn --tools files__write,look_up\nHello")
    assert kernel.value("offered()") == ["files__write", "look_up"]
    (pid,) = pids_in(log)
    assert is_alive(pid), "the next cell finds it as it is"
    kernel.ok("agentnb.get_session().close()")
    assert not is_alive(pid)


def test_cell_without_tools_has_those_of_the_session(kernel: Kernel) -> None:
    kernel.ok("%%spawn\nHello")

    assert kernel.ok("offered()").result == "['from_session']"


def test_demo_model_calls_the_function_and_answers_with_what_it_gave(kernel: Kernel) -> None:
    shown = kernel.ok("%%spawn --model demo --tools look_up\nHow long is the Rhine?")

    assert "- look_up(river='Rhine') gave: Rhine: 1320 km" in shown.displays[-1]["text/plain"]
    assert shown.unstable == []


def test_newest_definition_of_a_function_is_the_one_that_is_called(kernel: Kernel) -> None:
    kernel.ok("def fresh(a: int): ...", "%%spawn --tools fresh\nHello")
    kernel.ok("def fresh(b: int): ...", "%%spawn --tools fresh\nHello")

    shown = kernel.ok("list(provider.requests[-1].tools[0].input_schema['properties'])")
    assert shown.result == "['b']"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("lok_up", "There is no function 'lok_up' in this notebook: did you mean 'look_up'?"),
        ("zzz", "give one of 'look_up', 'depth', 'from_session'"),
        ("number", "'number' is a int: give `--tools` names of functions."),
        ("Thing", "'Thing' is a type: give `--tools` names of functions."),
        (
            "look_up,",
            "'--tools' takes names separated by commas, not 'look_up,': leave no name blank.",
        ),
        ("look_up,look_up", "Two tools have the name 'look_up'"),
        ("uses", "'<lambda>' cannot be a tool's name"),
    ],
)
def test_name_that_means_no_tool_is_refused_in_one_line_that_says_what_could_be_meant(
    kernel: Kernel, names: str, words: str
) -> None:
    asked = kernel.ok("len(provider.requests)").result

    shown = kernel.run(f"%%spawn --tools {names}\nHello")

    assert shown.status == "error"
    assert "\n" not in shown.error
    assert words in shown.error
    assert kernel.ok("len(provider.requests)").result == asked


MAILS = """
sent = []

@agentnb.tool(approval=True)
def send_mail(to: str) -> str:
    sent.append(to)
    return f"sent to {to}"

said = lambda request: request.messages[-1].content[0].text
_ = agentnb.configure(tools=[send_mail], provider=agentnb.ScriptedProvider(
    lambda request: said(request) if len(request.messages) > 1 else uses("send_mail", to="all")))
def questions(run):
    while not run.questions:
        time.sleep(0.01)
"""


def test_questions_of_a_run_in_the_background_are_listed_and_answered(kernel: Kernel) -> None:
    kernel.ok("import time", MAILS, "%%spawn --bg -o first\nSend it.", "questions(first)")

    shown = kernel.ok("%spawn questions")
    assert "q1  root   approval  May the root call send_mail?  approve or deny" in shown.stdout
    assert shown.stdout.endswith("\n\nq1: root asks to call send_mail with:\n    to: all\n")
    assert shown.unstable == []
    for line, words in (
        ("%spawn answer q1", "`%spawn answer q1 approve`"),
        ("%spawn answer q1 approve ann", "JSON"),
        ("%spawn answer q1 go", "'approve' or 'deny'"),
        ("%spawn answer q7 deny", "q1"),
        ("%spawn questions now", "'now'"),
    ):
        wrong = kernel.run(line)
        assert words in wrong.error
        assert "\n" not in wrong.error.strip()
    answered = kernel.ok('%spawn answer q1 approve {"to": "ann\'s list"}')
    assert answered.stdout == "Answered q1: approve.\n"
    kernel.ok("result = first.result()")
    assert kernel.ok("sent").result == '["ann\'s list"]'
    assert kernel.ok("%spawn questions").stdout == "No question is open.\n"

    kernel.ok("%%spawn --bg -o other\nSend it.", "questions(other)")
    run_id = kernel.ok("other.id").result.strip("'")
    kernel.ok(f"%spawn answer --run {run_id} q1 deny it's not the day")
    assert kernel.ok("other.result().output").result == repr(
        "The tool 'send_mail' was not run: a person denied it: it's not the day."
    )


def test_cell_that_nobody_looks_at_has_its_call_denied(kernel: Kernel) -> None:
    kernel.ok("import time", MAILS)

    shown = kernel.ok("%%spawn\nSend it.")

    assert "nobody was there" in shown.displays[-1]["text/plain"]
    assert kernel.ok("sent").result == "[]"
