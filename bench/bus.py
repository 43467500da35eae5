#!/usr/bin/env python3
"""The question: what do two processes get through shared memory, against the best that there is?

  stream        process on CPU 0 --> process on CPU 1, each byte written and each byte read
  round trip    CPU 0 --> CPU 1 --> CPU 0, 32 bytes, both spinning; and both sleeping in between
  request       the same by request and reply; its limit is the plain round trip of the same run
  frames        C++ on CPU 0 --> NumPy on CPU 1, which multiplies each 256 frames f32[256] by a
                matrix; the limit is NumPy alone. Before, every bit of them is compared
  waits         the same with a publisher that waits for room in other ways

Rivals: Tachyon (its C face), iceoryx2 (its crate) and Aeron IPC; pipe, unix socket and boost's
message queue are those of the system. Near or far is probed around each measurement.

  bench/bus.py [--quick] [--json] [--rounds N] [--only REGEX]     stdout is one JSON object, the
                                                                  table is on stderr
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path += [str(BENCH / "queue"), str(BENCH / "rivals")]
from build_bus import build_aeron, build_iceoryx2, build_tachyon, install_python  # noqa: E402
from interleave import (  # noqa: E402
    KINDS,
    ROOT,
    Contender,
    Row,
    measure,
    program,
    result,
    results,
    show,
)

# Messages of a measurement, so many that each takes some tenths of a second.
STREAMS = {
    32: {
        **{"lumen": 30e6, "tachyon": 30e6, "aeron": 10e6, "iceoryx2": 2e6},
        **{"pipe": 5e6, "socket": 5e6, "boost": 1e6},
    },
    1024: {
        **{"lumen": 8e6, "tachyon": 8e6, "aeron": 3e6, "iceoryx2": 2e6},
        **{"pipe": 1e6, "socket": 1e6, "boost": 1e6},
    },
}
# The option that says how large the ring is; all else has a fixed size and one row.
RINGS = {
    **{"lumen": "--capacity", "tachyon": "--capacity"},
    **{"aeron": "--term", "iceoryx2": "--capacity"},
}
RING_BYTES = {"1 MiB": 1 << 20, "16 MiB": 1 << 24}
TRIPS = {"lumen": 1e6, "lumen call": 1e6, "tachyon": 1e6, "aeron": 1e6, "iceoryx2": 1e6}
PARKED = {"lumen": 10e3, "tachyon": 10e3, "pipe": 10e3, "socket": 10e3}
FRAMES_ROW = Row("f32[256] from C++ to NumPy", "frames_s", "frames/s", True)
FRAMES = 500_000
# Of iceoryx2 for Python, whose producer is Python too.
FEW_FRAMES = 100_000
WAITS = {
    "reserve": "lumen",  # spins, then parks
    "spin": "no flush",
    "flush": "flush in the wait loop",
    "sleep": "10 us sleeps",
    "park": "park at once",
}
NAMES = {"socket": "unix socket", "boost": "boost message_queue"}
QUICK_PART = 0.2


class Rivals:
    """How each contender is started; those that could not be built are missing."""

    def __init__(self) -> None:
        own = str(program("bench_bus"))
        self.commands = {via: [own, "--via", via] for via in ("lumen", "pipe", "socket", "boost")}
        self.commands["lumen call"] = [*self.commands["lumen"], "--row", "call"]
        tachyon = build_tachyon(ROOT / ".build")
        if tachyon is not None:
            self.commands["tachyon"] = [str(tachyon)]
        iceoryx2 = build_iceoryx2(ROOT / ".build")
        if iceoryx2 is not None:
            self.commands["iceoryx2"] = [str(iceoryx2)]
        aeron = build_aeron(ROOT / ".build")
        if aeron is not None:
            self.commands["aeron"] = aeron

    def contenders(
        self, counts: dict[str, float], part: float, arguments: list[str], ring: int
    ) -> list[Contender]:
        found = []
        for name, count in counts.items():
            if name in self.commands:
                # The first of two options with the same name counts.
                command = [*self.commands[name], *arguments, "--count", str(int(count * part))]
                if name in RINGS:
                    command += [RINGS[name], str(ring)]
                found.append(Contender(NAMES.get(name, name), command))
        return found


def trip_rows(name: str) -> list[Row]:
    return [Row(f"{name}, {part}", f"{part}_ns", "ns", False) for part in ("p50", "p99")]


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rounds = options.rounds or (3 if options.quick else 9)
        self.part = QUICK_PART if options.quick else 1.0
        self.rivals = Rivals()
        self.report: list[dict[str, Any]] = []

    def rows(
        self, rows: list[Row], counts: dict[str, float], arguments: list[str], ring: int = 1 << 20
    ) -> list[Contender]:
        """Measures all contenders round by round; several rows may show its results."""
        contenders = self.rivals.contenders(counts, self.part, arguments, ring)
        measure(contenders, self.rounds)
        ours = next(c for c in contenders if c.name == "lumen")
        rivals = [c for c in contenders if not c.name.startswith("lumen")]
        for row in rows:
            if not self.options.json:
                show(row, contenders, ours.name)
            self.report += results("bus", row, ours, rivals)
        return contenders

    def keep(self, line: dict[str, Any] | None) -> None:
        if line is not None:
            self.report.append(line)

    def streams(self) -> None:
        for size, counts in STREAMS.items():
            for ring, ring_bytes in RING_BYTES.items():
                row = Row(f"stream {size} B, ring of {ring}", "mops", "M/s", True)
                arguments = ["--row", "stream", "--bytes", str(size)]
                self.rows([row], counts, arguments, ring_bytes)
                # The others have no ring.
                counts = {name: counts[name] for name in RINGS}

    def trips(self) -> None:
        rows = trip_rows("round trip 32 B")
        # A small ring stays in the caches: 250 instead of 330 ns at the 99th percentile, for all.
        contenders = self.rows(rows, TRIPS, ["--row", "trip"], 1 << 16)
        plain, call = (next(c for c in contenders if c.name == n) for n in ("lumen", "lumen call"))
        for kind in KINDS:
            if plain.counts(kind):
                limit = round(median(plain.values("p50_ns", kind)), 3)
                row = Row("request and reply 32 B", "p50_ns", "ns", False, limit)
                self.keep(result("bus", row, kind, call, []))

    def parked(self) -> None:
        rows = trip_rows("round trip 32 B, parked")
        self.rows(rows, PARKED, ["--row", "trip", "--parked", "1"])

    def frames_by(
        self, name: str, via: str, count: int, producer: list[str], checked: bool = True
    ) -> Contender:
        """Compares every bit first, if it is to be checked."""
        words = [sys.executable, "-P", str(BENCH / "bus" / "frames.py"), "--via", via]
        words += ["--count", str(count)]
        contender = Contender(name, [*words, "--", *producer])
        check = [*words, "--check", "--", *producer]
        if checked and subprocess.run(check, stdout=subprocess.DEVNULL).returncode != 0:
            contender.failed = "frames were lost or wrong"
            print(f"bench: {name} left out: {contender.failed}", file=sys.stderr)
        return contender

    def frames(self) -> None:
        install_python(ROOT / ".build")
        count, few = int(FRAMES * self.part), int(FEW_FRAMES * self.part)
        own = self.rivals.commands["lumen"]
        bound = self.frames_by("NumPy alone", "bound", count, [], checked=False)
        contenders = [
            self.frames_by("lumen", "view", count, own),
            self.frames_by("lumen read_into", "read_into", count, own),
            self.frames_by("iceoryx2, Python producer", "iceoryx2", few, []),
        ]
        if "tachyon" in self.rivals.commands:
            theirs = self.rivals.commands["tachyon"]
            contenders.append(self.frames_by("tachyon", "tachyon", count, theirs))
        measure([bound, *contenders], self.rounds)
        for kind in KINDS:
            if not bound.counts(kind):
                continue
            limit = round(median(bound.values("frames_s", kind)), 3)
            row = replace(FRAMES_ROW, limit=limit)
            self.keep(result("bus", row, kind, contenders[0], contenders[2:]))
        if not self.options.json:
            show(FRAMES_ROW, [bound, *contenders], "lumen")

    def waits(self) -> None:
        count = int(FRAMES * self.part)
        own = self.rivals.commands["lumen"]
        contenders = [
            self.frames_by(name, "view", count, [*own, "--wait", wait])
            for wait, name in WAITS.items()
        ]
        measure(contenders, self.rounds)
        row = replace(FRAMES_ROW, name=f"{FRAMES_ROW.name}, how the publisher waits")
        if not self.options.json:
            show(row, contenders, "lumen")
        self.report += results("bus", row, contenders[0], contenders[1:])


PARTS: dict[str, Callable[[Bench], None]] = {
    "streams": Bench.streams,
    "trips": Bench.trips,
    "parked": Bench.parked,
    "frames": Bench.frames,
    "waits": Bench.waits,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, 3 rounds")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}, those that match")
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    bench = Bench(options)
    for name, part in PARTS.items():
        if re.search(options.only, name):
            part(bench)
    print(json.dumps({"rows": bench.report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
