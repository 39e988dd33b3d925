"""Checks the kernel that a notebook would get, the front ends, and their widget extensions."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from agentnb.doctor.finding import Finding, fault, ok, warn
from agentnb.doctor.packages import Installation

KERNEL = "python3"
EXTENSIONS = {"@jupyter-widgets/jupyterlab-manager": "jupyterlab_widgets", "anywidget": "anywidget"}
"""What JupyterLab and Notebook 7 need to show a live view, and the packages that bring it."""
_THIS_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
"""Words of a kernel spec that mean the environment that starts it."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """What a notebook starts as its kernel `python3`."""

    folder: str
    program: str
    """Its Python; one word, such as `python`, if that is the one that starts it."""
    trouble: str = ""
    """Why it cannot be read; the other fields may be empty then."""


@dataclass(frozen=True, slots=True)
class Jupyter:
    """What is installed of Jupyter here."""

    python: str
    """The Python that runs."""
    has_client: bool
    """Whether a kernel can be started from here."""
    has_ipykernel: bool
    spec: KernelSpec | None
    """`None` if there is none, or it cannot be looked for."""
    extensions: Mapping[str, str]
    """Version by name of those of `EXTENSIONS` that are there."""
    disabled: frozenset[str]
    """Those that are turned off."""


def read_jupyter() -> Jupyter:
    """Read the kernel spec and the extensions that Jupyter would find from here."""
    has_client = find_spec("jupyter_client") is not None
    data = [Path(sys.prefix, "share", "jupyter")]
    spec = None
    if has_client:
        from jupyter_client.kernelspec import KernelSpecManager

        kernels = KernelSpecManager()
        data += [Path(folder).parent for folder in kernels.kernel_dirs]
        spec = _spec_in(kernels)
    return Jupyter(
        python=sys.executable,
        has_client=has_client,
        has_ipykernel=find_spec("ipykernel") is not None,
        spec=spec,
        extensions=dict(_extensions_in(data)),
        disabled=frozenset(disabled_in(_config_folders())),
    )


def _spec_in(kernels: object) -> KernelSpec | None:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    assert isinstance(kernels, KernelSpecManager)
    try:
        spec = kernels.get_kernel_spec(KERNEL)
    except NoSuchKernel:
        return None
    except (OSError, ValueError, TypeError) as error:
        return KernelSpec("", "", trouble=f"its kernel.json cannot be read: {error}")
    argv = [str(word) for word in spec.argv]
    return KernelSpec(str(spec.resource_dir), argv[0] if argv else "")


def _extensions_in(data: list[Path]) -> Iterator[tuple[str, str]]:
    for name in EXTENSIONS:
        for folder in data:
            found = _json_in(folder / "labextensions" / name / "package.json")
            if found is not None:
                yield name, str(found.get("version", ""))
                break


def _config_folders() -> list[Path]:
    """Where `jupyter labextension disable` writes, whose setting counts first: `--level` says."""
    if find_spec("jupyter_core") is not None:
        from jupyter_core.paths import jupyter_config_path

        return [Path(folder) for folder in jupyter_config_path()]
    own = os.environ.get("JUPYTER_CONFIG_DIR") or os.path.expanduser("~/.jupyter")  # noqa: PTH111 - there may be no home
    return [Path(sys.prefix, "etc", "jupyter"), Path(own)]


def disabled_in(folders: Iterable[Path]) -> set[str]:
    """The extensions that are turned off.

    Args:
        folders: Of Jupyter's settings. The first that says something of an extension counts.
    """
    is_off: dict[str, object] = {}
    for folder in folders:
        page = _json_in(folder / "labconfig" / "page_config.json") or {}
        listed = page.get("disabledExtensions", {})
        if isinstance(listed, list):
            listed = dict.fromkeys(map(str, listed), True)
        if isinstance(listed, dict):
            is_off = {**listed, **is_off}
    # A plugin of an extension is named `EXTENSION:PLUGIN`.
    return {name.partition(":")[0] for name, off in is_off.items() if off}


def _json_in(file: Path) -> dict[str, object] | None:
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None


def check_kernel(jupyter: Jupyter, here: Installation) -> Iterator[Finding]:
    """Whether a notebook that is opened from here gets a kernel of this environment."""
    spec = jupyter.spec
    if not jupyter.has_ipykernel and not jupyter.has_client:
        yield warn(
            "kernel",
            "ipykernel is not in this environment: scripts work, notebooks do not",
            here.adding("lab"),
        )
    elif not jupyter.has_ipykernel:
        yield fault(
            "kernel",
            "ipykernel is not in this environment, so notebooks run in another one",
            here.adding("code"),
        )
    elif spec is None:
        yield fault(
            "kernel",
            f"there is no kernel `{KERNEL}`",
            f"`{shlex.quote(jupyter.python)} -m ipykernel install --sys-prefix`",
        )
    elif spec.trouble:
        yield fault(
            "kernel",
            spec.trouble,
            f"`{shlex.quote(jupyter.python)} -m ipykernel install --sys-prefix`",
        )
    elif not _is_this(spec.program, jupyter.python):
        yield fault(
            "kernel",
            f"`{KERNEL}` ({spec.folder}) starts another environment: {spec.program}",
            f"choose another kernel in the notebook, or remove this one: "
            f"`{shlex.quote(jupyter.python)} -m jupyter kernelspec remove {KERNEL}`",
        )
    else:
        version = here.versions.get("ipykernel", "")
        yield ok("kernel", f"`{KERNEL}` of this environment, with ipykernel {version}".rstrip())


def _is_this(program: str, python: str) -> bool:
    """Whether a kernel spec's program is a Python of the environment of `python`."""
    if _THIS_PYTHON.fullmatch(program):
        return True
    return os.path.realpath(Path(program).parent) == os.path.realpath(Path(python).parent)


