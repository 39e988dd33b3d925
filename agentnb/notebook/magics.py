"""The magics `%%spawn`, `%spawn` and `%agentnb`, which call the default session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from IPython.core.getipython import get_ipython
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand

from agentnb.code_places import CODE_WORDS, OFF
from agentnb.config import load_config
from agentnb.core.errors import OrchestratorError
from agentnb.core.money import NotMoney, looks_like_money, share_in_words
from agentnb.core.shown import counted, listed
from agentnb.core.text import literal
from agentnb.core.types import OrchestratorResult, path_of
from agentnb.default_session import config_at_hand, configure, get_session, session_at_hand
from agentnb.errors import NotebookError
from agentnb.modes import MODES
from agentnb.notebook import steering
from agentnb.notebook.answering import answer, answering_in, questions
from agentnb.notebook.display import (
    check_settings,
    has_live_view,
    has_picture,
    in_words_meanwhile,
    preload_picture,
    show_in_words,
    show_live_view,
    show_result,
    take_live_views_back,
)
from agentnb.notebook.errors import partial_result_of, plain_errors
from agentnb.notebook.line import (
    Option,
    Verb,
    Words,
    about_options,
    does_not_take,
    one_of,
    options_of_settings,
    read_options,
    several_names,
    text,
    usage_of,
    value_of,
    variable_name,
    words_of,
)
from agentnb.notebook.settings import mode_text, settings_text
from agentnb.notebook.steering import tell, telling_in
from agentnb.notebook.task_magic import thread_meant
from agentnb.notebook.template import fill, notebook_names
from agentnb.notebook.toolbox import tools_named
from agentnb.notebook.transform import without_form
from agentnb.notebook.types_named import type_named
from agentnb.objects.given import objects_given
from agentnb.repeat import say_mode
from agentnb.run import Run
from agentnb.runtime import allow_nested_loops
from agentnb.settings import SETTINGS, whole_number
from agentnb.trust import trust
from agentnb.views.front_end import wanted_display
from agentnb.views.outline import GLYPHS, lines_below, outline_shortened
from agentnb.views.table import ROWS, Table

if TYPE_CHECKING:
    from agentnb.session import Session
    from agentnb.store.runs import RunInfo

CELL_OPTIONS = {
    **options_of_settings(model=(text, Words.MODELS), tools=(several_names, Words.TOOLS)),
    "--profile": Option(
        "profile",
        text,
        "P",
        ["configure the first agent by a profile of agentnb.yaml"],
        Words.PROFILES,
    ),
    "--thread": Option(
        "thread",
        text,
        "T",
        [
            "continue a thread: its id, or the name of an agent that stays;",
            "`last` continues the newest one",
        ],
        Words.THREADS,
    ),
    "--output": Option(
        "output",
        text,
        "TYPE",
        [
            "type of the answer in `result.data`: the name of one in the notebook",
            "(a pydantic model, a dataclass, an Enum, …), or `int`, `float`, `bool`",
        ],
        Words.TYPES,
    ),
    "--give": Option(
        "give",
        several_names,
        "a,b",
        [
            "objects of the notebook that agents get by name, and files, such as",
            "`df,prices,notes/*.txt`: agents see a summary, and can read more",
        ],
        Words.OBJECTS,
    ),
    "--code": Option(
        "code",
        one_of(CODE_WORDS),
        "worker",
        [
            "let agents run Python on copies of these objects, in another process;",
            "`kernel`: in this notebook, on all its names, after you approve each call (no undo)",
        ],
        Words.CODE,
    ),
    "--name": Option("name", text, "N", ["name of the run, for lists of runs"]),
    "-o": Option(
        "variable", variable_name, "NAME", ["bind the result to NAME (with --bg: the run)"]
    ),
    "--bg": Option(
        "in_background", None, about=["return at once; `%spawn status` shows the progress"]
    ),
    "--quiet": Option("quiet", None, about=["show only the answer, without the tree"]),
    "--raw": Option("raw", None, about=["take {{ and }} in the task as text"]),
}
"""Options of `%%spawn`: parsing, the help of `%%spawn?` and completion all use them."""
RUN_OPTIONS = {"--run": Option("run", text, words=Words.RUNS)}
"""Options of `%spawn`."""
RECOVER_OPTIONS = {
    "--budget": Option("budget", value_of(SETTINGS["budget"].check), "N", ["the new total"]),
}
"""Options of `%spawn recover`."""

_HELP = Path(__file__).with_name("help")
_SPAWN_HELP = (
    (_HELP / "spawn.txt")
    .read_text("utf-8")
    .replace("$usage", usage_of("%%spawn", CELL_OPTIONS))
    .replace("$options", about_options(CELL_OPTIONS))
)
_AGENTNB_HELP = (_HELP / "agentnb.txt").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class _CellRequest:
    """A parsed `%%spawn` cell."""

    task: str
    variable: str | None = None
    name: str | None = None
    in_background: bool = False
    quiet: bool = False
    raw: bool = False
    profile: str | None = None
    output: Any = None
    """The type of the answer; `None` for text."""
    thread: str | None = None
    """A thread's id, an agent's name, or `last`; `None` for a new thread."""
    give: Mapping[str, object] | None = None
    code: str = OFF
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings typed for this run, by name; `tools` holds names."""


