"""The tools by which a model delegates: `spawn`, `spawn_await`, `spawn_status`, `spawn_cancel`.

A sub-agent started by a tool is a job: it runs while its parent goes on. A model's arguments are
checked before a job is started, and each error says what would be right. The core starts and ends
sub-agents (`agentnb.core._run`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentnb.config.profile import NamedText, Profile
from agentnb.core.errors import AgentnbError, ToolError
from agentnb.core.protocols import (
    MOST_FOR_MODEL,
    JobOrder,
    Jobs,
    JobState,
    ModelChoice,
    NotStarted,
    Tool,
    ToolContext,
)
from agentnb.core.quotation import behind_marks, look, structure
from agentnb.core.shown import listed
from agentnb.core.spawn import SPAWN
from agentnb.core.synthesis import even_limit
from agentnb.core.text import one_line
from agentnb.core.types import AgentStatus, Briefing, SubAgentResult, ToolSpec
from agentnb.tools.toolset import TOOLSETS, members

NAMES = (SPAWN, "spawn_await", "spawn_status", "spawn_cancel")

_ALL = "*"
_NO_JOBS = "No jobs found."
_SHOWN_OF_TEXT = 160
_LONGEST_MARK = 60
_CUT_AT_A_LIMIT = "(The answer was cut at a limit: it is not whole.)"
_WORDS = (
    "OK",
    "ERROR",
    "NOT FOUND",
    "CANCELLED",
    "ENDED",
    *(str(each).upper() for each in AgentStatus),
)
"""The words that the head of a block can hold."""
_HEAD = re.compile(rf"\[(?=[0-9a-f]{{6}}: (?:{'|'.join(_WORDS)})\])")
_OURS = structure(_WORDS, ("sub_agent_result", "previous_result", "result", "note_from_person"))
"""Finds text that looks like a block's head, or like the elements that hold results."""


@dataclass(frozen=True, slots=True)
class SpawnSettings:
    """The project's settings for these tools.

    Args:
        profiles: Profiles by name, in the order in which the model sees them.
        broken: Reasons why profiles cannot be used, by name; the model does not see these.
        model_of: The model of a profile's sub-agents; `None` for their parent's. Raises
            `AgentnbError` if the profile cannot be used.
        tools_of: The tools that a profile names; `None` for all of the parent's.
        bootstrap_of: The bootstrap files of a profile, or of sub-agents without one.
        gated_of: Names of the tools that need approval from a profile's sub-agents.
    """

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    model_of: Callable[[Profile], ModelChoice | None] = lambda _: None
    tools_of: Callable[[Profile], Sequence[Tool] | None] = lambda _: None
    bootstrap_of: Callable[[Profile | None], Sequence[NamedText]] = lambda _: ()
    gated_of: Callable[[Profile], Collection[str]] = lambda _: ()


def spawn_tools(settings: SpawnSettings | None = None) -> tuple[Tool, ...]:
    """The four tools, for a run whose agents delegate by tools."""
    return (
        _Spawn(settings or SpawnSettings()),
        _Reporting("spawn_await", _AWAIT, "to wait for", _await),
        _JobsTool("spawn_status", _STATUS, "to look at", _status),
        _Reporting("spawn_cancel", _CANCEL, "to stop", _cancel),
    )


# -- spawn --------------------------------------------------------------------------------------


