"""Runs notebooks in fresh kernels, each with its cassette, and says what differs.

`record` asks the models and saves what they say; `check` compares, and asks none.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import time
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import Any

from agentnb.cassette import BadCassette, Cassette
from agentnb.cassette.writer import why_read_only
from agentnb.config import load_config
from agentnb.config.config import FILE_NAME
from agentnb.core.shown import counted, listed
from agentnb.core.text import LONGEST_LINE, literal, visible, visible_lines
from agentnb.core.types import Usage
from agentnb.errors import ConfigError, NotebookError, UnreadableNotebook
from agentnb.files import replace_file
from agentnb.modes import CASSETTE_VARIABLE, MODE_VARIABLE, MODES, REPLAY, SUFFIX, nothing_at
from agentnb.prices import Call, Cost, cost_of
from agentnb.repeat import not_asked
from agentnb.testing._outputs import compared, differences
from agentnb.views.freeze import freeze_file, read_document

_MODE_LINE = re.compile(
    rf"^([ \t]*)%agentnb[ \t]+mode[ \t]+({'|'.join(MODES)})[ \t\r]*$", re.MULTILINE
)
_SAYS_MODE = (
    r"\g<1>print(__import__('agentnb.notebook.settings', fromlist=['_']).say_in_lesson('\g<2>'))"
)
_IS_TEXT = re.compile(r"\s*%%(?!time|capture|prun)")
"""A cell whose lines are no code of this kernel, such as a task."""
_NAMES_ONE = re.compile(r"^[^#\n]*cassette", re.MULTILINE)
_IGNORED = re.compile(r"^\s*#\s*NBVAL_IGNORE_OUTPUT", re.MULTILINE)
_MOST_LINES = 20
"""Most lines shown of what differs in one cell."""
_MOST_LISTED = 5
_REPEAT = "__import__('agentnb.repeat', fromlist=['_'])"
_AS_TEXT = "__import__('json').dumps({}())"  # a value would be shown as a person set it
_ASKED = _AS_TEXT.format(f"{_REPEAT}.asked_labels")
_UNKEPT = _AS_TEXT.format(f"{_REPEAT}.unkept")
_NEW = _AS_TEXT.format("__import__('agentnb.cassette.journal', fromlist=['_']).recorded_now")
_CLOSE = "__import__('agentnb.testing._network', fromlist=['_']).close_network({!r})"
_ONLY_READ = "__import__('agentnb.cassette.writer', fromlist=['_']).only_read({!r})"
_BEGIN = f"{_REPEAT}.begin_lesson({{!r}})"
_NOT_OURS = {"node_modules", "site-packages"}
"""Folders with notebooks of packages; those of virtual environments have a `pyvenv.cfg`."""
_OF_GRADERS = {"autograded", "feedback", "release", "submitted"}
"""nbgrader's folders beside `source`: what it makes of the lessons there, and students' copies."""


@dataclass
class Lesson:
    """One notebook, and how it ran."""

    path: Path
    is_check: bool
    cells: int = 0
    """Its cells of code that are not empty."""
    ran: int = 0
    """How many of them ran; the last of these may have failed."""
    changed: dict[int, Sequence[str]] = field(default_factory=dict)
    """By the number of a cell of code, from 1: what differs from the saved outputs."""
    error: str = ""
    """Why it did not run to its end, in lines; empty if it did."""
    not_recorded: int = 0
    """Cells that failed since a call is not recorded."""
    notes: Sequence[str] = ()
    """What there is to say of its cassette as it was before."""
    unkept: Sequence[str] = ()
    """What was said of calls that no model answered, or that could not be kept."""
    new: int = 0
    """Calls that were recorded now."""
    calls: int = 0
    """Recorded calls of the runs that it asked for."""
    cost: Cost | None = None
    """List prices of these calls, on the day of their recording; `None` without any."""
    unused: dict[Path, Sequence[str]] = field(default_factory=dict)
    """By each cassette that its runs had, without links: the labels of recorded runs that no cell
    asked for. Empty if it did not run to its end."""
    took_s: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it did not run to its end, or is not as it was saved where it was checked."""
        differs = self.is_check and (self.changed or self.not_recorded)
        return bool(self.error or self.unkept or differs)

    def lines(self) -> Iterator[str]:
        """What a person reads of it."""
        cells = counted(self.cells, "cell")
        facts = [f"{cells} {'as' if self.is_check else 'run and'} saved"]
        if self.error:
            facts = [f"stopped in cell {self.ran} of {self.cells}" if self.ran else "not run"]
        elif self.changed:
            facts = [f"{len(self.changed):,} of {cells} changed"]
        if self.unkept:
            facts = ["not saved, since calls are not recorded"]
        if self.not_recorded:
            facts.append(f"not recorded: a call of {counted(self.not_recorded, 'cell')}")
        if self.new:
            facts.append(counted(self.new, "new call"))
        if self.cost is not None:
            facts.append(f"{counted(self.calls, 'recorded call')} ({self.cost.amount})")
        mark = "✗" if self.failed else "✓"
        yield f"{mark} {visible(str(self.path), 200)}: {', '.join(facts)}, {self.took_s:.0f} s"
        yield from (f"  {line}" for line in (*self.error.splitlines(), *self.notes, *self.unkept))
        for number, differing in self.changed.items():
            yield f"  cell [{number}]:"
            yield from (f"    {line}".rstrip() for line in differing[:_MOST_LINES])
            if (more := len(differing) - _MOST_LINES) > 0:
                yield f"    and {counted(more, 'more line')}"


