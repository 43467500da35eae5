"""Finds where the clock of a telemetry CSV was set: `timestamp` is wall time, the stages are not.

Requests are written as they end, so their ends rise. Where an end lies before the one of the line
above by more than buffers can explain, the clock was set back. Of one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

# Lines of two I/O threads may stand 200 ms apart (a buffer's flush); a step below a second is not
# seen.
BACK_S = 1.0
# A server may be idle for as long; from here on the file is said to have a gap.
GAP_S = 600.0
KEPT = 50  # places that are shown; more are counted


@dataclass(frozen=True)
class ClockStep:
    row: int
    at: datetime  # the end of the request before it, by the old clock
    seconds: float  # below zero: set back; above: set forward, or nobody asked


class ClockWatch:
    """Looks at the blocks of one file, in its order."""

    def __init__(self) -> None:
        self.steps: list[ClockStep] = []
        self.count = 0
        self._last_us: int | None = None

    def look(self, frame: pl.DataFrame, first_row: int) -> None:
        ends = frame.select(
            pl.col("time").dt.timestamp("us") + pl.col("total_us").cast(pl.Int64)
        ).to_series()
        values = ends.to_numpy()
        if self._last_us is not None:
            values = np.concatenate([[self._last_us], values])
            first_row -= 1
        self._last_us = int(values[-1])
        moves = np.diff(values) / 1e6
        places = np.flatnonzero((moves < -BACK_S) | (moves > GAP_S))
        self.count += len(places)
        for place in places[: KEPT - len(self.steps)].tolist():
            at = datetime(1970, 1, 1) + timedelta(microseconds=int(values[place]))
            self.steps.append(ClockStep(first_row + place + 1, at, float(moves[place])))

    @property
    def back(self) -> list[ClockStep]:
        return [step for step in self.steps if step.seconds < 0]