async def spawn_cell(line: str, cell: str) -> None:
    """Run a `%%spawn` cell on the kernel's loop. The cell transform calls it."""
    with plain_errors():
        request = _read_cell(line, cell)
        if request.in_background:
            run = _start(request)
        else:
            with get_session().owning(expects_view=has_live_view(quiet=request.quiet)):
                run = _start(request)
        try:
            _show_live(run, request)
        except KeyboardInterrupt:  # the first interrupt, before the cell waits for its run
            if request.in_background:
                raise
            run.stop_soon("interrupted")
        if not request.in_background:
            _preload_picture_if_shown(request)
            with _showing_partial_result(run, request):
                with in_words_meanwhile(run, quiet=request.quiet):
                    result = await run.wait_or_cancel()
                _finish(run, request, result)


@magics_class
class AgentMagics(Magics):
    """The magics of agentnb."""

    @no_var_expand
    @line_cell_magic
    def spawn(self, line: str, cell: str | None = None) -> None:
        """Start a tree of agents, or steer a running one."""
        with plain_errors():
            if cell is None:
                _run_verb(line)
                return
            request = _read_cell(line, cell)
            if request.in_background:
                _show_live(_start(request), request)
            else:
                _run_and_block(request)

    @no_var_expand
    @line_magic
    def agentnb(self, line: str) -> None:
        """Settings of agentnb in this kernel."""
        with plain_errors():
            word, *arguments = words_of(line) or ["help"]
            if word not in AGENTNB_VERBS:
                known = ", ".join(AGENTNB_VERBS)
                raise NotebookError(
                    f"`%agentnb` has no command {literal(word)}: give one of {known}."
                )
            if AGENTNB_VERBS[word].words is None and arguments:
                raise NotebookError(does_not_take(arguments, f"%agentnb {word}"))
            print(AGENTNB_VERBS[word].act(*arguments))


def _mode(*wanted: str) -> str:
    if wanted and (len(wanted) > 1 or wanted[0] not in MODES):
        known = ", ".join(MODES)
        raise NotebookError(f"There is no mode {literal(' '.join(wanted))}: give one of {known}.")
    if wanted:
        before = session_at_hand()
        if before is not None and before.given.get("mode") is not None:
            raise NotebookError(
                "The mode of this session is set in code: agentnb.configure(mode=None) leaves it "
                "to `%agentnb mode`."
            )
        say_mode(wanted[0])
        configure()
    return mode_text(get_session(), in_full=not wanted)


def _nest() -> str:
    allow_nested_loops()
    return "asyncio.run() now works in cells; every event loop of this kernel is slower."


def _freeze() -> str:
    taken = take_live_views_back()
    if not taken:
        return "There is no live view to remove."
    views = "1 live view is" if taken == 1 else f"{taken} live views are"
    return f"{views} removed; the other outputs need no kernel. Save the notebook now."