async def run_lessons(
    paths: Sequence[Path],
    mode: str,
    *,
    jobs: int = 1,
    cassette: Path | None = None,
    only_read: str = "",
    tell: Callable[[Lesson], None] = lambda _: None,
    at_cell: Callable[[], None] = lambda: None,
) -> list[Lesson]:
    """Run notebooks, each in a kernel of its own.

    Args:
        paths: The notebooks.
        mode: `replay` to compare them with their saved outputs; `record` or `auto` to save the new
            outputs of those that run to their end.
        jobs: How many run at once.
        cassette: Of all; by default each has its own beside it.
        only_read: Why no model is asked and no cassette written, whatever a notebook's code sets:
            a clause.
        tell: Called with each when it has ended.
        at_cell: Called after each cell of code.

    Raises:
        NotebookError: What runs notebooks is missing.
    """
    room = asyncio.Semaphore(jobs)

    async def run(path: Path) -> Lesson:
        async with room:
            lesson, begun_s = Lesson(path, mode == REPLAY), time.monotonic()
            try:
                own = cassette or _named_by_file(path) or path.with_suffix(SUFFIX)
                await _run(lesson, mode, own.absolute(), only_read, at_cell)
            except (UnreadableNotebook, BadCassette, OSError) as error:
                lesson.error = str(error)
            lesson.took_s = time.monotonic() - begun_s
        tell(lesson)
        return lesson

    return list(await asyncio.gather(*map(run, paths)))


def _named_by_file(notebook: Path) -> Path | None:
    """The cassette that the settings file of a notebook's folder names."""
    folder = notebook.absolute().parent
    with suppress(ConfigError):  # the notebook says what is wrong, if it asks for a run
        if (folder / FILE_NAME).is_file() and (named := load_config(folder).cassette):
            return folder / named
    return None


def notebooks_in(files: Iterable[str]) -> list[Path]:
    """The notebooks that are named, and those below the folders that are named.

    Not those in hidden folders, such as Jupyter's `.ipynb_checkpoints`, in those of packages, and
    what nbgrader makes of its sources. A file that is named twice is one.

    Raises:
        UnreadableNotebook: A folder has none.
    """
    found: dict[str, Path] = {}
    for path in map(Path, files):
        inside = sorted(_below(path)) if path.is_dir() else [path]
        if not inside:
            raise UnreadableNotebook(str(path), "the folder has no notebook")
        for each in inside:
            real = os.path.realpath(each)
            if real not in found or str(each.absolute()) == real:  # its cassette is beside it
                found[real] = each
    return list(found.values())


def _below(folder: Path) -> Iterator[Path]:
    """The notebooks of a folder, also in linked ones, each of these once."""
    seen: set[str] = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        left_out = _NOT_OURS | (_OF_GRADERS if "source" in folders else set())
        folders[:] = sorted(each for each in folders if each[0] != "." and each not in left_out)
        if (real := os.path.realpath(root)) in seen or "pyvenv.cfg" in files:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(root, each) for each in files if each.endswith(".ipynb"))


def others_with(cassette: Path, notebooks: Sequence[Path]) -> list[str]:
    """The notebooks that may ask for runs of a cassette, too: in and below the same folders."""
    given = {each.resolve() for each in notebooks}
    folders = {each.parent for each in (cassette.resolve(), *given)}
    others = {each.resolve() for folder in folders for each in _below(folder)} - given
    return [each.name for each in sorted(others) if _may_ask(each, cassette.resolve())]


def _may_ask(path: Path, cassette: Path) -> bool:
    """Whether a notebook has a cassette by its name, the settings file, or perhaps by its code."""
    code, by_file = "", _named_by_file(path)
    with suppress(UnreadableNotebook, OSError):  # it cannot be run
        code = "\n".join(cell.source for cell in cells_of(read_lesson(path)))
    named = rf"(?<![\w.-]){re.escape(cassette.name)}|\bcassette\s*=\s*[^\s\"'=]"
    is_named = cassette in (path.with_suffix(SUFFIX), by_file and by_file.resolve())
    return is_named or re.search(named, code) is not None


