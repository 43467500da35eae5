#!/usr/bin/env python3
"""The question: what do an allocation in a region and a record in a shared buffer cost?

  arena           one thread on CPU 0: 1,000 allocations, then a reset (malloc: 1,000 frees)
  shared buffer   1, 2, 8 threads, thread i on CPU i % 2: reserve 16 bytes, write 8, commit

Rivals: std::pmr::monotonic_buffer_resource over a given buffer; malloc of glibc, mimalloc, jemalloc
(by LD_PRELOAD); a mutex. Limits: a checked bump pointer, a bare fetch_add, bare chunks of 4 KiB.
Every round runs every contender once, in an order that rotates.

The rival of a lane is the mutex a record too, and the mutex once for 4 KiB, which keeps a
writer's last records to itself until its chunk is full. Near or far cores: as
bench/queue/interleave.py says.

  bench/memory.py [--quick] [--json]     stdout is one JSON object, the table is on stderr
"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "queue"))
from interleave import KINDS, LEAST_ROUNDS, kind_of, probe_ns  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ARENA_RIVALS = ["std::pmr::monotonic_buffer_resource", "malloc", "mimalloc", "jemalloc"]
# Dense mode gives every record its place in one order, which a lock for 4 KiB does not.
SHARED_RIVALS = {"dense": ["mutex"], "lane": ["mutex", "mutex a 4 KiB"]}
Samples = dict[tuple[str, str], list[float]]


def program() -> Path:
    folder = Path(os.environ.get("LUMEN_BUILD", ROOT / ".build" / "native"))
    found = folder / "bench_memory"
    if not found.exists():
        sys.exit(f"{found} is missing: run ./dev bench memory, which builds it")
    return found


def preloads() -> dict[str, str]:
    """The packaged allocators found here, by name."""
    found: dict[str, str] = {}
    for name in ("mimalloc", "jemalloc"):
        library = ctypes.util.find_library(name)
        if library is None:
            print(f"bench: {name} left out: apt-get install lib{name}-dev", file=sys.stderr)
        else:
            found[name] = library
    return found


def run_round(number: int, quick: bool, allocators: dict[str, str]) -> Samples:
    command = [str(program()), "--rotate", str(7 * number), *(["--quick"] if quick else [])]
    runs: list[tuple[str, list[str], dict[str, str]]] = [("", command, {})]
    for name, library in allocators.items():
        runs.append((name, [*command, "--only", "malloc"], {"LD_PRELOAD": library}))
    samples: Samples = defaultdict(list)
    for name, arguments, extra in runs:
        done = subprocess.run(
            arguments, env={**os.environ, **extra}, capture_output=True, text=True, check=True
        )
        for line in done.stdout.splitlines():
            sample = json.loads(line)
            samples[sample["row"], name or sample["contender"]].append(sample["value"])
    return samples


def spread_of(values: list[float]) -> float:
    return (max(values) - min(values)) / median(values)


def make_row(
    samples: Samples, row: str, name: str, ours: str, rivals: list[str], limit: str
) -> dict[str, Any]:
    """All metrics here are ns: less is better, so the ratio is rival / ours."""
    mine = samples[row, ours]
    present = [rival for rival in rivals if (row, rival) in samples]
    rival = min(present, key=lambda r: median(samples[row, r]))
    theirs = samples[row, rival]
    return {
        "bench": "memory",
        "row": name,
        "metric": "reset" if "reset" in row else "record" if "shared" in row else "allocation",
        "unit": "ns",
        "ours": round(median(mine), 3),
        "rival": round(median(theirs), 3),
        "rival_name": rival,
        "ratio": round(median(theirs) / median(mine), 3),
        "spread": round(max(spread_of(mine), spread_of(theirs)), 3),
        "limit": round(median(samples[row, limit]), 3),
        "rounds": {contender: samples[row, contender] for contender in (ours, *present, limit)},
    }


def make_rows(samples: Samples) -> list[dict[str, Any]]:
    rows = []
    for size in (16, 256):
        row = f"arena {size} B"
        rows.append(make_row(samples, row, row, "lumen", ARENA_RIVALS, "bump"))
    row = "arena reset after 64 MiB"
    rows.append(make_row(samples, row, row, "lumen", ARENA_RIVALS, "lumen after 4 KiB"))
    for threads in (1, 2, 8):
        row = f"shared buffer {threads} threads"
        for mode, limit in (("dense", "fetch_add"), ("lane", "chunks")):
            rivals = SHARED_RIVALS[mode]
            rows.append(make_row(samples, row, f"{row} {mode}", mode, rivals, limit))
    return rows


def show(samples: Samples, kind: str, rounds: int, dropped: int) -> None:
    """Every contender, not only the best rival."""
    print(
        f"\n{kind} cores, {rounds} rounds used, {dropped} dropped because the CPUs moved\n"
        f"{'row':28} {'contender':36} {'median ns':>10} {'spread':>7}",
        file=sys.stderr,
    )
    for (row, contender), values in sorted(samples.items(), key=lambda s: (s[0][0], median(s[1]))):
        print(
            f"{row:28} {contender:36} {median(values):10.3f} {spread_of(values):7.2f}",
            file=sys.stderr,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under 60 s")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, default=0)
    options = parser.parse_args()
    found: dict[str, list[Samples]] = {kind: [] for kind in KINDS}
    dropped = 0
    allocators = preloads()
    before_ns = probe_ns()
    for number in range(options.rounds or (5 if options.quick else 21)):
        samples = run_round(number, options.quick, allocators)
        after_ns = probe_ns()
        kind = kind_of(before_ns, after_ns)
        if kind is None:
            dropped += 1
        else:
            found[kind].append(samples)
        before_ns = after_ns
    report: list[dict[str, Any]] = []
    for kind, rounds in found.items():
        if len(rounds) < LEAST_ROUNDS:
            continue
        merged: Samples = defaultdict(list)
        for samples in rounds:
            for key, values in samples.items():
                merged[key] += values
        if not options.json:
            show(merged, kind, len(rounds), dropped)
        report += [{**row, "cpus": kind, "dropped": dropped} for row in make_rows(merged)]
    print(json.dumps({"rows": report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
