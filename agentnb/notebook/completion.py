"""Tab completion for `%%spawn`, `%spawn`, `%%task`, `%task` and `%agentnb`.

Options and verbs come from the tables that the magics read. Names come from what is known already:
nothing here waits for a network or a file. Threads read the settings, and the store's tasks and
threads; Tab waits a moment for them, and what they find later is offered at the next Tab.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    IPCompleter,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)
from IPython.core.getipython import get_ipython

from agentnb.code_places import CODE_WORDS
from agentnb.config import Config, config_of
from agentnb.core.durable import Priority, TaskStatus
from agentnb.core.questions import Question
from agentnb.core.text import visible
from agentnb.default_session import session_at_hand
from agentnb.models import used_models
from agentnb.modes import MODES
from agentnb.notebook.line import Option, Verb, Words
from agentnb.notebook.magics import AGENTNB_VERBS, CELL_OPTIONS, RUN_OPTIONS, SPAWN_VERBS
from agentnb.notebook.task_magic import TASK_CELL_VERBS, TASK_VERBS
from agentnb.notebook.toolbox import names_of_objects, names_of_tools
from agentnb.notebook.types_named import names_of_types
from agentnb.providers.registry import model_beginnings
from agentnb.run import Run
from agentnb.session import Session
from agentnb.settings import DEFAULT_MODEL

_PATIENCE_S = 0.15
_IDENTIFIER = "agentnb"

# A line magic may follow an assignment: `said = %spawn status`.
_MAGIC = re.compile(
    r"\s*(?:[\w.,\[\] ]+=\s*)?(?P<magic>%%?(?:spawn|task)|%agentnb)[ \t]+(?P<rest>.*)"
)
_MAGICS: Mapping[str, tuple[Mapping[str, Option], Mapping[str, Verb]]] = {
    "%%spawn": (CELL_OPTIONS, {}),
    "%spawn": (RUN_OPTIONS, SPAWN_VERBS),
    "%%task": ({}, TASK_CELL_VERBS),
    "%task": (TASK_VERBS["list"].options, TASK_VERBS),
    "%agentnb": ({}, AGENTNB_VERBS),
}

Found = tuple[str, tuple[str, ...]]
"""The fragment to complete, and all its completions."""


def complete(
    text: str,
    session: Session | None,
    notebook: Mapping[str, Any],
    config: Callable[[], Config | None] = lambda: None,
) -> Found | None:
    """Complete a cell at the cursor.

    Args:
        text: The cell up to the cursor.
        session: The session of the magics; `None` if there is none yet.
        notebook: The names of the notebook.
        config: Returns the settings file; called only if needed.

    Returns:
        `None` outside our magics, or if there is nothing to offer.
    """
    *above, line = text.split("\n")
    typed = _MAGIC.fullmatch(line)
    if typed is None or not _is_magic(typed["magic"], line, above):
        return None
    options, verbs = _MAGICS[typed["magic"]]
    *words, current = re.split(r"[ \t]+", typed["rest"])
    if "{{" in current:
        return None
    values, plain, pending = _read(words, options)
    verb = verbs.get(plain[0]) if plain else None
    if verb and verb.options:
        options = verb.options
        values, plain, pending = _read(words, options)
    known = _Known(session, notebook, config)
    if pending is None and current.startswith("-") and "=" in current:
        name, _, current = current.partition("=")
        pending = options.get(name)
        if pending is None:
            return None
    if pending is not None:
        return _matching(current, known.names(pending.words, values)) if pending.words else None
    offered: list[str] = []
    if verbs and not plain:
        offered += verbs
    elif verb and len(plain) in (1, 2) and (kind := (verb.words, verb.then)[len(plain) - 1]):
        offered += known.names(kind, values)
    if not plain or (verb and verb.options):
        offered += [typed for typed, option in options.items() if option.name not in values]
    return _matching(current, offered)


def _is_magic(magic: str, line: str, above: Sequence[str]) -> bool:
    """Whether a line that looks like a magic is one, and not part of a task."""
    written = [each for each in above if each.strip()]
    if magic.startswith("%%"):  # only other cell magics may precede it
        return line.startswith("%%") and all(each.startswith("%%") for each in written)
    return not any(re.match(r"%%(?:spawn|task)\b", each) for each in written)


def _read(
    words: Iterable[str], options: Mapping[str, Option]
) -> tuple[dict[str, str], list[str], Option | None]:
    """Options with their values, the other words, and the option whose value comes next."""
    values, plain, pending = dict[str, str](), list[str](), None
    for word in words:
        if pending is not None:
            values[pending.name], pending = word, None
            continue
        typed, has_value, value = word.partition("=")
        option = options.get(typed)
        if option is not None:
            values[option.name] = value
            pending = option if option.read is not None and not has_value else None
        elif word and not word.startswith("-"):
            plain.append(word)
    return values, plain, pending


def _matching(current: str, offered: Iterable[str]) -> Found | None:
    """The offers that begin with the typed word, or with the last name of a typed list."""
    *others, last = current.split(",")
    fitting = (each for each in offered if each.startswith(last) and each not in others)
    # Offer only what a menu shows unchanged: a settings file may contain any name.
    matches = tuple(each for each in dict.fromkeys(fitting) if visible(each, 200) == each)
    return (last, matches) if matches else None


class _Known:
    """The names that are known now."""

    def __init__(
        self,
        session: Session | None,
        notebook: Mapping[str, Any],
        config: Callable[[], Config | None],
    ) -> None:
        self._session = session
        self._notebook = notebook
        self._config = config

    def names(self, kind: Words, values: Mapping[str, str]) -> Sequence[str]:
        """All names of a kind, likeliest first; `values` are the values of typed options."""
        match kind:
            case Words.MODELS:
                return self._models()
            case Words.PROFILES:
                config = self._config()
                return list(config.profiles) if config else []
            case Words.TOOLS:
                return names_of_tools(self._notebook, self._session.tools if self._session else ())
            case Words.RUNS:
                return self._session.run_ids if self._session else ()
            case Words.PATHS:
                return self._paths(values.get("run"))
            case Words.QUESTIONS:
                return [each.id for each in self._questions(values.get("run"))]
            case Words.ANSWERS:
                asked = self._questions(values.get("run"))
                return [option for each in asked for option in each.options]
            case Words.MODES:
                return MODES
            case Words.TYPES:
                return names_of_types(self._notebook)
            case Words.OBJECTS:
                return names_of_objects(self._notebook)
            case Words.CODE:
                return CODE_WORDS
            case Words.FILES:
                return ()
            case Words.THREADS:
                names = self.names(Words.AGENTS, values)
                return ["last", *names, *self._ids(lambda session: session.threads())]
            case Words.TASKS:
                return self._ids(lambda session: session.tasks.list())
            case Words.STATUSES:
                return [*TaskStatus]
            case Words.PRIORITIES:
                return [*Priority]
            case Words.ASSIGNEES:
                return [*self._new_agents(), *self.names(Words.AGENTS, values)]
            case Words.AGENTS:
                return self._found(
                    lambda session: [each.name for each in session.agents(kind="persistent")]
                )

    def _models(self) -> list[str]:
        config = self._config()  # first: it may change the session's model
        own = self._session.model if self._session else DEFAULT_MODEL
        pools = [f"pool:{name}" for name in (config.pools if config else ())]
        begun = model_beginnings()
        whole = [each for each in begun if not each.endswith("/")]
        return [*([own] if isinstance(own, str) else own), *whole, *pools, *used_models(), *begun]

    def _new_agents(self) -> list[str]:
        """Beginnings of `new:provider/model`, with and without a profile."""
        names = [each for each in self._models() if not each.startswith("pool:")]
        # Even a provider without models needs the form `provider/model`.
        models = [each if "/" in each else f"{each}/{each}" for each in names]
        config = self._config()
        profiles = [f"{name}:" for name in (config.profiles if config else ())]
        return [f"new:{profile}{model}" for profile in ("", *profiles) for model in models]

    def _ids(self, listed: Callable[[Any], Iterable[Any]]) -> list[str]:
        return self._found(lambda session: [each.id for each in listed(session)])

    def _found(self, look: Callable[[Any], list[str]]) -> list[str]:
        """What a look into the session's store finds within a moment."""
        session, found = self._session, list[str]()
        if session is None:
            return found

        def run() -> None:
            with suppress(Exception):  # the magic reports it
                found.extend(look(session))

        thread = threading.Thread(target=run, name="agentnb-names", daemon=True)
        thread.start()
        thread.join(_PATIENCE_S)
        return [*found]

    def _run(self, run_id: str | None) -> Run | None:
        if self._session is None:
            return None
        return self._session.newest_run if run_id is None else self._session.find_run(run_id)

    def _questions(self, run_id: str | None) -> Sequence[Question]:
        run = self._run(run_id)
        return () if run is None else run.questions

    def _paths(self, run_id: str | None) -> list[str]:
        run = self._run(run_id)
        tree = None if run is None else run.tree
        nodes = [] if tree is None else list(tree.walk())
        return [node.path for node in sorted(nodes, key=lambda node: node.status.is_terminal)]


