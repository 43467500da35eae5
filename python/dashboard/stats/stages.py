"""Where the time goes: the mean of each stage, of all requests or of the slowest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ..sources.telemetry_csv import STAGES

# `connect` is before the first byte and `total` is the sum.
PARTS = tuple(stage for stage in STAGES if stage not in ("connect", "total"))
REST = "between stages"


@dataclass(frozen=True)
class StageMeans:
    key: tuple[str, ...]
    requests: int
    total_us: float
    parts_us: dict[str, float]  # a stage that a request did not have counts as 0

    @property
    def label(self) -> str:
        return " · ".join(self.key)


def stage_means(rows: pl.LazyFrame, keys: Sequence[str], slowest: float | None) -> list[StageMeans]:
    """`slowest`: a share, such as 0.01, of each series; None: all."""
    if slowest is not None:
        limit = pl.col("total_us").quantile(1 - slowest, "higher").over(list(keys))
        rows = rows.filter(pl.col("total_us") >= limit)
    sums = [pl.col(f"{name}_us").cast(pl.Float64()).sum() for name in (*PARTS, "total")]
    found = (
        rows.group_by(list(keys))
        .agg(pl.len().alias("requests"), *sums)
        .with_columns(pl.col(key).cast(pl.String()).fill_null("") for key in keys)
        .sort(list(keys))
        .collect()
    )
    means = []
    for row in found.iter_rows(named=True):
        count = row["requests"]
        parts = {name: row[f"{name}_us"] / count for name in PARTS}
        total = row["total_us"] / count
        parts[REST] = max(total - sum(parts.values()), 0.0)
        means.append(StageMeans(tuple(row[key] for key in keys), count, total, parts))
    return means