def unused_by_all(lessons: Sequence[Lesson], cassette: Path) -> list[str]:
    """The labels of a cassette for which none of these notebooks asks; none if none has it."""
    unused = [each.unused[cassette] for each in lessons if cassette in each.unused]
    return [label for label in unused[0] if all(label in each for each in unused)] if unused else []


def summary(lessons: Sequence[Lesson]) -> str:
    """One line on all of them, and one on each cassette that has runs for which none asks."""
    lines = []
    for path in dict.fromkeys(path for each in lessons for path in each.unused):
        if unused := unused_by_all(lessons, path):
            runs = listed([literal(label, 60) for label in unused], most=_MOST_LISTED)
            lines.append(
                f"{visible(path.name, 200)}: no cell asks for {runs} (`cassette prune` removes "
                "what no notebook with it asks for: give each by `--notebook`)"
            )
    failed = sum(each.failed for each in lessons)
    of_what = "with differences" if lessons[0].is_check else "not saved"
    said = f"{failed:,} {of_what}" if failed else f"all {'as' if lessons[0].is_check else ''} saved"
    return "\n".join([*lines, f"{counted(len(lessons), 'notebook')}: {' '.join(said.split())}"])


def read_lesson(path: Path) -> Any:
    """A notebook as nbformat reads it.

    Raises:
        NotebookError: nbformat is missing.
        UnreadableNotebook: It is no notebook, or not one in Python.
    """
    document = read_document(path)
    try:
        import nbclient  # noqa: F401  # runs it, later
        import nbformat
    except ImportError as error:
        fix = 'Install what runs notebooks: pip install "agentnb[lab]".'
        raise NotebookError(f"The package {literal(error.name)} is missing. {fix}") from None
    try:
        notebook: Any = nbformat.reads(json.dumps(document), as_version=4)  # type: ignore[no-untyped-call]
        language = notebook.metadata.get("kernelspec", {}).get("language", "python")
        for cell in cells_of(notebook):
            _is_ignored(cell)
            compared(cell.outputs)
    except (AttributeError, KeyError, TypeError, ValueError, nbformat.ValidationError) as error:
        raise UnreadableNotebook(str(path), f"a part of it is wrong ({literal(error)})") from None
    if language != "python":
        raise UnreadableNotebook(str(path), f"its language is {visible(language, 20)}, not Python")
    return notebook


def cells_of(notebook: Any) -> list[Any]:
    """The cells of code that are not empty."""
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


async def _run(
    lesson: Lesson, mode: str, path: Path, only_read: str, at_cell: Callable[[], None]
) -> None:
    saved = read_lesson(lesson.path)
    lesson.cells = len(cells_of(saved))
    if mode != REPLAY and (why := why_read_only(lesson.path)):
        lesson.error = f"it cannot be saved, since {why}: no model was asked"
        return
    before, made = _cassette(path), deepcopy(saved)
    if before is not None:
        lesson.notes = _notes_of(before)
    _leave_mode_out(made, mode)
    first = []
    if only_read:
        first += [_CLOSE.format(only_read), _ONLY_READ.format(only_read)]
    told = await _execute(lesson, made, mode, path, first, at_cell)
    for place, (was, now) in enumerate(zip(cells_of(saved), cells_of(made), strict=True)):
        if place >= lesson.ran - bool(lesson.error):
            break  # it was not run, or failed
        now.source = was.source
        if not _is_ignored(was) and (was.outputs or mode == REPLAY):
            if differing := differences(compared(was.outputs), compared(now.outputs)):
                lesson.changed[place + 1] = differing
    lesson.not_recorded = sum(map(_is_not_recorded, cells_of(made)[: lesson.ran]))
    if told is not None:
        _account(lesson, path, **told)
    if mode != REPLAY and not lesson.failed:
        _save(lesson.path, made)


def _leave_mode_out(notebook: Any, mode: str) -> None:
    """Let the environment say the mode, not the lines that say another: see `say_in_lesson`."""
    for cell in cells_of(notebook):
        if not _IS_TEXT.match(cell.source):
            cell.source = _MODE_LINE.sub(
                lambda line: line[0] if line[2] == mode else line.expand(_SAYS_MODE), cell.source
            )


def _has_none(notebook: Any, cassette: Path) -> bool:
    """Whether there is no cassette, nor one that code may name: it has the word."""
    is_named = any(_NAMES_ONE.search(cell.source) for cell in cells_of(notebook))
    return not is_named and not cassette.exists()


