"""Histogram: durations in log-linear buckets, as the server counts them, in NumPy.

The same layout and the same percentiles as include/lumen/telemetry/histogram.h: the server's
figures and those of a reader of the counters file agree to the bit. Histograms are added up
(shards, models) and subtracted (the time between two looks). Pure. Errors: ValueError for
histograms of different layouts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from lumen_engine._counters_layout import Words

U64 = (1 << 64) - 1


@cache
def middles(sub_bits: int, value_bits: int) -> Words:
    """The middle of each bucket."""
    number = np.arange((value_bits - sub_bits + 1) << sub_bits, dtype=np.uint64)
    one, shift = np.uint64(1), np.uint64(sub_bits)
    octave = np.maximum(number >> shift, one) - one
    lowest = (number - (octave << shift)) << octave
    return lowest + ((one << octave) >> one)


@cache
def lowests(sub_bits: int, value_bits: int) -> Words:
    """The smallest value of each bucket."""
    number = np.arange((value_bits - sub_bits + 1) << sub_bits, dtype=np.uint64)
    one, shift = np.uint64(1), np.uint64(sub_bits)
    octave = np.maximum(number >> shift, one) - one
    return (number - (octave << shift)) << octave


def bucket_of(value: int, sub_bits: int, value_bits: int) -> int:
    value = min(value, (1 << value_bits) - 1)
    octave = max(value.bit_length() - sub_bits - 1, 0)
    return (octave << sub_bits) + (value >> octave)


@dataclass(frozen=True, eq=False)
class Histogram:
    """`least` and `most` are exact; of a difference they are the bounds of its outer buckets."""

    counts: Words
    sum: int = 0  # ns
    least: int = 0
    most: int = 0
    sub_bits: int = 6
    value_bits: int = 40

    @staticmethod
    def empty(sub_bits: int = 6, value_bits: int = 40) -> Histogram:
        buckets = (value_bits - sub_bits + 1) << sub_bits
        zeroes = np.zeros(buckets, dtype=np.uint64)
        return Histogram(zeroes, sub_bits=sub_bits, value_bits=value_bits)

    @cached_property
    def _running(self) -> Words:
        return np.cumsum(self.counts, dtype=np.uint64)

    @property
    def count(self) -> int:
        return int(self._running[-1])

    @property
    def mean(self) -> float:
        """ns; 0 when nothing was recorded."""
        return self.sum / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """The value, in ns, that `percent` (0 to 100) of the recorded ones do not exceed.

        The middle of its bucket, within [least, most]; 0 when nothing was recorded.
        """
        total = self.count
        if total == 0:
            return 0
        share = min(max(percent, 0.0), 100.0) / 100.0 * total
        # A hair less: 55 % of 100 comes out as 55.000000000000007, and its ceiling is not 56.
        rank = min(max(1, math.ceil(share * (1 - 1e-12))), total)
        bucket = int(np.searchsorted(self._running, np.uint64(rank)))
        middle = int(middles(self.sub_bits, self.value_bits)[bucket])
        return min(max(middle, self.least), max(self.least, self.most))

    def count_above(self, value: int) -> int:
        """How many lie in buckets above that of `value`."""
        return self.count - int(self._running[bucket_of(value, self.sub_bits, self.value_bits)])

    def __add__(self, other: Histogram) -> Histogram:
        self._must_match(other)
        if other.count == 0:
            return self
        if self.count == 0:
            return other
        least, most = min(self.least, other.least), max(self.most, other.most)
        added = self.counts + other.counts
        return Histogram(
            added, self.sum + other.sum & U64, least, most, self.sub_bits, self.value_bits
        )

    def __sub__(self, earlier: Histogram) -> Histogram:
        """The values recorded since `earlier`, of the same histogram.

        A bucket that went down (a look may miss a value that another thread is just counting)
        counts 0.
        """
        self._must_match(earlier)
        if not earlier._running[-1]:
            return self
        counts = np.where(self.counts > earlier.counts, self.counts - earlier.counts, np.uint64(0))
        used = np.flatnonzero(counts)
        if not len(used):
            return Histogram(counts, 0, 0, 0, self.sub_bits, self.value_bits)
        low = lowests(self.sub_bits, self.value_bits)
        last = int(used[-1])
        end = int(low[last + 1]) - 1 if last + 1 < len(low) else self.most
        # The earlier extremes may not be in the difference; its buckets bound it.
        least = max(self.least, int(low[used[0]]))
        most = max(least, min(self.most, end))
        total = max(0, self.sum - earlier.sum)
        return Histogram(counts, total, least, most, self.sub_bits, self.value_bits)

    def _must_match(self, other: Histogram) -> None:
        mine, theirs = (self.sub_bits, self.value_bits), (other.sub_bits, other.value_bits)
        if mine != theirs:
            raise ValueError(f"histograms of different layouts: {mine} and {theirs} bits")


def bucket_range(least: int, most: int, sub_bits: int, value_bits: int) -> tuple[int, int]:
    """The buckets from that of `least` to behind that of `most`; all if these make no sense."""
    first = bucket_of(least, sub_bits, value_bits)
    end = bucket_of(most, sub_bits, value_bits) + 1
    return (first, end) if first < end else (0, (value_bits - sub_bits + 1) << sub_bits)
