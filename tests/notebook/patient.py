"""Imported by the process that starts kernels: on a busy machine code may heed an interrupt late.

It would lose its names then, with its worker.
"""

from __future__ import annotations

from agentnb.workers import worker

worker.INTERRUPT_PATIENCE_S = 30.0
