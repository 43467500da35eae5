"""Looks at one server again and again, and notices when it ends or is replaced by another.

Threads: one at a time. Errors: CountersFileError from the constructor; later ones are in `trouble`.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from lumen_engine.counters_file import CountersFile, CountersFileError, Snapshot, find
from lumen_engine.top.process import read_process
from lumen_engine.top.view import Look, View, requests_of, view_of

# Rates and percentiles are of the last second at least: at 10 Hz an interval holds too few requests
# for a p99.
LEAST_SPAN_NS = 1_000_000_000
SPARK_VALUES = 120
NOTE_S = 10.0  # long enough to be read


class Watcher:
    """`follow`: a server that ends may be replaced by any other of this user's that runs then."""

    def __init__(self, path: Path, *, follow: bool = False) -> None:
        self.counters = CountersFile(path)
        self._follow = follow
        self._looks: deque[Look] = deque()
        self.rates: dict[tuple[str, str], deque[float]] = {}  # requests/s of each look, by model
        self.trouble = ""  # the last look's error; empty: none
        self._replaced: tuple[int, float] | None = None  # the process before, and when it went

    @property
    def path(self) -> Path:
        return self.counters.path

    def look(self) -> View | None:
        """The counts since about a second ago; None for the first look, or while none succeeds."""
        self._replace()
        try:
            now = self._look()
        except CountersFileError as error:
            self.trouble = str(error)
            return None
        self.trouble = ""
        if self._looks:
            self._note_rates(self._looks[-1].counts, now.counts)
        self._looks.append(now)
        # The newest look that is old enough stays as the base.
        while len(self._looks) > 2 and _apart(self._looks[1], now) >= LEAST_SPAN_NS * 0.95:
            self._looks.popleft()
        return view_of(self._looks[0], now) if len(self._looks) > 1 else None

    def note(self) -> str:
        """For a while after a change: that this is another server than before."""
        if self._replaced is None or time.monotonic() - self._replaced[1] > NOTE_S:
            return ""
        return f"lumen {self._replaced[0]} has ended; this is lumen {self.counters.layout.pid}"

    def uptime_s(self) -> float:
        return max(0, time.monotonic_ns() - self.counters.layout.started_monotonic_ns) / 1e9

    def is_alive(self) -> bool:
        return bool(self._looks) and self._looks[-1].counts.is_alive

    def close(self) -> None:
        self.counters.close()

    def _look(self) -> Look:
        counts = self.counters.snapshot()
        layout = self.counters.layout
        process = read_process(layout.pid, layout.start_ticks) if counts.is_alive else None
        return Look(counts, process)

    def _note_rates(self, before: Snapshot, now: Snapshot) -> None:
        seconds = max(now.monotonic_ns - before.monotonic_ns, 1) / 1e9
        earlier = {model.key: requests_of(model) for model in before.models}
        here = {
            (model.name, model.version): (requests_of(model) - earlier.get(model.key, 0)) / seconds
            for model in now.models
        }
        for key, rate in here.items():
            self.rates.setdefault(key, deque(maxlen=SPARK_VALUES)).append(rate)
        for key in self.rates.keys() - here.keys():
            del self.rates[key]

    def _replace(self) -> None:
        """Opens the file of the server's successor once there is one; until then keeps the old."""
        if self.counters.is_alive():
            return
        path = self.path
        if not self.counters.was_replaced():
            path = self._other() or path
        elif not path.exists():
            path = self._other() or path
        if path == self.path and not (self.counters.was_replaced() and path.exists()):
            return
        try:
            other = CountersFile(path)
        except CountersFileError as error:
            self.trouble = str(error)
            return
        self._replaced = self.counters.layout.pid, time.monotonic()
        self.counters.close()
        self.counters = other
        self._looks.clear()
        self.rates.clear()

    def _other(self) -> Path | None:
        if not self._follow:
            return None
        return next((server.path for server in find() if server.is_alive), None)


def _apart(first: Look, second: Look) -> int:
    return second.counts.monotonic_ns - first.counts.monotonic_ns
