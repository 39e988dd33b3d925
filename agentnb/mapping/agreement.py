"""How far judges agree: Krippendorff's alpha, and the rows in which they differ.

Source: Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentnb.core.shown import Bundle, Shown, counted
from agentnb.mapping.answers import ROW, token
from agentnb.mapping.cells import MISSING, is_missing, plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEVELS = ("nominal", "ordinal", "interval")
_MOST_CELLS = 20_000_000
"""Largest array (rows * values * values, 8 bytes each) that `krippendorff` may make for us."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Agreement(Shown):
    """How far the judges of a map agree."""

    alpha: float
    """Krippendorff's alpha: 1 if they always agree, 0 if no more than by chance. Also 1 if all
    judges gave one value in every row, where the formula has no value; NaN if no row was judged
    twice."""
    rows: int
    """Number of rows with at least two judges."""
    disagreements: Any
    """A frame of the rows in which they differ: `row` from 0, the judges' values, `path`."""
    level: str
    """`nominal`, `ordinal` or `interval`: how values are compared."""
    columns: Mapping[str, Sequence[Any]]
    """The disagreements as lists, by name."""

    @property
    def differing(self) -> int:
        """The number of rows in which they differ."""
        return len(self.columns[ROW])

    def __repr__(self) -> str:
        return f"Agreement({self.in_words})"

    @property
    def in_words(self) -> str:
        """`alpha 0.743 (nominal), 11 rows, 4 differ`."""
        rows = counted(self.rows, "row")
        return f"alpha {self.alpha:.3f} ({self.level}), {rows}, {self.differing:,} differ"

    def _bundle(self) -> Bundle:
        from agentnb.mapping.shown import agreement_bundle

        return agreement_bundle(self)


def level_of(ratings: Sequence[Sequence[Any]], level: str | None) -> str:
    """How values are compared: `level`, or by default `interval` for numbers, else `nominal`.

    Raises:
        ValueError: The level does not exist, or needs numbers.
    """
    said = (each for row in ratings for each in row if each is not None and not _is_open(each))
    are_numbers = all(map(_is_number, said))
    if level is None:
        return "interval" if are_numbers else "nominal"
    if level not in LEVELS:
        known = ", ".join(map(repr, LEVELS))
        raise ValueError(f"`level` must be one of {known}, not {level!r}.")
    if level != "nominal" and not are_numbers:
        raise ValueError(
            f"`level={level!r}` compares numbers, and these values are not numbers: use 'nominal'."
        )
    return level


def alpha_of(ratings: Sequence[Sequence[Any]], level: str = "nominal") -> float:
    """Krippendorff's alpha.

    Args:
        ratings: Shape (rows, judges): the value that each judge gave, `MISSING` if none.
        level: `nominal` compares whether values are equal, and `None` is a value; `ordinal` and
            `interval` take numbers, and `None` counts as no value.

    Returns:
        1.0 if all values are equal, where the formula has no value; NaN if there is nothing to
        compare.

    Raises:
        ValueError: There are too many rows and different values for `ordinal`.
    """
    import numpy as np

    nominal = level == "nominal"
    if not nominal:
        ratings = [[MISSING if each is None else each for each in row] for row in ratings]
    paired = [row for row in ratings if sum(not _is_open(each) for each in row) > 1]
    if not paired:
        return float("nan")
    codes: dict[Any, float] = {}
    for value in (each for row in paired for each in row if not _is_open(each)):
        codes.setdefault(_token(value), len(codes) if nominal else float(value))
    if len(set(codes.values())) < 2:
        return 1.0
    matrix = np.array(
        [[np.nan if _is_open(each) else codes[_token(each)] for each in row] for row in paired]
    )
    if len(paired) * len(codes) ** 2 > _MOST_CELLS:
        if level == "ordinal":
            raise ValueError(
                f"`level='ordinal'` cannot compare {len(codes):,} different values in "
                f"{len(paired):,} rows: use 'interval', or put the values into fewer classes."
            )
        return _alpha_in_little_memory(matrix, nominal)
    import krippendorff

    return float(krippendorff.alpha(reliability_data=matrix.T, level_of_measurement=level))  # type: ignore[arg-type]


def _alpha_in_little_memory(matrix: NDArray[np.float64], nominal: bool) -> float:
    """The same as `krippendorff.alpha`, without an array of size values * values.

    The sum of the differences of all pairs follows from the counts of the values (nominal), or
    from the sum of their squared distances from the mean (interval).

    Args:
        matrix: Shape (rows, judges), NaN where a judge gave no value; at least two values in each
            row.
        nominal: Whether values are only compared as equal or not, and not by their distance.
    """
    import numpy as np

    def differences(values: NDArray[np.float64]) -> float:
        """The sum over all ordered pairs: of 1 if they differ, or of the squared distance."""
        if nominal:
            _, counts = np.unique(values, return_counts=True)
            return float(values.size**2 - (counts.astype(float) ** 2).sum())
        centred = values - values.mean()
        return float(2 * values.size * (centred**2).sum())

    rows = [row[~np.isnan(row)] for row in matrix]
    everything = np.concatenate(rows)
    observed: float = sum(differences(row) / (row.size - 1) for row in rows)
    return 1.0 - observed * (everything.size - 1) / differences(everything)


def differ(row: Sequence[Any]) -> bool:
    """Whether the judges of a row said different things."""
    return len(Counter(_token(each) for each in row if each is not MISSING)) > 1


def _token(value: Any) -> Any:
    return token(plain(value))


def as_label(value: Any) -> Any:
    """A person's label as a plain value; `MISSING` if the cell is empty."""
    return MISSING if is_missing(value) else plain(value)


def _is_open(value: Any) -> bool:
    return value is MISSING


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
