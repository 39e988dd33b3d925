"""In which mode a run goes, and which cassette is the notebook's: decided from what was said.

`live` asks providers. `record` does, too, and writes a cassette; `replay` answers from it alone;
`auto` answers from it what fits, and records the rest. Who says it first is heard: the session,
`%agentnb mode`, the environment, CI with a cassette.
"""

from __future__ import annotations

import hashlib
import shlex
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentnb.core.shown import listed
from agentnb.core.text import literal

LIVE, RECORD, AUTO, REPLAY = MODES = ("live", "record", "auto", "replay")
MEANS = {
    LIVE: "Calls go to the models.",
    RECORD: "Calls go to the models and are recorded in {}.",
    AUTO: "Recorded calls are answered from {}; new ones go to the models and are added to it.",
    REPLAY: "All calls are answered from {}; no model is called.",
}
"""What a mode does, with the name of its cassette."""
MODE_VARIABLE, CASSETTE_VARIABLE = "AGENTNB_MODE", "AGENTNB_CASSETTE"
SUFFIX = ".cassette.jsonl"
BY_CODE = "set in code"
"""Who says a mode, or names a cassette: the settings of a session."""
_NOTEBOOK = ".ipynb"
THE_ONLY_ONE = "the only one of the folder"
"""Names a cassette that may be another notebook's."""
_BESIDE = "the notebook's, by "
_OFF = ("", "0", "false")
_RTC = "RTC:"
_MOST_LISTED = 5


@dataclass(frozen=True, slots=True)
class Notebook:
    """The notebook that this process works for."""

    path: Path
    told_by: str
    """What names it."""


@dataclass(frozen=True, slots=True)
class CassetteFile:
    """The file of a cassette, which need not be there."""

    path: Path
    origin: str
    """What names it, in words."""


@dataclass(frozen=True, slots=True)
class ByFile:
    """What a settings file says; it is heard last."""

    source: str = ""
    """The file, as it was named; empty for none."""
    mode: str | None = None
    cassette: Path | None = None


@dataclass(frozen=True, slots=True)
class Mode:
    """How a run goes."""

    name: str
    """`live`, `record`, `auto` or `replay`."""
    why: str
    """Who says so, in words."""
    cassette: CassetteFile | None
    """`None` if nothing names one."""
    trouble: str | None = None
    """Why a run cannot go so, as a sentence. In mode `live`: a run over the network."""

    @property
    def uses_cassette(self) -> bool:
        """Whether it reads or writes one."""
        return self.name != LIVE


def notebook_of(
    environment: Mapping[str, str], variables: Mapping[str, Any], cwd: Path
) -> Notebook | None:
    """The notebook by whatever names it: nbval, VS Code, Jupyter's server. `None` if nothing does.

    Only a file that is there counts: a renamed notebook keeps its old name in the kernel.

    Args:
        environment: Of the process.
        variables: Of the person, in a kernel.
        cwd: The working directory.
    """
    told = {
        "nbval": environment.get("PYTEST_CURRENT_TEST", "").partition("::")[0],
        "VS Code": variables.get("__vsc_ipynb_file__", ""),
        "Jupyter": _of_jupyter(environment),
    }
    for who, name in told.items():
        if isinstance(name, str) and name.endswith(_NOTEBOOK):
            # pytest names a file from its own folder, and nbval starts the kernel in the file's.
            for path in (cwd / name, cwd / Path(name).name):
                if _is_file(path):
                    return Notebook(path, who)
    return None


def cassette_of(
    given: object,
    environment: Mapping[str, str],
    notebook: Notebook | None,
    cwd: Path,
    by_file: ByFile = ByFile(),
) -> CassetteFile | None:
    """The cassette that is named, else the one beside the notebook.

    Args:
        given: The setting `cassette`; `None` if it is not given.
        environment: Of the process.
        notebook: See `notebook_of`.
        cwd: The working directory.
        by_file: What the settings file says.
    """
    if given is not None:
        return CassetteFile(cwd / Path(str(given)).expanduser(), BY_CODE)
    if named := environment.get(CASSETTE_VARIABLE, "").strip():
        return CassetteFile(cwd / Path(named).expanduser(), CASSETTE_VARIABLE)
    if by_file.cassette is not None:
        return CassetteFile(by_file.cassette, by_file.source)
    if notebook is None:
        return None
    return CassetteFile(notebook.path.with_suffix(SUFFIX), f"{_BESIDE}{notebook.told_by}")


