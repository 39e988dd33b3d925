"""Cassettes: recorded runs as one file, for a replay that needs no model."""

from agentnb.cassette.cassette import Cassette
from agentnb.cassette.journal import CassetteJournal, TeeJournal
from agentnb.cassette.miss import Difference, Miss, explain
from agentnb.cassette.relative import relative_key
from agentnb.cassette.unused import UnusedCall, prune, unused
from agentnb.errors import BadCassette

__all__ = [
    "BadCassette",
    "Cassette",
    "CassetteJournal",
    "Difference",
    "Miss",
    "TeeJournal",
    "UnusedCall",
    "explain",
    "prune",
    "relative_key",
    "unused",
]