def _doctor() -> str:
    # Imported here: few sessions need it.
    from agentnb.doctor import examine

    return examine().text


def _trust(*files: str) -> str:
    if len(files) > 1:
        raise NotebookError(
            "`%agentnb trust` takes one file: put its name in quotes if it has spaces."
        )
    config = load_config(files[0]) if files else config_at_hand()
    if not config.source:
        raise NotebookError(
            "This session uses no agentnb.yaml: name the file after `%agentnb trust`."
        )
    return trust(config)


AGENTNB_VERBS = {
    "mode": Verb(_mode, Words.MODES),
    "config": Verb(lambda: settings_text(get_session())),
    "trust": Verb(_trust, Words.FILES),
    "doctor": Verb(_doctor),
    "freeze": Verb(_freeze),
    "nest": Verb(_nest),
    "help": Verb(_AGENTNB_HELP.rstrip),
}
"""Verbs of `%agentnb`."""

AgentMagics.spawn.__doc__ = _SPAWN_HELP
AgentMagics.agentnb.__doc__ = _AGENTNB_HELP


# -- %%spawn ----------------------------------------------------------------------------------


def _read_cell(line: str, cell: str) -> _CellRequest:
    names = notebook_names()
    values, rest = read_options(words_of(fill(line, names)), CELL_OPTIONS, magic="%%spawn")
    if rest:
        raise NotebookError(
            f"`%%spawn` takes options on its line, not {literal(' '.join(rest))}: "
            "write the task on the lines below."
        )
    check_settings()  # report a wrong display setting now, not after the run
    if "give" in values:
        values["give"] = objects_given(cast("list[str]", values["give"]), names)
    given = cast("Mapping[str, object]", values.get("give", {}))
    cell = without_form(cell)
    task = cell if values.get("raw") else fill(cell, names, given)
    if not task.strip():
        raise NotebookError("The task is empty: write it on the lines below `%%spawn`.")
    if "output" in values:
        values["output"] = type_named(str(values["output"]), names)
    settings = {name: values.pop(name) for name in SETTINGS.keys() & values.keys()}
    return _CellRequest(task.strip(), settings=settings, **values)  # type: ignore[arg-type]  # read by CELL_OPTIONS


def _start(request: _CellRequest) -> Run:
    session = get_session()
    settings = dict(request.settings)
    if "tools" in settings:
        settings["tools"] = tools_named(settings["tools"], notebook_names(), session.tools)
    if request.thread is not None:
        settings["thread"] = thread_meant(session, request.thread)
    run = session.spawn(
        request.task,
        profile=request.profile,
        output=request.output,
        give=request.give,
        code=request.code,
        name=request.name,
        **settings,
    )
    if request.in_background:
        _bind(request.variable, run)
        if wanted_display() != "none":
            print(
                "Started in the background: `%spawn status` shows its progress, "
                "`%spawn cancel` stops it."
            )
    return run


def _show_live(run: Run, request: _CellRequest) -> None:
    if has_live_view(quiet=request.quiet):
        show_live_view(run, is_all=request.in_background)
    elif request.in_background and not request.quiet:
        show_in_words(run)


def _run_and_block(request: _CellRequest) -> None:
    """Start a run and wait for it as its owner, in a cell that cannot await and so blocks."""
    with get_session().owning(expects_view=has_live_view(quiet=request.quiet)) as owned:
        try:
            run = _start(request)
            # Whether a click arrives depends on the kernel; an interrupt always does.
            print("Waiting for the run; only an interrupt (Ctrl-C, or ■) stops it.")
            _show_live(run, request)
            _preload_picture_if_shown(request)
            with _showing_partial_result(run, request):
                _finish(run, request, run.result_or_cancel())
        except KeyboardInterrupt:
            # The first interrupt cancels the run, even if it comes before the wait.
            if not owned or owned[0].done or not owned[0].stop_soon("interrupted"):
                raise
            with _showing_partial_result(owned[0], request):
                _finish(owned[0], request, owned[0].result())


