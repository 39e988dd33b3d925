"""A profile as a plain value, and how a model is told which ones there are.

A profile is a named way to configure an agent. Its files are texts here, and its pool is a row of
models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from agentnb.core.text import one_line

MOST_IN_FIRST_LINE = 200
"""Characters of a prompt that stand in for a description."""

NamedText = tuple[str, str]
"""A file of the project: its path in the project folder, and its text."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A named way to configure an agent."""

    name: str
    description: str = ""
    """What it is for."""
    system_prompt: str = ""
    prompt_file: NamedText | None = None
    """Its `system_prompt_file`."""
    bootstrap: tuple[NamedText, ...] | None = None
    """Its bootstrap files; `None` for the default ones."""
    tools: tuple[str, ...] | None = None
    """Names; `None` for all that its parent has."""
    pool: str | None = None
    models: tuple[str, ...] = ()
    """What its pool holds, `provider/model` each; empty for its parent's model."""

    @property
    def told(self) -> str:
        """What a model is told of it: its description, else the first line of its prompt."""
        prompts = (self.prompt_file[1] if self.prompt_file else "", self.system_prompt)
        lines = [line for prompt in prompts for line in prompt.splitlines() if line.strip()]
        return self.description.strip() or one_line("".join(lines[:1]), limit=MOST_IN_FIRST_LINE)


def root_instructions(profile: Profile, bootstrap: Sequence[NamedText]) -> str:
    """Join what a profile tells an agent that is not a sub-agent; empty when that is nothing.

    Args:
        profile: What the root of a run was configured by.
        bootstrap: The bootstrap files in force for it.
    """
    told = [f"{name}:\n\n{text.strip()}" for name, text in bootstrap if text.strip()]
    if profile.prompt_file is not None:
        told.append(profile.prompt_file[1].strip())
    return "\n\n".join(filter(None, [*told, profile.system_prompt.strip()]))


def available_profiles_block(profiles: Iterable[Profile]) -> str:
    """Write the end of a prompt that tells of the profiles; empty when there are none.

    Everything in it is escaped: a description cannot close the block or open another.
    """
    told = [_told(profile) for profile in profiles]
    if not told:
        return ""
    return "\n".join(
        [
            "<available_spawn_profiles>",
            "These are the names that `profile` of the tool `spawn` takes. With `tools` a profile "
            "says which tools its sub-agent has; without, it has those that you may hand on.",
            *told,
            "</available_spawn_profiles>",
        ]
    )


def _told(profile: Profile) -> str:
    tools = ""
    if profile.tools is not None:
        tools = f' tools="{escape(", ".join(profile.tools) or "none")}"'
    start = f'<profile name="{escape(profile.name)}"{tools}'
    description = escape(profile.told, quote=False)
    return f"{start}>{description}</profile>" if description else f"{start} />"