def mode_of(
    given: str | None,
    magic: str | None,
    environment: Mapping[str, str],
    cassette: CassetteFile | None,
    cwd: Path,
    by_file: ByFile = ByFile(),
) -> Mode:
    """The mode that is in force, and why.

    Graders and other tools that run a copy of a notebook name none: mode `replay` then takes the
    only cassette of the folder, and mode `auto` does, too, which writes nothing to it.

    Args:
        given: The setting `mode`; `None` if it is not given.
        magic: What `%agentnb mode` said last; `None` if nothing.
        environment: Of the process.
        cassette: See `cassette_of`.
        cwd: The working directory.
        by_file: What the settings file says.

    Raises:
        ValueError: The environment names no mode.
    """
    named = environment.get(MODE_VARIABLE, "").strip()
    if named and named not in MODES:
        known = ", ".join(MODES[:-1]) + f" or {MODES[-1]}"
        raise ValueError(f"{MODE_VARIABLE} must be {known}, not {literal(named)}.")
    said = ((given, BY_CODE), (magic, "%agentnb mode"), (named or None, MODE_VARIABLE))
    for name, why in (*said, (by_file.mode, by_file.source)):
        if name is not None:
            if name == LIVE or not _is_unknown(cassette, cwd):
                return Mode(name, why, cassette)
            is_read = name == REPLAY or (name == AUTO and cassette is None)
            found = _cassettes_in(cwd) if is_read else []
            if len(found) == 1:
                return Mode(name, why, CassetteFile(found[0], THE_ONLY_ONE))
            if cassette is not None:
                return Mode(name, why, cassette)
            return Mode(name, why, None, _nothing_named(name, found, environment))
    if not is_ci(environment):
        return Mode(LIVE, "the default", cassette)
    if cassette is not None and _is_file(cassette.path):
        return Mode(REPLAY, f"CI is set, and {cassette.path.name} is there", cassette)
    return Mode(LIVE, "the default", cassette, _nothing_beside(cassette, cwd))


def mode_of_test(
    option: str | None, environment: Mapping[str, str], cassette: CassetteFile, cwd: Path
) -> Mode:
    """The mode of a test with a cassette of its own: a cassette that is there is replayed.

    Args:
        option: What `pytest --agentnb-mode` says; `None` if nothing.
        environment: Of the process.
        cassette: The test's.
        cwd: The working directory.

    Raises:
        ValueError: The environment names no mode.
    """
    if option is not None:
        return Mode(option, "--agentnb-mode", cassette)
    mode = mode_of(None, None, environment, cassette, cwd)
    if mode.name != LIVE or environment.get(MODE_VARIABLE, "").strip():
        return mode
    if _is_file(cassette.path):
        return Mode(REPLAY, f"{cassette.path.name} is there", cassette)
    trouble = None
    if is_ci(environment):
        trouble = (
            f"CI is set, and the test has no {cassette.path.name}: record it with "
            "`pytest --agentnb-mode=record` and commit it, or use `--agentnb-mode=live`."
        )
    return Mode(LIVE, "the default", cassette, trouble)


def _is_unknown(cassette: CassetteFile | None, cwd: Path) -> bool:
    """Whether nothing names a cassette, or only a notebook elsewhere, which has none.

    A grader that a notebook's cell starts hands the name of that notebook on to its kernels.
    """
    return cassette is None or (
        cassette.origin.startswith(_BESIDE)
        and cassette.path.parent.absolute() != cwd.absolute()
        and not _is_file(cassette.path)
    )


def _nothing_beside(cassette: CassetteFile | None, cwd: Path) -> str | None:
    """Why CI asks no model for a notebook whose cassette may be another file, as a sentence."""
    or_live = f"or set {MODE_VARIABLE}={LIVE}"
    if cassette is None:
        if not (beside := _cassettes_in(cwd)):
            return None
        return (
            f"CI is set, and it is unknown whether {beside[0].name} is this notebook's: set "
            f"{CASSETTE_VARIABLE} to its path to replay it, {or_live}."
        )
    if not cassette.origin.startswith(_BESIDE):
        return None
    said = nothing_at(cassette.path)
    return f"CI is set, {said}, {or_live}." if "git mv" in said else None


