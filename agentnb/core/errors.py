"""Everything that agentnb raises, as one tree.

    AgentnbError
    ├── OrchestratorError           a run ended without an answer; has `partial_result`
    │   ├── LlmError                a model call failed; has `retryable` and `retry_after_s`
    │   │   ├── MissingKey, AuthenticationFailed, InvalidRequest, ModelNotFound, Refused
    │   │   ├── RateLimited, Overloaded, ServerFailed, ConnectionFailed
    │   │   └── StreamBroken, CallTimedOut
    │   ├── NoAnswer                a model was asked for its answer once more and gave none
    │   ├── RunCancelled            a person, or the notebook, stopped it
    │   └── InternalError           a bug, in agentnb or in what was handed to it
    ├── UnknownAgent                a path or an id that no agent of the run has
    ├── UnknownModel                a model name that no provider answers to
    ├── UnknownPool, UnknownProfile a name that the settings do not have
    ├── ConfigError                 mistakes in a settings file; has `mistakes`
    ├── UntrustedSettings           a settings file that names a server, and is not trusted
    ├── TrustNotKept                the trust in a settings file cannot be written down
    ├── NoOpenQuestion              an answer where the budget asked nothing
    ├── UnreadableRun               a file that holds no run, or not one that can be read
    ├── UnreadableNotebook          a file that is no notebook, or cannot be read
    ├── MissingExtra                an optional dependency is not installed
    ├── ToolError                   what a tool tells the model as an error, in its own words
    └── NotebookError               a magic's line or cell could not be understood

Bad arguments of plain functions stay `ValueError`. No message holds a key or a whole prompt: all
are masked where they are made. In none does anything act on a terminal or turn the reading order,
and each has a greatest length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentnb.core.secrets import masked_words
from agentnb.core.shown import listed
from agentnb.core.text import (
    LONGEST_ERROR,
    LONGEST_IN_ERROR,
    LONGEST_LINE,
    literal,
    visible,
    visible_lines,
)

if TYPE_CHECKING:
    from agentnb.core.types import OrchestratorResult

_MOST_SAID = 10_000
"""Characters of another library's error that are looked at."""


class AgentnbError(Exception):
    """Base of all errors of this package. Copied and pickled whole, fields included.

    Its words are masked, made visible and cut when it is made, and so they are in `args`, in a
    pickle and in an event as they are in `str`. Its fields hold what was given.
    """

    def __init__(self, *words: object) -> None:
        super().__init__(*(_in_bounds(word) if isinstance(word, str) else word for word in words))

    # For a subclass whose constructor does not call this one, and for words that are no text.
    def __str__(self) -> str:
        return _in_bounds(super().__str__())

    def __repr__(self) -> str:
        words = ", ".join(literal(word, LONGEST_ERROR) for word in self.args)
        return masked_words(f"{type(self).__name__}({words})")

    def __reduce__(self) -> tuple[object, ...]:
        # Not by the constructor, as exceptions do it: some of ours make their message there.
        return _remade, (type(self), self.args, self.__dict__)


def _in_bounds(words: str) -> str:
    return visible_lines(masked_words(words), LONGEST_ERROR)


def _remade(
    kind: type[AgentnbError], args: tuple[object, ...], fields: dict[str, object]
) -> AgentnbError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


def make_causes_visible(error: BaseException) -> None:
    """Treat the words of what an error was raised from like its own: a traceback shows them, too.

    An SDK puts what a server said into its errors as it came.
    """
    seen: set[int] = set()
    chained = [error.__cause__, error.__context__]
    while chained:
        each = chained.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        chained += [each.__cause__, each.__context__]
        if not isinstance(each, AgentnbError):
            with suppress(Exception):  # somebody else's class
                each.args = tuple(_in_bounds(a) if isinstance(a, str) else a for a in each.args)


class ForeignError(Exception):
    """What another library raised, in its words: the error itself may hold a key.

    Stands for it as the cause of one of ours.
    """


def in_words(error: BaseException, *, limit: int = LONGEST_IN_ERROR) -> str:
    """What an error says, on one line and without secrets; empty when it says nothing."""
    return visible(masked_words(_said(error)), limit)


def _said(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_SAID]
    except Exception:  # of a class that is wrong itself
        return ""


def without_frames(error: BaseException, *, links: int = 5) -> ForeignError:
    """An error and what caused it, as words: without its fields, and the frames it came through.

    A library's frames hold what it was given: headers, and the key in them.
    """
    kind = type(error)
    said = in_words(error, limit=300)
    stands_for = ForeignError(f"{kind.__module__}.{kind.__qualname__}{said and ': '}{said}")
    if links > 1 and (cause := cause_of(error)) is not None:
        stands_for.__cause__ = without_frames(cause, links=links - 1)
    return stands_for


def cause_of(error: BaseException) -> BaseException | None:
    """What a traceback shows as the reason of an error."""
    if error.__cause__ is None and not error.__suppress_context__:
        return error.__context__
    return error.__cause__


