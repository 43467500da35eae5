"""Times of calls in this process, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def p50_us(call: Callable[[], object], seconds: float, least: int = 3) -> float:
    """Of the calls of so many seconds, `least` of them at least."""
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < least:
        begin = time.monotonic()
        call()
        times.append((time.monotonic() - begin) * 1e6)
    return median(times)