def nothing_at(cassette: Path) -> str:
    """That a notebook has no cassette, and what to do: to rename one that may be left behind."""
    for left in _cassettes_in(cassette.parent):
        if not _is_file(left.with_name(left.name.removesuffix(SUFFIX) + _NOTEBOOK)):
            return (
                f"the notebook has no {cassette.name}, and {left.name} has no notebook: if you "
                "renamed the notebook, rename its cassette, too "
                f"(`git mv {shlex.quote(left.name)} {shlex.quote(cassette.name)}`); else record it"
            )
    return f"the notebook has no {cassette.name}: record it"


def _nothing_named(mode: str, found: Sequence[Path], environment: Mapping[str, str]) -> str:
    why = "the notebook's name is unknown here: set"
    if known := _of_jupyter(environment):
        old = literal(Path(known).name, 60)
        why = f"{old} is not there: if you renamed the notebook, restart its kernel; else set"
    if found:
        several = listed([each.name for each in found], most=_MOST_LISTED)
        why = f"it is unknown which of {several} is this notebook's: set"
    return (
        f"Mode `{mode}` needs a cassette, and {why} {CASSETTE_VARIABLE}, `cassette:` in "
        f"agentnb.yaml, or `agentnb.configure(cassette=…)`, to the path of a file NAME{SUFFIX}."
    )


def _of_jupyter(environment: Mapping[str, str]) -> str:
    """The name of the notebook when the kernel began, by Jupyter's server; empty for none."""
    session = environment.get("JPY_SESSION_NAME", "")
    return session if session.endswith(_NOTEBOOK) and not session.startswith(_RTC) else ""


def is_ci(environment: Mapping[str, str]) -> bool:
    """Whether the process runs in CI, as far as its environment tells."""
    return environment.get("CI", "").strip().lower() not in _OFF


def _cassettes_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob(f"*{SUFFIX}"))
    except OSError:
        return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no path at all: a null character, a name that is too long
        return False


def label_of(name: str, task: str) -> str:
    """What a run is called in a cassette: its name, else the beginning of its task's hash."""
    digest = hashlib.sha256(task.encode("utf-8", "backslashreplace"))
    return name or digest.hexdigest()[:8]


class Labels:
    """Counts a process's runs of each label, for each cassette. Safe from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Path, str]] = Counter()
        self._given: set[tuple[Path, str]] = set()
        self._ever: set[tuple[Path, str]] = set()
        """With those of before `forget`."""
        self._lock = threading.Lock()

    def next(self, cassette: Path, label: str) -> str:
        """The label of the next run: with `~2`, `~3` from the second of the same on.

        No two runs have the same, also if a person names one like the second of another name.
        """
        cassette = cassette.resolve()  # it may be given through a link, or with `..`
        with self._lock:
            while True:
                self._counts[cassette, label] += 1
                count = self._counts[cassette, label]
                found = label if count == 1 else f"{label}~{count}"
                if (cassette, found) not in self._given:
                    self._given.add((cassette, found))
                    self._ever.add((cassette, found))
                    return found

    def given(self, cassette: Path) -> list[str]:
        """The labels of a cassette's runs since `forget`."""
        with self._lock:
            return sorted(label for path, label in self._given if path == cassette.resolve())

    def ever(self) -> dict[str, list[str]]:
        """The labels of all runs so far, by the real path of their cassette."""
        with self._lock:
            found: dict[str, list[str]] = {}
            for path, label in sorted(self._ever):
                found.setdefault(str(path), []).append(label)
            return found

    def forget(self) -> None:
        """Count from the start again."""
        with self._lock:
            self._counts.clear()
            self._given.clear()


def recorded_label(label: str, known: Mapping[str, Any]) -> str | None:
    """The label of the recording that a run reads; `None` if there is none.

    A cell that is run more often than it was recorded reads the last recording again.

    Args:
        label: See `Labels.next`.
        known: By label.
    """
    stem, mark, count = label.rpartition("~")
    if not (mark and count.isdecimal()):
        return label if label in known else None
    for earlier in range(int(count), 1, -1):
        if (found := f"{stem}~{earlier}") in known:
            return found
    return stem if stem in known else None
