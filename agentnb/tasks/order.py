"""The run to start for a message, and the session that starts it: types shared with the desk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from agentnb.core.budget import RequestBudget
    from agentnb.core.cancel import Cancellation
    from agentnb.core.durable import AgentMetadata
    from agentnb.recovery import Recovering
    from agentnb.run import Run
    from agentnb.store.queue import Queued
    from agentnb.tasks.assignment import NewAgent


class Standing(NamedTuple):
    """What a recovered run shares with the runs below it, which may be working already."""

    budget: RequestBudget
    """The run's budget, including what all of them have spent."""
    below: Cancellation
    """Cancels the runs below. It is not the run's own cancellation: a run whose recovery is refused
    is cancelled, but the runs below it are not."""


@dataclass(frozen=True, slots=True)
class Order:
    """A run to start on a thread, for a queued message."""

    queued: Queued
    metadata: AgentMetadata | None
    """The data of the thread's agent; `None` for a thread without an agent."""
    below: RequestBudget | None
    """The budget above the run's own; `None` for none."""
    above: frozenset[str]
    """Marks of the tasks that led to this one, its own included."""
    name: str = ""
    """The run's name in lists."""
    stopped_by: str | None = None
    """Why the run that assigned it was cancelled; `None` if it was not."""
    standing: Standing | None = None
    """Set for a recovered run."""
    recovering: Recovering | None = None
    """The past of a recovered run, once it was read."""


class ChecksRuns(Protocol):
    """What desk and board need of their session. From any thread."""

    def check_current(self) -> None:
        """Check that a person may start a run in the session's mode.

        Raises:
            ModeChanged: `%agentnb mode` has named another one since.
        """
        ...

    def check_new(self, new: NewAgent) -> None:
        """Check the names of an agent to be created.

        Raises:
            BadAssignment: The provider or profile does not exist.
            AgentnbError: The provider or the profile cannot be used.
        """
        ...


class RunStarter(ChecksRuns, Protocol):
    """What the desk needs besides. From any thread."""

    def start_order(self, order: Order) -> Run:
        """Start a run that waits for its turn at the desk.

        Raises:
            AgentnbError, ValueError: Its settings cannot be used.
        """
        ...

    def find_run(self, run_id: str) -> Run | None:
        """A run of this process; `None` if it is not referenced any more."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a run."""

    thread_id: str
    text: str
    order: Order | None = None
    """The order for its message; `None` for a person's own message."""
    queued: Queued | None = None
    """Its message; `None` for the first message of a new thread."""
    recovering: Recovering | None = None
    """The past of a recovered run; else `None`."""
    is_by_hand: bool = False
    """Whether a person recovers it, and so gets the error if that fails."""
