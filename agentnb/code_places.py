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
    """What a place has to know of a run."""

    objects: Mapping[str, object] | None
    """Those that the run was given, by name; `None` if they are gone."""
    gone: Iterable[str] | None
    """The names that a recovered run was given; `None` for any other run."""
    limits: Limits
    at_work: int
    """How many calls run code at a time."""
    is_replay: bool
    """Whether no code runs: the recorded results answer."""


class CodePlace:
    """Nowhere: no code runs. The other places extend it.

    Args:
        needs: What it has to know of the run.
    """

    tools: Sequence[Tool] = ()
    """By which agents run code."""

    def __init__(self, needs: RunNeeds) -> None:
        pass

    def give(self, agent_id: str, names: Sequence[str]) -> None:
        """An agent is created: it has these names, and no others."""

    async def end(self, agent_id: str) -> Returned:
        """An agent has ended. Let go of what it held, and return what its code left."""
        return Returned()

    async def close(self) -> None:
        """The run has ended. Nothing of it is left afterwards."""


class InWorkers(CodePlace):
    """In processes of their own, on copies."""

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
    """On the person's own names, on the main thread. Nothing is handed over, nothing comes back."""

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
