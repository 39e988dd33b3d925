"""What a map's panel costs the kernel: a frame of 2,000 rows with three working judges each.

Frames follow each other at the pace of a page, so that one in seven also updates growing values, or
a second apart, so that each does.

Run by hand from the root of the checkout: `python -m tests.benchmarks.table_panel`. It measures in
a real kernel, which makes, signs and sends the messages to the front end.
"""

from __future__ import annotations

import statistics

from tests.benchmarks.panel_cpu import ROUNDS, in_kernel
from tests.notebook.kernel import started

_FRAMES = """
import gc, json, statistics, time
from agentnb.core.events import ModelCallFinished
from agentnb.prices import Call, CostSoFar
from agentnb.views.panel.frames import TICK_S, FramePublisher
from agentnb.views.panel.map_fold import MapShape
from agentnb.views.panel.map_panel import MapPanel
from tests.views.panel.manual_run import ManualRun

ANSWER = '{"label": "late", "score": 2, "reason": "it came two days late"}'

def frames(rows, judges, ending, step_s, count=60):
    run, agents = ManualRun().began(), rows * judges
    at_work, ended, priced, costs = 0, 0, 0, CostSoFar()
    label = "The parcel came two days late and nobody at the hotline knew where it was"

    def cost():  # as a record does it
        nonlocal priced
        new = run.bus.lifecycle_since(priced)
        priced += len(new)
        for _, event in new:
            if isinstance(event, ModelCallFinished):
                costs.add(Call(event.agent_id, event.model, event.usage, None))
        return costs

    feed = FramePublisher(run.bus, budget=lambda: (1000, 100_000), cost=cost)
    panel = MapPanel(feed, MapShape(rows, judges, [label] * rows))
    took = []

    def go(ends):
        nonlocal at_work, ended
        for _ in range(ends):
            ended += 1
            path = str(ended)
            if ended % 50 == 0:
                run.tell(failed(path))
            else:
                run.replied(path).completed(path, ANSWER)
        while at_work < min(agents, ended + 200):
            at_work += 1
            path = str(at_work)
            run.spawned(path, "Which complaint is in: " + label).called(path)
            run.bus.publish_text(f"nb_20261101_abcdef.{path}", '{"label"')

    with feed.lock:  # its own thread waits: the frames are made here, one after the other
        go(0)
        for _ in range(agents // 2 // 200):  # half of the table, in large steps
            go(200)
            run.clock.advance(TICK_S)
            feed._tick()
        gc.collect()
        for frame in range(count):
            go(ending)
            run.clock.advance(step_s)
            begun = time.process_time()
            feed._tick()
            took.append((time.process_time() - begun) * 1000)
        begun = time.process_time()
        panel.children[-1].send_state("snapshot")
        whole = (time.process_time() - begun) * 1000
        run.ended()
        feed._tick()
    panel.close()
    return statistics.median(took), sorted(took)[int(0.95 * count)], max(took), whole
"""
_GIVEN = """
from agentnb.core.events import AgentFailed
from agentnb.prices import Price, set_prices
from tests.views.panel.manual_run import id_of
set_prices({"m/one": Price(1, 2)})

def failed(path):
    return AgentFailed(agent_id=id_of(path), error="label: Input should be 'late'",
                       will_retry=False, attempt=1)
print(json.dumps(frames({rows}, {judges}, {ending}, {step_s})))
"""

LOADS = (
    *((2000, 1, 10, 0.15), (2000, 3, 10, 0.15), (2000, 3, 45, 0.15)),
    *((2000, 1, 10, 1.0), (2000, 3, 10, 1.0), (2000, 3, 45, 1.0)),
)
"""Rows, judges, agents that end in each frame, and seconds between two frames."""


def main() -> None:
    """Print each measure."""
    with started() as kernel:
        kernel.ok("%load_ext agentnb", "import ipywidgets, anywidget")
        for rows, judges, ending, step_s in LOADS:
            values = {"rows": rows, "judges": judges, "ending": ending, "step_s": step_s}
            rounds = [in_kernel(kernel, _FRAMES + _GIVEN, **values) for _ in range(ROUNDS)]
            median, most, worst, whole = (
                statistics.median(numbers) for numbers in zip(*rounds, strict=True)
            )
            print(
                f"{rows} rows x {judges}, 200 agents at work, {ending} ending in a frame, one each "
                f"{step_s} s: {median:.2f} ms a frame, 95 % within {most:.1f}, {worst:.1f} at most "
                f"(in the worst round {max(each[2] for each in rounds):.1f}); "
                f"a full frame {whole:.0f} ms"
            )


if __name__ == "__main__":
    main()
