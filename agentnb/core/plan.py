"""A person's own plan, which no model makes: a list of tasks, or the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentnb.core.types import Block, Message, Role, TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentnb.core.protocols import ModelChoice, OutputType
    from agentnb.core.types import SpawnInstruction


class ReusedAnswer(NamedTuple):
    """The answer that a row has from an earlier map."""

    run: str
    """The id of the run that has it."""
    text: str
    is_foreign: bool = False
    """Whether another model gave it than the row is now for: no other map takes it from here."""


class RowAnswers(Protocol):
    """What is known of the answers to rows before they are asked. For the run's loop only."""

    @property
    def keeps(self) -> bool:
        """Whether it wants to be told of new answers."""
        ...

    def find(self, number: int, key: Callable[[], str]) -> ReusedAnswer | None:
        """The answer that a row is not asked for again; it answers no other row of the run.

        Args:
            number: The agent's.
            key: Makes the key of its first call: see `agentnb.core.keys`.
        """
        ...

    def keep(self, number: int, key: str, text: str) -> None:
        """A row has completed, be it asked or not. Called if it `keeps`."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """How the agents of a mapped table differ from those of a list of tasks.

    There is one agent for each row and judge, the judges of a row side by side: judge j of row i,
    both from 1, has the number `(i - 1) * judges + j`.
    """

    system: str
    """The system prompt of each: equal for all, so that a provider can cache it."""
    is_shared: bool = False
    """Whether the prompt is worth a cache breakpoint, at its end in all calls. The first agent of
    each model then runs until its first byte before the others start."""
    judges: int = 1
    models: tuple[ModelChoice, ...] = ()
    """Of the judges, in their order, and then from the first again; empty for the run's model."""
    attempts: int = 2
    """How often a row's failed turn is tried in all."""
    sample: int | None = None
    """Rows that run before a person is asked about the rest, at equal distances in the table;
    `None` for no question."""
    attachments: tuple[tuple[Block, ...], ...] = ()
    """By task: the files that stand before its text in the user message; empty for none at all."""
    answers: RowAnswers | None = None
    """Answers from before; `None` if each row is asked."""
    left_out: Mapping[int, str] = field(default_factory=dict)
    """By the agent's number: why it does not start."""

    def message(self, number: int, task: str) -> Message:
        """What the agent of a task, numbered from 1, is asked."""
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
    """Tasks of a person: the root starts them all and only brings their results together."""

    instruction: SpawnInstruction
    synthesis: bool = True
    """Whether a model brings the results together."""
    output: OutputType | None = None
    """The type of each answer; `None` for text."""
    rows: Rows | None = None
    """If the tasks are rows of a table."""