def _preload_picture_if_shown(request: _CellRequest) -> None:
    if has_picture(quiet=request.quiet):
        preload_picture()


def _finish(run: Run, request: _CellRequest, result: OrchestratorResult) -> None:
    _show_end(run, request, result)
    _bind(request.variable, result)


def _show_end(run: Run, request: _CellRequest, result: OrchestratorResult) -> None:
    show_result(
        result,
        notes=_below(run),
        quiet=request.quiet,
        unreported=run.unreported_notes,
        calls=[*run.whole_tool_calls.values()],
        code=run.code,
    )
    get_session().tell_trouble()


@contextmanager
def _showing_partial_result(run: Run, request: _CellRequest) -> Iterator[None]:
    """Show the partial result of a run that ends with an error, before the error."""
    try:
        yield
    except OrchestratorError as error:
        reached = partial_result_of(error)
        if reached is not None:
            _show_end(run, request, reached)
        raise


def _below(run: Run) -> dict[str, list[str]]:
    """The lines of an outline below its agents, by path."""
    return lines_below(run.tool_counts, run.notes)


def _bind(name: str | None, value: object) -> None:
    shell = get_ipython()
    if name is not None and shell is not None:
        shell.user_ns[name] = value


# -- %spawn -----------------------------------------------------------------------------------


def _run_verb(line: str) -> None:
    if (telling := telling_in(line)) is not None:  # its words are no shell's
        print(SPAWN_VERBS["tell"].act(_run_for(telling.run_id), telling))
        return
    if (answering := answering_in(line)) is not None:  # its JSON is no shell's
        print(SPAWN_VERBS["answer"].act(_run_for(answering.run_id), answering))
        return
    typed = words_of(line)
    if typed[:1] == ["recover"]:
        values, words = read_options(typed[1:], RECOVER_OPTIONS, magic="%spawn recover")
        print(_recover(words, **values))
        return
    values, words = read_options(typed, RUN_OPTIONS, magic="%spawn")
    verb, arguments = (words or ["help"])[0], words[1:]
    if verb in _VERBS_WITHOUT_RUN:
        _take_at_most(0, arguments, verb)
        print(SPAWN_VERBS[verb].act())
    elif verb in SPAWN_VERBS:
        print(SPAWN_VERBS[verb].act(_run_for(values.get("run")), arguments))
    else:
        raise NotebookError(
            f"`%spawn` has no command {literal(verb)} (known: {', '.join(SPAWN_VERBS)}): give one "
            "of them, or write a task into a cell that begins with `%%spawn`."
        )


def _run_for(run_id: object) -> Run:
    session = get_session()
    if run_id is None:
        if session.newest_run is None:
            raise NotebookError("There is no run yet: start one with `%%spawn`.")
        return session.newest_run
    run = session.find_run(str(run_id))
    if run is None:
        raise NotebookError(
            f"There is no run {literal(str(run_id))} here: give its `run.id`, "
            "or leave --run out for the newest."
        )
    return run


def _status(run: Run, arguments: list[str]) -> str:
    _take_at_most(0, arguments, "status")
    tree = run.tree
    budget = run.budget
    spent = f"{share_in_words(budget.tokens_used, budget.total, budget.unit)} used"
    lines = [f"{steering.state_of(run)}, {spent}"]
    if together := get_session().spent:
        lines.append(f"the session's budget: {together} used")
    if asked := len(run.questions):
        lines.append(f"{counted(asked, 'open question')}: `%spawn questions`")
    lines += [outline_shortened(tree, _below(run))] if tree else []
    return "\n".join(filter(None, [*lines, get_session().store.status()]))


def _runs() -> str:
    """A table of the newest runs, numbered as in `agentnb.runs()`."""
    found = get_session().runs(limit=ROWS + 1)
    if not found:
        return "There is no run yet: start one with `%%spawn`."
    rows = [
        (
            str(at),
            info.name or info.task,
            f"{GLYPHS[info.status]} {info.status}",
            f"{info.agents:,}",
            f"{info.tokens_used:,}",
        )
        for at, info in enumerate(found[:ROWS])
    ]
    table = Table(("", "run", "status", "agents", "tokens"), rows).plain
    more = "\n… and older runs: `agentnb.runs(limit=None)` lists them." if found[ROWS:] else ""
    return table + more


