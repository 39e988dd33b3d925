"""What Tab offers behind `%%spawn`, `%spawn` and `%agentnb`.

Options and words come from the tables that the magics read. What they may name is what is known
already: nothing here waits for a network, or for a file. The settings are looked at by a thread
that Tab waits for a moment and no longer; what it finds later is there at the next Tab.
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

from agentnb.config import Config, config_of
from agentnb.core.text import visible
from agentnb.notebook.line import Option, Verb, Words
from agentnb.notebook.magics import (
    AGENTNB_VERBS,
    CELL_OPTIONS,
    MODES,
    RUN_OPTIONS,
    SPAWN_VERBS,
)
from agentnb.notebook.toolbox import names_of_tools
from agentnb.providers.registry import model_beginnings
from agentnb.session import Session, session_at_hand, used_models
from agentnb.settings import DEFAULT_MODEL

_PATIENCE_S = 0.15
_IDENTIFIER = "agentnb"

# A line magic may stand behind an assignment: `said = %spawn status`.
_MAGIC = re.compile(r"\s*(?:[\w.,\[\] ]+=\s*)?(?P<magic>%%spawn|%spawn|%agentnb)[ \t]+(?P<rest>.*)")
_MAGICS: Mapping[str, tuple[Mapping[str, Option], Mapping[str, Verb]]] = {
    "%%spawn": (CELL_OPTIONS, {}),
    "%spawn": (RUN_OPTIONS, SPAWN_VERBS),
    "%agentnb": ({}, AGENTNB_VERBS),
}

Found = tuple[str, tuple[str, ...]]
"""The end of the text that is completed, and all of what can stand in its place."""


def complete(
    text: str,
    session: Session | None,
    notebook: Mapping[str, Any],
    config: Callable[[], Config | None] = lambda: None,
) -> Found | None:
    """What can stand at the end of a text that ends at the cursor.

    Args:
        text: A cell's, up to the cursor.
        session: That of the magics; `None` when there is none yet.
        notebook: The names of the notebook.
        config: Finds the settings, where they are needed.

    Returns:
        `None` where this is no place of a magic of ours, or there is nothing to offer.
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
    elif len(plain) == 1 and plain[0] in verbs and (kind := verbs[plain[0]].words):
        offered += known.names(kind, values)
    if not plain:
        offered += [typed for typed, option in options.items() if option.name not in values]
    return _matching(current, offered)


def _is_magic(magic: str, line: str, above: Sequence[str]) -> bool:
    """Whether a line is what it looks like, and no part of a task."""
    said = [each for each in above if each.strip()]
    if magic.startswith("%%"):  # below other cell magics at most
        return line.startswith("%%") and all(each.startswith("%%") for each in said)
    return not any(re.match(r"%%spawn\b", each) for each in said)


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
    """What of it begins as the word that is typed; of a list, as its last name."""
    *others, last = current.split(",")
    fitting = (each for each in offered if each.startswith(last) and each not in others)
    # What a menu would not show as it is, is not offered: a settings file may name anything.
    matches = tuple(each for each in dict.fromkeys(fitting) if visible(each, 200) == each)
    return (last, matches) if matches else None


class _Known:
    """What can be named at the moment."""

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
        """All names of a kind, likeliest first; `values` are those of options that are typed."""
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
            case Words.MODES:
                return MODES
            case Words.FILES:
                return ()

    def _models(self) -> list[str]:
        config = self._config()  # first: it may change the session's model
        own = self._session.model if self._session else DEFAULT_MODEL
        pools = [f"pool:{name}" for name in (config.pools if config else ())]
        begun = model_beginnings()
        whole = [each for each in begun if not each.endswith("/")]
        return [*([own] if isinstance(own, str) else own), *whole, *pools, *used_models(), *begun]

    def _paths(self, run_id: str | None) -> list[str]:
        if self._session is None:
            return []
        run = self._session.newest_run if run_id is None else self._session.find_run(run_id)
        tree = None if run is None else run.tree
        nodes = [] if tree is None else list(tree.walk())
        return [node.path for node in sorted(nodes, key=lambda node: node.status.is_terminal)]


# -- in IPython ---------------------------------------------------------------------------------


class _SettingsAtHand:
    """The settings as of now, as far as they can be had at once."""

    def __init__(self) -> None:
        self._found: Config | None = None
        self._thread: threading.Thread | None = None

    def config(self, session: Session | None) -> Config | None:
        """Those of the session, else what one that is made now would read."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._look, args=(session,), name="agentnb-settings", daemon=True
            )
            self._thread.start()
        self._thread.join(_PATIENCE_S)
        return self._found if session is None else session.config

    def _look(self, session: Session | None) -> None:
        with suppress(Exception):  # what is wrong with them is told by the next run
            if session is not None:
                session.reread_settings()
            else:
                self._found = config_of(None)


_at_hand = _SettingsAtHand()


def _match(context: CompletionContext) -> SimpleMatcherResult:
    try:
        found = _found_in(context)
    except Exception:  # Tab must never show an error; then it offers what IPython has
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


# Before all others, so that a static analysis of what is no Python is not even begun.
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
    """Have a completer ask here, too."""
    uninstall(completer)
    completer.custom_matchers.append(_matcher)


def uninstall(completer: IPCompleter) -> None:
    """Take back what `install` did, also that of a module that was loaded before this one."""
    completer.custom_matchers[:] = [
        matcher
        for matcher in completer.custom_matchers
        if getattr(matcher, "matcher_identifier", None) != _IDENTIFIER
    ]
