"""Is one run faster than another? The ratio of two percentiles with an interval, and a verdict.

Requests that follow each other are alike (one stall hits many), so single requests can't be drawn
anew: that would make the interval far too narrow. Whole stretches of time are drawn
instead, a block bootstrap.
Pure, seeded: the same rows give the same interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
BLOCKS = 40  # of a run; the interval needs some dozens, and each should be longer than a stall
MIN_ROWS = 2 * BLOCKS
DRAWS = 2_000
SEED = 14
# Bins of log2(value): 128 an octave is 0.5 % wide, finer than any verdict needs.
BINS_PER_OCTAVE = 128
LOW_BITS, OCTAVES = -10, 44  # from 1 ns to 4.8 hours, in us
# A ratio this near to 1 is of no use to anybody, however sure it is.
NO_MATTER = 0.01

FASTER, SLOWER, NOISE, UNKNOWN = "faster", "slower", "within noise", "too few requests to tell"


@dataclass(frozen=True)
class Verdict:
    """`ratio` is the second over the first: below 1 the second is faster."""

    base: float
    other: float
    ratio: float
    low: float
    high: float
    word: str


def word_of(low: float, high: float) -> str:
    if not (math.isfinite(low) and math.isfinite(high)):
        return UNKNOWN
    if high < 1 - NO_MATTER:
        return FASTER
    if low > 1 + NO_MATTER:
        return SLOWER
    return NOISE


def compare(base: Floats, other: Floats, share: float) -> Verdict:
    """Two runs' values in the order of time."""
    first, second = exact(base, share), exact(other, share)
    ratio = second / first if first else math.nan
    needed = max(MIN_ROWS, math.ceil(10 / (1 - share)))  # ten values above the percentile
    if min(len(base), len(other)) < needed:
        return Verdict(first, second, ratio, math.nan, math.nan, UNKNOWN)
    random = np.random.default_rng(SEED)
    draws = [drawn_percentiles(values, share, random) for values in (base, other)]
    low, high = np.quantile(draws[1] / draws[0], [0.025, 0.975])
    return Verdict(first, second, ratio, float(low), float(high), word_of(float(low), float(high)))


def exact(values: Floats, share: float) -> float:
    if not len(values):
        return math.nan
    rank = min(max(math.ceil(share * len(values) - 1e-9), 1), len(values)) - 1
    return float(np.partition(values, rank)[rank])


def drawn_percentiles(values: Floats, share: float, random: np.random.Generator) -> Floats:
    """The percentile of DRAWS runs that are made of this one's blocks."""
    counts = block_counts(values)
    weights = random.multinomial(BLOCKS, [1 / BLOCKS] * BLOCKS, size=DRAWS).astype(np.float64)
    sums = np.cumsum(weights @ counts, axis=1)
    wanted = np.ceil(share * sums[:, -1:] - 1e-9)
    bins = (sums < wanted).sum(axis=1)
    first = int(np.floor(math.log2(max(float(values.min()), 2.0**LOW_BITS)) * BINS_PER_OCTAVE))
    return np.exp2((bins + first + 0.5) / BINS_PER_OCTAVE)


def block_counts(values: Floats) -> npt.NDArray[np.float64]:
    """A histogram of each block, over the bins from the smallest value to the largest."""
    logs = np.log2(np.clip(values, 2.0**LOW_BITS, 2.0 ** (LOW_BITS + OCTAVES)))
    bins = np.floor(logs * BINS_PER_OCTAVE).astype(np.int64)
    bins -= bins.min()
    width = int(bins.max()) + 1
    block = np.arange(len(values)) * BLOCKS // len(values)
    flat = np.bincount(block * width + bins, minlength=BLOCKS * width)
    return flat.reshape(BLOCKS, width).astype(np.float64)