# -- in IPython ---------------------------------------------------------------------------------


class _SettingsAtHand:
    """Reads the settings file on a thread, so that Tab never blocks on it."""

    def __init__(self) -> None:
        self._found: Config | None = None
        self._thread: threading.Thread | None = None

    def config(self, session: Session | None) -> Config | None:
        """The session's settings file, or the one that a new session would read, as last found."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._look, args=(session,), name="agentnb-settings", daemon=True
            )
            self._thread.start()
        self._thread.join(_PATIENCE_S)
        return self._found if session is None else session.config

    def _look(self, session: Session | None) -> None:
        with suppress(Exception):  # the next run reports their mistakes
            if session is not None:
                session.reread_settings()
            else:
                self._found = config_of(None)


_at_hand = _SettingsAtHand()


def _match(context: CompletionContext) -> SimpleMatcherResult:
    try:
        found = _found_in(context)
    except Exception:  # Tab must never show an error; IPython's own completions remain
        found = None
    if found is None:
        return {"completions": [], "suppress": False}
    fragment, matches = found
    return {
        "completions": [SimpleCompletion(text=each, type="magic") for each in matches],
        "matched_fragment": fragment,
        "suppress": True,
        "ordered": True,
    }


# Runs first, so that no static analysis starts on text that is not Python.
_matcher: Any = context_matcher(identifier=_IDENTIFIER, priority=1000)(_match)


def _found_in(context: CompletionContext) -> Found | None:
    lines = context.full_text.split("\n")[: context.cursor_line + 1]
    lines[-1] = lines[-1][: context.cursor_position]
    session, shell = session_at_hand(), get_ipython()
    return complete(
        "\n".join(lines),
        session,
        shell.user_ns if shell is not None else {},
        lambda: _at_hand.config(session),
    )


def install(completer: IPCompleter) -> None:
    """Add our completions to a completer."""
    uninstall(completer)
    completer.custom_matchers.append(_matcher)


def uninstall(completer: IPCompleter) -> None:
    """Undo `install`, also one made by an earlier import of this module."""
    completer.custom_matchers[:] = [
        matcher
        for matcher in completer.custom_matchers
        if getattr(matcher, "matcher_identifier", None) != _IDENTIFIER
    ]
