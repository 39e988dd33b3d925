"""Every test runs as if on a machine of its own: no keys, no network, no one's settings.

It stands at the root so that it holds for the notebooks too. Settings that work through the
environment are set there, because kernels and other processes inherit it; the network is
refused in this process. A test marked `live` gets keys, settings and network back.
"""

from __future__ import annotations

import gc
import importlib
import ipaddress
import os
import random
import signal
import socket
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.quick_imports import STUBS

if TYPE_CHECKING:
    from tests.notebook.forked import ForkServer

_ROOT = Path(__file__).parent

# Proxies too: a call to a test's own server must not go through one.
_REMOVED = ("ANTHROPIC_", "OPENAI_", "AGENTNB_", "JUPYTER_", "IPYTHON")
_REMOVED_SUFFIX = "_PROXY"
_FOLDERS = (
    "ANTHROPIC_CONFIG_DIR",  # the SDK takes a profile on disk for credentials
    "IPYTHONDIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "XDG_CONFIG_HOME",  # which settings files a person trusts
)

_LONGEST = ("tests/browser/", "tests/workers/", "tests/notebook/")

_connect = socket.socket.connect
_connect_ex = socket.socket.connect_ex
_getaddrinfo = socket.getaddrinfo

# A deadline, or a complaint about slowness, would be an assertion about the machine's load.
_TIMELESS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "max_examples": int(os.environ.get("PROPERTY_EXAMPLES", "40")),
}
settings.register_profile("local", **_TIMELESS)
settings.register_profile("ci", **_TIMELESS, derandomize=True, print_blob=True, database=None)


class OutsideConnection(RuntimeError):
    """A test reached for the network.

    Not an `OSError`, which a client may take for a passing fault and retry.
    """

    def __init__(self, target: object) -> None:
        super().__init__(
            f"A test tried to reach {target!r}. Tests may connect to this machine only: use "
            "`ScriptedProvider` or a server on 127.0.0.1, or mark the test `live`."
        )


class _Isolation:
    """Isolates a test from the outside world, and undoes that."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._patch = pytest.MonkeyPatch()

    def begin(self) -> None:
        for name in list(os.environ):
            if name.upper().startswith(_REMOVED) or name.upper().endswith(_REMOVED_SUFFIX):
                self._patch.delenv(name)
        for name in _FOLDERS:
            folder = self._home / name.lower()
            folder.mkdir(exist_ok=True)
            self._patch.setenv(name, str(folder))
        self._patch.setenv("AGENTNB_DEMO_PACE_S", "0")  # else each answer would take seconds
        self._patch.setenv("AGENTNB_STORE", "none")  # no test writes into the folder it runs in
        # Where it is set, each kernel and each other process would compile the package anew.
        self._patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        # And this process its tests, whose assertions take seconds to be rewritten.
        self._patch.setattr(sys, "dont_write_bytecode", False)
        # A kernel must run the same code as the tests, whatever else may be installed.
        self._patch.setenv("PYTHONPATH", str(_ROOT), prepend=os.pathsep)
        self._patch.setenv("PYTHONPATH", STUBS, prepend=os.pathsep)
        self._patch.setattr(socket.socket, "connect", _connect_here)
        self._patch.setattr(socket.socket, "connect_ex", _connect_ex_here)
        self._patch.setattr(socket, "getaddrinfo", _getaddrinfo_here)

    def end(self) -> None:
        self._patch.undo()


_isolation = pytest.StashKey[_Isolation]()
_forks = pytest.StashKey["ForkServer"]()


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("ci" if os.environ.get("CI") else "local")
    if config.option.dist != "no" and not hasattr(config, "workerinput"):
        return  # it runs no test, and its workers inherit what a test marked `live` needs
    gc.disable()  # until all is collected: half of that time would go into looking for garbage
    home = tempfile.TemporaryDirectory(prefix="agentnb-tests-")
    isolation = _Isolation(Path(home.name))
    isolation.begin()
    # A shell that starts the tests in the background has interrupts ignored, by all below it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_isolation] = isolation
    config.add_cleanup(home.cleanup)
    config.add_cleanup(isolation.end)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Lets the workers share the work of a first run, which is to rewrite the tests' assertions.

    All collect the same files in the same order, so each would rewrite each of them. Here each
    begins with other files and keeps what it has rewritten; most of the rest it then finds.
    """
    config = session.config
    if not hasattr(config, "workerinput") or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    worker, count = config.workerinput["workerid"], config.workerinput["workercount"]
    files = sorted((_ROOT / "tests").rglob("test_*.py"))
    for file in files[int(worker.removeprefix("gw")) :: count]:
        # What is wrong with a file is told when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-order", metavar="SEED", help="shuffle the files, and their tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffles where a seed asks for it: no test may need another that came before it.

    Without one, the longest groups come first. Begun last, one would keep a single process busy
    while the others have ended.
    """
    seed = config.getoption("--random-order")
    if seed is None:
        items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))
        return

    def rank(item: pytest.Item) -> list[float]:
        # What shares a fixture stays together, and the cells of a notebook keep their order.
        names = [_group(item.nodeid), str(item.path)]
        if item.path.suffix != ".ipynb":
            names.append(item.nodeid)
        return [random.Random(f"{seed} {name}").random() for name in names]

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Leaves the tests themselves, which stay to the end, out of every later search for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # tests make much and keep little: a tenth of their time
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One more than cores: tests often wait for a page, a kernel or a pause."""
    return (yield) + 1


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker whole groups, so that tests that share a kernel go on sharing it."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByGroup:
    return _ByGroup(config, log)


