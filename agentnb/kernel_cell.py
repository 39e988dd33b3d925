"""An agent's cell in the person's own process: runs on the main thread, on the person's names.

What the cell prints, displays and draws is taken for the agent, and put back is all that was
changed for it: the streams, the display, `input`, `exit`. Other threads print where they did.
"""

from __future__ import annotations

import ast
import base64
import binascii
import builtins
import getpass
import itertools
import linecache
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from agentnb.main_thread import Guarded
from agentnb.workers.inside.binding import names_bound
from agentnb.workers.inside.figures import Figures, close_figures, open_figures
from agentnb.workers.inside.head_and_tail import HeadAndTail
from agentnb.workers.inside.short_errors import short_error
from agentnb.workers.inside.value_text import text_of
from agentnb.workers.worker import Outcome

_MOST_PRINTED = 20_000
"""Bytes of each stream that the result keeps."""
_NO_AWAIT = "A cell of yours cannot `await`: it runs to its end before the notebook goes on."
_numbers = itertools.count(1)


def run_cell(code: str, shell: Any, guarded: Guarded) -> Outcome:
    """Run a cell. Never raises.

    Args:
        code: The cell.
        shell: The person's IPython; `None` in a script.
        guarded: What may be stopped runs through it.
    """
    return _Cell(code, shell).run(guarded)


class _Cell:
    def __init__(self, code: str, shell: Any) -> None:
        self._code, self._shell = code, shell
        self._names = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
        self._texts: list[str] = []
        self._not_displayed = 0
        self._figures = Figures()
        self._value = ""

    def run(self, guarded: Guarded) -> Outcome:
        before, kept = dict(self._names), open_figures()
        error: BaseException | None = None
        words = ""
        with ExitStack() as changed:
            out, err = [changed.enter_context(_printed(name)) for name in ("stdout", "stderr")]
            changed.enter_context(_without_input())
            if self._shell is not None:
                changed.enter_context(self._displayed())
            try:
                guarded(lambda: self._execute(kept))
            except BaseException as raised:
                error = raised
                words = self._in_words(error, guarded)
        try:
            close_figures(kept)  # also of a cell that was stopped
        except Exception as raised:
            if error is None:
                error, words = raised, self._in_words(raised, guarded)
        return Outcome(
            {
                "value": self._value if error is None else "",
                "displayed": self._texts,
                "not_displayed": self._not_displayed,
                "error": words,
                "is_interrupt": isinstance(error, KeyboardInterrupt),
                "names": names_bound(before, self._names),
                "figures_left_out": self._figures.left_out,
            },
            tuple(self._figures.pictures),
            out.text(),
            err.text(),
        )

    def _execute(self, kept: Sequence[Any]) -> None:
        """Run the code and take what it came to. All of it may be stopped."""
        source = self._code if self._shell is None else self._shell.transform_cell(self._code)
        # The form of IPython's own names, for which errors show the line.
        file = f"<ipython-input-agent-{next(_numbers)}>"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        tree = ast.parse(source, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        body = compile(tree, file, "exec", dont_inherit=True)
        end = None
        if isinstance(last, ast.Expr):
            end = compile(ast.Expression(last.value), file, "eval", dont_inherit=True)
        exec(body, self._names)
        value = None if end is None else eval(end, self._names)
        self._figures.take(value, not_these=kept)
        self._value = "" if value is None else text_of(value)

    def _in_words(self, error: BaseException, guarded: Guarded) -> str:
        """The error for a model. Its `__str__` is code of the agent, and may be stopped, too."""
        try:
            words = guarded(lambda: short_error(error, self._shell))
        except KeyboardInterrupt:
            words = type(error).__name__
        if isinstance(error, SyntaxError) and "outside" in words and "await" in self._code:
            words += f"\n{_NO_AWAIT}"
        return words

    @contextmanager
    def _displayed(self) -> Iterator[None]:
        """Take what is displayed, and refuse to end the kernel."""
        from agentnb.workers.inside.displayed import Displayed

        shell, cell = self._shell, self
        theirs = shell.display_pub

        class OfMainThread(Displayed):
            """Other threads, and messages, have the person's own."""

            def publish(self, data: Any, *args: Any, **kwargs: Any) -> None:
                if not _is_main():
                    theirs.publish(data, *args, **kwargs)
                    return
                picture = data.get("image/png")
                if isinstance(picture, str):  # how matplotlib's inline figures come
                    try:
                        data = {**data, "image/png": base64.b64decode(picture)}
                    except binascii.Error:
                        pass
                super().publish(data, *args, **kwargs)

            def set_parent(self, parent: Any) -> None:
                theirs.set_parent(parent)

        ours = OfMainThread()
        ours.figures = self._figures
        shell.display_pub = ours
        try:
            with _swapped(shell, "ask_exit", _refuse_exit):
                yield
        finally:
            shell.display_pub = theirs
            cell._texts, cell._not_displayed = ours.texts, ours.left_out


class _Stream:
    """Stands in for `sys.stdout` or `sys.stderr`: keeps what the main thread writes."""

    def __init__(self, theirs: Any, kept: HeadAndTail) -> None:
        self._theirs, self._kept = theirs, kept
        self.is_over = False
        """Then all of it is theirs, for who has kept it."""

    def write(self, text: str) -> int:
        if self.is_over or not _is_main():
            return int(self._theirs.write(text) or 0)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._kept.add(text.encode(errors="backslashreplace"))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


@contextmanager
def _printed(name: str) -> Iterator[HeadAndTail]:
    kept = HeadAndTail(_MOST_PRINTED)
    theirs = getattr(sys, name)
    ours = _Stream(theirs, kept)
    setattr(sys, name, ours)
    try:
        yield kept
    finally:
        ours.is_over = True
        setattr(sys, name, theirs)


@contextmanager
def _without_input() -> Iterator[None]:
    """Let no code wait for somebody who types: it would hold the notebook."""
    with ExitStack() as stack:
        for module, name in ((builtins, "input"), (getpass, "getpass")):
            theirs = getattr(module, name)
            is_over = threading.Event()
            stack.callback(is_over.set)
            stack.enter_context(_swapped(module, name, _refusing(name, theirs, is_over)))
        yield


def _refusing(name: str, theirs: Any, is_over: threading.Event) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if is_over.is_set() or not _is_main():
            return theirs(*args, **kwargs)
        raise RuntimeError(f"`{name}()` does not work here: nobody types into this cell.")

    return refuse


@contextmanager
def _swapped(owner: Any, name: str, ours: Any) -> Iterator[None]:
    theirs = getattr(owner, name)
    setattr(owner, name, ours)
    try:
        yield
    finally:
        setattr(owner, name, theirs)


def _refuse_exit() -> None:
    raise RuntimeError("This would end the person's kernel: it goes on.")


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
