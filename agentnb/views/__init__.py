"""What a person sees of a run.

A view is computed from values of the core (events, the tree, an answer) and from nothing
else, and gives its orders through `RunControls`: so the same input makes the same picture,
live or replayed. Text that a model wrote is data in every view, never markup or code.
"""
