"""Checks Python, agentnb itself, the packages that it needs, and its extras."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from agentnb.core.secrets import without_user
from agentnb.doctor.finding import Finding, fault, ok, warn
from agentnb.doctor.versions import Requirement, read_requirement

_OF_DEVELOPERS = ("docs", "test")
"""Extras that a person does not need."""
_ITSELF = "agentnb"
"""An extra may name others of its own package."""
_OF_JUPYTER = ("ipykernel", "jupyterlab", "nbclassic", "notebook")
"""What is looked for even if agentnb is not installed, or names it nowhere. Colab has its own."""


@dataclass(frozen=True, slots=True)
class Installation:
    """agentnb and the packages around it, as they are installed."""

    code_version: str
    """Of the code that runs."""
    version: str | None
    """Of the installed package; `None` if it is not installed."""
    python: str
    """The version that runs."""
    python_floor: str
    """Such as `>=3.11`; empty if that is not known."""
    requirements: tuple[Requirement, ...]
    versions: Mapping[str, str]
    """By name: those of `requirements` that are installed."""
    pip: str
    """The command that installs into this environment."""
    origin: str
    """What pip installed agentnb from, as words of its command line; empty if that is unknown."""
    is_colab: bool = False
    """Whether this is a kernel of Colab, which needs the versions of its own packages."""

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras of a person, in the order of the metadata."""
        named = (requirement.extra for requirement in self.requirements)
        return tuple(dict.fromkeys(each for each in named if each and each not in _OF_DEVELOPERS))

    def needed_for(self, extra: str) -> list[Requirement]:
        """The requirements of an extra; of all installations for an empty name."""
        return [requirement for requirement in self.requirements if requirement.extra == extra]

    def adding(self, extra: str) -> str:
        """The command that installs an extra.

        If agentnb is not installed, its name may be that of another project on an index.
        """
        if self.version is None:
            return f"`{self.pip} install -e '.[{extra}]'` in the folder of agentnb"
        return f"`{self.pip} install 'agentnb[{extra}]'`"

    def installing(self, needed: Iterable[Requirement]) -> str:
        """The command that installs packages within their bounds."""
        # Colab's kernel does not start with IPython 9.
        most = {"ipython": ",<9"} if self.is_colab else {}
        specs = " ".join(f"'{each.spec}{most.get(each.name, '')}'" for each in needed)
        return f"`{self.pip} install {specs}`"

    def named(self, package: str) -> Requirement | None:
        """A package's requirement, if agentnb has one."""
        return next((each for each in self.requirements if each.name == package), None)


def read_installation(code_version: str, *, in_kernel: bool) -> Installation:
    """Read the metadata of this environment. Imports none of the packages.

    Args:
        code_version: `agentnb.__version__`.
        in_kernel: Whether a person can type `%pip`.
    """
    own: str | None = None
    lines: Iterable[str] = ()
    floor, origin = "", ""
    try:
        found = distribution("agentnb")
    except PackageNotFoundError:
        pass
    else:
        own, lines = found.version, found.requires or ()
        origin = origin_in(found.read_text("direct_url.json") or "")
        if "Requires-Python" in found.metadata:
            floor = found.metadata["Requires-Python"]
    requirements = [each for each in map(read_requirement, lines) if each is not None]
    requirements = [each for each in requirements if each.name != _ITSELF]
    names = {*_OF_JUPYTER, *(each.name for each in requirements)}
    return Installation(
        code_version=code_version,
        version=own,
        python=platform.python_version(),
        python_floor=floor,
        requirements=tuple(requirements),
        versions={name: has for name in sorted(names) if (has := installed_version(name))},
        pip="%pip" if in_kernel else f"{shlex.quote(sys.executable)} -m pip",
        origin=origin,
        is_colab="google.colab" in sys.modules,
    )


