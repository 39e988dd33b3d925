"""The isolation of tests that conftest.py promises."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import conftest

ROOT = Path(__file__).parent.parent

USERS_SETTINGS = {
    "ANTHROPIC_API_KEY": "a key",
    "ANTHROPIC_CONFIG_DIR": "/somewhere/anthropic",
    "IPYTHONDIR": "/somewhere/ipython",
    "JUPYTER_DATA_DIR": "/somewhere/jupyter",
    "JUPYTER_PATH": "/somewhere/jupyter",
    "OPENAI_BASE_URL": "http://192.0.2.1",
    "https_proxy": "http://192.0.2.1",
}

PROBE = f"""
import os, socket, subprocess, sys
import pytest

settings = {USERS_SETTINGS!r}

def test_of_the_usual_kind():
    code = "import os; print(*os.environ.values())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    for value in settings.values():
        assert value not in os.environ.values()
        assert value not in child.stdout

@pytest.mark.live
def test_of_the_live_kind():
    assert settings.items() <= os.environ.items()
    assert socket.getaddrinfo.__module__ == "socket"
    assert socket.socket.connect.__name__ == "connect"

def test_after_a_live_one():
    test_of_the_usual_kind()
    assert socket.getaddrinfo.__module__ == "conftest"
"""


@pytest.mark.parametrize("address", [("192.0.2.1", 443), ("example.org", 443)])
def test_connection_to_another_machine_is_refused_before_it_is_made(
    address: tuple[str, int],
) -> None:
    with socket.socket() as client, pytest.raises(RuntimeError, match="mark the test `live`"):
        client.connect(address)


def test_connection_that_only_returns_an_error_number_is_refused_as_well() -> None:
    with socket.socket() as client, pytest.raises(RuntimeError, match=r"192\.0\.2\.1"):
        client.connect_ex(("192.0.2.1", 443))


def test_name_of_another_machine_is_not_looked_up() -> None:
    with pytest.raises(RuntimeError, match=r"example\.org"):
        socket.getaddrinfo("example.org", 443)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_server_of_the_tests_own_can_be_reached(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection((host, server.getsockname()[1]), timeout=10) as client:
            assert client.getpeername() == server.getsockname()


def test_only_a_live_test_sees_the_users_keys_settings_and_network(tmp_path: Path) -> None:
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    options = ["-n1", "-p", "conftest", "-c", str(ROOT / "pyproject.toml"), "-m", "", "--tb=short"]
    options += ["-p", "no:nbval", "-o", "addopts="]  # its import takes longer than all the rest

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(probe)],
        cwd=ROOT,
        env={**os.environ, **USERS_SETTINGS},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "3 passed" in run.stdout, run.stdout + run.stderr


def in_order_of(seed: str | None, nodeids: Iterable[str]) -> list[str]:
    items: list[Any] = [SimpleNamespace(nodeid=i, path=Path(i.split("::")[0])) for i in nodeids]
    config: Any = SimpleNamespace(getoption=lambda _: seed)
    conftest.pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


def test_shuffled_files_and_tests_stay_together_and_cells_of_a_notebook_in_their_order() -> None:
    files = ["notebooks/a.ipynb", "tests/browser/test_a.py", "tests/browser/test_c.py"]
    files += [f"tests/test_{name}.py" for name in "bdefg"]
    given = [f"{file}::{n}" for file in sorted(files) for n in range(10)]

    shuffled = in_order_of("1", given)

    browser = [i for i in given if i.startswith("tests/browser/")]
    assert in_order_of(None, given) == [*browser, *(i for i in given if i not in browser)]
    assert shuffled == in_order_of("1", given)
    assert shuffled != in_order_of("2", given)
    assert sorted(shuffled) == sorted(given)
    blocks = [file for file, _ in groupby(shuffled, lambda nodeid: nodeid.split("::")[0])]
    assert sorted(blocks) == sorted(files)
    assert blocks != sorted(blocks)
    assert abs(blocks.index(files[1]) - blocks.index(files[2])) == 1
    assert [i for i in shuffled if i.startswith(files[0])] == given[:10]
    assert [i for i in shuffled if i.startswith(files[1])] != given[10:20]
