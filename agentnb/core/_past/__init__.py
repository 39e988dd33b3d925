"""The recorded past of a run, which answers the run when it is repeated. Private to the core."""
