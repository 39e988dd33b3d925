"""A person's own plan, made without a model: a list of tasks, or the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentnb.core.types import Block, Message, Role, TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentnb.core.protocols import ModelChoice, OutputType
    from agentnb.core.types import SpawnInstruction


class ReusedAnswer(NamedTuple):
    """A row's answer from an earlier map."""

    run: str
    """The id of the run that gave it."""
    text: str
    is_foreign: bool = False
    """Whether it came from another model than the row is for now: later maps do not reuse it."""


class RowAnswers(Protocol):
    """The answers to rows that exist before the rows are asked. For the run's loop only."""

    @property
    def keeps(self) -> bool:
        """Whether it keeps new answers: only then is `keep` called."""
        ...

    def find(self, number: int, key: Callable[[], str]) -> ReusedAnswer | None:
        """A row's existing answer; `None` if the row is to be asked. Each answer is used once.

        Args:
            number: The number of the row's agent.
            key: Returns the key of its first call: see `agentnb.core.keys`.
        """
        ...

    def keep(self, number: int, key: str, text: str) -> None:
        """Keep the answer of a completed row, asked or reused. Called only if `keeps` is true.

        Args:
            number: The number of the row's agent.
            key: The key of its first call.
            text: The answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """How the agents of a mapped table differ from those of a list of tasks.

    There is one agent for each row and judge, with the judges of a row next to each other: judge j
    of row i, both from 1, has the number `(i - 1) * judges + j`.
    """

    system: str
    """The system prompt, equal for all agents, so that a provider can cache it."""
    is_shared: bool = False
    """Whether the prompt is worth a cache breakpoint at its end in all calls. The first agent of
    each model then runs until its first byte before the others start."""
    judges: int = 1
    models: tuple[ModelChoice, ...] = ()
    """The judges' models, in order; if there are fewer, again from the first. Empty for the run's
    model."""
    attempts: int = 2
    """Most attempts at a row's turn in all."""
    sample: int | None = None
    """Rows that run before a person is asked about the rest, at equal distances in the table;
    `None` for no question."""
    attachments: tuple[tuple[Block, ...], ...] = ()
    """Per task: the files before its text in the user message; empty if no task has files."""
    answers: RowAnswers | None = None
    """Existing answers; `None` to ask each row."""
    left_out: Mapping[int, str] = field(default_factory=dict)
    """By agent number: why this agent does not start."""

    def message(self, number: int, task: str) -> Message:
        """The user message of the agent with this number, from 1."""
        files = self.attachments[number - 1] if self.attachments else ()
        return Message(Role.USER, (*files, TextBlock(task)))

    def row_of(self, number: int) -> int:
        """The row, from 0, of the agent with this number."""
        return (number - 1) // self.judges

    def model_of(self, number: int) -> ModelChoice | None:
        """The model of the agent with this number; `None` for the run's."""
        if not self.models:
            return None
        return self.models[(number - 1) % self.judges % len(self.models)]


@dataclass(frozen=True, slots=True)
class Plan:
    """A person's own tasks: the root starts them all and only combines their results."""

    instruction: SpawnInstruction
    synthesis: bool = True
    """Whether a model combines the results."""
    output: OutputType | None = None
    """The type of each task's answer; `None` for text."""
    rows: Rows | None = None
    """How the agents differ if the tasks are rows of a table; else `None`."""
