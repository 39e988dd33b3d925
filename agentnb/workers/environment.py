"""The environment of a worker: a list of allowed names, so that no key gets in.

A name that is not listed stays out, whatever it holds: names do not show what is secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_ALLOWED = frozenset(
    {
        "CONDA_DEFAULT_ENV",
        "CONDA_PREFIX",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "POLARS_MAX_THREADS",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TEMP",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    }
)
_LOCALE = re.compile(r"LC_[A-Z]+")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
MARK = "AGENTNB_WORKER"
"""Names the run's workers, so that they are found should what watches them be killed."""


def worker_environment(
    mark: str, *, at_work: int, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a run's workers.

    Args:
        mark: Unique to the run.
        at_work: How many workers compute at a time. They share the cores, unless the person has
            set the numbers of threads.
        known: The environment to take values from; by default this process's.
    """
    known = os.environ if known is None else known
    taken = {name: value for name, value in known.items() if _is_allowed(name)}
    threads = str(max(1, (os.cpu_count() or 1) // at_work))
    for name in _THREADS:
        taken.setdefault(name, threads)
    return taken | {
        MARK: mark,
        # Without a limit each thread reserves 64 MB of addresses, which count against the memory.
        "MALLOC_ARENA_MAX": "2",
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
        "MPLBACKEND": "module://agentnb.workers.inside.drawing",
    }


def _is_allowed(name: str) -> bool:
    return name in _ALLOWED or _LOCALE.fullmatch(name) is not None
