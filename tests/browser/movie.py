"""Makes the moving picture of the live panel: a scripted run in JupyterLab, steered.

Run by hand from the root of the checkout: `python -m tests.browser.movie`. The alternative text in
README.md and docs/index.md describes it and must stay true.
"""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Page, expect

import agentnb
from agentnb.core.types import CompletionRequest, Role
from agentnb.testing import ScriptedProvider, spawn, task_of
from tests.browser.panel import Panel
from tests.browser.picture import desk_of

MOVIE = Path("docs/pictures/panel-movie.gif")
# In so narrow a window the panel has the details beside the tree, and its letters are not scaled.
SIZE = (1010, 900)
# The cell with the panel and the answer.
HEIGHT = 570
FRAME_MS = 200
END_MS = 3_000
COLOURS = 32

TASK = "Where should our new weather station stand?"
HARBOUR, MEADOW, ROOF = (
    "Look at the harbour wall",
    "Look at the meadow",
    "Look at the town hall's roof",
)
WIND, POWER = "Wind at the wall", "Power at the wall"
REPLIES = {
    "root": [
        "Three places are possible. I have each looked at by an agent of its own.\n"
        + spawn(HARBOUR, MEADOW, ROOF),
        "The **meadow**. It is open on all sides, and has power within 40 m. The harbour wall has "
        "wind from one side only, and spray in winter. The roof was not looked at: its agent was "
        "stopped.",
    ],
    HARBOUR: [
        "Wind and power decide here.\n" + spawn(WIND, POWER),
        "The wall has power, but wind from one side only.",
    ],
    MEADOW: [
        "The meadow lies open on all sides, four times as far from the trees as they are high. "
        "The ground is level and drained, the grass is short. A cable passes at 40 m. The school "
        "beside it would read the instruments every morning. Nothing speaks against it.",
    ],
    ROOF: ["The roof has a lift, a flagpole, eleven chimneys. I list them one by one. " * 12],
    WIND: [
        "From the sea the wind is free. From the land the sheds break it, for two hundred metres "
        "and more, so that half of all readings would be too low. In winter spray reaches the top."
    ],
    POWER: ["The lamps on the wall have 230 V, day and night. The harbour office agrees to share."],
}


def configure() -> None:
    """Make the kernel's session answer from `REPLIES`, at the pace of a model."""

    def answer(request: CompletionRequest) -> str:
        said = sum(message.role is Role.ASSISTANT for message in request.messages)
        return REPLIES[task_of(request)][said]

    agentnb.set_prices({"scripted": agentnb.Price(input=3, output=15)})
    agentnb.configure(provider=ScriptedProvider(answer, pace_s=0.2), budget=12_000, store=None)


class Camera:
    """Takes frames of one cell and its outputs."""

    def __init__(self, page: Page, x: float, y: float, width: float) -> None:
        self._page = page
        self._clip: FloatRect = {"x": x, "y": y, "width": width, "height": HEIGHT}
        self.frames: list[Image.Image] = []

    def take(self, frames: int = 1) -> None:
        """Take this many frames."""
        for _ in range(frames):
            shot = self._page.screenshot(clip=self._clip)
            self.frames.append(Image.open(io.BytesIO(shot)).convert("RGB"))
            self._page.wait_for_timeout(FRAME_MS / 2)

    def save(self, path: Path) -> None:
        """Write an animated GIF; equal frames become one.

        The last frame comes first, once in each round, so that a still picture shows the end.
        """
        palette = self.frames[-1].quantize(COLOURS)
        first, *others = (
            frame.quantize(palette=palette, dither=Image.Dither.NONE)
            for frame in (self.frames[-1], *self.frames)
        )
        times = [END_MS] + [FRAME_MS] * len(others)
        first.save(path, save_all=True, append_images=others, duration=times, loop=0, optimize=True)


def main() -> None:
    """Start the run, open an agent, stop one, raise the budget, wait for the answer."""
    with desk_of(*SIZE) as desk:
        notebook = desk.notebook(
            "%load_ext agentnb\nfrom tests.browser.movie import configure; configure()",
            f"%%spawn\n{TASK}",
        )
        notebook.run(0)
        box = notebook.cell(1).bounding_box()
        assert box is not None
        camera = Camera(desk.page, box["x"], box["y"], box["width"])
        panel = Panel(notebook.output(1))
        camera.take(4)
        notebook.start(1)
        panel.expect_statuses(root="running")
        while panel.node("1.1").count() == 0:
            camera.take()
        panel.select("2")
        camera.take(8)
        panel.select("3")
        camera.take(3)
        panel.button("Cancel agent").click()
        panel.expect_statuses(_3="cancelled")
        camera.take(4)
        panel.number.fill("20000")
        camera.take(2)
        panel.number.press("Enter")
        panel.select("root")
        while notebook.is_running(1):
            camera.take()
        expect(panel.status).to_contain_text("completed")
        camera.take(3)
        camera.save(MOVIE)
        desk.tidy()
        desk.close()


if __name__ == "__main__":
    main()
