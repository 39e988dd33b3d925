"""Views of a run.

A view depends only on values of the core (events, the tree, an answer) and acts only through
`RunControls`, so the same input gives the same picture, live or replayed. Text from a model is
data in every view, never markup or code.
"""
