"""A thread that waits for news of a run."""

from __future__ import annotations

import threading
from typing import Any

from agentnb.core.bus import EventBus
from agentnb.core.events import AgentTextDelta, BudgetUpdate, RunFinished, RunStarted
from agentnb.core.types import AgentStatus
from tests.support import DEADLINE_S


class Waiters(set[Any]):
    """Tells when one is added."""

    def __init__(self) -> None:
        self.has_one = threading.Event()

    def add(self, waiter: object) -> None:
        super().add(waiter)
        self.has_one.set()


def waiting(bus: EventBus, position: int) -> threading.Thread:
    thread = threading.Thread(target=bus.wait_past, args=(position,), kwargs={"timeout_s": 600})
    thread.start()
    return thread


def test_thread_wakes_when_something_is_published() -> None:
    bus = EventBus()
    thread = waiting(bus, 0)

    bus.publish(AgentTextDelta(agent_id="a", text="hello"))

    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_thread_does_not_wait_for_what_is_there_already() -> None:
    bus = EventBus()
    bus.publish_text("a", "hello")

    bus.wait_past(0, timeout_s=600)

    assert not bus._waiting


def test_thread_does_not_wait_for_a_run_that_has_ended() -> None:
    bus = EventBus()
    bus.publish(RunFinished(status=AgentStatus.COMPLETED, tokens_used=0, duration_ms=0))

    bus.wait_past(1, timeout_s=600)


def test_thread_that_gave_up_leaves_nothing_behind() -> None:
    bus = EventBus()

    bus.wait_past(0, timeout_s=0)

    assert not bus._waiting


def test_thread_that_waits_for_a_change_sleeps_through_text_and_the_budgets_count() -> None:
    bus = EventBus()
    bus._waiting_for_change = waiters = Waiters()
    thread = threading.Thread(target=bus.wait_for_change, args=(0,), kwargs={"timeout_s": 600})
    thread.start()
    assert waiters.has_one.wait(DEADLINE_S)
    (waiter,) = waiters

    bus.publish_text("a", "hello")
    bus.publish(BudgetUpdate(tokens_used=1, budget_total=2, percentage=50.0))
    assert not waiter.wait(0), "it sleeps on"
    bus.publish(RunFinished(status=AgentStatus.COMPLETED, tokens_used=0, duration_ms=0))

    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert not bus._waiting_for_change


def test_thread_does_not_wait_for_a_change_that_came_before() -> None:
    bus = EventBus()
    bus.publish(RunStarted(task_description="t", model="m", budget_total=1, max_depth=0))

    bus.wait_for_change(0, timeout_s=600)

    assert bus.changes == 1