def _group(nodeid: str) -> str:
    """A file; the browser tests are two: one JupyterLab serves those that do not show a page alone.

    Each of the two has a Chromium, and they run side by side.
    """
    file = nodeid.split("::")[0]
    if file.startswith("tests/browser/"):
        return "tests/browser: pages" if file.endswith("_page.py") else "tests/browser"
    return file


@pytest.fixture(autouse=True)
def _outside_world(request: pytest.FixtureRequest) -> Iterator[None]:
    """Gives a test marked `live` keys, settings and network."""
    if request.node.get_closest_marker("live") is None:
        yield
        return
    isolation = request.config.stash[_isolation]
    isolation.end()
    try:
        yield
    finally:
        isolation.begin()


@pytest.fixture(autouse=True)
def _own_default_session() -> Iterator[None]:
    """No test finds the default session of one before it, nor that one's settings."""
    yield
    if (module := sys.modules.get("agentnb.default_session")) is not None:
        module._default = None  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _nothing_learnt() -> Iterator[None]:
    """No test finds what a server of one before it taught: two may have had the same port."""
    yield
    if (module := sys.modules.get("agentnb.providers.forms")) is not None:
        module.LEARNT.forget()
        module.REFUSED_THINKING.forget()
    if (module := sys.modules.get("agentnb.providers.servers")) is not None:
        module.forget()


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a test its own registry: its providers do not outlast it, nor does it see others."""
    from agentnb import models
    from agentnb.providers import registry

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(models, "registry", registry.Registry())


@pytest.fixture(scope="session")
def fork_server(request: pytest.FixtureRequest) -> ForkServer:
    """A process that starts kernels which need not import anything."""
    return _fork_server_of(request.config)


def _fork_server_of(config: pytest.Config) -> ForkServer:
    from tests.notebook import forked

    if _forks not in config.stash:
        until_the_end = ExitStack()
        config.stash[_forks] = until_the_end.enter_context(forked.fork_server())
        config.add_cleanup(until_the_end.close)
    return config.stash[_forks]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Have nbval start the kernel of a notebook as the tests start theirs."""
    if item.path.suffix != ".ipynb":
        return (yield)
    from tests.notebook.forked import LAUNCHER
    from tests.notebook.own_ports import FIND_PORT, of_tests

    item.output_timeout = 120  # type: ignore[attr-defined]  # a busy machine may need over 5 s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LAUNCHER, _fork_server_of(item.config).launch)
        patch.setattr(FIND_PORT, of_tests.find_available_port)
        return (yield)


def _connect_here(self: socket.socket, address: Any) -> None:
    _refuse_outside(self, address)
    _connect(self, address)


def _connect_ex_here(self: socket.socket, address: Any) -> int:
    _refuse_outside(self, address)
    return _connect_ex(self, address)


def _getaddrinfo_here(host: Any, *args: Any, **kwargs: Any) -> Any:
    # A number needs no look-up: it is refused when something connects to it.
    if host and not (_is_number(host) or _is_here(host)):
        raise OutsideConnection(host)
    return _getaddrinfo(host, *args, **kwargs)


def _refuse_outside(connecting: socket.socket, address: Any) -> None:
    is_internet = connecting.family in (socket.AF_INET, socket.AF_INET6)
    if is_internet and not _is_here(address[0]):
        raise OutsideConnection(address)


def _is_here(host: str | bytes) -> bool:
    name = _text(host)
    return name == "localhost" or (_is_number(name) and ipaddress.ip_address(name).is_loopback)


def _is_number(host: str | bytes) -> bool:
    try:
        ipaddress.ip_address(_text(host))
    except ValueError:
        return False
    return True


def _text(host: str | bytes) -> str:
    return host.decode() if isinstance(host, bytes) else host