class _Spawn:
    """`spawn`: starts a sub-agent in the background."""

    effects = False
    """What it starts is of the run."""

    def __init__(self, settings: SpawnSettings) -> None:
        self._settings = settings
        self.spec = ToolSpec(SPAWN, _SPAWN, _spawn_schema(settings.profiles))

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        jobs = _jobs_of(context)
        given = {name: _text(input, name) for name in _SPAWN_PARAMETERS}
        _refuse_unknown(input, _SPAWN_PARAMETERS)
        if not given["task"].strip():
            known = ", ".join(f"`{name}`" for name in _SPAWN_PARAMETERS)
            raise ToolError(
                "`task` is missing or blank: say in it what the sub-agent has to do, all of it. "
                f"The parameters are {known}."
            )
        profile = self._profile(given["profile"].strip())
        of_profile, model = self._parts(profile)
        order = JobOrder(
            task=given["task"].strip(),
            context=given["context"],
            briefings=self._briefings(profile, given["system_prompt"]),
            tools=self._tools(of_profile, given["tools"], jobs.tools),
            model=model,
            profile=profile.name if profile is not None else "",
            gated=() if profile is None else tuple(self._settings.gated_of(profile)),
            output=None if profile is None else profile.output,
        )
        try:
            return jobs.start(order)
        except NotStarted as refused:
            raise ToolError(refused.for_model) from None

    again = call

    def _profile(self, name: str) -> Profile | None:
        profiles = self._settings.profiles
        if not name:
            return None
        if name in self._settings.broken:
            raise ToolError(_cannot_be_used(name, self._settings.broken[name]))
        if name not in profiles:
            known = listed(map(repr, profiles), none="none: leave `profile` out")
            raise ToolError(f"There is no profile {one_line(name)!r} (known: {known}).")
        return profiles[name]

    def _briefings(self, profile: Profile | None, system_prompt: str) -> tuple[Briefing, ...]:
        """The texts before the task, in order."""
        files = self._settings.bootstrap_of(profile)
        briefings = [Briefing("bootstrap_file", text, name) for name, text in files]
        if profile is not None and profile.prompt_file is not None:
            name, text = profile.prompt_file
            briefings.append(Briefing("system_prompt_file", text, name))
        own = profile.system_prompt if profile is not None else ""
        text = system_prompt if system_prompt.strip() else own
        briefings.append(Briefing("system_prompt", text))
        return tuple(each for each in briefings if each.text.strip())

    def _tools(
        self, of_profile: Sequence[Tool] | None, names: str, parents: Sequence[Tool]
    ) -> tuple[Tool, ...]:
        """The named tools, else the profile's, else all of the parent's."""
        wanted = _listed(names)
        if not wanted:
            return tuple(parents if of_profile is None else of_profile)
        known = {tool.spec.name: tool for tool in (*(of_profile or ()), *parents)}
        alone = {name: (tool,) for name, tool in known.items()}
        meant = {**{name: members(name, known) for name in TOOLSETS}, **alone}
        meant |= {name: members(name, known) for name in wanted if name not in meant}
        unknown = [name for name in wanted if not meant.get(name)]
        if unknown:
            which = listed(repr(one_line(name)) for name in unknown)
            raise ToolError(
                f"There is no tool {which} to hand on (known: {listed(map(repr, known))}). "
                "The tools that start sub-agents cannot be handed on."
            )
        return tuple({tool.spec.name: tool for name in wanted for tool in meant[name]}.values())

    def _parts(self, profile: Profile | None) -> tuple[Sequence[Tool] | None, ModelChoice | None]:
        """A profile's tools and model; `None` for each that it does not set."""
        if profile is None:
            return None, None
        try:
            return self._settings.tools_of(profile), self._settings.model_of(profile)
        except AgentnbError as error:
            raise ToolError(_cannot_be_used(profile.name, error)) from None


def _cannot_be_used(profile: str, why: object) -> str:
    return f"The profile {profile!r} cannot be used: {why}"


_SPAWN = """\
Start a sub-agent on a task of its own, in the background. Returns the id of its job at once, so \
you can start several and go on; `spawn_await` brings the results. A sub-agent sees nothing of \
this conversation: make the task specific and self-contained. Delegate only when the task gains \
from it, as with independent parts."""
_SPAWN_PARAMETERS: dict[str, str] = {
    "task": "What the sub-agent has to do: all that it needs to know, in plain words.",
    "profile": "The name of a profile that configures it. Leave it out for one like yourself.",
    "context": "What it should know besides: facts, findings, material. It reads this before the "
    "task.",
    "system_prompt": "Instructions for how it should work, in place of the profile's own.",
    "tools": "Names of the tools that it may call, with commas between them. Leave it out for the "
    "profile's, or else all of yours.",
}


def _spawn_schema(profiles: Mapping[str, Profile]) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = {
        name: {"type": "string", "description": said} for name, said in _SPAWN_PARAMETERS.items()
    }
    if profiles:
        properties["profile"]["enum"] = list(profiles)
    return _schema(properties, required=["task"])


# -- the others -----------------------------------------------------------------------------------


JobReport = tuple[str, tuple[str, str]]
"""A job's id, its state in a word, and the text below."""


class _JobsTool:
    """A tool that takes job ids and reports on each job. It never fails."""

    effects = False

    def __init__(
        self,
        name: str,
        description: str,
        which: str,
        act: Callable[[Jobs, Sequence[str]], Awaitable[list[JobReport]]],
    ) -> None:
        said = f"The ids of the jobs {which}, with commas between them; {_ALL} for all of yours."
        properties = {"job_ids": {"type": "string", "description": said}}
        self.spec = ToolSpec(name, description, _schema(properties, required=["job_ids"]))
        self._act = act

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        jobs = context.jobs
        wanted = [] if jobs is None else _ids(input.get("job_ids"), jobs)
        if jobs is None or not wanted:
            return _NO_JOBS
        return _in_blocks(await self._act(jobs, wanted))


class _Reporting(_JobsTool):
    """`spawn_await` and `spawn_cancel`: wait for jobs, which then count as reported."""

    again = _JobsTool.call


def _in_blocks(reports: Sequence[JobReport]) -> str:
    """One block for each job. Texts too long for a model are cut evenly and marked."""
    heads = [f"[{one_line(each)}: {word}]" for each, (word, _) in reports]
    texts = [text for _, (_, text) in reports]
    room = MOST_FOR_MODEL - sum(len(head) + _LONGEST_MARK for head in heads)
    limit = even_limit([len(text) for text in texts], max(room, 0))
    return "\n\n".join(
        f"{head}\n{_cut(text, limit)}" for head, text in zip(heads, texts, strict=True)
    )


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n(cut here: {len(text):,} characters in all)"


