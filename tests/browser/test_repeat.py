"""The notebook's own cassette, found automatically in JupyterLab."""

from __future__ import annotations

from tests.browser.desk import Desk

PROVIDER = """
import agentnb

def model(request):
    asked.append(request)
    return "The Danube."

asked = []
agentnb.configure(provider=agentnb.ScriptedProvider(model))
"""


def test_run_is_recorded_beside_the_notebook_and_replayed_after_a_restart(desk: Desk) -> None:
    notebook = desk.notebook(
        "%load_ext agentnb\n%agentnb mode record",
        PROVIDER,
        "%%spawn --quiet\nWhich river is longer?",
        "print(len(asked), 'asked')",
        own_kernel=True,
    )
    cassette = notebook.name.replace(".ipynb", ".cassette.jsonl")

    notebook.run(0, 1, 2, 3)

    recorded = (desk.server.folder / cassette).read_bytes()
    assert b'"The Danube."' in recorded
    assert "1 asked" in notebook.output(3).inner_text()

    notebook.page.evaluate(
        """() => {
            const cells = jupyterapp.shell.currentWidget.content.model.cells;
            cells.get(0).sharedModel.setSource("%load_ext agentnb\\n%agentnb mode replay");
            cells.get(3).sharedModel.setSource("print(len(asked), 'asked')\\n%agentnb mode");
        }"""
    )
    notebook.restart_kernel()
    notebook.run(0, 1, 2, 3)

    assert f"{cassette} (the notebook's, by Jupyter)" in notebook.output(3).inner_text()
    assert "The Danube." in notebook.output(2).inner_text()
    assert "0 asked" in notebook.output(3).inner_text()
    assert (desk.server.folder / cassette).read_bytes() == recorded
