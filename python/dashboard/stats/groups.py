"""Sorted columns of each series, and their figures: percentiles, throughput.

Pure. A percentile is the smallest value that so many of the values do not exceed (nearest rank): a
value that was measured, and the same that `sorted(values)[ceil(p * n) - 1]` gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float32]
# Requests of a series that are further apart do not belong to one stretch of load.
PAUSE_S = 1
LOAD_COLUMNS = ("run", "time", "status", "connect_us", "total_us")  # those that loads() reads


@dataclass(frozen=True)
class Series:
    """One line of a picture."""

    key: tuple[str, ...]
    values: Floats  # sorted, without nulls

    @property
    def label(self) -> str:
        return " · ".join(self.key)

    def percentile(self, share: float) -> float:
        return percentile(self.values, share)


def percentile(values: Floats, share: float) -> float:
    """Nearest rank; NaN of nothing."""
    if not len(values):
        return math.nan
    # 0.99 * 100 is 99.00000000000001 in doubles: without the slack the rank would be 100.
    rank = math.ceil(share * len(values) - 1e-9)
    return float(values[min(max(rank, 1), len(values)) - 1])


def split_sorted(rows: pl.LazyFrame, keys: Sequence[str], column: str) -> list[Series]:
    """The column of each combination of keys, sorted, in the keys' order."""
    named = [pl.col(key).cast(pl.String()).fill_null("") for key in keys]
    grouped = rows.group_by(list(keys)).agg(pl.col(column).drop_nulls().sort())
    found = grouped.with_columns(named).collect().sort(list(keys))
    return [
        Series(tuple(row), found[column][place].to_numpy())
        for place, row in enumerate(found.select(list(keys)).iter_rows())
        if len(found[column][place])
    ]


@dataclass(frozen=True)
class Load:
    """How much of a series came, and how long that took."""

    key: tuple[str, ...]
    requests: int
    errors: int  # a status of 400 or more
    mean_us: float
    kept: int  # requests on a connection that was there before
    active_s: float  # of those

    @property
    def per_second(self) -> float:
        return self.kept / self.active_s if self.active_s > 0 else math.nan


def loads(rows: pl.LazyFrame, keys: Sequence[str]) -> list[Load]:
    """Requests, and the time from a stretch's first byte read to its last byte written.

    Runs are taken apart, and so are stretches of a series between which whole seconds have none of
    its requests: pauses are no load. Nor are requests that open a connection each: what limits
    them is the kernel's connecting, so only those on kept connections have a rate.
    """
    stretch = [*dict.fromkeys([*keys, "run"])]
    is_kept = pl.col("connect_us").is_null()
    begin = pl.col("time").dt.timestamp("us")
    end = begin + pl.col("total_us").cast(pl.Int64())
    seconds = (
        rows.with_columns(second=begin // 1_000_000)
        .group_by([*stretch, "second"])
        .agg(
            pl.len().alias("requests"),
            (pl.col("status") >= 400).sum().alias("errors"),
            pl.col("total_us").cast(pl.Float64()).sum().alias("sum_us"),
            is_kept.sum().alias("kept"),
            begin.filter(is_kept).min().alias("begin"),
            end.filter(is_kept).max().alias("end"),
        )
        .with_columns(pl.col(key).cast(pl.String()).fill_null("") for key in stretch)
        .sort([*stretch, "second"])
    )
    apart = (pl.col("second").diff() > PAUSE_S).fill_null(True).cum_sum().over(stretch)
    spans = (
        seconds.filter(pl.col("kept") > 0)
        .with_columns(apart.alias("part"))
        .group_by([*stretch, "part"])
        .agg(((pl.col("end").max() - pl.col("begin").min()) / 1e6).alias("active_s"))
        .group_by(list(keys))
        .agg(pl.col("active_s").sum())
    )
    found = (
        seconds.group_by(list(keys))
        .agg(pl.col("requests", "errors", "sum_us", "kept").sum())
        .join(spans, on=list(keys), how="left")
        .with_columns(pl.col("active_s").fill_null(0.0))
        .sort(list(keys))
        .collect()
    )
    figures = found.select([*keys, "requests", "errors", "sum_us", "kept", "active_s"])
    return [
        Load(tuple(key), requests, errors, sum_us / requests, kept, active_s)
        for *key, requests, errors, sum_us, kept, active_s in figures.iter_rows()
    ]
