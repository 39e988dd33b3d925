"""The live panel: shows a run and steers it.

Events are folded once per run and shown to every view as a `Frame`; a click becomes a command on
the run's own thread. Only this package uses ipywidgets, and it is imported with the first panel.
"""
