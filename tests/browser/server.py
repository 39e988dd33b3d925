"""A real JupyterLab server for the tests, without a person's settings or anything from outside.

It serves a temporary folder, has its own settings, and does not look for news. Its kernels run this
environment's Python and inherit this process's environment, so they use the same code as the tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE_S = 240.0
"""Only against hangs: a cold JupyterLab on a loaded machine may take half a minute."""

_READY = re.compile(r"(http://127\.0\.0\.1:\d+)/")

# The first two would use the network, or cover the page that a test wants to click. No test needs
# the others, and each slows down loading the page and opening a notebook.
_DISABLED = (
    "@jupyterlab/apputils-extension:announcements",
    "@jupyterlab/extensionmanager-extension",
    "@jupyterlab/notebook-extension:language-server",
    *(
        f"@jupyterlab/{name}-extension"
        for name in (
            "celltags",
            "csvviewer",
            "debugger",
            "fileeditor",
            "help",
            "htmlviewer",
            "hub",
            "imageviewer",
            "inspector",
            "javascript",
            "json",
            "lsp",
            "markdownviewer",
            "mermaid",
            "pdf",
            "running",
            "terminal",
            "tooltip",
            "vega5",
            "workspaces",
        )
    ),
)

_SETTINGS: dict[str, dict[str, Any]] = {
    # Only a test saves.
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    "@jupyterlab/apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}


class LabServer:
    """A running server.

    Args:
        url: Its address, without a slash at the end.
        folder: The folder that it serves.
        home: The folder of everything else that it reads and writes.
    """

    def __init__(self, url: str, folder: Path, home: Path) -> None:
        self._home = home
        self.url = url
        self.folder = folder

    @property
    def data(self) -> Path:
        """Its data folder, which has the signatures of the notebooks that it trusts."""
        return self._home / "jupyter_data_dir"

    @property
    def kernels(self) -> list[str]:
        """Ids of the running kernels."""
        return [kernel["id"] for kernel in json.loads(self._ask("GET", "/api/kernels"))]

    def end_kernels(self, but: str | None = None) -> None:
        """Shut down every kernel, as *Shut Down All* does, or all but one."""
        sessions = {
            s["kernel"]["id"]: s["id"] for s in json.loads(self._ask("GET", "/api/sessions"))
        }
        for kernel_id in self.kernels:
            if kernel_id == but:
                continue
            # Deleting a session ends its kernel, and with it the kernel's other sessions.
            session = sessions.get(kernel_id)
            self._ask(
                "DELETE", f"/api/sessions/{session}" if session else f"/api/kernels/{kernel_id}"
            )

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            body: bytes = response.read()
        return body


@contextmanager
def a_lab(
    home: Path,
    *,
    folder: Path | None = None,
    command: Sequence[str | Path] = (sys.executable, "-m", "tests.browser.kernels"),
    variables: Mapping[str, str] = os.environ,
) -> Iterator[LabServer]:
    """A JupyterLab server, ended afterwards with its kernels.

    Args:
        home: An empty folder for everything that it reads and writes.
        folder: The folder to serve; by default a new one in `home`.
        command: The command that starts it.
        variables: Further environment variables.
    """
    if folder is None:
        folder = home / "notebooks"
        folder.mkdir()
    environment = {**variables, **_own_folders(home)}
    process = subprocess.Popen(
        [*command, *_options(home, folder)],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    said = _Listener(process)
    try:
        server = LabServer(said.url(), folder, home)
        yield server
        server.end_kernels()
    finally:
        process.terminate()  # it also ends its kernels
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said.close()


class _Listener:
    """Reads the server's output: its address, and what to report if it does not start."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._url = ""
        self._heard = threading.Event()
        # Read all of it, or the server would wait at a full pipe.
        self._thread = threading.Thread(target=self._listen, name="lab-server-log", daemon=True)
        self._thread.start()

    def url(self) -> str:
        self._heard.wait(DEADLINE_S)
        assert self._url, "JupyterLab did not start:\n" + "".join(self._lines[-40:])
        return self._url

    def close(self) -> None:
        self._thread.join(DEADLINE_S)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            found = _READY.search(line)
            if found and not self._url:
                self._url = found[1]
                self._heard.set()
        self._heard.set()


def _own_folders(home: Path) -> dict[str, str]:
    variables = {}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        folder = home / name.lower()
        folder.mkdir()
        variables[name] = str(folder)
    page = home / "jupyter_config_dir" / "labconfig" / "page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": dict.fromkeys(_DISABLED, True)}))
    return variables


def _options(home: Path, folder: Path) -> list[str]:
    settings = home / "settings"
    for name, values in _SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    return [
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.terminals_enabled=False",
        "--ServerApp.jpserver_extensions={'jupyter_lsp': False, 'jupyter_server_terminals': False}",
        # Only this machine can reach it, and only during the tests.
        "--IdentityProvider.token=",
        "--ServerApp.password=",
        "--ServerApp.disable_check_xsrf=True",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
        "--LabApp.expose_app_in_browser=True",
        f"--LabApp.user_settings_dir={settings}",
        f"--LabApp.workspaces_dir={home / 'workspaces'}",
    ]
