"""The knee of throughput against latency: where more clients begin to buy only waiting. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def knee(points: Sequence[tuple[float, float]]) -> int | None:
    """Which (throughput, latency) has the most throughput for its latency, Kleinrock's power.

    None where there is no curve: fewer than three points.
    """
    powers = [rate / latency if latency > 0 else 0.0 for rate, latency in points]
    if len(points) < 3 or max(powers) <= 0:
        return None
    return powers.index(max(powers))
