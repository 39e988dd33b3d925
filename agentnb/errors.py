"""Errors in what a person wrote: settings, a settings file, a magic, a notebook.

    AgentnbError
    ├── UnknownPool, UnknownProfile a name that the settings do not have
    ├── ConfigError                 mistakes in a settings file; has `mistakes`
    ├── UntrustedSettings           an untrusted settings file that would send data or spend more
    ├── TrustNotKept                trust in a settings file could not be saved
    ├── BadCassette                 a cassette that cannot be read; has `path`, `line` and `why`
    ├── UnreadableNotebook          a file that is not a notebook, or cannot be read
    ├── NoCassette                  a mode that needs a cassette, and no cassette set
    ├── ModeChanged                 a session made before `%agentnb mode` named another mode
    ├── NotebookError               a magic's line or cell could not be understood
    └── CheckFailed                 a run is not what `agentnb.check` expected of it
        └── UnknownPrice            a call has no price, so its run's cost cannot be checked

The others are in agentnb/core/errors.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agentnb.core.errors import AgentnbError, known_names, show_as_line
from agentnb.core.text import LONGEST_IN_ERROR, LONGEST_LINE, literal, visible

UPDATE = "Install a newer agentnb from where you installed this one."
"""The fix for a file of a newer format. Not `pip install --upgrade agentnb`: an index may have
another project of that name."""


class NotebookError(AgentnbError, ValueError):
    """A magic's line or cell could not be understood. The message says what it takes."""


class NoCassette(AgentnbError, ValueError):
    """A run needs a cassette, and none is set, or it may only be read. It says what to do."""


class ModeChanged(AgentnbError, RuntimeError):
    """A session was made before `%agentnb mode` named another mode. It starts no run.

    Else a run could ask a model that a person believes to be replayed, or stay unrecorded.

    Args:
        mode: The session's mode.
        wanted: The mode that `%agentnb mode` named last.
    """

    def __init__(self, mode: str, wanted: str) -> None:
        self.mode, self.wanted = mode, wanted
        super().__init__(
            f"This session was made before `%agentnb mode {wanted}` and still has mode `{mode}`: "
            "use `session = agentnb.get_session()`, or make your own session again."
        )


class UnreadableNotebook(AgentnbError, ValueError):
    """A file is not a notebook that this version can read.

    Args:
        source: The file, as named.
        what: The reason, as a clause.
    """

    def __init__(self, source: str, what: str) -> None:
        self.source = source
        super().__init__(
            f"{literal(source)} cannot be read as a notebook: {what}. Give the path of an .ipynb "
            "file."
        )


class BadCassette(AgentnbError, ValueError):
    """A file is not a cassette that this version can read. The file is unchanged.

    Args:
        path: The file, as named.
        line: The wrong line, from 1; `None` for the file as a whole.
        why: What is wrong, as a clause.
        fix: What to do, as a sentence; by default to restore the file or record it again.
    """

    def __init__(self, path: str, line: int | None, why: str, *, fix: str = "") -> None:
        self.path, self.line, self.why = path, line, why
        self.fix = fix or (
            "Restore it from version control, or delete it and record it again: "
            "`%agentnb mode record`."
        )
        place = f"line {line:,} of " if line else ""
        super().__init__(
            f"The cassette cannot be read: {place}{literal(_from_here(path))}: "
            f"{visible(why, 300)}. {self.fix}"
        )


def _from_here(path: str) -> str:
    """A path from the working directory if it is below it."""
    with suppress(OSError, ValueError):
        return Path(path).relative_to(Path.cwd()).as_posix()
    return path


class CheckFailed(AgentnbError, AssertionError):
    """A run is not what a check expected. The message has its tree, with the wrong agents marked.

    Args:
        expected: What was expected, as a noun.
        found: What was found instead.
        tree: The run's agents, a line for each, with marks.
        paths: The marked agents.
    """

    def __init__(self, expected: str, found: str, *, tree: str, paths: Sequence[str] = ()) -> None:
        self.expected, self.found, self.paths = expected, found, tuple(paths)
        super().__init__(f"expected {expected}, found {found}\n\n{tree}")


class UnknownPrice(CheckFailed):
    """A call has no price, so that the cost of its run cannot be checked."""


