"""What it costs to show an answer: real pages, and answers made to be too much.

Run by hand from the root of the checkout: `python -m tests.benchmarks.answers [COUNT] [LENGTH]
[SEED]`. The mixtures are also checked, as `tests/views/test_markdown.py` checks a few of them.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator

from agentnb.views.markdown import answer_html
from tests.views.mixtures import check, mixture

PAGES = {
    "prose": "The quick brown fox jumps over the lazy dog, and then it does so again. " * 6
    + "\n\n",
    "lists": "- one **thing** and another, with `code`\n- two [links](https://a.example/x)\n\n",
    "tables": "| name | value | unit |\n|---|---|---|\n| mass | 1.25 | kg |\n| time | 3 | s |\n\n",
    "formulas": "The value $x_i$ of $\\frac{a}{b}$ is \\(y\\), and so on.\n\n",
    "a table that fills itself": "|a" * 400 + "|\n" + "|-" * 400 + "|\n" + "x\n" * 25_000,
    "refused formulas": "$\\x$ " * 200,
    "formulas without end": "\\(a" * 200,
}


def main(count: int = 1_000, length: int = 100_000, first_seed: int = 13) -> None:
    for name, page in PAGES.items():
        text = (page * (length // len(page) + 1))[:length]
        took_s, times = measured(text)
        print(f"{name}: {took_s:.3f} s, {times:.1f} times as long")
    found = sorted(mixtures(range(first_seed, first_seed + count), length), reverse=True)
    print(f"{count:,} mixtures of {length:,} characters from seed {first_seed}, all within bounds")
    print(f"at most {max(times for _, times, _ in found):.1f} times as long; the slowest:")
    for took_s, times, seed in found[:5]:
        print(f"  seed {seed}: {took_s:.3f} s, {times:.1f} times as long")


def mixtures(seeds: range, length: int) -> Iterator[tuple[float, float, int]]:
    for seed in seeds:
        text = mixture(seed, length)
        yield *measured(text), seed
        check(text)


def measured(text: str) -> tuple[float, float]:
    """Processor seconds, the least of three, and the factor by which the text grew."""
    took_s = []
    for _ in range(3):
        gc.collect()  # earlier garbage is not this answer's
        begun_s = time.process_time()
        html = answer_html(text)
        took_s.append(time.process_time() - begun_s)
    return min(took_s), len(html) / len(text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
