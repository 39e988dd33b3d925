"""A recorded call: its record replaces the provider, the gate and the budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from agentnb.core.money import Rate
from agentnb.core.protocols import Provider
from agentnb.core.records import CANCELLED, CallRecord, error_of
from agentnb.core.types import (
    CompletionRequest,
    Stopped,
    StreamEvent,
    TextDelta,
    ToolUse,
    ToolUseBlock,
    Usage,
)


class Books(Protocol):
    """What a recorded call needs of its run's budget. Implemented by `Meter`."""

    def spend_recorded(
        self, usage: Usage, path: str, number: int, rate: Rate | None = None
    ) -> None:
        """Count what a recorded call spent.

        Args:
            usage: The call's usage.
            path: The agent's path.
            number: The call's number among the agent's.
            rate: Prices of its tokens; `None` if no budget counts money.
        """
        ...

    def exhausted_before(self, ended_by: str, *, for_root_synthesis: bool) -> None:
        """Note that a limit ended the run's work in the recorded run; `ended_by` is in words."""
        ...


class RecordedCall:
    """`async with` around a recorded call. Implements `CallLease` and `Provider`.

    It waits for no gate and no budget, and ends as recorded.

    Args:
        record: The finished call.
        request: The request as it is now; `max_tokens` and `cache_prefix` come from the record.
        books: Counts what the call spent.
        announce: Called as the call begins.
        until: Waits until the run reaches a recorded time, in seconds since its start; `None` to
            replay at once.
        may_begin: Waits while a person's pause holds the agent.
        clamped: The verdict that the budget lowered its `max_tokens`, if there is one.
        halted: The verdict that the budget ended it, if there is one.
        for_root_synthesis: Whether it was the root's synthesis, which may use the reserve.
        rate: Prices of its tokens; `None` if no budget counts money.
    """

    halted: str | None = None

    def __init__(
        self,
        record: CallRecord,
        request: CompletionRequest,
        books: Books,
        announce: Callable[[], None],
        until: Callable[[float], Awaitable[None]] | None,
        *,
        may_begin: Callable[[], Awaitable[None]],
        clamped: Mapping[str, Any] | None = None,
        halted: Mapping[str, Any] | None = None,
        for_root_synthesis: bool = False,
        rate: Rate | None = None,
    ) -> None:
        self._rate = rate
        max_tokens, cache_prefix = record.limits
        self.request = request.limited(max_tokens=max_tokens, cache_prefix=cache_prefix)
        self.took_ms = record.duration_ms
        self.name = record.model.partition("/")[0]
        self._record = record
        self._books = books
        self._announce = announce
        self._until = until
        self._may_begin = may_begin
        self.limited_by: str | None = None if clamped is None else clamped["limited_by"]
        self._halted = halted
        self._for_root_synthesis = for_root_synthesis

    async def __aenter__(self) -> RecordedCall:
        if self._until is not None:
            await self._until(self._record.at_s)
        await self._may_begin()
        self._announce()
        return self

    async def __aexit__(self, *_: object) -> None:
        """A recorded call holds nothing."""

    # -- the provider -----------------------------------------------------------------------------

    def answered_by(self, provider: Provider) -> Provider:
        """See `CallLease`."""
        return self

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """The recorded reply and its end."""
        record, until = self._record, self._until
        if until is None:
            for text in record.texts:
                yield TextDelta(text)
        else:
            for at_s, text in record.pieces:
                await until(at_s)
                yield TextDelta(text)
            await until(record.at_s + (record.duration_ms or 0) / 1000)
        if record.message is not None:
            for block in record.message.content:
                if isinstance(block, ToolUseBlock):
                    yield ToolUse(block.id, block.name, block.input)
        if record.stop_reason is not None and record.message is not None:
            note = str(error_of(record.error)) if record.error else record.not_closed
            yield Stopped(record.stop_reason, record.message, note or "")
        elif record.error == CANCELLED:
            await asyncio.Event().wait()  # until its agent is cancelled
        elif record.error is not None:
            raise error_of(record.error)
        elif self._halted is not None:
            self.halted = self._halted["why"]

    # -- the lease --------------------------------------------------------------------------------

    def when_halted(self, callback: Callable[[], None]) -> None:
        """Do nothing: the budget does not halt a recorded call."""

    def reply_started(self) -> None:
        """Do nothing: the usage is recorded."""

    def input_counted(self, usage: Usage) -> None:
        """Do nothing: the usage is recorded."""

    def output_grew(self, text: str) -> None:
        """Do nothing: the usage is recorded."""

    def settle(self, usage: Usage | None, *, is_complete: bool) -> tuple[Usage, int]:
        """Count the recorded usage."""
        if (halted := self._halted) is not None:
            self._books.exhausted_before(
                halted["ended_by"], for_root_synthesis=self._for_root_synthesis
            )
        spent = self._record.usage or Usage()
        self._books.spend_recorded(spent, self._record.path, self._record.number, self._rate)
        return spent, self._record.estimate_error