class UnknownPool(AgentnbError, ValueError):
    """A pool that the settings do not have."""

    def __init__(self, name: str, *, known: Sequence[str], source: str) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"There is no pool {literal(name)} (known: {known_names(known)}). Add it under "
            f"`llm.pools` in {_path(source)}, or name a model as `provider/model`."
        )


class UnknownProfile(AgentnbError, ValueError):
    """A profile that the settings do not have."""

    def __init__(self, name: str, *, known: Sequence[str], source: str) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"There is no profile {literal(name)} (known: {known_names(known)}). Add it under "
            f"`tools.spawn.profiles` in {_path(source)}, or leave `profile` out."
        )


@dataclass(frozen=True, slots=True)
class ConfigMistake:
    """One thing that is wrong in a settings file."""

    key: str
    """Full path of the key, such as `llm.pools.fast[0]`; empty for the file itself."""
    line: int | None
    """From 1."""
    what: str
    """The mistake and the fix, in sentences; never a value that may be a secret."""

    @property
    def place(self) -> str:
        """Line and key as far as known, such as `line 4, `llm.default_pool``."""
        line = f"line {self.line}" if self.line else ""
        key = f"`{visible(self.key, 120)}`" if self.key else ""
        return ", ".join(filter(None, (line, key)))


class ConfigError(AgentnbError, ValueError):
    """A settings file has mistakes.

    Args:
        source: The file, as named.
        mistakes: At least one. The message shows the first twenty.
    """

    def __init__(self, source: str, mistakes: Sequence[ConfigMistake]) -> None:
        self.source = source
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: mistake.line or 0))
        if len(self.mistakes) == 1:
            (one,) = self.mistakes
            place = ", ".join(filter(None, (_path(source), one.place)))
            super().__init__(f"{place}: {visible(one.what, LONGEST_LINE)}")
            return
        shown = self.mistakes[:20]
        lines = [f"{m.place}: {m.what}" if m.place else m.what for m in shown]
        lines = [visible(line, LONGEST_LINE) for line in lines]
        if len(shown) < len(self.mistakes):
            lines.append(f"And {len(self.mistakes) - len(shown)} more.")
        super().__init__(
            "\n  ".join([f"{_path(source)} has {len(self.mistakes)} mistakes.", *lines])
        )


class UntrustedSettings(AgentnbError, ValueError):
    """An untrusted settings file would send data to another machine or let a run spend more.

    Args:
        source: The file, as named.
        what: What would be sent, or the settings that let a run spend more.
        where: The address it would be sent to; empty if nothing would be sent.
        allow: How to allow it, as a clause.
        does: What would be done, as a clause, by a server or an engine that the file names.
        key: Where the file names it, such as `tools.mcp`.
    """

    def __init__(
        self,
        source: str,
        *,
        what: str = "",
        where: str = "",
        allow: str,
        does: str = "",
        key: str = "",
    ) -> None:
        self.source, self.what, self.where = source, what or does, where
        if does:
            super().__init__(
                f"{source} is not trusted, so nothing was started: by its settings, {does}. "
                f"If you know this and want it, {allow}; else remove `{key}` from the file."
            )
            return
        does, want, out = f"a run may spend more ({what})", "want", "it"
        if where:
            does, want = f"{what} would go to {where}", "know this server and want"
            out = "`llm.providers.openai`"
        super().__init__(
            f"{source} is not trusted, so nothing was sent: by its settings, {does}. "
            f"If you {want} that, {allow}; else remove {out} from the file."
        )


class TrustNotKept(AgentnbError, ValueError):
    """Trust in a settings file could not be saved.

    Args:
        source: The file, as named.
        why: The reason, as a clause.
    """

    def __init__(self, source: str, why: str) -> None:
        self.source = source
        super().__init__(
            f"{source} is not trusted: your configuration folder cannot store the trust "
            f"({why}). Set `AGENTNB_TRUST=1` in the environment (`%env AGENTNB_TRUST=1` in a "
            "notebook) to trust every file until this process ends."
        )


def _path(source: str) -> str:
    return visible(source, LONGEST_IN_ERROR)


@contextmanager
def wrong_settings_as_line() -> Iterator[None]:
    """Show errors in a person's settings as one line in the cell where they typed them."""
    try:
        yield
    except (AgentnbError, ValueError) as error:
        show_as_line(error)
        raise
