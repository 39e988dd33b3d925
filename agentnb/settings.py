"""The settings of a run, each defined once: default, type, check, meaning.

A session's signature, `configure`, the options of `%%spawn`, the section `session` of
`agentnb.yaml`, the output of `%agentnb config` and the table of docs/configuration.md follow from
the fields of `Settings`. A new setting needs a field here, a parameter of `Session`, a row of that
table, and code that uses it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from textwrap import fill
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from agentnb.core.money import (
    MICROS,
    TOKENS,
    USD,
    NotMoney,
    looks_like_money,
    micros_in,
    money_text,
)
from agentnb.core.protocols import BudgetGate, Engine, Provider, is_engine, is_provider
from agentnb.core.text import literal, visible_text
from agentnb.core.types import MOST
from agentnb.modes import MODES

if TYPE_CHECKING:
    from agentnb.config import Config
    from agentnb.core.events import SpawnPlanned
    from agentnb.core.questions import Question

T = TypeVar("T")

DEFAULT_MODEL = "anthropic/claude-sonnet-5-5"
DEFAULT_BUDGET = 500_000


# -- checks ---------------------------------------------------------------------------------------


class Wrong(ValueError):
    """A value that a setting refuses. Its text says what the value must be."""


@dataclass(frozen=True, slots=True)
class Check:
    """The values that a setting accepts."""

    right: str
    """What a value must be, as the end of a sentence."""
    take: Callable[[Any], Any]
    """Checks and normalises a value. Raises `Wrong`."""
    parse: Callable[[str], object] = str
    """Turns text typed on a line or in a file into a value. Raises `ValueError`."""

    def read(self, words: str) -> Any:
        """Parse, check and normalise typed text.

        Raises:
            Wrong: The setting refuses it.
        """
        try:
            value = self.parse(words)
        except ValueError:
            raise Wrong(self.right) from None
        return self.take(value)


def must_be(subject: str, wrong: Wrong, value: object) -> str:
    """One line that says what is wrong with a value: the same for code, a magic and a file."""
    return f"{subject} must be {wrong}, not {literal(value)}."


def _check(right: str, fits: Callable[[Any], bool], parse: Callable[[str], object] = str) -> Check:
    def take(value: Any) -> Any:
        if not fits(value):
            raise Wrong(right)
        return value

    return Check(right, take, parse)


def whole_number(unit: str = "", *, at_least: int, zero_in_code: bool = False) -> Check:
    """Check for whole numbers. Typed digits may be grouped by underscores or commas.

    Args:
        unit: Plural noun for the message, such as `tokens`.
        at_least: The minimum.
        zero_in_code: Whether code may pass 0; a person may not type it.
    """
    right = f"a whole number{unit and f' of {unit}'}, at least {at_least}"

    def take(value: Any) -> Any:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or value < (0 if zero_in_code else at_least):
            raise Wrong(right)
        if value > MOST:
            raise Wrong(f"at most {float(MOST):g}")
        return value

    def parse(words: str) -> int:
        number = _whole_number_in(words)
        if zero_in_code and number == 0:
            raise ValueError(words)
        return number

    return Check(right, take, parse)


def _budget_check() -> Check:
    """Check for a run's budget: tokens, or money as text or `Decimal`; money becomes text."""
    # Code may compute 0, and the run's answer then says so; a typed 0 is a mistake.
    tokens = whole_number("tokens", at_least=1, zero_in_code=True)
    right = f'{tokens.right}, or dollars as in "$4"'

    def take(value: Any) -> Any:
        if isinstance(value, Decimal) or (isinstance(value, str) and looks_like_money(value)):
            try:
                return money_text(micros_in(value))
            except NotMoney as error:
                raise Wrong(f"{right} ({error})") from None
        if isinstance(value, float):
            raise Wrong(f"{right} (a float may mean either: write dollars as text)")
        return tokens.take(value)

    def parse(words: str) -> object:
        return words if looks_like_money(words) else tokens.parse(words)

    return Check(tokens.right, take, parse)


def budget_amount(budget: int | str | Decimal) -> tuple[int, str]:
    """A checked budget as a `RequestBudget` counts it: its total, and its unit."""
    return (budget, TOKENS) if isinstance(budget, int) else (micros_in(budget), USD)


def _may_cost_more(budget: int | str | Decimal) -> bool:
    total, unit = budget_amount(budget)
    return total > (DEFAULT_BUDGET if unit == TOKENS else MICROS)


def _whole_number_in(words: str) -> int:
    groups = words.split(",")
    if any(len(group) != 3 for group in groups[1:]):
        raise ValueError(words)
    return int("".join(groups))