def check_front_ends(jupyter: Jupyter, here: Installation, *, in_kernel: bool) -> Iterator[Finding]:
    """Which front ends are here, and whether they can show a live view."""
    if here.is_colab:
        version = here.versions.get("ipykernel", "")
        yield ok(
            "colab",
            f"with its own ipykernel {version}: a click is heard when the cell has ended, so start "
            "runs with `--bg`",
        )
        return
    lab, notebook, classic = map(here.versions.get, ("jupyterlab", "notebook", "nbclassic"))
    needed = here.named("jupyterlab")
    if lab is not None and needed is not None and not needed.is_met_by(lab):
        yield warn(
            "jupyterlab",
            f"{lab}; the live views are tested with {needed.bounds}",
            f"`{here.pip} install '{needed.spec}'`",
        )
    elif lab is not None:
        yield ok("jupyterlab", lab)
    if notebook is not None and int(notebook.partition(".")[0]) < 7:
        yield warn(
            "notebook",
            f"{notebook}; the live views are made for Notebook 7",
            f"`{here.pip} install 'notebook>=7'`",
        )
    elif notebook is not None:
        yield ok("notebook", notebook)
    if classic is not None:
        yield ok("nbclassic", classic)
    if lab is None and notebook is None and classic is None:
        if in_kernel:
            yield ok("jupyterlab", "not in the kernel's environment: the page comes from another")
        else:
            yield warn(
                "jupyterlab",
                "not in this environment",
                f"{here.adding('lab')}, or open notebooks in an editor",
            )
        return
    yield from _check_extensions(jupyter, here)


def _check_extensions(jupyter: Jupyter, here: Installation) -> Iterator[Finding]:
    for extension, package in EXTENSIONS.items():
        name = f"extension {package}"
        if extension not in jupyter.extensions:
            yield fault(
                name,
                "is not in `share/jupyter/labextensions`: a page shows no live view",
                f"`{here.pip} install --force-reinstall --no-deps {package}`, then start "
                "JupyterLab again",
            )
        elif extension in jupyter.disabled:
            yield fault(
                name,
                "is turned off: a page shows no live view",
                f"`{shlex.quote(jupyter.python)} -m jupyter labextension enable {extension}`, then "
                "load the page again",
            )
        else:
            yield ok(name, jupyter.extensions[extension])
