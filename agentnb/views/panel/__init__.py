"""The live panel: what a person watches a run with, and steers it by.

Facts come in as events, are folded once per run and shown to every view as a `Frame`; what a
person clicks goes out as a command, on the run's own thread. Only this package knows ipywidgets,
and it is imported when the first panel is asked for.
"""
