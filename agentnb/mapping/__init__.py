"""A table in, a table out: one lean agent for each row and judge, and a frame of their answers."""
