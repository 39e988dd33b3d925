"""Tab completion of our magics in a real kernel, requested like a front end does.

A provider that a cell defines and registers is used and offered like any other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Kernel

SETTINGS = """\
tools: {spawn: {profiles: {reviewer: {}}}}
llm: {pools: {fast: [demo]}}
"""
SCRIPT = """
import agentnb

def look_up(river: str) -> str:
    return river

session = agentnb.configure(provider=agentnb.ScriptedProvider({
    "Plan": '<spawn_agents><agent task="a"/><agent task="b"/></spawn_agents>', "": "Done."}))
"""
LAB = """
from agentnb.core.types import Stopped, TextDelta, assistant_message

class LabProvider:
    name = "lab"

    async def stream(self, request):
        yield TextDelta(f"{request.model} in the lab.")
        yield Stopped("end_turn", assistant_message(f"{request.model} in the lab."))

agentnb.register_provider("lab", LabProvider)
"""


def check_what_tab_offers(kernel: Kernel, run_id: str) -> None:
    offered = [f"%%spawn --{name}" for name in ("model", "max-depth", "max-agents")]
    assert kernel.completed("%%spawn --m|\nthe task") == offered
    left = kernel.completed("%%spawn --bg |\nthe task")
    assert "%%spawn --bg --quiet" in left
    assert "%%spawn --bg --bg" not in left
    assert kernel.completed("%%spawn --model pool:f|\nthe task") == ["%%spawn --model pool:fast"]
    assert kernel.completed("%%spawn --model=de|") == ["%%spawn --model=demo"]
    assert kernel.completed("%%spawn --profile |") == ["%%spawn --profile reviewer"]
    assert kernel.completed("%%spawn --tools workspace,lo| --bg\nthe task") == [
        "%%spawn --tools workspace,look_up"
    ]
    assert kernel.completed("x = 1\nsaid = %spawn c|\ny = 2") == ["said = %spawn cancel"]
    assert kernel.completed("%spawn cancel |") == [f"%spawn cancel {p}" for p in ("root", "1", "2")]
    assert kernel.completed(f"%spawn --run {run_id[:6]}|") == [f"%spawn --run {run_id}"]
    assert kernel.completed("%agentnb fr|") == ["%agentnb freeze"]
    # What is Python stays Python, also in the task.
    assert "look_up" in kernel.completed("%%spawn\nlook_u|")
    assert "look_up" in kernel.completed("look_u|")


def test_tab_offers_what_can_stand_there_with_and_without_jedi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    (tmp_path / "agentnb.yaml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb")
        kernel.ok("import agentnb", LAB, "%%spawn --quiet --model lab/model-x -o answer\nHello")
        assert kernel.value("answer.output") == "model-x in the lab."
        assert kernel.completed("%%spawn --model lab/|") == [
            "%%spawn --model lab/model-x",
            "%%spawn --model lab/",
        ]
        kernel.ok(SCRIPT, "%%spawn --quiet\nPlan")
        run_id = kernel.value("session.newest_run.id")
        assert "demo" in kernel.completed("%%spawn --model de|")[0]
        (tmp_path / "agentnb.yaml").write_text(SETTINGS.replace("reviewer", "writer"))
        # On a machine that is busy the first Tab may not wait long enough.
        tabs = (kernel.completed("%%spawn --profile |") for _ in range(100))
        assert ["%%spawn --profile writer"] in tabs
        (tmp_path / "agentnb.yaml").write_text(SETTINGS)
        kernel.ok("session.reread_settings()")
        for setting in ("use_jedi = True", "use_jedi = False"):
            kernel.ok(f"%config IPCompleter.{setting}")
            check_what_tab_offers(kernel, run_id)
        kernel.ok("get_ipython().kernel.use_experimental_completions = False")
        check_what_tab_offers(kernel, run_id)

        count = "len([m for m in get_ipython().Completer.custom_matchers])"
        kernel.ok("%reload_ext agentnb", "%reload_ext agentnb")
        assert kernel.value(count) == 1
        kernel.ok("%unload_ext agentnb")
        assert kernel.value(count) == 0
        assert "%%spawn --model" not in kernel.completed("%%spawn --m|")
        kernel.ok("%load_ext agentnb")
        assert kernel.value(count) == 1
