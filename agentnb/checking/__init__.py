"""What a person expects of a run, and how two runs differ: `agentnb.check`, `agentnb.compare`."""
