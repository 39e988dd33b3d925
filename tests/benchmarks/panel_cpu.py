"""What a panel costs the kernel: for a frame of a large tree, and compared with its run.

Run by hand from the root of the checkout: `python -m tests.benchmarks.panel_cpu`. It measures in a
real kernel, which makes, signs and sends the messages to the front end.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from tests.benchmarks.http_server import server_process
from tests.notebook.kernel import Kernel, started

ROUNDS = 5

_FRAMES = """
import gc, json, statistics, time
from agentnb.views.panel.frames import TICK_S, FramePublisher
from agentnb.views.panel.panel import RunPanel
from tests.views.panel.manual_run import ManualRun

def frames(agents, changing, with_tools, count=50):
    run = ManualRun().began()
    paths = [f"{i}" for i in range(1, 11)]
    paths += [f"{i}.{j}" for i in range(1, 11) for j in range(1, 1 + (agents - 11) // 10)]
    for path in paths:
        run.spawned(path, "Look into this part of the whole matter").called(path)
        if with_tools:
            run.replied(path).tool(path, "t")
    feed = FramePublisher(run.bus, budget=lambda: (1000, 100_000))
    panel = RunPanel(feed)
    thread, took = feed._thread, []
    with feed.lock:  # its own thread waits: the frames are made here, one after the other
        gc.collect()
        for frame in range(count):
            for n in range(changing):
                path = paths[(frame * changing + n) % len(paths)]
                if with_tools:  # one call ends, the next one begins and reports
                    run.tool_ended(path, "t").tool(path, "t")
                    run.reported(path, "t", "half of it").reported(path, "t", "all of it")
                    continue
                for _ in range(5):
                    run.bus.publish_text(f"nb_20261101_abcdef.{path}", "about four words here ")
            run.clock.advance(TICK_S)  # what only grows is shown no sooner
            begun = time.process_time()
            feed._tick()
            took.append((time.process_time() - begun) * 1000)
        run.ended()
        feed._tick()
    panel.close()
    return statistics.median(took), max(took)
print(json.dumps(frames({agents}, {changing}, {with_tools})))
"""

_BESIDE = """
import gc, json, os, time, agentnb
os.environ |= {"ANTHROPIC_BASE_URL": "{url}/long", "ANTHROPIC_API_KEY": "k"}
session = agentnb.Session(model="anthropic/m", budget=10**9)

def spent(with_panel):
    gc.collect()
    begun = time.process_time()
    run = session.spawn("Share it among {agents} agents")
    if with_panel:
        panel = run.panel()
        for view in panel.children:
            if hasattr(view, "_details"):  # as a front end that shows it would
                view._handle_custom_msg({"type": "hello", "view": "v"}, None)
                look = {"type": "details", "view": "v", "agent": "root", "call": None, "at": None}
                view._handle_custom_msg(look, None)
    run.result()
    took = time.process_time() - begun
    if with_panel:
        panel.close()
    return took

spent(True)
rounds = [(spent(False), spent(True)) for _ in range({rounds})]
print(json.dumps(rounds))
"""


def in_kernel(kernel: Kernel, code: str, **values: object) -> Any:
    """Run code with these values; return the last line that it prints, parsed as JSON."""
    for name, value in values.items():
        code = code.replace(f"{{{name}}}", str(value))
    shown = kernel.collect(kernel.send(code), deadline_s=600)
    assert shown.status == "ok", shown
    return json.loads(shown.stdout.strip().splitlines()[-1])


def main() -> None:
    """Print each measure."""
    with started() as kernel:
        kernel.ok("%load_ext agentnb", "import ipywidgets, anywidget")
        for agents, changing, with_tools in (
            (31, 31, False),
            (300, 15, False),
            (1000, 50, False),
            (1000, 50, True),
        ):
            values = {"agents": agents, "changing": changing, "with_tools": with_tools}
            rounds = [in_kernel(kernel, _FRAMES, **values) for _ in range(ROUNDS)]
            median = statistics.median(middle for middle, _ in rounds)
            how = "call tools" if with_tools else "change"
            worst = max(most for _, most in rounds)
            print(
                f"{agents:5} agents, {changing:3} of them {how}: {median:.2f} ms a frame, "
                f"{worst:.1f} at most"
            )
        with server_process() as url:
            for agents in (30,):
                beside = in_kernel(kernel, _BESIDE, url=url, agents=agents, rounds=ROUNDS)
                more = statistics.median(shown / alone - 1 for alone, shown in beside)
                alone = statistics.median(alone for alone, _ in beside)
                print(
                    f"{agents:5} agents over HTTP, 50 pieces a second each for 10 s: a panel adds "
                    f"{more:.1%} to {alone:.2f} s"
                )


if __name__ == "__main__":
    main()
