"""Statistics of two contenders that are measured in turns: bench/compare, bench/watching.py and
bench/queue_types.py.

A pair is (A, B), one sample of each from the same moment; B / A is its ratio, so of a cost (time,
CPU) above 1 means that B is dearer. Slices go A B B A: an even drift in time hits both alike.

The interval is Student's t of the mean of the pairs' log ratios. A median or a trimmed mean would
be narrower on a noisy machine, and would hide a cost in few slices (a file that is
flushed once a second): the mean has it. No sample is dropped.

Threads: none; pure functions. Errors: ValueError says which pair has no logarithm, or that there
are too few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

# Where the slices of a block belong: 0 is A, 1 is B.
ABBA = (0, 1, 1, 0)
BAAB = (1, 0, 0, 1)

CONFIDENCE = 0.95
# With fewer, any interval is wide, and the expansion in t_quantile() is off by more than 1 %.
LEAST_PAIRS = 4

FASTER, SLOWER, NOISE = "faster", "slower", "within noise"


def order(block: int) -> tuple[int, int, int, int]:
    """The slices of the block: it begins with A and with B in turn, so that neither always does."""
    return ABBA if block % 2 == 0 else BAAB


def pair_of(block: int, samples: Sequence[float]) -> tuple[float, float]:
    """The measurements of the four slices of a block, in their order, as one pair of means."""
    who = order(block)
    if len(samples) != len(who):
        raise ValueError(f"block {block} has {len(samples)} samples; wanted {len(who)}")
    a, b = ([s for s, w in zip(samples, who) if w == contender] for contender in (0, 1))
    return fmean(a), fmean(b)


def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Student's t, two-sided, by its expansion around the normal one (Abramowitz, Stegun 26.7.5):
    at 3 degrees 0.7 % below the true one, from 5 on less than 0.2 %."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    n = float(degrees)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def ratio_interval(
    pairs: Sequence[tuple[float, float]], confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """B / A, and the ends of the interval in which it lies with this confidence."""
    if len(pairs) < LEAST_PAIRS:
        raise ValueError(f"{len(pairs)} pairs; wanted at least {LEAST_PAIRS} for an interval")
    for at, (a, b) in enumerate(pairs):
        if not (0 < a < math.inf and 0 < b < math.inf):
            raise ValueError(f"pair {at} is ({a}, {b}); wanted two finite samples above 0")
    logs = [math.log(b / a) for a, b in pairs]
    middle = fmean(logs)
    half = t_quantile(len(logs) - 1, confidence) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def half_width(low: float, high: float) -> float:
    """Of an interval of ratios, as a share: 0.01 is plus or minus 1 %."""
    return math.sqrt(high / low) - 1


def verdict(low: float, high: float, limit: float = 0.0) -> str:
    """Of a ratio of costs. A difference is one where the whole interval lies beyond `limit` (0.02:
    2 %); all else is within noise."""
    if low > 1 + limit:
        return SLOWER
    if high < 1 / (1 + limit):
        return FASTER
    return NOISE
