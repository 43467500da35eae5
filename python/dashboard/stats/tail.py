"""The points of a percentile curve, few enough to draw, dense where the tail is. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .groups import Floats, Series

POINTS = 240  # of a curve; more than a screen can show of one
# At which shares the axis is marked; the ends beyond the data are left out.
MARKS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)


def tail_curve(series: Series) -> tuple[npt.NDArray[np.float64], Floats]:
    """x = 1 / (1 - share), y = the percentile; the last point is the maximum.

    Each point is a value that was measured: rank k of n stands at 1 / (1 - (k - 1) / n), so the
    slowest of 1,000 stands at 1,000, where "one in 1,000" is.
    """
    count = len(series.values)
    behind = np.unique(
        np.round(np.geomspace(1, count, POINTS)).astype(np.int64)
    )  # ranks from the end
    ranks = (count - behind)[::-1]
    return count / (count - ranks), series.values[ranks]


def mark_of(share: float) -> str:
    """'p99.9'; for 0 'min'."""
    if share == 0:
        return "min"
    digits = f"{share * 100:.6f}".rstrip("0").rstrip(".")
    return f"p{digits}"


def marks_below(largest: float) -> tuple[list[float], list[str]]:
    """Places on the axis and their texts."""
    shares = [share for share in MARKS if 1 / (1 - share) <= largest * 1.05]
    return [1 / (1 - share) for share in shares], [mark_of(share) for share in shares]
