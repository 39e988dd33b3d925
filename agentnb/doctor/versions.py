"""Requirements in the metadata of agentnb, and whether a version meets one.

`packaging` can do more, but a set-up that needs a doctor may lack it: this reads the two operators
that our metadata uses, `>=` and `<`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?(?P<bounds>[^;()]*)\)?\s*(?:;(?P<marker>.*))?"
)
_EXTRA = re.compile(r"extra\s*==\s*['\"](?P<extra>[\w.-]+)['\"]")
_VERSION = re.compile(
    r"v?(?:\d+!)?(?P<release>\d+(?:\.\d+)*)[-_.]?(?:(?P<stage>a|b|rc|c|dev)[a-z]*[-_.]?(?P<count>\d*))?"
)
_STAGES = {"dev": -4, "a": -3, "b": -2, "c": -1, "rc": -1}

Key = tuple[tuple[int, ...], int, int]
"""Sorts versions: release without zeros at its end, stage (0: final), number in the stage."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that agentnb needs."""

    name: str
    """Normalised: in lower case, with `-`."""
    bounds: str
    """Such as `>=2.10,<3`; empty if any version will do."""
    extra: str
    """The extra that needs it; empty for all installations."""

    @property
    def spec(self) -> str:
        """What pip installs, such as `pydantic>=2.10,<3`."""
        return self.name + self.bounds

    def is_met_by(self, version: str) -> bool:
        """Whether a version lies within the bounds. One that cannot be read does not."""
        found = _key(version)
        return found is not None and all(
            _is_met(bound.strip(), found) for bound in self.bounds.split(",") if bound.strip()
        )


def read_requirement(line: str) -> Requirement | None:
    """Read a line of metadata, such as `mcp<3,>=2.3; extra == "mcp"`; `None` if it is none."""
    found = _REQUIREMENT.fullmatch(line)
    if found is None:
        return None
    extra = _EXTRA.search(found["marker"] or "")
    # The floor first, as a person writes it.
    bounds = sorted((each.strip() for each in found["bounds"].split(",")), reverse=True)
    return Requirement(
        normalised(found["name"]), ",".join(filter(None, bounds)), extra["extra"] if extra else ""
    )


def normalised(name: str) -> str:
    """A package's name as an index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_met(bound: str, version: Key) -> bool:
    limit = _key(bound.lstrip("<>="))
    if limit is None:
        return False
    if bound.startswith(">="):
        return version >= limit
    # `<3` keeps out 3.0rc1, too.
    return version < limit and (limit[1] < 0 or version[0] < limit[0])


def _key(version: str) -> Key | None:
    found = _VERSION.match(version.strip().lower())
    if found is None:
        return None
    release = [int(number) for number in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return tuple(release), _STAGES.get(found["stage"] or "", 0), int(found["count"] or 0)
