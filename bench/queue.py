#!/usr/bin/env python3
"""The question: how many messages a second and what round trip, against the best known queues?

  producers (CPU 0, 1) --queue--> consumers (CPU 1, 0)    all spin: a pause, after 64 tries a yield

Rivals from packages: boost.lockfree, moodycamel's ReaderWriterQueue and ConcurrentQueue, oneTBB,
crossbeam (Rust, built for the same CPU), mutex+deque, with and without spinning, and the textbook
Vyukov ring. Batches: copies against copies, spans against spans. A table for each kind of
machine. Absolute figures hold for one machine in one hour; the figure to compare is the ratio,
interleaved round by round in this run.

  bench/queue.py [--quick] [--json] [--rows REGEX]     stdout is one JSON object, the table is on
                                                       stderr
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "queue"))
from interleave import ROOT, Contender, Row, measure, program, results, show  # noqa: E402

BATCHES = (
    ("spsc_copies", "spsc batch of 256, copies"),
    ("spsc_spans", "spsc batch of 256, spans"),
    ("mpmc_copies", "mpmc batch of 256, copies"),
)


def build_crossbeam() -> Path | None:
    """Builds the Rust rival in a copy, so that the tree stays clean. None: no cargo or crates."""
    cargo = shutil.which("cargo")
    if cargo is None:
        print("bench: crossbeam left out: no cargo (apt-get install cargo-web)", file=sys.stderr)
        return None
    copy = ROOT / ".build" / "crossbeam"
    shutil.copytree(ROOT / "bench" / "rivals" / "crossbeam", copy, dirs_exist_ok=True)
    done = subprocess.run(
        [cargo, "build", "--release", "--quiet"],
        cwd=copy,
        stdout=sys.stderr,
        check=False,
        # As our preset `native` has -march=native.
        env={**os.environ, "RUSTFLAGS": "-C target-cpu=native"},
    )
    if done.returncode != 0:
        print("bench: crossbeam left out: cargo failed, see above", file=sys.stderr)
        return None
    return copy / "target" / "release" / "bench_crossbeam"


def rows_of() -> list[tuple[Row, list[str]]]:
    """Every row with the arguments of the program."""
    rows: list[tuple[Row, list[str]]] = []
    for kind in ("spsc", "mpmc"):
        for size in (8, 64):
            for capacity in (1024, 65536):
                row = Row(f"{kind} 1:1 {size} B {capacity} slots", "mops", "M/s", True)
                rows.append(
                    (row, ["--row", kind, "--bytes", str(size), "--capacity", str(capacity)])
                )
    for kind, name in BATCHES:
        for capacity in (1024, 65536):
            row = Row(f"{name}, 8 B {capacity} slots", "mops", "M/s", True)
            rows.append((row, ["--row", kind, "--capacity", str(capacity)]))
    for pinned in (1, 0):
        for capacity in (1024, 65536):
            how = "pinned" if pinned else "unpinned"
            row = Row(f"mpmc 2:2 8 B {capacity} slots {how}", "mops", "M/s", True)
            arguments = ["--row", "mpmc", "--threads", "2", "--capacity", str(capacity)]
            rows.append((row, [*arguments, "--pinned", str(pinned)]))
    for kind in ("spsc", "mpmc"):
        row = Row(f"{kind} round trip 8 B", "p50_ns", "ns", False)
        rows.append((row, ["--row", f"{kind}_trip"]))
    return rows


def contenders_of(
    arguments: list[str], ms: int, names: dict[str, list[str]], crossbeam: Path | None
) -> list[Contender]:
    row = arguments[1]
    binary = str(program("bench_queue"))
    common = [*arguments, "--ms", str(ms)]
    found = [Contender(name, [binary, "--queue", name, *common]) for name in names[row]]
    if crossbeam is not None and row in ("mpmc", "mpmc_trip"):
        found.append(Contender("crossbeam", [str(crossbeam), *common]))
    return found


def listed() -> dict[str, list[str]]:
    text = subprocess.run(
        [str(program("bench_queue")), "--list"], capture_output=True, text=True, check=True
    ).stdout
    names: dict[str, list[str]] = {}
    for line in text.splitlines():
        row, name = line.split(maxsplit=1)
        names.setdefault(row, []).append(name)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under 60 s")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rows", default="", help="only rows whose name matches")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--ms", type=int, default=0, help="of one measurement")
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 9)
    ms = options.ms or (25 if options.quick else 200)
    crossbeam = build_crossbeam()
    names = listed()
    report: list[dict[str, Any]] = []
    for row, arguments in rows_of():
        if not re.search(options.rows, row.name):
            continue
        contenders = contenders_of(arguments, ms, names, crossbeam)
        measure(contenders, rounds)
        if not options.json:
            show(row, contenders, "lumen")
        ours = next(c for c in contenders if c.name == "lumen")
        rivals = [c for c in contenders if not c.name.startswith("lumen")]
        report += results("queue", row, ours, rivals)
    print(json.dumps({"rows": report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
