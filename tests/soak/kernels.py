"""Two real kernels share one session: their cells send messages to the agents of both.

`tests/soak/one_session.py` has what they do and the checks. In every other round one of them is
killed at any point while it sends, and a fresh kernel opens the session and continues.
`python -m tests.soak kernels` prints the time of a message, from sending to its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.notebook.kernel import NO_SESSION, Door, Kernel, a_door, started
from tests.soak.one_session import AGENTS, MESSAGES, SENDERS, SESSION, Round

LATEST_S = 3600.0
"""Only against hangs."""

OPEN = """
import pathlib, socket
import agentnb
from tests.soak.one_session import Model, Part
model = Model(pathlib.Path({locks!r}))
session = agentnb.configure(
    provider=agentnb.ScriptedProvider(model), store={path!r}, id={session!r}, config=False
)
part = Part(session, {name!r}, model)

def before(number):
    if number == {knocks_at}:
        socket.create_connection(("127.0.0.1", {port})).close()
"""
SEND = "part.send({until}, {seed!r}, before=before); report = part.report()"


def points(
    folder: Path, count: int, seed: int, messages: int = MESSAGES, agents: int = AGENTS
) -> Iterator[tuple[str, list[str]]]:
    """Run `count` rounds; yield what was done and what broke, for each."""
    for place in range(count):
        with started() as a, started() as b:
            each = Round(folder / str(place), messages, agents, seed + place, place % 2 == 1)
            yield one_round(each, (a, b))


def one_round(a_round: Round, kernels: Sequence[Kernel]) -> tuple[str, list[str]]:
    """One round in a new folder, in two kernels, which can be used again afterwards.

    Returns:
        What was done, and what broke.
    """
    a_round.open()
    with a_door() as door:
        for name, kernel in zip(SENDERS, kernels, strict=True):
            _open(a_round, name, kernel, door)
        made = [kernel.send(f"part.make_agents({a_round.made})") for kernel in kernels]
        faults = _faults_of_cells(kernels, made)
        sent = [_send(a_round, kernel, "") for kernel in kernels]
        if a_round.is_killed:
            door.wait_for_knock()
            kernels[0].kill()
            kernels[0].restart()
            _open(a_round, SENDERS[0], kernels[0], None)
            sent[0] = _send(a_round, kernels[0], "once more")
        faults += _faults_of_cells(kernels, sent)
    if faults:
        return "not done", faults
    told = a_round.told([kernel.value("report") for kernel in kernels], "one kernel")
    for kernel in kernels:
        kernel.ok("session.close()", NO_SESSION)
    return told


def _open(a_round: Round, name: str, kernel: Kernel, door: Door | None) -> None:
    """Open the session in a kernel; `a` knocks at a door when it has sent enough to be killed."""
    dies = a_round.is_killed and name == SENDERS[0] and door is not None
    cell = OPEN.format(
        path=str(a_round.path),
        locks=str(a_round.locks),
        session=SESSION,
        name=name,
        knocks_at=a_round.dies_after if dies else None,
        port=None if door is None else door.port,
    )
    kernel.ok("%load_ext agentnb", cell)


def _send(a_round: Round, kernel: Kernel, more: str) -> str:
    return kernel.send(SEND.format(until=a_round.each, seed=f"{a_round.seed}{more}"))


def _faults_of_cells(kernels: Sequence[Kernel], cells: Sequence[str]) -> list[str]:
    """Wait for a cell of each kernel; return the faults of their outputs."""
    shown = [
        kernel.collect(cell, deadline_s=LATEST_S)
        for kernel, cell in zip(kernels, cells, strict=True)
    ]
    return [f"a cell showed {each}" for each in shown if each.status != "ok" or each.text.strip()]
