"""Measurements, run by hand."""

import os

# What a run itself costs: nothing is written, unless a benchmark names a file.
os.environ["AGENTNB_STORE"] = "none"
