"""Times a newcomer: from nothing to a first live tree, and from there to a first labelled column.

It runs the README's own line in a fresh clone with an empty home, and opens its notebook in a
browser that is already installed. Then it runs the first two blocks of the page on labelling a
column in a new notebook. Neither needs a key. The time leaves out the downloads, which are made
before, and what a person does: reading, choosing and pasting take no time here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from tests.browser.chromium import DEADLINE_MS, a_chromium, a_playwright, find_chromium
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.server import LabServer
from tests.pages import blocks_of
from tests.release.environment import ROOT, Environment, Step, clean_variables

AIM_S = 60.0
_DEADLINE_S = 600.0
"""Only against hangs."""
_FOLDER, _LESSON, _TREE = "notebooks", "quickstart.ipynb", 7
"""What the README opens (JupyterLab then serves its folder); its first cell with sub-agents."""
_COLUMN_PAGE = "docs/how-to/label-a-column.md"
_URL = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\S*\?token=(\w+)")
# Needed on the machine of this check, not by a newcomer: no window, any port, root.
_SERVER = {"ip": "127.0.0.1", "port": 0, "open_browser": False, "allow_root": True}
_NEW_NOTEBOOK = """async cells => {
    const made = await jupyterapp.commands.execute(
        "notebook:create-new", {cwd: "", kernelName: "python3"});
    await made.context.ready;
    const document = made.context.model.toJSON();
    document.cells = cells.map(source => ({
        cell_type: "code", execution_count: null, metadata: {}, outputs: [], source}));
    made.context.model.fromJSON(document);
    return made.context.path;
}"""


def steps(folder: Path) -> Iterator[Step]:
    """Download, then time; one step at a time, each with its seconds on the clock."""
    wheels = folder / "wheels"
    began_s = time.monotonic()
    fault = _load(folder, wheels)
    yield f"downloads: {time.monotonic() - began_s:.0f} s, beside the clock", fault
    if fault:
        return
    with a_playwright() as playwright:
        path = find_chromium(playwright)
        if path is None:
            yield "browser", "there is no Chromium on this machine"
            return
        with a_chromium(playwright, path) as browser:
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.set_default_timeout(DEADLINE_MS)
            yield from _timed(folder, wheels, page)


def _load(folder: Path, wheels: Path) -> str:
    """Download all that the README's line will install, as wheels; return what went wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    needed = [*project["project"]["dependencies"]]
    needed += project["project"]["optional-dependencies"]["lab"]
    needed += [*project["build-system"]["requires"], "editables"]  # for an editable installation
    words = ("-m", "pip", "wheel", "--quiet", "--prefer-binary", "--wheel-dir", wheels)
    return Environment(folder / "loader").step("", *words, *needed, cwd=folder)[1]


def _timed(folder: Path, wheels: Path, page: Page) -> Iterator[Step]:
    clone, clock = folder / "clone", _Clock()
    subprocess.run(["git", "clone", "--quiet", ROOT.as_uri(), clone], check=True)
    yield clock.at("cloned")
    with _readme_line(clone, _newcomer(folder, wheels)) as lines:
        url = ""
        for line in lines:
            if line.startswith("+ "):
                yield clock.at(f"begins: {line[2:].strip()}")
            elif found := _URL.search(line):
                url = f"{found[1]}/lab/tree/{_LESSON}?token={found[2]}"
                break
        # Keep reading its output, or it would wait at a full pipe.
        rest = threading.Thread(target=deque, args=(lines, 0), daemon=True)
        rest.start()
        is_up = bool(url) and _listens(url)
        yield clock.at("JupyterLab is up", "" if is_up else "it did not start")
        if is_up:
            yield from _in_the_page(
                page, LabServer(url.split("/lab")[0], clone / _FOLDER, clone), url, clock
            )
    rest.join(_DEADLINE_S)  # the output ends when the server has ended


def _listens(url: str) -> bool:
    """Wait until a server accepts connections: it may print its address a moment before."""
    place, too_late_s = urlsplit(url), time.monotonic() + _DEADLINE_S
    while time.monotonic() < too_late_s:
        try:
            socket.create_connection((place.hostname, place.port), timeout=_DEADLINE_S).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def _in_the_page(page: Page, server: LabServer, url: str, clock: _Clock) -> Iterator[Step]:
    page.goto(url)
    page.wait_for_function("window.jupyterapp?.restored")
    lesson = Notebook(page, server, _LESSON)
    lesson.open()
    yield clock.at("the lesson is shown, and its kernel idle")
    lesson.start_all()
    panel = Panel(lesson.output(_TREE))
    expect(panel.node("1")).to_be_visible()
    yield clock.aim("first live tree")

    clock = _Clock()
    python = [block.code for block in blocks_of(_COLUMN_PAGE) if block.language == "python"]
    mine = Notebook(page, server, page.evaluate(_NEW_NOTEBOOK, python[:2]))
    mine.open()
    yield clock.at("a new notebook, and its kernel idle")
    mine.start_all()
    expect(mine.output(1)).to_contain_text(re.compile(r"Thank you\.\s+praise\s+praise\s+completed"))
    yield clock.aim("first labelled column")


class _Clock:
    """A stopwatch that starts when it is made."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def at(self, done: str, fault: str = "") -> Step:
        return f"  {self._s():5.1f} s on the clock: {done}", fault

    def aim(self, done: str) -> Step:
        """The last step, with a fault if the time is above the aim."""
        took_s = self._s()
        fault = "" if took_s <= AIM_S else f"{took_s:.0f} s, above the aim of {AIM_S:.0f}"
        return f"{done}: {took_s:.1f} s, of {AIM_S:.0f}", fault

    def _s(self) -> float:
        return time.monotonic() - self._began_s


def _newcomer(folder: Path, wheels: Path) -> dict[str, str]:
    """The variables of a person with an empty home, this Python, and the packages."""
    home = folder / "home"
    (home / ".jupyter").mkdir(parents=True)
    for name, settings in {
        "jupyter_server_config.json": {"ServerApp": _SERVER},
        "jupyter_lab_config.json": {"LabApp": {"expose_app_in_browser": True}},
    }.items():
        (home / ".jupyter" / name).write_text(json.dumps(settings))
    kept = {
        name: value
        for name, value in clean_variables().items()
        if not name.startswith(("PIP_", "XDG_"))
    }
    path = f"{Path(sys.base_prefix) / 'bin'}{os.pathsep}{kept['PATH']}"
    own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**kept, **own, "HOME": str(home), "PATH": path}


@contextmanager
def _readme_line(clone: Path, variables: dict[str, str]) -> Iterator[Iterator[str]]:
    """Run the README's line that opens its notebook; yield its lines and those of the shell."""
    (line,) = (
        block.code
        for block in blocks_of("README.md")
        if block.language == "bash" and f"jupyter lab {_FOLDER}/{_LESSON}" in block.code
    )
    process = subprocess.Popen(
        ["bash", "-xc", line],
        cwd=clone,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stderr is not None
    too_late = threading.Timer(_DEADLINE_S, os.killpg, (process.pid, signal.SIGKILL))
    too_late.start()
    try:
        yield iter(process.stderr)
    finally:
        too_late.cancel()
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
