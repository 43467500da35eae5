#!/usr/bin/env python3
"""The question: what do two processes get through shared memory, against the best that there is?

  stream        process on CPU 0 --> process on CPU 1, each byte written and each byte read
  round trip    CPU 0 --> CPU 1 --> CPU 0, 32 bytes, both spinning; and both sleeping in between
  request       the same by request and reply; its limit is the plain round trip of the same run

Rivals: Tachyon (its C face) and Aeron IPC; pipe, unix socket and boost's message queue are what
the system has. Near or far is probed around each measurement.

  bench/bus.py [--quick] [--json] [--rounds N] [--only REGEX]     stdout is one JSON object, the
                                                                  table is on stderr
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path += [str(BENCH / "queue"), str(BENCH / "rivals")]
from build_bus import build_aeron, build_tachyon  # noqa: E402
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
    32: {"lumen": 30e6, "tachyon": 30e6, "aeron": 10e6, "pipe": 5e6, "socket": 5e6, "boost": 1e6},
    1024: {"lumen": 8e6, "tachyon": 8e6, "aeron": 3e6, "pipe": 1e6, "socket": 1e6, "boost": 1e6},
}
TRIPS = {"lumen": 1e6, "lumen call": 1e6, "tachyon": 1e6, "aeron": 1e6}
PARKED = {"lumen": 10e3, "tachyon": 10e3, "pipe": 10e3, "socket": 10e3}
NAMES = {"socket": "unix socket", "boost": "boost message_queue"}
QUICK_PART = 0.2


class Rivals:
    """How each contender is started; those that could not be built are missing."""

    def __init__(self) -> None:
        own = str(program("bench_bus"))
        self.commands = {via: [own, "--via", via] for via in ("lumen", "pipe", "socket", "boost")}
        self.commands["lumen call"] = self.commands["lumen"]
        tachyon = build_tachyon(ROOT / ".build")
        if tachyon is not None:
            self.commands["tachyon"] = [str(tachyon)]
        aeron = build_aeron(ROOT / ".build")
        if aeron is not None:
            self.commands["aeron"] = aeron

    def contenders(
        self, counts: dict[str, float], part: float, arguments: list[str]
    ) -> list[Contender]:
        found = []
        for name, count in counts.items():
            if name in self.commands:
                row = ["--row", "call"] if name == "lumen call" else []
                command = [
                    *self.commands[name],
                    *row,
                    *arguments,
                    "--count",
                    str(int(count * part)),
                ]
                found.append(Contender(NAMES.get(name, name), command))
        return found


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rounds = options.rounds or (2 if options.quick else 9)
        self.part = QUICK_PART if options.quick else 1.0
        self.rivals = Rivals()
        self.report: list[dict[str, Any]] = []

    def rows(
        self, rows: list[Row], counts: dict[str, float], arguments: list[str]
    ) -> list[Contender]:
        """Measures all contenders round by round; several rows may show what came of it."""
        contenders = self.rivals.contenders(counts, self.part, arguments)
        measure(contenders, self.rounds)
        ours = next(c for c in contenders if c.name == "lumen")
        rivals = [c for c in contenders if not c.name.startswith("lumen")]
        for row in rows:
            if not self.options.json:
                show(row, contenders, ours.name)
            self.report += results("bus", row, ours, rivals)
        return contenders

    def streams(self) -> None:
        for size, counts in STREAMS.items():
            row = Row(f"stream {size} B", "mops", "M/s", True)
            self.rows([row], counts, ["--row", "stream", "--bytes", str(size)])

    def trips(self) -> None:
        name = "round trip 32 B"
        rows = [Row(name, metric, "ns", False) for metric in ("p50_ns", "p99_ns")]
        contenders = self.rows(rows, TRIPS, ["--row", "trip"])
        plain, call = (next(c for c in contenders if c.name == n) for n in ("lumen", "lumen call"))
        for kind in KINDS:
            if plain.counts(kind):
                limit = round(median(plain.values("p50_ns", kind)), 3)
                row = Row("request and reply 32 B", "p50_ns", "ns", False, limit)
                line = result("bus", row, kind, call, [])
                self.report += [] if line is None else [line]

    def parked(self) -> None:
        rows = [
            Row("round trip 32 B, parked", metric, "ns", False) for metric in ("p50_ns", "p99_ns")
        ]
        self.rows(rows, PARKED, ["--row", "trip", "--parked", "1"])


PARTS: dict[str, Callable[[Bench], None]] = {
    "streams": Bench.streams,
    "trips": Bench.trips,
    "parked": Bench.parked,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, two rounds")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}, those that match")
    options = parser.parse_args()
    bench = Bench(options)
    for name, part in PARTS.items():
        if re.search(options.only, name):
            part(bench)
    print(json.dumps({"rows": bench.report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
