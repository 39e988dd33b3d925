"""Maps: a table in, a table out."""
