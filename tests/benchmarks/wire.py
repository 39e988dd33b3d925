"""What it costs to read a reply and to write a conversation, against another checkout.

Run by hand from the root of the checkout: `python -m tests.benchmarks.wire OTHER`, where `OTHER` is
the root of a checkout of another commit. Each row is the ratio of processor times, the least of
many tries each, by turns in processes of their own. It reads streams of 200 pieces by the wire
modules alone, without HTTP, and encodes a conversation of 40 messages by the codec.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROUNDS = 5
_CHILD = Path(__file__).with_name("wire_child.py")


def times(checkout: Path) -> dict[str, float]:
    """The least processor times of one process, in seconds."""
    command = [sys.executable, str(_CHILD), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    here, other = Path.cwd(), Path(sys.argv[1]).resolve()
    if not (other / "agentnb").is_dir():
        sys.exit(f"{other} is no checkout of agentnb: make one with `git worktree add`.")
    pairs = [(times(here), times(other)) for _ in range(ROUNDS)]
    for name in pairs[0][0]:
        ours = min(own[name] for own, _ in pairs)
        theirs = min(old[name] for _, old in pairs)
        ratios = sorted(own[name] / old[name] for own, old in pairs)
        print(
            f"{name}: {ours / theirs:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
            f"{ours * 1e6:.0f} µs to {theirs * 1e6:.0f} µs"
        )


if __name__ == "__main__":
    main()
