"""The form of `assigned_to` that creates an agent: `new:PROVIDER/MODEL`, or one with a profile.

The part before the first `/` decides, since a model's own name may contain `/` and `:`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from agentnb.core.errors import BadAssignment
from agentnb.core.text import literal

_PREFIX = "new:"


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to be created."""

    provider: str
    model: str
    """The model's name, without its provider."""
    profile: str = ""
    """The profile's name; empty for none."""

    @property
    def label(self) -> str:
        """The model as `provider/model`."""
        return f"{self.provider}/{self.model}"

    @property
    def name(self) -> str:
        """The agent's name: that of its profile, else that of its model."""
        return self.profile or self.model

    def __str__(self) -> str:
        """The form that it was read from."""
        profile = f"{self.profile}:" if self.profile else ""
        return f"{_PREFIX}{profile}{self.label}"


def parse_assignment(given: object) -> NewAgent | None:
    """Read the value of `assigned_to`.

    Returns:
        The agent to be created; `None` for anything else, which should be the id of a thread.

    Raises:
        BadAssignment: `given` is not a text, or has a wrong form.
    """
    if not isinstance(given, str):
        raise BadAssignment(given, "it is not a string")
    if not "".join(given.split()).startswith(_PREFIX):
        if "/" in given:  # no thread's id has a slash, so this is a model without the prefix
            raise BadAssignment(given, f"the `{_PREFIX}` before the provider is missing")
        return None
    if not given.isprintable() or any(character.isspace() for character in given):
        raise BadAssignment(given, "it contains white space or an invisible character")
    before, slash, model = given.removeprefix(_PREFIX).partition("/")
    *profiles, provider = before.split(":")
    if not slash:
        raise BadAssignment(given, "the `/` between provider and model is missing")
    if not provider:
        raise BadAssignment(given, "the provider is missing")
    if not model:
        raise BadAssignment(given, "the model is missing")
    if len(profiles) > 1:
        raise BadAssignment(given, "there are too many `:` before the `/`")
    if profiles == [""]:
        raise BadAssignment(given, "the profile's name is missing")
    return NewAgent(provider, model, *profiles)


def check_assignment(
    new: NewAgent, *, providers: Collection[str], profiles: Collection[str]
) -> None:
    """Check the names of a form.

    Args:
        new: The agent to be created.
        providers: The names of all providers: `Models.provider_names`.
        profiles: The names of all profiles.

    Raises:
        BadAssignment: The provider or profile does not exist.
    """
    if new.provider not in providers:
        raise BadAssignment(
            str(new), f"there is no provider {literal(new.provider)}", known=tuple(providers)
        )
    if new.profile and new.profile not in profiles:
        none = "" if profiles else ", nor any other"
        raise BadAssignment(
            str(new), f"there is no profile {literal(new.profile)}{none}", known=tuple(profiles)
        )
