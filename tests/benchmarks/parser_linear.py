"""Shows that reading a reply takes linear time, even if the reply is made to be slow to read.

Run by hand from the root of the checkout: `python -m tests.benchmarks.parser_linear [MiB]`.
Each row is one kind of reply, each column a size, twice the one before it. In a row the
seconds per MiB should stay level; a parser that is quadratic somewhere doubles them from
column to column. Nothing is asserted, since a busy machine proves nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from agentnb.core.spawn import read_reply

MIB = 1 << 20
SIZES = 5

AGENT = '<agent task="compare one thing with another" />\n'
OPEN = "<spawn_agents>"
CLOSE = "</spawn_agents>"


def repeated(unit: str, *, before: str = "", after: str = "") -> Callable[[int], str]:
    """A function that makes a reply of a given size out of one unit."""
    return lambda size: before + unit * (size // len(unit)) + after


REPLIES: dict[str, Callable[[int], str]] = {
    "prose without a tag": repeated("All work and no play. ", before="Yes.\n"),
    "prose before a block": repeated("All work.\n", after=OPEN + AGENT + CLOSE),
    "one block, many agents": repeated(AGENT, before=OPEN, after=CLOSE),
    "one block, one long task": repeated("a < b & c > d\n", before=OPEN + '<agent task="'),
    "many blocks": repeated(OPEN + AGENT + CLOSE),
    "many start tags": repeated(OPEN),
    "many unclosed blocks": repeated(OPEN + AGENT),
    "many end tags": repeated(CLOSE, before=OPEN),
    "many end tags without >": repeated("</spawn_agents ", before=OPEN),
    "many <": repeated("<", before=OPEN),
    "many <agent": repeated("<agent ", before=OPEN),
    "many <agent task=": repeated("<agent task=", before=OPEN),
    "many unclosed quotes": repeated('<agent task="', before=OPEN),
    "both quotes by turns": repeated("<agent task=\"<agent task='", before=OPEN),
    "many quotes": repeated('"', before=OPEN + '<agent task="'),
    "many escaped quotes": repeated(r"\"", before=OPEN + '<agent task="'),
    "many backslashes": repeated("\\", before=OPEN + '<agent task="'),
    "quotes that look closing": repeated('" a=', before=OPEN + '<agent task="'),
    "= in a value": repeated("=", before=OPEN + '<agent task="'),
    "= and blanks behind quotes": repeated('"=       ', before=OPEN + '<agent task="'),
    "many attributes": repeated('a="b" ', before=OPEN + "<agent "),
    "one long name": repeated("a", before=OPEN + "<agent "),
    "many names": repeated("a ", before=OPEN + "<agent "),
    "blanks in a tag": repeated(" ", before=OPEN + "<agent task"),
    "blanks in an end tag": repeated(" ", before=OPEN + "</spawn_agents"),
    "many ampersands": repeated("&", before=OPEN + '<agent task="', after='" />' + CLOSE),
    "many open references": repeated("&#0", before=OPEN + '<agent task="', after='" />' + CLOSE),
    "a long reference": repeated("0", before=OPEN + '<agent task="&#', after=';" />' + CLOSE),
    "many fences": repeated("```\n<spawn_agents>\n```\n"),
    "many unclosed fences": repeated("```x\n", before=OPEN + "\n"),
    "fences that grow": lambda size: (
        OPEN + "".join("\n" + "`" * length for length in range(3, int((2 * size) ** 0.5)))
    ),
    "fences that shrink": lambda size: (
        OPEN + "".join("\n" + "`" * length for length in range(int((2 * size) ** 0.5), 3, -1))
    ),
    "fences of both kinds": repeated("```\n~~~~\n", before=OPEN + "\n"),
    "one long fence": repeated("`", before=OPEN + "\n"),
    "fence marks with a backtick": repeated("``` a`\n", before=OPEN + "\n"),
    "one long run of backticks": repeated("`", before=OPEN),
    "many single backticks": repeated("` ", before=OPEN),
    "runs that grow": lambda size: (
        OPEN + " ".join("`" * length for length in range(1, int((2 * size) ** 0.5)))
    ),
    "runs that shrink": lambda size: (
        OPEN + " ".join("`" * length for length in range(int((2 * size) ** 0.5), 0, -1))
    ),
    "code in short paragraphs": repeated("`a` `` b\n\n", before=OPEN),
    "code with a tag in it": repeated("`<agent `", before=OPEN),
    "tags that backticks follow": repeated("<agent ` task", before=OPEN),
    "escaped backticks": repeated(r"\`", before=OPEN),
    "line ends": repeated("\r\n", before=OPEN),
}


def seconds_per_mib(reply: str) -> float:
    """Read a reply three times; return the fastest."""
    durations = []
    for _ in range(3):
        begun = time.perf_counter()
        read_reply(reply)
        durations.append(time.perf_counter() - begun)
    return min(durations) / (len(reply) / MIB)


def main() -> None:
    largest = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    sizes = [int(largest * MIB) >> step for step in reversed(range(SIZES))]
    print(f"{'seconds per MiB at':28}", *(f"{size / MIB:>9.4g}" for size in sizes), "MiB")
    for name, reply_of in REPLIES.items():
        print(f"{name:28}", *(f"{seconds_per_mib(reply_of(size)):9.3f}" for size in sizes))


if __name__ == "__main__":
    main()
