"""The first call of each agent of a table, its key and its size, before the agent exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from agentnb.core._call.asking import asked_of, asking_for
from agentnb.core._call.services import input_tokens_of
from agentnb.core._run.agent import Agent, NumberedTask, can_only_answer
from agentnb.core._run.estimate import SureCall
from agentnb.core.keys import CallKeys
from agentnb.core.plan import Plan, Rows
from agentnb.core.protocols import OutputType, Provider, links_of
from agentnb.core.request import RunState
from agentnb.core.types import CompletionRequest, bare_model


class _Kind(NamedTuple):
    """What the first calls of all agents of one model have in common."""

    model: str
    """`provider/model`; the first one of a chain."""
    provider: Provider
    """The provider; of a chain, the chain itself."""
    answers: Provider
    """The provider that is asked first."""
    request: CompletionRequest
    """The request without messages."""
    output: OutputType | None
    """The type that the request asks for; `None` if the agent may do something else first."""


class RowCalls:
    """Makes the first call for each row and judge, as its agent will make it.

    Args:
        run: The run's state.
        root: The run's root.
        plan: The plan of the table.
        rows: The plan's rows.
    """

    def __init__(self, run: RunState, root: Agent, plan: Plan, rows: Rows) -> None:
        self._run, self._root, self._plan, self._rows = run, root, plan, rows
        self._kinds: dict[str, _Kind] = {}
        """By the name of the judge's own model; empty for the run's model."""

    def kind_of(self, number: int) -> _Kind:
        """What the agent with this number shares with the others of its model."""
        choice = self._rows.model_of(number)
        name = "" if choice is None else choice.name
        if name not in self._kinds:
            provider = self._root.provider if choice is None else choice.provider
            self._kinds[name] = self._kind(name, provider)
        return self._kinds[name]

    def _kind(self, name: str, provider: Provider) -> _Kind:
        run, root = self._run, self._root
        context = root.context.for_row(self._rows.system, name)
        depth = root.request.depth + 1
        tools = (*root.own_tools, *run.delegation.tools_at(depth, run.request.max_depth))
        config = context.agent_config
        first = links_of(provider, config.model)[0]
        request = CompletionRequest(
            model=bare_model(config.model),
            system=context.system_prompt,
            messages=(),
            tools=tuple([tool.spec for tool in {each.spec.name: each for each in tools}.values()]),
            max_tokens=config.max_output_tokens,
            extra=config.extra,
        )
        only_answers = can_only_answer(run, context, depth, root.own_tools)
        output = self._plan.output if only_answers else None
        return _Kind(first.model, provider, first.provider, request, output)

    def request(self, task: NumberedTask) -> CompletionRequest:
        """The first call for a row."""
        kind = self.kind_of(task.number)
        request = replace(kind.request, messages=(self._rows.message(*task),))
        if kind.output is not None:
            request = asking_for(kind.output, request)
        model = bare_model(kind.model)
        if request.model != model:
            request = replace(request, model=model)
        return asked_of(kind.answers, request)

    def key(self, task: NumberedTask) -> str:
        """The key of the first call for a row."""
        keys = CallKeys(self._run.recorder.secrets)
        return keys.key_of(self.kind_of(task.number).model, self.request(task))

    def input_tokens(self, task: NumberedTask) -> int:
        """Input tokens of the first call for a row, as the budget reserves them."""
        return input_tokens_of(self.request(task), self.kind_of(task.number).answers)

    def largest(self, tasks: Sequence[NumberedTask]) -> Iterator[SureCall]:
        """The first calls for some rows, at their largest. Judges of one model are sized once."""
        longest = self._root.context.agent_config.max_output_tokens
        known: tuple[object, int] = None, 0
        for task in tasks:
            model = self.kind_of(task.number).model
            told = model, task.task, self._rows.row_of(task.number)
            if known[0] != told:
                known = told, self.input_tokens(task)
            yield SureCall(model, known[1], longest)