def _recover(arguments: list[str], budget: Any = None) -> str:
    """Continue a run whose process died, or that gets a larger budget, and show it live."""
    _take_at_most(1, arguments, "recover")
    session = get_session()
    which = arguments[0] if arguments else ""
    run = session.recover(
        _run_to_recover(session, which, may_be_exhausted=budget is not None), budget=budget
    )
    if has_live_view(quiet=False):
        show_live_view(run, is_all=True)
    assert run.receipt is not None
    return "\n".join(run.receipt.told)


def _run_to_recover(session: Session, which: str, *, may_be_exhausted: bool) -> str | RunInfo:
    """The run to recover: the newest if `which` is empty, a number of `%spawn runs`, or an id."""
    if not which:
        wanted = ("interrupted", "exhausted") if may_be_exhausted else ("interrupted",)
        found = [info for status in wanted for info in session.runs(limit=1, status=status)]
        if not found:
            words = " or ".join(wanted)
            raise NotebookError(f"No run was {words}: `%spawn runs` lists the stored runs.")
        return max(found, key=lambda info: info.started_at)
    if len(which) > _LONGEST_PLACE or not which.isdecimal():
        return which
    listed_runs = session.runs(limit=ROWS)
    if int(which) >= len(listed_runs):
        raise NotebookError(
            f"`%spawn runs` has no number {which}: give one of its numbers, or a run's id."
        )
    return listed_runs[int(which)]


def _cancel(run: Run, arguments: list[str]) -> str:
    _take_at_most(1, arguments, "cancel")
    receipt = run.cancel(arguments[0] if arguments else None)

    def paths(agent_ids: Iterable[str]) -> str:
        return listed(path_of(agent_id, run.thread_id) for agent_id in agent_ids)

    words = "Nothing was left to cancel."
    if receipt.agents:
        words = f"Cancelled: {paths(receipt.agents)}."
    if receipt.still_running:
        words += f" Still running: {paths(receipt.still_running)}."
    return words


def _budget(run: Run, arguments: list[str]) -> str:
    _take_at_most(1, arguments, "budget")
    if not arguments:
        raise NotebookError("`%spawn budget` needs the new total: `%spawn budget 90_000`.")
    total: int | str = arguments[0]
    if not looks_like_money(arguments[0]):
        total = value_of(whole_number("tokens", at_least=0))("%spawn budget", arguments[0])
    if run.done:
        raise NotebookError(
            "The run has ended, so its budget cannot change: `%spawn recover RUN --budget 90_000` "
            "continues a run that its budget ended."
        )
    try:
        run.set_budget(total)
    except NotMoney as error:
        raise NotebookError(str(error)) from None
    return f"The budget is now {run.budget.in_words(run.budget.total)}."


SPAWN_VERBS = {
    "status": Verb(_status),
    "cancel": Verb(_cancel, Words.PATHS),
    "pause": Verb(steering.pause, Words.PATHS),
    "resume": Verb(steering.resume, Words.PATHS),
    "budget": Verb(_budget),
    "tell": Verb(tell, Words.PATHS),
    "questions": Verb(questions),
    "answer": Verb(answer, Words.QUESTIONS, Words.ANSWERS),
    "runs": Verb(_runs),
    "recover": Verb(_recover, options=RECOVER_OPTIONS),
    "help": Verb(_SPAWN_HELP.rstrip),
}
"""Verbs of `%spawn`."""
_VERBS_WITHOUT_RUN = ("runs", "help")
"""All other verbs act on one run; `recover` finds its own."""
_LONGEST_PLACE = 3
"""Most digits of a number in a list of runs; more digits are the beginning of an id."""


def _take_at_most(count: int, arguments: list[str], verb: str) -> None:
    if len(arguments) > count:
        raise NotebookError(does_not_take(arguments[count:], f"%spawn {verb}"))
