"""The objects of one run: which agent has which, their descriptions, and what comes back.

The root has all that the person gave; a sub-agent has what its order names, and no other. What an
agent's code bound comes back when the agent ends: `Objects`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from agentnb.code_places import CODE_WORDS, OFF, RunNeeds, code_place
from agentnb.core.errors import OrchestratorError, ToolError
from agentnb.core.protocols import Tool
from agentnb.core.shown import listed
from agentnb.core.text import literal
from agentnb.core.types import OrchestratorResult, path_key, path_of
from agentnb.objects.describe import describe
from agentnb.objects.given import objects_given
from agentnb.objects.handles import descriptions_text, handles_in
from agentnb.tools.inspect import InspectTool
from agentnb.workers.returned import Returned
from agentnb.workers.worker import Limits

GIVE = "give"
"""Where the descriptions of given objects are kept, by name."""
CODE = "code"
"""Where it is kept that agents may run code."""
_WENT_WITH_KERNEL = (
    "The objects of this run went with the kernel that it began in: go on with what you know of "
    "them."
)


class Objects(dict[str, Any]):
    """Objects by name that a run's code bound. A dict that says why a name is not in it.

    The root's have their bare names, and so has any name that only one agent bound. Others are
    `name (path)`, such as `table (1.2)`.
    """

    def __init__(self, *, is_replay: bool = False) -> None:
        super().__init__()
        self.left_out: dict[str, str] = {}
        """By name: why an object did not come back."""
        self._is_replay = is_replay

    def __missing__(self, name: object) -> NoReturn:
        if name in self.left_out:
            raise KeyError(f"{literal(name)} did not come back: {self.left_out[str(name)]}")
        if self._is_replay:
            raise KeyError(
                f"There is no {literal(name)}, since a replay runs no code: run the cells in "
                "`run.code` again."
            )
        raise KeyError(f"There is no {literal(name)} (known: {listed(map(literal, self))}).")

    def __repr__(self) -> str:
        return f"Objects({listed(self, none='none')})"

    def add(self, path: str, returned: Returned) -> None:
        """Add what came back from an agent. The root first, then the others in path order."""
        for name, value in returned.objects.items():
            self[self._free(name, path)] = value
        for name, why in returned.left_out.items():
            self.left_out[self._free(name, path)] = why

    def _free(self, name: str, path: str) -> str:
        taken = name in self or name in self.left_out
        return f"{name} ({path})" if taken else name


@dataclass(frozen=True, slots=True, eq=False)
class Gift:
    """What a person gives to a run, and whether its agents may run code."""

    descriptions: Mapping[str, str]
    """Each object's description for agents, by name."""
    objects: Mapping[str, object] | None
    """By name; `None` if they went with the kernel that the run began in."""
    code: str = OFF
    """One of `CODE_WORDS`."""
    is_recovered: bool = False

    def __bool__(self) -> bool:
        return bool(self.descriptions) or self.code != OFF

    def as_plain(self) -> dict[str, Any]:
        """What is kept of it: no objects."""
        return {GIVE: dict(self.descriptions), CODE: self.code} if self else {}


NOTHING = Gift({}, {})


def gift_of(give: Mapping[str, object] | None, code: str) -> Gift:
    """Check what a person gives.

    Raises:
        ValueError: A name cannot be used, or `code` is not one of its words.
    """
    if code not in CODE_WORDS:
        raise ValueError(f"`code` must be 'off', 'worker' or 'kernel', not {literal(code)}.")
    objects = objects_given(give)
    told = {name: describe(name, value) for name, value in objects.items()}
    return Gift(told, objects, code)


def kept_gift(kept: Mapping[str, Any]) -> Gift:
    """What is left of a gift in the record of a run."""
    told = dict(kept.get(GIVE, {}))
    return Gift(told, None if told else {}, kept.get(CODE, OFF), is_recovered=True)


