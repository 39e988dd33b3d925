"""What `python -c` does, for processes that are forked and need not start an interpreter."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Sequence
from typing import NoReturn


def run_as_main(code: str, arguments: Sequence[str] = ()) -> NoReturn:
    """Run code as `__main__`, and end the process with its traceback and exit status."""
    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = types.ModuleType("__main__")
    # As the interpreter does: with its traceback, exit status and shutdown.
    failed = ctypes.pythonapi.PyRun_SimpleString(code.encode())
    ctypes.pythonapi.Py_Exit(1 if failed else 0)
    raise AssertionError("a process that has ended")
