"""Measurements, run by hand."""

import os

# Measure the run itself: no store is written unless a benchmark names a file.
os.environ["AGENTNB_STORE"] = "none"
