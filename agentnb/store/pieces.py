"""The text deltas of one reply as a few bytes: their lengths, times and places in the record.

A short reply is stored as plain arrays, which takes almost no time. A long one may have a piece for
every four characters; its columns are stored as differences and compressed.

Layout: the header (`_HEADER`), then lengths, gaps between the seqs less one, and times, the whole
compressed if the header says so. Times in nanoseconds begin with their phase (see `_in_units`).
Each time is the difference to the one before, in 8 bytes; the first bytes of all times come first,
then the second ones, and so on.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, repeat
from operator import add, sub

_HEADER = struct.Struct("<BBBBIIQ")
"""Flags (bit 0: compressed, bit 1: times in units, bit 2: times in nanoseconds); type of the
lengths; type of the gaps, 0 if all are 0; the unit as a negative power of two; number of pieces;
number of seqs; first seq."""

_PHASE = struct.Struct("<q")
_NS = 10**9

_PLAIN = 100
"""Most pieces that are stored as plain arrays: 13 bytes each, less than two events may take."""
_FINEST = 60
"""Finest unit, as a negative power of two. A monotonic clock's is about 2**-40 s."""


def pack(lengths: Sequence[int], times: Sequence[float], seqs: Sequence[int]) -> bytes:
    """Encode pieces as bytes.

    Args:
        lengths: Characters of each piece.
        times: `at_s` of each piece.
        seqs: The `seq` of each piece, ascending; fewer if the last ones have none.
    """
    count, kept = len(lengths), len(seqs)
    first = seqs[0] if kept else 0
    gap_type, gaps = 0, b""
    if kept and seqs[-1] - first != kept - 1:
        gap_type, gaps = _integers([b - a - 1 for a, b in pairwise(seqs)])
    length_type, sizes = _integers(lengths)
    flags, unit = 0, 0
    moments = array("d", times).tobytes()
    if count > _PLAIN:
        flags = 1
        flags, unit, moments = _in_units(times) or (1, 0, _planes(moments))
    body = sizes + gaps + moments
    if flags:
        body = zlib.compress(body, 6)
    return _HEADER.pack(flags, length_type, gap_type, unit, count, kept, first) + body


def unpack(packed: bytes) -> tuple[Sequence[int], Sequence[float], Sequence[int]]:
    """Decode the lengths, times and seqs from the bytes of `pack`.

    Raises:
        ValueError: The bytes are damaged.
    """
    try:
        flags, length_type, gap_type, unit, count, kept, first = _HEADER.unpack_from(packed)
        body = packed[_HEADER.size :]
        if flags & 1:
            body = zlib.decompress(body)
        at = 0
        lengths = array(chr(length_type))
        lengths.frombytes(body[: (at := count * lengths.itemsize)])
        seqs: Sequence[int] = range(first, first + kept)
        if gap_type:
            gaps = array(chr(gap_type))
            gaps.frombytes(body[at : (at := at + (kept - 1) * gaps.itemsize)])
            seqs = list(accumulate([first, *map(add, gaps, repeat(1))]))
        moments = body[at:]
        if flags & 6:
            phase = 0
            if flags & 4:
                (phase,) = _PHASE.unpack_from(moments)
                moments = moments[_PHASE.size :]
            steps = array("Q")
            steps.frombytes(_rows(moments, count))
            counts: Iterable[int] = accumulate(steps)
            if flags & 4:
                counts = [((ns << unit) + phase) // _NS for ns in counts]
            scale = 2.0**-unit
            return lengths, [ticks * scale for ticks in counts], seqs
        times = array("d")
        times.frombytes(_rows(moments, count) if flags else moments)
    except (struct.error, zlib.error) as error:
        raise ValueError(str(error)) from None
    return lengths, times, seqs


def _integers(values: Sequence[int]) -> tuple[int, bytes]:
    try:
        return 66, bytes(values)  # "B"
    except ValueError:
        most = max(values)
    code = next(code for code in "HIQ" if most < 1 << 8 * array(code).itemsize)
    return ord(code), array(code, values).tobytes()


def _in_units(times: Sequence[float]) -> tuple[int, int, bytes] | None:
    """The times as whole numbers: flags, unit and bytes. `None` if that is not exact.

    A clock's times are multiples of a power of two, since they are differences of two floats of
    about the same size: nothing is rounded. Each of the floats was a whole number of nanoseconds
    first, of which there are fewer.
    """
    unit = max([time.as_integer_ratio()[1] for time in times]).bit_length() - 1
    if unit > _FINEST:
        return None
    scale = 2.0**unit
    ticks = [int(time * scale) for time in times]
    # time = floor((ns * 2**unit + phase) / 10**9) * 2**-unit, with one phase for all of a run.
    ns = [((tick * _NS) + (1 << unit >> 1)) >> unit for tick in ticks]
    rests = [tick * _NS - (n << unit) for tick, n in zip(ticks, ns, strict=True)]
    phase = max(rests)
    if phase - min(rests) < _NS and (steps := _steps(ns)) is not None:
        return 5, unit, _PHASE.pack(phase) + steps
    if (steps := _steps(ticks)) is not None:
        return 3, unit, steps
    return None


def _steps(counts: Sequence[int]) -> bytes | None:
    """The difference of each number to the previous one; `None` if they do not ascend."""
    try:
        return _planes(array("Q", [counts[0], *map(sub, counts[1:], counts)]).tobytes())
    except OverflowError:
        return None


def _planes(eights: bytes) -> bytes:
    return b"".join([eights[place::8] for place in range(8)])


def _rows(planes: bytes, count: int) -> bytes:
    eights = bytearray(len(planes))
    for place in range(8):
        eights[place::8] = planes[place * count : (place + 1) * count]
    return bytes(eights)