async def _await(jobs: Jobs, wanted: Sequence[str]) -> list[JobReport]:
    await jobs.wait(wanted)
    jobs.mark_reported(wanted)
    return [(each, _outcome(jobs.state(each), jobs)) for each in wanted]


async def _status(jobs: Jobs, wanted: Sequence[str]) -> list[JobReport]:
    return [(each, _progress(jobs.state(each), jobs)) for each in wanted]


async def _cancel(jobs: Jobs, wanted: Sequence[str]) -> list[JobReport]:
    stopped = await jobs.cancel(wanted)
    return [(each, _stop_report(jobs.state(each), jobs, each in stopped)) for each in wanted]


_AWAIT = """\
Wait until sub-agents that you started have ended, and get their results: for each job a block \
that begins with [id: OK], [id: ERROR] or [id: NOT FOUND]. A job that has ended can be asked for \
again."""
_STATUS = "See what sub-agents that you started are doing, without waiting for them."
_CANCEL = """\
Stop sub-agents that you started and do not need any more, with all that they started. Returns \
what they had until then."""


def _schema(properties: Mapping[str, Any], *, required: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


# -- reading arguments ----------------------------------------------------------------------------


def _jobs_of(context: ToolContext) -> Jobs:
    if context.jobs is None:
        raise ToolError("You cannot start sub-agents: do the task yourself.")
    return context.jobs


def _text(input: Mapping[str, Any], name: str) -> str:
    value = input.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ToolError(f"`{name}` must be a text, not {one_line(repr(value), limit=80)}.")
    return value


def _refuse_unknown(input: Mapping[str, Any], known: Mapping[str, str]) -> None:
    unknown = [name for name in input if name not in known]
    if unknown:
        names = listed(f"`{name}`" for name in known)
        which = listed(f"`{one_line(str(name))}`" for name in unknown)
        raise ToolError(f"There is no parameter {which} (known: {names}).")


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _ids(value: object, jobs: Jobs) -> list[str]:
    """The requested job ids. An empty request means all jobs: better than an error."""
    each = value if isinstance(value, list | tuple) else [value]
    # An id of digits alone may come as a number.
    texts = [f"{one:06d}" if type(one) is int else str(one or "") for one in each]
    wanted = _listed(",".join(texts))
    return jobs.ids() if not wanted or _ALL in wanted else wanted


# -- reports -------------------------------------------------------------------------------------


def _not_found(jobs: Jobs) -> tuple[str, str]:
    known = listed(jobs.ids())
    return "NOT FOUND", f"There is no such job of yours (known: {known})."


def _outcome(state: JobState | None, jobs: Jobs) -> tuple[str, str]:
    if state is None or state.result is None:
        return _not_found(jobs)
    result = state.result
    if result.status is AgentStatus.COMPLETED:
        answer = in_block(result.response) or "(no output)"
        return "OK", f"{_CUT_AT_A_LIMIT}\n{answer}" if result.cut else answer
    return "ERROR", _what_went_wrong(result)


def _what_went_wrong(result: SubAgentResult) -> str:
    error = f"Error: {result.error or result.status}"
    if not result.response.strip():
        return in_block(error)
    return f"{in_block(error)}\n\nUntil then it had:\n\n{in_block(result.response)}"


def _progress(state: JobState | None, jobs: Jobs) -> tuple[str, str]:
    if state is None:
        return _not_found(jobs)
    lines = [f"Task: {one_line(state.task, limit=_SHOWN_OF_TEXT)}"]
    if state.doing:
        lines.append(f"Now: {one_line(state.doing, limit=_SHOWN_OF_TEXT)}")
    if state.result is None and (said := state.said.strip()):
        newest = " ".join(said[-_SHOWN_OF_TEXT:].split())
        lines.append(f"It has said {len(said):,} characters, at last: {newest}")
    elif state.result is not None and state.result.error:
        lines.append(f"Error: {one_line(state.result.error)}")
    elif state.result is not None and state.result.cut:
        lines.append(_CUT_AT_A_LIMIT)
    return str(state.status).upper(), in_block("\n".join(lines))


def _stop_report(state: JobState | None, jobs: Jobs, was_stopped: bool) -> tuple[str, str]:
    if state is None or state.result is None:
        return _not_found(jobs)
    if was_stopped and state.status is AgentStatus.CANCELLED:
        left = state.result.response.strip()
        return "CANCELLED", in_block(left) or "It had said nothing yet."
    cut = f"\n{_CUT_AT_A_LIMIT}" if state.result.cut else ""
    return "ENDED", f"It had ended before: {state.status}.{cut}"


def in_block(text: str) -> str:
    """A sub-agent's text, safe inside a block.

    It is quoted as a whole if a part of it looks like a block's head or a result element.
    """
    return _HEAD.sub("&#91;", behind_marks(text)) if _OURS.search(look(text)) else text
