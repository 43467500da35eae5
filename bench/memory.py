"""The question: what do an allocation in a region and a record in a shared buffer cost?

  arena           one thread on CPU 0: 1,000 allocations, then a reset (malloc: 1,000 frees)
  shared buffer   1, 2, 8 threads, thread i on CPU i % 2: reserve 16 bytes, write 8, commit

Rivals: std::pmr::monotonic_buffer_resource over a given buffer; malloc of glibc, mimalloc, jemalloc
(by LD_PRELOAD); a mutex. Limits: a checked bump pointer, a bare fetch_add, bare chunks of 4 KiB.
Every round runs every contender once, in an order that rotates.

The rival of chunked mode is the mutex a record too, and the mutex once for 4 KiB, which keeps a
writer's last records to itself until its chunk is full. A reservation of 4 KiB in dense mode does
the same, so that is its row. Near or far cores: as bench/runner/turns.py says.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
from collections import defaultdict

from bench.runner import Bench, Goal, Run, make_row
from bench.runner.places import left_out, program
from bench.runner.turns import KINDS, LEAST_ROUNDS, kind_of, probe_ns

ARENA_RIVALS = ["std::pmr::monotonic_buffer_resource", "malloc", "mimalloc", "jemalloc"]
# Dense mode gives every record its place in one order, which a lock for 4 KiB does not.
SHARED_MODES = {  # each with its rivals and its limit
    "dense": (["mutex"], "fetch_add"),
    "chunked": (["mutex", "mutex a 4 KiB"], "chunks"),
    "dense, 4 KiB a reservation": (["mutex a 4 KiB"], "chunks"),
}
Samples = dict[tuple[str, str], list[float]]  # by row and contender


def preloads() -> dict[str, str]:
    """The packaged allocators found here, by name."""
    found: dict[str, str] = {}
    for name in ("mimalloc", "jemalloc"):
        library = ctypes.util.find_library(name)
        if library is None:
            left_out(name, f"apt-get install lib{name}-dev")
        else:
            found[name] = library
    return found


def one_round(number: int, quick: bool, allocators: dict[str, str], samples: Samples) -> None:
    words = [program("bench_memory"), "--rotate", str(7 * number), *(["--quick"] if quick else [])]
    runs: list[tuple[str, list[str], dict[str, str]]] = [("", words, {})]
    for name, library in allocators.items():
        runs.append((name, [*words, "--only", "malloc"], {"LD_PRELOAD": library}))
    for name, command, more in runs:
        done = subprocess.run(
            command, env={**os.environ, **more}, capture_output=True, text=True, check=True
        )
        for sample in map(json.loads, done.stdout.splitlines()):
            samples[sample["row"], name or sample["contender"]].append(sample["value"])


def add_row(
    run: Run, samples: Samples, kind: str, row: str, name: str, ours: str, rivals: list[str],
    limit: str,
) -> None:  # fmt: skip
    metric = "reset" if "reset" in row else "record" if "shared" in row else "allocation"
    names = [one for one in (ours, *rivals, limit) if (row, one) in samples]
    rounds = {one: samples[row, one] for one in names}
    run.add(make_row(name, metric, "ns", rounds, limit=limit, cpus=kind))


def add_rows(run: Run, samples: Samples, kind: str) -> None:
    for size in (16, 256):
        row = f"arena {size} B"
        add_row(run, samples, kind, row, row, "lumen", ARENA_RIVALS, "bump")
    row = "arena reset after 64 MiB"
    add_row(run, samples, kind, row, row, "lumen", ARENA_RIVALS, "lumen after 4 KiB")
    for threads in (1, 2, 8):
        row = f"shared buffer {threads} threads"
        for mode, (rivals, limit) in SHARED_MODES.items():
            add_row(run, samples, kind, row, f"{row} {mode}", mode, rivals, limit)


def measure(run: Run) -> None:
    found: dict[str, Samples] = {kind: defaultdict(list) for kind in KINDS}
    allocators = preloads()
    before_ns = probe_ns()
    for number in range(run.rounds):
        samples: Samples = defaultdict(list)
        one_round(number, run.is_quick, allocators, samples)
        after_ns = probe_ns()
        kind = kind_of(before_ns, after_ns)
        before_ns = after_ns
        for key, values in samples.items() if kind is not None else ():
            found[kind or ""][key] += values
    for kind, merged in found.items():
        if len(merged.get(("arena 16 B", "lumen"), [])) >= LEAST_ROUNDS:
            add_rows(run, merged, kind)


BENCH = Bench(
    title="Memory",
    measure=measure,
    minutes=0.5,
    quick_minutes=0.3,
    rounds=(21, 5),
    sources=(
        "include/lumen/memory/{arena,line_turns,shared_buffer,asymmetric_fence,mapping}.h",
        "src/memory/{arena,shared_buffer,shared_buffer_flush,shared_buffer_writer,mapping}.cc",
        "include/lumen/base/{backoff,core_distance,doorbell,clock,cache_line}.h",
        "src/base/{core_distance,doorbell}.cc",
        "bench/memory/*",
    ),
    packages=("libmimalloc2.0 | libmimalloc2", "libjemalloc2"),
    has_a_row_for_each_goal=True,
    goals=(
        Goal("arena .* B$", "at_most", 0.6, "0.6 ns"),
        Goal("dense$", "of_limit_at_most", 1.1, "within 10 % of the bare fetch_add"),
        Goal("dense$", "ratio_at_least", 1, "ahead of the best rival"),
        Goal("chunked|reservation", "level", 0.25, "ahead of the best rival or level with it"),
    ),
)
