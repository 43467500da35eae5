"""The question: how many requests hit with each eviction policy, and how many in other caches?

Seven traces, each written to a file that all read; caches of 1, 5 and 10 % of the keys. A miss puts
the key in. One thread asks; of `Concurrent` the worse of one shard and of eight counts.

  Lru, S3Fifo   against LRU and S3FIFO of libcachesim
  Lfu           against WTinyLFU of libcachesim, and Caffeine

A row is a policy and a trace, at that of the three sizes where ours is furthest behind (`size`).
`rounds` has all three sizes, for every contender.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.rivals.build import build_caffeine
from bench.runner import ROOT, Bench, BenchError, Goal, Option, Row, Run, make_row
from bench.runner.places import left_out, program, say

KEYS, REQUESTS = 500_000, 4_000_000
QUICK_KEYS, QUICK_REQUESTS = 100_000, 1_000_000
LIBCACHESIM = "libcachesim==0.3.5"
TRACES = (
    "zipf 0.8",
    "zipf 1.0",
    "zipf 1.2",
    "zipf and scans",
    "loop",
    "shifting zipf",
    "recent keys",
)
PARTS = (0.01, 0.05, 0.1)
SAME_KIND = {"LRU": "Lru", "S3FIFO": "S3Fifo", "WTinyLFU": "Lfu", "Caffeine": "Lfu"}
# A policy and the cache that has it -> the hit ratios in points, a size each.
Ratios = dict[tuple[str, str], list[float]]


def install_libcachesim() -> Any:
    """The module; None where it is not to be had. Its own needs are for traces from elsewhere."""
    folder = ROOT / ".build" / "libcachesim"
    if not (folder / "libcachesim").exists():
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        words = [*pip, "install", "--no-deps", "--target", str(folder), LIBCACHESIM]
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("libcachesim")
    except ImportError as problem:
        left_out("libcachesim", problem)
        return None


def run_lines(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(words)} failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_libcachesim(module: Any, file: Path, sizes: list[int]) -> Ratios:
    found: Ratios = {}
    for name in ("LRU", "S3FIFO", "WTinyLFU"):
        for entries in sizes:
            options = module.ReaderInitParam(binary_fmt_str="<Q", ignore_obj_size=True)
            options.obj_id_field = 1
            reader = module.TraceReader(str(file), module.TraceType.BIN_TRACE, options)
            missed, _ = getattr(module, name)(entries).process_trace(reader)
            ratios = found.setdefault((SAME_KIND[name], f"libcachesim {name}"), [])
            ratios.append(100 - 100 * missed)
    return found


def run_trace(file: Path, sizes: list[int], module: Any, java: list[str] | None) -> Ratios:
    words = [str(file), *map(str, sizes)]
    found: Ratios = {}
    for line in run_lines([program("bench_hit_ratio"), "run", *words]):
        ratio = 100 * line["hits"] / line["requests"]
        found.setdefault((line["policy"], line["flavour"]), []).append(ratio)
    if module is not None:
        found |= run_libcachesim(module, file, sizes)
    if java is not None:
        lines = run_lines([*java, "HitRatio", *words])
        found["Lfu", "Caffeine"] = [100 * line["hits"] / line["requests"] for line in lines]
    return found


def worst_row(name: str, ratios: Ratios, policy: str, ours: list[str], rivals: list[str]) -> Row:
    """`ours` may be several flavours of which the worst counts; of the rivals the best does."""
    present = [rival for rival in rivals if (policy, rival) in ratios]
    cases: list[Row] = []
    for size, part in enumerate(PARTS):
        flavour = min(ours, key=lambda f: ratios[policy, f][size])
        rounds = {who: [ratios[policy, who][size]] for who in (flavour, *present)}
        cases.append(
            make_row(name, "hit ratio", "points", rounds, more_is_better=True)
            | {"size": f"{100 * part:.0f} % of the keys"}
        )
    worst = min(cases, key=lambda row: row["ours"] - (row["rival"] or 0))
    # A trace and a seed give one figure.
    return worst | {"spread": 0.0, "rounds": {w: ratios[policy, w] for w in (*ours, *present)}}


def rows_of(trace: str, ratios: Ratios) -> list[Row]:
    rows = []
    for policy in ("Lru", "S3Fifo", "Lfu"):
        flavours = [who for (of, who) in ratios if of == policy]
        rivals = [who for who in flavours if who.startswith("libcachesim") or who == "Caffeine"]
        concurrent = [who for who in flavours if who.startswith("Concurrent")]
        one = ["OneThread"]
        name = f"{policy}, {trace}"
        rows.append(worst_row(f"{name}, OneThread", ratios, policy, one, rivals))
        rows.append(worst_row(f"{name}, Concurrent", ratios, policy, concurrent, rivals))
        if policy == "Lru":
            beside = f"{name}, Concurrent beside OneThread"
            rows.append(worst_row(beside, ratios, policy, concurrent, one))
    return rows


def measure(run: Run) -> None:
    keys = run.pick(KEYS, QUICK_KEYS)
    sizes = [int(keys * part) for part in PARTS]
    module = install_libcachesim()
    java = build_caffeine(ROOT / ".build")
    folder = ROOT / ".build" / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    for trace in TRACES:
        file = folder / f"{trace.replace(' ', '_')}.keys"
        words = [program("bench_hit_ratio"), "make", str(file), trace, str(keys)]
        words += [str(run.pick(REQUESTS, QUICK_REQUESTS)), str(run.options.seed)]
        subprocess.run(words, check=True)
        run.add(*rows_of(trace, run_trace(file, sizes, module, java)))
        file.unlink()
        say(trace)


BENCH = Bench(
    title="Hit ratios",
    measure=measure,
    minutes=9.0,
    quick_minutes=1.2,
    rounds=(1, 1),
    options=(Option("--seed", 1, "of the traces"),),
    sources=(
        "include/lumen/cache/*.h",
        "include/lumen/cache/detail/*.h",
        "bench/cache/{hit_ratio.cc,traces.h}",
        "bench/rivals/build.py",
        "bench/rivals/caffeine/*",
    ),
    packages=("default-jdk-headless", "maven"),
    has_a_row_for_each_goal=True,
    goals=(
        Goal(
            "^(Lru|S3Fifo|Lfu), .*, (OneThread|Concurrent)$",
            "under_rival_at_most",
            1,
            "within 1 point of the best cache with the same policy",
        ),
        Goal(
            "^Lru, .*, Concurrent beside OneThread$",
            "under_rival_at_most",
            0.5,
            "within 0.5 points of the exact order",
        ),
    ),
)
