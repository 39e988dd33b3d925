"""JupyterLab with kernels that are forked from a process that has imported all: see `a_lab`.

Each is a process of its own. These kernels do not show what a kernel imports first, or how long it
takes to start.
"""

from __future__ import annotations

from unittest.mock import patch

from jupyterlab.labapp import LabApp  # type: ignore[import-untyped]

from tests.notebook.forked import LAUNCHER, fork_server
from tests.notebook.own_ports import FIND_PORT, OwnPorts

_USED = ("anywidget", "ipywidgets", "tests.support")


def main() -> None:
    """Serve JupyterLab until a signal ends it."""
    ports = OwnPorts(is_lab=True)
    with (
        fork_server() as server,
        patch(LAUNCHER, server.launch),
        patch(FIND_PORT, ports.find_available_port),
    ):
        server.preload(*_USED)
        LabApp.launch_instance()


if __name__ == "__main__":
    main()