class GivenObjects:
    """The objects of one run. Implements `agentnb.core.handles.Handles`.

    Args:
        gift: What the person gave.
        limits: What each worker may use.
        at_work: How many calls run code at a time.
        hands_all: Whether the root's own sub-agents get everything: they are a person's list.
        is_replay: Whether the run is answered from a cassette.
    """

    def __init__(
        self,
        gift: Gift,
        *,
        limits: Limits,
        at_work: int,
        hands_all: bool = False,
        is_replay: bool = False,
    ) -> None:
        self._objects, self.descriptions = gift.objects, gift.descriptions
        self._hands_all = hands_all
        self._root_id = ""
        self._names: dict[str, tuple[str, ...]] = {}
        """By agent id: the names that it has."""
        self._returned: dict[str, Returned] = {}
        self._is_replay = is_replay
        self.code = code_place(
            gift.code,
            RunNeeds(
                objects=gift.objects,
                gone=gift.descriptions if gift.is_recovered else None,
                limits=limits,
                at_work=at_work,
                is_replay=is_replay,
            ),
        )
        """Where agents' code runs."""
        readers = (InspectTool(self.objects_of),) if self.descriptions else ()
        self.tools: Sequence[Tool] = (*readers, *self.code.tools)
        """Those that read the objects, and run code."""

    def begin(self, root_id: str) -> None:
        """Note the root, which has everything."""
        self._root_id = root_id
        self._hand(root_id, tuple(self.descriptions))

    async def around(
        self, execution: Coroutine[Any, Any, OrchestratorResult]
    ) -> OrchestratorResult:
        """Await a run, end all workers, and give the result what came back."""
        try:
            result = await execution
        except OrchestratorError as error:
            if error.partial_result is not None:
                error.partial_result = replace(error.partial_result, objects=self.came_back)
            raise
        finally:
            await self.code.close()
        return replace(result, objects=self.came_back)

    def objects_of(self, agent_id: str) -> Mapping[str, object]:
        """The objects of an agent.

        Raises:
            ToolError: The run is recovered: the objects are gone.
        """
        names = self._names.get(agent_id, ())
        if self._objects is None:
            if names:
                raise ToolError(_WENT_WITH_KERNEL)
            return {}
        return {name: self._objects[name] for name in names}

    # -- agentnb.core.handles.Handles --------------------------------------------------------------

    def told_to_root(self) -> str:
        """The root's description of its objects."""
        return descriptions_text(self.descriptions)

    def told_to_child(self, parent_id: str, task: str, context: str = "") -> str:
        """What a sub-agent would be told of what its order names."""
        names = self._handed(parent_id, task, context)
        return descriptions_text({name: self.descriptions[name] for name in names})

    def hand_over(self, parent_id: str, child_id: str, task: str, context: str = "") -> None:
        """A sub-agent is created: it has what its order names."""
        self._hand(child_id, self._handed(parent_id, task, context))

    async def agent_ended(self, agent_id: str) -> None:
        """Keep what an agent's code left."""
        returned = await self.code.end(agent_id)
        if returned.objects or returned.left_out:
            self._returned[agent_id] = returned

    # -- what comes back ---------------------------------------------------------------------------

    @property
    def came_back(self) -> Objects:
        """What the code of all agents that have ended bound."""
        found = Objects(is_replay=self._is_replay)
        by_path = {path_of(each, self._root_id): each for each in [*self._returned]}
        for path in sorted(by_path, key=path_key):
            found.add(path, self._returned[by_path[path]])
        return found

    def _hand(self, agent_id: str, names: tuple[str, ...]) -> None:
        self._names[agent_id] = names
        self.code.give(agent_id, names)

    def _handed(self, parent_id: str, task: str, context: str) -> tuple[str, ...]:
        known = self._names.get(parent_id, ())
        if self._hands_all and parent_id == self._root_id:
            return known
        return handles_in(task, context, known)
