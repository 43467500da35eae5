"""A running server through its counters file: the counts since the last look, and a short history.

Threads: any; one looks at a time, and sessions that look at the same moment share the look.
Memory: the last snapshot and HISTORY points a model. Errors: `problem`, a sentence; never raised.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from lumen_engine.counters_file import CountersFile, CountersFileError, ModelCounts, Role, Snapshot

HISTORY = 180  # points: 3 minutes at a look a second
FRESH_S = 0.4


@dataclass(frozen=True)
class ModelPoint:
    """A model's counts between two looks."""

    at: float  # seconds since the epoch
    per_second: float
    failed_per_second: float
    p50_us: float  # NaN: no request ended
    p99_us: float
    p999_us: float
    queued: int
    rows_per_inference: float
    cache_hit_share: float  # NaN: no lookup


@dataclass(frozen=True)
class ModelView:
    name: str
    version: str
    points: tuple[ModelPoint, ...]
    stages_us: dict[str, float]  # means of the last minute's requests, in the server's order
    failures: dict[str, int]  # by reason, since the server's start
    counters: dict[str, int]
    rates: dict[str, float]  # of its counters, between the last two looks


@dataclass(frozen=True)
class ThreadView:
    name: str
    busy: float  # shares of the time between two looks
    spin: float
    park: float


@dataclass(frozen=True)
class LiveView:
    at: float
    is_alive: bool
    interval_s: float  # 0: the first look
    models: tuple[ModelView, ...]
    threads: tuple[ThreadView, ...]
    server: dict[str, int]
    server_rates: dict[str, float]


@dataclass
class _Model:
    points: deque[ModelPoint] = field(default_factory=lambda: deque(maxlen=HISTORY))
    # Snapshots of the histograms some looks ago, for means that do not jump.
    older: deque[ModelCounts] = field(default_factory=lambda: deque(maxlen=5))


class LiveServer:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._lock = threading.Lock()
        self._file: CountersFile | None = None
        self._last: Snapshot | None = None
        self._models: dict[tuple[int, int], _Model] = {}
        self._view: LiveView | None = None

    def look(self) -> LiveView | None:
        """None: there is nothing to see; `problem` says why."""
        with self._lock:
            if self._view and time.time() - self._view.at < FRESH_S:
                return self._view
            try:
                self._view = self._look()
                self.problem = ""
            except (CountersFileError, OSError) as error:
                self.problem = str(error)
                self._close()
            return self._view

    def _look(self) -> LiveView:
        if self._file is not None and not self._file.is_alive() and self._file.was_replaced():
            self._close()  # another server has begun under this name
        if self._file is None:
            self._file = CountersFile(self.path)
        now, before = self._file.snapshot(), self._last
        self._last = now
        interval = (now.monotonic_ns - before.monotonic_ns) / 1e9 if before else 0.0
        earlier = {model.key: model for model in before.models} if before else {}
        models = [self._model(model, earlier.get(model.key), now, interval) for model in now.models]
        there = {model.key for model in now.models}
        self._models = {key: kept for key, kept in self._models.items() if key in there}
        return LiveView(
            now.wall_ns / 1e9, now.is_alive, interval, tuple(models),
            tuple(threads(before, now)), now.server,
            rates(before.server if before else {}, now.server, interval),
        )  # fmt: skip

    def _model(
        self, now: ModelCounts, before: ModelCounts | None, snapshot: Snapshot, interval: float
    ) -> ModelView:
        kept = self._models.setdefault(now.key, _Model())
        if before is not None and interval > 0:
            kept.points.append(point_between(before, now, snapshot.wall_ns / 1e9, interval))
        since = kept.older[0] if kept.older else None
        kept.older.append(now)
        stages = {}
        for name, histogram in now.stages.items():
            recent = histogram - since.stages[name] if since else histogram
            stages[name] = recent.sum / 1e3
        requests = max((now.stages["total"] - since.stages["total"]).count, 1) if since else max(
            now.stages["total"].count, 1
        )  # fmt: skip
        failures = {
            name.removeprefix("failed_"): value
            for name, value in now.counters.items()
            if name.startswith("failed_") and value
        }
        return ModelView(
            now.name, now.version, tuple(kept.points),
            {name: us / requests for name, us in stages.items()}, failures, now.counters,
            rates(before.counters if before else {}, now.counters, interval),
        )  # fmt: skip

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._last = self._view = None
        self._models = {}


def rates(before: dict[str, int], now: dict[str, int], interval: float) -> dict[str, float]:
    if interval <= 0:
        return {}
    return {name: (now[name] - before[name]) / interval for name in now if name in before}


def point_between(before: ModelCounts, now: ModelCounts, at: float, interval: float) -> ModelPoint:
    def grew(name: str) -> int:
        return max(now.counters.get(name, 0) - before.counters.get(name, 0), 0)

    total = now.stages["total"] - before.stages["total"]
    nan = float("nan")
    p50, p99, p999 = (
        (total.percentile(p) / 1e3 for p in (50, 99, 99.9)) if total.count else (nan, nan, nan)
    )
    looked = grew("cache_hit") + grew("cache_miss") + grew("cache_shared")
    answered = grew("cache_hit") + grew("cache_shared")
    runs = grew("execution")
    return ModelPoint(
        at,
        (grew("success") + grew("failure")) / interval,
        grew("failure") / interval,
        p50, p99, p999,
        now.counters.get("queued", 0),
        grew("inference") / runs if runs else nan,
        answered / looked if looked else nan,
    )  # fmt: skip


def threads(before: Snapshot | None, now: Snapshot) -> list[ThreadView]:
    """Busy, spinning and parked, of each I/O thread and worker that runs."""
    earlier = {writer.index: writer for writer in before.writers} if before else {}
    found = []
    for writer in now.writers:
        old = earlier.get(writer.index)
        if not writer.is_taken or writer.role == Role.MOMENT or old is None:
            continue
        times = (
            writer.busy_ns - old.busy_ns, writer.spin_ns - old.spin_ns, writer.park_ns - old.park_ns
        )  # fmt: skip
        spent = [max(part, 0) for part in times]
        if total := sum(spent):
            role = "I/O thread" if writer.role == Role.IO_THREAD else "worker"
            shares = [part / total for part in spent]
            found.append(
                (writer.role, writer.number, ThreadView(f"{role} {writer.number}", *shares))
            )
    return [view for _, _, view in sorted(found, key=lambda each: each[:2])]
