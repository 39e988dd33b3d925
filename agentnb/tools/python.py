"""The tool `python`: an agent runs code, in a worker process on copies, or in the person's kernel.

The tool knows its agent by the call's context, so one instance serves all agents that get the same
names. An error of the code is an error result: the model reads it and mends the code.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agentnb.core.errors import ToolError
from agentnb.core.protocols import RECORDED, ToolContext
from agentnb.core.text import literal
from agentnb.core.types import MediaBlock, ToolOutput, ToolSpec

NAME = "python"
PNG = "image/png"
_MOST_IN_CODE = 100_000
"""Characters."""


class CodeResult(Protocol):
    """What a call of code came to. See `agentnb.workers.ran.Ran`."""

    @property
    def text(self) -> str:
        """What the model reads."""
        ...

    @property
    def is_error(self) -> bool:
        """Whether the code failed or was stopped."""
        ...

    @property
    def pictures(self) -> Sequence[bytes]:
        """The figures, as PNG."""
        ...


class CodeLimits(Protocol):
    """What the description says of the limits. See `agentnb.workers.worker.Limits`."""

    @property
    def memory(self) -> int:
        """Bytes of one worker."""
        ...

    @property
    def time_s(self) -> float:
        """Seconds of one call."""
        ...


class CodeRunner(Protocol):
    """Runs agents' code. See `agentnb.workers.pool.Workers`."""

    @property
    def limits(self) -> CodeLimits:
        """What each worker may use."""
        ...

    async def run(
        self,
        agent_id: str,
        code: str,
        *,
        report: Callable[[str], object],
        on_wait: Callable[[str], object],
    ) -> CodeResult:
        """Run a cell of an agent. A cancellation stops it."""
        ...


class PythonTool:
    """`python(code)`. Its description names no object: agents have different ones."""

    effects = True
    """A call may change files, so it is not repeated unasked."""
    on_replay = RECORDED
    """A replay runs no code: the record answers."""

    def __init__(self, workers: CodeRunner) -> None:
        self._workers = workers
        self.spec = ToolSpec(NAME, _description(workers.limits), _SCHEMA)

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str | ToolOutput:
        """Run the code. See `agentnb.core.protocols.Tool`.

        Raises:
            ToolError: The arguments are wrong, or the code failed or was stopped.
        """
        code = _code_in(input)
        ran = await self._workers.run(
            context.agent_id,
            code,
            report=context.report,
            on_wait=lambda why: context.report(f"waits: {why}"),
        )
        return _output(ran)


class OwnCodeRunner(Protocol):
    """Runs agents' code in the person's own process. See `agentnb.kernel_code.KernelCode`."""

    @property
    def limits(self) -> CodeLimits:
        """How long a call may take."""
        ...

    async def run(self, code: str, context: ToolContext) -> CodeResult:
        """Run a cell. A cancellation stops it."""
        ...


class KernelPythonTool:
    """`python(code)` in the person's own kernel. Each call needs approval: no setting lowers it."""

    effects = True
    """A call may change anything, so it is not repeated unasked."""
    on_replay = RECORDED
    """A replay runs no code: the record answers."""
    approval = True

    def __init__(self, kernel: OwnCodeRunner) -> None:
        self._kernel = kernel
        self.spec = ToolSpec(NAME, _kernel_description(kernel.limits), _SCHEMA)

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str | ToolOutput:
        """Run the code. See `agentnb.core.protocols.Tool`.

        Raises:
            ToolError: The arguments are wrong, or the code failed, was stopped or did not run.
        """
        return _output(await self._kernel.run(_code_in(input), context))


def _output(ran: CodeResult) -> str | ToolOutput:
    """The result for the model: the text has a line for each figure, also if it cannot see any."""
    if ran.is_error:
        raise ToolError(ran.text)
    if not ran.pictures:
        return ran.text
    return ToolOutput(
        ran.text,
        tuple(
            MediaBlock(PNG, base64.b64encode(each).decode("ascii"), f"figure {at}.png")
            for at, each in enumerate(ran.pictures, start=1)
        ),
    )


def _code_in(input: Mapping[str, Any]) -> str:
    for name in input:
        if name != "code":
            raise ToolError(f"There is no parameter {literal(name, 80)}: `python` takes `code`.")
    code = input.get("code")
    if not isinstance(code, str) or not code.strip():
        raise ToolError("`code` is missing or blank: give the Python code to run, as text.")
    if len(code) > _MOST_IN_CODE:
        raise ToolError(
            f"`code` has {len(code):,} characters, and may have {_MOST_IN_CODE:,}: run it in parts."
        )
    return code


def _description(limits: CodeLimits) -> str:
    return (
        "Run Python code as a notebook cell, in a process of its own. The objects that you were "
        "given are bound there, as copies under their names. Names that you bind stay for your "
        "next calls. You get what is printed, the value of the last expression, an error with its "
        "line, and each open matplotlib figure. The person gets what your names are bound to when "
        "you are done: frames, arrays, numbers, texts, lists, dicts, figures, fitted models. "
        f"A call may take {limits.time_s:g} s and {limits.memory / 1e9:g} GB; one that takes more "
        "is stopped. `input()` and windows do not work."
    )


def _kernel_description(limits: CodeLimits) -> str:
    return (
        "Run Python code as a cell of the person's own notebook, with all its names: what you "
        "change is changed for the person, and nothing undoes it. The person reads each call and "
        "approves or denies it, so say in a comment what it is for, and keep it short. You get "
        "what is printed, the value of the last expression, an error with its line, and each new "
        f"matplotlib figure. A call may take {limits.time_s:g} s; then it is stopped. `await` at "
        "the top, `input()` and windows do not work."
    )


_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "code": {
            "type": "string",
            "description": "The code: one cell. Its last expression is its value.",
        }
    },
    "required": ["code"],
    "additionalProperties": False,
}
