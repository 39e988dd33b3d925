"""The record of what a person passes as a run."""

from __future__ import annotations

from contextlib import suppress

from agentnb.core.errors import OrchestratorError
from agentnb.core.text import literal
from agentnb.core.types import OrchestratorResult
from agentnb.record import RunRecord
from agentnb.run import Run, newest_run
from agentnb.runtime import get_runtime

Checkable = RunRecord | OrchestratorResult
"""The forms in which a run can be passed."""


def record_of(run: Checkable) -> RunRecord:
    """The record of a run. Waits for one that runs in this process, and ignores its error.

    A loaded run is taken as it is: nothing more is added to it.

    Raises:
        ValueError: It is not a run, or a result without a record.
        RuntimeError: The run has not ended, and this is the thread that executes it.
    """
    match run:
        case Run():
            return _ended(run)
        case RunRecord():
            return run
        case OrchestratorResult(record=RunRecord() as record):
            return record
        case OrchestratorResult():
            raise ValueError(
                "This result has no record of its run: it is a copy, or was built by hand. Pass "
                "the run itself."
            )
    raise ValueError(
        f"Pass a run (a `Run`, a `RunRecord` of `session.load(...)` or `agentnb.load_run`, "
        f"or a result), not {literal(run)}."
    )


def newest_record() -> RunRecord:
    """The record of the run started last in this process.

    Raises:
        ValueError: There is none, or nothing references it.
        RuntimeError: As for `record_of`.
    """
    run = newest_run()
    if run is None:
        raise ValueError(
            "There is no newest run: none was started here, or neither it nor its session is in "
            "a variable. Pass the run: `agentnb.check(run)`."
        )
    return record_of(run)


def _ended(run: Run) -> Run:
    if not run.done:
        if get_runtime().is_current_thread:
            raise RuntimeError(
                "The run has not ended, and waiting here would block it: this is its own loop. "
                "Await another run first (`await run`); check a run after its end, not "
                "from its own tools and callbacks."
            )
        with suppress(OrchestratorError):  # how it ended is for the caller to look at
            run.result()
    return run
