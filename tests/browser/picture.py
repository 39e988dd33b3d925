"""Makes the picture of the live panel in docs/panel.md: a real run of the demo model in JupyterLab.

Run by hand from the root of the checkout: `python -m tests.browser.picture`. The alternative text
in docs/panel.md describes it and must stay true.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from tests.browser.chromium import a_chromium, a_playwright, find_chromium
from tests.browser.desk import Desk
from tests.browser.panel import Panel
from tests.browser.server import a_lab

PICTURE = Path("docs/pictures/panel.png")
# Wide enough for a cell output of 1,100 px.
SIZE = (1280, 1000)
COLOURS = 256
TASK = "Compare three ways to store a year of sensor readings."


@contextmanager
def desk_of(width: int, height: int) -> Iterator[Desk]:
    """JupyterLab in a page of this size, for pictures."""
    with a_playwright() as playwright:
        path = find_chromium(playwright)
        assert path is not None, "There is no Chromium on this machine."
        with a_chromium(playwright, path) as browser, a_lab(Path(tempfile.mkdtemp())) as lab:
            desk = Desk(browser, lab)
            desk.page.set_viewport_size({"width": width, "height": height})
            yield desk


def main() -> None:
    """Take the picture when the last of six agents has just ended, and the root continues."""
    with desk_of(*SIZE) as desk:
        notebook = desk.notebook("%load_ext agentnb", f"%%spawn --model demo\n{TASK}")
        notebook.run(0)
        notebook.start(1)
        panel = Panel(notebook.output(1))
        panel.expect_statuses(_2_2="running")
        panel.select("2.2")
        panel.expect_statuses(_2_2="completed", root="running")
        shot = Image.open(io.BytesIO(panel.place.locator(".agentnb-panel").screenshot()))
        few = shot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(PICTURE, optimize=True)
        desk.tidy()
        desk.close()


if __name__ == "__main__":
    main()
