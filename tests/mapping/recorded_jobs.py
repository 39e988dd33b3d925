"""Three maps over real texts, and their cassettes in `jobs/`. `record_jobs` makes these.

A job's rows are read back from its cassette, so that a replay needs neither the texts' sources nor
the Python that they were taken from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from agentnb.cassette import Cassette

FOLDER = Path(__file__).parent / "jobs"
MODEL = "anthropic/claude-haiku-4-5"


class Described(BaseModel):
    """What a docstring says of its function."""

    summary: str
    names: list[str]
    raises: list[str]


class Claim(BaseModel):
    """One thing that a text promises."""

    sentence: str
    numbers: list[str]


class Job(NamedTuple):
    """One question for each of some texts."""

    name: str
    question: str
    """Stands before the text of a row."""
    output: Any

    @property
    def prompt(self) -> str:
        """As `Session.map` takes it."""
        return self.question + "{{text}}"

    @property
    def kept(self) -> Path:
        """Its cassette."""
        return FOLDER / f"{self.name}.cassette.jsonl"

    def rows(self) -> list[str]:
        """The texts that it was recorded with, in their order."""
        calls = Cassette.read(self.kept).calls(self.name)
        first = {int(call.path): call for call in calls if call.number == 1}
        texts = [first[number].request.messages[0].text for number in sorted(first)]
        return [text.removeprefix(self.question) for text in texts]


JOBS = (
    Job(
        "messages",
        "What is this message to a bicycle shop about?\n\n",
        Literal["repair", "delivery", "billing", "question", "praise"],
    ),
    Job(
        "docstrings",
        "Sum up what this function does, the arguments that it takes and the errors that it "
        "raises.\n\n",
        Described,
    ),
    Job(
        "sections",
        "Which claims does this section of a manual make? Quote each sentence, with its numbers."
        "\n\n",
        list[Claim],
    ),
)