async def _execute(
    lesson: Lesson,
    notebook: Any,
    mode: str,
    cassette: Path,
    first: Sequence[str],
    at_cell: Callable[[], None],
) -> dict[str, Any] | None:
    """Run all cells, after some code that is ours.

    Returns:
        See `answer`; `None` if a cell failed.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    client: Any = NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",  # of this Python, whatever the author's was called
        resources={"metadata": {"path": str(lesson.path.absolute().parent)}},
        coalesce_streams=True,
        record_timing=False,  # else each cell differs each time
        # Without a warning that its channels are not encrypted, which are this machine's.
        # Nor what it says if it is ended in the middle of a cell.
        extra_arguments=["--log-level=CRITICAL"],
    )
    record = f"`python -m agentnb record {shlex.quote(str(lesson.path))}`"
    first = [_BEGIN.format(record), *first]
    if mode == REPLAY and _has_none(notebook, cassette):
        first.append(_CLOSE.format(f"{nothing_at(cassette)} ({record})"))
    environment = {**os.environ, MODE_VARIABLE: mode, CASSETTE_VARIABLE: str(cassette)}
    if _named_by_file(lesson.path) == cassette:
        del environment[CASSETTE_VARIABLE]  # so that the file must be trusted
    try:
        async with client.async_setup_kernel(env=environment):
            with suppress(NotImplementedError):  # nbclient's would end the kernel under its cell
                asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            await client.kc.execute_interactive("\n".join(first), silent=True)
            for place, cell in enumerate(notebook.cells):
                if cell.cell_type == "code" and cell.source.strip():
                    lesson.ran += 1
                    await client.async_execute_cell(cell, place)
                    at_cell()
            reply = await client.kc.execute_interactive("", silent=True, **QUESTION)
    except CellExecutionError as error:
        why = visible_lines(f"{error.ename}: {error.evalue}", LONGEST_LINE)
        lesson.error = f"cell [{lesson.ran}] fails:\n{indent(why, '  ')}"
        return None
    except DeadKernelError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from None  # a person has interrupted it
        lesson.error = f"its kernel died in cell [{lesson.ran}]"
        return None
    return answer(reply)


QUESTION = {"user_expressions": {"asked": _ASKED, "unkept": _UNKEPT, "new": _NEW}}
"""What a kernel executes to tell of its runs and cassettes."""


def answer(reply: Any) -> dict[str, Any]:
    """What the kernel said; nothing of each where agentnb is not.

    Returns:
        `asked`: the labels of the runs by their cassette, without links. `unkept`: the notes on
        what no cassette has. `new`: the number of recorded calls by their cassette.
    """
    said = reply["content"]["user_expressions"]
    return {
        name: json.loads(literal_eval(each["data"]["text/plain"])) if each["status"] == "ok" else {}
        for name, each in said.items()
    }


def _is_ignored(cell: Any) -> bool:
    tags = cell.metadata.get("tags", ())
    return "nbval-ignore-output" in tags or bool(_IGNORED.search(cell.source))


def _is_not_recorded(cell: Any) -> bool:
    return any(
        each.output_type == "error" and each.ename in ("NotRecorded", "BadCassette")
        for each in cell.outputs
    ) and "raises-exception" not in cell.metadata.get("tags", ())


def _cassette(path: Path) -> Cassette | None:
    """The cassette that is there."""
    return Cassette.read(path) if path.exists() else None


def _notes_of(cassette: Cassette) -> list[str]:
    return [f"{visible(cassette.path.name, 200)}: {note}" for note in cassette.notes]


def _account(
    lesson: Lesson,
    path: Path,
    asked: Mapping[str, Sequence[str]],
    unkept: Sequence[str],
    new: Mapping[str, int],
) -> None:
    """Add what the runs' recorded calls cost, and the runs that nothing asked for.

    Args:
        lesson: The lesson.
        path: The cassette that it was given; its own code may have named another.
        asked: This and what follows: see `answer`.
        unkept: The notes.
        new: How many calls were recorded.
    """
    lesson.unkept, lesson.new = unkept, sum(new.values())
    path, calls = path.resolve(), list[Call]()
    for used in map(Path, asked or [path]):
        if (cassette := _cassette(used)) is None:
            continue
        if used != path:
            lesson.notes = [*lesson.notes, *_notes_of(cassette)]
        lesson.unused[used] = not_asked(cassette, asked.get(str(used), ()))
        calls += [
            Call(line.fields["path"], line.fields["model"], Usage(*line.fields["usage"]), at)
            for label, lines in cassette.lines.items()
            if label not in lesson.unused[used]
            for at in [datetime.fromtimestamp(cassette.journal(label).head.started_at, UTC)]
            for line in lines
            if line.kind == "call" and not line.is_unused and line.fields.get("usage")
        ]
    lesson.calls = len(calls)
    lesson.cost = cost_of(calls, paths=()) if calls else None


def _save(path: Path, notebook: Any) -> None:
    """Save the outputs, without the live views, which no kernel would answer."""
    import nbformat

    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    path = path.resolve()  # a link would be replaced
    replace_file(path, text if text.endswith("\n") else f"{text}\n")
    freeze_file(path)