def show_as_line(error: BaseException, line: str | None = None) -> None:
    """Have a notebook show an error as one line, in place of the frames it came through.

    IPython asks an exception itself for its traceback where it has `_render_traceback_`. The
    traceback stays on the error, for a debugger and for a script.
    """
    if line is None:
        words = str(error)
        # What a plain error quotes (a table, say) may have lines of its own; ours have none, or
        # one for each mistake.
        line = words if isinstance(error, AgentnbError) else visible(words, LONGEST_LINE)
        line = masked_words(f"{type(error).__name__}: {line}")
    # No lambda: an error that was shown can still be pickled.
    error._render_traceback_ = partial(list, (line,))  # type: ignore[attr-defined]


@contextmanager
def wrong_settings_as_line() -> Iterator[None]:
    """Have what is wrong with a person's settings shown as one line where they typed them."""
    try:
        yield
    except (AgentnbError, ValueError) as error:
        show_as_line(error)
        raise


class OrchestratorError(AgentnbError):
    """A run ended without an answer."""

    partial_result: OrchestratorResult | None = None
    """What the run had reached; `None` while the error has not left the run."""


class LlmError(OrchestratorError):
    """A call to a model failed.

    Args:
        message: What happened, with the provider's own words, and what to do.
        retryable: Whether the same request may succeed in a moment. Obeyed only while
            nothing of the reply was shown.
        retry_after_s: How long the provider asks to wait, in seconds.
        status_code: The HTTP status, where there was one.
    """

    default_retryable = False
    permanent = False
    """Asking again cannot help, so the agent does not try a second time."""
    # Here as well, for a subclass whose constructor does not call this one.
    retryable = False
    retry_after_s: float | None = None
    status_code: int | None = None

    def __init__(
        self,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        status_code: int | None = None,
    ) -> None:
        super().__init__(message or f"The model failed without a word ({type(self).__name__}).")
        self.retryable = self.default_retryable if retryable is None else retryable
        self.retry_after_s = retry_after_s
        self.status_code = status_code
        if status_code in (400, 401, 403, 404, 413):
            self.permanent = True


class MissingKey(LlmError):
    """No credentials were found for a provider."""

    permanent = True


class AuthenticationFailed(LlmError):
    """The provider did not accept the credentials (401, 403)."""

    permanent = True


class InvalidRequest(LlmError):
    """The provider did not accept the request (400, 413)."""

    permanent = True


class ModelNotFound(LlmError):
    """The provider does not know the model (404)."""

    permanent = True


class Refused(LlmError):
    """The model, or a filter before it, declined to answer."""

    permanent = True


class RateLimited(LlmError):
    """Too many calls or tokens for now (429)."""

    default_retryable = True


class Overloaded(LlmError):
    """The provider has too much to do for now (529)."""

    default_retryable = True


class ServerFailed(LlmError):
    """The provider failed (408, 409, 5xx)."""

    default_retryable = True


class ConnectionFailed(LlmError):
    """The provider could not be reached, or hung up before it answered."""

    default_retryable = True


class StreamBroken(LlmError):
    """A reply began and did not end: cut, or garbled."""

    default_retryable = True


class CallTimedOut(LlmError):
    """A turn did not end in time."""


class NoAnswer(OrchestratorError):
    """A model asked for sub-agents that it could not have, and gave no answer without them.

    Args:
        why_not: Why it could not have them, as the rest of a sentence.
        asked_again: Whether it only asked for them once more; else it said nothing.
    """

    def __init__(self, why_not: str, *, asked_again: bool) -> None:
        self.why_not, self.asked_again = why_not, asked_again
        then = "only asked for sub-agents again" if asked_again else "said nothing"
        super().__init__(
            f"The model gave no answer: its sub-agents were not started, because {why_not}, and "
            f"when it was asked to answer itself it {then}. Put the task in other words, or ask "
            "another model."
        )


class RunCancelled(OrchestratorError):
    """A run was stopped before its end."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        super().__init__(
            f"The run was cancelled ({reason})." if reason else "The run was cancelled."
        )


class InternalError(OrchestratorError):
    """A bug: something raised what it must not raise. The cause is chained."""

    @classmethod
    def wrapping(cls, error: BaseException, *, where: str) -> InternalError:
        detail = in_words(error) or "no message"
        wrapped = cls(f"Unexpected {type(error).__name__} in {where}: {detail}")
        wrapped.__cause__ = without_frames(error) if _shows_a_secret(error) else error
        make_causes_visible(wrapped)
        return wrapped


def _shows_a_secret(error: BaseException) -> bool:
    """Whether a secret stands in the words of an error, or of what caused it."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        seen.append(link)
        link = cause_of(link)
    words = [_said(link) for link in seen]
    return any(masked_words(each) != each for each in words)


class ToolError(AgentnbError):
    """Raised by a tool: the model is told its text as it is, as an error that it can act on."""

    def __init__(self, *words: object) -> None:
        Exception.__init__(self, *words)  # what a model is sent is not masked

    @property
    def for_model(self) -> str:
        """Its text as it is. `str` is for a person."""
        is_ours = type(self).__str__ is AgentnbError.__str__
        return Exception.__str__(self) if is_ours else str(self)