def _number_in(words: str) -> float:
    number = float(words)
    return int(number) if number.is_integer() else number


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_speed(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf


def _one_of(*words: str, or_callable: str = "") -> Check:
    *first, last = (f"'{word}'" for word in words)
    right = f"{', '.join(first)} or {last}" if first else f"{last} (the only one so far)"
    if or_callable:
        right += f", or {or_callable}"
    return _check(
        right,
        lambda value: (
            value in words if isinstance(value, str) else bool(or_callable and callable(value))
        ),
    )


_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_LEAST_MEMORY = 10**8
"""Less has no room for a worker itself, with pandas in it."""


def bytes_in(size: str) -> int:
    """The bytes of a checked size, such as `2GB`."""
    return round(float(size[:-2]) * _UNITS[size[-2:]])


def _take_size(value: Any) -> Any:
    """A size in its short form: `"2 gb"` and `2_000_000_000` become `2GB`."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value / 10**6:.15g}MB"
    folded = "".join(value.split()).upper() if isinstance(value, str) else ""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([KMGT]B)", folded)
    if found is None or bytes_in(folded) < _LEAST_MEMORY:
        raise Wrong(_SIZE_RIGHT)
    return folded


_SIZE_RIGHT = 'a size of at least 100 MB, as in "2GB"'
_SIZE = Check(_SIZE_RIGHT, _take_size)


def _row(right: str, fits: Callable[[Any], bool], *, or_text: bool = False) -> Check:
    def take(value: Any) -> Any:
        if isinstance(value, str):
            if or_text:
                return value
        elif isinstance(value, Iterable):
            # A copy: later changes of the person's list have no effect.
            row = tuple(value)
            if all(map(fits, row)):
                return row
        raise Wrong(right)

    return Check(right, take)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_TEXT = _check("a string", _is_text)
_FLAG = _check("True or False", lambda value: isinstance(value, bool))
_SECONDS = _check("a number of seconds above 0", _is_duration, _number_in)


def _or_none(check: Check) -> Check:
    """The same check, which also accepts `None` for no limit."""
    return replace(check, take=lambda value: None if value is None else check.take(value))


def one_line(value: object) -> bool:
    """Whether a value is a text of one line, not blank, without characters that act."""
    if not isinstance(value, str) or not value.strip():
        return False
    return len(value.splitlines()) == 1 and visible_text(value) == value


def _is_store(value: object) -> bool:
    return value is None or isinstance(value, os.PathLike) or one_line(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _take_ask_above(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple | list) and len(value) == 2:
        # "inf" is how infinity is kept: JSON does not have it.
        limits = tuple(
            float(each) if isinstance(each, Decimal) or each == "inf" else each for each in value
        )
        if all(_is_number(each) and each >= 0 for each in limits):
            return limits
    raise Wrong("two numbers, of agents and of dollars, or None")


_ASK_ABOVE = Check("two numbers, of agents and of dollars, or None", _take_ask_above)
_STORE = _check("'auto', the path of a file or a folder, or None (memory only)", _is_store)
_CASSETTE = _check(
    "the path of a file, or None for the notebook's own",
    lambda value: value is None or isinstance(value, os.PathLike) or one_line(value),
)
_CONFIG = _check(
    "a path, a `Config` from `load_config`, None or False",
    lambda value: True,  # `config_of` checks it
)


# -- settings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, without its name, type and default."""

    about: str
    """Its meaning. The help of `%%spawn` shows the first sentence alone."""
    check: Check
    in_file: bool = False
    """Whether the section `session` of a settings file may set it."""
    needs_trust: Callable[[Any], bool] = lambda _: False
    """Whether a value counts only in a file that the person trusts, since it may cost more."""
    option: str = ""
    """Placeholder of its value in the help of `%%spawn`; empty if `%%spawn` does not take it."""


def _setting(default: T, about: str, check: Check, **more: Any) -> T:
    return field(default=default, metadata={"setting": Setting(about, check, **more)})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run, checked on creation.

    Raises:
        ValueError: A value is wrong. One line names the setting and says what the value must be.
    """

    model: str | Sequence[str] = _setting(
        DEFAULT_MODEL,
        "Who answers: `provider/model`, `pool:NAME`, or `demo`, which needs no key. Several make "
        "a chain: if one does not answer, the next is asked. By default the `llm.default_pool` "
        "of the settings file, if it has one.",
        _row("`provider/model`, `pool:NAME`, or a list of them", _is_text, or_text=True),
        option="M",
    )
    budget: int | str | Decimal = _setting(
        DEFAULT_BUDGET,
        "Tokens for each run, all agents together; or dollars, as in `$4`, by list prices.",
        _budget_check(),
        in_file=True,
        needs_trust=_may_cost_more,
        option="N",
    )
    max_depth: int = _setting(
        3,
        "Depth of the deepest sub-agent; the root has 0.",
        whole_number("levels", at_least=0),
        in_file=True,
        option="D",
    )
    soul: str = _setting("", "Who the agents are, shared by all of them.", _TEXT)
    identity: str = _setting("", "What the agents are for, shared by all of them.", _TEXT)
    user: str = _setting(
        "", "What the root should know about the person. Sub-agents never get it.", _TEXT
    )
    tools: Sequence[Any] = _setting(
        (),
        "What agents may call: functions (see `agentnb.tool`), tools by name, `workspace` "
        "(shared notes), and `memory` (facts for later runs). Any object with `spec` and `call` "
        "(`agentnb.core.protocols.Tool`) is a tool, too.",
        # `tools_of` checks each of them.
        _row("a list of functions, tools or names", lambda value: True),
        option="a,b",
    )
    delegation: str = _setting(
        "block",
        "How agents may start sub-agents: by a spawn `block` in a reply, by `tools`, or by "
        "`both`. By default `tools.spawn.enabled` of the settings file decides.",
        _one_of("block", "tools", "both"),
        in_file=True,
    )
    nested_spawn: bool = _setting(
        False,
        "Whether sub-agents get the spawn tools, too, as far as `max_depth` allows.",
        _FLAG,
        in_file=True,
    )
    config: str | os.PathLike[str] | Config | bool | None = _setting(
        None,
        "The settings file or its folder, or a `Config` from `load_config`, which is not read "
        "again; `None` for the `agentnb.yaml` in the working directory, if one exists when a run "
        "starts; `False` for none. A server on another machine counts only if the person trusts "
        "the file, even one passed here.",
        _CONFIG,
    )
    store: str | os.PathLike[str] | None = _setting(
        "auto",
        "Where runs are stored: the path of an SQLite file, or of a folder for one; `None` for "
        "memory only. `auto`: the environment variable `AGENTNB_STORE` (`none` or a path), else "
        "`.agentnb/agentnb.db` in the folder of the settings file, or in the working directory. "
        "Decided when the session is created; its first run creates the file.",
        _STORE,
    )
    id: str | None = _setting(
        None,
        "Reopens a session of the store, with its threads and tasks: its id, or `last` for the "
        "newest; by default a new session. Messages that an ended process left in the queue then "
        "run.",
        _or_none(_check("the id of a session, or 'last'", _is_text)),
    )
    mode: str | None = _setting(
        None,
        "`live` asks the models; `record` does, too, and writes a cassette; `replay` answers "
        "only from it, without key and network; `auto` answers from it what matches, and records "
        "the rest. By default `%agentnb mode` or the environment variable `AGENTNB_MODE`; in CI "
        "`replay` if the notebook has a cassette; else `live`.",
        _or_none(_one_of(*MODES)),
    )
    cassette: str | os.PathLike[str] | None = _setting(
        None,
        "The file of recorded calls. By default the environment variable `AGENTNB_CASSETTE`, "
        "else `NAME.cassette.jsonl` beside the notebook.",
        _CASSETTE,
    )
    replay_speed: float = _setting(
        0,
        "The pace of replayed calls: 1.0 as recorded, 2.0 twice as fast, 0 without waits.",
        _check("a number, at least 0", _is_speed),
    )
    provider: Provider | None = _setting(
        None,
        "Replaces the provider that `model` names, for example by a `ScriptedProvider`. A run "
        "that names a model of another provider uses that provider.",
        _check(
            "a provider (`model` is for names)",
            lambda value: value is None or is_provider(value),
        ),
    )
    engine: Engine | str | None = _setting(
        None,
        "Where calls and tools run: a `DaskEngine(client)`, or the name of one under `engines` of "
        "the settings file; `None` for this process.",
        _check(
            "an engine, such as `DaskEngine(client)`, or the name of one in the settings file",
            lambda value: value is None or isinstance(value, str) or is_engine(value),
        ),
        option="NAME",
    )
    max_concurrency: int = _setting(
        32,
        "Calls to one model that may be open at once.",
        whole_number("calls", at_least=1),
        in_file=True,
    )
    max_agents: int = _setting(
        1000,
        "Most sub-agents that the agents of a run may start. It does not limit a person's own "
        "list for `spawn_all`.",
        whole_number("agents", at_least=0),
        in_file=True,
        option="N",
    )
    session_budget: int | str | Decimal | None = _setting(
        None,
        "Tokens for all runs of the session together, or dollars, as in `$20`; `None` for no "
        "limit. It applies to all kernels on its store, which then work in turns.",
        _or_none(_budget_check()),
        in_file=True,
    )
    max_output_tokens: int = _setting(
        8192,
        "Output limit of one call, in tokens.",
        whole_number("tokens", at_least=1),
        in_file=True,
    )
    call_timeout_s: float = _setting(
        600, "Seconds that a turn may take; a longer one fails.", _SECONDS, in_file=True
    )
    recall: int = _setting(
        0,
        "Most memories that a run recalls from its store at the start: those that match its "
        "task's words best. They follow `memories`.",
        whole_number("memories", at_least=0),
        in_file=True,
    )
    memories: Sequence[str] = _setting(
        (),
        "What the root remembers. `sub_agent_memory` says whether sub-agents get it.",
        _row("a list of strings", _is_text),
    )
    sub_agent_memory: str = _setting(
        "inherit",
        "Whether sub-agents `inherit` the root's memories, or start `fresh`.",
        _one_of("inherit", "fresh"),
        in_file=True,
    )
    on_budget_warning: str | BudgetGate = _setting(
        "ask",
        "At 80 % of the budget: `ask`, `continue` or `stop`, or a callable, sync or async, that "
        "gets the `BudgetWarning` and returns one of the last two.",
        _one_of(
            "ask", "continue", "stop", or_callable="a callable that answers one of the last two"
        ),
        in_file=True,
        needs_trust=lambda policy: policy == "continue",
    )
    pause_timeout_s: float = _setting(
        600,
        "Seconds that a paused run waits for an answer; then it stops.",
        _SECONDS,
        in_file=True,
    )
    on_plan: str | Callable[[SpawnPlanned], object] = _setting(
        "go",
        "Before an agent delegates: `go`; `ask` a person, if one can answer; or a callable, sync "
        "or async, that gets the `SpawnPlanned` and returns `go`, `stop`, or the number of tasks "
        "that may start.",
        _one_of("go", "ask", or_callable="a callable that gets a `SpawnPlanned`"),
    )
    ask_above: tuple[float, float] | None = _setting(
        None,
        "Numbers of agents and of dollars: a delegation that starts more agents, or may cost more, "
        'needs an answer as with `on_plan="ask"`; `None` for no limit.',
        _ASK_ABOVE,
    )
    approve: Callable[[Question], object] | None = _setting(
        None,
        "Answers in place of a person whether a tool call that needs approval may run: a "
        "callable, sync or async, that gets the `Question` and returns `approve`, `deny`, "
        "changed arguments as a dict, or `ask` to leave it to a person.",
        _check("a callable that gets a `Question`", lambda v: v is None or callable(v)),
    )
    max_turns: int = _setting(
        50,
        "Most turns of one agent. A turn is one call and the tools it asks for. The agent then "
        "ends with what it has, marked as cut.",
        whole_number("turns", at_least=1),
        in_file=True,
    )
    max_time_s: float | None = _setting(
        None,
        "Seconds that a run may take, pauses not counted; `None` for no limit. Then open calls "
        "and tools are stopped, and the root answers with what it has.",
        _or_none(_SECONDS),
        in_file=True,
    )
    stop_after_failures: int | None = _setting(
        None,
        "Number of failed sub-agents after which only the root's answer may start; `None` for no "
        "limit.",
        _or_none(whole_number("sub-agents", at_least=1)),
        in_file=True,
    )

    code_memory: str = _setting(
        "2GB",
        'Memory of one worker of the tool `python`, as in `"2GB"`, beside the objects that it is '
        "given.",
        _SIZE,
        in_file=True,
    )
    code_time_s: float = _setting(
        60,
        "Seconds that one call of the tool `python` may take; then its code is stopped.",
        _SECONDS,
        in_file=True,
    )
    code_workers: int = _setting(
        4,
        "Calls of the tool `python` that may run at once in a run; others wait.",
        whole_number("calls", at_least=1),
        in_file=True,
    )

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, setting.check.take(value))
            except Wrong as wrong:
                raise ValueError(must_be(f"`{name}`", wrong, value)) from None


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {each.name: each.metadata["setting"] for each in fields(Settings)}
)
"""By name, in the order of the signature."""


def nothing_named(names: Collection[str], known: Iterable[str], *, what: str = "setting") -> str:
    """A sentence on names that do not exist, the nearest one that does, and all that do."""
    from difflib import get_close_matches

    known = tuple(known)
    near = [found for name in names for found in get_close_matches(name[:200], known, n=1)]
    unknown = ", ".join(literal(name) for name in names)
    there, names_known = f"There is no {what} {unknown}", ", ".join(known)
    if not near:
        return f"{there}: use one of {names_known}."
    meant = " and ".join(f"`{each}`" for each in dict.fromkeys(near))
    return f"{there}: did you mean {meant} (known: {names_known})?"


def arguments_text(indent: str = " " * 4) -> str:
    """All settings, as the `Args:` of a docstring."""
    return "\n".join(
        fill(
            f"{name}: {setting.about}",
            99,
            initial_indent=indent,
            subsequent_indent=indent + " " * 4,
        )
        for name, setting in SETTINGS.items()
    )
