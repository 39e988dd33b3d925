"""What a sample says of the rest, on three jobs that were recorded: see `record_jobs`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentnb import ScriptedProvider, Session
from agentnb.cassette import Cassette
from agentnb.core.types import Usage
from tests.mapping.recorded_jobs import JOBS, MODEL, Job
from tests.support import until

ROWS_OF_SAMPLE = 5
OTHER_CALLS = "the calls are not those that were recorded (python -m tests.mapping.record_jobs)"


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
async def test_estimate_of_a_recorded_job_lies_within_a_quarter_of_the_truth(
    job: Job, tmp_path: Path
) -> None:
    cassette = Path(shutil.copy(job.kept, tmp_path))
    rows = job.rows()
    calls = Cassette.read(cassette).calls(job.name)
    recorded = sum((call.usage or Usage() for call in calls), Usage())

    # `auto`, since a replay asks nobody. The provider has no reply: all calls are the recorded.
    with Session(
        MODEL,
        provider=ScriptedProvider([]),
        mode="auto",
        cassette=cassette,
        store=None,
        budget=10**8,
    ) as session:
        run = session.map(rows, job.prompt, job.output, name=job.name, sample=ROWS_OF_SAMPLE)
        await until(lambda: run.questions)
        (question,) = run.questions
        told = question.value
        run.answer(question.id, "go")
        out = await run

    assert len(out.ok) == len(rows), f"{OTHER_CALLS}: {out.failed.error.iloc[0]}"
    assert told["sample_agents"] + told["agents"] == len(rows)
    assert run.usage.total_tokens == recorded.total_tokens
    rest = recorded.budget_tokens - told["sample_tokens"]
    assert told["tokens"] == pytest.approx(rest, rel=0.25)
    assert run.cost.usd is not None
    usd = run.cost.usd - told["sample_cost_usd"]
    assert told["cost_usd"] == pytest.approx(usd, rel=0.25)