class UnknownAgent(AgentnbError, LookupError):
    """A path or an id that no agent of the run has."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"This run has no agent {literal(name)} so far (known: {_known(known, 'none yet')}). "
            "Give the path or the id of one that is there."
        )


class UnknownModel(AgentnbError, ValueError):
    """A model name that no provider answers to."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"No provider answers to the model {literal(name)}. Write it as `provider/model` with "
            f"one of the providers {', '.join(known)}: for example `anthropic/claude-sonnet-5-5`, "
            "`openai/llama3.2` for a server of your own that speaks like OpenAI's, or `demo`, "
            "which needs no key."
        )


class UnknownPool(AgentnbError, ValueError):
    """A pool that the settings do not have."""

    def __init__(self, name: str, *, known: Sequence[str], source: str) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"There is no pool {literal(name)} (known: {_known(known)}). Add it under `llm.pools` "
            f"in {_path(source)}, or name a model as `provider/model`."
        )


class UnknownProfile(AgentnbError, ValueError):
    """A profile that the settings do not have."""

    def __init__(self, name: str, *, known: Sequence[str], source: str) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"There is no profile {literal(name)} (known: {_known(known)}). Add it under "
            f"`tools.spawn.profiles` in {_path(source)}, or leave `profile` out."
        )


def _known(names: Sequence[str], none: str = "none") -> str:
    return listed((literal(name, 64) for name in names), none=none)


def _path(source: str) -> str:
    return visible(source, LONGEST_IN_ERROR)


@dataclass(frozen=True, slots=True)
class ConfigMistake:
    """One thing that is wrong in a settings file."""

    key: str
    """The whole path of the key, as `llm.pools.fast[0]`; empty for the file itself."""
    line: int | None
    """From 1."""
    what: str
    """What is wrong and what to do, in sentences; never a value that may be a secret."""

    @property
    def place(self) -> str:
        """`line 4, `llm.default_pool``, as far as it is known."""
        line = f"line {self.line}" if self.line else ""
        key = f"`{visible(self.key, 120)}`" if self.key else ""
        return ", ".join(filter(None, (line, key)))


class ConfigError(AgentnbError, ValueError):
    """A settings file cannot be taken as it is.

    Args:
        source: The file, as it was named.
        mistakes: All that are known, at least one. The message shows the first twenty.
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
    """A settings file would send something away or spend more, and is not trusted yet.

    Args:
        source: The file, as it was named.
        what: What would be sent, or which settings would let a run spend more.
        where: The address that it would be sent to; empty where nothing is.
        allow: How to allow it, as a clause.
    """

    def __init__(self, source: str, *, what: str, where: str = "", allow: str) -> None:
        self.source, self.what, self.where = source, what, where
        does, want, out = f"a run may spend more ({what})", "want", "it"
        if where:
            does, want = f"{what} would go to {where}", "know this server and want"
            out = "`llm.providers.openai`"
        super().__init__(
            f"{source} is not trusted: by what it says, {does}. Nothing was sent. "
            f"If you {want} that, {allow}; else take {out} out of the file."
        )


class TrustNotKept(AgentnbError, ValueError):
    """The trust in a settings file cannot be written down.

    Args:
        source: The file, as it was named.
        why: The reason, as a clause.
    """

    def __init__(self, source: str, why: str) -> None:
        self.source = source
        super().__init__(
            f"{source} is not trusted, since nothing can be kept in your configuration folder "
            f"({why}). `AGENTNB_TRUST=1` in the environment (`%env AGENTNB_TRUST=1` in a notebook) "
            "trusts every file for as long as this process lives."
        )


class NoOpenQuestion(AgentnbError):
    """An answer was given where the budget asked nothing."""

    def __init__(self) -> None:
        super().__init__(
            "The budget asks nothing at the moment: an answer counts only while the run is "
            "paused. To stop it use `run.cancel()`, to give it more `run.set_budget(total)`."
        )


class UnreadableRun(AgentnbError, ValueError):
    """A file holds no run that this version can read.

    Args:
        source: The file, as it was named.
        what: What is wrong with it, as a clause.
        fix: What to do, as a sentence, where that is more than to give another file.
    """

    def __init__(self, source: str, what: str, *, fix: str = "") -> None:
        self.source = source
        fix = fix or "Give the path of a file that `run.to_json(path)` wrote."
        super().__init__(f"{literal(source)} cannot be read as a run: {what}. {fix}")


class UnreadableNotebook(AgentnbError, ValueError):
    """A file holds no notebook that this version can read.

    Args:
        source: The file, as it was named.
        what: What is wrong with it, as a clause.
    """

    def __init__(self, source: str, what: str) -> None:
        self.source = source
        super().__init__(
            f"{literal(source)} cannot be read as a notebook: {what}. Give the path of an .ipynb "
            "file."
        )


class MissingExtra(AgentnbError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, *, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{what} is not installed. Install it with `pip install 'agentnb[{extra}]'`."
        )


class NotebookError(AgentnbError, ValueError):
    """A magic's line or cell could not be understood. The message is one sentence."""
