"""`%%spawn --give … --code worker` in a real kernel: what a person types, sees and gets back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Kernel

SCRIPT = '''
import os
import pandas as pd
import agentnb
from agentnb.testing import by_agent, tool_calls

os.chdir({folder!r})
df = pd.DataFrame({{"city": ["Ulm", "Bonn"] * 300, "mm": range(600)}})
draw = """
import matplotlib.pyplot as plt
fig, _ax = plt.subplots(figsize=(3, 2))
by_city = df.groupby("city", as_index=False).mm.sum()
df["mm"] = 0
"""

def use(*replies):
    global provider
    provider = by_agent({{"root": [*replies]}})
    agentnb.configure(provider=provider, store=None, code_memory="600MB")

def told(block=None):
    content = provider.requests[0].messages[0].content
    return content[block].text if block is not None else chr(10).join(each.text for each in content)
'''


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "notes").mkdir()
    for name in ("may.txt", "june-1.txt", "other.csv"):
        (folder / "notes" / name).write_text(f"It rained in {name}.\n", encoding="utf-8")
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb", SCRIPT.format(folder=str(folder)))
        yield kernel


def test_frame_goes_in_and_a_frame_and_a_figure_come_out(kernel: Kernel) -> None:
    kernel.ok("use(tool_calls(('python', {'code': draw})), 'Drawn.')")

    shown = kernel.ok("%%spawn --give df --code worker -o result\nDraw it.")

    caption = "root, python: picture 1 of call 1 (image/png, 300 x 200)"
    assert shown.order == ["view", "display", "picture", "display", "picture"]
    assert shown.displays[0]["text/plain"].startswith("Drawn.")
    assert shown.pictures[-1][0]["text/plain"] == caption
    assert shown.unstable == []
    assert kernel.value("sorted(result.objects)") == ["by_city", "df", "fig"]
    assert kernel.value("type(result.objects['by_city']).__name__") == "DataFrame"
    assert kernel.value("int(result.objects['by_city'].mm.sum())") == sum(range(600))
    assert "image/png" in kernel.ok("result.objects['fig']").result_data
    # The person's own frame, and the copy that the code has changed.
    assert kernel.value("[int(df.mm.sum()), int(result.objects['df'].mm.sum())]") == [179_700, 0]
    assert kernel.value("[str(cell) for cell in agentnb.get_session().newest_run.code] == [draw]")


def test_files_of_a_pattern_get_names_and_are_read(kernel: Kernel) -> None:
    kernel.ok(
        "use(tool_calls(('inspect', {'name': 'may_txt', 'what': 'text'})), 'Read.')",
        "%%spawn --quiet --give df,notes/*.txt\nRead them.",
    )

    said = kernel.value("told()")
    assert [name in said for name in ("\ndf: ", "\nmay_txt: ", "\njune_1_txt: ", "csv")] == [
        True,
        True,
        True,
        False,
    ]
    (read,) = kernel.value(
        "[c.result for c in agentnb.get_session().newest_run.agents[0].tool_calls]"
    )
    assert "It rained in may.txt." in read
    offered = kernel.value("[spec.name for spec in provider.requests[0].tools]")
    assert "inspect" in offered
    assert "python" not in offered, "nobody let it run code"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--give dff", "`--give` names 'dff', which is not defined"),
        ("--give notes/*.pdf", "`--give` finds no file for 'notes/*.pdf' in the working directory"),
        ("--give df,", "'--give' takes names separated by commas, not 'df,': leave no name blank."),
        ("--give df --code wroker", "'--code' must be one of off, worker, kernel, not 'wroker'."),
    ],
)
def test_mistake_is_one_clear_line_and_asks_no_model(
    kernel: Kernel, options: str, words: str
) -> None:
    kernel.ok("use('never read')")

    shown = kernel.run(f"%%spawn {options} -o nothing\nLook.")

    assert shown.status == "error"
    assert words in shown.error
    assert len(shown.error.strip().splitlines()) == 1
    assert shown.order == []
    assert kernel.value("[len(provider.requests), 'nothing' in globals()]") == [0, False]


def test_unknown_name_that_is_near_another_names_it(kernel: Kernel) -> None:
    assert "or correct the name to 'draw'." in kernel.run("%%spawn --give drav\nLook.").error


def test_name_in_the_task_is_that_of_the_object_which_is_described_behind_it(
    kernel: Kernel,
) -> None:
    kernel.ok(
        "use(tool_calls(('inspect', {'name': 'df', 'what': 'statistics'})), 'Done.')",
        "%%spawn --quiet --give df\nWhat is the most rain in {{df}}?",
    )

    task, given = kernel.value("[told(0), told(1)]")
    assert task == "What is the most rain in df?"
    assert "You were given these objects by name." in given
    assert "df: pandas.DataFrame, 600 rows, 2 columns" in given
    assert "max 599" in kernel.value("provider.requests[1].messages[-1].content[0].text")


def test_tab_completes_names_of_data_and_how_code_may_run(kernel: Kernel) -> None:
    kernel.ok("use('Done.')")

    assert kernel.completed("%%spawn --give d|\nLook.") == [
        "%%spawn --give draw",
        "%%spawn --give df",
    ]
    assert kernel.completed("%%spawn --give draw,d|") == ["%%spawn --give draw,df"]
    assert "%%spawn --give use" not in kernel.completed("%%spawn --give u|")
    assert kernel.completed("%%spawn --give df --code |\nLook.") == [
        "%%spawn --give df --code off",
        "%%spawn --give df --code worker",
        "%%spawn --give df --code kernel",
    ]
    assert kernel.completed("%%spawn --g|") == ["%%spawn --give"]
