"""Builds the environment of `binder/` in a clean folder, runs all lessons, and opens one in a page.

It follows repo2docker, with a virtual environment in place of Docker and conda: the Python of
`runtime.txt`, the packages of every image, `requirements.txt` from the root of the clone,
`postBuild`, and then JupyterLab as Binder starts it. The kernels are those of that environment;
nbval, which compares the outputs, comes from the environment of this process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.browser.chromium import a_chromium, a_playwright, find_chromium
from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.server import a_lab
from tests.release.environment import Environment, Step, clean_variables, copy_tracked

# Packages of every image with Python 3.11, by the lock file of repo2docker on 21 August 2026
# (808ae6b), without its `nodejs` and `pip`.
_IN_EVERY_IMAGE = (
    *("ipykernel==7.0.1", "ipython==9.6.0", "ipywidgets==8.1.7", "jupyter-client==8.6.3"),
    *("jupyter-offlinenotebook==0.3.2", "jupyter-resource-usage==1.2.0", "jupyter-server==2.17.0"),
    *("jupyterhub==5.4.0", "jupyterlab==4.4.9", "jupyterlab-server==2.27.3", "nbclient==0.10.2"),
    *("notebook==7.4.7", "pydantic==2.12.2", "tornado==6.5.2", "traitlets==5.14.3"),
)
_KNOWN = {"requirements.txt", "runtime.txt", "postBuild", "start"}
"""Files of `binder/` that this check can use. Any other would change the image."""
_LESSON, _TREE = "notebooks/quickstart.ipynb", 12
"""The lesson to open, and its first cell with a tree of several agents below its root."""
_PACE = {"AGENTNB_DEMO_PACE_S": "0"}


def steps(folder: Path) -> Iterator[Step]:
    """Copy, build, run and open; one step at a time."""
    clone = folder / "clone"
    yield f"{copy_tracked(clone)} files of the checkout, copied", ""
    binder = clone / "binder"
    unknown = sorted({file.name for file in binder.iterdir()} - _KNOWN)
    yield f"{sorted(f.name for f in binder.iterdir())}", f"not known: {unknown}" if unknown else ""
    python, said = _python(binder)
    yield said, ""
    image = Environment(folder / "image", python)
    yield image.install(*_IN_EVERY_IMAGE)
    requirements = ("-m", "pip", "install", "--quiet", "-r", binder / "requirements.txt")
    yield image.step("install -r binder/requirements.txt", *requirements, cwd=clone)
    if (binder / "postBuild").exists():
        yield _post_build(image, clone)
    # The image's own packages must be compatible with those of agentnb.
    yield image.step("pip check", "-m", "pip", "check", cwd=clone)
    yield image.step("doctor", "-m", "agentnb", "doctor", cwd=clone)
    for lesson in sorted((clone / "notebooks").glob("*.ipynb")):
        yield _run(lesson, image, folder)
    yield _open(image, clone, folder)


def _python(binder: Path) -> tuple[str, str]:
    """The Python that `runtime.txt` names, or else this one; and a line that names it."""
    named = (binder / "runtime.txt").read_text("utf-8").strip().replace("-", "")
    path = shutil.which(named)
    if path is None or subprocess.run([path, "--version"], capture_output=True).returncode:
        return sys.executable, f"{named} is not here; {sys.version.split()[0]} in its place"
    return path, f"{named}, as runtime.txt says"


def _post_build(image: Environment, clone: Path) -> Step:
    """Run `postBuild` as an image would: in the clone, with the environment's programs first."""
    (clone / "binder" / "postBuild").chmod(0o755)
    path = f"{image.python.parent}{os.pathsep}{os.environ['PATH']}"
    code = "import subprocess; subprocess.run(['./binder/postBuild'], check=True)"
    return image.step("postBuild", "-c", code, cwd=clone, environment={"PATH": path})


def _run(lesson: Path, image: Environment, folder: Path) -> Step:
    """Run a lesson in a kernel of the image, and compare its outputs with the saved ones."""
    spec = folder / "jupyter" / "kernels" / "image" / "kernel.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    argv = [str(image.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "image", "language": "python"}))
    words = ("-q", "--noconftest", "-o", "addopts=", "-p", "no:agentnb", "-p", "no:cacheprovider")
    nbval = ("--nbval", "--nbval-kernel-name=image", "--nbval-cell-timeout=120")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *nbval, lesson],
        cwd=lesson.parent,
        env={**clean_variables(), "JUPYTER_PATH": str(folder / "jupyter")} | _PACE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    counted = re.search(r"\d+ passed.*", ran.stdout)
    done = f"  {lesson.name}: {counted[0] if counted else 'nothing ran'}"
    return done, "" if ran.returncode == 0 else (ran.stdout + ran.stderr)[-3000:]


def _open(image: Environment, clone: Path, folder: Path) -> Step:
    """Open a lesson in the image's JupyterLab, and choose *Run All*."""
    done, home = f"{_LESSON} in JupyterLab", folder / "lab"
    home.mkdir()
    with a_playwright() as playwright:
        path = find_chromium(playwright)
        if path is None:
            return done, "there is no Chromium on this machine"
        command = (image.python, "-m", "jupyterlab")
        lab = a_lab(home, folder=clone, command=command, variables=clean_variables() | _PACE)
        with a_chromium(playwright, path) as browser, lab as server:
            desk = Desk(browser, server)
            notebook = desk.open(_LESSON)
            cells = [cell.cell_type for cell in notebook.saved.cells]
            notebook.start_all()
            notebook.wait(len(cells) - 1 - cells[::-1].index("code"))
            Panel(notebook.output(_TREE)).expect_statuses(root="completed", _1="completed")
            faults = [*desk.watch.errors, *desk.watch.left_the_machine]
            desk.close()
    return done, "\n".join(faults)