def origin_in(record: str) -> str:
    """What a package was installed from, as words of pip's command line; empty if unknown.

    Args:
        record: Its `direct_url.json`, which an index's package lacks. See
            https://packaging.python.org/specifications/direct-url-data-structure/
    """
    try:
        found = json.loads(record)
        url = str(found["url"])
        public = url.replace("//git@", "//")
        if without_user(public) != public:
            return ""  # it has a key
        path = url2pathname(urlsplit(url).path) if url.startswith("file:") else ""
        if path and not Path(path).exists():
            return ""
        if "dir_info" in found:
            option = "-e " if found["dir_info"].get("editable") else ""
            return f"{option}{shlex.quote(path)}" if path else ""
        if "vcs_info" in found:
            about = found["vcs_info"]
            revision = about.get("requested_revision")
            url = f"{about['vcs']}+{url}{f'@{revision}' if revision else ''}"
        if "subdirectory" in found:
            return shlex.quote(f"{url}#subdirectory={found['subdirectory']}")
        return shlex.quote(path or url)
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""


def installed_version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_python(here: Installation) -> Iterator[Finding]:
    """Whether this Python is new enough."""
    floor = Requirement("python", here.python_floor, "")
    if floor.is_met_by(here.python):
        yield ok("python", here.python)
    else:
        yield fault(
            "python",
            f"{here.python}; agentnb needs {here.python_floor}",
            "make an environment with a newer Python: `python3.11 -m venv .venv`",
        )


def check_agentnb(here: Installation) -> Iterator[Finding]:
    """Whether the code that runs is the one that is installed."""
    if here.version is None:
        yield warn(
            "agentnb",
            f"{here.code_version}, run from a folder: it is not installed here, so that its "
            "packages cannot be compared",
            f"`{here.pip} install -e .` in its folder",
        )
    elif here.version != here.code_version:
        yield warn(
            "agentnb",
            f"{here.code_version} runs, and {here.version} is installed",
            f"start the kernel again; if that does not help, {_reinstalling(here)}",
        )
    else:
        yield ok("agentnb", here.version)


def _reinstalling(here: Installation) -> str:
    """How to install agentnb again. Never by its name: an index may have another project of it."""
    command = f"{here.pip} install --force-reinstall --no-deps"
    if here.origin:
        return f"`{command} {here.origin}`"
    return f"`{command} SOURCE`, with the folder or the file that you installed it from as SOURCE"


def check_packages(here: Installation) -> Iterator[Finding]:
    """Whether the packages that agentnb always needs are there, within their bounds."""
    needed = here.needed_for("")
    wrong = [each for each in needed if not _is_good(each, here)]
    if needed and not wrong:
        yield ok("packages", f"{len(needed)}, each within its bounds")
    for each in wrong:
        has = here.versions.get(each.name)
        found = "is not installed" if has is None else f"{has}; agentnb needs {each.bounds}"
        yield fault(f"package {each.name}", found, here.installing([each]))


def check_extras(here: Installation, wanted: Mapping[str, str]) -> Iterator[Finding]:
    """Which extras are installed.

    Args:
        here: What is installed.
        wanted: By extra: what needs it here. A missing one is a fault then.
    """
    for extra in here.extras:
        needed = here.needed_for(extra)
        install = here.adding(extra)
        missing = [each.name for each in needed if each.name not in here.versions]
        wrong = [
            each
            for each in needed
            if each.name in here.versions
            and not _is_good(each, here)
            and not (here.is_colab and each.name in _OF_JUPYTER)
        ]
        if missing and extra in wanted:
            found = f"not installed, and {wanted[extra]} needs it"
            yield fault(f"extra {extra}", found, install)
        elif wrong:
            found = "; ".join(
                f"{each.name} {here.versions[each.name]}, needs {each.bounds}" for each in wrong
            )
            yield warn(f"extra {extra}", found, here.installing(wrong))
        elif missing:
            yield ok(f"extra {extra}", f"not installed; {install} adds it")
        else:
            yield ok(f"extra {extra}", _with_versions(needed, here))


def _is_good(needed: Requirement, here: Installation) -> bool:
    has = here.versions.get(needed.name)
    return has is not None and needed.is_met_by(has)


def _with_versions(needed: Collection[Requirement], here: Installation) -> str:
    return ", ".join(f"{each.name} {here.versions[each.name]}" for each in needed)
