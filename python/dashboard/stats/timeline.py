"""Percentiles over time: the rows of each series in bins of equal length. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

BINS = 240  # of the whole picture; a bin is at least 10 ms
MIN_BIN_US = 10_000
PAUSE_BINS = 5  # bins without a request, from which on the line is interrupted
# Rounded up to one of these, so that an axis has lengths that people use.
NICE_US = [m * 10**e for e in range(4, 12) for m in (1, 2, 5)]


@dataclass(frozen=True)
class Timeline:
    key: tuple[str, ...]
    frame: pl.DataFrame  # time, requests, per_second, errors, p50, p99, max

    @property
    def label(self) -> str:
        return " · ".join(self.key)


def bin_width_us(first_us: int, last_us: int) -> int:
    wanted = max((last_us - first_us) / BINS, MIN_BIN_US)
    return next((width for width in NICE_US if width >= wanted), NICE_US[-1])


def timelines(
    rows: pl.LazyFrame, keys: Sequence[str], since_start: bool
) -> tuple[list[Timeline], int]:
    """And the width of the bins, us. `since_start`: each run from its own first request on."""
    time = pl.col("time").dt.timestamp("us")
    if since_start:
        time = time - time.min().over([*dict.fromkeys([*keys, "run"])])
    rows = rows.with_columns(at=time)
    first, last = rows.select(pl.col("at").min(), pl.col("at").max().alias("last")).collect().row(0)
    if first is None:
        return [], MIN_BIN_US
    width = bin_width_us(first, last)
    total = pl.col("total_us")
    frame = (
        rows.group_by([*keys, (pl.col("at") // width).alias("bin")])
        .agg(
            pl.len().alias("requests"),
            (pl.col("status") >= 400).sum().alias("errors"),
            total.quantile(0.5, "higher").alias("p50"),
            total.quantile(0.99, "higher").alias("p99"),
            total.max().alias("max"),
        )
        .with_columns(pl.col(key).cast(pl.String()).fill_null("") for key in keys)
        .with_columns(
            time=pl.col("bin") * width,
            per_second=pl.col("requests") * (1e6 / width),
        )
        .sort([*keys, "bin"])
        .collect()
    )
    parts = with_gaps(frame, keys).partition_by(list(keys), as_dict=True, maintain_order=True)
    return [Timeline(tuple(map(str, key)), part) for key, part in parts.items()], width


def with_gaps(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """A row without values where a series pauses for long, so that no line is drawn over it."""
    pauses = (pl.col("bin").diff() > PAUSE_BINS).fill_null(False).over(list(keys))
    numbers = [name for name in frame.columns if name not in (*keys, "bin", "time")]
    breaks = frame.filter(pauses).with_columns(
        pl.col("bin") - 1, *(pl.lit(None, frame.schema[name]).alias(name) for name in numbers)
    )
    return pl.concat([frame, breaks]).sort([*keys, "bin"])
