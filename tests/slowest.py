"""Print where the test time goes, by folder, file and test, from the runner's own report.

    python -m pytest --junitxml=report.xml
    python -m tests.slowest report.xml [--most N]

These are seconds of tests with setup and teardown, of all processes together. So they say what a
file costs, not how long a run takes, which has as many processes as there are cores.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

Test = tuple[str, str]
"""Its file as a module, and its name."""


def seconds_in(report: str) -> dict[Test, float]:
    """The seconds of each test of a JUnit report.

    Raises:
        ValueError: It holds no tests.
    """
    found: defaultdict[Test, float] = defaultdict(float)
    try:
        # One that fails, and fails again when it is torn down, stands there twice.
        for case in ElementTree.fromstring(report).iter("testcase"):
            found[case.attrib["classname"], case.attrib["name"]] += float(case.attrib["time"])
    except (ElementTree.ParseError, LookupError) as error:
        raise ValueError(f"it is no report of pytest ({error})") from None
    if not found:
        raise ValueError("it holds no tests")
    return dict(found)


def lines(times: Mapping[Test, float], most: int) -> Iterator[str]:
    """What is printed: the slowest `most` of each kind, the slowest first."""
    folders: defaultdict[str, list[float]] = defaultdict(list)
    files: defaultdict[str, list[float]] = defaultdict(list)
    for (file, _), seconds in times.items():
        files[file].append(seconds)
        folders[_folder_of(file)].append(seconds)
    yield f"{sum(times.values()):,.0f} s of {len(times):,} tests"
    for title, groups in (("folders", folders), ("files", files)):
        yield f"\n{title}:"
        ranked = sorted(groups.items(), key=lambda each: -sum(each[1]))
        yield from (f"{sum(own):7.1f} s {len(own):6,} tests  {name}" for name, own in ranked[:most])
    yield "\ntests:"
    slowest = sorted(times.items(), key=lambda each: -each[1])[:most]
    yield from (f"{seconds:7.1f} s  {file}::{name}" for (file, name), seconds in slowest)


def _folder_of(file: str) -> str:
    """`tests.store` of a test in a folder; the file itself beside the folders."""
    return ".".join(file.split(".")[:2]) if file.startswith("tests.") else file.split(".")[0]


def main() -> None:
    """Print it, or say what is wrong with the report; the exit code is then 2."""
    parser = argparse.ArgumentParser(prog="python -m tests.slowest", description="Slowest tests.")
    parser.add_argument("report", type=Path, help="what `pytest --junitxml=REPORT` has written")
    parser.add_argument("--most", type=int, default=20, help="lines of each kind")
    given = parser.parse_args()
    try:
        times = seconds_in(given.report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"{given.report}: {error}. Write one: `python -m pytest --junitxml={given.report}`.")
        sys.exit(2)
    print(*lines(times, given.most), sep="\n")


if __name__ == "__main__":
    main()
