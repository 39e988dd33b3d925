"""Where the code of a run's agents runs: one place for each word of `code`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentnb.core.protocols import Tool
from agentnb.kernel_code import KernelCode
from agentnb.tools.python import KernelPythonTool, PythonTool
from agentnb.workers.pool import Workers, check_installed
from agentnb.workers.returned import Returned
from agentnb.workers.worker import Limits

OFF, WORKER, KERNEL = "off", "worker", "kernel"


@dataclass(frozen=True, slots=True)
class RunNeeds:
    """The facts about a run that a place needs."""

    objects: Mapping[str, object] | None
    """The objects that the run was given, by name; `None` if they are gone."""
    gone: Iterable[str] | None
    """The names that a recovered run was given; `None` for any other run."""
    limits: Limits
    at_work: int
    """How many calls run code at a time."""
    is_replay: bool
    """Whether no code runs: the recorded results answer."""


class CodePlace:
    """The base of all places, and the place of a run without code.

    Args:
        needs: The facts about the run.
    """

    tools: Sequence[Tool] = ()
    """The tools with which agents run code."""

    def __init__(self, needs: RunNeeds) -> None:
        pass

    def give(self, agent_id: str, names: Sequence[str]) -> None:
        """Give a new agent these names and no others."""

    async def end(self, agent_id: str) -> Returned:
        """Release what an ended agent holds, and return what its code left."""
        return Returned()

    async def close(self) -> None:
        """Release everything that the run holds, when it has ended."""


class InWorkers(CodePlace):
    """Runs code in separate processes, on copies of the given objects."""

    def __init__(self, needs: RunNeeds) -> None:
        if not needs.is_replay:
            check_installed()
        self.workers = Workers(
            needs.objects, limits=needs.limits, at_work=needs.at_work, gone=needs.gone
        )
        self.tools = (PythonTool(self.workers),)

    def give(self, agent_id: str, names: Sequence[str]) -> None:
        """See `CodePlace`."""
        self.workers.give(agent_id, names)

    async def end(self, agent_id: str) -> Returned:
        """See `CodePlace`."""
        return await self.workers.end(agent_id)

    async def close(self) -> None:
        """See `CodePlace`."""
        await self.workers.close()


class InKernel(CodePlace):
    """Runs code on the main thread with the person's own names: nothing is copied or returned."""

    def __init__(self, needs: RunNeeds) -> None:
        self.tools = (KernelPythonTool(KernelCode(needs.limits.time_s)),)


_PLACES: Mapping[str, Callable[[RunNeeds], CodePlace]] = {
    OFF: CodePlace,
    WORKER: InWorkers,
    KERNEL: InKernel,
}
CODE_WORDS = tuple(_PLACES)


def code_place(word: str, needs: RunNeeds) -> CodePlace:
    """The place for one of `CODE_WORDS`.

    Raises:
        MissingExtra: What runs code there is not installed.
    """
    return _PLACES[word](needs)
